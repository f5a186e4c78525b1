//! `explain`: which policy, which node by which link, which GPU, and what would be done.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests, but clippy knows only the functions marked so")]

use std::fs;

use serde_json::Value;

#[path = "support/command.rs"]
mod command;

use command::{on_prod_a, run, run_with};

const UUID: &str = "GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000";

fn text(body: &str) -> String {
    run(&on_prod_a("explain", &[&format!("fixtures/{body}.json")])).well()
}

fn json(body: &str) -> Value {
    let body = format!("fixtures/{body}.json");
    serde_json::from_str(&run(&on_prod_a("explain", &["--output", "json", &body])).well()).unwrap()
}

/// The text without the merge patches, which are long.
fn short(text: &str) -> String {
    let line = |l: &str| l.split_once(" patch {").map_or_else(|| l.to_owned(), |(l, _)| format!("{l} patch ..."));
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_firing_is_explained_with_its_policy_node_gpu_and_patch() {
    let text = text("payloads/01-firing-one");
    insta::assert_snapshot!(short(&text), @r##"
    GPUXidError 17ca147fb85cd638, firing
      policy   xid (isolate), since alertname=~"GPUXidError|Xid|XidAgg|XidFor5m" and severity="critical" matches
      node     gpu-node-07, since label Hostname is the name of a Node
      gpu      GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000
      outcome  recorded: the node is isolated

    Would isolate gpu-node-07: GPUXidError on GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000 (isolate)
      with the merge patch ...
    "##);
    let patch = text.lines().find_map(|l| l.strip_prefix("  with the merge patch ")).unwrap();
    let patch: Value = serde_json::from_str(patch).unwrap();
    assert_eq!(patch["spec"]["taints"][0]["value"], "xid");
}

#[test]
fn json_says_the_same() {
    let json = json("payloads/01-firing-one");
    let alert = &json["alerts"][0];
    assert_eq!(alert["outcome"], "recorded");
    assert_eq!(alert["status"], "firing");
    assert_eq!(alert["policy"], "xid");
    let policy = r#"xid (isolate), since alertname=~"GPUXidError|Xid|XidAgg|XidFor5m" and severity="critical" matches"#;
    assert_eq!(alert["policy_because"], policy);
    assert_eq!(alert["node"], "gpu-node-07");
    assert_eq!(alert["node_because"], "gpu-node-07, since label Hostname is the name of a Node");
    assert_eq!(alert["gpu"], UUID);
    let step = &json["steps"][0];
    assert_eq!((&step["action"], &step["node"]), (&"isolate".into(), &"gpu-node-07".into()));
    assert_eq!(step["patch"]["spec"]["taints"][0]["key"], "gpu-quarantine.dev/isolated");
    assert_eq!(json["steps"].as_array().unwrap().len(), 1);
}

#[test]
fn explaining_a_resolve_of_nothing_changes_nothing() {
    insta::assert_snapshot!(text("payloads/14-false-resolved-prometheus-restart"), @r##"
    XidFor5m da3570c41ffbefa7, resolved
      policy   xid (isolate), since alertname=~"GPUXidError|Xid|XidAgg|XidFor5m" and severity="critical" matches
      node     gpu-node-07, since label Hostname is the name of a Node
      gpu      GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000002
      outcome  unchanged: nothing is on record that it could end

    No node would be isolated or released.
    "##);
}

#[test]
fn a_policy_that_does_not_isolate_is_told_with_what_it_does() {
    insta::assert_snapshot!(text("traps/freeze") + &text("traps/app-xid"), @r##"
    GpuExporterDown a1b6a69daa880f3e, firing
      policy   blind (freeze), since remediation="freeze" matches
      node     gpu-node-07, since label node is the name of a Node
      gpu      none named: the node as a whole
      outcome  frozen: the node is not released while it fires

    No node would be isolated or released.
    GpuXidApplication b334e123587050a5, firing
      policy   watch (observe), since remediation="observe" matches
      node     gpu-node-07, since label Hostname is the name of a Node
      gpu      GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000
      outcome  observed: its policy only observes

    No node would be isolated or released.
    "##);
}

#[test]
fn an_alert_that_names_no_node_is_told_why() {
    insta::assert_snapshot!(text("traps/localhost"), @r##"
    GpuLost 1062066aa4d50364, firing
      policy   by-label (isolate), since remediation=~"isolate|evict" matches
      node     none (localhost): the labels lead to no known node: label Hostname="localhost" is whatever host it is read on
      gpu      GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000001
      outcome  unmapped

    GpuLost 74f70ed0fb1a8c55, firing
      policy   by-label (isolate), since remediation=~"isolate|evict" matches
      node     none (localhost): the labels lead to no known node: label Hostname="localhost" is whatever host it is read on
      gpu      GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000
      outcome  unmapped

    No node would be isolated or released.
    "##);
    for alert in json("traps/localhost")["alerts"].as_array().unwrap() {
        assert_eq!((&alert["outcome"], &alert["node"]), (&"unmapped".into(), &Value::Null));
        assert!(alert["node_because"].as_str().unwrap().starts_with("none (localhost): "), "{alert}");
    }
}

#[test]
fn hostile_labels_lead_nowhere_and_are_shown_escaped_and_cut() {
    let text = text("traps/hostile-labels");
    assert_eq!(text.matches("  outcome  unmapped\n").count(), 4, "{text}");
    assert!(text.ends_with("No node would be isolated or released.\n"), "{text}");
    for shown in [r#"Hostname="../../x""#, r#"Hostname="gpu-node-07\0\r\n\u{1b}[31m\u{7f}\u{85}\u{202e}""#] {
        assert!(text.contains(shown), "{text}");
    }
    assert!(text.lines().all(|l| l.len() < 250 && !l.contains(char::is_control)), "{text}");
    assert_eq!(json("traps/hostile-labels")["steps"], Value::Array(Vec::new()));
}

#[test]
fn an_alert_of_another_cluster_is_not_taken_for_one_of_ours() {
    insta::assert_snapshot!(short(&text("traps/two-clusters")), @r##"
    GpuLost 2f65d4d78f595f4d, firing
      policy   by-label (isolate), since remediation=~"isolate|evict" matches
      node     gpu-node-07, since label Hostname is the name of a Node
      gpu      GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000
      outcome  recorded: the node is isolated

    GpuLost 7da1d3849652f4e1, firing
      policy   none is looked for: the alert does not meet scope.alerts cluster=~"(prod-a)?"
      node     none is looked for: the alert is out of scope
      gpu      GPU-c03b71e9-4f5d-52aa-9d08-000000000000
      outcome  out_of_scope

    Would isolate gpu-node-07: GpuLost on GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000 (isolate)
      with the merge patch ...
    "##);
    let foreign = &json("traps/two-clusters")["alerts"][1];
    assert_eq!((&foreign["outcome"], &foreign["node"]), (&"out_of_scope".into(), &Value::Null));
}

#[test]
fn alerts_that_cannot_be_read_do_not_hide_the_others() {
    insta::assert_snapshot!(short(&text("traps/one-bad-alert")), @r##"
    GpuLost 98ca13566687033c, not readable
      outcome  invalid: startsAt is "yesterday", not an RFC 3339 time

    GpuLost 2ae997b9019a5ddc, not readable
      outcome  invalid: label "gpu" is 2, not a text: a custom payload changes types, send the default body

    GpuLost 2f65d4d78f595f4d, firing
      policy   by-label (isolate), since remediation=~"isolate|evict" matches
      node     gpu-node-07, since label Hostname is the name of a Node
      gpu      GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000
      outcome  recorded: the node is isolated

    Would isolate gpu-node-07: GpuLost on GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000 (isolate)
      with the merge patch ...
    "##);
    let invalid = &json("traps/one-bad-alert")["alerts"][0];
    assert_eq!(invalid["outcome"], "invalid");
    assert!(invalid.get("gpu").is_none() && invalid.get("policy_because").is_none(), "{invalid}");
}

#[test]
fn an_unmatched_alert_is_told_what_each_policy_wants() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/payloads/11-prometheus-e2e-firing.json");
    let body = fs::read_to_string(path).unwrap().replace("critical", "warning");
    insta::assert_snapshot!(run_with(&on_prod_a("explain", &["-"]), &body).well(), @r##"
    XidAgg 4a2cf8e29b8123f8, firing
      policy   none: xid wants severity="critical", by-label wants remediation=~"isolate|evict", blind wants remediation="freeze", watch wants remediation="observe"
      node     gpu-node-07, since label Hostname is the name of a Node
      gpu      GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000
      outcome  unmatched: no policy matches

    No node would be isolated or released.
    "##);
}

#[test]
fn a_truncated_body_comes_with_a_warning() {
    let text = text("payloads/05-truncated-firing");
    assert!(text.contains("\nwarning: 2 alerts were cut off by max_alerts"), "{text}");
    let warnings = json("payloads/05-truncated-firing")["warnings"].clone();
    assert_eq!(warnings.as_array().unwrap().len(), 1);
}

#[test]
fn what_is_no_webhook_body_is_refused() {
    let body = "fixtures/payloads/15-custom-payload-types-coerced.json";
    let message = run(&on_prod_a("explain", &[body])).failed(2);
    assert!(message.starts_with(&format!("{body}: the body is not that of an Alertmanager webhook")), "{message}");
    let message = run(&on_prod_a("explain", &["none.json"])).failed(2);
    assert!(message.starts_with("cannot read none.json: "), "{message}");
}
