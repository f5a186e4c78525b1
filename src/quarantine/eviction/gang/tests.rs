//! How a group is found and named. What is lost with a pod is tested beside each framework.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::locate::{Owner, PodName, PodPhase};

/// `apiVersion kind name`, with a UID of its own.
pub(super) fn owner(text: &str) -> Owner {
    let [api_version, kind, name] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    Owner {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: format!("uid of {kind} {name}"),
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub(in crate::quarantine::eviction) fn pod(controller: Option<&str>, labels: &[(&str, &str)]) -> PodFacts {
    PodFacts {
        name: PodName::new("team-a", "p-0").unwrap(),
        uid: "uid of p-0".to_owned(),
        node: None,
        created: None,
        deleted: None,
        labels: map(labels),
        annotations: BTreeMap::new(),
        controller: controller.map(owner),
        phase: PodPhase::Running,
        priority: 0,
        grace_seconds: None,
        restart_policy: "Never".to_owned(),
        tolerations: Vec::new(),
        gpus: 1,
        whole_gpus: 1,
        claims: Vec::new(),
        devices: None,
        host_network: false,
        ip: None,
        images: Vec::new(),
        pod_group: None,
    }
}

/// The controllers that were read, the nearest first, each controlled by the next and the last by `above`, which was not read.
pub(super) fn chain(read: &[(&str, Value)], above: Option<&str>) -> Vec<OwnerObject> {
    let next = |i: usize| read.get(i + 1).map(|(text, _)| *text).or(above).map(owner);
    read.iter()
        .enumerate()
        .map(|(i, (text, raw))| OwnerObject { owner: owner(text), controller: next(i), raw: raw.clone() })
        .collect()
}

/// The group of a pod with these labels under these controllers.
pub(super) fn found(labels: &[(&str, &str)], read: &[(&str, Value)], above: Option<&str>) -> Gang {
    let nearest = read.first().map(|(text, _)| *text).or(above);
    gang(&pod(nearest, labels), &chain(read, above), None)
}

/// In words: `each`, `whole`, `all` or why it fails; and ` (n)` for what is spare.
pub(super) fn words(gang: &Gang) -> String {
    let loss = match &gang.loss {
        Loss::Each => "each".to_owned(),
        Loss::Whole => "whole".to_owned(),
        Loss::All => "all".to_owned(),
        Loss::Fails(why) => why.clone(),
    };
    gang.spare.map_or(loss.clone(), |n| format!("{loss} ({n})"))
}

const JOB: &str = "batch/v1 Job train";
const JOBSET: &str = "jobset.x-k8s.io/v1alpha2 JobSet llm";
const STS: &str = "apps/v1 StatefulSet lws";

#[rstest]
#[case::bare(&[], &[], None, "Pod team-a/p-0", "none")]
#[case::kueue_group(&[("kueue.x-k8s.io/pod-group-name", "ten")], &[], None, "PodGroup team-a/ten", "pod_group")]
#[case::job(&[], &[JOB], None, "Job team-a/train", "job")]
#[case::job_unread(&[], &[], Some(JOB), "Job team-a/train", "job")]
#[case::job_of_a_cron_job(&[], &[JOB], Some("batch/v1 CronJob nightly"), "Job team-a/train", "job")]
#[case::jobset(&[], &[JOB, JOBSET], None, "JobSet team-a/llm", "jobset")]
#[case::jobset_unread(&[], &[JOB], Some(JOBSET), "JobSet team-a/llm", "jobset")]
#[case::jobset_by_label(&[("jobset.sigs.k8s.io/jobset-name", "llm")], &[], Some(JOB), "JobSet team-a/llm", "jobset")]
#[case::label_of_a_jobset_on_a_plain_job(&[("jobset.sigs.k8s.io/jobset-name", "llm")], &[JOB], None, "Job team-a/train", "job")]
#[case::label_of_a_jobset_on_a_job_of_another(
    &[("jobset.sigs.k8s.io/jobset-name", "llm")], &[JOB], Some("batch/v1 CronJob nightly"), "Job team-a/train", "job"
)]
#[case::jobset_of_something_unknown(&[], &[JOB, JOBSET], Some("a.dev/v1 Wrapper w"), "JobSet team-a/llm", "jobset")]
#[case::trainjob(
    &[], &[JOB, JOBSET], Some("trainer.kubeflow.org/v1alpha1 TrainJob tune"), "TrainJob team-a/tune", "trainjob"
)]
#[case::pytorchjob(&[], &[], Some("kubeflow.org/v1 PyTorchJob bert"), "PyTorchJob team-a/bert", "training_job")]
#[case::tfjob(&[], &["kubeflow.org/v1 TFJob bert"], None, "TFJob team-a/bert", "training_job")]
#[case::xgboostjob(&[], &["kubeflow.org/v1 XGBoostJob bert"], None, "XGBoostJob team-a/bert", "training_job")]
#[case::paddlejob(&[], &["kubeflow.org/v1 PaddleJob bert"], None, "PaddleJob team-a/bert", "training_job")]
#[case::jaxjob(&[], &["kubeflow.org/v1 JAXJob bert"], None, "JAXJob team-a/bert", "training_job")]
#[case::mpijob_worker(&[], &[], Some("kubeflow.org/v2beta1 MPIJob hpl"), "MPIJob team-a/hpl", "mpijob")]
#[case::mpijob_launcher(&[], &[JOB], Some("kubeflow.org/v2beta1 MPIJob hpl"), "MPIJob team-a/hpl", "mpijob")]
#[case::volcano(&[], &["batch.volcano.sh/v1alpha1 Job v"], None, "VolcanoJob team-a/v", "volcano_job")]
#[case::raycluster(&[], &["ray.io/v1 RayCluster r"], None, "RayCluster team-a/r", "raycluster")]
#[case::rayjob(&[], &["ray.io/v1 RayCluster r-x"], Some("ray.io/v1 RayJob r"), "RayJob team-a/r", "rayjob")]
#[case::rayjob_submitter(&[], &[JOB], Some("ray.io/v1 RayJob r"), "RayJob team-a/r", "rayjob")]
#[case::rayservice_by_label(
    &[("ray.io/originated-from-crd", "RayService"), ("ray.io/originated-from-cr-name", "chat")],
    &[], Some("ray.io/v1 RayCluster chat-x"), "RayService team-a/chat", "rayservice"
)]
#[case::raycluster_by_label(
    &[("ray.io/originated-from-crd", "RayCluster"), ("ray.io/originated-from-cr-name", "other")],
    &[], Some("ray.io/v1 RayCluster r"), "RayCluster team-a/r", "raycluster"
)]
#[case::lws_leader(
    &[("leaderworkerset.sigs.k8s.io/group-index", "2")],
    &[STS], Some("leaderworkerset.x-k8s.io/v1 LeaderWorkerSet lws"), "LeaderWorkerSet team-a/lws/2", "leaderworkerset"
)]
#[case::lws_worker(
    &[("leaderworkerset.sigs.k8s.io/group-index", "2")],
    &["apps/v1 StatefulSet lws-2", "v1 Pod lws-2", STS, "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet lws"], None,
    "LeaderWorkerSet team-a/lws/2", "leaderworkerset"
)]
#[case::lws_by_label(
    &[("leaderworkerset.sigs.k8s.io/name", "lws"), ("leaderworkerset.sigs.k8s.io/group-index", "0")],
    &["apps/v1 StatefulSet lws-0"], Some("v1 Pod lws-0"), "LeaderWorkerSet team-a/lws/0", "leaderworkerset"
)]
#[case::label_of_a_lws_on_a_stateful_set(
    &[("leaderworkerset.sigs.k8s.io/name", "lws")], &[STS], None, "StatefulSet team-a/lws", "replicas"
)]
#[case::label_of_a_lws_on_a_stateful_set_of_another(
    &[("leaderworkerset.sigs.k8s.io/name", "lws")], &[STS], Some("a.dev/v1 Server s"), "Server team-a/s", "replicas"
)]
#[case::stateful_set(&[], &[], Some(STS), "StatefulSet team-a/lws", "replicas")]
#[case::deployment(&[], &["apps/v1 ReplicaSet web-5d"], Some("apps/v1 Deployment web"), "Deployment team-a/web", "replicas")]
#[case::deployment_by_label(
    &[("pod-template-hash", "5d")], &[], Some("apps/v1 ReplicaSet web-5d"), "Deployment team-a/web", "replicas"
)]
#[case::replica_set_with_another_hash(
    &[("pod-template-hash", "6e")], &[], Some("apps/v1 ReplicaSet web-5d"), "ReplicaSet team-a/web-5d", "replicas"
)]
#[case::replica_set_alone(
    &[("pod-template-hash", "5d")], &["apps/v1 ReplicaSet web-5d"], None, "ReplicaSet team-a/web-5d", "replicas"
)]
#[case::replica_set_of_something_unknown(
    &[], &["apps/v1 ReplicaSet web-5d"], Some("argoproj.io/v1alpha1 Rollout web"), "Rollout team-a/web", "replicas"
)]
#[case::daemon_set(&[], &[], Some("apps/v1 DaemonSet agent"), "DaemonSet team-a/agent", "replicas")]
#[case::unknown(&[], &[], Some("a.dev/v1 Server s"), "Server team-a/s", "other")]
#[case::a_job_of_another_group_is_unknown(&[], &[], Some("a.dev/v1 Job s"), "Job team-a/s", "other")]
fn a_group_is_named_by_its_top_most_known_controller(
    #[case] labels: &[(&str, &str)],
    #[case] read: &[&str],
    #[case] above: Option<&str>,
    #[case] key: &str,
    #[case] framework: &str,
) {
    let read: Vec<(&str, Value)> = read.iter().map(|text| (*text, json!({}))).collect();
    let gang = found(labels, &read, above);
    assert_eq!((gang.key.as_str(), gang.framework.as_str()), (key, framework), "{gang:?}");
}

