use rstest::rstest;
use serde_json::json;

use super::*;
use crate::quarantine::eviction::gang::tests::{found, words};

const JOB: &str = "batch.volcano.sh/v1alpha1 Job v";
const LABELS: [(&str, &str); 2] = [("volcano.sh/job-name", "v"), ("volcano.sh/task-spec", "worker")];

fn asked(spec: &Value, status: &Value) -> String {
    words(&found(&LABELS, &[(JOB, json!({ "spec": spec, "status": status }))], None))
}

fn on(event: &str, action: &str) -> Value {
    json!({ "event": event, "action": action })
}

#[rstest]
#[case::none(json!([]), "each")]
#[case::restart_all(json!([on("PodEvicted", "RestartJob")]), "whole (2)")]
#[case::any_event(json!([on("*", "RestartJob")]), "whole (2)")]
#[case::one_of_several_events(json!([{ "events": ["PodFailed", "PodEvicted"], "action": "RestartJob" }]), "whole (2)")]
#[case::restart_the_task(json!([on("PodEvicted", "RestartTask")]), "each")]
#[case::restart_the_pod(json!([on("PodEvicted", "RestartPod")]), "each")]
#[case::abort(json!([on("PodEvicted", "AbortJob")]), "its policy for PodEvicted is AbortJob")]
#[case::terminate(json!([on("*", "TerminateJob")]), "its policy for PodEvicted is TerminateJob")]
#[case::complete(json!([on("PodEvicted", "CompleteJob")]), "its policy for PodEvicted is CompleteJob")]
#[case::for_another_event(json!([on("PodFailed", "AbortJob"), on("TaskCompleted", "CompleteJob")]), "each")]
#[case::for_an_exit_code(json!([{ "exitCode": 3, "action": "AbortJob" }]), "each")]
#[case::first_of_two(json!([on("PodEvicted", "RestartJob"), on("*", "AbortJob")]), "whole (2)")]
fn the_policy_for_evicted_pods_decides(#[case] policies: Value, #[case] expected: &str) {
    assert_eq!(asked(&json!({ "policies": policies }), &json!({})), expected);
    // The same as a policy of the task, over another one of the job.
    if expected != "each" || policies[0]["event"] == "PodEvicted" {
        let tasks = json!([{ "name": "ps", "policies": [on("*", "AbortJob")] }, { "name": "worker", "policies": policies }]);
        assert_eq!(asked(&json!({ "tasks": tasks, "policies": [on("*", "AbortJob")] }), &json!({})), expected);
    }
}

#[rstest]
#[case::default(json!({}), json!({ "retryCount": 1 }), "whole (1)")]
#[case::default_used_up(json!({}), json!({ "retryCount": 2 }), "its policy restarts it, and no retry is left (maxRetry 3)")]
#[case::own(json!({ "maxRetry": 9 }), json!({ "retryCount": 2 }), "whole (6)")]
#[case::one(json!({ "maxRetry": 1 }), json!({}), "its policy restarts it, and no retry is left (maxRetry 1)")]
fn a_job_restarts_as_often_as_it_may(#[case] spec: Value, #[case] status: Value, #[case] expected: &str) {
    let mut spec = spec;
    spec["policies"] = json!([on("PodEvicted", "RestartJob")]);
    assert_eq!(asked(&spec, &status), expected);
}

#[test]
fn a_job_that_was_not_read_creates_its_pod_again_and_says_so() {
    let gang = found(&LABELS, &[], Some(JOB));
    assert_eq!((words(&gang).as_str(), gang.unread, gang.members.as_deref()), ("each", true, Some("volcano.sh/job-name=v")));
}
