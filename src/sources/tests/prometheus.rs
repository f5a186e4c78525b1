//! The client for Prometheus against a server on loopback.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::{
    alert::RecoveryQuery,
    locate::{Gpu, NodeName},
    quarantine::evidence::{Asked as Claim, NodeAnswers, Question, Range, Series},
    sources::{Evidence, Rules},
};

const UUID: &str = "GPU-00000000-0000-0000-0000-00000000000a";
const EMPTY: &str = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;

fn evidence(server: &Server, more: &str) -> (Evidence, Arc<Metrics>) {
    let text = format!(
        "release: {{require: [evidence]}}\nsources:\n  prometheus:\n    query_url: http://{}/q/\n    timeout: 500ms\n    {more}\n",
        server.address
    );
    let config = policy::load("config.yaml", &text).unwrap_or_else(|e| panic!("{e}"));
    let metrics = Arc::new(Metrics::new());
    (Evidence::new(config.prometheus.unwrap(), config.locate, Arc::clone(&metrics)), metrics)
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn question(queries: &[&[&str]]) -> Question {
    let claim = |queries: &&[&str]| Claim {
        alert: "GpuLost".to_owned(),
        gpu: None,
        queries: queries.iter().map(|q| RecoveryQuery::parse(q).unwrap()).collect(),
        since: second(1_000),
        machine_changed: false,
    };
    Question {
        node: NodeName::parse("gpu-1").unwrap(),
        uid: "u".to_owned(),
        at: second(1_061),
        gpus: Some(1),
        range: Range { from: second(1_001), to: second(1_061), step: Duration::from_secs(30) },
        claims: queries.iter().map(claim).collect(),
    }
}

async fn ask(evidence: &Evidence, question: &Question) -> NodeAnswers {
    evidence.client().await.unwrap().ask(question, &["gpu-1".to_owned()]).await
}

/// An answer to presence, or to a query by its first word.
fn prometheus(path: &str) -> Option<Response<Full<axum::body::Bytes>>> {
    let presence = format!(
        r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"metric":{{"UUID":"{UUID}","gpu":"0"}},"values":[[1001,"1"],[1061,"1"]]}}]}}}}"#
    );
    let good = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1031,"1"]]}]}}"#;
    Some(match path {
        _ if path.contains("last_over_time") => answer(200, presence),
        _ if path.contains("good") => answer(200, good),
        _ if path.contains("broken") => {
            answer(422, r#"{"status":"error","errorType":"execution","error":"many-to-many matching not allowed"}"#)
        }
        _ if path.contains("partly") => answer(200, EMPTY.replacen('{', "{\"warnings\":[\"a store is down\"],", 1)),
        _ if path.contains("slow") => return None,
        _ => answer(200, EMPTY),
    })
}

#[tokio::test]
async fn each_part_of_an_answer_says_what_was_found_or_why_not() {
    let server = Server::start(None, prometheus).await;
    let (evidence, metrics) = evidence(&server, "");
    let answers = ask(&evidence, &question(&[&["good", "bad"], &["broken", "good"], &[], &["slow", "partly"]])).await;
    let present = answers.present.unwrap();
    assert_eq!(present.len(), 1);
    assert_eq!(present[0].names, [Gpu::parse(UUID).unwrap(), Gpu::Index(0)]);
    assert_eq!(present[0].at, [second(1_001), second(1_061)].into_iter().collect());
    let good: Result<Series, String> = Ok([second(1_031)].into_iter().collect());
    assert_eq!(answers.claims[0], [good.clone(), Ok(Series::default())]);
    assert_eq!(answers.claims[1][1], good);
    assert_eq!((answers.claims[2].len(), answers.claims.len()), (0, 4));
    let base = format!("Prometheus at http://{}/q", server.address);
    let why = |claim: usize, query: usize| answers.claims[claim][query].clone().unwrap_err();
    assert_eq!(why(1, 0), format!("{base} says: many-to-many matching not allowed"));
    assert!(why(3, 0).starts_with(&format!("{base} did not answer within 500ms")), "{}", why(3, 0));
    assert!(why(3, 0).contains("sources.prometheus.timeout"), "{}", why(3, 0));
    assert_eq!(why(3, 1), format!("{base}: the answer may be partial, it warns: a store is down"));
    // `good` was asked for two claims, and once.
    assert_eq!(["ok", "failed"].map(|result| metrics.evidence_queries_of(result)), [3, 3]);
}

#[tokio::test]
async fn a_query_is_a_form_with_the_steps_of_the_question() {
    let server = Server::start(None, prometheus).await;
    let (evidence, _) = evidence(&server, "http: {http_headers: {X-Scope-OrgID: {values: [gpu]}}}");
    ask(&evidence, &question(&[&["good{a=\"b&c\"}"]])).await;
    let asked = server.paths().into_iter().find(|path| path.contains("good")).unwrap();
    assert_eq!(
        asked,
        "/q/api/v1/query_range?query=group%28%28good%7Ba%3D%22b%26c%22%7D%0A%29%20%3E%3D%20-Inf%29&start=1001&end=1061&step=30&\
         timeout=500ms"
    );
    assert_eq!(server.last("content-type"), ["application/x-www-form-urlencoded"]);
    assert_eq!(server.last("x-scope-orgid"), ["gpu"]);
}

