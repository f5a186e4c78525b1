//! Silences, inhibition and mute times: Alertmanager never says that what it keeps quiet is over.

use crate::{
    exporter::Edit,
    pipeline::{ALERT, FAULT, Pipeline, Plan},
    watcher::Watcher,
};

const SUPPRESSED: Option<&str> = Some("suppressed");

/// Nothing was done to the node, though the service has asked again.
async fn stays_free(pipe: &Pipeline) {
    let watcher = Watcher::of_free(&pipe.nodes, pipe.node()).await;
    pipe.pull().await;
    pipe.pull().await;
    watcher.never_isolated();
}

#[tokio::test]
async fn a_node_silenced_before_its_fault_is_left_alone_until_the_silence_ends() {
    let Some(pipe) = Pipeline::start(Plan::pulling()).await else { return };
    let watcher = Watcher::of_free(&pipe.nodes, pipe.node()).await;
    let silence = pipe.alertmanagers[0].silence(pipe.node()).await;
    pipe.edit(FAULT);
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), SUPPRESSED).await;
    stays_free(&pipe).await;
    watcher.never_isolated();
    pipe.alertmanagers[0].unsilence(&silence).await;
    pipe.wait_isolated(pipe.node(), 1).await;
}

#[tokio::test]
async fn a_fault_that_ends_under_a_silence_leaves_nothing_behind() {
    let Some(mut pipe) = Pipeline::start(Plan::pulling()).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    let silence = pipe.alertmanagers[0].silence(pipe.node()).await;
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), SUPPRESSED).await;
    // Longer than the hold-down: a silence is no repair, and whoever made it is shown.
    pipe.pulls_for(pipe.hold_down()).await;
    let waits = pipe.service.node(pipe.node()).await["waiting_for"].as_str().unwrap_or_default().to_owned();
    assert!(waits.contains("ann") && waits.contains("changing the board"), "{waits}");
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), None).await;
    pipe.forget_ends().await;
    pipe.alertmanagers[0].unsilence(&silence).await;
    pipe.wait_free(pipe.node()).await;
}

#[tokio::test]
async fn a_fault_that_comes_back_after_a_silence_isolates_before_alertmanager_would_tell_it() {
    let Some(mut pipe) = Pipeline::start(Plan::pulling()).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    let silence = pipe.alertmanagers[0].silence(pipe.node()).await;
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), SUPPRESSED).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), None).await;
    pipe.forget_ends().await;
    pipe.alertmanagers[0].unsilence(&silence).await;
    pipe.wait_free(pipe.node()).await;
    // Its log still says that this fires, and that it was told less than repeat_interval ago.
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
}

#[tokio::test]
async fn a_fault_that_ends_while_another_alert_inhibits_it_leaves_nothing_behind() {
    let rule = "inhibit_rules:\n  - {source_matchers: ['alertname=\"Maintenance\"'], target_matchers: ['remediation=~\".+\"'], \
                equal: [node]}\nreceivers:\n";
    let Some(mut pipe) = Pipeline::start(Plan::pulling().route("receivers:\n", rule)).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    let node = pipe.node().to_owned();
    let maintenance = [("alertname", "Maintenance"), ("node", &node)];
    pipe.alertmanagers[0].tell(&maintenance, false).await;
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), SUPPRESSED).await;
    pipe.pulls_for(pipe.hold_down()).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), None).await;
    pipe.forget_ends().await;
    pipe.alertmanagers[0].tell(&maintenance, true).await;
    pipe.wait_free(pipe.node()).await;
}

#[tokio::test]
async fn a_mute_time_neither_keeps_a_node_nor_lets_one_go_nor_isolates_one() {
    let Some(pipe) = Pipeline::start(Plan::pulling()).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    let always = "      mute_time_intervals: [always]\n      group_wait: 1s\n";
    let intervals = "time_intervals:\n  - {name: always, time_intervals: [{times: [{start_time: '00:00', end_time: '24:00'}]}]}\n\
                     receivers:\n";
    let muted = [("      group_wait: 1s\n", always), ("receivers:\n", intervals)];
    pipe.alertmanagers[0].reconfigure(&muted).await;
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), SUPPRESSED).await;
    pipe.pulls_for(pipe.hold_down()).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_free(pipe.node()).await;
    pipe.edit(FAULT);
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), SUPPRESSED).await;
    stays_free(&pipe).await;
}
