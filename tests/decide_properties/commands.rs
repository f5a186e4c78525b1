//! P10 by command: what `nodes release`, `hold` and `ignore` write, whatever happened to the node before.

use gpu_quarantine::{
    alert::Alert,
    quarantine::{
        ClaimState, Hand, Judgement, NodeState, NodeView, Offer, Outcome, Refusal, Releases, Word, release_by_hand, say,
    },
};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use crate::bench::{Bench, FORMER, HOLD, KEY, NO_ROOM, RECORD, ROOM, at, cases, config, firing, plain_node, resolved};

const HAND: Hand<'_> = Hand { who: "alice", judgement: Some(Judgement::Repaired), reason: Some("new riser") };

fn lost(gpu: &str) -> Alert {
    // By UUID: what an index names changes with a reboot.
    firing(&[("alertname", "GpuLost"), ("UUID", &format!("GPU-5fd4f0a2-8a3e-5c1d-b7a1-00000000000{gpu}"))], "isolate", at(0))
}

fn frozen() -> Alert {
    firing(&[("alertname", "DriverUpgrade")], "freeze", at(0))
}

fn isolated(cordon: bool) -> Bench {
    let mut bench = Bench::new(&plain_node(), config(cordon, "10m"));
    drop(bench.hear(&[lost("3")], false));
    bench
}

fn release(bench: &mut Bench) -> Result<Option<Offer>, Refusal> {
    let Some(release) = release_by_hand(&bench.facts(), &bench.config, &HAND, bench.now)? else { return Ok(None) };
    bench.apply(&release.patch);
    Ok(Some(release.offer))
}

fn says(bench: &mut Bench, word: Word, text: Option<&str>) {
    let patch = say(&bench.facts(), &bench.config, word, text).expect("it may be said").expect("it is new");
    bench.apply(&patch);
}

fn taint(key: &str, value: &str) -> Value {
    json!({"key": key, "value": value, "effect": "NoSchedule"})
}

#[derive(Debug, Clone)]
enum Before {
    Fires(u8),
    Resolves(u8),
    Freezes(bool),
    Waits(i64),
    Room(bool),
    Cordon(bool),
    Reboots,
}

