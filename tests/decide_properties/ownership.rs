//! P2: isolate and release leave a node as it would be without us, whatever others did meanwhile.

use gpu_quarantine::alert::Alert;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use crate::bench::{Bench, HOLD, KEY, at, cases, config, firing, plain_node, resolved, without_us};

/// What others put on nodes. The last three have our key; only the very last one stands where ours would.
fn foreign() -> Vec<Value> {
    vec![
        json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}),
        json!({"key": "dedicated", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}),
        json!({"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}),
        json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-02-28T00:00:00Z"}),
        json!({"key": "x.example/new", "effect": "PreferNoSchedule", "futureField": {"a": [1, null, "b"]}}),
        json!({"key": "old.example/gpu-broken", "value": "isolate", "effect": "NoSchedule"}),
        json!({"key": KEY, "value": "isolate", "effect": "NoExecute"}),
        json!({"key": KEY, "value": "by-hand", "effect": "PreferNoSchedule"}),
        json!({"key": KEY, "value": "isolate", "effect": "NoSchedule", "timeAdded": "2026-02-01T00:00:00Z"}),
    ]
}

/// What another writer does.
#[derive(Debug, Clone)]
enum Edit {
    AddTaint(Value),
    RemoveTaint(Value),
    Label(&'static str, Option<&'static str>),
    Annotate(&'static str, Option<&'static str>),
    Cordon(bool),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let word = || prop::option::of(select(vec!["", "a", "b"]));
    let edit = prop_oneof![
        select(foreign()).prop_map(Edit::AddTaint),
        select(foreign()).prop_map(Edit::RemoveTaint),
        (select(vec!["zone", "rack", "gpu.example/slot"]), word()).prop_map(|(k, v)| Edit::Label(k, v)),
        (select(vec!["other.example/note", "gpu-quarantine.dev/comment", "n"]), word()).prop_map(|(k, v)| Edit::Annotate(k, v)),
        any::<bool>().prop_map(Edit::Cordon),
    ];
    vec(edit, 0..4)
}

fn same_place(a: &Value, b: &Value) -> bool {
    (&a["key"], &a["effect"]) == (&b["key"], &b["effect"])
}

fn set(map: &mut Value, key: &str, value: Option<&str>) {
    let mut fields = map.as_object().cloned().unwrap_or_default();
    match value {
        Some(value) => drop(fields.insert(key.to_owned(), value.into())),
        None => drop(fields.remove(key)),
    }
    *map = Value::Object(fields);
}

fn taints(node: &Value) -> Vec<Value> {
    node["spec"]["taints"].as_array().cloned().unwrap_or_default()
}

impl Edit {
    fn apply(&self, node: &mut Value) {
        match self {
            Self::AddTaint(taint) => {
                let mut list = taints(node);
                // The API server refuses a second one of the same key and effect.
                if !list.iter().any(|t| same_place(t, taint)) {
                    list.push(taint.clone());
                }
                node["spec"]["taints"] = list.into();
            }
            Self::RemoveTaint(taint) => {
                let mut list = taints(node);
                list.retain(|t| t != taint);
                node["spec"]["taints"] = list.into();
            }
            Self::Label(key, value) => set(&mut node["metadata"]["labels"], key, *value),
            Self::Annotate(key, value) => set(&mut node["metadata"]["annotations"], key, *value),
            Self::Cordon(on) => node["spec"]["unschedulable"] = (*on).into(),
        }
    }
}

/// A node with us, and beside it the same node as it would be without us.
struct Pair {
    bench: Bench,
    shadow: Value,
}

impl Pair {
    fn edit(&mut self, edits: &[Edit]) {
        for edit in edits {
            let ours = self.bench.record().and_then(|r| r.added);
            let (cordon, place) = ours.map_or((false, false), |a| (a.cordon, a.taint.is_some()));
            let apart = match edit {
                // A cordon over ours is seen by nobody (P2), and where our taint stands no other can be put.
                Edit::Cordon(_) => cordon,
                Edit::AddTaint(taint) | Edit::RemoveTaint(taint) => {
                    place && taint["key"] == KEY && taint["effect"] == "NoSchedule"
                }
                _ => false,
            };
            if !apart {
                self.bench.edit(|node| edit.apply(node));
                edit.apply(&mut self.shadow);
            }
        }
    }

    /// All that is foreign stands on the node, in its order.
    fn nothing_is_missing(&self) {
        let with_us = self.bench.raw();
        let added = self.bench.record().and_then(|r| r.added);
        let ours = added.as_ref().and_then(|a| a.taint.as_ref()).map(|t| json!(t));
        let rest: Vec<Value> = taints(&with_us).into_iter().filter(|t| Some(t) != ours.as_ref()).collect();
        assert_eq!(rest, taints(&self.shadow));
        assert_eq!(without_us(&with_us, true), without_us(&self.shadow, true));
        let cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
        assert!(cordoned(&with_us) || !cordoned(&self.shadow), "a foreign cordon is gone");
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn after_isolation_and_release_the_node_is_as_if_we_had_never_been(
        before in vec(select(foreign()), 0..6), cordoned in any::<bool>(), cordon in any::<bool>(), rounds in 1_usize..3,
        between in vec(edits(), 8),
    ) {
        let mut node = plain_node();
        Edit::Cordon(cordoned).apply(&mut node);
        for taint in before {
            Edit::AddTaint(taint).apply(&mut node);
        }
        let shadow = node.clone();
        let mut pair = Pair { bench: Bench::new(&node, config(cordon, "10m")), shadow };
        for round in 0..rounds {
            let edits = &between[round * 4..];
            pair.edit(&edits[0]);
            let now = pair.bench.now;
            let alert = firing(&[("alertname", "GpuLost"), ("gpu", "3")], "isolate", now);
            drop(pair.bench.hear(std::slice::from_ref(&alert), false));
            prop_assert!(pair.bench.isolated() && pair.bench.tainted());
            pair.nothing_is_missing();

            pair.edit(&edits[1]);
            pair.bench.wait(30);
            drop(pair.bench.tick());
            prop_assert!(pair.bench.tainted(), "the node is isolated as long as the alert fires");
            pair.nothing_is_missing();

            let over: Alert = resolved(&alert, at(60));
            drop(pair.bench.hear(&[over], false));
            prop_assert!(pair.bench.isolated(), "the hold-down runs");
            pair.edit(&edits[2]);
            pair.bench.wait(HOLD - 1);
            drop(pair.bench.tick());
            prop_assert!(pair.bench.isolated(), "the hold-down still runs");
            pair.edit(&edits[3]);
            pair.nothing_is_missing();

            pair.bench.wait(1);
            drop(pair.bench.tick());
            prop_assert_eq!(without_us(&pair.bench.raw(), false), without_us(&normal(&pair.shadow), false));
            let record = pair.bench.record().expect("the history stays");
            prop_assert!(record.claims.is_empty() && record.added.is_none() && record.before.is_none());
            prop_assert_eq!(record.history.len(), round + 1);
        }
    }
}

/// `unschedulable: false` is left out by the API server.
fn normal(node: &Value) -> Value {
    let mut node = node.clone();
    if node["spec"]["unschedulable"] == false
        && let Some(spec) = node["spec"].as_object_mut()
    {
        spec.remove("unschedulable");
    }
    node
}
