//! The identity of an alert is its labels: what changes in them ends one alert and begins another, which the receiver takes for a
//! repair. And they must lead to a node.

use std::{collections::BTreeSet, sync::LazyLock};

use regex::Regex;

use crate::{
    pack::{Named, no_problem, pack},
    promql::Expr,
};

/// What an alert may be told apart by. `class` is in the alert on a missing table of XIDs only. `gpu`, the index, is empty where
/// there is a UUID: the fold of normalise.yaml sees to that.
const STABLE: [&str; 8] = ["cluster", "node", "UUID", "gpu", "field", "reason", "name", "class"];
/// What must be in no alert: it changes with a pod, a scrape target, a replica, a reading or a version of the exporter.
const UNSTABLE: [&str; 14] = [
    "pod",
    "namespace",
    "container",
    "instance",
    "job",
    "value",
    "err_code",
    "err_msg",
    "xid",
    "message",
    "device",
    "pci_bus_id",
    "Hostname",
    "hostname",
];

fn labels(alert: &Named) -> BTreeSet<String> {
    pack().labels(&alert.expr)
}

#[test]
fn an_alert_has_only_labels_that_neither_a_restart_nor_an_eviction_changes() {
    no_problem(pack().alerts.iter().flat_map(|alert| {
        let all: BTreeSet<_> = labels(alert).into_iter().chain(alert.rule.labels.keys().cloned()).collect();
        let steers = |label: &str| alert.rule.labels.contains_key(label);
        let bad =
            all.into_iter().filter(move |l| UNSTABLE.contains(&l.as_str()) || (!STABLE.contains(&l.as_str()) && !steers(l)));
        bad.map(|l| {
            let what = if l == "*" { "every label of a scraped series".to_owned() } else { format!("the label {l}") };
            format!("{}: its result has {what}: aggregate by {STABLE:?} only, or stand on a gpu: or node: record", alert.place())
        })
    }));
}

#[test]
fn the_labels_of_a_result_are_told_as_prometheus_gives_them() {
    let of = |alert: &str| labels(pack().alert(alert)).into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(of("GpuXidGpuLost"), "UUID cluster gpu node", "through max by");
    assert_eq!(of("GpuEccDoubleBit"), "UUID cluster gpu node", "by its record");
    assert_eq!(of("GpuMissing"), "cluster node", "by `on`");
    assert_eq!(of("GpuFieldMissing"), "cluster field node", "the record adds a label");
    assert_eq!(of("GpuRulesIncomplete"), "class name", "absent() gives what it was asked for");
    assert_eq!(of("GpuQuarantineWatchdog"), "", "a number has none");
}

#[test]
fn no_label_is_a_template() {
    no_problem(pack().rules().flat_map(|rule| {
        let bad = rule.rule.labels.iter().filter(|(_, value)| value.contains("{{") || value.contains("}}"));
        bad.map(|(label, _)| format!("{}: label {label} is a template: write a fixed value", rule.place()))
    }));
}

#[test]
fn an_alert_that_acts_names_its_node_and_one_about_a_gpu_its_gpu() {
    no_problem(pack().alerts.iter().flat_map(|alert| {
        let labels = labels(alert);
        let mut wanted = Vec::new();
        if alert.label("remediation") != "observe" {
            wanted.push("node");
        }
        if alert.label("gpu_scope") == "gpu" {
            wanted.extend(["node", "UUID", "gpu"]);
        }
        let missing: BTreeSet<_> = wanted.into_iter().filter(|l| !labels.contains(*l)).collect();
        missing.into_iter().map(|l| format!("{}: its result has no label {l}", alert.place()))
    }));
}

#[test]
fn a_template_names_only_labels_that_the_alert_has() {
    static LABEL: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\$labels\.(\w+)").unwrap());
    no_problem(pack().alerts.iter().flat_map(|alert| {
        let known = labels(alert);
        let texts = alert.rule.annotations.iter();
        let named = texts.flat_map(|(name, text)| LABEL.captures_iter(text).map(move |c| (name, c[1].to_owned())));
        let unknown: BTreeSet<_> = named.filter(|(_, label)| !known.contains(label)).collect();
        unknown.into_iter().map(|(name, label)| format!("{}: {name} shows $labels.{label}, which it has not", alert.place()))
    }));
}

#[test]
fn a_recovery_is_proven_by_series_of_the_same_node_and_gpu() {
    no_problem(pack().alerts.iter().filter_map(|alert| {
        let query = alert.recovery_query.as_ref()?;
        let pieces = query.all();
        let asked = alert.rule.annotations["recovery_query"].as_str();
        let about = |label: &str| asked.contains(&format!("{label}={{{{ printf \"%q\" $labels.{label} }}}}"));
        let wanted: &[&str] = if alert.label("gpu_scope") == "gpu" { &["node", "UUID", "gpu"] } else { &["node"] };
        let made = |e: &&&Expr| e.is_call("absent") || e.is_call("vector") || e.is_call("absent_over_time");
        if let Some(made) = pieces.iter().find(made) {
            return Some(format!("{}: recovery_query takes silence for a repair: {made:?}", alert.place()));
        }
        let missing: Vec<_> = wanted.iter().filter(|l| !about(l)).collect();
        (!missing.is_empty()).then(|| format!("{}: recovery_query does not ask for its own {missing:?}", alert.place()))
    }));
}
