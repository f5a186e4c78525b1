use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::locate::Gpu;

const GPU: &str = "GPU-00000000-8a3e-5c1d-b7a1-000000000001";
const FILE: &str = "
kind: Node
metadata: {name: gpu-07}
---
kind: List
items:
- kind: Pod
  metadata:
    {namespace: ml, name: rank-0, uid: u-0, labels: {job: train},
     ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u-job, controller: true}]}
  spec: {nodeName: gpu-07}
  status: {phase: Running}
- {kind: Pod, metadata: {namespace: ml, name: rank-1, uid: u-1, labels: {job: train}}, spec: {nodeName: gpu-08}, status: {phase: Running}}
- {kind: Pod, metadata: {namespace: web, name: shop, uid: u-2}, spec: {nodeName: gpu-07}, status: {phase: Running}}
- kind: Pod
  metadata: {namespace: dra, name: claimant, uid: u-3}
  spec: {nodeName: gpu-09, resourceClaims: [{name: gpus, resourceClaimName: mine}]}
- apiVersion: batch/v1
  kind: Job
  metadata: {namespace: ml, name: train, uid: u-job}
  spec: {parallelism: 2}
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaim
  metadata: {namespace: dra, name: mine}
  status: {allocation: {devices: {results: [{driver: gpu.nvidia.com, pool: gpu-09, device: gpu-0}]}}}
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: slice}
  spec:
    driver: gpu.nvidia.com
    pool: {name: gpu-09, generation: 1}
    devices: [{name: gpu-0, attributes: {uuid: {string: GPU-00000000-8a3e-5c1d-b7a1-000000000001}}}]
";

fn cluster() -> SnapshotCluster {
    SnapshotCluster::load("cluster.yaml", FILE, "gpu-quarantine.dev").unwrap()
}

fn pod(text: &str) -> PodName {
    text.to_owned().try_into().unwrap()
}

fn node(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

fn names(pods: &[PodFacts]) -> Vec<String> {
    pods.iter().map(|pod| pod.name.to_string()).collect()
}

fn budget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "ml", "name": name}, "spec": spec})
}

#[tokio::test]
async fn pods_are_found_by_node_by_name_and_by_label() {
    let cluster = cluster();
    assert_eq!(names(&cluster.pods_on(&node("gpu-07")).await.unwrap()), ["ml/rank-0", "web/shop"]);
    assert_eq!(names(&cluster.pods_on(&node("gpu-99")).await.unwrap()), Vec::<String>::new());
    assert_eq!(names(&cluster.pods_of("ml", "job=train", 9).await.unwrap()), ["ml/rank-0", "ml/rank-1"]);
    assert_eq!(names(&cluster.pods_of("ml", "job=train", 1).await.unwrap()), ["ml/rank-0"]);
    assert!(cluster.pods_of("ml", "=", 1).await.unwrap_err().to_string().contains("cannot list pods ="));
    assert_eq!(cluster.pod(&pod("ml/rank-1")).await.unwrap().map(|p| p.uid).as_deref(), Some("u-1"));
    assert_eq!(cluster.pod(&pod("ml/rank-9")).await, Ok(None));
    assert_eq!(cluster.pods_json().len(), 4);
    assert_eq!(cluster.node_raw(&node("gpu-07")).await.unwrap().unwrap(), cluster.nodes_json()[0]);
    assert_eq!(cluster.events_about(Some("ml"), "rank-0", "u-0", 5).await, Ok(Vec::new()));
}

#[tokio::test]
async fn the_gpus_of_claims_are_looked_up_in_the_file() {
    let cluster = cluster();
    let claimant = cluster.pod(&pod("dra/claimant")).await.unwrap().unwrap();
    assert_eq!(claimant.devices, Some(vec![Gpu::parse(GPU).unwrap()]));
    let other = json!([{"name": "gpus", "resourceClaimName": "not-there"}]);
    cluster.edit_pod(&pod("dra/claimant"), |raw| raw["spec"]["resourceClaims"] = other).unwrap();
    assert_eq!(cluster.pod(&pod("dra/claimant")).await.unwrap().unwrap().devices, None);
}

#[tokio::test]
async fn an_owner_is_found_by_kind_name_and_uid() {
    let cluster = cluster();
    let owner = cluster.pod(&pod("ml/rank-0")).await.unwrap().unwrap().controller.unwrap();
    let job = cluster.owner("ml", &owner).await.unwrap().unwrap();
    assert_eq!((job.raw["spec"]["parallelism"].as_u64(), job.controller), (Some(2), None));
    assert_eq!(cluster.owner("web", &owner).await, Ok(None));
    for (uid, kind) in [("other", "Job"), ("u-job", "JobSet")] {
        let another = Owner { uid: uid.to_owned(), kind: kind.to_owned(), ..owner.clone() };
        assert_eq!(cluster.owner("ml", &another).await, Ok(None));
    }
}

