//! Alertmanagers and Prometheuses that fail, forget or disagree.

use crate::{
    exporter::{Edit, ROW_REMAP_PENDING},
    pipeline::{ALERT, FAULT, Pipeline, Plan},
    watcher::Watcher,
};

#[tokio::test]
async fn an_alertmanager_that_was_killed_and_has_forgotten_everything_frees_nothing_too_early_and_nothing_too_late() {
    let Some(mut pipe) = Pipeline::start(Plan::pulling()).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    pipe.alertmanagers[0].kill9();
    pipe.alertmanagers[0].forget();
    pipe.alertmanagers[0].restart().await;
    // It is still empty, and proves nothing by that.
    pipe.pull().await;
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), Some("active")).await;
    pipe.pulls_for(pipe.hold_down()).await;
    // And once more, with the fault gone meanwhile: nobody will tell that it is over.
    pipe.alertmanagers[0].kill9();
    pipe.alertmanagers[0].forget();
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.prometheuses[0].wait_firing(ALERT, pipe.node(), 0).await;
    pipe.alertmanagers[0].restart().await;
    pipe.wait_free(pipe.node()).await;
}

#[tokio::test]
async fn while_one_of_two_peers_is_down_a_fault_isolates_and_nothing_is_taken_for_over() {
    let Some(mut pipe) = Pipeline::start(Plan { alertmanagers: 2, ..Plan::pulling() }).await else { return };
    pipe.alertmanagers[0].kill9();
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    pipe.pulls_for(pipe.hold_down()).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.alertmanagers[1].wait_alert(ALERT, pipe.node(), None).await;
    pipe.alertmanagers[0].restart().await;
    pipe.wait_free(pipe.node()).await;
}

#[tokio::test]
async fn of_peers_that_disagree_the_one_with_the_fault_is_believed() {
    let Some(pipe) = Pipeline::start(Plan { alertmanagers: 2, ..Plan::pulling() }).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    // From now on only one of them hears of it. For the other it is over when its lease is, and it may say so.
    let told = [pipe.alertmanagers[0].address()];
    pipe.rewire(0, &told, None).await;
    pipe.alertmanagers[1].wait_alert(ALERT, pipe.node(), None).await;
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), Some("active")).await;
    pipe.pulls_for(pipe.hold_down() * 2).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_free(pipe.node()).await;
}

#[tokio::test]
async fn a_replica_of_prometheus_that_lost_a_series_does_not_end_the_fault() {
    // A hold-down of ten pulls, as the defaults have: every look may meet the moment in which it is over.
    let plan = Plan { prometheuses: 2, after: std::time::Duration::from_secs(20), ..Plan::pulling() };
    let Some(pipe) = Pipeline::start(plan).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    for replica in &pipe.prometheuses {
        replica.wait_firing(ALERT, pipe.node(), 1).await;
    }
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    let told = pipe.addresses();
    pipe.rewire(1, &told, Some(ROW_REMAP_PENDING)).await;
    // The last report wins: from now on it fires and is over in turn. Which of the two a flush meets depends on when each replica
    // evaluates its rules, so a body with its end need not come.
    pipe.prometheuses[1].wait_firing(ALERT, pipe.node(), 0).await;
    pipe.pulls_for(pipe.hold_down() * 2).await;
    watcher.never_free();
    // The blind replica freezes the node by GpuFieldMissing: it must see again before anything is given back.
    pipe.edit(Edit::Clear);
    pipe.rewire(1, &told, None).await;
    pipe.wait_free(pipe.node()).await;
}
