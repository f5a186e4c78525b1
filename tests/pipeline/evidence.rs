//! Evidence that does not come, is old, or is made up: nothing is given back on it, and what is missing is named.

use serde_json::{Value, json};

use crate::{
    exporter::Edit,
    pipeline::{ALERT, FAULT, Pipeline, Plan},
    service::now,
    watcher::Watcher,
};

/// Break the first node's GPU, and watch its node from its isolation on.
async fn broken(pipe: &Pipeline) -> Watcher {
    pipe.edit(FAULT);
    pipe.wait_isolated(pipe.node(), 1).await;
    Watcher::of(&pipe.nodes, pipe.node()).await
}

#[tokio::test]
async fn an_exporter_killed_during_a_fault_keeps_its_node_until_it_is_back_and_shows_the_repair() {
    let Some(mut pipe) = Pipeline::start(Plan::proving()).await else { return };
    let watcher = broken(&pipe).await;
    pipe.exporters[0].down();
    pipe.stays(pipe.node(), "suspect", &[ALERT, "the exporter is not scraped"]).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    let good = now();
    pipe.exporters[0].up().await;
    pipe.wait_proven(pipe.node(), good).await;
}

#[tokio::test]
async fn a_prometheus_that_is_down_for_longer_than_the_hold_down_frees_nothing() {
    let Some(mut pipe) = Pipeline::start(Plan::proving()).await else { return };
    let watcher = broken(&pipe).await;
    pipe.prometheuses[0].kill9();
    pipe.prometheuses[0].forget();
    let address = pipe.prometheuses[0].url();
    pipe.stays(pipe.node(), "suspect", &[ALERT, &address]).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    let good = now();
    pipe.prometheuses[0].launch();
    pipe.wait_proven(pipe.node(), good).await;
}

#[tokio::test]
async fn what_a_prometheus_has_kept_over_its_restart_frees_nothing() {
    let Some(mut pipe) = Pipeline::start(Plan::proving()).await else { return };
    let watcher = broken(&pipe).await;
    pipe.prometheuses[0].kill9();
    let address = pipe.prometheuses[0].url();
    pipe.wait_waiting(pipe.node(), "suspect", &[ALERT, &address]).await;
    // There is nothing but samples of before, whose end no failed scrape has marked: the new process does not know of them.
    pipe.exporters[0].down();
    pipe.prometheuses[0].launch();
    pipe.stays(pipe.node(), "isolated", &[ALERT, "to end"]).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    let good = now();
    pipe.exporters[0].up().await;
    pipe.wait_proven(pipe.node(), good).await;
}

#[tokio::test]
async fn the_end_of_an_alert_whose_rule_was_deleted_frees_nothing() {
    let Some(pipe) = Pipeline::start(Plan::proving()).await else { return };
    let watcher = broken(&pipe).await;
    pipe.prometheuses[0].delete_alert("memory.yaml", ALERT).await;
    pipe.stays(pipe.node(), "clearing", &[ALERT, "its recovery_query returns nothing"]).await;
    watcher.never_free();
    pipe.edit(Edit::Clear);
    pipe.wait_proven(pipe.node(), now()).await;
}

#[tokio::test]
async fn a_rule_that_fails_proves_nothing_by_what_it_has_recorded() {
    let Some(pipe) = Pipeline::start(Plan::proving()).await else { return };
    let watcher = broken(&pipe).await;
    pipe.edit(Edit::Clear);
    let good = now();
    pipe.prometheuses[0].wait_firing(ALERT, pipe.node(), 0).await;
    // What it recorded last, that no row waits, is shown for 5 minutes.
    let (works, fails) = (
        "{__name__=~\"DCGM_FI_DEV_ROW_REMAP_PENDING\"} < 1e9",
        "(DCGM_FI_DEV_ROW_REMAP_PENDING * on (job) DCGM_FI_DEV_ROW_REMAP_PENDING) < 1e9",
    );
    pipe.prometheuses[0].edit_rules("normalise.yaml", |text| text.replace(works, fails)).await;
    pipe.stays(pipe.node(), "suspect", &[ALERT, "the rule gpu:row_remap_pending:max fails"]).await;
    watcher.never_free();
    pipe.prometheuses[0].edit_rules("normalise.yaml", |text| text.replace(fails, works)).await;
    pipe.wait_proven(pipe.node(), good).await;
}

/// Post what was last told of a node's fault again, with another recovery query.
async fn forge(pipe: &Pipeline, name: &str, query: &str) {
    let told = pipe.relay.passed().into_iter().rfind(|p| p.tells(ALERT, name, "firing")).expect("it was told");
    let mut body = told.body;
    for alert in body["alerts"].as_array_mut().expect("alerts") {
        assert!(alert["annotations"]["recovery_query"].as_str().is_some_and(|q| q.contains("gpu:row_remap_pending:max")));
        alert["annotations"]["recovery_query"] = json!(query);
    }
    pipe.service.deliver(&body).await;
}

#[tokio::test]
async fn a_forged_recovery_query_frees_nothing_and_a_person_is_asked_where_it_proves_nothing() {
    let Some(pipe) = Pipeline::start(Plan { nodes: 2, ..Plan::proving() }).await else { return };
    let [always, up] = [0, 1].map(|i| pipe.names[i].as_str());
    let mut watchers = Vec::new();
    for (exporter, name) in pipe.exporters.iter().zip(&pipe.names) {
        exporter.edit(FAULT);
        pipe.wait_isolated(name, 1).await;
        pipe.wait_passed(ALERT, name, "firing").await;
        watchers.push(Watcher::of(&pipe.nodes, name).await);
    }
    forge(&pipe, always, "vector(1)").await;
    forge(&pipe, up, "up{job=\"dcgm-exporter\"} == 1").await;
    // The alert ends, and the fault does not.
    pipe.prometheuses[0].delete_alert("memory.yaml", ALERT).await;
    let person = ["a person", ALERT, "cannot be proven gone", "selects no series"];
    pipe.wait_waiting(always, "clearing", &person).await;
    pipe.stays(up, "clearing", &[ALERT, "its recovery_query returns nothing"]).await;
    pipe.wait_waiting(always, "clearing", &person).await;
    for watcher in watchers {
        watcher.never_free();
    }
    // With the fault gone, both queries of one node say so. For the other no query can.
    pipe.exporters[0].edit(Edit::Clear);
    pipe.exporters[1].edit(Edit::Clear);
    pipe.wait_proven(up, now()).await;
    pipe.wait_waiting(always, "clearing", &person).await;
    let claims = pipe.service.node(always).await["claims"].clone();
    let queries: Vec<&Value> = claims[0]["queries"].as_array().into_iter().flatten().collect();
    assert_eq!(queries.len(), 1, "the real one stands on record: {claims}");
}
