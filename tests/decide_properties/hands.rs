//! P10: who takes our taint away is obeyed, the second time at the latest.

use gpu_quarantine::{
    alert::Alert,
    quarantine::{ClaimState, Effect, NodeState, NodeView, Outcome},
};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use crate::bench::{Bench, HOLD, KEY, NO_ROOM, at, cases, config, firing, plain_node, resolved};

fn lost(gpu: &str) -> Alert {
    firing(&[("alertname", "GpuLost"), ("gpu", gpu)], "isolate", at(0))
}

fn take_away(bench: &Bench) {
    bench.edit(|node| {
        let taints = node["spec"]["taints"].as_array_mut().expect("the node is tainted");
        taints.retain(|t| t["key"] != KEY);
    });
}

/// Isolated, taken away, put back, taken away again.
fn taken_away_twice(alert: &Alert) -> Bench {
    let mut bench = Bench::new(&plain_node(), config(false, "10m"));
    drop(bench.hear(std::slice::from_ref(alert), false));
    take_away(&bench);
    assert!(matches!(bench.tick().effect, Some((Effect::Isolate, ..))));
    assert!(bench.tainted());
    bench.wait(60);
    take_away(&bench);
    bench
}

#[derive(Debug, Clone)]
enum Then {
    Fires,
    Resolves,
    Waits(i64, bool),
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn a_node_released_by_hand_is_left_alone_until_its_alert_was_over_for_the_hold_down(
        story in vec(prop_oneof![
            3 => Just(Then::Fires), 2 => Just(Then::Resolves),
            2 => (1..HOLD, any::<bool>()).prop_map(|(s, looks)| Then::Waits(s, looks)),
            1 => any::<bool>().prop_map(|looks| Then::Waits(HOLD, looks)),
        ], 1..12),
        at_once in any::<bool>(),
    ) {
        let alert = lost("3");
        let mut bench = taken_away_twice(&alert);
        let first = if at_once { bench.hear(std::slice::from_ref(&alert), false) } else { bench.tick() };
        prop_assert!(matches!(first.effect, Some((Effect::Release, ..))));
        prop_assert!(!bench.isolated() && !bench.tainted());

        // The model: since when the alert has been over, if it is.
        let (mut over, mut free) = (None, false);
        for (i, then) in story.iter().enumerate() {
            let starts_at = at(1000 + i64::try_from(i).unwrap_or_default());
            let outcome = match then {
                Then::Waits(seconds, looks) => {
                    bench.wait(*seconds);
                    if *looks {
                        drop(bench.tick());
                    }
                    None
                }
                Then::Resolves => {
                    over = over.or(Some(bench.now));
                    drop(bench.hear(&[resolved(&Alert { starts_at, ..alert.clone() }, starts_at)], false));
                    None
                }
                Then::Fires => {
                    free |= over.is_some_and(|o| (bench.now - o).get_seconds() >= HOLD);
                    over = None;
                    Some(bench.hear(&[Alert { starts_at, ..alert.clone() }], false).verdicts.remove(0).outcome)
                }
            };
            free |= over.is_some_and(|o| (bench.now - o).get_seconds() >= HOLD);
            if let (true, Some(outcome)) = (free, outcome) {
                prop_assert_eq!(outcome, Outcome::Recorded, "a new episode");
                prop_assert!(bench.isolated() && bench.tainted());
                return Ok(());
            }
            prop_assert!(!bench.isolated() && !bench.tainted(), "left alone after {:?}", then);
        }
    }

    #[test]
    fn another_gpu_or_alert_isolates_a_node_released_by_hand(
        same_body in any::<bool>(), also_old in any::<bool>(), other_name in any::<bool>(), room in any::<bool>(),
    ) {
        let alert = lost("3");
        let mut bench = taken_away_twice(&alert);
        if !same_body {
            drop(bench.tick());
            prop_assert!(!bench.isolated());
        }
        if !room {
            bench.room = NO_ROOM;
        }
        let other = if other_name { firing(&[("alertname", "GpuXid"), ("gpu", "3")], "isolate", at(70)) } else { lost("4") };
        let mut body = vec![other];
        if also_old {
            body.push(alert.clone());
        }
        let decision = bench.hear(&body, false);
        let expected = if room { Outcome::Recorded } else { Outcome::Pending };
        prop_assert_eq!(decision.verdicts[0].outcome, expected, "{:?}", &decision.verdicts[0]);
        prop_assert_eq!((bench.isolated(), bench.tainted()), (room, room));
        let record = bench.record().expect("there is one");
        prop_assert_eq!(record.history.len(), 1, "the release by hand, once: {:?}", &record.history);
        prop_assert_eq!(record.claims.iter().filter(|c| c.state == ClaimState::Released).count(), 1);
    }
}

