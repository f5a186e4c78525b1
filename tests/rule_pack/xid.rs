//! xid-classes.yaml against NVIDIA's catalogue (`fixtures/xid.csv`) and what other programs make of it (`fixtures/xid-vendors.csv`).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    pack::{Named, RuleFile, no_problem, pack, read},
    promql::Expr,
};

const CLASSES: [&str; 9] =
    ["gpu-lost", "memory-uncontained", "memory-contained", "reset-needed", "nvlink", "firmware", "power", "application", "other"];
const MACHINE: [&str; 3] = ["RESET_GPU", "RESTART_BM", "RESTART_VM"];
/// The other immediate actions of the catalogue after which a GPU must not simply go on.
const WORKFLOWS: [&str; 3] = ["WORKFLOW_XID_48", "WORKFLOW_NVLINK_ERR", "CHECK_MECHANICALS"];

/// The cells of a line, of which some are in quotes; a quote within is doubled.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().unwrap().push(c),
        }
    }
    cells
}

/// The column of a table with one row per XID.
fn column(path: &str, name: &str) -> BTreeMap<u32, String> {
    let text = read(path);
    let mut rows = text.lines().map(cells);
    let at = rows.next().unwrap().iter().position(|c| c == name).unwrap_or_else(|| panic!("{path} has no column {name}"));
    rows.map(|row| (row[0].parse().unwrap(), row[at].clone())).collect()
}

struct Line {
    xid: u32,
    class: &'static str,
    /// The comment above it says why.
    has_reason: bool,
}

fn file() -> &'static RuleFile {
    pack().files.iter().find(|f| f.name == "xid-classes").unwrap()
}

fn records() -> impl Iterator<Item = &'static Named> {
    pack().records.iter().filter(|r| r.file == "xid-classes")
}

/// The lines of the file; what is wrong with one is for [`each_line_says_the_same_number_twice_and_a_known_class`].
fn lines() -> Vec<Line> {
    let text: Vec<_> = file().text.lines().map(str::trim).collect();
    let line = |r: &'static Named| {
        let xid = r.label("xid");
        let at = text.iter().position(|l| l.contains(&format!("xid: \"{xid}\""))).unwrap();
        Line { xid: xid.parse().unwrap(), class: r.label("class"), has_reason: at > 0 && text[at - 1].starts_with('#') }
    };
    records().map(line).collect()
}

fn isolates(class: &str) -> bool {
    alerts_on(class).iter().any(|a| ["isolate", "evict"].contains(&a.label("remediation")))
}

/// The alerts that read a class themselves, and those that read the record of its XIDs.
fn alerts_on(class: &str) -> Vec<&'static Named> {
    let is_class =
        |e: &Expr| matches!(e, Expr::Series { name, .. } if name == "gpu:xid_class") && e.equals("class") == Some(class);
    pack().alerts.iter().filter(|a| pack().reads(&a.expr).into_iter().any(is_class)).collect()
}

#[test]
fn each_line_says_the_same_number_twice_and_a_known_class() {
    no_problem(records().filter_map(|r| {
        let (xid, class) = (r.label("xid"), r.label("class"));
        let plain = Expr::Call { function: "vector".to_owned(), args: vec![Expr::Number(xid.parse().unwrap_or(-1.0))] };
        let same = r.name == "gpu:xid_class" && r.expr == plain && r.rule.labels.len() == 2;
        (!same || !CLASSES.contains(&class)).then(|| {
            format!(
                "{}: XID {xid:?} with {} and class {class:?}: write vector({xid}) and one of {CLASSES:?}",
                r.place(),
                r.rule.expr
            )
        })
    }));
}

#[test]
fn each_xid_of_the_catalogue_has_one_line_and_there_is_no_other() {
    let there: Vec<_> = lines().iter().map(|l| l.xid).collect();
    for table in ["fixtures/xid.csv", "fixtures/xid-vendors.csv"] {
        let catalogue: Vec<_> = column(table, "xid").into_keys().collect();
        assert_eq!(there, catalogue, "alert-rules/xid-classes.yaml: one line for each XID of {table}, in order");
    }
    assert_eq!(there.len(), 173);
}

#[test]
fn a_class_follows_the_catalogue_or_a_comment_says_why_not() {
    let (actions, scopes) = (column("fixtures/xid.csv", "recommended_action"), column("fixtures/xid.csv", "scope"));
    no_problem(lines().into_iter().filter_map(|line| {
        let (action, scope) = (actions[&line.xid].as_str(), scopes[&line.xid].as_str());
        let of_a_program = line.class == "application";
        let follows = match (action, scope) {
            ("RESTART_APP", "app") => of_a_program,
            (action, _) if MACHINE.contains(&action) => isolates(line.class),
            // No XID isolates on our word alone.
            (action, scope) => WORKFLOWS.contains(&action) || (!isolates(line.class) && (!of_a_program || scope == "app")),
        };
        (!follows && !line.has_reason).then(|| {
            let (xid, class) = (line.xid, line.class);
            format!("alert-rules/xid-classes.yaml: XID {xid} is {class} and the catalogue says {action}, scope {scope}: say why above it")
        })
    }));
}

#[test]
fn what_the_device_plugin_ignores_as_a_programs_fault_never_isolates() {
    let plugin = column("fixtures/xid-vendors.csv", "k8s_device_plugin");
    let ignored: Vec<_> = lines().into_iter().filter(|l| plugin[&l.xid] == "ignored").collect();
    assert_eq!(ignored.len(), 6, "the column is read");
    assert!(
        ignored.iter().all(|l| l.class == "application"),
        "{:?}",
        ignored.iter().map(|l| (l.xid, l.class)).collect::<Vec<_>>()
    );
}

#[test]
fn the_xids_that_everybody_knows_have_the_class_that_everybody_expects() {
    let classes: BTreeMap<_, _> = lines().into_iter().map(|l| (l.xid, l.class)).collect();
    for (xid, class) in [
        (13, "application"),
        (31, "application"),
        (43, "application"),
        (45, "application"),
        (48, "memory-uncontained"),
        (74, "nvlink"),
        (79, "gpu-lost"),
        (95, "memory-uncontained"),
        (119, "firmware"),
    ] {
        assert_eq!(classes[&xid], class, "XID {xid}");
    }
}

#[test]
fn every_class_has_one_alert_and_the_table_at_the_top_says_which() {
    let (table, _) = file().text.split_once("\ngroups:").unwrap();
    let mut told = BTreeSet::new();
    for row in table.lines().filter_map(|l| l.strip_prefix("#   ")) {
        let words: Vec<_> = row.split_whitespace().collect();
        let [class, .., alert, remediation] = words.as_slice() else {
            panic!("a row of the table at the top is too short: {row}")
        };
        assert!(told.insert(*class), "the table at the top of xid-classes.yaml has {class} twice");
        let alerts = alerts_on(class);
        // Application XIDs are read through a record, of which the second alert counts the workloads.
        let alerts: Vec<_> = alerts.iter().filter(|a| a.name != "GpuXidApplicationRepeated").collect();
        let [alert_of_class] = alerts.as_slice() else {
            panic!("class {class}: one alert must read it, not {:?}", alerts.iter().map(|a| &a.name).collect::<Vec<_>>())
        };
        let is = (alert_of_class.name.as_str(), alert_of_class.label("remediation"));
        assert_eq!((*alert, *remediation), is, "the table at the top of xid-classes.yaml, class {class}");
    }
    assert_eq!(told, BTreeSet::from(CLASSES), "the table at the top of xid-classes.yaml");
}
