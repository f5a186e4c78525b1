//! Programs that stop and start again while a fault lasts, on push alone.

use std::time::Duration;

use serde_json::json;

use crate::{
    exporter::Edit,
    pipeline::{ALERT, FAULT, Pipeline, Plan},
    process::eventually,
    service::Http,
    watcher::Watcher,
};

#[tokio::test]
async fn an_exporter_that_breaks_or_goes_down_freezes_its_node_and_frees_nothing() {
    let Some(mut pipe) = Pipeline::start(Plan::default()).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    // Faults are edited over HTTP as well.
    let http = Http::new();
    let edit = async |body| http.send("POST", &format!("http://{}/edit", pipe.exporters[0].address()), Some(&body)).await;
    assert_eq!(edit(json!({"broken": true})).await, Ok((200, String::new())));
    pipe.wait_passed("GpuExporterDown", pipe.node(), "firing").await;
    pipe.wait_passed(ALERT, pipe.node(), "resolved").await;
    // One outage, not two: up and down more than three times within half an hour counts as a crash loop, which freezes as long.
    assert_eq!(edit(json!({"broken": false})).await, Ok((200, String::new())));
    pipe.exporters[0].down();
    pipe.wait_settled().await;
    pipe.exporters[0].up().await;
    pipe.prometheuses[0].wait_firing(ALERT, pipe.node(), 1).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_free(pipe.node()).await;
}

#[tokio::test]
async fn restarts_of_alertmanager_and_prometheus_with_their_data_free_nothing_while_the_fault_lasts() {
    let Some(mut pipe) = Pipeline::start(Plan::default()).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    pipe.alertmanagers[0].stop().await;
    pipe.alertmanagers[0].restart().await;
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), Some("active")).await;
    pipe.prometheuses[0].kill9();
    pipe.prometheuses[0].launch();
    pipe.prometheuses[0].wait_ready(1).await;
    wait_claim_fires(&pipe).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_free(pipe.node()).await;
}

#[tokio::test]
async fn a_prometheus_that_was_away_for_longer_than_its_lease_and_comes_back_empty_frees_nothing() {
    // Away until its lease of 4 s has run out, and 6 s more until it tells anything: in life 5 minutes of 10.
    let Some(mut pipe) = Pipeline::start(Plan { after: Duration::from_secs(12), ..Plan::default() }).await else { return };
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    let watcher = Watcher::of(&pipe.nodes, pipe.node()).await;
    pipe.prometheuses[0].kill9();
    pipe.prometheuses[0].forget();
    pipe.wait_passed(ALERT, pipe.node(), "resolved").await;
    pipe.prometheuses[0].launch();
    pipe.prometheuses[0].wait_ready(1).await;
    pipe.alertmanagers[0].wait_alert(ALERT, pipe.node(), Some("active")).await;
    wait_claim_fires(&pipe).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_free(pipe.node()).await;
}

async fn wait_claim_fires(pipe: &Pipeline) {
    eventually("the claim fires", Duration::from_secs(20), async || match pipe.service.node(pipe.node()).await {
        node if node["claims"][0]["state"] == "firing" => Ok(()),
        node => Err(format!("{node}\n{}", pipe.tail())),
    })
    .await;
}
