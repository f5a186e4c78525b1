//! Another configuration while nodes are isolated under the old one.

use gpu_quarantine::engine::ReloadRefused;

use crate::harness::{CONFIG, Service, TAINT, lost};

const OVER: &str = "2026-11-29T20:17:00Z";
const OTHER: &str = "example.com/sick-gpu";

fn with_isolation(isolation: &str) -> String {
    format!("{CONFIG}isolation: {isolation}\n")
}

#[tokio::test]
async fn a_new_taint_key_is_refused_unless_the_old_one_is_named_as_a_former_one() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    let refused = service.reload(&with_isolation(&format!("{{taint: {{key: {OTHER}}}}}"))).await.unwrap_err();
    assert_eq!(refused, ReloadRefused::KeyForgotten(TAINT.to_owned()));
    assert!(refused.to_string().contains("former_keys"));
    assert_eq!(service.engine.config().isolation.taint_key, TAINT, "the old configuration stays in force");

    let good = with_isolation(&format!("{{taint: {{key: {OTHER}}}, former_keys: [{TAINT}]}}"));
    service.reload(&good).await.unwrap();
    assert_eq!(service.taints("gpu-node-07"), [TAINT], "what stands is left as it is");
    assert_eq!(service.outcomes(&[lost("gpu-node-20", 0)]).await, ["recorded"]);
    assert_eq!(service.taints("gpu-node-20"), [OTHER]);
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER), lost("gpu-node-20", 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(service.taints("gpu-node-07").is_empty(), "the recorded taint is what is removed");
    assert!(service.taints("gpu-node-20").is_empty());
}

#[tokio::test]
async fn what_is_set_at_start_only_cannot_be_reloaded() {
    let service = Service::start().await;
    let instance = service.reload(&format!("instance: other\n{CONFIG}")).await.unwrap_err();
    assert_eq!(instance, ReloadRefused::StartOnly("instance"));
    let domain = service.reload(&format!("domain: example.com\n{CONFIG}")).await.unwrap_err();
    assert_eq!(domain, ReloadRefused::StartOnly("domain"));
}

#[tokio::test]
async fn a_claim_survives_the_removal_of_its_policy_until_it_clears() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    let without = CONFIG.lines().filter(|l| !l.contains("gpu-lost")).collect::<Vec<_>>().join("\n");
    service.reload(&without).await.unwrap();
    service.pass("1h").await;
    assert!(service.tainted("gpu-node-07"), "an edit of the configuration proves nothing about a GPU");
    assert_eq!(service.view("gpu-node-07").await["claims"][0]["policy"], "gpu-lost");
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 1)]).await, ["unmatched"]);
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await, ["resolved"]);
    service.pass("10m").await;
    assert!(!service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn a_claim_survives_that_its_policy_only_observes_from_now_on() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    service.reload(&CONFIG.replace("action: isolate", "action: observe")).await.unwrap();
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["observed"]);
    assert!(service.tainted("gpu-node-07"));
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await, ["resolved"]);
    service.pass("10m").await;
    assert!(!service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn a_changed_hold_down_holds_for_nodes_that_are_clearing_already() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0), lost("gpu-node-12", 0)]).await;
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await;
    service.pass("2m").await;
    service.outcomes(&[lost("gpu-node-12", 0).over(OVER)]).await;
    service.pass("1m").await;
    service.reload(&CONFIG.replace("after: 10m", "after: 2m")).await.unwrap();
    assert!(!service.tainted("gpu-node-07"), "its time is up by the new rule");
    assert!(service.tainted("gpu-node-12"));
    service.pass("1m").await;
    assert!(!service.tainted("gpu-node-12"));

    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    service.outcomes(&[lost("gpu-node-07", 0).over("2026-11-29T20:30:00Z")]).await;
    service.reload(&CONFIG.replace("after: 10m", "after: 1h")).await.unwrap();
    service.pass("59m").await;
    assert!(service.tainted("gpu-node-07"));
    service.pass("1m").await;
    assert!(!service.tainted("gpu-node-07"));
}

#[tokio::test]
async fn room_that_a_reload_makes_is_taken_at_once() {
    let one = format!("{CONFIG}guard: {{max_isolated: {{count: 1, percent: 0}}}}\n");
    let service = Service::with(&one).await;
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    assert_eq!(service.outcomes(&[lost("gpu-node-12", 0)]).await, ["pending"]);
    service.pass("1s").await;
    assert_eq!(service.outcomes(&[lost("gpu-node-03", 0)]).await, ["pending"]);
    service.reload(&one.replace("count: 1", "count: 2")).await.unwrap();
    assert!(service.tainted("gpu-node-12"), "it has waited longer");
    assert!(!service.tainted("gpu-node-03"));
    // A shorter hold-down gives a node back, and its room goes to the next.
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await;
    service.pass("5m").await;
    service.reload(&one.replace("count: 1", "count: 2").replace("after: 10m", "after: 1m")).await.unwrap();
    assert!(!service.tainted("gpu-node-07") && service.tainted("gpu-node-03"));
}

#[tokio::test]
async fn room_that_a_reload_takes_away_isolates_nobody_and_releases_nobody() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0), lost("gpu-node-12", 0)]).await;
    service.reload(&format!("{CONFIG}guard: {{max_isolated: {{count: 0, percent: 0}}}}\n")).await.unwrap();
    assert!(service.tainted("gpu-node-07") && service.tainted("gpu-node-12"));
    assert_eq!(service.outcomes(&[lost("gpu-node-03", 0)]).await, ["pending"]);
}

#[tokio::test]
async fn manual_required_from_now_on_holds_nodes_that_are_clearing_already() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await;
    service.reload(&CONFIG.replace("[resolved]", "[manual]")).await.unwrap();
    service.pass("48h").await;
    assert!(service.tainted("gpu-node-07"));
}