#[test]
fn a_taint_taken_away_during_the_hold_down_is_a_release() {
    let alert = lost("3");
    let mut bench = Bench::new(&plain_node(), config(true, "10m"));
    drop(bench.hear(std::slice::from_ref(&alert), false));
    drop(bench.hear(&[resolved(&alert, at(10))], false));
    take_away(&bench);
    bench.wait(10);
    assert!(matches!(bench.tick().effect, Some((Effect::Release, ..))));
    assert!(!bench.isolated() && !bench.tainted() && !bench.facts().unschedulable, "our cordon goes as well");
}

#[test]
fn a_release_by_hand_long_after_the_alert_was_over_leaves_no_claim_behind() {
    let alert = lost("3");
    let mut bench = Bench::new(&plain_node(), config(false, "10m"));
    bench.edit(|node| node["metadata"]["annotations"]["gpu-quarantine.dev/hold"] = "until Monday".into());
    drop(bench.hear(std::slice::from_ref(&alert), false));
    drop(bench.hear(&[resolved(&alert, at(10))], false));
    bench.wait(10 * HOLD);
    drop(bench.tick());
    assert!(bench.isolated(), "a person holds it");
    take_away(&bench);
    drop(bench.tick());
    assert_eq!(bench.record().expect("the history stays").claims, []);
    drop(bench.hear(std::slice::from_ref(&alert), false));
    assert!(bench.tainted(), "a new episode");
}

#[test]
fn a_vanished_cordon_is_no_release_and_is_not_put_back() {
    let mut bench = Bench::new(&plain_node(), config(true, "10m"));
    let alert = lost("3");
    drop(bench.hear(std::slice::from_ref(&alert), false));
    assert!(bench.facts().unschedulable);
    bench.edit(|node| node["spec"]["unschedulable"] = Value::Null);
    assert_eq!(bench.tick().patch, None);
    assert!(bench.isolated() && bench.tainted());
    take_away(&bench);
    drop(bench.tick());
    assert!(bench.tainted() && !bench.facts().unschedulable, "only the taint is put back");
}

#[test]
fn a_foreign_taint_that_isolated_for_us_is_made_up_for_once_when_it_goes() {
    let mut node = plain_node();
    node["spec"]["taints"] = json!([{"key": KEY, "value": "by-hand", "effect": "NoSchedule"}]);
    let mut bench = Bench::new(&node, config(false, "10m"));
    drop(bench.hear(&[lost("3")], false));
    assert!(bench.isolated());
    take_away(&bench);
    drop(bench.tick());
    assert!(bench.isolated() && bench.tainted(), "the fault lasts, and nothing else keeps pods away");
    take_away(&bench);
    drop(bench.tick());
    assert!(!bench.isolated() && !bench.tainted(), "the second time a person means it");
    let view = NodeView::of(&bench.facts(), &bench.config, bench.now);
    assert_eq!(view.state, NodeState::Free);
}

#[test]
fn a_taint_of_a_former_key_is_put_back_under_the_key_of_today() {
    let mut bench = Bench::new(&plain_node(), config(false, "10m"));
    bench.config.isolation.taint_key = "old.example/gpu-broken".to_owned();
    let facts = bench.facts();
    let alert = lost("3");
    let heard = [crate::bench::heard(&alert, &bench.config)];
    let ctx = gpu_quarantine::quarantine::Context {
        config: &bench.config,
        room: bench.room,
        now: bench.now,
        told: gpu_quarantine::quarantine::Told::Pushed,
        known: gpu_quarantine::quarantine::Known::default(),
    };
    let patch = gpu_quarantine::quarantine::decide(&facts, &heard, &ctx).patch.expect("it isolates");
    bench.edit(|node| {
        node["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
        node["spec"]["taints"] = json!([]);
    });
    bench.config.isolation.taint_key = KEY.to_owned();
    drop(bench.tick());
    assert!(bench.tainted());
    drop(bench.hear(&[resolved(&alert, at(10))], false));
    bench.wait(HOLD);
    drop(bench.tick());
    assert!(!bench.tainted() && !bench.isolated());
}

#[test]
fn an_alert_that_fires_after_the_hold_down_is_a_new_episode_even_if_no_timer_ran_in_between() {
    let alert = lost("3");
    let mut bench = taken_away_twice(&alert);
    drop(bench.tick());
    drop(bench.hear(&[resolved(&alert, at(100))], false));
    bench.wait(HOLD);
    assert_eq!(bench.hear(std::slice::from_ref(&alert), false).verdicts[0].outcome, Outcome::Recorded);
    assert!(bench.tainted());
}
