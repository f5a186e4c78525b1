//! The client against a real server on loopback.

use std::{fs, time::Duration};

use http::{Response, header};
use http_body_util::Full;
use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::policy;

mod prometheus;
mod server;
mod tls;

use server::{Server, alertmanager, answer};

const GROUPS: &str = include_str!("../../fixtures/alertmanager-api/groups.json");
const NOW: &str = "2026-03-01T13:00:00Z";

/// A configuration with these peers and these options of `http`.
fn configured(peers: &str, http: &str) -> Alertmanagers {
    let text = format!(
        "release: {{require: [resolved]}}\nsources:\n  alertmanagers:\n    receiver: gpu.quarantine\n    {peers}\n    \
         timeout: 500ms\n    http: {{{http}}}\n"
    );
    policy::load("config.yaml", &text).unwrap_or_else(|e| panic!("{e}")).alertmanagers.unwrap()
}

fn urls(servers: &[&Server]) -> String {
    let urls: Vec<String> = servers.iter().map(|s| format!("'http://{}'", s.address)).collect();
    format!("urls: [{}]", urls.join(", "))
}

async fn pull_of(settings: Alertmanagers) -> Pull {
    Sources::new(settings, Arc::new(Metrics::new())).pull(NOW.parse().unwrap()).await
}

/// Why a pull from one server is incomplete.
async fn reason(answers: impl Fn(&str) -> Option<Response<Full<axum::body::Bytes>>> + Send + Sync + 'static) -> String {
    let server = Server::start(None, answers).await;
    let pull = pull_of(configured(&urls(&[&server]), "")).await;
    assert_eq!(pull.alerts, []);
    pull.incomplete.expect("nothing is proven")
}

#[tokio::test]
async fn a_peer_is_asked_for_our_receiver_alone_and_for_its_status_last() {
    let server = Server::start(None, |path| Some(alertmanager(path, GROUPS))).await;
    let metrics = Arc::new(Metrics::new());
    let settings = configured(&format!("urls: ['http://{}/am/']", server.address), "");
    let pull = Sources::new(settings, Arc::clone(&metrics)).pull(NOW.parse().unwrap()).await;
    assert_eq!((pull.incomplete, pull.alerts.len(), pull.begun), (None, 5, NOW.parse().unwrap()));
    assert_eq!(
        server.paths(),
        ["/am/api/v2/alerts/groups?receiver=%5Egpu%5C.quarantine%24", "/am/api/v2/silences", "/am/api/v2/status"]
    );
    assert_eq!(server.last("user-agent"), [concat!("gpu-quarantine/", env!("CARGO_PKG_VERSION"))]);
    assert_eq!(server.last("authorization"), Vec::<String>::new());
    let mut muted: Vec<String> = pull.alerts.into_iter().filter_map(|p| p.muted).collect();
    muted.sort();
    let want = [
        "inhibited by GpuXidGpuLost",
        "muted by the time interval always",
        "silenced by alice until 2026-11-30T13:00:22Z: \"new riser\"",
    ];
    assert_eq!(muted, want);
    assert_eq!([PullResult::Complete, PullResult::Incomplete, PullResult::Failed].map(|r| metrics.pulls_of(r)), [1, 0, 0]);
}

#[tokio::test]
async fn without_alerts_the_receiver_must_be_known_and_no_silence_matters() {
    let server = Server::start(None, |path| Some(alertmanager(path, "[]"))).await;
    let mut settings = configured(&urls(&[&server]), "");
    assert_eq!(pull_of(settings.clone()).await.incomplete, None);
    let paths = server.paths();
    assert_eq!(paths[1..], ["/api/v2/receivers", "/api/v2/status"]);
    settings.receiver = "gpu-quarantine".to_owned();
    let why = pull_of(settings).await.incomplete.unwrap();
    assert!(why.contains("has no receiver \"gpu-quarantine\""), "{why}");
}

#[tokio::test]
async fn silences_that_cannot_be_had_do_not_make_a_pull_incomplete() {
    let server = Server::start(None, |path| match path {
        "/api/v2/silences" => Some(answer(500, "")),
        _ => Some(alertmanager(path, GROUPS)),
    })
    .await;
    let pull = pull_of(configured(&urls(&[&server]), "")).await;
    assert_eq!((pull.incomplete, pull.changes_at), (None, None));
    assert!(pull.alerts.iter().any(|p| p.muted.as_deref().is_some_and(|m| m.starts_with("silenced by the silence 89f09e7f"))));
}

