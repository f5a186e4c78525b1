//! P5 and P6: the order, repetition and loss of what is heard do not matter in the end, and the guard only ever delays.

use std::collections::BTreeSet;

use gpu_quarantine::{
    alert::{Alert, Fingerprint},
    quarantine::{Effect, Outcome},
};
use jiff::Timestamp;
use proptest::{collection::vec, prelude::*};

use crate::bench::{Bench, HOLD, NO_ROOM, ROOM, at, cases, config, firing, plain_node, resolved};

const NAMES: [&str; 2] = ["GpuLost", "GpuXidError"];
const GPUS: [&str; 3] = [
    "GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000",
    "GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000001",
    "GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000002",
];

/// One alert over time: when it began to fire and when that ended, in seconds; the last end may be missing.
#[derive(Debug, Clone)]
struct Life {
    alert: Alert,
    phases: Vec<(i64, Option<i64>)>,
}

impl Life {
    /// As its sender sees it at `time`; `None` before it first fires.
    fn seen_at(&self, time: i64) -> Option<Alert> {
        let (from, to) = self.phases.iter().rev().find(|(from, _)| *from <= time)?;
        let alert = Alert { starts_at: at(*from), ..self.alert.clone() };
        Some(match to {
            Some(to) if *to <= time => resolved(&alert, at(*to)),
            _ => alert,
        })
    }
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let phases = vec((1_i64..400, 1_i64..400), 1..4);
    let life = (0..NAMES.len(), 0..GPUS.len() + 1, phases, any::<bool>());
    vec(life, 2..6).prop_map(|lives| {
        let life = |i: usize, name: usize, gpu: usize, phases: Vec<(i64, i64)>, goes_on: bool| {
            let link = i.to_string();
            let mut labels = vec![("alertname", NAMES[name]), ("link", link.as_str())];
            labels.extend(GPUS.get(gpu).map(|uuid| ("UUID", *uuid)));
            let mut time = 0;
            let mut phases: Vec<(i64, Option<i64>)> = phases
                .into_iter()
                .map(|(pause, length)| {
                    let from = time + pause;
                    time = from + length;
                    (from, Some(time))
                })
                .collect();
            if let Some(last) = phases.last_mut().filter(|_| goes_on) {
                last.1 = None;
            }
            Life { alert: firing(&labels, "isolate", at(0)), phases }
        };
        let lives = lives.into_iter().enumerate();
        lives.map(|(i, (name, gpu, phases, goes_on))| life(i, name, gpu, phases, goes_on)).collect()
    })
}

/// One delivery: which moment it shows, which alerts it lists, how long after the one before it arrives, whether it is a complete
/// pull of that moment, and whether the guard has room. Drawn independently of each other they are a history that is permuted,
/// repeated and full of gaps.
#[derive(Debug, Clone)]
struct Delivery {
    shows: i64,
    lists: [bool; 6],
    arrives: i64,
    complete: bool,
    room: bool,
}

fn deliveries() -> impl Strategy<Value = Vec<Delivery>> {
    let arrives = prop_oneof![3 => 0_i64..60, 1 => 0_i64..2 * HOLD];
    let delivery = (0_i64..2500, any::<[bool; 6]>(), arrives, prop::bool::weighted(0.15), prop::bool::weighted(0.7));
    let delivery =
        delivery.prop_map(|(shows, lists, arrives, complete, room)| Delivery { shows, lists, arrives, complete, room });
    // Repetition and permutation on top of what chance gives.
    vec(delivery, 0..8).prop_flat_map(|all| {
        let n = all.len().max(1);
        vec(0..n, 0..2 * n).prop_map(move |order| order.iter().filter_map(|i| all.get(*i)).cloned().collect())
    })
}

fn play(bench: &mut Bench, lives: &[Life], deliveries: &[Delivery]) {
    for delivery in deliveries {
        bench.wait(delivery.arrives);
        bench.room = if delivery.room { ROOM } else { NO_ROOM };
        let seen = lives.iter().zip(delivery.lists).filter(|(_, listed)| *listed || delivery.complete);
        let body: Vec<Alert> = seen.filter_map(|(life, _)| life.seen_at(delivery.shows)).collect();
        if delivery.complete {
            let body: Vec<Alert> = body.into_iter().filter(|a| a.ends_at.is_none()).collect();
            drop(bench.hear(&body, true));
        } else {
            drop(bench.hear(&body, false));
        }
    }
    bench.room = ROOM;
}

