use rstest::rstest;
use serde_json::json;

use super::*;
use crate::quarantine::eviction::gang::tests::{found, words};

const JOB: &str = "batch/v1 Job llm-workers-0";
const JOBSET: &str = "jobset.x-k8s.io/v1alpha2 JobSet llm";
const LABELS: [(&str, &str); 3] = [(NAME, "llm"), (REPLICATED_JOB, "workers"), ("batch.kubernetes.io/job-name", "llm-workers-0")];

/// A Job that fails with its first pod.
fn fragile() -> Value {
    json!({ "spec": { "backoffLimit": 0 } })
}

/// A Job that fails with a pod that is disrupted, as the example of `JobSet` for host maintenance has it.
fn disruptable() -> Value {
    let conditions = json!([{ "type": "DisruptionTarget" }]);
    let rules = json!([{ "action": "FailJob", "onPodConditions": conditions }]);
    json!({ "spec": { "backoffLimit": 0, "podFailurePolicy": { "rules": rules } } })
}

fn asked(job: Value, policy: &Value, status: &Value) -> Gang {
    found(&LABELS, &[(JOB, job), (JOBSET, json!({ "spec": { "failurePolicy": policy }, "status": status }))], None)
}

#[rstest]
#[case::no_policy(json!(null), json!({}), "its Job fails (its backoffLimit is 0, and 0 of its pods failed already), and it has no failurePolicy")]
#[case::no_restarts(json!({}), json!({}), "no restart is left of the 0 that its failurePolicy allows")]
#[case::restarts(json!({ "maxRestarts": 3 }), json!({}), "whole (3)")]
#[case::restarted(json!({ "maxRestarts": 3 }), json!({ "restarts": 2, "restartsCountTowardsMax": 2 }), "whole (1)")]
#[case::restarted_in_old_versions(json!({ "maxRestarts": 3 }), json!({ "restarts": 2 }), "whole (1)")]
#[case::used_up(
    json!({ "maxRestarts": 3 }), json!({ "restartsCountTowardsMax": 3 }), "no restart is left of the 3 that its failurePolicy allows"
)]
#[case::restarts_that_do_not_count(
    json!({ "maxRestarts": 3, "rules": [{ "action": "RestartJobSet" }] }), json!({ "restarts": 9 }), "whole (3)"
)]
#[case::restarts_of_single_jobs_count(
    json!({ "maxRestarts": 3 }),
    json!({ "restartsCountTowardsMax": 1, "replicatedJobsStatus": [{ "jobRestartsCountTowardsMax": [0, 1] }, {}] }), "whole (1)"
)]
#[case::for_ever(json!({ "rules": [{ "action": "RestartJobSetAndIgnoreMaxRestarts" }] }), json!({}), "whole")]
#[case::to_fail(
    json!({ "maxRestarts": 3, "rules": [{ "action": "FailJobSet" }] }), json!({}),
    "its Job fails (its backoffLimit is 0, and 0 of its pods failed already), and a rule of its failurePolicy says FailJobSet"
)]
#[case::unknown(
    json!({ "rules": [{ "action": "Sleep" }] }), json!({}),
    "its Job fails (its backoffLimit is 0, and 0 of its pods failed already), and what its failurePolicy says then is not known here: Sleep"
)]
#[case::for_another_reason(
    json!({ "maxRestarts": 1, "rules": [{ "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"] }] }), json!({}),
    "whole (1)"
)]
#[case::for_another_job(
    json!({ "maxRestarts": 1, "rules": [{ "action": "FailJobSet", "targetReplicatedJobs": ["leader"] }] }), json!({}), "whole (1)"
)]
#[case::for_this_job(
    json!({ "rules": [
        { "action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["leader", "workers"] },
        { "action": "FailJobSet" },
    ] }),
    json!({}), "whole"
)]
fn a_jobset_whose_job_fails_does_what_its_policy_says(#[case] policy: Value, #[case] status: Value, #[case] expected: &str) {
    let gang = asked(fragile(), &policy, &status);
    assert_eq!(words(&gang), expected);
    assert_eq!(
        (gang.key.as_str(), gang.members.as_deref(), gang.unread),
        ("JobSet team-a/llm", Some("jobset.sigs.k8s.io/jobset-name=llm"), false)
    );
}

