//! The answers.

use std::time::Duration;

use axum::{Router, routing::get};
use gpu_quarantine::{
    alert::RecoveryQuery,
    engine::{Clock as _, SystemClock},
    locate::{Gpu, NodeName},
    quarantine::evidence::{Asked, NodeAnswers, Question, Range, Series},
    sources::EvidenceClient,
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    process::eventually,
    prometheus::{Prometheus, after, begin, history},
    web::Web,
};

const A: &str = "GPU-00000000-0000-0000-0000-00000000000a";
const B: &str = "GPU-00000000-0000-0000-0000-00000000000b";

fn question(from: Timestamp, to: Timestamp, step: u64, queries: &[&str]) -> Question {
    let asked = Asked {
        alert: "GpuLost".to_owned(),
        gpu: None,
        queries: queries.iter().map(|q| RecoveryQuery::parse(q).unwrap()).collect(),
        since: from,
        machine_changed: false,
    };
    let range = Range { from, to, step: Duration::from_secs(step) };
    Question {
        node: NodeName::parse("gpu-1").unwrap(),
        uid: "u".to_owned(),
        at: range.to,
        gpus: None,
        range,
        claims: vec![asked],
    }
}

async fn ask(client: &EvidenceClient, question: &Question, host: &str) -> NodeAnswers {
    client.ask(question, &[host.to_owned()]).await
}

/// The steps between two, every 30 s.
fn steps(begin: Timestamp, from: i64, to: i64) -> Series {
    (from..=to).step_by(30).map(|at| after(begin, at)).collect()
}

fn names(answers: &NodeAnswers) -> Vec<Vec<String>> {
    let present = answers.present.as_ref().unwrap_or_else(|e| panic!("{e}"));
    present.iter().map(|gpu| gpu.names.iter().map(Gpu::to_string).collect()).collect()
}

#[tokio::test]
async fn samples_count_for_two_minutes_and_only_those_of_the_node() {
    let begin = begin();
    let on = |node: &str, gpu: u8, uuid: &str| format!("node=\"{node}\",gpu=\"{gpu}\",UUID=\"{uuid}\"");
    let (first, second, other) =
        (on("gpu-1", 0, A), on("gpu-1", 1, B), on("gpu-2", 0, "GPU-00000000-0000-0000-0000-0000000000ff"));
    let upper = format!("Hostname=\"GPU-3.Example.com\",gpu=\"0\",UUID=\"{A}\"");
    let mig = format!("{first},GPU_I_ID=\"1\",pod=\"a\"");
    let history = history(
        begin,
        &[
            ("DCGM_FI_DEV_GPU_TEMP", &first, 0, 300, "34"),
            // The same labels under another name, which functions over both cannot stand.
            ("DCGM_FI_DEV_FB_USED", &first, 0, 300, "1"),
            ("DCGM_FI_DEV_GPU_TEMP", &mig, 0, 300, "34"),
            ("DCGM_FI_DEV_GPU_TEMP", &second, 0, 600, "34"),
            ("DCGM_FI_DEV_GPU_TEMP", &other, 0, 600, "34"),
            ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", &upper, 0, 600, "34"),
            ("DCGM_FI_DEV_XID_ERRORS", &on("gpu-4", 0, A), 0, 600, "0"),
        ],
    );
    let Some(prometheus) = Prometheus::start(Some(&history), "", None).await else { return };
    let client = prometheus.client("").await;
    let queries = [
        "DCGM_FI_DEV_GPU_TEMP{node=\"gpu-1\",gpu=\"1\"} < 90",
        "DCGM_FI_DEV_GPU_TEMP{node=\"gpu-1\"} > 90",
        "DCGM_FI_DEV_GPU_TEMP{node=\"gpu-1\"} * NaN # nobody knows",
        "{__name__=~\"DCGM_FI_DEV_.+\",node=\"gpu-1\"}",
        "rate({__name__=~\"DCGM_FI_DEV_(GPU_TEMP|FB_USED)\",node=\"gpu-1\"}[5m])",
        "no_such_series",
    ];
    let answers = ask(&client, &question(begin, after(begin, 600), 30, &queries), "gpu-1").await;
    assert_eq!(names(&answers), [vec![A.to_owned(), "index:0".to_owned()], vec![B.to_owned(), "index:1".to_owned()]]);
    let present = answers.present.as_ref().unwrap();
    assert_eq!(present[1].at, steps(begin, 0, 600));
    // Prometheus by itself shows the last value for 5 minutes. Before version 3 a window of 2 minutes has one sample more.
    assert!([390, 420].iter().any(|to| present[0].at == steps(begin, 0, *to)), "{:?}", present[0].at);
    let answered = &answers.claims[0];
    assert_eq!(answered[0], Ok(steps(begin, 0, 600)));
    assert_eq!(answered[1], Ok(Series::default()));
    assert_eq!(answered[2], Ok(Series::default()), "NaN is no number");
    assert_eq!(answered[3], Ok(steps(begin, 0, 600)));
    let why = answered[4].clone().unwrap_err();
    assert!(why.contains(" says: ") && why.contains("same labelset"), "{why}");
    assert_eq!(answered[5], Ok(Series::default()));

    let other_nodes = question(begin, after(begin, 600), 30, &[]);
    for (host, count) in [("gpu-3.example.com", 1), ("gpu-2", 1), ("gpu-4", 0), ("gpu", 0)] {
        assert_eq!(names(&ask(&client, &other_nodes, host).await).len(), count, "{host}");
    }
    let hostile =
        ["gpu.1", ".*", "gpu-1|gpu-2", "x\"} or {node=\"gpu-1", "x)|(gpu-1", "gpu-1\n", "\\", "(?i)gpu-1", "[", "\0", "é"];
    for host in hostile {
        assert_eq!(names(&ask(&client, &other_nodes, host).await), Vec::<Vec<String>>::new(), "{host:?}");
    }
    let chosen = "locate: {node_labels: [node, 'node.name'], hostname_labels: [], pci_labels: ['gpu.pci']}\n";
    assert_eq!(
        names(&ask(&prometheus.client(chosen).await, &other_nodes, "gpu-1").await).len(),
        2,
        "names in quotes are PromQL too"
    );
}

