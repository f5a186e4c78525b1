//! `eviction`, and what a policy may have of its own.

use rstest::rstest;

use super::{super::*, LEAST, loaded, refused};
use crate::policy::{Eviction, EvictionRules, OnDeadline, OrderBy, UnknownGpu};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn eviction(text: &str) -> Eviction {
    loaded(&format!("{LEAST}{text}\n")).eviction
}

#[test]
fn without_a_section_only_who_opted_in_goes_and_nobody_is_deleted() {
    let found = eviction("");
    assert_eq!(found.pods.to_string(), "gpu-quarantine.dev/evict=true");
    assert_eq!(found.never_namespaces, ["kube-system".to_owned()].into());
    assert!(found.namespaces.is_empty() && found.owners.is_empty() && found.protect.is_empty() && found.group_label.is_none());
    assert_eq!((found.order, found.max_restarts_per_hour), (vec![OrderBy::Priority, OrderBy::Batch], 2));
    assert_eq!(found.no_progress, ["gpu-lost".to_owned(), "gpu-missing".to_owned()].into());
    assert_eq!((found.evidence_count, found.evidence_age), (200, seconds(30 * 86_400)));
    let rules = EvictionRules {
        settle: seconds(5),
        deadline: seconds(1_800),
        on_deadline: OnDeadline::Leave,
        unknown_gpu: UnknownGpu::Refuse,
        checkpoint: seconds(120),
    };
    assert_eq!(found.rules, rules);
    assert_eq!(eviction("eviction: {pods: , never_namespaces: , evidence: , order: }"), eviction(""));
}

#[test]
fn every_option_of_eviction_is_read() {
    let found = eviction(
        "domain: gpu.example.com
eviction:
  namespaces: [team-a, team-b]
  never_namespaces: []
  owners: [Job, PyTorchJob]
  protect: ['app=license-server', 'tier in (gold, silver)']
  group_label: example.com/run
  order: [batch]
  max_restarts_per_hour: 5
  no_progress: []
  evidence: {keep: 0, keep_for: 1h}
  settle: 0s
  deadline: 7d
  on_deadline: delete
  unknown_gpu: node
  checkpoint: 0s",
    );
    assert_eq!(found.pods.to_string(), "gpu.example.com/evict=true", "it follows the domain");
    assert_eq!(found.namespaces, ["team-a", "team-b"].map(str::to_owned).into());
    assert!(found.never_namespaces.is_empty() && found.no_progress.is_empty());
    assert_eq!(found.owners, ["Job", "PyTorchJob"].map(str::to_owned).into());
    assert_eq!((found.protect.len(), found.group_label.as_deref()), (2, Some("example.com/run")));
    assert_eq!((found.order, found.max_restarts_per_hour), (vec![OrderBy::Batch], 5));
    assert_eq!((found.evidence_count, found.evidence_age), (0, seconds(3_600)));
    let rules = EvictionRules {
        settle: Duration::ZERO,
        deadline: seconds(7 * 86_400),
        on_deadline: OnDeadline::Delete,
        unknown_gpu: UnknownGpu::Node,
        checkpoint: Duration::ZERO,
    };
    assert_eq!(found.rules, rules);
    assert_eq!(eviction("eviction: {pods: 'a=b,!c'}").pods.to_string(), "a=b,!c");
}

#[test]
fn a_policy_has_its_own_rules_and_what_it_leaves_out_is_that_of_the_file() {
    let config = loaded(&format!(
        "{LEAST}eviction: {{settle: 1m, deadline: 1h}}
policies:
  - {{name: own, match: [a=b], action: evict, eviction: {{deadline: 2h, on_deadline: delete}}}}
  - {{name: none, match: [b=c], action: evict}}
"
    ));
    let whole = &config.eviction.rules;
    let own = EvictionRules { deadline: seconds(7_200), on_deadline: OnDeadline::Delete, ..whole.clone() };
    assert_eq!(config.eviction_for("own"), &own);
    assert_eq!((own.settle, config.eviction_for("none")), (seconds(60), whole));
    assert_eq!(config.eviction_for("gone"), whole, "claims outlive their policies");
}

#[rstest]
#[case::selector_of_all("eviction: {pods: ''}", "an empty selector")]
#[case::namespace("eviction: {namespaces: [Team_A]}", "namespace")]
#[case::kind("eviction: {owners: [jobs]}", "\"jobs\" is not a kind; write it as in ownerReferences")]
#[case::label("eviction: {group_label: 'a b'}", "group_label \"a b\" contains ' '")]
#[case::order("eviction: {order: [age]}", "\"age\" is nothing to put groups in order by; use priority or batch")]
#[case::no_restart("eviction: {max_restarts_per_hour: 0}", "is not a number of restarts; write 1 to 1000")]
#[case::many_restarts("eviction: {max_restarts_per_hour: 1001}", "is not a number of restarts; write 1 to 1000")]
#[case::many_documents("eviction: {evidence: {keep: 1001}}", "write 0 (for none) to 1000")]
#[case::short_retention("eviction: {evidence: {keep_for: 59m}}", "keep_for")]
#[case::settle("eviction: {settle: 61m}", "settle")]
#[case::no_deadline("eviction: {deadline: 0s}", "deadline")]
#[case::checkpoint("eviction: {checkpoint: 2h}", "checkpoint")]
#[case::on_deadline("eviction: {on_deadline: kill}", "use leave (the default), or delete, which goes past disruption budgets")]
#[case::unknown_gpu("eviction: {unknown_gpu: all}", "use refuse (the default) or node")]
#[case::of_a_policy_that_isolates(
    "policies: [{name: a, match: [a=b], action: isolate, eviction: {settle: 1s}}]",
    "eviction is for policies that evict, and this one has action isolate; remove it"
)]
#[case::not_by_policy(
    "policies: [{name: a, match: [a=b], action: evict, eviction: {pods: a=b}}]",
    "the keys known here are settle"
)]
fn a_wrong_value_is_refused_with_what_to_write(#[case] text: &str, #[case] message: &str) {
    let error = refused(&format!("{LEAST}{text}\n"));
    let [problem] = error.problems() else { panic!("one problem expected:\n{error}") };
    assert!(problem.message.contains(message) && problem.line > 1, "{error}");
}
