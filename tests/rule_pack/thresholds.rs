//! The numbers that people tune are in thresholds.yaml, each once, and are missed when they are not loaded.

use std::collections::BTreeSet;

use crate::{
    pack::{no_problem, pack},
    promql::{Expr, compares},
};

/// What an alert may compare with in its own words: states that the driver and DCGM number (0 to 4, 20), and nothing at all.
/// Anything else is a matter of taste, and belongs where people look for it.
const STATES: [f64; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 20.0];

/// The thresholds that are asked for.
fn asked<'a>(pieces: impl IntoIterator<Item = &'a Expr>) -> BTreeSet<&'a str> {
    let thresholds = pieces.into_iter().filter(|e| matches!(e, Expr::Series { name, .. } if name == "gpu:threshold"));
    thresholds.map(|e| e.equals("name").unwrap_or("a threshold without name=\"...\"")).collect()
}

fn read() -> BTreeSet<&'static str> {
    asked(pack().rules().flat_map(crate::pack::Named::exprs).flat_map(Expr::read))
}

fn defined() -> Vec<&'static str> {
    pack().records.iter().filter(|r| r.name == "gpu:threshold").map(|r| r.label("name")).collect()
}

#[test]
fn every_threshold_is_defined_once_in_its_file_and_read() {
    let (defined, read) = (defined(), read());
    let unique: BTreeSet<_> = defined.iter().copied().collect();
    assert_eq!(unique.len(), defined.len(), "alert-rules/thresholds.yaml: one is there twice: {defined:?}");
    let undefined =
        read.difference(&unique).map(|t| format!("an expression reads {t}: define it in alert-rules/thresholds.yaml"));
    let unread = unique.difference(&read).map(|t| format!("alert-rules/thresholds.yaml: nothing reads {t}: remove it"));
    let elsewhere = pack().records.iter().filter(|r| r.name == "gpu:threshold" && r.file != "thresholds");
    let elsewhere = elsewhere.map(|r| format!("{}: define it in alert-rules/thresholds.yaml", r.place()));
    no_problem(undefined.chain(unread).chain(elsewhere));
    assert!(read.len() > 10, "only {} thresholds were found", read.len());
}

#[test]
fn a_threshold_that_is_not_loaded_is_missed() {
    let incomplete = pack().alert("GpuRulesIncomplete");
    let missed = asked(incomplete.expr.all());
    assert_eq!(missed, read(), "{} must ask for exactly the thresholds that are read", incomplete.place());
    let classes = incomplete.expr.all().into_iter().any(|e| matches!(e, Expr::Series { name, .. } if name == "gpu:xid_class"));
    assert!(classes, "{} must ask for the classes of XIDs too", incomplete.place());
}

/// The numbers that something is compared with, where one side is nothing but numbers.
fn compared(expr: &Expr) -> Vec<f64> {
    let Expr::Binary { operator, sides, .. } = expr else { return Vec::new() };
    let is_constant = |side: &&Expr| !side.all().iter().any(|e| matches!(e, Expr::Series { .. }));
    let sides = sides.iter().filter(|_| compares(operator)).filter(is_constant);
    sides.flat_map(Expr::all).filter_map(|e| if let Expr::Number(number) = e { Some(*number) } else { None }).collect()
}

#[test]
fn no_alert_compares_with_a_number_of_its_own() {
    no_problem(pack().alerts.iter().flat_map(|alert| {
        let numbers = alert.exprs().flat_map(Expr::all).flat_map(compared);
        let own = numbers.filter(|n| STATES.iter().all(|s| (s - n).abs() > f64::EPSILON));
        own.map(|n| format!("{}: it compares with {n}: make that a gpu:threshold", alert.place()))
    }));
}
