use rstest::rstest;
use serde_json::json;

use super::*;
use crate::quarantine::eviction::gang::{
    self,
    tests::{found, pod, words},
};

const LABELS: [(&str, &str); 3] = [(NAME, "bert"), (OPERATOR, "some-controller"), (REPLICA_TYPE, "worker")];
const NEVER: &str = "a pod of it that fails is not started again (restartPolicy Never)";

fn asked(kind: &str, spec: &Value) -> Gang {
    found(&LABELS, &[(&format!("kubeflow.org/v1 {kind} bert"), json!({ "spec": spec }))], None)
}

#[rstest]
#[case("PyTorchJob", "pytorchReplicaSpecs", "all")]
#[case("TFJob", "tfReplicaSpecs", NEVER)]
#[case("XGBoostJob", "xgbReplicaSpecs", NEVER)]
#[case("PaddleJob", "paddleReplicaSpecs", "all")]
#[case("JAXJob", "jaxReplicaSpecs", NEVER)]
fn the_restart_policy_of_its_replica_type_decides(#[case] kind: &str, #[case] field: &str, #[case] default: &str) {
    let with = |policy: &str| words(&asked(kind, &json!({ field: { "Master": {}, "Worker": { "restartPolicy": policy } } })));
    for policy in ["Always", "OnFailure", "ExitCode"] {
        assert_eq!(with(policy), "all", "{policy}");
    }
    assert_eq!(with("Never"), NEVER);
    assert_eq!(words(&asked(kind, &json!({ field: { "Worker": {} } }))), default);
    // That of another type does not matter.
    assert_eq!(
        words(&asked(
            kind,
            &json!({ field: { "Master": { "restartPolicy": "Never" }, "Worker": { "restartPolicy": "Always" } } })
        )),
        "all"
    );
}

#[rstest]
#[case::no_failure_allowed(json!({ "runPolicy": { "backoffLimit": 0 } }), "it allows no failure (backoffLimit 0)")]
#[case::some_allowed(json!({ "runPolicy": { "backoffLimit": 1 } }), "all")]
#[case::elastic(json!({ "elasticPolicy": { "minReplicas": 1 } }), "each")]
fn the_rest_of_the_spec_counts_too(#[case] spec: Value, #[case] expected: &str) {
    let gang = asked("PyTorchJob", &spec);
    assert_eq!((words(&gang).as_str(), gang.unread), (expected, false));
    assert_eq!(
        gang.members.as_deref(),
        Some("training.kubeflow.org/job-name=bert,training.kubeflow.org/operator-name=some-controller")
    );
}

#[rstest]
#[case("OnFailure", "all")]
#[case("Always", "all")]
#[case("Never", NEVER)]
fn of_a_job_that_was_not_read_the_pod_tells_the_policy(#[case] policy: &str, #[case] expected: &str) {
    let pod = PodFacts { restart_policy: policy.to_owned(), ..pod(Some("kubeflow.org/v1 TFJob bert"), &LABELS) };
    let gang = gang::gang(&pod, &[], None);
    assert_eq!((words(&gang).as_str(), gang.unread), (expected, true));
}

#[test]
fn an_mpijob_is_never_touched() {
    let gang = found(&LABELS, &[], Some("kubeflow.org/v2beta1 MPIJob hpl"));
    assert_eq!((words(&gang).as_str(), gang.unread), ("an MPIJob does not survive the loss of a pod", false));
}
