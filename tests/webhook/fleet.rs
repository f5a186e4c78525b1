//! The guard, and what survives a restart (P6, P9).

use crate::harness::{CONFIG, Service, body, lost, outcomes, sent};

const FIVE: [&str; 5] = ["gpu-node-20", "gpu-node-03", "gpu-node-31", "gpu-node-07", "gpu-node-12"];
const OVER: &str = "2026-11-29T20:17:00Z";

/// Five nodes fail, one per minute; the guard lets three in.
async fn five_fail(service: &Service) {
    for (i, node) in FIVE.iter().enumerate() {
        let want = if i < 3 { "recorded" } else { "pending" };
        assert_eq!(service.outcomes(&[lost(node, 0)]).await, [want], "{node}");
        service.pass("10s").await;
    }
}

fn isolated(service: &Service) -> Vec<&'static str> {
    FIVE.into_iter().filter(|node| service.tainted(node)).collect()
}

#[tokio::test]
async fn the_guard_lets_three_of_five_in_and_the_others_wait_in_order() {
    let service = Service::start().await;
    five_fail(&service).await;
    assert_eq!(isolated(&service), FIVE[..3]);
    for (node, number) in [(FIVE[3], 1), (FIVE[4], 2)] {
        let view = service.view(node).await;
        assert_eq!(view["state"], "pending");
        let waits = view["waiting_for"].as_str().unwrap();
        assert!(waits.contains("guard.max_isolated: 3 of 3") && waits.contains(&format!("number {number}")), "{waits}");
        assert_eq!(service.record(node).unwrap()["claims"][0]["state"], "firing", "it is on record");
        assert_eq!(service.actions(node), ["refuse"]);
    }
    assert_eq!(service.outcomes(&[lost(FIVE[4], 0)]).await, ["pending"], "a repeat does not get it in");
    assert_eq!(service.actions(FIVE[4]), ["refuse"], "nor is it told again");
}

#[tokio::test]
async fn five_nodes_of_one_body_are_let_in_up_to_the_limit_and_never_above_it() {
    let service = Service::start().await;
    let got = service.outcomes(&FIVE.map(|node| lost(node, 0))).await;
    assert_eq!(got.iter().filter(|o| *o == "recorded").count(), 3, "{got:?}");
    assert_eq!(got.iter().filter(|o| *o == "pending").count(), 2, "{got:?}");
    assert_eq!(isolated(&service).len(), 3);
}

#[tokio::test]
async fn a_release_lets_the_next_one_in_and_is_itself_never_limited() {
    let service = Service::start().await;
    five_fail(&service).await;
    assert_eq!(service.outcomes(&[lost(FIVE[1], 0).over(OVER)]).await, ["resolved"]);
    service.pass("9m59s").await;
    assert_eq!(isolated(&service), FIVE[..3], "the hold-down still counts");
    service.pass("1s").await;
    assert_eq!(isolated(&service), [FIVE[0], FIVE[2], FIVE[3]]);
    assert_eq!(service.state(FIVE[4]).await, "pending");
    assert_eq!(service.actions(FIVE[3]), ["refuse", "isolate"]);

    let resolves: Vec<_> = FIVE[..4].iter().map(|node| lost(node, 0).over(OVER)).collect();
    service.outcomes(&resolves).await;
    service.pass("10m").await;
    assert_eq!(isolated(&service), [FIVE[4]], "three released at once, the last one let in");
}

#[tokio::test]
async fn who_waits_is_checked_again_before_it_is_let_in() {
    let service = Service::start().await;
    five_fail(&service).await;
    assert_eq!(service.outcomes(&[lost(FIVE[3], 0).over(OVER)]).await, ["resolved"]);
    assert_eq!(service.actions(FIVE[3]), ["refuse", "none"]);
    assert_eq!(service.state(FIVE[3]).await, "free");
    service.outcomes(&[lost(FIVE[0], 0).over(OVER)]).await;
    service.pass("10m").await;
    assert_eq!(isolated(&service), [FIVE[1], FIVE[2], FIVE[4]]);
}

#[tokio::test]
async fn who_waits_waits_on_in_order_after_a_restart() {
    let service = Service::start().await;
    five_fail(&service).await;
    let service = service.restart(CONFIG).await;
    assert_eq!(isolated(&service), FIVE[..3]);
    assert!(service.view(FIVE[3]).await["waiting_for"].as_str().unwrap().contains("number 1"));
    assert!(service.view(FIVE[4]).await["waiting_for"].as_str().unwrap().contains("number 2"));
    assert_eq!(service.outcomes(&[lost("gpu-node-30", 0)]).await, ["pending"], "a new one goes to the end");
    service.outcomes(&[lost(FIVE[0], 0).over(OVER)]).await;
    service.pass("10m").await;
    assert_eq!(isolated(&service), FIVE[1..4]);
}

#[tokio::test]
async fn a_restart_in_the_middle_of_a_hold_down_neither_shortens_nor_prolongs_it() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await, ["resolved"]);
    service.pass("6m").await;
    let service = service.restart(CONFIG).await;
    assert_eq!(service.state("gpu-node-07").await, "clearing");
    service.pass("3m59s").await;
    assert!(service.tainted("gpu-node-07"));
    service.pass("1s").await;
    assert!(!service.tainted("gpu-node-07"));
    assert_eq!(service.view("gpu-node-07").await["history"][0]["by"], "resolved");
}

#[tokio::test]
async fn a_hold_down_that_ended_while_nobody_ran_is_carried_out_at_the_start() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await;
    service.clock.advance_to(service.engine.next_due().unwrap());
    let service = service.restart(CONFIG).await;
    assert!(!service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn what_fires_after_a_restart_is_known_from_the_record() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    let service = service.restart(CONFIG).await;
    let written = service.cluster.written();
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["unchanged"]);
    assert_eq!(service.cluster.written(), written);
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await, ["resolved"]);
}

#[tokio::test]
async fn a_timer_whose_write_fails_is_tried_again() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await;
    service.cluster.fail_next(&[crate::harness::Fault::Unavailable; 2]);
    service.pass("10m").await;
    assert!(service.tainted("gpu-node-07"));
    service.pass("15s").await;
    assert!(!service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn a_freeze_blocks_the_release_while_it_fires_and_never_isolates() {
    let service = Service::start().await;
    let blind = sent(&[("alertname", "GpuExporterDown"), ("node", "gpu-node-07"), ("remediation", "freeze")]);
    assert_eq!(service.recorded("traps/freeze.json").await, ["frozen"]);
    assert!(!service.tainted("gpu-node-07"));
    service.outcomes(&[lost("gpu-node-07", 0), blind.clone()]).await;
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await;
    service.pass("1h").await;
    assert!(service.tainted("gpu-node-07"), "monitoring is blind");
    let waits = service.view("gpu-node-07").await["waiting_for"].to_string();
    assert!(waits.contains("GpuExporterDown"), "{waits}");
    let recorded: serde_json::Value = serde_json::from_slice(&crate::harness::fixture("traps/freeze.json")).unwrap();
    let mut over = recorded;
    over["alerts"][0]["status"] = "resolved".into();
    over["alerts"][0]["endsAt"] = "2026-11-29T21:00:00Z".into();
    assert_eq!(outcomes(&service.post(over.to_string()).await), ["resolved"]);
    assert_eq!(outcomes(&service.post(body(&[blind.over("2026-11-29T21:00:00Z")])).await), ["resolved"]);
    service.pass("10m").await;
    assert!(!service.tainted("gpu-node-07"));
}
