//! What senders and readers see of the service over HTTP, through the real router. The statuses follow promise P1.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "webhook/claims.rs"]
mod claims;
#[path = "webhook/eviction_aids.rs"]
mod eviction_aids;
#[path = "webhook/evictions.rs"]
mod evictions;
#[path = "webhook/failures.rs"]
mod failures;
#[path = "webhook/fleet.rs"]
mod fleet;
#[path = "webhook/guard.rs"]
mod guard;
#[path = "support/harness.rs"]
mod harness;
#[path = "webhook/metrics.rs"]
mod metrics;
#[path = "webhook/pause.rs"]
mod pause;
#[path = "webhook/pull.rs"]
mod pull;
#[path = "webhook/reload.rs"]
mod reload;

use std::collections::BTreeSet;

use axum::body::Body;
use harness::{CONFIG, Service, body, fixture, lost, outcomes, read};
use serde_json::{Value, json};

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn every_alert_has_a_result_in_the_order_of_the_body_with_exactly_six_keys() {
    let service = Service::start().await;
    let alerts = [
        lost("gpu-node-12", 1),
        lost("no-such-node", 0),
        lost("gpu-node-07", 0),
        lost("gpu-node-07", 3).label("remediation", "observe"),
        lost("gpu-node-12", 0),
        lost("cp-1", 0),
        lost("cpu-1", 0),
        lost("gpu-node-07", 2).label("severity", "info"),
        lost("gpu-node-20", 0).over("2026-11-29T20:15:30Z"),
    ];
    let (status, answer) = service.post(body(&alerts)).await;
    assert_eq!(status, 200);
    assert_eq!(keys(&answer), ["results"].into(), "nothing more if there is nothing to warn of");
    let results = answer["results"].as_array().unwrap();
    let want = [
        ("recorded", json!("gpu-node-12"), json!("gpu-lost")),
        ("unmapped", Value::Null, json!("gpu-lost")),
        ("recorded", json!("gpu-node-07"), json!("gpu-lost")),
        ("observed", json!("gpu-node-07"), json!("watch")),
        ("recorded", json!("gpu-node-12"), json!("gpu-lost")),
        ("out_of_scope", json!("cp-1"), json!("gpu-lost")),
        ("out_of_scope", json!("cpu-1"), json!("gpu-lost")),
        ("unmatched", json!("gpu-node-07"), Value::Null),
        ("unchanged", json!("gpu-node-20"), json!("gpu-lost")),
    ];
    assert_eq!(results.len(), want.len());
    for ((result, alert), (outcome, node, policy)) in results.iter().zip(&alerts).zip(want) {
        assert_eq!(keys(result), ["alertname", "fingerprint", "outcome", "node", "policy", "reason"].into());
        assert_eq!(result["fingerprint"], alert.fingerprint(), "the order of the body");
        assert_eq!(result["alertname"], "GpuLost");
        assert_eq!((&result["outcome"], &result["node"], &result["policy"]), (&json!(outcome), &node, &policy), "{result}");
        assert!(!result["reason"].as_str().unwrap().is_empty(), "{result}");
    }
    assert!(service.tainted("gpu-node-12") && service.tainted("gpu-node-07"));
    assert!(!service.tainted("cp-1") && !service.tainted("cpu-1"), "never written (P7)");
}

#[tokio::test]
async fn a_body_without_alerts_is_answered_with_no_results() {
    let service = Service::start().await;
    assert_eq!(service.post(body(&[])).await, (200, json!({ "results": [] })));
}

#[tokio::test]
async fn only_what_is_no_json_or_no_webhook_body_is_a_400_that_says_so() {
    let service = Service::start().await;
    let bodies: [(Vec<u8>, &str); 6] = [
        (fixture("payloads/15-custom-payload-types-coerced.json"), "`payload`"),
        (b"".to_vec(), "not JSON"),
        (b"{\"alerts\": [".to_vec(), "not JSON"),
        (b"\xff\xfe".to_vec(), "not JSON"),
        (b"[]".to_vec(), "not that of an Alertmanager webhook"),
        (b"{\"alerts\": {}}".to_vec(), "not that of an Alertmanager webhook"),
    ];
    for (body, why) in bodies {
        let (status, answer) = service.post(body).await;
        assert_eq!(status, 400, "{answer}");
        assert_eq!(keys(&answer), ["error"].into());
        assert!(answer["error"].as_str().unwrap().contains(why), "{answer}");
    }
    assert_eq!(service.cluster.patches(), 0);
}

