//! What is written about the alerts: runbooks, promtool tests, the table in docs/alerts.md, and advice that would do harm.

use std::{collections::BTreeSet, fs, path::Path};

use serde::{Deserialize, de::IgnoredAny};

use crate::{
    pack::{check_generated, files_in, no_problem, pack, read, root},
    promql::Expr,
};

const HEADINGS: [&str; 8] = [
    "Meaning",
    "Failure domain",
    "Evidence to save first",
    "What gpu-quarantine does",
    "What to do",
    "How recovery is verified",
    "When it recurs",
    "Related XIDs",
];

const TABLE: &str = "docs/alerts.md";
const BEGIN: &str = "<!-- generated: alerts -->\n";
const END: &str = "<!-- end -->";

/// A promtool test file, so far as it is about alerts.
#[derive(Deserialize)]
struct TestFile {
    tests: Vec<TestGroup>,
}

#[derive(Deserialize)]
struct TestGroup {
    #[serde(default)]
    alert_rule_test: Vec<AlertTest>,
}

#[derive(Deserialize)]
struct AlertTest {
    alertname: String,
    #[serde(default)]
    exp_alerts: Option<Vec<IgnoredAny>>,
}

fn alert_names() -> BTreeSet<&'static str> {
    pack().alerts.iter().map(|a| a.name.as_str()).collect()
}

/// The lines of a Markdown page with whether each is in a fenced block.
fn lines(page: &str) -> Vec<(bool, &str)> {
    let mut fenced = false;
    let lines = page.lines().map(|line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (fenced || fence, line)
    });
    lines.collect()
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let pages: BTreeSet<_> = files_in("docs/runbooks", "md").into_iter().filter(|p| !p.ends_with("/README.md")).collect();
    let wanted: BTreeSet<_> = alert_names().into_iter().map(|a| format!("docs/runbooks/{a}.md")).collect();
    let missing = wanted.difference(&pages).map(|p| format!("{p} is missing"));
    let without = pages.difference(&wanted).map(|p| format!("{p}: alert-rules/ has no such alert"));
    no_problem(missing.chain(without));
}

#[test]
fn every_runbook_answers_the_same_questions_in_the_same_order() {
    let there = pack().alerts.iter().filter(|a| root().join(format!("docs/runbooks/{}.md", a.name)).exists());
    no_problem(there.filter_map(|alert| {
        let path = format!("docs/runbooks/{}.md", alert.name);
        let page = read(&path);
        let headings: Vec<_> =
            lines(&page).into_iter().filter(|(fenced, l)| !fenced && l.starts_with('#')).map(|(_, l)| l).collect();
        let wanted: Vec<_> = [format!("# {}", alert.name)].into_iter().chain(HEADINGS.map(|h| format!("## {h}"))).collect();
        (headings != wanted).then(|| format!("{path} has the headings {headings:?}, not {wanted:?}"))
    }));
}

#[test]
fn every_alert_is_shown_to_fire_and_to_stay_quiet() {
    let (mut fires, mut quiet, mut problems) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for path in files_in("alert-rules/tests", "yaml") {
        let file: TestFile = serde_saphyr::from_str(&read(&path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        for test in file.tests.into_iter().flat_map(|t| t.alert_rule_test) {
            if !alert_names().contains(test.alertname.as_str()) {
                // promtool is content if such an alert is expected to stay quiet.
                problems.push(format!("{path}: alert-rules/ has no alert {}", test.alertname));
            }
            let firing = test.exp_alerts.is_some_and(|alerts| !alerts.is_empty());
            if firing { &mut fires } else { &mut quiet }.insert(test.alertname);
        }
    }
    for alert in &pack().alerts {
        // What reads no series always fires.
        let can_be_quiet = alert.expr.all().iter().any(|e| matches!(e, Expr::Series { .. }));
        if !fires.contains(&alert.name) {
            problems.push(format!("alert-rules/tests: {} needs a test in which it fires (exp_alerts)", alert.name));
        }
        if can_be_quiet && !quiet.contains(&alert.name) {
            problems.push(format!("alert-rules/tests: {} needs a test in which it stays quiet (no exp_alerts)", alert.name));
        }
    }
    no_problem(problems);
}

/// One table for each rule file that has alerts.
fn tables() -> String {
    let mut text = String::new();
    for file in &pack().files {
        let alerts: Vec<_> = pack().alerts.iter().filter(|a| a.file == file.name).collect();
        if alerts.is_empty() {
            continue;
        }
        text += &format!("\n### `{}.yaml`\n\n", file.name);
        text += "| alert | fault | severity | remediation | scope | for | keep_firing_for | recovery |\n";
        text += "|---|---|---|---|---|---|---|---|\n";
        for alert in alerts {
            let name = &alert.name;
            let [patience, kept] = [&alert.rule.r#for, &alert.rule.keep_firing_for].map(|d| d.as_deref().unwrap_or_default());
            let [fault, severity, remediation, scope, recovery] =
                ["fault", "severity", "remediation", "gpu_scope", "recovery"].map(|l| alert.label(l));
            text += &format!("| [`{name}`](runbooks/{name}.md) | {fault} | {severity} | {remediation} ");
            text += &format!("| {scope} | {patience} | {kept} | {recovery} |\n");
        }
    }
    text
}

#[test]
fn the_table_of_alerts_is_what_the_rules_say() {
    let page = read(TABLE);
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let Some((before, after)) = parts else { panic!("{TABLE} must have a line {BEGIN:?} and below it {END:?}") };
    check_generated(TABLE, &format!("{before}{BEGIN}{}\n{END}{after}", tables()));
}

/// The files below a directory.
fn below(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

#[test]
fn nobody_is_advised_to_inhibit_alerts() {
    // An alert that is inhibited when it ends is never reported as resolved, and one that begins meanwhile may never be reported:
    // Alertmanager then strands nodes, or leaves broken ones in service.
    let shipped = ["deploy", "docs"].into_iter().flat_map(|d| below(&root().join(d))).chain([root().join("README.md")]);
    no_problem(shipped.filter_map(|path| {
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        let is_page = path.extension().is_some_and(|e| e == "md");
        // In a page, prose may speak of it; elsewhere, a comment.
        let counts = |(fenced, line): &(bool, &str)| if is_page { *fenced } else { !line.trim_start().starts_with('#') };
        let (_, line) = lines(&text).into_iter().filter(counts).find(|(_, line)| line.contains("inhibit_rules"))?;
        Some(format!("{}: no inhibit rule may reach alerts with a remediation: {line}", path.display()))
    }));
}