#[rstest]
#[case::bare(None, "nothing creates it again")]
#[case::unknown(Some("a.dev/v1 Server s"), "each")]
#[case::deployment(Some("apps/v1 ReplicaSet web-5d"), "each")]
#[case::stateful_set(Some(STS), "each")]
fn what_no_framework_runs_is_lost_alone(#[case] controller: Option<&str>, #[case] expected: &str) {
    let gang = found(&[], &[], controller);
    assert_eq!(words(&gang), expected);
    assert!(gang.members.is_none() && !gang.unread && !gang.pinned, "{gang:?}");
}

#[rstest]
#[case::bare(None, "PodGroup team-a/ten", "pod_group", "nothing creates it again")]
#[case::unknown(Some("a.dev/v1 Server s"), "PodGroup team-a/ten", "other", "each")]
#[case::replicas(Some(STS), "PodGroup team-a/ten", "replicas", "each")]
#[case::job(Some(JOB), "Job team-a/train", "job", "each (6)")]
fn a_native_pod_group_names_what_has_no_other_group(
    #[case] controller: Option<&str>,
    #[case] key: &str,
    #[case] framework: &str,
    #[case] expected: &str,
) {
    let pod = PodFacts { pod_group: Some("ten".to_owned()), ..pod(controller, &[]) };
    let gang = gang(&pod, &[], None);
    assert_eq!((gang.key.as_str(), gang.framework.as_str(), words(&gang).as_str()), (key, framework, expected));
}

