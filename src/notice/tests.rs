use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::{
    text::{cut, note},
    *,
};
use crate::{
    alert::{Pull, parse_body},
    cluster::{Cluster, snapshot::SnapshotCluster},
    engine::{Clock, Engine, VirtualClock},
    metrics::Metrics,
    policy,
    quarantine::{Hand, Judgement, release_by_hand},
};

const UUID: &str = "GPU-5fd4f087-86f3-7a43-b711-4771313afc50";

/// An engine on the embedded cluster, with what people were told.
struct World {
    engine: Engine,
    cluster: Arc<SnapshotCluster>,
    clock: Arc<VirtualClock>,
    told: Arc<Mutex<Vec<Notice>>>,
}

impl World {
    async fn new(extra: &str) -> Self {
        let text = match extra {
            "manual" => "release: {after: 10m, require: [manual]}\n".to_owned(),
            "evidence" => {
                "release: {after: 10m, require: [evidence]}\nsources: {prometheus: {query_url: \"http://p:9090\"}}\n".to_owned()
            }
            extra => format!("release: {{after: 10m, require: [resolved]}}\n{extra}\n"),
        };
        let config = policy::load("c", &text).unwrap();
        let cluster = include_str!("../../fixtures/clusters/prod-a.yaml");
        let cluster = Arc::new(SnapshotCluster::load("prod-a.yaml", cluster, &config.domain).unwrap());
        let clock = Arc::new(VirtualClock::at("2026-03-01T12:00:00Z".parse().unwrap()));
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        let engine = Engine::new(
            Arc::clone(&cluster) as Arc<dyn Cluster>,
            config,
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::new(Metrics::new()),
            Box::new(drop),
        )
        .with_notices(Box::new(move |notice, _| sink.lock().unwrap().push(notice)));
        engine.refresh().await;
        Self { engine, cluster, clock, told }
    }

    async fn alert(&self, node: &str, status: &str) {
        let mut alert = json!({
            "status": status, "startsAt": "2026-03-01T11:59:40Z",
            "labels": {"alertname": "GpuLost", "node": node, "UUID": UUID, "remediation": "isolate", "recovery": "auto"},
            "annotations": {
                "summary": "It fell off the bus", "runbook_url": "https://runbooks.example.com/GpuLost",
                "recovery_query": "gpu:present:max == 1",
            },
        });
        if status == "resolved" {
            alert["endsAt"] = json!("2026-03-01T12:00:00Z");
        }
        let body = json!({"version": "4", "status": status, "receiver": "r", "alerts": [alert]});
        self.engine.deliver(parse_body(body.to_string().as_bytes()).unwrap()).await;
    }

    async fn pass(&self, minutes: i64) {
        self.clock.advance_to(self.clock.now() + SignedDuration::from_mins(minutes));
        self.engine.run_due().await;
    }

    /// Another writer's patch.
    async fn patch(&self, node: &str, mut patch: serde_json::Value) {
        let name = NodeName::parse(node).unwrap();
        let facts = self.cluster.get(&name).await.unwrap().unwrap();
        patch["metadata"]["resourceVersion"] = facts.resource_version.into();
        self.cluster.patch(&name, &patch).await.unwrap();
        self.engine.refresh().await;
    }

    fn told(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }

    fn reasons(&self) -> Vec<&'static str> {
        self.told().iter().map(|n| n.reason.as_str()).collect()
    }
}

const NODE: &str = "gpu-node-07";

#[tokio::test]
async fn an_isolation_says_who_why_which_gpu_the_runbook_and_what_next() {
    let world = World::new("").await;
    world.alert(NODE, "firing").await;
    let told = world.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        told[0].note,
        format!(
            "Isolated by policy isolate: GpuLost on {UUID}. Runbook: https://runbooks.example.com/GpuLost Next: nothing new is \
             scheduled here; released when every claim cleared and stayed so for 10m. Summary: It fell off the bus"
        )
    );
    assert_eq!(told[0].reason, Reason::Isolated);
    assert_eq!(told[0].at, world.clock.now());
    let taint = told[0].taint.as_ref().unwrap();
    assert_eq!((taint.key.as_str(), taint.value.as_deref()), ("gpu-quarantine.dev/isolated", Some("isolate")));
    let node = told[0].node.as_ref().unwrap();
    let facts = world.cluster.get(&node.name).await.unwrap().unwrap();
    assert_eq!(node.uid.as_deref(), Some(facts.uid.as_str()));

    world.alert(NODE, "firing").await;
    assert!(world.told().is_empty(), "nothing changed");
    world.alert(NODE, "resolved").await;
    world.pass(10).await;
    let told = world.told();
    assert_eq!(told[0].reason, Reason::Released);
    assert!(told[0].note.starts_with("Released: every claim cleared and the hold-down is over (policy isolate: GpuLost on GPU-"));
}

