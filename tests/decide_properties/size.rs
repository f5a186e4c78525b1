//! The record never outgrows its 16 KiB, and what does not fit into it keeps the node isolated instead of being forgotten.

use gpu_quarantine::{
    alert::{Alert, Labels, Status},
    quarantine::{MAX_BYTES, Outcome},
};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::json;

use crate::bench::{Bench, HOLD, NO_ROOM, RECORD, ROOM, at, cases, config, firing, plain_node, resolved};

/// How a flood of alerts looks: how many names of which length, GPUs, alerts of each; how much is said, and how it is written.
#[derive(Debug, Clone)]
struct Flood {
    names: usize,
    length: usize,
    gpus: usize,
    each: usize,
    said: usize,
    letter: &'static str,
    recovery: Option<&'static str>,
    millis: i64,
}

fn flood() -> impl Strategy<Value = Flood> {
    let names = (prop_oneof![1_usize..4, 20_usize..100], prop_oneof![3_usize..10, 200_usize..250]);
    let shape = (names, 1_usize..10, prop_oneof![1_usize..3, 5_usize..20]);
    let text = (prop_oneof![Just(0), 200_usize..400], select(vec!["x", "\u{1}", "\"", "😀"]));
    (shape, text, select(vec![None, Some("reboot"), Some("replace")]), 0_i64..1000).prop_map(
        |(((names, length), gpus, each), (said, letter), recovery, millis)| {
            // A few hundred at most: the time goes into writing the record over and over.
            let each = each.min(1 + 200 / (names * gpus));
            Flood { names, length, gpus, each, said, letter, recovery, millis }
        },
    )
}

