//! What a pull heals, and what it must not undo.

use gpu_quarantine::{
    alert::{Pull, Pulled, parse_body},
    engine::Clock as _,
};
use jiff::SignedDuration;

use crate::harness::{CONFIG, Fault, Sent, Service, body, lost, outcomes};

const NODE: &str = "gpu-node-07";
const OVER: &str = "2026-11-29T20:17:00Z";
const VETO: &str = "silenced by alice until 2026-11-29T22:00:00Z: \"new riser\"";

/// A complete pull that begins a moment after what was heard so far, and lists these, each perhaps muted.
fn pull(service: &Service, alerts: &[(Sent, Option<&str>)]) -> Pull {
    service.clock.advance_to(service.clock.now() + SignedDuration::from_millis(1));
    let sent: Vec<Sent> = alerts.iter().map(|(sent, _)| sent.clone()).collect();
    let read = parse_body(&body(&sent)).unwrap().alerts.into_iter().map(Result::unwrap);
    let alerts = read.zip(alerts).map(|(alert, (_, muted))| Pulled { alert, muted: muted.map(str::to_owned) });
    Pull { begun: service.clock.now(), alerts: alerts.collect(), incomplete: None, changes_at: None }
}

fn partial(mut pull: Pull) -> Pull {
    pull.incomplete = Some("one peer did not answer".to_owned());
    pull
}

async fn waiting_for(service: &Service) -> String {
    service.view(NODE).await["waiting_for"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_fault_whose_webhook_was_lost_isolates_by_the_pull() {
    let service = Service::start().await;
    service.engine.pull(&pull(&service, &[(lost(NODE, 0), None)])).await;
    assert_eq!(service.state(NODE).await, "isolated");
    let patches = service.cluster.patches();
    assert_eq!(service.outcomes(&[lost(NODE, 0)]).await, ["unchanged"], "the webhook, when it comes, is no news");
    service.engine.pull(&pull(&service, &[(lost(NODE, 0), None)])).await;
    assert_eq!(service.cluster.patches(), patches, "a pull without news writes nothing");
}

#[tokio::test]
async fn a_resolve_that_was_lost_is_told_by_a_complete_pull_and_by_no_other() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0), lost("gpu-node-12", 0)]).await;
    service.pass("1m").await;
    service.engine.pull(&partial(pull(&service, &[]))).await;
    service.pass("20m").await;
    assert_eq!(service.state(NODE).await, "isolated", "a partial answer proves nothing about what it does not list");
    service.engine.pull(&pull(&service, &[(lost("gpu-node-12", 0), None)])).await;
    assert_eq!(service.state(NODE).await, "clearing");
    service.pass("10m").await;
    assert!(!service.tainted(NODE));
    assert!(service.tainted("gpu-node-12"));
}

#[tokio::test]
async fn what_a_webhook_told_after_the_pull_began_is_newer() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.pass("1m").await;
    let older = pull(&service, &[(lost(NODE, 0), None)]);
    let empty = pull(&service, &[]);
    service.pass("1s").await;
    // Both were on their way when the webhook told more.
    service.outcomes(&[lost(NODE, 1)]).await;
    service.engine.pull(&empty).await;
    let record = service.record(NODE).unwrap();
    let states: Vec<_> = record["claims"].as_array().unwrap().iter().map(|c| c["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["cleared", "firing"], "the second was heard of after the pull began");
    service.outcomes(&[lost(NODE, 0), lost(NODE, 0).over(OVER), lost(NODE, 1).over(OVER)]).await;
    service.outcomes(&[lost(NODE, 0).over(OVER)]).await;
    assert_eq!(service.state(NODE).await, "clearing");
    service.engine.pull(&older).await;
    assert_eq!(service.state(NODE).await, "clearing", "its resolve came after the pull began");
}

#[tokio::test]
async fn a_silence_that_was_there_first_begins_nothing_and_its_end_does() {
    let service = Service::start().await;
    let silenced = service.engine.pull(&pull(&service, &[(lost(NODE, 0), Some(VETO))])).await;
    assert_eq!(silenced.results.iter().map(|r| r.outcome.as_str()).collect::<Vec<_>>(), ["silenced"]);
    assert_eq!(service.cluster.patches(), 0);
    assert!(waiting_for(&service).await.contains(VETO), "a person who looks is told");
    service.engine.pull(&pull(&service, &[(lost(NODE, 0), None)])).await;
    assert_eq!(service.state(NODE).await, "isolated");
}

#[tokio::test]
async fn under_a_silence_an_isolation_stays_and_says_who_vetoed() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.engine.pull(&pull(&service, &[(lost(NODE, 0), Some(VETO))])).await;
    service.pass("1h").await;
    assert_eq!(service.state(NODE).await, "isolated");
    let waits = waiting_for(&service).await;
    assert!(waits.ends_with(&format!("to end ({VETO})")), "{waits}");
    // Resolved under the silence: no webhook ever says so.
    service.engine.pull(&pull(&service, &[])).await;
    service.pass("10m").await;
    assert_eq!(service.state(NODE).await, "free");
}

