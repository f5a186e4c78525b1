//! What every file, group and alert must have.

use std::{collections::BTreeSet, sync::LazyLock, time::Duration};

use regex::Regex;

use crate::pack::{Named, no_problem, pack};

/// The labels of an alert and their values; `fault` is a word of its own.
const LABELS: [(&str, &[&str]); 4] = [
    ("severity", &["critical", "warning", "info", "none"]),
    ("remediation", &["observe", "freeze", "isolate", "evict"]),
    ("gpu_scope", &["gpu", "node"]),
    ("recovery", &["auto", "reboot", "replace", "manual"]),
];

/// The problems that a check finds in each alert, with the place before them.
fn in_each_alert(check: impl Fn(&Named) -> Vec<String>) {
    no_problem(pack().alerts.iter().flat_map(|a| check(a).into_iter().map(|p| format!("{}: {p}", a.place()))));
}

#[test]
fn every_file_has_a_group_of_its_name_and_no_name_is_used_twice() {
    let (mut groups, mut alerts, mut problems) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for file in &pack().files {
        let wanted = format!("gpu-quarantine-{}", file.name);
        if file.groups.first().is_none_or(|g| g.name != wanted) {
            problems.push(format!("alert-rules/{}.yaml: call its first group {wanted}", file.name));
        }
        for group in &file.groups {
            if !groups.insert(&group.name) || !group.name.starts_with("gpu-quarantine-") {
                problems.push(format!("alert-rules/{}.yaml: group {}: give it a name of its own", file.name, group.name));
            }
            if humantime::parse_duration(&group.interval).is_err() || group.rules.is_empty() {
                problems.push(format!("alert-rules/{}.yaml: group {} needs an interval and a rule", file.name, group.name));
            }
        }
    }
    problems.extend(pack().alerts.iter().filter(|a| !alerts.insert(&a.name)).map(|a| format!("{}: a second one", a.place())));
    problems.extend(pack().records.iter().filter_map(|r| {
        let bare = r.rule.r#for.is_none() && r.rule.keep_firing_for.is_none() && r.rule.annotations.is_empty();
        (!bare).then(|| format!("{}: a record has only an expression and labels", r.place()))
    }));
    no_problem(problems);
    assert!(alerts.len() > 30, "only {} alerts were found", alerts.len());
}

#[test]
fn every_alert_has_the_labels_that_steer_the_receiver_and_no_others() {
    static FAULT: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[a-z0-9]+(-[a-z0-9]+)*$").unwrap());
    in_each_alert(|alert| {
        let mut problems = Vec::new();
        for (label, values) in LABELS {
            if !values.contains(&alert.label(label)) {
                problems.push(format!("label {label} is {:?}: write one of {}", alert.label(label), values.join(", ")));
            }
        }
        if !FAULT.is_match(alert.label("fault")) {
            problems.push(format!("label fault is {:?}: write words-like-these", alert.label("fault")));
        }
        let known = |label: &str| label == "fault" || LABELS.iter().any(|(l, _)| *l == label);
        problems.extend(alert.rule.labels.keys().filter(|l| !known(l)).map(|l| format!("label {l} steers nothing: remove it")));
        problems
    });
}

#[test]
fn every_alert_says_what_it_is_and_where_its_runbook_is() {
    in_each_alert(|alert| {
        let mut wanted = BTreeSet::from(["summary", "description", "runbook_url"]);
        if alert.label("recovery") == "auto" {
            wanted.insert("recovery_query");
        }
        let annotations = &alert.rule.annotations;
        let mut problems = Vec::new();
        if !annotations.keys().map(String::as_str).eq(wanted.iter().copied()) {
            let has: Vec<_> = annotations.keys().cloned().collect();
            problems.push(format!("has the annotations {has:?} and needs {wanted:?} (recovery_query with recovery auto only)"));
        }
        let text = |name: &str| annotations.get(name).map_or("", String::as_str);
        if text("summary").contains("{{") || text("summary").ends_with('.') {
            problems.push("the summary is the same for each node and has no full stop".to_owned());
        }
        if !text("description").ends_with(['.', '?']) {
            problems.push("the description is a sentence".to_owned());
        }
        if !text("runbook_url").ends_with(&format!("/{}", alert.name)) {
            problems.push(format!("runbook_url is {:?}: end it in /{}", text("runbook_url"), alert.name));
        }
        problems
    });
}

#[test]
fn a_freeze_ends_by_itself() {
    // src/quarantine/release.rs waits for a person where a claim asks for one: a freeze that did would strand its node.
    in_each_alert(|alert| {
        let strands = alert.label("remediation") == "freeze" && alert.label("recovery") != "auto";
        Vec::from_iter(strands.then(|| "a freeze that needs a person would strand its node: recovery must be auto".to_owned()))
    });
}

#[test]
fn no_blindness_no_fault_of_ours_and_no_program_of_a_user_isolates() {
    let from_programs = |alert: &Named| pack().reads(&alert.expr).iter().any(|e| e.equals("class") == Some("application"));
    in_each_alert(|alert| {
        let acts = ["isolate", "evict"].contains(&alert.label("remediation"));
        let (ours, programs) = (["blind", "receiver"].contains(&alert.file.as_str()), from_programs(alert));
        let acts_on_programs = programs && alert.label("remediation") != "observe";
        let mut problems = Vec::new();
        problems.extend((acts && ours).then(|| "nothing in this file may isolate".to_owned()));
        problems.extend(acts_on_programs.then(|| "it reads application XIDs: only observe".to_owned()));
        problems
    });
    assert!(from_programs(pack().alert("GpuXidApplicationRepeated")), "application XIDs are recognised");
}

#[test]
fn every_alert_outlasts_a_restart_of_prometheus_or_is_faster_than_it() {
    // Prometheus restores an alert's `for` only from 10 min on (rules.alert.for-grace-period). What lies between starts again
    // after a restart, stays away for longer than the 4 minutes for which Alertmanager believes the last firing, and so is
    // resolved although nothing was repaired.
    const BELOW: Duration = Duration::from_mins(2);
    const FROM: Duration = Duration::from_mins(10);
    in_each_alert(|alert| {
        let duration = |text: &Option<String>| text.as_deref().and_then(|t| humantime::parse_duration(t).ok());
        let mut problems = Vec::new();
        match duration(&alert.rule.r#for) {
            Some(patience) if patience <= BELOW || patience >= FROM => {}
            Some(_) => problems.push("`for` is between 2m and 10m: a restart of Prometheus resolves it falsely".to_owned()),
            None => problems.push("`for` is missing: write 0s if it fires at once".to_owned()),
        }
        if duration(&alert.rule.keep_firing_for).is_none() {
            problems.push("keep_firing_for is missing: write 0s if it ends at once".to_owned());
        }
        problems
    });
}

#[test]
fn every_alert_has_a_comment_on_its_patience_directly_above_it() {
    in_each_alert(|alert| {
        let file = pack().files.iter().find(|f| f.name == alert.file).unwrap();
        let lines: Vec<_> = file.text.lines().map(str::trim).collect();
        let at = lines.iter().position(|l| *l == format!("- alert: {}", alert.name)).unwrap();
        let told = at > 0 && lines[at - 1].starts_with('#');
        Vec::from_iter((!told).then(|| "say in a comment directly above why it waits so long and stays so long".to_owned()))
    });
}
