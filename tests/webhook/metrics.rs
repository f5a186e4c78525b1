//! `/metrics`.

use std::collections::BTreeMap;

use gpu_quarantine::quarantine::Judgement;

use crate::harness::{BEGIN, CONFIG, Service, at, fixture, lost, sent};

/// Every metric that is promised, with its type.
const PROMISED: [(&str, &str); 37] = [
    ("gpu_quarantine_build", "info"),
    ("gpu_quarantine_webhook_requests", "counter"),
    ("gpu_quarantine_alerts_received", "counter"),
    ("gpu_quarantine_alerts", "counter"),
    ("gpu_quarantine_alerts_truncated", "counter"),
    ("gpu_quarantine_alerts_unmapped", "counter"),
    ("gpu_quarantine_alerts_parked", "gauge"),
    ("gpu_quarantine_alerts_parked_dropped", "counter"),
    ("gpu_quarantine_actions", "counter"),
    ("gpu_quarantine_evictions", "counter"),
    ("gpu_quarantine_evicted_pods", "gauge"),
    ("gpu_quarantine_node_write_failures", "counter"),
    ("gpu_quarantine_nodes", "gauge"),
    ("gpu_quarantine_claims", "gauge"),
    ("gpu_quarantine_records_unusable", "gauge"),
    ("gpu_quarantine_paused", "gauge"),
    ("gpu_quarantine_guard_limit_value", "gauge"),
    ("gpu_quarantine_guard_limit_bound", "gauge"),
    ("gpu_quarantine_node_state_info", "gauge"),
    ("gpu_quarantine_node_isolated_timestamp_seconds", "gauge"),
    ("gpu_quarantine_isolation_delay_seconds", "histogram"),
    ("gpu_quarantine_verdicts", "counter"),
    ("gpu_quarantine_withheld_gpu_hours", "counter"),
    ("gpu_quarantine_decision_duration_seconds", "histogram"),
    ("gpu_quarantine_kubernetes_request_duration_seconds", "histogram"),
    ("gpu_quarantine_events", "counter"),
    ("gpu_quarantine_heartbeat_timestamp_seconds", "gauge"),
    ("gpu_quarantine_pull_configured", "gauge"),
    ("gpu_quarantine_pulls", "counter"),
    ("gpu_quarantine_pull_last_complete_timestamp_seconds", "gauge"),
    ("gpu_quarantine_pull_duration_seconds", "histogram"),
    ("gpu_quarantine_alertmanager_peers", "gauge"),
    ("gpu_quarantine_ledger_writes", "counter"),
    ("gpu_quarantine_evidence_queries", "counter"),
    ("gpu_quarantine_evidence_last_success_timestamp_seconds", "gauge"),
    ("gpu_quarantine_config_last_reload_successful", "gauge"),
    ("gpu_quarantine_config_last_reload_success_timestamp_seconds", "gauge"),
];

/// The families of an `OpenMetrics` text, with their types. Panics on a line that is none of it.
fn families(text: &str) -> BTreeMap<String, String> {
    let mut families = BTreeMap::new();
    let mut lines = text.lines().peekable();
    let mut current = String::new();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(lines.next().is_none(), "nothing follows the end");
            return families;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            name.clone_into(&mut current);
            assert!(families.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} twice");
            continue;
        }
        if line.starts_with("# HELP ") || line.starts_with("# UNIT ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("not a sample: {line}"));
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = series.split_once('{').map_or(series, |(name, labels)| {
            assert!(labels.ends_with("\"}"), "{line}");
            name
        });
        if families.get(&current).map(String::as_str) == Some("histogram") {
            let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("a sample of another family: {line}"));
            assert!(["_bucket", "_count", "_sum"].contains(&suffix), "{line}");
            continue;
        }
        let suffix = match families.get(&current).map(String::as_str) {
            Some("counter") => "_total",
            Some("info") => "_info",
            _ => "",
        };
        assert_eq!(name, format!("{current}{suffix}"), "a sample of another family: {line}");
    }
    panic!("no # EOF in\n{text}");
}

