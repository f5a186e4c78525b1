//! What people see: Events on the node, what observing says, and recordings that replay decides again.

use std::{path::Path, process::Command, time::Duration};

use k8s_openapi::api::events::v1::Event;
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};

use crate::{
    harness::ApiServer,
    nodes::{Nodes, node, tainted, version},
    process::{eventually, unique},
    service::{Alert, Service, config},
};

/// The Events about a node, by reason.
async fn events(client: &Client, name: &str) -> Vec<(String, String)> {
    let api: Api<Event> = Api::namespaced(client.clone(), "kube-system");
    let all = api.list(&ListParams::default()).await.expect("the events can be listed");
    let about = |e: &Event| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name);
    all.items.into_iter().filter(about).map(|e| (e.reason.unwrap_or_default(), e.note.unwrap_or_default())).collect()
}

/// What `replay` makes of a recording.
pub(crate) fn replay(dir: &Path) -> Value {
    let at = |name: &str| dir.join(name).display().to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-quarantine"))
        .args(["replay", "--output", "json", "--config.file", &at("config.yaml"), "--cluster", &at("cluster.yaml")])
        .arg(dir.join("steps"))
        .output()
        .expect("the program can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What of a node must be the same in a recording's replay: all but what the clock of the moment wrote.
pub(crate) fn lasting(node: &Value) -> Value {
    let episodes = node["history"].as_array().into_iter().flatten();
    let mut history: Vec<Value> = episodes.map(|e| json!([e["alert"], e["gpu"], e["by"]])).collect();
    history.sort_by_key(Value::to_string);
    let claims = node["claims"].as_array().into_iter().flatten();
    let claims: Vec<Value> = claims.map(|c| json!([c["alert"], c["gpu"], c["state"], c["policy"]])).collect();
    json!({
        "name": node["name"], "uid": node["uid"], "isolated": node["isolated"], "unschedulable": node["unschedulable"],
        "taints": node["taints"], "state": node["state"], "claims": claims, "history": history,
    })
}

#[tokio::test]
async fn people_see_on_the_node_why_it_was_isolated_and_that_it_was_given_back() {
    let Some(server) = ApiServer::shared().await else { return };
    let client = server.client().await;
    let nodes = Nodes::of(client.clone());
    let name = unique("events");
    nodes.create(node(&name, &name)).await;
    // Servers before 1.21 take Events about nodes in kube-system only.
    let config = config(&name, "300ms", false) + "events: {namespace: kube-system}\n";
    let service = Service::start(server.kubeconfig(), &config, &[]).await;
    let alert = Alert::on(&name);
    service.deliver(&alert.firing()).await;
    service.deliver(&alert.resolved()).await;
    service.wait_state(&name, "free").await;
    let all = eventually("both Events are there", Duration::from_secs(60), async || {
        let all = events(&client, &name).await;
        let has = |reason: &str| all.iter().any(|(r, _)| r == reason);
        if has("GpuNodeIsolated") && has("GpuNodeReleased") { Ok(all) } else { Err(format!("{all:?}\n{}", service.tail())) }
    })
    .await;
    let note = all.iter().find(|(reason, _)| reason == "GpuNodeIsolated").map(|(_, note)| note).unwrap();
    assert!(note.contains("gpu-lost") && note.contains("GpuLost") && note.contains("GPU-00000000-8a3e"), "{note}");
    assert_eq!(all.len(), 2, "{all:?}");
}

#[tokio::test]
async fn an_event_that_the_server_refuses_stops_nothing() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("noevents");
    nodes.create(node(&name, &name)).await;
    let service = Service::start(server.kubeconfig(), &config(&name, "300ms", false), &[]).await;
    let alert = Alert::on(&name);
    assert_eq!(service.outcome(&alert.firing()).await, "recorded");
    assert!(tainted(&nodes.get(&name).await));
    service.deliver(&alert.resolved()).await;
    service.wait_state(&name, "free").await;
    let told = |text: &str| text.lines().any(|l| l.starts_with("gpu_quarantine_events_total{") && !l.ends_with(" 0"));
    eventually("the Events are counted", Duration::from_secs(20), async || {
        let text = service.metrics().await;
        if told(&text) { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test]
async fn observing_decides_for_real_and_writes_nothing() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("observe");
    let before = nodes.create(node(&name, &name)).await;
    for flag in ["--mode=observe", "--dry-run"] {
        let service = Service::start(server.kubeconfig(), &config(&name, "300ms", false), &[flag]).await;
        let alert = Alert::on(&name);
        assert_eq!(service.outcome(&alert.firing()).await, "would_isolate");
        assert_eq!(service.outcome(&alert.firing()).await, "would_isolate", "also when it is repeated");
        let shown = service.node(&name).await;
        assert_eq!((&shown["isolated"], &shown["state"]), (&json!(false), &json!("free")));
        let waits = shown["waiting_for"].as_str().unwrap();
        assert!(waits.contains("in enforce mode it would be isolated"), "{waits}");
        service.deliver(&alert.resolved()).await;
        eventually("the release would have come", Duration::from_secs(20), async || {
            let text = service.metrics().await;
            let released = "gpu_quarantine_actions_total{action=\"would_release\",policy=\"gpu-lost\"} 1";
            if text.contains(released) { Ok(()) } else { Err(text) }
        })
        .await;
        assert_eq!(version(&nodes.get(&name).await), version(&before), "nothing was written");
    }
}

#[tokio::test]
async fn a_recording_with_hands_of_others_in_it_is_decided_again_by_replay() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let scope = unique("record");
    let (one, two) = (format!("{scope}-a"), format!("{scope}-b"));
    for name in [&one, &two] {
        nodes.create(node(name, &scope)).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording");
    let record = format!("--record={}", recording.display());
    let mut service = Service::start(server.kubeconfig(), &config(&scope, "300ms", false), &[&record]).await;
    let (first, second) = (Alert::on(&one), Alert::on(&two));
    service.deliver(&first.firing()).await;
    service.deliver(&second.firing()).await;
    service.deliver(&first.resolved()).await;
    service.wait_state(&one, "free").await;
    // A person takes our taint away, another taint stays: a release by hand, while the fault goes on.
    let others = json!([{"key": "example.com/other", "effect": "NoSchedule"}]);
    nodes.patch("kubectl-taint", &two, json!({"spec": {"taints": others}})).await;
    service.wait_state(&two, "free").await;
    service.deliver(&second.firing()).await;
    let shown = [service.node(&one).await, service.node(&two).await];
    service.stop().await;
    let replayed = replay(&recording);
    let again = |name: &str| replayed["nodes"].as_array().unwrap().iter().find(|n| n["name"] == name).cloned().unwrap();
    for node in shown {
        assert_eq!(lasting(&again(node["name"].as_str().unwrap())), lasting(&node));
    }
    let body = std::fs::read_to_string(recording.join("steps/000001-body.json")).unwrap();
    assert!(!body.contains("http"), "no URLs: {body}");
}
