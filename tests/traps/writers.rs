//! Traps 6 and 11: other writers of the node, and nodes that come back under their old name.

use std::sync::Arc;

use serde_json::{Value, json};

use super::OVER;
use crate::harness::{BEGIN, CONFIG, Fault, Faulty, RECORD, Service, TAINT, at, lost, name, prod_a};

const FOREIGN: &str = "example.com/maintenance";

fn add_taint(node: &mut Value, key: &str) {
    let taints = node["spec"].as_object_mut().unwrap().entry("taints").or_insert(json!([]));
    taints.as_array_mut().unwrap().push(json!({ "key": key, "value": "yes", "effect": "NoSchedule" }));
}

#[tokio::test(start_paused = true)]
async fn trap_06_a_foreign_taint_added_between_our_read_and_our_write_is_kept() {
    let service = Service::start().await;
    service.cluster.before_next(|cluster| cluster.edit(&name("gpu-node-12"), |n| add_taint(n, FOREIGN)).unwrap());
    assert_eq!(service.outcomes(&[lost("gpu-node-12", 0)]).await, ["recorded"]);
    assert_eq!(service.taints("gpu-node-12"), ["example.com/dedicated", FOREIGN, TAINT]);
    assert_eq!((service.cluster.patches(), service.cluster.written()), (2, 1), "the first met a conflict");

    // And on the way back.
    service.outcomes(&[lost("gpu-node-12", 0).over(OVER)]).await;
    service.cluster.before_next(|cluster| cluster.edit(&name("gpu-node-12"), |n| add_taint(n, "example.com/late")).unwrap());
    service.pass("10m").await;
    assert_eq!(service.taints("gpu-node-12"), ["example.com/dedicated", FOREIGN, "example.com/late"]);
}

#[tokio::test(start_paused = true)]
async fn trap_06_a_foreign_taint_removed_between_our_read_and_our_write_is_not_put_back() {
    let service = Service::start().await;
    service.cluster.before_next(|cluster| {
        cluster.edit(&name("gpu-node-12"), |n| n["spec"]["taints"] = json!([])).unwrap();
    });
    assert_eq!(service.outcomes(&[lost("gpu-node-12", 0)]).await, ["recorded"]);
    assert_eq!(service.taints("gpu-node-12"), [TAINT]);
}

#[tokio::test(start_paused = true)]
async fn trap_06_fields_of_foreign_taints_that_we_do_not_know_survive() {
    let service = Service::start().await;
    let before = service.cluster.raw("gpu-node-19")["spec"].clone();
    service.outcomes(&[lost("gpu-node-19", 0)]).await;
    assert!(service.tainted("gpu-node-19"));
    service.outcomes(&[lost("gpu-node-19", 0).over(OVER)]).await;
    service.pass("10m").await;
    assert_eq!(service.cluster.raw("gpu-node-19")["spec"], before, "timeAdded and the cordon of somebody else included");
}

#[tokio::test(start_paused = true)]
async fn trap_06_the_taint_and_the_record_are_written_in_one_patch_with_the_resource_version() {
    let service = Service::start().await;
    let version = service.cluster.raw("gpu-node-07")["metadata"]["resourceVersion"].clone();
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    assert_eq!(service.cluster.written(), 1);
    let steps = service.steps.lock().unwrap();
    let patch = steps[0].patch.as_ref().unwrap();
    assert_eq!(patch["metadata"]["resourceVersion"], version);
    assert!(patch["metadata"]["annotations"][RECORD].is_string());
    assert_eq!(patch["spec"]["taints"], json!([{ "key": TAINT, "value": "gpu-lost", "effect": "NoSchedule" }]));
}

