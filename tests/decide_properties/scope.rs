//! P7: which nodes are written at all, and which taints are ever added or removed.

use gpu_quarantine::{
    alert::Alert,
    quarantine::{Outcome, Standing, standing},
};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::bench::{Bench, FORMER, HOLD, KEY, NO_ROOM, RECORD, ROOM, at, cases, config, firing, plain_node, resolved};

/// What is done to a node so that it is not, or no longer, to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    ControlPlaneLabel,
    MasterLabel,
    ControlPlaneTaint,
    NotSelected,
    Never,
    Ignore,
}

const MARKS: [Mark; 6] =
    [Mark::ControlPlaneLabel, Mark::MasterLabel, Mark::ControlPlaneTaint, Mark::NotSelected, Mark::Never, Mark::Ignore];

impl Mark {
    fn put(self, node: &mut Value) {
        let control_plane = "node-role.kubernetes.io/control-plane";
        match self {
            Self::ControlPlaneLabel => node["metadata"]["labels"][control_plane] = "".into(),
            Self::MasterLabel => node["metadata"]["labels"]["node-role.kubernetes.io/master"] = "".into(),
            Self::ControlPlaneTaint => {
                let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
                taints.push(json!({"key": control_plane, "effect": "NoSchedule"}));
                node["spec"]["taints"] = taints.into();
            }
            Self::NotSelected => node["metadata"]["labels"]["nvidia.com/gpu.present"] = "false".into(),
            Self::Never => node["metadata"]["labels"]["team"] = "infra".into(),
            Self::Ignore => node["metadata"]["annotations"]["gpu-quarantine.dev/ignore"] = "do not touch".into(),
        }
    }

    /// Whether not even a release is written.
    fn is_absolute(self) -> bool {
        !matches!(self, Self::NotSelected | Self::Never)
    }
}

/// What is heard: alerts of a few GPUs, firing or over, in one body; how long after the one before; whether it is all there is.
type Body = (Vec<(u8, bool)>, i64, bool);

fn bodies() -> impl Strategy<Value = Vec<Body>> {
    let body = vec((0_u8..3, any::<bool>()), 0..3);
    vec((body, prop_oneof![0_i64..60, HOLD..HOLD + 60], any::<bool>()), 1..6)
}