#[rstest]
#[case::of_the_pod(&[("team/run", "x")], "Group team-a/x", Some("team/run=x"))]
#[case::absent(&[], "Job team-a/train", None)]
#[case::empty(&[("team/run", "")], "Job team-a/train", None)]
fn a_configured_label_names_the_group_whatever_runs_it(
    #[case] labels: &[(&str, &str)],
    #[case] key: &str,
    #[case] members: Option<&str>,
) {
    let read = chain(&[(JOB, json!({ "spec": { "backoffLimit": 2 } }))], None);
    let gang = gang(&pod(Some(JOB), labels), &read, Some("team/run"));
    assert_eq!((gang.key.as_str(), gang.members.as_deref()), (key, members));
    assert_eq!((gang.framework, words(&gang).as_str()), (Framework::Job, "each (2)"));
}

#[test]
fn pods_that_kueue_placed_by_topology_are_pinned() {
    assert!(found(&[("kueue.x-k8s.io/tas", "true")], &[], Some(JOB)).pinned);
    assert!(!found(&[("kueue.x-k8s.io/queue-name", "q")], &[], Some(JOB)).pinned);
}

#[test]
fn an_object_with_another_uid_is_not_in_the_chain() {
    let mut other = chain(&[(JOB, json!({ "spec": { "backoffLimit": 0 } }))], Some(JOBSET));
    other[0].owner.uid = "another".to_owned();
    let gang = gang(&pod(Some(JOB), &[]), &other, None);
    assert_eq!((gang.key.as_str(), gang.unread), ("Job team-a/train", true));
}