#[tokio::test]
async fn what_only_a_person_keeps_is_told_once_per_episode_and_after_the_hold_down() {
    let world = World::new("manual").await;
    world.alert(NODE, "firing").await;
    world.alert(NODE, "resolved").await;
    world.pass(9).await;
    assert_eq!(world.reasons(), ["GpuNodeIsolated"], "the hold-down runs");
    world.pass(1).await;
    let told = world.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].reason, Reason::ReleaseHeld);
    assert!(told[0].note.contains("policy isolate: GpuLost on GPU-"), "{}", told[0].note);
    assert!(told[0].note.contains("Next: it waits for a person to remove the taint"), "{}", told[0].note);
    assert_eq!(world.engine.next_due(), None, "nothing is looked at for ever");
    for _ in 0..3 {
        world.pass(30).await;
        world.patch(NODE, json!({"metadata": {"annotations": {"other.example.com/x": world.clock.now().to_string()}}})).await;
    }
    assert!(world.told().is_empty(), "once");
    world.alert(NODE, "firing").await;
    world.alert(NODE, "resolved").await;
    world.pass(10).await;
    assert_eq!(world.reasons(), ["GpuNodeReleaseHeld"], "another clearing is another word");
}

#[tokio::test]
async fn a_fault_that_nobody_shows_to_be_gone_is_told_once_after_the_hold_down() {
    let world = World::new("evidence").await;
    world.alert(NODE, "firing").await;
    world.alert(NODE, "resolved").await;
    assert!(world.told()[0].note.contains("evidence over 10m that the fault is gone"));
    world.pass(9).await;
    assert!(world.told().is_empty(), "the hold-down runs");
    world.pass(1).await;
    let told = world.told();
    assert_eq!((told.len(), told[0].reason), (1, Reason::ReleaseUnproven), "{told:?}");
    assert!(told[0].note.contains("policy isolate: GpuLost on GPU-"), "{}", told[0].note);
    assert!(
        told[0].note.contains("it stays isolated and waits for somebody to see whether the fault is gone"),
        "{}",
        told[0].note
    );
    world.patch(NODE, json!({"metadata": {"annotations": {"other.example.com/x": "1"}}})).await;
    assert!(world.told().is_empty(), "once");
}

#[tokio::test]
async fn a_silence_over_all_that_fires_is_told_once_with_who_it_is_by() {
    let world = World::new("").await;
    world.alert(NODE, "firing").await;
    assert_eq!(world.reasons(), ["GpuNodeIsolated"]);
    let body = json!({"version": "4", "status": "firing", "receiver": "r", "alerts": [{
        "status": "firing", "startsAt": "2026-03-01T11:59:40Z",
        "labels": {"alertname": "GpuLost", "node": NODE, "UUID": UUID, "remediation": "isolate", "recovery": "auto"},
        "annotations": {},
    }]});
    let alert = parse_body(body.to_string().as_bytes()).unwrap().alerts.remove(0).unwrap();
    for minute in 1..4 {
        world.clock.advance_to(world.clock.now() + SignedDuration::from_mins(minute));
        let muted = Some("silenced by bob until 2026-03-02T00:00:00Z: \"new riser\"".to_owned());
        let alerts = vec![crate::alert::Pulled { alert: alert.clone(), muted }];
        world.engine.pull(&Pull { begun: world.clock.now(), alerts, incomplete: None, changes_at: None }).await;
    }
    let told = world.told();
    assert_eq!((told.len(), told[0].reason), (1, Reason::Silenced), "{told:?}");
    assert!(told[0].note.contains("GpuLost on GPU-") && told[0].note.contains("silenced by bob"), "{}", told[0].note);
}

#[tokio::test]
async fn a_hold_is_told_and_its_end_releases_the_node() {
    let world = World::new("").await;
    world.alert(NODE, "firing").await;
    world.patch(NODE, json!({"metadata": {"annotations": {"gpu-quarantine.dev/hold": "RMA 4711"}}})).await;
    world.alert(NODE, "resolved").await;
    world.pass(10).await;
    let told = world.told();
    assert_eq!(told.last().unwrap().reason, Reason::ReleaseHeld);
    assert!(told.last().unwrap().note.contains("RMA 4711"));
    world.patch(NODE, json!({"metadata": {"annotations": {"gpu-quarantine.dev/hold": null}}})).await;
    assert_eq!(world.reasons(), ["GpuNodeReleased"]);
}

#[tokio::test]
async fn a_taint_that_is_taken_away_is_put_back_once_and_then_counts_as_released() {
    let world = World::new("").await;
    world.alert(NODE, "firing").await;
    world.patch(NODE, json!({"spec": {"taints": null}})).await;
    assert_eq!(world.reasons(), ["GpuNodeIsolated", "GpuIsolationRestored"]);
    world.patch(NODE, json!({"spec": {"taints": null}})).await;
    let told = world.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].reason, Reason::ReleasedByHand);
    assert!(told[0].note.contains("again, after it had been put back"), "{}", told[0].note);
}

