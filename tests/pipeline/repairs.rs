//! What repairs a GPU, and what only looks like it.

use crate::{
    exporter::{Edit, ROW_REMAP_PENDING, uuid},
    pipeline::{ALERT, FAULT, Pipeline, Plan},
    service::now,
    watcher::Watcher,
};

/// A GPU falls off the bus, after which its alert asks for a reboot.
const LOST: Edit = Edit::Xid { gpu: 0, code: 79 };
const LOST_ALERT: &str = "GpuXidGpuLost";

/// Restart the first node's exporter, which forgets the XIDs, and wait until Alertmanager knows the alert no more.
async fn forget(pipe: &mut Pipeline, alert: &str) {
    pipe.exporters[0].down();
    pipe.exporters[0].up().await;
    pipe.alertmanagers[0].wait_alert(alert, pipe.node(), None).await;
}

#[tokio::test]
async fn a_gpu_whose_exporter_was_restarted_and_forgot_its_xid_waits_for_the_reboot() {
    let Some(mut pipe) = Pipeline::start(Plan::proving()).await else { return };
    pipe.edit(LOST);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    forget(&mut pipe, LOST_ALERT).await;
    pipe.stays(pipe.node(), "clearing", &["reboot the machine", LOST_ALERT]).await;
    watcher.never_free();
    let rebooted = now();
    pipe.reboot(pipe.node()).await;
    pipe.wait_proven(pipe.node(), rebooted).await;
}

#[tokio::test]
async fn a_node_that_registers_anew_waits_for_the_repair_of_its_machine_although_no_alert_is_left() {
    let Some(mut pipe) = Pipeline::start(Plan::proving()).await else { return };
    pipe.edit(LOST);
    pipe.wait_isolated(pipe.node(), 1).await;
    forget(&mut pipe, LOST_ALERT).await;
    let repair = ["reboot the machine", LOST_ALERT];
    pipe.wait_waiting(pipe.node(), "clearing", &repair).await;
    pipe.register_anew(pipe.node()).await;
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    pipe.stays(pipe.node(), "clearing", &repair).await;
    watcher.never_free();
    let rebooted = now();
    pipe.reboot(pipe.node()).await;
    pipe.wait_proven(pipe.node(), rebooted).await;
}

#[tokio::test]
async fn an_alert_that_ended_and_whose_recovery_query_finds_nothing_frees_nothing() {
    const CONTAINED: &str = "GpuXidMemoryContained";
    let Some(mut pipe) = Pipeline::start(Plan::proving()).await else { return };
    pipe.edit(Edit::Xid { gpu: 0, code: 94 });
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    // The restarted exporter shows the field no more by which the repair would be seen.
    let told = pipe.addresses();
    pipe.rewire(0, &told, Some(ROW_REMAP_PENDING)).await;
    forget(&mut pipe, CONTAINED).await;
    pipe.stays(pipe.node(), "clearing", &[CONTAINED, "its recovery_query returns nothing"]).await;
    watcher.never_free();
    let good = now();
    pipe.rewire(0, &told, None).await;
    pipe.wait_proven(pipe.node(), good).await;
}

#[tokio::test]
async fn a_gpu_that_shows_its_fault_after_a_reboot_waits_for_another_one() {
    let Some(mut pipe) = Pipeline::start(Plan::proving()).await else { return };
    pipe.edit(LOST);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    // A reboot takes its time, so that the alert ends.
    pipe.exporters[0].down();
    pipe.reboot(pipe.node()).await;
    pipe.wait_waiting(pipe.node(), "suspect", &[LOST_ALERT, "the exporter is not scraped"]).await;
    pipe.exporters[0].up().await;
    pipe.edit(LOST);
    pipe.wait_waiting(pipe.node(), "isolated", &[LOST_ALERT, "to end"]).await;
    forget(&mut pipe, LOST_ALERT).await;
    pipe.stays(pipe.node(), "clearing", &["reboot the machine", LOST_ALERT]).await;
    watcher.never_free();
    let rebooted = now();
    pipe.reboot(pipe.node()).await;
    pipe.wait_proven(pipe.node(), rebooted).await;
}

#[tokio::test]
async fn a_gpu_that_was_reset_without_a_reboot_is_given_back_on_evidence() {
    let Some(pipe) = Pipeline::start(Plan::proving()).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    // Away for as long as it is reset, which is missed.
    pipe.edit(Edit::Drop { gpu: 0 });
    pipe.wait_isolated(pipe.node(), 2).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_proven(pipe.node(), now()).await;
}

#[tokio::test]
async fn a_gpu_in_the_place_of_another_ends_its_claims_only_if_the_machine_was_off_meanwhile() {
    const FAILED: &str = "GpuRowRemapFailed";
    let Some(pipe) = Pipeline::start(Plan { nodes: 2, ..Plan::proving() }).await else { return };
    let [failed, pending] = [0, 1].map(|i| pipe.names[i].as_str());
    pipe.exporters[0].edit(Edit::RowRemapFailed { gpu: 0 });
    pipe.exporters[1].edit(FAULT);
    let mut watchers = Vec::new();
    for name in &pipe.names {
        pipe.wait_isolated(name, 1).await;
        watchers.push(Watcher::of(&pipe.nodes, name).await);
    }
    for exporter in &pipe.exporters {
        exporter.edit(Edit::Exchange { gpu: 0 });
    }
    pipe.wait_waiting(failed, "clearing", &["replace the GPU or the machine", FAILED]).await;
    let unseen = format!("{} has no fresh series", uuid(pending, 0));
    pipe.stays(pending, "suspect", &[ALERT, &unseen]).await;
    pipe.wait_waiting(failed, "clearing", &["replace the GPU or the machine", FAILED]).await;
    for watcher in watchers {
        watcher.never_free();
    }
    let rebooted = now();
    for name in &pipe.names {
        pipe.reboot(name).await;
    }
    for name in &pipe.names {
        pipe.wait_proven(name, rebooted).await;
    }
}
