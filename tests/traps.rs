//! The facts of section 3 of the design, each turned into a test that fails if the service falls for it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "support/harness.rs"]
mod harness;
#[path = "traps/labels.rs"]
mod labels;
#[path = "traps/writers.rs"]
mod writers;

use harness::{CONFIG, Service, body, fixture, lost, outcomes, sent};
use serde_json::Value;

const OVER: &str = "2026-11-29T20:17:00Z";

fn manual() -> String {
    CONFIG.replace("[resolved]", "[manual]")
}

/// The members of the only claim on gpu-node-07 that fire, and those that are over.
fn members(service: &Service) -> (usize, usize) {
    let record = service.record("gpu-node-07").unwrap();
    let claims = record["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 1, "{record}");
    let members = claims[0]["members"].as_array().unwrap();
    let over = members.iter().filter(|m| m.get("endsAt").is_some()).count();
    (members.len() - over, over)
}

#[tokio::test]
async fn trap_02_a_false_resolve_because_the_exporter_is_down_releases_nothing_where_a_person_is_required() {
    let service = Service::with(&manual()).await;
    assert_eq!(service.recorded("payloads/11-prometheus-e2e-firing.json").await, ["recorded"]);
    assert_eq!(service.recorded("payloads/12-prometheus-false-resolved-exporter-down.json").await, ["resolved"]);
    service.pass("30d").await;
    assert!(service.tainted("gpu-node-07"));
    let view = service.view("gpu-node-07").await;
    assert_eq!(view["state"], "clearing");
    assert!(view["waiting_for"].as_str().unwrap().starts_with("a person"), "{view}");
}

#[tokio::test]
async fn trap_02_a_false_resolve_after_a_restart_of_prometheus_is_outlived_by_the_hold_down() {
    let service = Service::start().await;
    let mut fires: Value = serde_json::from_slice(&fixture("payloads/14b-firing-again-after-restart.json")).unwrap();
    fires["alerts"][0]["startsAt"] = "2026-11-29T19:33:16.413Z".into();
    assert_eq!(outcomes(&service.post(fires.to_string()).await), ["recorded"]);
    assert_eq!(service.recorded("payloads/14-false-resolved-prometheus-restart.json").await, ["resolved"]);
    service.pass("75s").await;
    assert_eq!(service.recorded("payloads/14b-firing-again-after-restart.json").await, ["recorded"]);
    service.pass("24h").await;
    assert!(service.tainted("gpu-node-07"));
    assert_eq!(service.actions("gpu-node-07"), ["isolate"], "it never went away in between");
}

#[tokio::test]
async fn trap_02_an_alert_that_asks_for_more_than_its_policy_gets_it() {
    for recovery in ["reboot", "replace", "manual", "a-word-of-tomorrow"] {
        let service = Service::start().await;
        let alert = lost("gpu-node-07", 0).label("recovery", recovery);
        assert_eq!(service.outcomes(std::slice::from_ref(&alert)).await, ["recorded"]);
        assert_eq!(service.outcomes(&[alert.over(OVER)]).await, ["resolved"]);
        service.pass("30d").await;
        assert!(service.tainted("gpu-node-07"), "{recovery}");
    }
}

#[tokio::test]
async fn trap_03_one_body_lists_the_same_gpu_as_firing_and_resolved() {
    let service = Service::start().await;
    // Our own eviction took the pod away, and its labels with it: the alert is a new one, of the same fault.
    let recorded = "payloads/13-drain-same-gpu-firing-and-resolved.json";
    let with_pod: Value = serde_json::from_slice(&fixture(recorded)).unwrap();
    let mut before = with_pod.clone();
    before["alerts"] = Value::Array(vec![with_pod["alerts"][1].clone()]);
    before["alerts"][0]["status"] = "firing".into();
    assert_eq!(outcomes(&service.post(before.to_string()).await), ["recorded"]);
    assert_eq!(service.recorded(recorded).await, ["recorded", "resolved", "recorded", "recorded"]);
    let record = service.record("gpu-node-07").unwrap();
    let claims = record["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 3, "one per GPU: {record}");
    assert!(claims.iter().all(|c| c["state"] == "firing"), "{record}");
    service.pass("24h").await;
    assert!(service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn trap_03_within_one_body_firing_wins_whatever_comes_first() {
    for firing_first in [true, false] {
        let service = Service::start().await;
        let fires = lost("gpu-node-07", 0);
        let mut both = [fires.clone(), fires.over(OVER)];
        if !firing_first {
            both.reverse();
        }
        service.outcomes(&both).await;
        assert_eq!(members(&service), (1, 0), "firing first: {firing_first}");
        assert_eq!(service.state("gpu-node-07").await, "isolated");
    }
}

#[tokio::test]
async fn trap_03_the_same_pair_of_fingerprint_and_start_fires_again_after_its_resolve() {
    let service = Service::start().await;
    let alert = lost("gpu-node-07", 0);
    assert_eq!(service.outcomes(std::slice::from_ref(&alert)).await, ["recorded"]);
    assert_eq!(service.outcomes(&[alert.over(OVER)]).await, ["resolved"]);
    service.pass("5m").await;
    assert_eq!(service.outcomes(std::slice::from_ref(&alert)).await, ["recorded"], "it is no duplicate");
    service.pass("1h").await;
    assert!(service.tainted("gpu-node-07"));
    // And once more, long after the release.
    assert_eq!(service.outcomes(&[alert.over(OVER)]).await, ["resolved"]);
    service.pass("10m").await;
    assert!(!service.tainted("gpu-node-07"));
    assert_eq!(service.outcomes(&[alert]).await, ["recorded"]);
    assert!(service.tainted("gpu-node-07"));
    assert_eq!(service.actions("gpu-node-07"), ["isolate", "release", "isolate"]);
}

#[tokio::test]
async fn trap_03_a_resolve_that_is_repeated_for_a_quarter_of_an_hour_does_not_prolong_the_hold_down() {
    let service = Service::start().await;
    let alert = lost("gpu-node-07", 0);
    service.outcomes(std::slice::from_ref(&alert)).await;
    assert_eq!(service.outcomes(&[alert.over(OVER)]).await, ["resolved"]);
    for _ in 0..9 {
        service.pass("1m").await;
        assert_eq!(service.outcomes(&[alert.over(OVER)]).await, ["unchanged"]);
    }
    assert!(service.tainted("gpu-node-07"));
    service.pass("1m").await;
    assert!(!service.tainted("gpu-node-07"), "10 minutes after the first");
    let written = service.cluster.written();
    for _ in 0..5 {
        service.pass("1m").await;
        assert_eq!(service.outcomes(&[alert.over(OVER)]).await, ["unchanged"]);
    }
    assert_eq!(service.cluster.written(), written);
}

#[tokio::test]
async fn trap_03_a_resolve_of_an_earlier_firing_does_not_end_the_later_one() {
    let service = Service::start().await;
    let later = lost("gpu-node-07", 0).since("2026-11-29T20:15:30Z");
    let earlier = lost("gpu-node-07", 0).since("2026-11-29T20:10:00Z");
    assert_eq!(service.outcomes(&[later]).await, ["recorded"]);
    assert_eq!(service.outcomes(&[earlier.over("2026-11-29T20:12:00Z")]).await, ["unchanged"]);
    assert_eq!(members(&service), (1, 0));
    service.pass("24h").await;
    assert!(service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn trap_03_a_stale_firing_of_a_peer_after_the_resolve_only_keeps_the_node_until_it_is_resolved_again() {
    let service = Service::start().await;
    let alert = lost("gpu-node-07", 0);
    service.outcomes(std::slice::from_ref(&alert)).await;
    service.outcomes(&[alert.over(OVER)]).await;
    // Nobody can tell it from a true one, and a node kept too long is the lesser harm.
    assert_eq!(service.outcomes(std::slice::from_ref(&alert)).await, ["recorded"]);
    assert_eq!(service.state("gpu-node-07").await, "isolated");
    assert_eq!(service.outcomes(&[alert.over(OVER)]).await, ["resolved"], "the peer's own resolve, of the same start");
    service.pass("10m").await;
    assert!(!service.tainted("gpu-node-07"));
    assert_eq!(service.view("gpu-node-07").await["history"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn trap_03_a_stale_firing_with_an_older_start_does_not_set_the_member_back() {
    let service = Service::start().await;
    let newer = lost("gpu-node-07", 0).since("2026-11-29T20:15:30Z");
    let older = lost("gpu-node-07", 0).since("2026-11-29T20:10:00Z");
    service.outcomes(&[newer]).await;
    assert_eq!(service.outcomes(std::slice::from_ref(&older)).await, ["unchanged"]);
    assert_eq!(service.outcomes(&[older.over("2026-11-29T20:12:00Z")]).await, ["unchanged"]);
    assert_eq!(members(&service), (1, 0));
}

#[tokio::test]
async fn trap_03_duplicates_of_a_peer_write_nothing_and_repeat_no_action() {
    let service = Service::start().await;
    service.recorded("payloads/02-firing-grouped.json").await;
    let written = service.cluster.written();
    assert_eq!(service.recorded("payloads/02-firing-grouped.json").await, ["unchanged"; 4]);
    assert_eq!(service.recorded("payloads/06b-repeat-after-partial-resolve.json").await, ["unchanged"; 3]);
    assert_eq!(service.cluster.written(), written);
    assert_eq!(service.actions("gpu-node-07"), ["isolate"]);
}

#[tokio::test]
async fn trap_03_several_alerts_of_one_name_and_gpu_hold_the_node_until_the_last_is_over() {
    let service = Service::start().await;
    assert_eq!(service.recorded("traps/per-link.json").await, ["recorded"; 4]);
    assert_eq!(members(&service), (4, 0));
    let mut one: Value = serde_json::from_slice(&fixture("traps/per-link.json")).unwrap();
    let all = one["alerts"].as_array().unwrap().clone();
    for (i, alert) in all.iter().enumerate() {
        assert!(service.tainted("gpu-node-07"));
        let mut over = alert.clone();
        (over["status"], over["endsAt"]) = ("resolved".into(), OVER.into());
        one["alerts"] = Value::Array(vec![over]);
        assert_eq!(outcomes(&service.post(one.to_string()).await), ["resolved"]);
        // Writes of status alone are damped.
        service.pass("5s").await;
        assert_eq!(members(&service), (3 - i, i + 1));
        service.pass("1h").await;
    }
    assert!(!service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn trap_03_mig_rows_are_members_of_one_claim_on_the_parent() {
    let service = Service::start().await;
    assert_eq!(service.recorded("traps/mig-rows.json").await, ["recorded", "recorded"]);
    assert_eq!(members(&service), (2, 0));
}

#[tokio::test]
async fn trap_04_only_what_is_no_webhook_body_at_all_gets_a_4xx_and_never_a_429() {
    let service = Service::start().await;
    for dir in ["payloads", "traps"] {
        for file in std::fs::read_dir(format!("{}/fixtures/{dir}", env!("CARGO_MANIFEST_DIR"))).unwrap() {
            let file = file.unwrap().file_name().into_string().unwrap();
            if !file.ends_with("json") || file.starts_with("15-") {
                continue;
            }
            let (status, answer) = service.post(fixture(&format!("{dir}/{file}"))).await;
            assert_eq!(status, 200, "{file}: {answer}");
        }
    }
    for odd in [sent(&[("alertname", "X")]), sent(&[]), lost("../../x", 0), lost(&"a".repeat(5000), 0)] {
        assert_eq!(service.post(body(&[odd])).await.0, 200);
    }
}

#[tokio::test]
async fn trap_05_a_cut_off_body_proves_nothing_about_what_it_does_not_list() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-12", 0)]).await;
    assert_eq!(service.recorded("payloads/05-truncated-firing.json").await, ["recorded"; 2]);
    let hidden = "payloads/05b-truncated-status-resolved-while-hidden-alerts-fire.json";
    let (status, answer) = service.post(fixture(hidden)).await;
    assert_eq!((status, &answer["truncatedAlerts"]), (200, &2.into()));
    service.pass("24h").await;
    assert!(service.tainted("gpu-node-12"), "the status of the body said resolved");
    assert!(!service.tainted("gpu-node-07"), "what was listed as resolved is over");
}

#[tokio::test]
async fn trap_05_the_status_of_a_body_is_never_looked_at() {
    let service = Service::start().await;
    let mut wrong: Value = serde_json::from_slice(&body(&[lost("gpu-node-07", 0)])).unwrap();
    wrong["status"] = "resolved".into();
    assert_eq!(outcomes(&service.post(wrong.to_string()).await), ["recorded"]);
    // A sibling that is silenced is not listed, and goes on firing.
    service.recorded("payloads/02-firing-grouped.json").await;
    service.recorded("payloads/09-all-resolved-while-silenced-sibling-fires.json").await;
    service.pass("24h").await;
    assert!(service.tainted("gpu-node-07"));
}
