//! Trap 10: what the labels of the DCGM exporter say, and what they do not.

use super::{OVER, manual};
use crate::harness::{Service, lost};

#[tokio::test]
async fn trap_10_hostname_is_understood_in_both_spellings() {
    let service = Service::start().await;
    let (old, new) = (lost("gpu-node-07", 0), lost("gpu-node-12", 0));
    let new = new.without("Hostname").label("hostname", "gpu-node-12");
    assert_eq!(service.outcomes(&[old, new]).await, ["recorded", "recorded"]);
    assert!(service.tainted("gpu-node-07") && service.tainted("gpu-node-12"));
}

#[tokio::test]
async fn trap_10_an_upgrade_of_the_exporter_makes_a_second_member_of_the_same_claim() {
    let service = Service::start().await;
    let old = lost("gpu-node-07", 0);
    let new = old.clone().without("Hostname").label("hostname", "gpu-node-07").since("2026-11-29T20:16:00Z");
    assert_eq!(service.outcomes(std::slice::from_ref(&old)).await, ["recorded"]);
    assert_eq!(service.outcomes(&[new, old.over(OVER)]).await, ["recorded", "resolved"]);
    let record = service.record("gpu-node-07").unwrap();
    assert_eq!(record["claims"].as_array().unwrap().len(), 1);
    service.pass("24h").await;
    assert!(service.tainted("gpu-node-07"), "the fault goes on under the new labels");
}

#[tokio::test]
async fn trap_10_both_spellings_that_disagree_lead_nowhere() {
    let service = Service::start().await;
    let both = lost("gpu-node-07", 0).label("hostname", "gpu-node-12");
    assert_eq!(service.outcomes(&[both]).await, ["unmapped"]);
    assert_eq!(service.cluster.patches(), 0);
}

#[tokio::test]
async fn trap_10_the_workloads_pod_is_never_taken_for_the_exporter() {
    let service = Service::start().await;
    // llm-train-1 runs on gpu-node-03; the exporter that saw the fault runs on gpu-node-12.
    let nameless = lost("gpu-node-12", 0).without("Hostname");
    let exported = nameless.clone().label("exported_pod", "llm-train-1").label("exported_namespace", "ml");
    let honored = nameless.label("pod", "llm-train-1").label("namespace", "ml");
    assert_eq!(service.outcomes(&[exported.clone(), honored.clone()]).await, ["unmapped", "unmapped"]);
    assert_eq!(service.cluster.patches(), 0);
    let by_exporter = exported.label("namespace", "gpu-operator").label("pod", "nvidia-dcgm-exporter-ldbdt");
    let by_address = honored.label("instance", "10.244.12.5:9400");
    assert_eq!(service.outcomes(&[by_exporter, by_address]).await, ["recorded", "recorded"]);
    assert!(service.tainted("gpu-node-12") && !service.tainted("gpu-node-03"));
}

#[tokio::test]
async fn trap_10_localhost_is_no_host_of_anybody() {
    let service = Service::start().await;
    assert_eq!(service.recorded("traps/localhost.json").await, ["unmapped", "unmapped"]);
    assert_eq!(service.cluster.patches(), 0);
}

#[tokio::test]
async fn trap_10_a_sticky_xid_that_is_gone_proves_no_repair_where_a_person_is_required() {
    let service = Service::with(&manual()).await;
    let xid = lost("gpu-node-07", 0).named("GpuXid").label("xid", "79");
    assert_eq!(service.outcomes(std::slice::from_ref(&xid)).await, ["recorded"]);
    // The exporter restarted, the last XID is forgotten, and the alert is over.
    assert_eq!(service.outcomes(&[xid.over(OVER)]).await, ["resolved"]);
    service.pass("30d").await;
    service.engine.refresh().await;
    assert!(service.tainted("gpu-node-07"));
    // Only a person ends it: by removing the taint.
    service.cluster.edit("gpu-node-07", |node| node["spec"]["taints"] = serde_json::json!([]));
    service.engine.refresh().await;
    assert!(!service.tainted("gpu-node-07"));
    let view = service.view("gpu-node-07").await;
    assert_eq!((&view["isolated"], &view["history"][0]["by"]), (&false.into(), &"hand".into()));
}

#[tokio::test]
async fn trap_10_an_alert_without_a_node_is_tried_again_once_the_node_is_there() {
    let service = Service::start().await;
    assert_eq!(service.outcomes(&[lost("gpu-node-99", 0)]).await, ["unmapped"]);
    let mut node = service.cluster.raw("gpu-node-07");
    let metadata = node["metadata"].as_object_mut().unwrap();
    metadata.remove("uid");
    metadata.insert("name".to_owned(), "gpu-node-99".into());
    metadata["labels"]["kubernetes.io/hostname"] = "gpu-node-99".into();
    node["status"]["addresses"] = serde_json::json!([]);
    service.cluster.inner.create(node).unwrap();
    service.engine.refresh().await;
    assert!(service.tainted("gpu-node-99"));
}
