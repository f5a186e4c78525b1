use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::quarantine::eviction::gang::{
    self,
    tests::{chain, found, pod, words},
};

const RAY: &str = "ray.io/v1 RayCluster r";
const HEAD: [(&str, &str); 2] = [(CLUSTER, "r"), ("ray.io/node-type", "head")];
const WORKER: [(&str, &str); 2] = [(CLUSTER, "r"), ("ray.io/node-type", "worker")];
const LOST: &str = "the head has the state of the cluster, and no fault tolerance of the GCS keeps it elsewhere";

#[rstest]
#[case::plain(json!({}), LOST)]
#[case::annotated(json!({ "metadata": { "annotations": { "ray.io/ft-enabled": "True" } } }), "each")]
#[case::annotated_otherwise(json!({ "metadata": { "annotations": { "ray.io/ft-enabled": "false" } } }), LOST)]
#[case::with_options(json!({ "spec": { "gcsFaultToleranceOptions": { "redisAddress": "redis:6379" } } }), "each")]
#[case::with_empty_options(json!({ "spec": { "gcsFaultToleranceOptions": {} } }), "each")]
fn a_head_is_lost_with_its_cluster_unless_it_is_fault_tolerant(#[case] cluster: Value, #[case] expected: &str) {
    let gang = found(&HEAD, &[(RAY, cluster.clone())], None);
    assert_eq!((words(&gang).as_str(), gang.unread, gang.members.as_deref()), (expected, false, Some("ray.io/cluster=r")));
    assert_eq!(words(&found(&WORKER, &[(RAY, cluster)], None)), "each");
}

#[test]
fn of_a_cluster_that_was_not_read_the_pod_tells_the_fault_tolerance() {
    let mut pod = pod(Some(RAY), &HEAD);
    let gang = gang::gang(&pod, &[], None);
    assert_eq!((words(&gang).as_str(), gang.unread), (LOST, true));
    pod.annotations.insert(FAULT_TOLERANT.to_owned(), "true".to_owned());
    let gang = gang::gang(&pod, &[], None);
    assert_eq!((words(&gang).as_str(), gang.unread), ("each", false));
    let worker = found(&WORKER, &[], Some(RAY));
    assert_eq!((words(&worker).as_str(), worker.unread), ("each", false));
}

#[test]
fn the_job_that_hands_a_rayjob_in_is_a_job() {
    let job = "batch/v1 Job r";
    let read = chain(&[(job, json!({ "spec": { "backoffLimit": 0 } }))], Some("ray.io/v1 RayJob r"));
    let gang = gang::gang(&pod(Some(job), &[]), &read, None);
    assert_eq!(
        (gang.key.as_str(), words(&gang).as_str()),
        ("RayJob team-a/r", "its backoffLimit is 0, and 0 of its pods failed already")
    );
}