#[tokio::test]
async fn one_peer_that_is_down_makes_a_pull_incomplete_and_loses_nothing_of_the_other() {
    let (up, down) = (
        Server::start(None, |path| Some(alertmanager(path, GROUPS))).await,
        Server::start(None, |_| Some(answer(503, ""))).await,
    );
    let metrics = Arc::new(Metrics::new());
    let pull = Sources::new(configured(&urls(&[&up, &down]), ""), Arc::clone(&metrics)).pull(NOW.parse().unwrap()).await;
    assert_eq!(pull.alerts.len(), 5);
    assert!(pull.incomplete.unwrap().contains(&down.address.to_string()));
    assert_eq!([PullResult::Complete, PullResult::Incomplete, PullResult::Failed].map(|r| metrics.pulls_of(r)), [0, 1, 0]);
    let metrics = Arc::new(Metrics::new());
    Sources::new(configured(&urls(&[&down]), ""), Arc::clone(&metrics)).pull(NOW.parse().unwrap()).await;
    assert_eq!(metrics.pulls_of(PullResult::Failed), 1);
}

#[tokio::test]
async fn every_address_behind_a_name_is_asked() {
    let server = Server::start(None, |path| Some(alertmanager(path, GROUPS))).await;
    let dns = format!("dns: {{name: '127.0.0.1:{}', path: /am}}", server.address.port());
    assert_eq!(pull_of(configured(&dns, "")).await.incomplete, None);
    assert!(server.paths()[0].starts_with("/am/api/v2/alerts/groups?"));
    let pull = pull_of(configured("dns: {name: 'no-such-host.invalid:9093'}", "")).await;
    let why = pull.incomplete.unwrap();
    assert!(why.starts_with("no address of Alertmanager was found behind no-such-host.invalid:9093: "), "{why}");
}

#[tokio::test]
async fn basic_authentication_and_headers_are_sent() {
    let server = Server::start(None, |path| Some(alertmanager(path, "[]"))).await;
    let files = TempDir::new().unwrap();
    fs::write(files.path().join("password"), "hunter2\n").unwrap();
    fs::write(files.path().join("header"), " three \n").unwrap();
    let dir = files.path().display();
    let http = format!(
        "basic_auth: {{username: gpu, password_file: {dir}/password}}, \
         http_headers: {{X-Scope-OrgID: {{values: [one], secrets: [two], files: [{dir}/header]}}}}"
    );
    let settings = configured(&urls(&[&server]), &http);
    assert_eq!(pull_of(settings.clone()).await.incomplete, None);
    assert_eq!(server.last("authorization"), ["Basic Z3B1Omh1bnRlcjI="]);
    assert_eq!(server.last("x-scope-orgid"), ["one", "two", "three"]);
    let shown = format!("{:?}", Client::new(&settings).unwrap());
    assert!(!shown.contains("hunter2") && !shown.contains("Z3B1") && !shown.contains("two"), "{shown}");
}

#[tokio::test]
async fn a_token_is_read_again_for_each_pull() {
    let server = Server::start(None, |path| Some(alertmanager(path, "[]"))).await;
    let files = TempDir::new().unwrap();
    let token = files.path().join("token");
    let http = format!("authorization: {{credentials_file: {}}}", token.display());
    let settings = configured(&urls(&[&server]), &http);
    let sources = Sources::new(settings, Arc::new(Metrics::new()));
    for value in ["first", "second"] {
        fs::write(&token, format!("{value}\n")).unwrap();
        assert_eq!(sources.pull(NOW.parse().unwrap()).await.incomplete, None);
        assert_eq!(server.last("authorization"), [format!("Bearer {value}")]);
    }
    for (content, why) in [(" \n", "it is empty"), ("two\nlines", "cannot be sent in a header")] {
        fs::write(&token, content).unwrap();
        let reason = sources.pull(NOW.parse().unwrap()).await.incomplete.unwrap();
        assert!(reason.contains(why) && !reason.contains("lines"), "{reason}");
    }
    fs::remove_file(&token).unwrap();
    let reason = sources.pull(NOW.parse().unwrap()).await.incomplete.unwrap();
    assert!(reason.contains("cannot use the credentials_file") && reason.contains("No such file"), "{reason}");
}