impl Flood {
    fn alerts(&self, remediation: &str) -> Vec<Alert> {
        let mut alerts = Vec::new();
        for name in 0..self.names {
            let name = format!("{name}-{}", "n".repeat(self.length));
            for gpu in 0..self.gpus {
                for link in 0..self.each {
                    let (gpu, link) = (gpu.to_string(), link.to_string());
                    let mut labels = vec![("alertname", name.as_str()), ("gpu", &gpu), ("link", &link)];
                    labels.extend(self.recovery.map(|r| ("recovery", r)));
                    let starts_at = at(0) + jiff::SignedDuration::from_millis(self.millis);
                    let mut alert = firing(&labels, remediation, starts_at);
                    let text = self.letter.repeat(self.said);
                    alert.annotations = [("summary", text.clone()), ("runbook_url", text)].into_iter().collect::<Labels>();
                    alerts.push(alert);
                }
            }
        }
        alerts
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn whatever_is_heard_fits_and_isolates_and_can_end(flood in flood(), bites in vec(1_usize..120, 1..6), room in any::<bool>()) {
        let mut bench = Bench::new(&plain_node(), config(true, "10m"));
        bench.room = if room { ROOM } else { NO_ROOM };
        let alerts = flood.alerts("isolate");
        let mut rest = alerts.as_slice();
        for bite in bites.iter().cycle() {
            let (body, later) = rest.split_at((*bite).min(rest.len()));
            rest = later;
            bench.wait(1);
            let decision = bench.hear(body, false);
            let expected = if room { [Outcome::Recorded, Outcome::Recorded] } else { [Outcome::Pending, Outcome::Recorded] };
            for verdict in &decision.verdicts {
                prop_assert!(verdict.outcome == expected[0], "{:?}", verdict);
            }
            prop_assert_eq!((bench.isolated(), bench.tainted()), (room, room));
            if rest.is_empty() {
                break;
            }
        }
        bench.room = ROOM;
        drop(bench.tick());
        prop_assert!(bench.isolated() && bench.tainted());

        // Everything ends, one body after the other and with times as long as they get; nothing of that may fail.
        for (i, body) in alerts.chunks(50).enumerate() {
            bench.wait(1);
            let over: Vec<Alert> = body.iter().map(|a| resolved(a, at(100) + jiff::SignedDuration::from_millis(flood.millis))).collect();
            for verdict in bench.hear(&over, false).verdicts {
                prop_assert!(matches!(verdict.outcome, Outcome::Resolved | Outcome::Unchanged), "body {}: {:?}", i, verdict);
            }
        }
        prop_assert!(bench.firing().is_empty());
        let overflow = bench.record().is_some_and(|r| r.overflow);
        for _ in 0..3 {
            bench.wait(2 * HOLD);
            drop(bench.tick());
        }
        let kept = overflow || flood.recovery.is_some();
        prop_assert_eq!(bench.isolated(), kept, "given back by itself, unless nobody knows everything");
        if kept && flood.recovery.is_none() {
            // A complete pull does know.
            drop(bench.hear(&[], true));
            prop_assert!(!bench.isolated() && !bench.tainted());
        }
    }

    #[test]
    fn many_episodes_on_one_node_fit(flood in flood(), rounds in 2_usize..6) {
        let mut bench = Bench::new(&plain_node(), config(false, "10m"));
        // So many in a row flap, and would wait for longer.
        (bench.config.flapping.longer_after, bench.config.flapping.person_after) = (0, 0);
        let alerts: Vec<Alert> = flood.alerts("isolate").into_iter().take(60).collect();
        for _ in 0..rounds {
            drop(bench.hear(&alerts, false));
            prop_assert!(bench.isolated());
            drop(bench.hear(&alerts, false));
            drop(bench.hear(&[], true));
            bench.wait(HOLD);
            drop(bench.tick());
            if flood.recovery.is_some() {
                bench.edit(|node| node["spec"]["taints"] = json!([]));
                drop(bench.tick());
            }
            prop_assert!(!bench.isolated());
        }
    }

    #[test]
    fn what_only_froze_the_node_can_isolate_it_after_a_reload(flood in flood()) {
        let mut bench = Bench::new(&plain_node(), config(false, "10m"));
        let alerts = flood.alerts("freeze");
        drop(bench.hear(&alerts, false));
        prop_assert!(!bench.isolated());
        // The policy "freeze" is now called something else, and isolates.
        for policy in &mut bench.config.policies {
            if policy.name == "freeze" {
                policy.name = "p".repeat(63);
                policy.action = gpu_quarantine::policy::Action::Isolate;
            }
        }
        drop(bench.hear(&alerts, false));
        prop_assert!(bench.isolated() && bench.tainted());
        let over: Vec<Alert> = alerts.iter().map(|a| resolved(a, at(100))).collect();
        drop(bench.hear(&over, false));
        prop_assert!(bench.firing().is_empty());
    }
}

#[test]
fn a_record_that_others_filled_up_takes_no_alert_and_says_so() {
    let mut node = plain_node();
    let mut record = json!({"v": 1, "owner": "default", "node": {"uid": "u-1", "bootID": "b-1"}, "claims": [], "future": ""});
    record["future"] = "f".repeat(MAX_BYTES - record.to_string().len()).into();
    node["metadata"]["annotations"][RECORD] = record.to_string().into();
    let mut bench = Bench::new(&node, config(false, "10m"));
    assert!(bench.record().is_some());
    let alert = firing(&[("alertname", "GpuLost")], "isolate", at(0));
    let verdict = bench.hear(std::slice::from_ref(&alert), false).verdicts.remove(0);
    assert_eq!(verdict.outcome, Outcome::Failed, "{}", verdict.reason);
    assert_eq!(alert.status, Status::Firing);
    assert!(!bench.tainted());
}

#[test]
fn an_isolating_alert_that_finds_the_record_full_of_others_is_not_said_to_be_recorded() {
    let mut bench = Bench::new(&plain_node(), config(false, "10m"));
    let frozen: Vec<Alert> =
        (0..200).map(|i| firing(&[("alertname", "DriverUpgrade"), ("link", &i.to_string())], "freeze", at(0))).collect();
    drop(bench.hear(&frozen, false));
    let alert = firing(&[("alertname", "GpuLost"), ("long", "x")], "isolate", at(0));
    let verdict = bench.hear(&[frozen[199].clone(), alert.clone()], false).verdicts.remove(1);
    assert_eq!(verdict.outcome == Outcome::Recorded, bench.tainted(), "{verdict:?}");
    drop(bench.hear(&[resolved(&frozen[0], at(10)), resolved(&frozen[1], at(10)), resolved(&frozen[2], at(10))], false));
    drop(bench.hear(std::slice::from_ref(&alert), false));
    assert!(bench.tainted(), "there is room again");
}

/// The end of each alert makes the record longer; members that are over must be able to go, also when all of a claim are.
#[test]
fn a_record_filled_to_the_brim_takes_the_end_of_every_alert_at_once() {
    let mut bench = Bench::new(&plain_node(), config(true, "10m"));
    let alerts: Vec<Alert> = (0..200)
        .map(|i| firing(&[("alertname", "GpuLink"), ("gpu", &(i % 20).to_string()), ("link", &i.to_string())], "isolate", at(0)))
        .collect();
    drop(bench.hear(&alerts, false));
    let over: Vec<Alert> = alerts.iter().map(|a| resolved(a, at(100))).collect();
    for verdict in bench.hear(&over, false).verdicts {
        assert!(matches!(verdict.outcome, Outcome::Resolved | Outcome::Unchanged), "{verdict:?}");
    }
    assert!(bench.firing().is_empty());
}
