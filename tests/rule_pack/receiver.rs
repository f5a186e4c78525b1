//! The labels of the rules and the receiver's defaults belong together: each alert, as it arrives, finds its policy and its node.

use serde_json::Value;

use crate::{
    bodies::{Sent, body, sent},
    command::run_with,
    pack::{Named, pack},
};

/// The least configuration that loads: no policies, so those that hold when none are given.
const LEAST: &str = "release: {require: [resolved]}\n";
const NODE: &str = "gpu-node-07";
const WATCHDOG: &str = "GpuQuarantineWatchdog";

/// An alert as Prometheus sends it, but for its annotations, which steer nothing here.
fn as_sent(alert: &Named) -> Sent {
    let labels = pack().labels(&alert.expr);
    // `gpu` is empty where there is a UUID, and Prometheus does not send empty labels.
    let values = [
        ("cluster", "prod-a"),
        ("node", NODE),
        ("UUID", "GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000"),
        ("field", "slowdown"),
        ("reason", "timeout"),
        ("name", "slowdown_ratio"),
    ];
    let of_result = values.into_iter().filter(|(label, _)| labels.contains(*label));
    let fixed = alert.rule.labels.iter().map(|(label, value)| (label.as_str(), value.as_str()));
    let all: Vec<_> = [("alertname", alert.name.as_str())].into_iter().chain(fixed).chain(of_result).collect();
    sent(&all)
}

/// What `explain` says of each.
fn explained(alerts: &[Sent]) -> Vec<Value> {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("config.yaml");
    std::fs::write(&config, LEAST).unwrap();
    let config = config.to_str().unwrap();
    let cluster = "fixtures/clusters/prod-a.yaml";
    let args = ["explain", "--config.file", config, "--cluster", cluster, "--output", "json", "-"];
    let body = String::from_utf8(body(alerts)).unwrap();
    let json: Value = serde_json::from_str(&run_with(&args, &body).well()).unwrap();
    json["alerts"].as_array().unwrap().clone()
}

#[test]
fn every_alert_finds_its_policy_and_its_node_with_the_default_configuration() {
    let alerts = &pack().alerts;
    let answers = explained(&alerts.iter().map(as_sent).collect::<Vec<_>>());
    assert_eq!(answers.len(), alerts.len());
    for (alert, answer) in alerts.iter().zip(&answers) {
        let place = alert.place();
        let (policy, outcomes): (_, &[&str]) = match alert.label("remediation") {
            _ if alert.name == WATCHDOG => ("heartbeat", &["heartbeat"]),
            "evict" => ("evict", &["recorded"]),
            "isolate" => ("isolate", &["recorded"]),
            "freeze" => ("freeze", &["frozen"]),
            _ => ("observe", &["observed"]),
        };
        assert_eq!(answer["alertname"], alert.name.as_str(), "{place}");
        assert_eq!(answer["policy"], policy, "{place}: {answer}");
        assert!(outcomes.iter().any(|o| answer["outcome"] == *o), "{place}: {answer}");
        if !["observe", "heartbeat"].contains(&policy) {
            assert_eq!(answer["node"], NODE, "{place}: {answer}");
        }
        if alert.label("gpu_scope") == "gpu" && ["isolate", "evict"].contains(&policy) {
            assert_eq!(answer["gpu"], "GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000", "{place}: {answer}");
        }
    }
}

#[test]
fn a_node_label_with_the_domain_of_the_host_leads_to_the_same_node() {
    let alert = as_sent(pack().alert("GpuXidGpuLost")).label("node", "gpu-node-07.example.com");
    let answer = &explained(&[alert])[0];
    assert_eq!((&answer["node"], &answer["outcome"]), (&NODE.into(), &"recorded".into()), "{answer}");
}