#[tokio::test]
async fn the_selector_keeps_apart_what_has_the_same_names() {
    let begin = begin();
    let of = |cluster: &str, uuid: &str| format!("cluster=\"{cluster}\",node=\"gpu-1\",UUID=\"{uuid}\"");
    let rows = [("dcgm_gpu_temp", &*of("prod-a", A), 0, 300, "34"), ("dcgm_gpu_temp", &*of("prod-b", B), 0, 300, "34")];
    let Some(prometheus) = Prometheus::start(Some(&history(begin, &rows)), "", None).await else { return };
    let client = prometheus.choosing(r#"['cluster="prod-b"', 'cluster!~"x\\|y"']"#, "").await;
    let answers = ask(&client, &question(begin, after(begin, 300), 30, &[]), "gpu-1").await;
    assert_eq!(names(&answers), [[B.to_owned()]]);
}

#[tokio::test]
async fn presence_ends_with_the_first_scrape_that_fails() {
    let shown = format!("DCGM_FI_DEV_GPU_TEMP{{Hostname=\"gpu-1\",gpu=\"0\",UUID=\"{A}\"}} 34\n");
    let mut exporter = Web::start(Router::new().route("/metrics", get(move || async move { shown }))).await;
    let Some(prometheus) = Prometheus::start(None, "", Some(exporter.address())).await else { return };
    let client = prometheus.client("").await;
    let present = async || {
        let now = Timestamp::from_second(SystemClock.now().as_second()).unwrap();
        let answers = ask(&client, &question(now - SignedDuration::from_secs(10), now, 1, &[]), "gpu-1").await;
        answers.present.unwrap_or_else(|e| panic!("{e}")).iter().any(|gpu| gpu.at.has(now))
    };
    let becomes = async |wanted: bool| {
        let probe = async || if present().await == wanted { Ok(()) } else { Err(prometheus.process.tail()) };
        eventually(&format!("the GPU is present: {wanted}"), Duration::from_secs(20), probe).await;
    };
    becomes(true).await;
    exporter.down();
    becomes(false).await;
    exporter.up().await;
    becomes(true).await;
}

#[tokio::test]
async fn the_rules_show_the_query_that_prometheus_rendered_and_what_fails() {
    let rules = r#"
groups:
  - name: faults
    rules:
      - alert: Bad
        expr: label_replace(vector(1), "node", "a\"b", "", "")
        labels: {remediation: isolate}
        annotations: {recovery_query: 'up{node={{ printf "%q" $labels.node }}} == 1'}
      - alert: Worse
        expr: label_replace(vector(1), "node", "a", "", "")
      - alert: NeverFires
        expr: vector(1) > 1
        annotations: {recovery_query: up}
      - alert: Fails
        expr: vector(1) * on () (label_replace(vector(1), "a", "b", "", "") or vector(1))
"#;
    let Some(prometheus) = Prometheus::start(None, rules, None).await else { return };
    let client = prometheus.client("").await;
    let rules = eventually("the rules are evaluated", Duration::from_secs(20), async || {
        let rules = client.rules().await?;
        if rules.alerts.is_empty() || rules.failing.is_empty() { Err(format!("{rules:?}")) } else { Ok(rules) }
    })
    .await;
    let [alert] = &rules.alerts[..] else { panic!("{rules:?}") };
    assert_eq!(alert.recovery_query, r#"up{node="a\"b"} == 1"#);
    let labels: Vec<(&str, &str)> = alert.labels.iter().collect();
    assert_eq!(labels, [("alertname", "Bad"), ("node", "a\"b"), ("remediation", "isolate")]);
    assert!(RecoveryQuery::parse(&alert.recovery_query).is_ok());
    let [failing] = &rules.failing[..] else { panic!("{rules:?}") };
    assert!(failing.to_string().starts_with("the rule Fails fails: ") && failing.error.contains("duplicate"), "{failing}");
}
