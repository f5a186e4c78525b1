//! Bare metal re-registers the same broken hardware under a new UID.

use serde_json::json;

use crate::{
    create, delete,
    harness::{CONFIG, Service, lost},
};

const NODE: &str = "gpu-node-07";
const OVER: &str = "2026-11-29T20:17:00Z";

#[tokio::test]
async fn a_machine_that_was_isolated_is_isolated_again_when_it_registers_anew() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    let before = service.record(NODE).unwrap();
    let raw = delete(&service, NODE).await;
    service.pass("5m").await;
    create(&service, raw).await;
    assert!(service.tainted(NODE), "though its alert is older than the Node object");
    let record = service.record(NODE).unwrap();
    assert_eq!(record["claims"][0]["since"], before["claims"][0]["since"]);
    assert_eq!(record["claims"][0]["members"], before["claims"][0]["members"]);
    assert_eq!(record["former"], json!({"node": NODE, "uid": before["node"]["uid"]}));
    let step = service.steps.lock().unwrap().last().cloned().unwrap();
    assert_eq!((step.action, step.node.as_str()), ("isolate", NODE));
    assert!(step.reason.contains("the machine was isolated as gpu-node-07 before"), "{}", step.reason);
    assert_eq!(service.outcomes(&[lost(NODE, 0)]).await, ["unchanged"], "it is no stale alert");
    // And from here on as any other.
    assert_eq!(service.outcomes(&[lost(NODE, 0).over(OVER)]).await, ["resolved"]);
    service.pass("10m").await;
    assert!(!service.tainted(NODE));
    assert!(service.record(NODE).unwrap().get("former").is_none());
    assert_eq!(service.engine.ledger().uids_with_claims().count(), 0);
}

#[tokio::test]
async fn it_is_isolated_again_though_the_service_restarted_meanwhile() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.engine.sync_ledger().await;
    let service = service.restart(CONFIG).await;
    let raw = delete(&service, NODE).await;
    let service = service.restart(CONFIG).await;
    create(&service, raw).await;
    assert!(!service.tainted(NODE), "the ledger was not read yet");
    service.engine.sync_ledger().await;
    assert!(service.tainted(NODE));
}

#[tokio::test]
async fn a_hold_down_begins_anew_on_the_new_node() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.outcomes(&[lost(NODE, 0).over(OVER)]).await;
    service.pass("9m").await;
    let raw = delete(&service, NODE).await;
    create(&service, raw).await;
    assert!(service.tainted(NODE));
    service.pass("9m59s").await;
    assert!(service.tainted(NODE));
    service.pass("1s").await;
    assert!(!service.tainted(NODE));
}

#[tokio::test]
async fn another_machine_under_the_same_name_inherits_nothing_and_the_old_one_is_known_wherever_it_comes_back() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    let raw = delete(&service, NODE).await;
    let mut other = raw.clone();
    other["status"]["nodeInfo"]["systemUUID"] = json!("11111111-2222-4333-8444-555555555555");
    create(&service, other).await;
    assert!(!service.tainted(NODE));
    assert!(service.record(NODE).is_none());
    let mut moved = raw;
    moved["metadata"]["name"] = json!("gpu-node-99");
    create(&service, moved).await;
    assert!(service.tainted("gpu-node-99"));
}

#[tokio::test]
async fn what_a_person_released_does_not_come_back() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.cluster.edit(NODE, |node| {
        node["spec"]["taints"] = json!([]);
        let time = "2026-11-29T20:16:30Z";
        node["metadata"]["managedFields"] = json!([{"manager": "kubectl-taint", "operation": "Update", "time": time,
            "fieldsV1": {"f:spec": {"f:taints": {}}}}]);
    });
    service.engine.refresh().await;
    assert_eq!(service.record(NODE).unwrap()["claims"][0]["state"], "released");
    let raw = delete(&service, NODE).await;
    create(&service, raw).await;
    assert!(!service.tainted(NODE));
}