fn truth(lives: &[Life]) -> (Vec<Alert>, BTreeSet<(Fingerprint, Timestamp)>) {
    let last: Vec<Alert> = lives.iter().filter_map(|life| life.seen_at(i64::MAX)).collect();
    let firing = last.iter().filter(|a| a.ends_at.is_none()).map(|a| (a.fingerprint, a.starts_at)).collect();
    (last, firing)
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn whatever_came_before_the_last_word_of_every_alert_decides(
        lives in lives(), deliveries in deliveries(), complete in any::<bool>(), cordon in any::<bool>(), order in any::<u64>(),
    ) {
        let mut bench = Bench::new(&plain_node(), config(cordon, "10m"));
        play(&mut bench, &lives, &deliveries);

        let (mut last, truth) = truth(&lives);
        if complete {
            last.retain(|a| a.ends_at.is_none());
        }
        let turn = usize::try_from(order % 8).unwrap_or_default().min(last.len());
        last.rotate_left(turn);
        drop(bench.hear(&last, complete));
        prop_assert_eq!(&bench.firing(), &truth);

        for _ in 0..2 {
            bench.wait(HOLD);
            drop(bench.tick());
        }
        prop_assert_eq!(&bench.firing(), &truth, "time alone ends no alert");
        prop_assert_eq!(bench.isolated(), !truth.is_empty());
        prop_assert_eq!(bench.tainted(), !truth.is_empty());
        prop_assert_eq!(bench.facts().unschedulable, cordon && !truth.is_empty());
    }

    #[test]
    fn the_same_words_one_body_at_a_time_or_all_at_once_come_to_the_same(lives in lives(), deliveries in deliveries()) {
        let (last, truth) = truth(&lives);
        let mut bench = Bench::new(&plain_node(), config(false, "10m"));
        play(&mut bench, &lives, &deliveries);
        for alert in last.iter().rev() {
            bench.wait(1);
            drop(bench.hear(std::slice::from_ref(alert), false));
        }
        prop_assert_eq!(&bench.firing(), &truth);
        bench.wait(2 * HOLD);
        drop(bench.tick());
        prop_assert_eq!(bench.isolated(), !truth.is_empty());
    }

    #[test]
    fn without_room_nothing_is_isolated_and_everything_is_on_record(lives in lives(), mut times in vec(0_i64..2500, 1..10)) {
        times.sort_unstable();
        let mut bench = Bench::new(&plain_node(), config(true, "10m"));
        bench.room = NO_ROOM;
        for time in times {
            bench.wait(7);
            let body: Vec<Alert> = lives.iter().filter_map(|life| life.seen_at(time)).collect();
            let decision = bench.hear(&body, false);
            prop_assert!(!bench.isolated() && !bench.tainted() && !bench.facts().unschedulable);
            for (alert, verdict) in body.iter().zip(&decision.verdicts) {
                let pending = alert.ends_at.is_none();
                prop_assert_eq!(verdict.outcome == Outcome::Pending, pending, "{:?}", verdict);
            }
            let fires: BTreeSet<_> = body.iter().filter(|a| a.ends_at.is_none()).map(|a| a.fingerprint).collect();
            let on_record: BTreeSet<_> = bench.firing().into_iter().map(|(fp, _)| fp).collect();
            prop_assert_eq!(&on_record, &fires);

            // Room comes and goes: who is let in is isolated at once, on what is on record.
            bench.room = ROOM;
            let facts = bench.facts();
            let ctx = gpu_quarantine::quarantine::Context { config: &bench.config, room: ROOM, now: bench.now, told: gpu_quarantine::quarantine::Told::Pushed, known: gpu_quarantine::quarantine::Known::default() };
            let admitted = gpu_quarantine::quarantine::decide(&facts, &[], &ctx);
            let isolates = matches!(admitted.effect, Some((Effect::Isolate, ..)));
            prop_assert_eq!(isolates, !fires.is_empty());
            bench.room = NO_ROOM;
        }
    }

    #[test]
    fn a_release_never_depends_on_the_guard(lives in lives(), deliveries in deliveries()) {
        let mut benches = [ROOM, NO_ROOM].map(|room| {
            let mut bench = Bench::new(&plain_node(), config(true, "10m"));
            play(&mut bench, &lives, &deliveries);
            drop(bench.tick());
            bench.room = room;
            bench
        });
        let was = benches[0].raw();
        prop_assert_eq!(&was, &benches[1].raw());
        let over: Vec<Alert> = truth(&lives).0.iter().map(|a| resolved(a, at(3000))).collect();
        for bench in &mut benches {
            drop(bench.hear(&over, false));
            bench.wait(HOLD - 1);
            drop(bench.tick());
            bench.wait(1);
            drop(bench.tick());
            prop_assert!(!bench.isolated() && !bench.tainted() && !bench.facts().unschedulable);
        }
        prop_assert_eq!(benches[0].raw(), benches[1].raw());
    }
}

fn starting(seconds: i64) -> Alert {
    firing(&[("alertname", "GpuLost"), ("gpu", "3")], "isolate", at(seconds))
}

#[test]
fn a_late_pair_of_firing_and_resolve_does_not_end_what_began_after_it() {
    let mut bench = Bench::new(&plain_node(), config(false, "10m"));
    for alert in [starting(100), starting(0), resolved(&starting(0), at(50))] {
        drop(bench.hear(&[alert], false));
    }
    assert_eq!(bench.firing(), BTreeSet::from([(starting(0).fingerprint, at(100))]));
}

#[test]
fn a_complete_pull_knows_better_since_when_an_alert_fires() {
    let mut bench = Bench::new(&plain_node(), config(false, "10m"));
    drop(bench.hear(&[starting(100)], false));
    drop(bench.hear(&[starting(40)], true));
    assert_eq!(bench.firing(), BTreeSet::from([(starting(0).fingerprint, at(40))]));
    drop(bench.hear(&[resolved(&starting(40), at(120))], false));
    assert!(bench.firing().is_empty(), "its resolve, which names the true time, counts");
}