#[tokio::test(start_paused = true)]
async fn trap_06_a_decision_not_to_write_is_never_made_on_an_old_cache() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    service.cluster.fall_behind(true);
    // In the cache the node still bears record and taint; in truth another program wiped both.
    service.cluster.edit("gpu-node-07", |node| {
        node["metadata"]["annotations"].as_object_mut().unwrap().remove(RECORD);
        node["spec"]["taints"] = json!([]);
    });
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    assert!(service.tainted("gpu-node-07"));
    assert_eq!(service.record("gpu-node-07").unwrap()["claims"][0]["state"], "firing");
}

#[tokio::test(start_paused = true)]
async fn trap_06_a_decision_to_write_made_on_an_old_cache_is_made_again_on_the_truth() {
    let service = Service::start().await;
    service.cluster.fall_behind(true);
    let other = Service::on(Arc::clone(&service.cluster), CONFIG, at(BEGIN)).await;
    service.cluster.fall_behind(true);
    assert_eq!(other.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["unchanged"], "the other replica was faster");
    assert_eq!(service.cluster.written(), 1);
    assert_eq!(service.taints("gpu-node-07"), [TAINT]);
}

#[tokio::test(start_paused = true)]
async fn trap_06_a_taint_of_our_key_that_stood_there_before_stays() {
    let service = Service::start().await;
    service.cluster.edit("gpu-node-07", |node| add_taint(node, TAINT));
    let before = service.cluster.raw("gpu-node-07")["spec"].clone();
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    assert_eq!(service.cluster.raw("gpu-node-07")["spec"], before);
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await;
    service.pass("10m").await;
    assert_eq!(service.cluster.raw("gpu-node-07")["spec"], before, "it is not ours to remove (P2)");
    assert_eq!(service.view("gpu-node-07").await["isolated"], false);
}

/// The same name, another machine, created now.
fn recreate(cluster: &Faulty, created: &str) {
    let mut node = cluster.raw("gpu-node-07");
    let metadata = node["metadata"].as_object_mut().unwrap();
    metadata.remove("uid");
    metadata.remove("resourceVersion");
    metadata.remove("annotations");
    metadata.insert("creationTimestamp".to_owned(), json!(created));
    node["spec"].as_object_mut().unwrap().remove("taints");
    // With the same one it would be the machine before, and inherit its claims.
    node["status"]["nodeInfo"]["systemUUID"] = json!("11111111-2222-4333-8444-555555555555");
    cluster.inner.delete(&name("gpu-node-07")).unwrap();
    cluster.inner.create(node).unwrap();
}

#[tokio::test(start_paused = true)]
async fn trap_11_a_node_that_comes_back_under_its_old_name_starts_clean() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    let old = service.view("gpu-node-07").await["uid"].clone();
    recreate(&service.cluster, "2026-11-29T20:16:30Z");
    service.engine.refresh().await;
    let view = service.view("gpu-node-07").await;
    assert_ne!(view["uid"], old);
    assert_eq!((&view["state"], &view["isolated"], &view["claims"]), (&json!("free"), &json!(false), &json!([])));
    assert!((service.metric("gpu_quarantine_nodes{state=\"isolated\"}").await).abs() < f64::EPSILON, "its slot is free again");
    service.pass("1h").await;
    assert!(!service.tainted("gpu-node-07"));
}

#[tokio::test(start_paused = true)]
async fn trap_11_alerts_about_the_machine_before_are_stale_for_ten_minutes_and_live_afterwards() {
    let service = Service::start().await;
    recreate(&service.cluster, "2026-11-29T20:15:30Z");
    service.engine.refresh().await;
    let old = lost("gpu-node-07", 0).since("2026-11-29T20:15:00Z");
    let new = lost("gpu-node-07", 1).since("2026-11-29T20:15:30Z");
    assert_eq!(service.outcomes(std::slice::from_ref(&old)).await, ["stale"]);
    assert!(service.record("gpu-node-07").is_none());
    service.pass("9m29s").await;
    assert_eq!(service.outcomes(std::slice::from_ref(&old)).await, ["stale"], "until 20:25:30");
    service.pass("1s").await;
    assert_eq!(service.outcomes(&[old]).await, ["recorded"], "bare metal comes back with the same broken hardware");

    let service = Service::on(Arc::new(Faulty::around(prod_a())), CONFIG, at(BEGIN)).await;
    recreate(&service.cluster, "2026-11-29T20:15:30Z");
    assert_eq!(service.outcomes(&[new]).await, ["recorded"], "what began after the node did is about the node");
}

