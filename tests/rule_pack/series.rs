//! Alerts stand on recorded series, and every record is there for something.

use std::collections::BTreeSet;

use crate::{
    exported::{dashboard, is_of_exporter},
    pack::{Named, no_problem, pack},
    promql::{Expr, mixes_or_with_and},
};

fn metrics(rule: &Named) -> BTreeSet<String> {
    rule.exprs().flat_map(Expr::all).flat_map(Expr::metrics).collect()
}

#[test]
fn only_normalise_yaml_reads_what_exporters_export() {
    no_problem(pack().rules().filter(|r| r.file != "normalise").flat_map(|rule| {
        let raw = metrics(rule).into_iter().filter(|m| is_of_exporter(m));
        raw.map(|m| format!("{}: it reads {m}: record it in normalise.yaml, for every version of the exporter", rule.place()))
    }));
}

#[test]
fn every_recorded_series_that_a_rule_reads_is_recorded() {
    let recorded: BTreeSet<_> = pack().records.iter().map(|r| r.name.as_str()).collect();
    no_problem(pack().rules().flat_map(|rule| {
        let unknown = metrics(rule).into_iter().filter(|m| m.contains(':') && !recorded.contains(m.as_str()));
        unknown.map(|m| format!("{}: nothing records {m}", rule.place()))
    }));
}

#[test]
fn or_stands_beside_and_or_unless_only_in_parentheses() {
    let mixed = pack().rules().filter(|rule| mixes_or_with_and(&rule.rule.expr));
    no_problem(
        mixed.map(|r| format!("{}: `and` and `unless` bind tighter than `or`: put in parentheses what you mean", r.place())),
    );
}

#[test]
fn every_record_is_called_after_what_it_is_about() {
    let bad = pack().records.iter().filter(|r| !["gpu:", "node:", "link:"].iter().any(|level| r.name.starts_with(level)));
    no_problem(bad.map(|r| format!("{}: begin its name with gpu:, node: or link:", r.place())));
}

#[test]
fn every_record_is_read_by_a_rule_or_shown_on_the_dashboard() {
    let by_rules = pack().rules().flat_map(|rule| {
        let mut metrics = metrics(rule);
        // A record that only reads itself is read by nobody.
        metrics.remove(&rule.name);
        metrics
    });
    let shown = dashboard();
    let read: BTreeSet<_> = by_rules.chain(shown.iter().flat_map(Expr::all).flat_map(Expr::metrics)).collect();
    let unread = pack().records.iter().filter(|r| !read.contains(&r.name));
    no_problem(unread.map(|r| format!("{}: nothing reads it: remove it, or show it on the dashboard", r.place())));
}