#[tokio::test]
async fn the_text_can_be_parsed_and_has_every_promised_name() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0), lost("no-such-node", 0)]).await;
    let (status, text) = service.get("/metrics").await;
    assert_eq!(status, 200);
    let families = families(&text);
    for (name, kind) in PROMISED {
        assert_eq!(families.get(name).map(String::as_str), Some(kind), "{name}");
    }
    assert_eq!(families.len(), PROMISED.len(), "promise it here as well: {families:?}");
    let named: Vec<&str> = text.lines().filter(|l| l.contains("gpu-node-07")).collect();
    assert_eq!(named.len(), 2, "node names are labels of two gauges only: {named:?}");
    assert!(named[0].starts_with("gpu_quarantine_node_state_info{"), "{named:?}");
    assert!(named[1].starts_with("gpu_quarantine_node_isolated_timestamp_seconds{"), "{named:?}");
}

#[tokio::test]
async fn series_of_outcomes_actions_and_states_are_there_before_anything_happens() {
    let service = Service::start().await;
    for series in [
        "gpu_quarantine_alerts_total{outcome=\"recorded\"}",
        "gpu_quarantine_alerts_total{outcome=\"failed\"}",
        "gpu_quarantine_actions_total{action=\"isolate\",policy=\"gpu-lost\"}",
        "gpu_quarantine_actions_total{action=\"refuse\",policy=\"gpu-lost\"}",
        "gpu_quarantine_evictions_total{answer=\"blocked\"}",
        "gpu_quarantine_evicted_pods{state=\"left\"}",
        "gpu_quarantine_nodes{state=\"isolated\"}",
        "gpu_quarantine_alerts_unmapped_total{reason=\"no_such_node\"}",
        "gpu_quarantine_node_write_failures_total{reason=\"timeout\"}",
        "gpu_quarantine_webhook_requests_total{code=\"503\"}",
        "gpu_quarantine_pulls_total{result=\"incomplete\"}",
        "gpu_quarantine_alertmanager_peers{state=\"settling\"}",
        "gpu_quarantine_evidence_queries_total{result=\"failed\"}",
    ] {
        assert!(service.metric(series).await.abs() < f64::EPSILON, "{series}");
    }
}

#[tokio::test]
async fn alerts_actions_and_nodes_are_counted() {
    let service = Service::start().await;
    service.recorded("payloads/02-firing-grouped.json").await;
    service.recorded("traps/one-bad-alert.json").await;
    service.outcomes(&[lost("no-such-node", 0)]).await;
    let (status, _) = service.post(fixture("payloads/15-custom-payload-types-coerced.json")).await;
    assert_eq!(status, 400);
    for (series, want) in [
        ("gpu_quarantine_webhook_requests_total{code=\"200\"}", 3.0),
        ("gpu_quarantine_webhook_requests_total{code=\"400\"}", 1.0),
        ("gpu_quarantine_alerts_received_total", 8.0),
        ("gpu_quarantine_alerts_total{outcome=\"recorded\"}", 5.0),
        ("gpu_quarantine_alerts_total{outcome=\"invalid\"}", 2.0),
        ("gpu_quarantine_alerts_unmapped_total{reason=\"no_such_node\"}", 1.0),
        ("gpu_quarantine_alerts_parked", 1.0),
        ("gpu_quarantine_actions_total{action=\"isolate\",policy=\"gpu-lost\"}", 2.0),
        ("gpu_quarantine_nodes{state=\"isolated\"}", 2.0),
    ] {
        let got = service.metric(series).await;
        assert!((got - want).abs() < f64::EPSILON, "{series} is {got}, not {want}");
    }
}