#[rstest]
#[case::by_reason(json!({ "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"] }), "whole")]
#[case::by_message(
    json!({ "action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureMessagePatterns": ["x", "matching FailJob rule at index 0$"] }),
    "whole"
)]
#[case::by_another_message(json!({ "action": "FailJobSet", "onJobFailureMessagePatterns": ["exit code 42"] }), "whole (1)")]
#[case::by_no_pattern(json!({ "action": "FailJobSet", "onJobFailureMessagePatterns": ["("] }), "whole (1)")]
fn disruptions_are_told_apart_by_reason_and_message(#[case] rule: Value, #[case] expected: &str) {
    assert_eq!(words(&asked(disruptable(), &json!({ "maxRestarts": 1, "rules": [rule] }), &json!({}))), expected);
}

#[rstest]
#[case::counted("RestartJob", "whole (2)")]
#[case::not_counted("RestartJobAndIgnoreMaxRestarts", "whole")]
fn a_job_that_restarts_alone_is_the_group(#[case] action: &str, #[case] expected: &str) {
    let gang = asked(fragile(), &json!({ "maxRestarts": 2, "rules": [{ "action": action }] }), &json!({}));
    assert_eq!(
        (words(&gang).as_str(), gang.key.as_str(), gang.members.as_deref()),
        (expected, "JobSet team-a/llm/llm-workers-0", Some("batch.kubernetes.io/job-name=llm-workers-0"))
    );
}

#[test]
fn a_job_that_replaces_its_pod_leaves_the_jobset_alone() {
    let gang = asked(json!({ "spec": { "backoffLimit": 2 } }), &json!({ "maxRestarts": 0 }), &json!({}));
    assert_eq!((words(&gang).as_str(), gang.key.as_str()), ("each (2)", "JobSet team-a/llm"));
}

#[rstest]
#[case::first(json!({}), "each (3)")]
#[case::third(json!({ "currentInPlaceRestartAttempt": 2 }), "each (1)")]
#[case::used_up(json!({ "currentInPlaceRestartAttempt": 3 }), "no restart is left of the 3 that its failurePolicy allows")]
fn a_restart_in_place_moves_only_the_pod_that_is_lost(#[case] status: Value, #[case] expected: &str) {
    let job = json!({ "spec": { "backoffLimit": 2_147_483_647_u64 } });
    assert_eq!(words(&asked(job, &json!({ "maxRestarts": 3, "restartStrategy": "InPlaceRestart" }), &status)), expected);
}

#[test]
fn what_could_not_be_read_is_what_it_is_by_default() {
    let jobset = json!({ "spec": {
        "replicatedJobs": [{ "name": "leader", "template": {} }, { "name": "workers", "template": fragile() }],
        "failurePolicy": { "maxRestarts": 3 },
    } });
    let outcome = |gang: Gang| (words(&gang), gang.unread);
    // Which object is missing: none, the JobSet, both.
    assert_eq!(outcome(found(&LABELS, &[(JOB, fragile()), (JOBSET, jobset)], None)), ("whole (3)".to_owned(), false));
    let (why, unread) = outcome(found(&LABELS, &[(JOB, fragile())], Some(JOBSET)));
    assert!(why.ends_with("and it has no failurePolicy") && unread, "{why}");
    assert_eq!(outcome(found(&LABELS, &[], Some(JOB))), ("each (6)".to_owned(), true));
}

#[test]
fn a_trainjob_is_lost_as_its_jobset() {
    let read = [(JOB, fragile()), (JOBSET, json!({ "spec": { "failurePolicy": { "maxRestarts": 1 } } }))];
    let gang = found(&LABELS, &read, Some("trainer.kubeflow.org/v1alpha1 TrainJob llm"));
    assert_eq!((words(&gang).as_str(), gang.key.as_str(), gang.unread), ("whole (1)", "TrainJob team-a/llm", false));
}
