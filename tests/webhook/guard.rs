//! The limits of the guard over HTTP: who is refused by which, who comes first, and what is shown of it.

use serde_json::{Value, json};

use crate::harness::{CONFIG, Service, lost, sent};

/// The configuration of the tests with these limits and policies.
fn with(guard: &str, policies: &str) -> String {
    let policies = format!("policies:\n{policies}");
    let (head, _) = CONFIG.split_once("policies:").unwrap();
    format!("{head}guard: {guard}\n{policies}")
}

const PLAIN: &str = "  - {name: plain, match: ['alertname=\"GpuLost\"'], action: isolate}\n";

async fn guard(service: &Service) -> Value {
    let (status, text) = service.get("/api/v1/guard").await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn use_of<'a>(guard: &'a Value, limit: &str) -> &'a Value {
    guard["limits"].as_array().unwrap().iter().find(|l| l["limit"] == limit).unwrap()
}

#[tokio::test]
async fn no_more_are_isolated_within_the_window_and_time_alone_lets_the_next_one_in() {
    let config = with(
        "{max_isolated: {count: 10}, pools: {max_isolated: {count: 10}}, max_new_isolations: {count: 2, within: 10m}}",
        PLAIN,
    );
    let service = Service::with(&config).await;
    for (node, want) in [("gpu-node-20", "recorded"), ("gpu-node-31", "recorded"), ("gpu-node-07", "pending")] {
        assert_eq!(service.outcomes(&[lost(node, 0)]).await, [want]);
        service.pass("1m").await;
    }
    let waits = service.view("gpu-node-07").await["waiting_for"].as_str().unwrap().to_owned();
    assert_eq!(
        waits,
        "room: guard.max_new_isolations: 2 of 2 nodes were isolated within 10m, the next may be at 2026-11-29T20:26:00Z, number 1 in \
         the queue"
    );
    let shown = guard(&service).await;
    assert_eq!(
        use_of(&shown, "guard.max_new_isolations"),
        &json!({"limit": "guard.max_new_isolations", "value": 2, "bound": 2, "full": true, "room_at": "2026-11-29T20:26:00Z"})
    );
    assert_eq!((&shown["waiting"], &shown["queue"][0]["node"]), (&json!(1), &json!("gpu-node-07")));
    assert_eq!(shown["queue"][0]["severity"], "critical");
    service.pass("6m59s").await;
    assert!(!service.tainted("gpu-node-07"));
    service.pass("1s").await;
    assert!(service.tainted("gpu-node-07"), "nothing was heard meanwhile");
    assert_eq!(guard(&service).await["waiting"], 0);
}

#[tokio::test]
async fn the_heavier_policy_and_the_graver_alert_come_first_whoever_waited_longer() {
    let policies = "  - {name: heavy, match: ['fault=\"gpu-lost\"'], action: isolate, weight: 5}\n  - {name: plain, match: ['alertname=\"GpuLost\"'], action: isolate}\n";
    let service = Service::with(&with("{max_isolated: {count: 1, percent: 0}}", policies)).await;
    let on = |node, more: &[(&'static str, &'static str)]| {
        let mut labels = vec![("alertname", "GpuLost"), ("node", node)];
        labels.extend_from_slice(more);
        sent(&labels)
    };
    let first = on("gpu-node-20", &[]);
    service.outcomes(std::slice::from_ref(&first)).await;
    service.outcomes(&[on("gpu-node-31", &[])]).await;
    service.pass("1s").await;
    service.outcomes(&[on("gpu-node-07", &[("severity", "critical")])]).await;
    service.pass("1s").await;
    service.outcomes(&[on("gpu-node-12", &[("fault", "gpu-lost")])]).await;
    let shown = guard(&service).await;
    let order: Vec<&str> = shown["queue"].as_array().unwrap().iter().map(|w| w["node"].as_str().unwrap()).collect();
    assert_eq!(order, ["gpu-node-12", "gpu-node-07", "gpu-node-31"]);
    assert_eq!((&shown["queue"][0]["weight"], &shown["queue"][1]["weight"]), (&json!(5), &json!(0)));
    service.outcomes(&[first.over("2026-11-29T20:16:30Z")]).await;
    service.pass("11m").await;
    assert!(service.tainted("gpu-node-12") && !service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn an_exempt_policy_isolates_all_its_nodes_and_they_count_for_the_others() {
    let policies = "  - {name: free, match: ['fault=\"gpu-lost\"'], action: isolate, guard: {exempt: true}}\n  - {name: plain, match: ['alertname=\"GpuLost\"'], action: isolate}\n";
    let service = Service::with(&with("{max_isolated: {count: 1, percent: 0}}", policies)).await;
    let free = |node| sent(&[("alertname", "GpuLost"), ("node", node), ("fault", "gpu-lost")]);
    assert_eq!(service.outcomes(&[free("gpu-node-20"), free("gpu-node-31")]).await, ["recorded", "recorded"]);
    assert_eq!(service.outcomes(&[sent(&[("alertname", "GpuLost"), ("node", "gpu-node-07")])]).await, ["pending"]);
    let shown = guard(&service).await;
    assert_eq!(shown["exempt"], json!(["free"]));
    assert_eq!(use_of(&shown, "guard.max_isolated")["value"], 2);
    assert!(
        (service.metric("gpu_quarantine_guard_limit_value{limit=\"guard.max_isolated\",policy=\"\",pool=\"\"}").await - 2.0)
            .abs()
            < f64::EPSILON
    );
}

#[tokio::test]
async fn the_floor_counts_nodes_that_others_cordoned_or_that_are_not_ready() {
    let config = with("{max_isolated: {count: 16}, pools: {label: no-such-label, max_isolated: {count: 16}}}", PLAIN);
    let service = Service::with(&config).await;
    let (_, text) = service.get("/api/v1/nodes").await;
    let nodes: Value = serde_json::from_str(&text).unwrap();
    let all: Vec<&str> = nodes["nodes"].as_array().unwrap().iter().map(|n| n["name"].as_str().unwrap()).collect();
    assert_eq!(all.len(), 16);
    for (i, node) in all.iter().skip(1).take(7).enumerate() {
        service.cluster.edit(node, |node| {
            if i % 2 == 0 {
                node["spec"]["unschedulable"] = json!(true);
            } else {
                node["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
            }
        });
    }
    service.engine.refresh().await;
    assert_eq!(service.outcomes(&[lost(all[0], 0)]).await, ["recorded"], "8 of 16 are left, as many as stay healthy");
    assert_eq!(service.outcomes(&[lost(all[8], 0)]).await, ["pending"]);
    let waits = service.view(all[8]).await["waiting_for"].as_str().unwrap().to_owned();
    assert!(waits.starts_with("room: guard.pools.min_healthy: 8 of 16 nodes of the pool without a name are healthy"), "{waits}");
    assert_eq!(service.outcomes(&[lost(all[1], 0)]).await, ["recorded"], "it is of no use anyway");
}