fn alerts(body: &[(u8, bool)], remediation: &str) -> Vec<Alert> {
    let mut seen = Vec::new();
    for (gpu, fires) in body {
        let alert = firing(&[("alertname", "GpuLost"), ("gpu", &gpu.to_string())], remediation, at(0));
        if !seen.iter().any(|a: &Alert| a.fingerprint == alert.fingerprint) {
            seen.push(if *fires { alert } else { resolved(&alert, at(30)) });
        }
    }
    seen
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn a_node_that_is_not_ours_is_never_written(
        mark in select(MARKS.to_vec()), bodies in bodies(), garbage in prop::option::of(select(vec!["{", "[]", "", "{\"v\":1}"])),
    ) {
        let mut node = plain_node();
        mark.put(&mut node);
        // Rubbish where our record would be does not make it ours.
        if let Some(garbage) = garbage {
            node["metadata"]["annotations"][RECORD] = garbage.into();
        }
        let mut bench = Bench::new(&node, config(true, "10m"));
        for (body, pause, complete) in bodies {
            bench.wait(pause);
            let alerts = alerts(&body, "isolate");
            let decision = bench.hear(&alerts, complete);
            prop_assert_eq!(decision.patch, None);
            for (alert, verdict) in alerts.iter().zip(&decision.verdicts) {
                let expected = if mark == Mark::Ignore { Outcome::Ignored } else { Outcome::OutOfScope };
                prop_assert!(alert.ends_at.is_some() || verdict.outcome == expected, "{:?}", verdict);
            }
        }
    }

    #[test]
    fn a_node_that_stops_being_ours_gets_no_new_claims_and_is_given_back_unless_nobody_may_touch_it(
        mark in select(MARKS.to_vec()), bodies in bodies(), room in any::<bool>(),
    ) {
        let mut bench = Bench::new(&plain_node(), config(true, "10m"));
        if !room {
            bench.room = NO_ROOM;
        }
        let first = firing(&[("alertname", "GpuLost"), ("gpu", "0")], "isolate", at(0));
        drop(bench.hear(std::slice::from_ref(&first), false));
        bench.edit(|node| mark.put(node));
        bench.room = ROOM;
        let (marked, claims) = (bench.raw(), 1);
        for (body, pause, complete) in bodies {
            bench.wait(pause);
            let decision = bench.hear(&alerts(&body, "isolate"), complete);
            if mark.is_absolute() {
                prop_assert_eq!(decision.patch, None);
                prop_assert_eq!(&bench.raw(), &marked);
            }
            prop_assert!(room || !bench.tainted(), "a node out of scope is not isolated, whatever waits on its record");
            prop_assert!(bench.record().is_none_or(|r| r.claims.len() <= claims));
        }
        drop(bench.hear(&[resolved(&first, at(60))], false));
        bench.wait(HOLD);
        drop(bench.tick());
        if mark.is_absolute() {
            prop_assert_eq!(&bench.raw(), &marked);
        } else {
            prop_assert!(!bench.tainted() && !bench.facts().unschedulable);
            prop_assert!(matches!(standing(&bench.facts(), &bench.config), Standing::OutOfScope(_)));
        }
    }

    #[test]
    fn only_taints_of_our_key_and_former_ones_are_removed_and_only_ours_is_added_whatever_a_record_claims(
        key in select(vec![KEY, FORMER, "dedicated", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"]),
        effect in select(vec!["NoSchedule", "NoExecute", "PreferNoSchedule"]), value in select(vec!["isolate", "other"]),
        stands in any::<bool>(), stands_otherwise in any::<bool>(), cordon in any::<bool>(), fires in any::<bool>(),
        bodies in bodies(),
    ) {
        let mut node = plain_node();
        let taint = json!({"key": key, "value": value, "effect": effect});
        let mut taints = vec![json!({"key": "dedicated", "value": "isolate", "effect": "NoSchedule"})];
        if stands && key != "dedicated" {
            let mut standing = taint.clone();
            if stands_otherwise {
                standing["value"] = "set-by-somebody-else".into();
            }
            taints.push(standing);
        }
        node["spec"] = json!({"taints": taints, "unschedulable": cordon});
        let mut member = json!({"fp": "17ca147fb85cd638", "startsAt": at(-60).to_string()});
        if !fires {
            member["endsAt"] = at(-30).to_string().into();
        }
        let record = json!({
            "v": 1, "owner": "default", "node": {"uid": "u-1", "bootID": "b-1"},
            "added": {"taint": taint, "cordon": cordon, "at": at(-60).to_string()}, "before": {"unschedulable": false},
            "claims": [{
                "alert": "GpuLost", "gpu": "index:7", "policy": "isolate", "action": "isolate",
                "state": if fires { "firing" } else { "cleared" }, "since": at(-60).to_string(),
                "cleared": if fires { Value::Null } else { at(-30).to_string().into() }, "members": [member],
            }],
        });
        node["metadata"]["annotations"][RECORD] = record.to_string().into();
        let mut bench = Bench::new(&node, config(false, "10m"));
        prop_assert!(bench.record().is_some(), "the record by hand is one: {record}");
        // What may not be added or removed is checked on the way.
        for (body, pause, complete) in bodies {
            bench.wait(pause);
            drop(bench.hear(&alerts(&body, "isolate"), complete));
        }
        drop(bench.hear(&[], true));
        bench.wait(HOLD);
        drop(bench.tick());
        let ours = |t: &&gpu_quarantine::locate::Taint| [KEY, FORMER].contains(&t.key.as_str());
        let facts = bench.facts();
        let left: Vec<_> = facts.taints.iter().filter(ours).filter(|t| t.value.as_deref() != Some("set-by-somebody-else")).collect();
        prop_assert!(left.is_empty(), "what was ours is gone in the end: {:?}", left);
    }
}

#[test]
fn a_frozen_node_is_never_isolated_by_that_and_not_given_back_while_it_lasts() {
    let mut bench = Bench::new(&plain_node(), config(false, "10m"));
    let freeze = firing(&[("alertname", "DriverUpgrade")], "freeze", at(0));
    let lost = firing(&[("alertname", "GpuLost"), ("gpu", "1")], "isolate", at(0));
    assert_eq!(bench.hear(std::slice::from_ref(&freeze), false).verdicts[0].outcome, Outcome::Frozen);
    assert!(!bench.isolated());
    drop(bench.hear(std::slice::from_ref(&lost), false));
    drop(bench.hear(&[resolved(&lost, at(10))], false));
    bench.wait(3 * HOLD);
    drop(bench.tick());
    assert!(bench.tainted(), "frozen");
    drop(bench.hear(&[resolved(&freeze, at(10))], false));
    bench.wait(HOLD);
    drop(bench.tick());
    assert!(!bench.tainted());
}
