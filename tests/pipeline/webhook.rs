//! Bodies that do not come, are not answered in time, or tell only a part.

use std::time::Duration;

use serde_json::Value;

use crate::{
    exporter::Edit,
    nodes::record,
    pipeline::{ALERT, FAULT, Pipeline, Plan},
    process::eventually,
    watcher::Watcher,
};

#[tokio::test]
async fn a_service_that_was_down_while_a_fault_came_and_while_it_went_is_right_soon_after_its_start() {
    let Some(mut pipe) = Pipeline::start(Plan::pulling()).await else { return };
    pipe.service.stop().await;
    pipe.edit(FAULT);
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), Some("active")).await;
    pipe.service.restart().await;
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    pipe.service.kill9();
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), None).await;
    pipe.service.restart().await;
    pipe.wait_free(pipe.node()).await;
}

#[tokio::test]
async fn a_fault_whose_webhook_was_answered_too_late_is_given_back_though_no_resolve_comes() {
    let Some(pipe) = Pipeline::start(Plan::pulling()).await else { return };
    pipe.relay.answer_late(Duration::from_secs(12));
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    eventually("Alertmanager has given up and tried again", Duration::from_secs(20), async || {
        let told = pipe.relay.passed().iter().filter(|p| p.tells(ALERT, pipe.node(), "firing")).count();
        if told >= 2 { Ok(()) } else { Err(pipe.tail()) }
    })
    .await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_free(pipe.node()).await;
    assert!(!pipe.relay.passed().iter().any(|p| p.tells(ALERT, pipe.node(), "resolved")), "without a resolve");
}

#[tokio::test]
async fn max_alerts_set_by_mistake_hides_no_gpu() {
    let Some(pipe) = Pipeline::start(Plan::pulling().route("max_alerts: 0", "max_alerts: 1")).await else { return };
    for gpu in 0..2 {
        pipe.edit(Edit::RowRemapPending { gpu });
    }
    pipe.wait_isolated(pipe.node(), 2).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    // The first in the order of labels is over: the body says "resolved" and nothing of the other.
    pipe.edit(Edit::RowsRemapped { gpu: 0 });
    eventually("the first claim is cleared", Duration::from_secs(90), async || {
        let record = record(&pipe.nodes.get(pipe.node()).await).expect("a record");
        let state =
            |state: &str| record["claims"].as_array().into_iter().flatten().filter(|c: &&Value| c["state"] == state).count();
        if (state("firing"), state("cleared")) == (1, 1) { Ok(()) } else { Err(format!("{record}\n{}", pipe.tail())) }
    })
    .await;
    pipe.pulls_for(pipe.hold_down() + Duration::from_secs(2)).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_free(pipe.node()).await;
}
