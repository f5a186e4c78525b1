//! A fault in an exporter, and what becomes of the nodes.

use std::time::Duration;

use serde_json::json;

use crate::{
    exporter::{Edit, uuid},
    nodes::{added, record, tainted, taints, without_us},
    pipeline::{Pipeline, Plan},
    process::eventually,
};

#[tokio::test]
async fn a_gpu_that_falls_off_the_bus_isolates_exactly_its_node_and_an_xid_of_a_program_isolates_none() {
    let Some(pipe) = Pipeline::start(Plan { nodes: 3, ..Plan::default() }).await else { return };
    let [lost, bug, other_bug] = pipe.names.clone().try_into().expect("three nodes");
    // A bug counts as new only on a GPU that was there 3 s (2 min) ago.
    eventually("the GPUs are old enough", Duration::from_secs(20), async || {
        let old = pipe.prometheuses[0].query("gpu:present:max offset 5s").await?.len();
        if old == 6 { Ok(()) } else { Err(format!("{old}")) }
    })
    .await;
    pipe.exporters[1].edit(Edit::Xid { gpu: 0, code: 31 });
    pipe.exporters[2].edit(Edit::Xid { gpu: 1, code: 13 });
    pipe.exporters[0].edit(Edit::Xid { gpu: 1, code: 79 });
    let isolated = pipe.wait_isolated(&lost, 1).await;
    let claim = &record(&isolated).expect("a record")["claims"][0];
    assert_eq!((&claim["alert"], &claim["gpu"]), (&json!("GpuXidGpuLost"), &json!(uuid(&lost, 1))));
    // Both bugs were told and answered, and their nodes were left alone.
    for name in [&bug, &other_bug] {
        pipe.wait_passed("GpuXidApplication", name, "firing").await;
    }
    eventually("all bodies are answered", Duration::from_secs(10), async || {
        let answered = pipe.relay.passed().iter().all(|p| p.answered.is_some_and(|(status, _)| status == 200));
        if answered { Ok(()) } else { Err(pipe.tail()) }
    })
    .await;
    for name in [&bug, &other_bug] {
        let node = pipe.nodes.get(name).await;
        assert!(!tainted(&node) && record(&node).is_none(), "{node}");
        assert_eq!(pipe.service.node(name).await["state"], "free");
    }
}

#[tokio::test]
async fn a_fault_of_a_node_and_of_its_eight_gpus_is_one_isolation_with_nine_claims() {
    let Some(pipe) = Pipeline::start(Plan { gpus: 8, ..Plan::default() }).await else { return };
    let before = pipe.nodes.get(pipe.node()).await;
    pipe.edit(Edit::FabricFailed);
    for gpu in 0..8 {
        pipe.edit(Edit::RowRemapPending { gpu });
    }
    let first = eventually("the node is isolated", Duration::from_secs(90), async || {
        let node = pipe.nodes.get(pipe.node()).await;
        if tainted(&node) { Ok(node) } else { Err(pipe.tail()) }
    })
    .await;
    let isolated = pipe.wait_isolated(pipe.node(), 9).await;
    let (record, at_first) = (record(&isolated).expect("a record"), record(&first).expect("a record"));
    assert_eq!(taints(&isolated).len(), 1, "one taint");
    assert_eq!(record["added"], at_first["added"], "added once");
    let claims = record["claims"].as_array().expect("claims");
    let of = |alert: &str| claims.iter().filter(|c| c["alert"] == alert).count();
    assert_eq!((of("GpuFabricManagerFailed"), of("GpuRowRemapPending")), (1, 8));
    assert!(claims.iter().all(|c| c["state"] == "firing"), "{record}");

    // All of it is repaired, and the node is as it was.
    pipe.edit(Edit::Clear);
    let free = pipe.wait_free(pipe.node()).await;
    assert!(!added(&free));
    assert_eq!(without_us(&free), without_us(&before));
}

#[tokio::test]
async fn a_gpu_that_disappears_is_missed_and_given_back_when_it_is_there_again() {
    let Some(pipe) = Pipeline::start(Plan::default()).await else { return };
    pipe.edit(Edit::Drop { gpu: 1 });
    let isolated = pipe.wait_isolated(pipe.node(), 1).await;
    assert_eq!(record(&isolated).expect("a record")["claims"][0]["alert"], "GpuMissing");
    pipe.edit(Edit::Clear);
    pipe.wait_free(pipe.node()).await;
}