fn before() -> impl Strategy<Value = Before> {
    prop_oneof![
        4 => (0_u8..3).prop_map(Before::Fires), 3 => (0_u8..3).prop_map(Before::Resolves),
        1 => any::<bool>().prop_map(Before::Freezes), 2 => (1..2 * HOLD).prop_map(Before::Waits),
        1 => any::<bool>().prop_map(Before::Room), 1 => any::<bool>().prop_map(Before::Cordon), 1 => Just(Before::Reboots),
    ]
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_release_by_command_gives_back_what_is_ours_and_what_fires_on_isolates_nothing(
        story in vec(before(), 0..10), cordon in any::<bool>(), foreign in any::<bool>(), held in any::<bool>(),
    ) {
        let mut node = plain_node();
        if foreign {
            node["spec"]["taints"] = json!([taint("other.example/x", "y"), taint(KEY, "by-hand")]);
        }
        let mut bench = Bench::new(&node, config(cordon, "10m"));
        for step in story {
            match step {
                Before::Fires(gpu) => drop(bench.hear(&[lost(&gpu.to_string())], false)),
                Before::Resolves(gpu) => drop(bench.hear(&[resolved(&lost(&gpu.to_string()), at(10))], false)),
                Before::Freezes(true) => drop(bench.hear(&[frozen()], false)),
                Before::Freezes(false) => drop(bench.hear(&[resolved(&frozen(), at(10))], false)),
                Before::Waits(seconds) => {
                    bench.wait(seconds);
                    drop(bench.tick());
                }
                Before::Room(room) => bench.room = if room { ROOM } else { NO_ROOM },
                Before::Cordon(lies) => bench.edit(|node| node["spec"]["unschedulable"] = if lies { true.into() } else { Value::Null }),
                Before::Reboots => bench.edit(|node| node["status"]["nodeInfo"]["bootID"] = "b-2".into()),
            }
        }
        if held {
            says(&mut bench, Word::Hold, Some("no (bob)"));
        }
        let (was, view) = (bench.record(), NodeView::of(&bench.facts(), &bench.config, bench.now));
        let fires: Vec<Alert> = (0..3).map(|gpu| lost(&gpu.to_string())).filter(|a| bench.firing().iter().any(|f| f.0 == a.fingerprint)).collect();
        let offer = release(&mut bench).expect("nothing forbids it");
        let Some(offer) = offer else {
            prop_assert!(!view.isolated && view.state != NodeState::Pending, "{:?}", view);
            return Ok(());
        };
        if offer.releases == Releases::Orphan {
            prop_assert!(foreign && was.is_none_or(|r| r.added.is_none()), "no record calls that taint ours");
            return Ok(());
        }
        prop_assert!(!bench.isolated());
        prop_assert_eq!(bench.tainted(), foreign, "only ours goes");
        prop_assert_eq!(offer.hold.is_some(), held);
        prop_assert!(!bench.facts().annotations.contains_key("gpu-quarantine.dev/hold"));
        let record = bench.record().expect("the history stays");
        let last = record.history.last().expect("an episode ended");
        prop_assert_eq!((last.by.as_str(), last.who.as_deref(), last.verdict.as_deref()), ("hand", Some("alice"), Some("repaired")));
        prop_assert_eq!(last.reason.as_deref(), Some("new riser"));
        prop_assert_eq!(record.history.iter().filter(|e| e.to == bench.now && e.who.is_some()).count(), offer.claims.len());
        prop_assert!(record.claims.iter().all(|c| c.state == ClaimState::Released || !c.action.isolates()));
        // `tick` checks that the decision has nothing to add.
        prop_assert_eq!(bench.tick().patch, None);
        bench.room = ROOM;
        for alert in fires {
            prop_assert_eq!(bench.hear(&[alert], false).verdicts[0].outcome, Outcome::Unchanged, "left alone");
            prop_assert!(!bench.isolated());
        }
        let new = firing(&[("alertname", "GpuXid"), ("gpu", "9")], "isolate", at(70));
        prop_assert_eq!(bench.hear(&[new], false).verdicts[0].outcome, Outcome::Recorded, "another alert is another episode");
    }
}

#[test]
fn a_release_by_command_is_the_one_of_a_taint_taken_away_but_for_who_did_it() {
    let mut by_command = isolated(true);
    let mut by_kubectl = isolated(true);
    drop(by_command.hear(&[frozen(), lost("4")], false));
    drop(by_kubectl.hear(&[frozen(), lost("4")], false));
    for _ in 0..2 {
        by_kubectl.edit(|node| node["spec"]["taints"] = json!([]));
        drop(by_kubectl.tick());
    }
    release(&mut by_command).unwrap().unwrap();
    let record = |bench: &Bench| {
        let mut record = bench.record().unwrap();
        for episode in &mut record.history {
            (episode.who, episode.verdict, episode.reason) = (None, None, None);
        }
        record
    };
    assert_eq!(record(&by_command), record(&by_kubectl));
    assert_eq!(by_command.raw()["spec"], by_kubectl.raw()["spec"]);
}

#[test]
fn a_node_that_waits_for_the_guard_waits_no_longer() {
    let mut bench = Bench::new(&plain_node(), config(false, "10m"));
    bench.room = NO_ROOM;
    drop(bench.hear(&[lost("3")], false));
    let offer = release(&mut bench).unwrap().unwrap();
    assert_eq!((offer.releases, offer.taint, offer.claims.len()), (Releases::Pending, None, 1));
    bench.room = ROOM;
    assert_eq!(bench.tick().patch, None);
    assert_eq!(bench.hear(&[lost("3")], false).verdicts[0].outcome, Outcome::Unchanged);
    assert!(!bench.tainted());
    assert_eq!(bench.record().unwrap().history[0].verdict.as_deref(), Some("repaired"), "the verdict has an episode to stand on");
}

