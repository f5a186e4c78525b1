//! The ledger as a `ConfigMap` of a real API server: two writers, and whatever may stand there.

use std::time::Duration;

use gpu_quarantine::{
    cluster::{LedgerError, LedgerWrite, kubernetes::DirectLedger},
    policy::LedgerPlace,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use crate::{
    harness::ApiServer,
    nodes::{Nodes, node, record, tainted},
    process::{eventually, unique},
    service::{Alert, Service, config},
};

/// The configuration of `scope` with a ledger of its own in the namespace that every API server has.
pub(crate) fn with_ledger(scope: &str) -> String {
    format!("{}ledger: {{namespace: default, name: {scope}}}\n", config(scope, "300ms", false))
}

pub(crate) fn place(name: &str) -> LedgerPlace {
    LedgerPlace { namespace: "default".to_owned(), name: name.to_owned() }
}

pub(crate) async fn direct(server: &ApiServer, name: &str) -> DirectLedger {
    let config = gpu_quarantine::cluster::kubernetes::config(Some(&server.kubeconfig()), None).await.expect("a configuration");
    DirectLedger::new(config, place(name)).expect("a client")
}

pub(crate) async fn maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(server.client().await, "default")
}

pub(crate) async fn stored(maps: &Api<ConfigMap>, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually("the ledger is as wanted", Duration::from_secs(45), async || {
        let map = maps.get_opt(name).await.expect("an answer");
        let text = map.and_then(|m| m.data).and_then(|mut d| d.remove("ledger.json")).unwrap_or_default();
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        if wanted(&value) { Ok(value) } else { Err(text) }
    })
    .await
}

#[tokio::test]
async fn a_write_names_the_version_that_was_read_and_any_other_is_a_conflict() {
    let Some(server) = ApiServer::shared().await else { return };
    let name = unique("swap");
    let (one, two) = (direct(server, &name).await, direct(server, &name).await);
    assert_eq!(one.read().await.unwrap(), None);
    let write = |over, text| LedgerWrite { over, text, unreadable: None, without: None };
    one.write(write(None, "a")).await.expect("it is created");
    assert_eq!(two.write(write(None, "b")).await, Err(LedgerError::Conflict), "it is there by now");
    let read = two.read().await.unwrap().unwrap();
    assert_eq!(read.text.as_deref(), Some("a"));
    one.write(write(Some(&read.version), "c")).await.expect("nobody wrote meanwhile");
    assert_eq!(two.write(write(Some(&read.version), "d")).await, Err(LedgerError::Conflict));
    assert_eq!(two.delete(&read.version).await, Err(LedgerError::Conflict));
    let read = two.read().await.unwrap().unwrap();
    let kept = LedgerWrite { over: Some(&read.version), text: "e", unreadable: Some("what was there"), without: None };
    two.write(kept).await.unwrap();
    let map = maps(server).await.get(&name).await.unwrap();
    assert_eq!(map.data.unwrap()["unreadable"], "what was there");
    let read = two.read().await.unwrap().unwrap();
    two.delete(&read.version).await.unwrap();
    assert_eq!(one.write(write(Some(&read.version), "f")).await, Err(LedgerError::Conflict), "it is gone");
    let nowhere = DirectLedger::new(
        gpu_quarantine::cluster::kubernetes::config(Some(&server.kubeconfig()), None).await.unwrap(),
        LedgerPlace { namespace: "no-such-namespace".to_owned(), name },
    );
    let told = nowhere.unwrap().write(write(None, "a")).await.unwrap_err().to_string();
    assert!(told.contains("create the namespace"), "{told}");
}

#[tokio::test]
async fn the_service_keeps_it_and_makes_it_anew_when_it_is_deleted_or_cannot_be_read() {
    let Some(server) = ApiServer::shared().await else { return };
    let (nodes, maps, name) = (Nodes::of(server.client().await), maps(server).await, unique("kept"));
    nodes.create(node(&name, &name)).await;
    let service = Service::start(server.kubeconfig(), &with_ledger(&name), &[]).await;
    let alert = Alert::on(&name);
    assert_eq!(service.outcome(&alert.firing()).await, "recorded");
    let has_claims = |ledger: &Value| ledger["machines"].as_object().is_some_and(|m| m.values().any(|m| !m["open"].is_null()));
    stored(&maps, &name, has_claims).await;
    maps.delete(&name, &DeleteParams::default()).await.unwrap();
    stored(&maps, &name, has_claims).await;
    let direct = direct(server, &name).await;
    let version = direct.read().await.unwrap().unwrap().version;
    direct.write(LedgerWrite { over: Some(&version), text: "{", unreadable: None, without: None }).await.unwrap();
    stored(&maps, &name, has_claims).await;
    assert_eq!(maps.get(&name).await.unwrap().data.unwrap()["unreadable"], "{");
    // One of a newer program stays, and nothing else waits for it.
    let version = direct.read().await.unwrap().unwrap().version;
    let newer = json!({"v": 2, "owner": name}).to_string();
    direct.write(LedgerWrite { over: Some(&version), text: &newer, unreadable: None, without: None }).await.unwrap();
    assert_eq!(service.outcome(&alert.resolved()).await, "resolved");
    service.wait_state(&name, "free").await;
    eventually("the failure is counted", Duration::from_secs(45), async || {
        let metrics = service.metrics().await;
        if metrics.contains("gpu_quarantine_ledger_writes_total{result=\"failed\"} 0") { Err(service.tail()) } else { Ok(()) }
    })
    .await;
    assert_eq!(direct.read().await.unwrap().unwrap().text, Some(newer));
}

#[tokio::test]
async fn a_machine_whose_node_was_deleted_while_nobody_ran_is_isolated_when_it_registers_anew() {
    let Some(server) = ApiServer::shared().await else { return };
    let (nodes, maps, name) = (Nodes::of(server.client().await), maps(server).await, unique("returns"));
    let machine = json!({"status": {"nodeInfo": {"systemUUID": "5b1d9a52-7e77-4f0e-9f6b-3c1f0d9a7c11"}}});
    let params = kube::api::PatchParams::default();
    nodes.create(node(&name, &name)).await;
    nodes.0.patch_status(&name, &params, &kube::api::Patch::Merge(&machine)).await.expect("its machine");
    let mut service = Service::start(server.kubeconfig(), &with_ledger(&name), &[]).await;
    assert_eq!(service.outcome(&Alert::on(&name).firing()).await, "recorded");
    let of_machine = |ledger: &Value| !ledger["machines"]["5b1d9a52-7e77-4f0e-9f6b-3c1f0d9a7c11"]["open"].is_null();
    stored(&maps, &name, of_machine).await;
    let before = record(&nodes.get(&name).await).unwrap();
    service.kill9();
    nodes.delete(&name).await;
    nodes.create(node(&name, &name)).await;
    service.restart().await;
    assert!(!tainted(&nodes.get(&name).await), "which machine it is is not known yet");
    nodes.0.patch_status(&name, &params, &kube::api::Patch::Merge(&machine)).await.expect("its machine");
    let node = eventually("it is isolated", Duration::from_secs(20), async || {
        let node = nodes.get(&name).await;
        if tainted(&node) { Ok(node) } else { Err(service.tail()) }
    })
    .await;
    let after = record(&node).unwrap();
    assert_eq!(after["claims"][0]["since"], before["claims"][0]["since"]);
    assert_eq!(after["former"]["uid"], before["node"]["uid"]);
}