#[tokio::test]
async fn a_heartbeat_needs_no_node_and_shows_when_it_last_arrived() {
    let service = Service::with(CONFIG).await;
    assert!(service.metric("gpu_quarantine_heartbeat_timestamp_seconds").await.abs() < f64::EPSILON);
    let watchdog = sent(&[("alertname", "Watchdog"), ("severity", "none")]);
    assert_eq!(service.outcomes(std::slice::from_ref(&watchdog)).await, ["heartbeat"]);
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact in a double")]
    let seconds = |time: jiff::Timestamp| time.as_second() as f64;
    let begin = seconds(at(BEGIN));
    assert!((service.metric("gpu_quarantine_heartbeat_timestamp_seconds").await - begin).abs() < f64::EPSILON);
    service.pass("5m").await;
    assert_eq!(service.outcomes(&[watchdog.over("2026-11-29T20:20:00Z")]).await, ["heartbeat"]);
    let after = service.metric("gpu_quarantine_heartbeat_timestamp_seconds").await;
    assert!((after - begin).abs() < f64::EPSILON, "that it ended proves nothing");
    assert_eq!(service.outcomes(&[watchdog]).await, ["heartbeat"]);
    assert!((service.metric("gpu_quarantine_heartbeat_timestamp_seconds").await - begin - 300.0).abs() < f64::EPSILON);
    assert_eq!(service.cluster.patches(), 0);
}

#[tokio::test]
async fn the_age_of_an_isolation_is_shown_from_its_beginning_to_the_release() {
    let service = Service::start().await;
    let isolated = "gpu_quarantine_node_isolated_timestamp_seconds{node=\"gpu-node-07\"}";
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact in a double")]
    let begin = at(BEGIN).as_second() as f64;
    assert!((service.metric(isolated).await - begin).abs() < 1.0);
    service.pass("5m").await;
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 1)]).await, ["recorded"]);
    assert!((service.metric(isolated).await - begin).abs() < 1.0, "a second fault does not make it younger");
    let over = [lost("gpu-node-07", 0).over("2026-11-29T20:20:00Z"), lost("gpu-node-07", 1).over("2026-11-29T20:20:00Z")];
    assert_eq!(service.outcomes(&over).await, ["resolved", "resolved"]);
    service.pass("30m").await;
    let (_, text) = service.get("/metrics").await;
    assert!(!text.contains(isolated), "{text}");
}

#[tokio::test]
async fn verdicts_and_withheld_gpu_hours_are_counted_once_each_whoever_released_the_node() {
    let service = Service::start().await;
    let verdict = |verdict: &str| format!("gpu_quarantine_verdicts_total{{alertname=\"GpuLost\",verdict=\"{verdict}\"}}");
    let hours = "gpu_quarantine_withheld_gpu_hours_total{alertname=\"GpuLost\"}";
    let is = async |service: &Service, series: &str, want: f64| {
        let got = service.metric(series).await;
        assert!((got - want).abs() < 1e-6, "{series} is {got}, not {want}");
    };
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    is(&service, &verdict("false-alarm"), 0.0).await;
    is(&service, hours, 0.0).await;
    service.pass("30m").await;
    service.release_by_hand("gpu-node-07", Some(Judgement::FalseAlarm)).await;
    for _ in 0..2 {
        is(&service, &verdict("false-alarm"), 1.0).await;
        is(&service, hours, 4.0).await;
        assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["unchanged"]);
        service.engine.refresh().await;
    }

    // Another GPU, released by itself: hours without a verdict.
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 1)]).await, ["recorded"]);
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 1).over("2026-11-29T20:47:00Z")]).await, ["resolved"]);
    service.pass("10m").await;
    is(&service, hours, 4.0 + 8.0 / 6.0).await;
    is(&service, &verdict("false-alarm"), 1.0).await;

    let service = service.restart(CONFIG).await;
    assert!(!service.get("/metrics").await.1.contains("gpu_quarantine_verdicts_total{"), "nothing is counted again");
}
