//! The ledger with the cluster: compare-and-swap, trouble that stops nothing, and the pause.

use futures::FutureExt;
use gpu_quarantine::{
    cluster::{Cluster, LedgerWrite, snapshot::SnapshotCluster},
    policy::LedgerPlace,
    quarantine::{Ledger, StoredLedger},
};
use serde_json::{Value, json};

use crate::harness::{CONFIG, Service, config, lost};

const NODE: &str = "gpu-node-07";
const OVER: &str = "2026-11-29T20:17:00Z";

fn place() -> LedgerPlace {
    config(CONFIG).ledger
}

async fn stored(service: &Service) -> Option<Value> {
    let stored = service.cluster.inner.read_ledger(&place()).await.unwrap()?;
    Some(serde_json::from_str(&stored.text.unwrap()).unwrap())
}

fn put(cluster: &SnapshotCluster, text: &str) {
    let stands = cluster.read_ledger(&place()).now_or_never().unwrap().unwrap();
    let over = stands.as_ref().map(|s| s.version.as_str());
    cluster.write_ledger(&place(), LedgerWrite { over, text, unreadable: None, without: None }).now_or_never().unwrap().unwrap();
}

fn paused() -> String {
    json!({"v": 1, "owner": "default", "machines": {}, "paused": {"by": "ann", "at": "2026-11-29T20:00:00Z", "reason": "a test"}})
        .to_string()
}

#[tokio::test]
async fn it_has_the_claims_that_stand_and_the_episodes_that_are_past() {
    let service = Service::start().await;
    service.engine.sync_ledger().await;
    assert_eq!(stored(&service).await, None, "nothing to say");
    service.outcomes(&[lost(NODE, 0)]).await;
    service.engine.sync_ledger().await;
    let text = stored(&service).await.unwrap();
    let machine = text["machines"].as_object().unwrap().values().next().unwrap();
    assert_eq!((&machine["node"], &machine["open"]["isolated"]), (&json!(NODE), &json!(true)));
    service.outcomes(&[lost(NODE, 0).over(OVER)]).await;
    service.pass("10m").await;
    service.engine.sync_ledger().await;
    let text = stored(&service).await.unwrap();
    let machine = text["machines"].as_object().unwrap().values().next().unwrap();
    assert!(machine.get("open").is_none());
    assert_eq!(machine["episodes"][0]["alert"], "GpuLost");
}

#[tokio::test]
async fn two_writers_lose_nothing_of_each_other() {
    let service = Service::start().await;
    let other = service.another().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    other.outcomes(&[lost("gpu-node-12", 0)]).await;
    let inner = other.engine.clone();
    service.engine.sync_ledger().await;
    inner.sync_ledger().await;
    assert_eq!(stored(&service).await.unwrap()["machines"].as_object().unwrap().len(), 2);
    // And one that gets in between reading and writing.
    service.outcomes(&[lost(NODE, 1)]).await;
    service.cluster.before_ledger(|cluster| put(cluster, &paused()));
    service.engine.sync_ledger().await;
    let text = stored(&service).await.unwrap();
    assert_eq!(text["paused"]["by"], "ann");
    assert_eq!(text["machines"].as_object().unwrap().len(), 1, "what the other writer dropped is dropped, what is new is there");
    assert!(service.metric("gpu_quarantine_ledger_writes_total{result=\"conflict\"}").await >= 1.0);
}

#[tokio::test]
async fn a_ledger_that_fails_stops_neither_isolation_nor_release() {
    let service = Service::start().await;
    service.cluster.fail_ledger(true);
    service.engine.sync_ledger().await;
    assert_eq!(service.outcomes(&[lost(NODE, 0)]).await, ["recorded"]);
    service.engine.sync_ledger().await;
    service.outcomes(&[lost(NODE, 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(!service.tainted(NODE));
    assert!(service.metric("gpu_quarantine_ledger_writes_total{result=\"failed\"}").await >= 2.0);
    service.cluster.fail_ledger(false);
    service.engine.sync_ledger().await;
    assert_eq!(stored(&service).await.unwrap()["machines"].as_object().unwrap().len(), 1, "nothing was forgotten");
}

#[tokio::test]
async fn one_of_a_newer_program_or_another_instance_is_not_touched_and_an_unreadable_one_is_begun_anew() {
    for text in [json!({"v": 2, "owner": "default", "shape": []}), json!({"v": 1, "owner": "other", "machines": {}})] {
        let service = Service::start().await;
        put(&service.cluster.inner, &text.to_string());
        service.outcomes(&[lost(NODE, 0)]).await;
        service.engine.sync_ledger().await;
        assert_eq!(stored(&service).await.unwrap(), text);
        assert!(service.tainted(NODE));
    }
    for text in ["{", "[]", "{\"v\":1,\"owner\":\"default\",\"machines\":7}"] {
        let service = Service::start().await;
        put(&service.cluster.inner, text);
        service.outcomes(&[lost(NODE, 0)]).await;
        service.engine.sync_ledger().await;
        assert_eq!(stored(&service).await.unwrap()["machines"].as_object().unwrap().len(), 1);
        assert!(service.metric("gpu_quarantine_ledger_writes_total{result=\"unreadable\"}").await >= 1.0);
    }
}

#[tokio::test]
async fn a_pause_begins_nothing_and_releases_go_on_and_its_end_lets_in_who_waits() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-12", 0)]).await;
    put(&service.cluster.inner, &paused());
    service.engine.sync_ledger().await;
    assert_eq!(service.outcomes(&[lost(NODE, 0)]).await, ["pending"]);
    let view = service.view(NODE).await;
    assert_eq!(view["waiting_for"], "the end of the pause: paused by ann since 2026-11-29T20:00:00Z: a test");
    service.outcomes(&[lost("gpu-node-12", 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(!service.tainted("gpu-node-12"));
    assert!(!service.tainted(NODE));
    let StoredLedger::Ours(mut ledger) = Ledger::read(&stored(&service).await.unwrap().to_string(), "default") else { panic!() };
    ledger.paused = None;
    put(&service.cluster.inner, &serde_json::to_string(&ledger).unwrap());
    service.engine.sync_ledger().await;
    assert!(service.tainted(NODE));
}