#[tokio::test]
async fn no_path_is_ever_answered_with_a_redirect() {
    let service = Service::start().await;
    let alert = body(&[lost("gpu-node-07", 0)]);
    for (path, want) in [("/api/v1/alerts", "recorded"), ("/api/v1/alerts/", "unchanged"), ("/api/v1/alerts?a=b", "unchanged")] {
        let answer = read(service.send("POST", path, alert.clone()).await).await;
        assert_eq!(outcomes(&answer), [want], "{path}");
    }
    let others = ["", "/", "//api/v1/alerts", "/api/v1/alerts//", "/api/v1", "/api/v2/alerts", "/API/v1/alerts", "/metrics/"];
    for path in others.into_iter().chain(["/api/v1/nodes", "/api/v1/nodes/", "/-/reload", "/-/healthy/", "/-/ready"]) {
        for method in ["GET", "POST", "PUT", "HEAD", "OPTIONS"] {
            let path = if path.is_empty() { "http://gpu-quarantine:9876" } else { path };
            let status = service.send(method, path, alert.clone()).await.status();
            assert!(!status.is_redirection(), "{method} {path} gives {status}");
        }
    }
    assert_eq!(service.send("GET", "/api/v1/alerts", Body::empty()).await.status(), 405);
}

#[tokio::test]
async fn what_the_body_is_called_does_not_matter() {
    let service = Service::start().await;
    for kind in ["application/json", "application/json; charset=utf-8", "text/plain", "nonsense"] {
        let request = axum::http::Request::post("/api/v1/alerts").header("content-type", kind);
        let request = request.body(Body::from(body(&[lost("gpu-node-07", 0)]))).unwrap();
        let answer = tower::ServiceExt::oneshot(service.router(), request).await.unwrap();
        assert_eq!(answer.status(), 200, "{kind}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_told_the_limit_and_its_flag() {
    let alerts = body(&[lost("gpu-node-07", 0)]);
    let service = Service::limited(|app| app.max_body = alerts.len() - 1).await;
    let (status, answer) = service.post(alerts.clone()).await;
    assert_eq!(status, 413);
    let message = answer["error"].as_str().unwrap();
    assert!(message.contains(&format!("{} bytes", alerts.len() - 1)) && message.contains("--web.max-body-size"), "{message}");
    assert_eq!(service.cluster.patches(), 0);
    assert!((service.metric("gpu_quarantine_webhook_requests_total{code=\"413\"}").await - 1.0).abs() < f64::EPSILON);

    let service = Service::limited(|app| app.max_body = alerts.len()).await;
    assert_eq!(outcomes(&service.post(alerts).await), ["recorded"], "at the limit it is taken");
}

#[tokio::test]
async fn bodies_of_all_senders_are_understood() {
    for (file, want) in [
        ("traps/alertmanager-0.25.json", vec!["recorded"]),
        ("traps/alertmanager-0.34.json", vec!["recorded"]),
        ("traps/grafana.json", vec!["recorded", "unchanged"]),
        ("traps/vmalert.json", vec!["recorded"]),
        ("payloads/01-firing-one.json", vec!["recorded"]),
        ("payloads/02-firing-grouped.json", vec!["recorded"; 4]),
    ] {
        let service = Service::start().await;
        assert_eq!(service.recorded(file).await, want, "{file}");
        assert!(service.tainted("gpu-node-07"), "{file}");
    }
}

#[tokio::test]
async fn an_alertmanager_that_is_upgraded_still_sends_the_same_alert() {
    let service = Service::start().await;
    assert_eq!(service.recorded("traps/alertmanager-0.25.json").await, ["recorded"]);
    assert_eq!(service.recorded("traps/alertmanager-0.34.json").await, ["unchanged"]);
    assert_eq!(service.cluster.patches(), 1);
}

#[tokio::test]
async fn fields_that_nobody_knows_are_passed_over() {
    let service = Service::start().await;
    let mut sent: Value = serde_json::from_slice(&body(&[lost("gpu-node-07", 0)])).unwrap();
    sent["version"] = json!("99");
    sent["truncatedAlerts"] = Value::Null;
    sent["something"] = json!({ "new": [1, 2, {}] });
    sent["alerts"][0]["something"] = json!([null]);
    assert_eq!(outcomes(&service.post(sent.to_string()).await), ["recorded"]);
}

#[tokio::test]
async fn one_bad_alert_does_not_stop_the_others() {
    let service = Service::start().await;
    let (status, answer) = service.post(fixture("traps/one-bad-alert.json")).await;
    assert_eq!(outcomes(&(status, answer.clone())), ["invalid", "invalid", "recorded"]);
    for (i, part) in [(0, "yesterday"), (1, "gpu")] {
        let result = &answer["results"][i];
        assert_eq!(keys(result), ["alertname", "fingerprint", "outcome", "node", "policy", "reason"].into());
        assert_eq!(result["alertname"], "GpuLost");
        assert!(result["fingerprint"].is_string());
        assert!(result["reason"].as_str().unwrap().contains(part), "{result}");
    }
    assert!(service.tainted("gpu-node-07") && !service.tainted("gpu-node-12"));
}

#[tokio::test]
async fn hostile_labels_lead_to_no_node_and_nothing_of_them_is_echoed_at_length() {
    let service = Service::start().await;
    let (status, answer) = service.post(fixture("traps/hostile-labels.json")).await;
    assert_eq!(outcomes(&(status, answer.clone())), ["unmapped"; 4]);
    let text = answer.to_string();
    assert!(text.len() < 4000, "{} bytes", text.len());
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text}");
    assert_eq!(service.cluster.patches(), 0);
}

#[tokio::test]
async fn cut_off_alerts_are_told_counted_and_warned_of() {
    let service = Service::start().await;
    let (status, answer) = service.post(fixture("payloads/05-truncated-firing.json")).await;
    assert_eq!(outcomes(&(status, answer.clone())), ["recorded", "recorded"]);
    assert_eq!(answer["truncatedAlerts"], 2);
    assert!(answer["warnings"][0].as_str().unwrap().contains("max_alerts"), "{answer}");
    let (status, answer) = service.post(fixture("payloads/05b-truncated-status-resolved-while-hidden-alerts-fire.json")).await;
    assert_eq!((status, &answer["truncatedAlerts"]), (200, &json!(2)));
    assert!((service.metric("gpu_quarantine_alerts_truncated_total").await - 4.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn a_repeated_body_writes_nothing() {
    let service = Service::start().await;
    for file in ["payloads/02-firing-grouped.json", "payloads/03-resolved-all.json"] {
        service.recorded(file).await;
        let before = (service.cluster.patches(), service.cluster.raw("gpu-node-12"), service.cluster.raw("gpu-node-07"));
        for _ in 0..3 {
            service.clock.advance_to(service.engine.next_due().map_or(harness::at(harness::BEGIN), |due| due) - one_second());
            let again = service.recorded(file).await;
            assert!(again.iter().all(|o| o == "unchanged"), "{file}: {again:?}");
        }
        let after = (service.cluster.patches(), service.cluster.raw("gpu-node-12"), service.cluster.raw("gpu-node-07"));
        assert_eq!(before, after, "{file}");
    }
}

fn one_second() -> jiff::SignedDuration {
    jiff::SignedDuration::from_secs(1)
}

#[tokio::test]
async fn alerts_of_two_clusters_are_warned_of_unless_scope_says_which_is_ours() {
    let service = Service::start().await;
    let (_, first) = service.post(fixture("payloads/01-firing-one.json")).await;
    assert_eq!(first["warnings"], Value::Null, "one cluster is no news");
    for _ in 0..2 {
        let (status, answer) = service.post(fixture("traps/two-clusters.json")).await;
        assert_eq!(status, 200);
        let warning = answer["warnings"][0].as_str().unwrap();
        assert!(warning.contains("scope.alerts") && warning.contains("prod-a") && warning.contains("prod-b"), "{warning}");
    }

    let ours = CONFIG.replace("gpu.present=true}", "gpu.present=true, alerts: ['cluster=\"prod-a\"']}");
    let service = Service::with(&ours).await;
    let (status, answer) = service.post(fixture("traps/two-clusters.json")).await;
    assert_eq!(outcomes(&(status, answer.clone())), ["recorded", "out_of_scope"]);
    assert_eq!(answer["warnings"], Value::Null);
    assert_eq!(service.record("gpu-node-07").unwrap()["claims"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn nodes_are_shown_with_exactly_the_promised_keys_in_the_order_of_their_names() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    let (status, text) = service.get("/api/v1/nodes").await;
    assert_eq!(status, 200);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(keys(&answer), ["nodes"].into());
    let nodes = answer["nodes"].as_array().unwrap();
    let names: Vec<&str> = nodes.iter().map(|n| n["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted() && names.len() == 16, "{names:?}");
    for node in nodes {
        let want = ["name", "uid", "isolated", "unschedulable", "taints", "state", "waiting_for", "claims", "history"];
        assert_eq!(keys(node), want.into());
        assert!(!node["waiting_for"].as_str().unwrap().is_empty());
    }
    let seven = service.view("gpu-node-07").await;
    assert_eq!(seven["uid"], "a39b7d9a-79df-4a27-ab84-8165847411eb");
    assert_eq!((&seven["isolated"], &seven["state"]), (&json!(true), &json!("isolated")));
    assert!(seven["waiting_for"].as_str().unwrap().contains("GpuLost"), "{seven}");
    assert_eq!(service.view("gpu-node-19").await["unschedulable"], true, "cordoned by somebody else");
    assert_eq!(service.get("/api/v1/nodes/").await, (status, text));
}

#[tokio::test]
async fn before_the_first_list_of_nodes_it_is_healthy_but_not_ready_and_asks_to_be_sent_the_alerts_again() {
    let service = Service::start().await;
    service.cluster.set_ready(false);
    let alerts = body(&[lost("gpu-node-07", 0)]);
    let (status, answer) = service.post(alerts.clone()).await;
    assert_eq!((status, keys(&answer)), (503, ["error"].into()));
    assert_eq!(service.get("/-/healthy").await.0, 200);
    assert_eq!(service.get("/-/ready").await.0, 503);
    assert_eq!(service.get("/api/v1/nodes").await.0, 503, "an empty list would be a lie");
    assert_eq!(service.get("/metrics").await.0, 200);
    service.cluster.set_ready(true);
    assert_eq!(service.get("/-/ready").await.0, 200);
    assert_eq!(outcomes(&service.post(alerts).await), ["recorded"]);
}