#[tokio::test]
async fn the_guard_refuses_a_machine_that_comes_back_as_any_other_and_lets_it_in_later() {
    let service = Service::with(&CONFIG.replace("release:", "guard: {max_isolated: {count: 1, percent: 0}}\nrelease:")).await;
    service.outcomes(&[lost(NODE, 0)]).await;
    let raw = delete(&service, NODE).await;
    assert_eq!(service.outcomes(&[lost("gpu-node-12", 0)]).await, ["recorded"]);
    create(&service, raw).await;
    assert!(!service.tainted(NODE));
    assert_eq!(service.state(NODE).await, "pending");
    service.outcomes(&[lost("gpu-node-12", 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(service.tainted(NODE));
}

#[tokio::test]
async fn a_cleared_machine_that_the_guard_refuses_is_isolated_once_there_is_room() {
    let service = Service::with(&CONFIG.replace("release:", "guard: {max_isolated: {count: 1, percent: 0}}\nrelease:")).await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.outcomes(&[lost(NODE, 0).over(OVER)]).await;
    let raw = delete(&service, NODE).await;
    service.outcomes(&[lost("gpu-node-12", 0)]).await;
    create(&service, raw).await;
    assert!(!service.tainted(NODE));
    assert_eq!(service.state(NODE).await, "pending", "what it brought waits for room as what fires does");
    service.outcomes(&[lost("gpu-node-12", 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(service.tainted(NODE));
}

#[tokio::test]
async fn what_a_person_released_while_it_waited_for_room_does_not_come_back_either() {
    let service = Service::with(&CONFIG.replace("release:", "guard: {max_isolated: {count: 1, percent: 0}}\nrelease:")).await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.outcomes(&[lost(NODE, 0).over(OVER)]).await;
    let raw = delete(&service, NODE).await;
    service.outcomes(&[lost("gpu-node-12", 0)]).await;
    create(&service, raw).await;
    assert_eq!(service.state(NODE).await, "pending");
    service.release_by_hand(NODE, None).await;
    assert_eq!(service.state(NODE).await, "free");
    let open: Vec<String> = service.engine.ledger().uids_with_claims().map(str::to_owned).collect();
    assert_eq!(open.len(), 1, "only those of gpu-node-12: {open:?}");
    let raw = delete(&service, NODE).await;
    create(&service, raw).await;
    assert_eq!(service.state(NODE).await, "free");
}

#[tokio::test]
async fn what_was_over_on_a_machine_that_comes_back_is_not_forgotten_while_the_guard_refuses() {
    let service = Service::with(&CONFIG.replace("release:", "guard: {max_isolated: {count: 1, percent: 0}}\nrelease:")).await;
    let to_replace = lost(NODE, 0).label("recovery", "replace");
    service.outcomes(&[to_replace.clone(), lost(NODE, 1)]).await;
    service.outcomes(&[to_replace.over(OVER)]).await;
    let raw = delete(&service, NODE).await;
    service.outcomes(&[lost("gpu-node-12", 0)]).await;
    create(&service, raw).await;
    assert_eq!(service.state(NODE).await, "pending");
    service.outcomes(&[lost("gpu-node-12", 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(service.tainted(NODE));
    service.outcomes(&[lost(NODE, 1).over(OVER)]).await;
    service.pass("1h").await;
    let view = service.view(NODE).await;
    assert!(service.tainted(NODE) && view["waiting_for"].as_str().unwrap().contains("replace the GPU or the machine"), "{view}");
}

#[tokio::test]
async fn two_nodes_that_share_a_system_uuid_inherit_nothing_from_each_other() {
    let service = Service::start().await;
    let shared = service.cluster.raw(NODE)["status"]["nodeInfo"]["systemUUID"].clone();
    service.cluster.edit("gpu-node-12", |node| node["status"]["nodeInfo"]["systemUUID"] = shared);
    service.engine.refresh().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    let raw = delete(&service, NODE).await;
    assert!(!service.tainted("gpu-node-12"));
    create(&service, raw).await;
    assert!(!service.tainted("gpu-node-12") && !service.tainted(NODE), "nobody can tell which of them it was");
}

#[tokio::test]
async fn a_reboot_on_the_way_counts_and_a_claim_by_index_becomes_one_on_the_node() {
    let service = Service::start().await;
    let alert = lost(NODE, 3).without("UUID").label("recovery", "reboot");
    assert_eq!(service.outcomes(std::slice::from_ref(&alert)).await, ["recorded"]);
    let mut raw = delete(&service, NODE).await;
    raw["status"]["nodeInfo"]["bootID"] = json!("another-boot");
    create(&service, raw).await;
    let claim = service.record(NODE).unwrap()["claims"][0].clone();
    assert_eq!(claim["machine"]["event"], "rebooted");
    assert!(claim.get("gpu").is_none(), "{claim}");
}