#[tokio::test]
async fn the_guard_is_told_of_when_it_refuses_and_when_that_is_over() {
    let world = World::new("guard: {max_isolated: {count: 1, percent: 0}}").await;
    world.alert(NODE, "firing").await;
    world.alert("gpu-node-20", "firing").await;
    let told = world.told();
    assert_eq!(told[1].reason, Reason::Refused);
    assert!(told[1].note.contains("1 of 1 nodes are isolated"), "{}", told[1].note);
    assert!(told[1].taint.is_none());
    world.alert("gpu-node-20", "resolved").await;
    assert_eq!(world.reasons(), ["GpuIsolationWithdrawn"]);
}

#[tokio::test]
async fn an_alert_that_leads_to_no_node_is_told_when_it_arrives_and_not_at_each_retry_of_ours() {
    let world = World::new("").await;
    world.alert("no-such-node", "firing").await;
    let told = world.told();
    assert_eq!((told.len(), told[0].reason, &told[0].node), (1, Reason::Unmapped, &None));
    assert!(told[0].note.starts_with("Alert GpuLost of policy isolate is mapped to no node: "), "{}", told[0].note);
    world.engine.retry_parked().await;
    world.alert("no-such-node", "resolved").await;
    assert!(world.told().is_empty());
}

#[tokio::test]
async fn a_record_that_cannot_be_used_is_told_once() {
    let world = World::new("").await;
    world.patch(NODE, json!({"metadata": {"annotations": {"gpu-quarantine.dev/record": "{"}}})).await;
    world.patch(NODE, json!({"metadata": {"annotations": {"other.example.com/x": "1"}}})).await;
    let told = world.told();
    assert_eq!((told.len(), told[0].reason), (1, Reason::RecordUnreadable), "{told:?}");
    assert!(told[0].note.contains("it is not JSON"), "{}", told[0].note);
}

#[test]
fn a_failed_write_says_whether_it_is_tried_again_by_whom() {
    let name = NodeName::parse("a").unwrap();
    let now = Timestamp::UNIX_EPOCH;
    let note = |passing| write_failed(&name, None, "HTTP 403: forbidden", passing, now).note;
    assert!(note(false).contains("HTTP 403: forbidden. Next: its alerts are kept and tried again. Check the permissions"));
    assert!(note(true).contains("Alertmanager is asked"));
}

#[test]
fn control_characters_of_others_never_reach_a_terminal() {
    assert_eq!(cut("a\u{1b}[31mb\nc\u{85}", 100), "a [31mb c ");
}

#[test]
fn a_long_summary_takes_no_room_from_runbook_and_next_step() {
    let text = note([("head", 10), ("", 10), ("runbook", 10), ("next", 10), ("é".repeat(2000).as_str(), MAX_NOTE)]);
    assert!(text.starts_with("head runbook next éé") && text.ends_with("..."));
    assert!(text.len() <= MAX_NOTE && text.len() > MAX_NOTE - 4, "{}", text.len());
}

#[test]
fn reasons_and_actions_are_what_the_api_server_takes() {
    for reason in Reason::ALL {
        assert!(reason.as_str().starts_with("Gpu") && reason.as_str().chars().all(char::is_alphanumeric));
        assert!(["Isolate", "Evict", "Release", "Refuse", "Map", "Write"].contains(&reason.action()));
    }
}

proptest! {
    #[test]
    fn no_text_makes_a_note_too_long_or_splits_a_character(parts in prop::collection::vec(("\\PC{0,400}", 0_usize..600), 0..6)) {
        let text = note(parts.iter().map(|(t, max)| (t.as_str(), *max)));
        prop_assert!(text.len() <= MAX_NOTE);
        for (t, max) in &parts {
            prop_assert!(cut(t, *max).len() <= (*max).max(3));
        }
    }
}

#[tokio::test]
async fn a_release_by_command_is_told_once_with_who_did_it_and_why() {
    let world = World::new("").await;
    world.alert(NODE, "firing").await;
    world.told();
    let facts = world.cluster.get(&NodeName::parse(NODE).unwrap()).await.unwrap().unwrap();
    let hand = Hand { who: "alice", judgement: Some(Judgement::FalseAlarm), reason: Some("bad rule") };
    let release = release_by_hand(&facts, &world.engine.config(), &hand, world.clock.now()).unwrap().unwrap();
    world.patch(NODE, release.patch).await;
    world.engine.refresh().await;
    let told = world.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].reason, Reason::ReleasedByHand);
    assert_eq!(
        told[0].note,
        format!(
            "Released by alice by command as false-alarm (GpuLost on {UUID}), bad rule. Next: the node is left alone until its \
             alerts were seen to end, or another alert or GPU fires."
        )
    );
}