#[rstest]
#[case::unauthorized(401, "answered 401 Unauthorized; check basic_auth or authorization")]
#[case::not_found(404, "answered 404 Not Found; check the URL and its path prefix")]
#[case::busy(503, "answered 503 Service Unavailable; it is starting or answers too many at once")]
#[case::broken(500, "answered 500 Internal Server Error; its own log says why")]
#[tokio::test]
async fn an_error_says_what_was_asked_and_what_to_do(#[case] code: u16, #[case] want: &str) {
    let why = reason(move |_| Some(answer(code, "<html>"))).await;
    assert!(why.contains(want) && why.starts_with("http://127.0.0.1:"), "{why}");
}

#[tokio::test]
async fn a_redirect_is_refused_and_not_followed() {
    let elsewhere = Server::start(None, |path| Some(alertmanager(path, "[]"))).await;
    let to = format!("http://{}/login?token=hunter2", elsewhere.address);
    let why = reason(move |_| {
        let mut answer = answer(302, "");
        answer.headers_mut().insert(header::LOCATION, to.parse().unwrap());
        Some(answer)
    })
    .await;
    assert!(why.contains("/login\", which is not followed; write the URL that answers itself"), "{why}");
    assert!(elsewhere.asked().is_empty() && !why.contains("hunter2"));
}

#[tokio::test]
async fn a_slow_peer_is_given_up_after_the_timeout() {
    let began = Instant::now();
    let why = reason(|_| None).await;
    assert!(why.contains("no answer from http://127.0.0.1") && why.contains("within 500ms"), "{why}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_not_kept() {
    let body = axum::body::Bytes::from(vec![b' '; (64 << 20) + 1]);
    let server = Server::start(None, move |_| Some(answer(200, body.clone()))).await;
    let mut settings = configured(&urls(&[&server]), "");
    settings.timeout = Duration::from_secs(30);
    let why = pull_of(settings).await.incomplete.unwrap();
    assert!(why.contains("is larger than 64 MiB"), "{why}");
}

#[rstest]
#[case::html("<html>", "is not that of Alertmanager's API v2")]
#[case::object("{}", "is not that of Alertmanager's API v2")]
#[case::a_group("[7]", "listed 1 alerts that cannot be read")]
#[tokio::test]
async fn garbage_proves_nothing(#[case] body: &'static str, #[case] want: &str) {
    let why = reason(move |path| Some(alertmanager(path, body))).await;
    assert!(why.contains(want), "{why}");
}

#[tokio::test]
async fn a_peer_that_is_not_there_is_named_with_the_cause() {
    let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let pull = pull_of(configured(&format!("urls: ['http://127.0.0.1:{port}']"), "")).await;
    let why = pull.incomplete.unwrap();
    assert!(why.contains("cannot reach http://127.0.0.1") && why.contains("refused"), "{why}");
}

#[tokio::test]
async fn the_age_of_a_peer_is_told_by_its_own_clock() {
    let server = Server::start(None, |path| Some(alertmanager(path, "[]"))).await;
    let client = Client::new(&configured(&urls(&[&server]), "")).unwrap();
    let answer = client.ask(&PeerUrl::parse(&format!("http://{}", server.address)).unwrap(), "gpu.quarantine").await.unwrap();
    assert_eq!(answer.age.map(|age| age.as_millis()), Some(3_599_500));
}

#[tokio::test]
async fn the_loop_hands_on_what_it_pulled_and_can_run_in_a_task_of_its_own() {
    let server = Server::start(None, |path| Some(alertmanager(path, GROUPS))).await;
    let sources = Sources::new(configured(&urls(&[&server]), ""), Arc::new(Metrics::new()));
    let (sender, mut pulls) = tokio::sync::mpsc::unbounded_channel();
    let task = tokio::spawn(async move {
        let consume = move |pull: Pull| -> futures::future::BoxFuture<'static, ()> {
            sender.send(pull).unwrap();
            Box::pin(async {})
        };
        poll::run(&sources, || NOW.parse().unwrap(), &tokio::sync::Notify::new(), consume).await;
    });
    assert_eq!(pulls.recv().await.map(|pull| (pull.incomplete, pull.alerts.len())), Some((None, 5)));
    task.abort();
}
