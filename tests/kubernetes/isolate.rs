//! Isolation and release on a real API server, over HTTP.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{WatchEvent, WatchParams};
use serde_json::{Value, json};

use crate::{
    harness::ApiServer,
    nodes::{Nodes, RECORD, added, assert_agrees, node, record, tainted, taints, version, without_us},
    process::{eventually, unique},
    service::{Alert, Service, config},
};

/// The states of a node after `since`, as the API server had them, until it is as in `last`.
async fn states_between(nodes: &Nodes, since: &Value, last: &Value) -> Vec<Value> {
    let name = since["metadata"]["name"].as_str().unwrap();
    let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(10);
    let events = nodes.0.watch(&params, version(since)).await.expect("a watch");
    let states = events.map_ok(|event| match event {
        WatchEvent::Modified(node) => json!(node),
        other => panic!("{other:?}"),
    });
    let mut seen = Vec::new();
    let mut states = states.boxed();
    while seen.last().is_none_or(|s| version(s) != version(last)) {
        seen.push(states.try_next().await.expect("the watch goes on").expect("the last state is told"));
    }
    seen
}

#[tokio::test]
async fn a_fault_isolates_a_node_in_one_patch_and_its_end_gives_it_back_as_it_was() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("isolate");
    let before = nodes.create_large(&name, &name).await;
    assert!((18_000..30_000).contains(&before.to_string().len()), "as large as in production: {}", before.to_string().len());
    let service = Service::start(server.kubeconfig(), &config(&name, "300ms", false), &[]).await;
    assert_eq!(service.wait_state(&name, "free").await["taints"], json!(taints(&before)));

    let alert = Alert::on(&name);
    assert_eq!(service.outcome(&alert.firing()).await, "recorded");
    let isolated = nodes.get(&name).await;
    let ours = json!({"key": "gpu-quarantine.dev/isolated", "value": "gpu-lost", "effect": "NoSchedule"});
    assert_eq!(taints(&isolated), [taints(&before), vec![ours.clone()]].concat());
    let text = record(&isolated).expect("a record");
    assert_eq!((&text["added"]["taint"], &text["owner"]), (&ours, &json!(name)));
    assert_eq!(text["node"]["uid"], isolated["metadata"]["uid"]);
    let states = states_between(&nodes, &before, &isolated).await;
    assert_eq!(states.len(), 1, "taint and record came in one write");
    let entries = isolated["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|e| e["manager"] == "gpu-quarantine").expect("our field manager");
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:metadata": {"f:annotations": {format!("f:{RECORD}"): {}}}, "f:spec": {"f:taints": {}}}),
        "we own what we wrote and nothing else"
    );
    assert_eq!(service.node(&name).await["state"], "isolated");

    assert_eq!(service.outcome(&alert.resolved()).await, "resolved");
    service.wait_state(&name, "free").await;
    let free = nodes.get(&name).await;
    assert_eq!(without_us(&free), without_us(&before), "the node is as it was");
    assert_eq!(record(&free).unwrap()["history"][0]["by"], "resolved");
    let writes = states_between(&nodes, &isolated, &free).await;
    assert_eq!(writes.len(), 2, "the resolve and the release");
    writes.iter().for_each(assert_agrees);
    assert!(service.metrics().await.contains("gpu_quarantine_"), "metrics are served");
}

#[tokio::test]
async fn a_repeated_delivery_writes_nothing() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("repeat");
    nodes.create(node(&name, &name)).await;
    let service = Service::start(server.kubeconfig(), &config(&name, "10m", false), &[]).await;
    let alert = Alert::on(&name);
    assert_eq!(service.outcome(&alert.firing()).await, "recorded");
    let before = nodes.get(&name).await;
    for _ in 0..5 {
        assert_eq!(service.outcome(&alert.firing()).await, "unchanged");
    }
    assert_eq!(nodes.get(&name).await, before);
    let over = alert.resolved();
    assert_eq!(service.outcome(&over).await, "resolved");
    let before = nodes.get(&name).await;
    assert_eq!(service.outcome(&over).await, "unchanged");
    assert_eq!(nodes.get(&name).await, before);
}

#[tokio::test]
async fn with_cordon_a_node_is_cordoned_as_well_and_one_cordoned_before_stays_so() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let scope = unique("cordon");
    let (open, closed) = (format!("{scope}-open"), format!("{scope}-closed"));
    for name in [&open, &closed] {
        nodes.create(node(name, &scope)).await;
    }
    nodes.patch("kubectl-cordon", &closed, json!({"spec": {"unschedulable": true}})).await;
    let service = Service::start(server.kubeconfig(), &config(&scope, "0s", true), &[]).await;
    for (name, cordoned) in [(&open, false), (&closed, true)] {
        let before = nodes.get(name).await;
        let alert = Alert::on(name);
        assert_eq!(service.outcome(&alert.firing()).await, "recorded");
        let isolated = nodes.get(name).await;
        assert_eq!((isolated["spec"]["unschedulable"].clone(), tainted(&isolated)), (json!(true), true));
        assert_eq!(record(&isolated).unwrap()["added"]["cordon"], json!(!cordoned));
        assert_eq!(service.outcome(&alert.resolved()).await, "resolved");
        service.wait_state(name, "free").await;
        assert_eq!(without_us(&nodes.get(name).await), without_us(&before));
    }
}