#[test]
fn of_orphans_one_taint_is_taken_off_and_nothing_else() {
    for (taints, takes) in [
        (json!([taint("other.example/x", "y"), taint(FORMER, "old"), taint(KEY, "new")]), KEY),
        (json!([taint("other.example/x", "y"), taint(FORMER, "old")]), FORMER),
    ] {
        let mut node = plain_node();
        node["spec"]["taints"] = taints;
        node["spec"]["unschedulable"] = true.into();
        let mut bench = Bench::new(&node, config(false, "10m"));
        let view = NodeView::of(&bench.facts(), &bench.config, bench.now);
        assert!(view.waiting_for.contains(takes), "{}", view.waiting_for);
        let before = bench.facts().taints;
        let offer = release(&mut bench).unwrap().unwrap();
        assert_eq!((offer.releases, offer.taint.as_ref().unwrap().key.as_str()), (Releases::Orphan, takes));
        let kept: Vec<_> = before.into_iter().filter(|t| t.key != takes).collect();
        assert_eq!(bench.facts().taints, kept);
        assert!(bench.facts().unschedulable, "whose cordon that is nobody knows");
    }
    let mut node = plain_node();
    node["spec"]["taints"] = json!([{"key": KEY, "effect": "NoExecute"}, taint("other.example/x", "y")]);
    assert_eq!(release(&mut Bench::new(&node, config(false, "10m"))), Ok(None), "we never add that effect");
}

#[test]
fn an_unreadable_record_is_kept_aside_when_its_taint_is_taken_off() {
    let mut bench = isolated(false);
    bench.edit(|node| node["metadata"]["annotations"][RECORD] = "{".into());
    assert_eq!(release(&mut bench).unwrap().unwrap().releases, Releases::Orphan);
    let facts = bench.facts();
    assert!(!bench.tainted() && !facts.annotations.contains_key(RECORD));
    assert_eq!(facts.annotations["gpu-quarantine.dev/record-corrupt"], "{");
}

/// What somebody does to a node.
type Change = fn(&mut Value);

#[test]
fn what_must_not_be_touched_is_refused_in_words() {
    let changes: [(&str, Change); 6] = [
        ("unignore it first", |node| node["metadata"]["annotations"]["gpu-quarantine.dev/ignore"] = "burn-in".into()),
        ("control-plane", |node| node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] = "".into()),
        ("belongs to instance", |node| {
            node["metadata"]["annotations"][RECORD] = json!({"v": 1, "owner": "b"}).to_string().into();
        }),
        ("has version 2", |node| node["metadata"]["annotations"][RECORD] = json!({"v": 2}).to_string().into()),
        ("isolation.former_keys", |node| {
            let text = node["metadata"]["annotations"][RECORD].as_str().unwrap().replace(KEY, "foreign.example/key");
            node["metadata"]["annotations"][RECORD] = text.into();
        }),
        ("use kubectl", |node| {
            node["metadata"]["labels"] = json!({});
            node["metadata"]["annotations"] = json!({});
        }),
    ];
    for (why, change) in changes {
        let mut bench = isolated(false);
        bench.edit(change);
        let refused = release(&mut bench).unwrap_err().to_string();
        assert!(refused.contains(why), "{why}: {refused}");
    }
}

#[test]
fn a_node_that_left_the_scope_is_given_back_and_its_words_are_taken_away() {
    let mut bench = isolated(false);
    says(&mut bench, Word::Hold, Some("no (bob)"));
    bench.edit(|node| node["metadata"]["labels"] = json!({}));
    says(&mut bench, Word::Hold, None);
    release(&mut bench).unwrap().unwrap();
    assert!(!bench.tainted());
}

#[test]
fn a_word_that_is_said_already_is_not_written_again() {
    let mut bench = isolated(false);
    says(&mut bench, Word::Ignore, Some("burn-in (bob)"));
    assert_eq!(say(&bench.facts(), &bench.config, Word::Ignore, Some("burn-in (bob)")), Ok(None));
    says(&mut bench, Word::Ignore, Some("burn-in (carol)"));
    says(&mut bench, Word::Ignore, None);
    assert_eq!(say(&bench.facts(), &bench.config, Word::Ignore, None), Ok(None));
    assert!(bench.isolated() && bench.tainted());
}