#[tokio::test]
async fn a_node_that_waits_for_the_guard_is_not_let_in_while_it_is_silenced() {
    let config = CONFIG.replace("release: {after: 10m", "guard: {max_isolated: {count: 1, percent: 0}}\nrelease: {after: 0s");
    let service = Service::with(&config).await;
    service.outcomes(&[lost("gpu-node-12", 0), lost(NODE, 0)]).await;
    assert_eq!(service.state(NODE).await, "pending");
    service.engine.pull(&pull(&service, &[(lost("gpu-node-12", 0), None), (lost(NODE, 0), Some(VETO))])).await;
    service.outcomes(&[lost("gpu-node-12", 0).over(OVER)]).await;
    service.pass("1m").await;
    assert_eq!(service.state("gpu-node-12").await, "free");
    assert_eq!(service.state(NODE).await, "free");
    assert!(waiting_for(&service).await.contains(VETO));
    assert_eq!(service.outcomes(&[lost(NODE, 0)]).await, ["recorded"], "a webhook comes only of what is not silenced");
    assert_eq!(service.state(NODE).await, "isolated");
}

#[tokio::test]
async fn a_silence_outlives_a_restart_of_the_service() {
    let config = CONFIG.replace("release: {after: 10m", "guard: {max_isolated: {count: 0, percent: 0}}\nrelease: {after: 10m");
    let service = Service::with(&config).await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.engine.pull(&pull(&service, &[(lost(NODE, 0), Some(VETO))])).await;
    // With room at last, but before its first pull.
    let service = service.restart(CONFIG).await;
    service.pass("1h").await;
    assert!(!service.tainted(NODE));
    service.engine.pull(&pull(&service, &[(lost(NODE, 0), None)])).await;
    assert!(service.tainted(NODE));
}

#[tokio::test]
async fn one_alert_of_a_claim_that_is_not_silenced_is_enough_to_act() {
    let service = Service::start().await;
    let (link, other) = (lost(NODE, 0).label("link", "1"), lost(NODE, 0).label("link", "2"));
    service.engine.pull(&pull(&service, &[(link, Some(VETO)), (other, None)])).await;
    assert_eq!(service.state(NODE).await, "isolated");
}

#[tokio::test]
async fn what_was_recorded_under_an_answer_of_failure_is_marked_until_it_is_confirmed() {
    let service = Service::start().await;
    service.cluster.fail_node("gpu-node-12", Some(Fault::Unavailable));
    let both = [lost(NODE, 0), lost("gpu-node-12", 0)];
    let (status, _) = service.post(body(&both)).await;
    assert_eq!(status, 503);
    assert!(service.tainted(NODE));
    assert_eq!(service.record(NODE).unwrap()["claims"][0]["unconfirmed"], true);
    service.cluster.fail_node("gpu-node-12", None);
    assert_eq!(outcomes(&service.post(body(&both)).await), ["unchanged", "recorded"]);
    assert_eq!(service.record(NODE).unwrap()["claims"][0].get("unconfirmed"), None);

    service.cluster.fail_node("gpu-node-12", Some(Fault::Unavailable));
    service.post(body(&[lost(NODE, 0), lost("gpu-node-12", 1)])).await;
    assert_eq!(service.record(NODE).unwrap()["claims"][0]["unconfirmed"], true);
    service.engine.pull(&pull(&service, &[(lost(NODE, 0), None)])).await;
    assert_eq!(service.record(NODE).unwrap()["claims"][0].get("unconfirmed"), None, "a pull confirms it as well");
}

#[tokio::test(start_paused = true)]
async fn what_is_recorded_after_its_answer_came_too_late_is_marked() {
    let service = Service::limited(|app| app.deadline = std::time::Duration::from_millis(50)).await;
    service.cluster.pause();
    let (status, _) = service.post(body(&[lost(NODE, 0)])).await;
    assert_eq!(status, 503);
    service.cluster.go_on();
    service.app.drained().await;
    assert!(service.tainted(NODE));
    assert_eq!(service.record(NODE).unwrap()["claims"][0]["unconfirmed"], true);
}

#[tokio::test]
async fn a_claim_whose_policy_is_gone_goes_on_while_its_alert_is_listed() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    service.reload(&CONFIG.replace("severity=\"critical\"", "severity=\"page\"")).await.unwrap();
    service.pass("1m").await;
    service.engine.pull(&pull(&service, &[(lost(NODE, 0), None)])).await;
    service.pass("1h").await;
    assert!(service.tainted(NODE), "it is listed, so it is not over");
    service.engine.pull(&pull(&service, &[])).await;
    service.pass("10m").await;
    assert!(!service.tainted(NODE));
}

#[tokio::test]
async fn an_alert_that_names_no_node_is_parked_once_and_forgotten_when_a_complete_pull_lacks_it() {
    let service = Service::start().await;
    let unmapped = "gpu_quarantine_alerts_unmapped_total{reason=\"no_such_node\"}";
    for _ in 0..3 {
        service.engine.pull(&pull(&service, &[(lost("no-such-node", 0), None)])).await;
    }
    assert!((service.metric("gpu_quarantine_alerts_parked").await - 1.0).abs() < f64::EPSILON);
    assert!((service.metric(unmapped).await - 1.0).abs() < f64::EPSILON);
    service.engine.pull(&pull(&service, &[])).await;
    assert!(service.metric("gpu_quarantine_alerts_parked").await.abs() < f64::EPSILON);
}