#[tokio::test]
async fn a_deleted_node_takes_its_claims_along_and_one_of_the_same_name_starts_clean() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("again");
    nodes.create(node(&name, &name)).await;
    let service = Service::start(server.kubeconfig(), &config(&name, "10m", false), &[]).await;
    let old = Alert::on(&name);
    assert_eq!(service.outcome(&old.firing()).await, "recorded");
    nodes.delete(&name).await;
    eventually("the node is gone", Duration::from_secs(5), async || match service.node(&name).await {
        Value::Null => Ok(()),
        node => Err(node),
    })
    .await;
    assert_eq!(service.outcome(&old.firing()).await, "unmapped", "its name means nothing now");

    // Creation times are whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let fresh = nodes.create(node(&name, &name)).await;
    service.wait_state(&name, "free").await;
    assert_eq!(service.outcome(&old.firing()).await, "stale", "that alert is about the machine before");
    assert_eq!(service.outcome(&old.resolved()).await, "unchanged");
    let now = nodes.get(&name).await;
    assert_eq!(now, fresh, "nothing was written to the new node");
    assert_eq!(service.outcome(&Alert { gpu: 1, ..Alert::on(&name) }.firing()).await, "recorded");
    assert!(added(&nodes.get(&name).await));
}

#[tokio::test]
async fn before_the_first_list_of_nodes_alerts_are_told_to_come_again() {
    let Some(server) = ApiServer::exclusive().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("early");
    nodes.create(node(&name, &name)).await;
    server.pause();
    let mut service = Service::prepare(&server.kubeconfig(), &config(&name, "10m", false), &[]);
    service.launch();
    eventually("the service listens", Duration::from_secs(20), async || service.get("/-/healthy").await.map(drop)).await;
    assert_eq!(service.get("/-/ready").await.unwrap().0, 503);
    assert_eq!(service.get("/api/v1/nodes").await.unwrap().0, 503, "an empty list would be a lie");
    let alert = Alert::on(&name);
    assert_eq!(service.post(&alert.firing()).await.unwrap().0, 503);
    server.resume();
    service.insist(&alert.firing()).await;
    assert_eq!(service.get("/-/ready").await.unwrap().0, 200);
    assert!(added(&nodes.get(&name).await));
}

#[tokio::test]
async fn an_end_whose_write_was_put_off_is_written_when_the_service_is_stopped() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("stop");
    nodes.create(node(&name, &name)).await;
    let mut service = Service::start(server.kubeconfig(), &config(&name, "1h", false), &[]).await;
    // Two links of one GPU are members of one claim: when one is over, only the status changes.
    let link = |body: Value, link: &str| {
        let mut body = body;
        body["alerts"][0]["labels"]["link"] = json!(link);
        body["alerts"][0].as_object_mut().unwrap().remove("fingerprint");
        body
    };
    let alert = Alert::on(&name);
    service.deliver(&link(alert.firing(), "0")).await;
    service.deliver(&link(alert.firing(), "1")).await;
    assert_eq!(service.outcome(&link(alert.resolved(), "0")).await, "resolved");
    let over = |node: &Value| {
        let members = record(node).unwrap()["claims"][0]["members"].as_array().unwrap().clone();
        members.iter().filter(|m| m.get("endsAt").is_some()).count()
    };
    assert_eq!(over(&nodes.get(&name).await), 0, "it is put off");
    service.stop().await;
    assert_eq!(over(&nodes.get(&name).await), 1, "nobody would tell it again");
}

#[tokio::test]
async fn a_reload_sees_labels_that_nobody_had_looked_at_before() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("labels");
    nodes.create(node(&name, &name)).await;
    nodes.patch("somebody", &name, json!({"metadata": {"labels": {"gq-tier": name}}})).await;
    let service = Service::start(server.kubeconfig(), &config("nobody", "1h", false), &[]).await;
    let alert = Alert::on(&name);
    assert_eq!(service.outcome(&alert.firing()).await, "out_of_scope");
    // The instance is set at start only.
    service.configure(&config("nobody", "1h", false).replace("gq-test=nobody", &format!("gq-tier={name}")));
    let (status, text) = service.reload().await.unwrap();
    assert_eq!(status, 200, "{text}\n{}", service.tail());
    assert_eq!(service.outcome(&alert.firing()).await, "recorded");
    assert!(tainted(&nodes.get(&name).await));
}