#[tokio::test]
async fn no_more_than_four_queries_are_under_way_at_once() {
    let under_way: Arc<[AtomicUsize; 2]> = Arc::default();
    let counted = Arc::clone(&under_way);
    // Each answer takes its time in a thread of the server's runtime, which has enough of them.
    let server = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(12).enable_all().build().unwrap();
        let answers = move |path: &str| {
            let now = counted[0].fetch_add(1, Ordering::SeqCst) + 1;
            counted[1].fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(30));
            counted[0].fetch_sub(1, Ordering::SeqCst);
            prometheus(path)
        };
        let server = runtime.block_on(Server::start(None, answers));
        (server, runtime)
    });
    let (server, runtime) = server.await.unwrap();
    let (evidence, _) = evidence(&server, "");
    let queries: Vec<String> = (0..20).map(|n| format!("good{n}")).collect();
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let answers = ask(&evidence, &question(&[&queries])).await;
    assert!(answers.claims[0].iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(under_way[1].load(Ordering::SeqCst), 4);
    runtime.shutdown_background();
}

#[tokio::test]
async fn after_a_query_that_is_late_no_more_are_sent() {
    let server = Server::start(None, |_| None).await;
    let (evidence, metrics) = evidence(&server, "");
    let queries: Vec<String> = (0..10).map(|n| format!("good{n}")).collect();
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    let answers = ask(&evidence, &question(&[&queries])).await;
    assert!(answers.present.unwrap_err().contains("did not answer within 500ms"));
    assert!(answers.claims[0][9].clone().unwrap_err().contains("did not answer an earlier query in time"));
    assert!(server.paths().len() <= 5, "{:?}", server.paths());
    assert_eq!(metrics.evidence_queries_of("ok"), 0);
}

#[tokio::test]
async fn without_a_name_the_rest_is_asked_all_the_same() {
    let server = Server::start(None, prometheus).await;
    let (evidence, _) = evidence(&server, "");
    let answers = evidence.client().await.unwrap().ask(&question(&[&["good"]]), &[]).await;
    assert!(answers.present.is_err() && answers.claims[0][0].is_ok());
    assert_eq!(server.paths().len(), 1);
}

#[tokio::test]
async fn an_answer_without_an_explanation_says_what_to_do() {
    for (code, want) in [
        (401, "answered 401 Unauthorized; check basic_auth or authorization below sources.prometheus.http"),
        (404, "answered 404 Not Found; check the URL and its path prefix"),
        (503, "answered 503 Service Unavailable; it is starting or has too much to do"),
        (200, "the answer is not that of Prometheus' HTTP API v1"),
    ] {
        let server = Server::start(None, move |_| Some(answer(code, "<html>"))).await;
        let (evidence, metrics) = evidence(&server, "");
        let why = ask(&evidence, &question(&[])).await.present.unwrap_err();
        assert!(why.contains(want) && why.contains(&server.address.to_string()), "{why}");
        assert_eq!(metrics.evidence_queries_of("failed"), 1);
    }
}

#[tokio::test]
async fn an_answer_of_prometheus_that_is_too_large_is_not_kept() {
    let body = axum::body::Bytes::from(vec![b' '; (32 << 20) + 1]);
    let server = Server::start(None, move |_| Some(answer(200, body.clone()))).await;
    let (evidence, _) = evidence(&server, "");
    let mut settings = evidence.settings().clone();
    settings.timeout = Duration::from_secs(30);
    let evidence = Evidence::new(settings, policy_locate(), Arc::new(Metrics::new()));
    let why = ask(&evidence, &question(&[])).await.present.unwrap_err();
    assert!(why.contains("is larger than 32 MiB"), "{why}");
}

fn policy_locate() -> policy::Locate {
    policy::load("config.yaml", "release: {require: [manual]}\n").unwrap().locate
}

#[tokio::test]
async fn files_are_read_for_each_round_and_a_missing_one_is_named() {
    let server = Server::start(None, prometheus).await;
    let files = TempDir::new().unwrap();
    let token = files.path().join("token");
    let (evidence, metrics) = evidence(&server, &format!("http: {{authorization: {{credentials_file: {}}}}}", token.display()));
    for value in ["first", "second"] {
        fs::write(&token, value).unwrap();
        ask(&evidence, &question(&[])).await;
        assert_eq!(server.last("authorization"), [format!("Bearer {value}")]);
    }
    fs::remove_file(&token).unwrap();
    let why = evidence.client().await.unwrap_err();
    assert!(why.starts_with("Prometheus was not asked: cannot use the credentials_file"), "{why}");
    assert_eq!(metrics.evidence_queries_of("failed"), 1);
}

#[tokio::test]
async fn the_rules_are_asked_where_they_are() {
    let rules = Server::start(None, |_| Some(answer(200, r#"{"status":"success","data":{"groups":[]}}"#))).await;
    let queries = Server::start(None, |_| Some(answer(404, ""))).await;
    let (evidence, _) = evidence(&queries, &format!("rules_url: http://{}/ruler", rules.address));
    assert_eq!(evidence.client().await.unwrap().rules().await, Ok(Rules::default()));
    assert_eq!((rules.paths(), queries.paths().len()), (vec!["/ruler/api/v1/rules".to_owned()], 0));
    drop(rules);
    let down = Server::start(None, |_| Some(answer(500, r#"{"status":"error","error":"no"}"#))).await;
    let (evidence, _) = self::evidence(&down, "");
    let why = evidence.client().await.unwrap().rules().await.unwrap_err();
    assert_eq!(why, format!("Prometheus at http://{}/q says: no", down.address));
}
