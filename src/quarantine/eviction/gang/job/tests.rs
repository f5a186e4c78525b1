use rstest::rstest;
use serde_json::json;

use super::*;
use crate::quarantine::eviction::gang::tests::{found, pod, words};

const JOB: &str = "batch/v1 Job train";

fn asked(spec: &Value, status: &Value) -> String {
    words(&found(&[], &[(JOB, json!({ "spec": spec, "status": status }))], None))
}

#[rstest]
#[case::default(json!({}), json!({}), "each (6)")]
#[case::some_failed(json!({ "backoffLimit": 4 }), json!({ "failed": 1 }), "each (3)")]
#[case::the_last(json!({ "backoffLimit": 4 }), json!({ "failed": 3 }), "each (1)")]
#[case::none_left(json!({ "backoffLimit": 4 }), json!({ "failed": 4 }), "its backoffLimit is 4, and 4 of its pods failed already")]
#[case::none_from_the_start(json!({ "backoffLimit": 0 }), json!({}), "its backoffLimit is 0, and 0 of its pods failed already")]
#[case::failures_not_yet_counted(
    json!({ "backoffLimit": 2 }), json!({ "failed": 1, "uncountedTerminatedPods": { "failed": ["a"] } }),
    "its backoffLimit is 2, and 2 of its pods failed already"
)]
#[case::more_failed_than_allowed(json!({ "backoffLimit": 1 }), json!({ "failed": 3 }), "its backoffLimit is 1, and 3 of its pods failed already")]
#[case::by_index(json!({ "backoffLimitPerIndex": 1 }), json!({ "failed": 90 }), "each")]
#[case::by_index_and_in_all(json!({ "backoffLimitPerIndex": 1, "backoffLimit": 5 }), json!({ "failed": 3 }), "each (2)")]
#[case::nothing_that_is_understood(json!("x"), json!([1]), "each (6)")]
fn a_job_replaces_pods_within_its_limits(#[case] spec: Value, #[case] status: Value, #[case] expected: &str) {
    assert_eq!(asked(&spec, &status), expected);
}

#[rstest]
#[case::first_failure(None, "each")]
#[case::left("1", "each")]
#[case::used_up("2", "backoffLimitPerIndex 2 is used up for the index of the pod")]
#[case::not_a_number("many", "each")]
fn an_index_has_a_limit_of_its_own(#[case] failures: impl Into<Option<&'static str>>, #[case] expected: &str) {
    let mut pod = pod(Some(JOB), &[]);
    pod.annotations.extend(failures.into().map(|n| ("batch.kubernetes.io/job-index-failure-count".to_owned(), n.to_owned())));
    let got = match fate(&json!({ "spec": { "backoffLimitPerIndex": 2 } }), &pod) {
        Fate::Goes { spare } => spare.map_or("each".to_owned(), |n| n.to_string()),
        Fate::Fails(failure) => failure.why,
    };
    assert_eq!(got, expected);
}

#[rstest]
#[case::ignored(json!([{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget" }] }]), "each")]
#[case::ignored_by_status(json!([{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }]), "each")]
#[case::of_another_status(
    json!([{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "False" }] }]), "each (6)"
)]
#[case::of_another_condition(json!([{ "action": "FailJob", "onPodConditions": [{ "type": "ConfigIssue" }] }]), "each (6)")]
#[case::one_of_two_conditions(
    json!([{ "action": "Ignore", "onPodConditions": [{ "type": "ConfigIssue" }, { "type": "DisruptionTarget" }] }]), "each"
)]
#[case::counted(
    json!([
        { "action": "Count", "onPodConditions": [{ "type": "DisruptionTarget" }] },
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget" }] },
    ]),
    "each (6)"
)]
#[case::failed(
    json!([{ "action": "FailJob", "onPodConditions": [{ "type": "DisruptionTarget" }] }]),
    "rule 0 of its podFailurePolicy fails it when a pod is evicted"
)]
#[case::failed_index(
    json!([{ "action": "FailIndex", "onPodConditions": [{ "type": "DisruptionTarget" }] }]),
    "its podFailurePolicy fails the index of an evicted pod"
)]
#[case::code_of_its_own(
    json!([
        { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [1, 42] } },
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget" }] },
    ]),
    "each"
)]
#[case::code_of_sigterm(
    json!([
        { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [143] } },
        { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget" }] },
    ]),
    "rule 0 of its podFailurePolicy fails it when a pod is evicted"
)]
#[case::all_codes_but(
    json!([
        { "action": "Ignore", "onExitCodes": { "operator": "In", "values": [143, 137] } },
        { "action": "FailJob", "onExitCodes": { "operator": "NotIn", "values": [42] } },
    ]),
    "rule 1 of its podFailurePolicy fails it when a pod is evicted"
)]
#[case::all_codes_but_those_of_signals(
    json!([{ "action": "FailJob", "onExitCodes": { "operator": "NotIn", "values": [137, 143] } }]), "each (6)"
)]
fn the_first_rule_about_disruptions_decides(#[case] rules: Value, #[case] expected: &str) {
    assert_eq!(asked(&json!({ "podFailurePolicy": { "rules": rules } }), &json!({})), expected);
}

#[rstest]
#[case::none_allowed(json!({ "maxFailedIndexes": 0 }), json!({}), "MaxFailedIndexesExceeded")]
#[case::the_last_allowed(json!({ "maxFailedIndexes": 5 }), json!({ "failedIndexes": "0,2-4" }), "FailedIndexes")]
#[case::one_too_many(json!({ "maxFailedIndexes": 4 }), json!({ "failedIndexes": "0,2-4" }), "MaxFailedIndexesExceeded")]
#[case::any_number(json!({}), json!({ "failedIndexes": "0-99" }), "FailedIndexes")]
fn a_failed_index_fails_the_job_sooner_or_later(#[case] spec: Value, #[case] status: Value, #[case] reason: &str) {
    let Fate::Fails(failure) = failed_index(&spec, &status, String::new()) else { panic!("it goes on") };
    assert_eq!(failure.reason, reason);
}

#[rstest]
#[case::new_label(&[("batch.kubernetes.io/job-name", "train"), ("job-name", "train")], Some("batch.kubernetes.io/job-name=train"))]
#[case::old_label(&[("job-name", "train")], Some("job-name=train"))]
#[case::no_label(&[], None)]
fn the_pods_of_a_job_are_selected_by_its_name(#[case] labels: &[(&str, &str)], #[case] members: Option<&str>) {
    assert_eq!(found(labels, &[], Some(JOB)).members.as_deref(), members);
}

#[test]
fn a_job_that_was_not_read_has_the_defaults_and_says_so() {
    let gang = found(&[], &[], Some(JOB));
    assert_eq!((words(&gang).as_str(), gang.unread), ("each (6)", true));
    assert!(!found(&[], &[(JOB, json!({}))], None).unread);
}