#[test]
fn a_ring_of_owners_ends() {
    let ring = chain(&[(JOB, json!({})), (JOBSET, json!({}))], Some(JOB));
    assert_eq!(gang(&pod(Some(JOB), &[]), &ring, None).key, "JobSet team-a/llm");
}

#[rstest]
#[case(JOB, Some(("batch", "v1", "jobs")))]
#[case("batch/v1beta1 Job x", Some(("batch", "v1beta1", "jobs")))]
#[case(JOBSET, Some(("jobset.x-k8s.io", "v1alpha2", "jobsets")))]
#[case("kubeflow.org/v1 PyTorchJob x", Some(("kubeflow.org", "v1", "pytorchjobs")))]
#[case("kubeflow.org/v1 TFJob x", Some(("kubeflow.org", "v1", "tfjobs")))]
#[case("kubeflow.org/v1 XGBoostJob x", Some(("kubeflow.org", "v1", "xgboostjobs")))]
#[case("kubeflow.org/v1 PaddleJob x", Some(("kubeflow.org", "v1", "paddlejobs")))]
#[case("kubeflow.org/v1 JAXJob x", Some(("kubeflow.org", "v1", "jaxjobs")))]
#[case("leaderworkerset.x-k8s.io/v1 LeaderWorkerSet x", Some(("leaderworkerset.x-k8s.io", "v1", "leaderworkersets")))]
#[case("ray.io/v1 RayCluster x", Some(("ray.io", "v1", "rayclusters")))]
#[case("batch.volcano.sh/v1alpha1 Job x", Some(("batch.volcano.sh", "v1alpha1", "jobs")))]
#[case("apps/v1 ReplicaSet x", Some(("apps", "v1", "replicasets")))]
#[case(STS, Some(("apps", "v1", "statefulsets")))]
#[case("v1 Pod x", Some(("", "v1", "pods")))]
#[case::the_name_is_enough("apps/v1 Deployment x", None)]
#[case::the_name_is_enough("trainer.kubeflow.org/v1alpha1 TrainJob x", None)]
#[case::the_name_is_enough("kubeflow.org/v2beta1 MPIJob x", None)]
#[case::the_name_is_enough("ray.io/v1 RayJob x", None)]
#[case::unknown("a.dev/v1 Job x", None)]
#[case::unknown("v1 Node x", None)]
#[case::no_api("Job Job x", None)]
fn owners_are_read_where_something_depends_on_them(#[case] text: &str, #[case] expected: Option<(&str, &str, &'static str)>) {
    assert_eq!(readable(&owner(text)), expected);
}

#[test]
fn what_serves_is_no_batch_and_each_framework_has_its_own_name() {
    use Framework::*;
    let all = [
        None,
        PodGroup,
        Job,
        JobSet,
        TrainJob,
        TrainingJob,
        MpiJob,
        LeaderWorkerSet,
        RayCluster,
        RayJob,
        RayService,
        VolcanoJob,
        Replicas,
        Other,
    ];
    let serving: Vec<&str> = all.iter().filter(|f| !f.is_batch()).map(|f| f.as_str()).collect();
    assert_eq!(serving, ["leaderworkerset", "rayservice", "replicas", "other"]);
    let mut names = all.map(Framework::as_str).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
}