#[tokio::test]
async fn a_pod_that_is_evicted_is_gone_and_its_uid_must_be_right() {
    let cluster = cluster();
    assert_eq!(cluster.evict(&pod("ml/rank-0"), "u-9").await, EvictionAnswer::AnotherPod);
    assert_eq!(Workloads::delete(&cluster, &pod("ml/rank-0"), "u-9").await, EvictionAnswer::AnotherPod);
    assert_eq!(cluster.evict(&pod("ml/rank-0"), "u-0").await, EvictionAnswer::Accepted);
    assert_eq!(cluster.evict(&pod("ml/rank-0"), "u-0").await, EvictionAnswer::Gone);
    let again = json!({"kind": "Pod", "metadata": {"namespace": "ml", "name": "rank-0"}, "spec": {"nodeName": "gpu-07"}});
    cluster.create(again).unwrap();
    assert_eq!(cluster.evict(&pod("ml/rank-0"), "u-0").await, EvictionAnswer::AnotherPod, "made anew under its name");
    assert_eq!(names(&cluster.pods_on(&node("gpu-07")).await.unwrap()), ["ml/rank-0", "web/shop"]);
}

#[rstest]
#[case::none(vec![], "Accepted")]
#[case::that_allows(vec![json!({"maxUnavailable": 1, "selector": {}})], "Accepted")]
#[case::of_other_pods(vec![json!({"maxUnavailable": 0, "selector": {"matchLabels": {"job": "x"}}})], "Accepted")]
#[case::that_forbids(vec![json!({"maxUnavailable": 0, "selector": {"matchLabels": {"job": "train"}}})], "Blocked")]
#[case::two(vec![json!({"maxUnavailable": 2, "selector": {}}), json!({"minAvailable": 0, "selector": {}})], "ManyBudgets")]
#[tokio::test]
async fn budgets_are_obeyed_by_evictions_and_not_by_deletions(#[case] specs: Vec<Value>, #[case] answer: &str) {
    let cluster = cluster();
    for (at, spec) in specs.into_iter().enumerate() {
        cluster.create(budget(&format!("b-{at}"), &spec)).unwrap();
    }
    // The real server looks at the budgets first, too.
    for uid in ["wrong", "u-0"] {
        let got = format!("{:?}", cluster.evict(&pod("ml/rank-0"), uid).await);
        let expected = if answer == "Accepted" && uid == "wrong" { "AnotherPod" } else { answer };
        assert!(got.starts_with(expected), "{got}");
    }
    let left = if answer == "Accepted" { EvictionAnswer::Gone } else { EvictionAnswer::Accepted };
    assert_eq!(Workloads::delete(&cluster, &pod("ml/rank-0"), "u-0").await, left);
}

#[test]
fn a_budget_of_one_name_is_there_once() {
    let cluster = cluster();
    cluster.create(budget("b", &json!({}))).unwrap();
    assert!(cluster.create(budget("b", &json!({}))).unwrap_err().contains("another PodDisruptionBudget"));
}

#[tokio::test]
async fn other_writers_change_and_delete_pods() {
    let (cluster, name) = (cluster(), pod("ml/rank-1"));
    let version = |cluster: &SnapshotCluster| cluster.lock().pods[&pod("ml/rank-1")].raw["metadata"]["resourceVersion"].clone();
    let before = version(&cluster);
    cluster.edit_pod(&name, |raw| raw["spec"]["nodeName"] = json!("gpu-07")).unwrap();
    assert_ne!(version(&cluster), before);
    assert_eq!(names(&cluster.pods_on(&node("gpu-07")).await.unwrap()), ["ml/rank-0", "ml/rank-1", "web/shop"]);
    for broken in [Value::Null, json!({"metadata": {"name": "rank-1", "namespace": "ml", "uid": "other"}})] {
        assert!(cluster.edit_pod(&name, |raw| *raw = broken).is_err());
    }
    cluster.delete_pod(&name).unwrap();
    assert!(cluster.delete_pod(&name).is_err() && cluster.edit_pod(&name, |_| ()).is_err());
}

#[tokio::test]
async fn evidence_is_kept_until_there_is_too_much_or_it_is_too_old() {
    let cluster = cluster();
    let place = LedgerPlace { namespace: "gpu-quarantine".to_owned(), name: "ledger".to_owned() };
    let retention = Retention { count: 2, age: Duration::from_secs(3600) };
    let take = |name: &str, at: &str, json: &str| EvidenceDocument {
        name: name.to_owned(),
        node: node("gpu-07"),
        at: at.parse().unwrap(),
        json: json.to_owned(),
    };
    let kept = async || {
        let mut kept = Vec::new();
        for name in ["a", "b", "c", "d"] {
            kept.extend(cluster.read_evidence(&place, name).await.unwrap());
        }
        kept.join(" ")
    };
    for (document, expected) in [
        (take("a", "2026-03-01T12:00:00Z", "A"), "A"),
        (take("a", "2026-03-01T12:01:00Z", "A2"), "A2"),
        (take("b", "2026-03-01T12:02:00Z", "B"), "A2 B"),
        (take("c", "2026-03-01T12:03:00Z", "C"), "B C"),
        (take("a", "2026-03-01T11:00:00Z", "A3"), "A3 C"),
        (take("d", "2026-03-01T14:00:00Z", "D"), "D"),
    ] {
        cluster.keep_evidence(&place, &document, retention).await.unwrap();
        assert_eq!(kept().await, expected);
    }
    cluster.keep_evidence(&place, &take("b", "2026-03-01T14:00:00Z", "B"), Retention { count: 0, ..retention }).await.unwrap();
    assert_eq!(kept().await, "B", "what was just taken stays");
}