#[tokio::test(start_paused = true)]
async fn trap_11_a_node_replaced_between_our_read_and_our_write_is_not_isolated_for_the_one_before() {
    let service = Service::start().await;
    let old = lost("gpu-node-07", 0);
    let cluster = Arc::clone(&service.cluster);
    service.cluster.pause();
    let (outcomes, ()) = tokio::join!(service.outcomes(std::slice::from_ref(&old)), async {
        cluster.arrived(1).await;
        recreate(&cluster, "2026-11-29T20:15:30Z");
        cluster.go_on();
    });
    assert_eq!(outcomes, ["stale"]);
    assert!(!service.tainted("gpu-node-07") && service.record("gpu-node-07").is_none());
}

#[tokio::test(start_paused = true)]
async fn trap_11_a_record_copied_from_the_node_before_is_kept_aside_and_counts_for_nothing() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    let record = service.cluster.raw("gpu-node-07")["metadata"]["annotations"][RECORD].clone();
    recreate(&service.cluster, "2026-11-29T20:15:30Z");
    // A backup tool puts annotations and taints back.
    service.cluster.edit("gpu-node-07", |node| {
        node["metadata"]["annotations"] = json!({ RECORD: record });
        add_taint(node, TAINT);
    });
    service.engine.refresh().await;
    assert_eq!(service.state("gpu-node-07").await, "suspect");
    let new = lost("gpu-node-07", 1).since("2026-11-29T20:16:00Z");
    assert_eq!(service.outcomes(std::slice::from_ref(&new)).await, ["recorded"]);
    let raw = service.cluster.raw("gpu-node-07");
    assert_eq!(raw["metadata"]["annotations"]["gpu-quarantine.dev/record-corrupt"], record);
    assert_eq!(service.record("gpu-node-07").unwrap()["claims"].as_array().unwrap().len(), 1);
    service.outcomes(&[new.over(OVER)]).await;
    service.pass("10m").await;
    assert!(service.tainted("gpu-node-07"), "the taint that was put back is not known to be ours");
}

#[tokio::test(start_paused = true)]
async fn trap_11_a_node_that_is_gone_is_told_and_its_alert_waits_for_it_to_come_back() {
    let service = Service::start().await;
    let back = service.cluster.raw("gpu-node-07");
    service.cluster.pause();
    let cluster = Arc::clone(&service.cluster);
    let alert = lost("gpu-node-07", 0).since("2026-11-29T20:15:45Z");
    let (outcomes, ()) = tokio::join!(service.outcomes(std::slice::from_ref(&alert)), async {
        cluster.arrived(1).await;
        cluster.inner.delete(&name("gpu-node-07")).unwrap();
        cluster.go_on();
    });
    assert_eq!(outcomes, ["unmapped"]);
    // The kubelet registers again: another object, on the same sick machine.
    let mut back = back;
    back["metadata"].as_object_mut().unwrap().remove("uid");
    back["metadata"]["creationTimestamp"] = json!("2026-11-29T20:15:40Z");
    service.cluster.inner.create(back).unwrap();
    service.engine.refresh().await;
    assert!(service.tainted("gpu-node-07"));
}

#[tokio::test(start_paused = true)]
async fn trap_08_a_release_whose_answer_got_lost_is_told_once_and_not_repeated() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await;
    service.cluster.fail_next(&[Fault::TimeoutAfter]);
    service.pass("10m").await;
    assert!(!service.tainted("gpu-node-07"));
    assert_eq!(service.actions("gpu-node-07"), ["isolate", "release"]);
    assert_eq!(service.view("gpu-node-07").await["history"].as_array().unwrap().len(), 1);
}
