//! Pods of a real API server: read, asked to leave, and what it answers. Nobody schedules, runs or controls them; the status of a
//! budget is written by the tests.

use std::{collections::BTreeSet, time::Duration};

use gpu_quarantine::{
    cluster::{
        EvictionAnswer, EvidenceDocument, Retention, Workloads,
        kubernetes::{self, KubeCluster},
    },
    locate::{NodeName, Owner, PodFacts, PodName, PodPhase},
    metrics::Metrics,
    policy::LedgerPlace,
};
use k8s_openapi::api::{
    authorization::v1::SelfSubjectAccessReview,
    core::v1::{ConfigMap, Event, Namespace, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    harness::ApiServer,
    process::{eventually, unique},
};

/// A namespace of one test, and the cluster as we see it.
struct World {
    client: Client,
    cluster: KubeCluster,
    namespace: String,
}

impl World {
    async fn new(server: &ApiServer, stem: &str) -> Self {
        let (client, namespace) = (server.client().await, unique(stem));
        let all: Api<Namespace> = Api::all(client.clone());
        let raw = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        all.create(&PostParams::default(), &serde_json::from_value(raw).unwrap()).await.expect("a namespace");
        Self { client, cluster: cluster(server, None).await, namespace }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create<K>(&self, raw: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        self.api().create(&PostParams::default(), &serde_json::from_value(raw).unwrap()).await.expect("it is created")
    }

    /// A pod that runs and is ready, and its UID.
    async fn pod(&self, name: &str, node: &str) -> (PodName, String) {
        let created: Pod = self.create(pod(name, node)).await;
        let status =
            json!({"status": {"phase": "Running", "podIP": "10.244.7.5", "conditions": [{"type": "Ready", "status": "True"}]}});
        let api: Api<Pod> = self.api();
        api.patch_status(name, &PatchParams::default(), &Patch::Strategic(status)).await.expect("its status");
        (PodName::new(&self.namespace, name).unwrap(), created.metadata.uid.unwrap())
    }

    /// A budget that allows so many disruptions, as its controller would say.
    async fn budget(&self, name: &str, allowed: i32) {
        let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}});
        let created: PodDisruptionBudget = self
            .create(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}))
            .await;
        let status = json!({"status": {
            "observedGeneration": created.metadata.generation, "disruptionsAllowed": allowed, "currentHealthy": 1 + allowed,
            "desiredHealthy": 1, "expectedPods": 1 + allowed,
        }});
        let api: Api<PodDisruptionBudget> = self.api();
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("its status");
    }

    /// The pod is gone, as if its kubelet had ended it.
    async fn finalise(&self, name: &PodName, uid: &str) {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let at_once = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
        self.api::<Pod>().delete(name.name(), &at_once).await.expect("it terminates");
    }

    async fn facts(&self, name: &PodName) -> Option<PodFacts> {
        self.cluster.pod(name).await.expect("an answer")
    }
}

async fn cluster(server: &ApiServer, user: Option<&str>) -> KubeCluster {
    let mut config = kubernetes::config(Some(&server.kubeconfig()), None).await.expect("a configuration");
    config.auth_info.impersonate = user.map(str::to_owned);
    KubeCluster::new(config, "gpu-quarantine.dev", BTreeSet::default(), Metrics::new().into()).expect("a client")
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "train"}, "annotations": {"gpu-quarantine.dev/checkpoint": "8080/save"}},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 77,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [{"name": "c", "image": "registry.example.com/train:7", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
        },
    })
}

fn names(pods: &[PodFacts]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.name()).collect()
}

#[tokio::test]
async fn pods_are_read_by_node_by_name_and_by_label() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "pods").await;
    let node = unique("gpu");
    let (name, uid) = world.pod("b", &node).await;
    world.pod("a", &node).await;
    world.pod("c", "elsewhere").await;
    let pods = world.cluster.pods_on(&NodeName::parse(&node).unwrap()).await.unwrap();
    assert_eq!(names(&pods), ["a", "b"]);
    assert_eq!(names(&world.cluster.pods_of(&world.namespace, "app=train", 9).await.unwrap()), ["a", "b", "c"]);
    assert_eq!(names(&world.cluster.pods_of(&world.namespace, "app=train", 2).await.unwrap()), ["a", "b"]);
    assert_eq!(names(&world.cluster.pods_of(&world.namespace, "app!=train", 9).await.unwrap()), [""; 0]);
    let facts = world.facts(&name).await.unwrap();
    assert_eq!((&facts, &facts.uid), (&pods[1], &uid));
    assert_eq!((facts.phase, facts.gpus, facts.grace_seconds, facts.deleted), (PodPhase::Running, 2, Some(77), None));
    assert_eq!(facts.ip, Some("10.244.7.5".parse().unwrap()));
    assert_eq!(facts.annotations["gpu-quarantine.dev/checkpoint"], "8080/save");
    assert_eq!(facts.images, ["registry.example.com/train:7"]);
    assert_eq!(world.facts(&PodName::new(&world.namespace, "nobody").unwrap()).await, None);
    assert_eq!(world.cluster.node_raw(&NodeName::parse(&node).unwrap()).await, Ok(None));
    let bad = world.cluster.pods_of(&world.namespace, "app in", 9).await.unwrap_err().to_string();
    assert!(bad.contains("HTTP 400"), "{bad}");
}

#[tokio::test]
async fn the_chain_of_owners_is_read_by_uid() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "owners").await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let set =
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "llm", "uid": "u-set", "controller": true});
    let job: k8s_openapi::api::batch::v1::Job = world
        .create(json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "llm-0", "ownerReferences": [set]},
            "spec": {"parallelism": 4, "template": template},
        }))
        .await;
    let uid = job.metadata.uid.unwrap();
    let text = str::to_owned;
    let owner = Owner { api_version: text("batch/v1"), kind: text("Job"), name: text("llm-0"), uid };
    let found = world.cluster.owner(&world.namespace, &owner).await.unwrap().expect("the Job");
    assert_eq!((&found.owner, found.raw["spec"]["parallelism"].as_u64()), (&owner, Some(4)));
    let set = found.controller.expect("its JobSet");
    assert_eq!((set.kind.as_str(), set.uid.as_str()), ("JobSet", "u-set"));
    for other in [
        // Its kind is not served here.
        set,
        Owner { uid: text("another"), ..owner.clone() },
        Owner { name: text("nobody"), ..owner.clone() },
        Owner { kind: text("CronJob"), ..owner.clone() },
    ] {
        assert_eq!(world.cluster.owner(&world.namespace, &other).await, Ok(None), "{other:?}");
    }
    let stranger = cluster(server, Some("stranger")).await;
    let told = stranger.owner(&world.namespace, &owner).await.unwrap_err().to_string();
    assert!(told.contains("HTTP 403") && told.ends_with("; allow get on jobs.batch"), "{told}");
}

#[tokio::test]
async fn a_pod_of_that_uid_is_asked_to_leave_with_its_own_grace() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "leave").await;
    let (name, uid) = world.pod("rank-0", "gpu-07").await;
    let evict = async |uid: &str| world.cluster.evict(&name, uid).await;
    assert_eq!(evict("another").await, EvictionAnswer::AnotherPod);
    assert_eq!(world.facts(&name).await.unwrap().deleted, None, "it was not touched");
    assert_eq!(evict(&uid).await, EvictionAnswer::Accepted);
    let terminating: Pod = world.api().get("rank-0").await.unwrap();
    assert_eq!(terminating.metadata.deletion_grace_period_seconds, Some(77));
    assert!(world.facts(&name).await.unwrap().deleted.is_some());
    assert_eq!(evict(&uid).await, EvictionAnswer::Accepted, "it does so already");
    world.finalise(&name, &uid).await;
    assert_eq!(evict(&uid).await, EvictionAnswer::Gone);
    let (_, again) = world.pod("rank-0", "gpu-07").await;
    assert_eq!(evict(&uid).await, EvictionAnswer::AnotherPod, "it was made anew under its name");
    assert_eq!(world.facts(&name).await.map(|p| (p.uid, p.deleted)), Some((again, None)));
    let nowhere = PodName::new("no-such-namespace", "rank-0").unwrap();
    assert_eq!(world.cluster.evict(&nowhere, &uid).await, EvictionAnswer::Gone);
}

#[tokio::test]
async fn a_pod_of_that_uid_is_deleted_past_its_budget_with_its_own_grace() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "delete").await;
    let (name, uid) = world.pod("rank-0", "gpu-07").await;
    world.budget("never", 0).await;
    let delete = async |uid: &str| world.cluster.delete(&name, uid).await;
    assert_eq!(delete("another").await, EvictionAnswer::AnotherPod);
    assert!(matches!(world.cluster.evict(&name, &uid).await, EvictionAnswer::Blocked { .. }));
    assert_eq!(delete(&uid).await, EvictionAnswer::Accepted);
    let terminating: Pod = world.api().get("rank-0").await.unwrap();
    assert_eq!(terminating.metadata.deletion_grace_period_seconds, Some(77));
    assert_eq!(delete(&uid).await, EvictionAnswer::Accepted, "it does so already");
    world.finalise(&name, &uid).await;
    assert_eq!(delete(&uid).await, EvictionAnswer::Gone);
}

#[tokio::test]
async fn a_budget_that_forbids_is_named_and_one_that_allows_later_lets_the_pod_go() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "budget").await;
    let (name, uid) = world.pod("rank-0", "gpu-07").await;
    world.budget("train-budget", 0).await;
    for uid in [uid.as_str(), "another"] {
        let answer = world.cluster.evict(&name, uid).await;
        let EvictionAnswer::Blocked { budget, message } = answer else { panic!("{answer:?}") };
        assert_eq!(budget.as_deref(), Some("train-budget"), "{message}");
        assert!(message.contains("violate the pod's disruption budget"), "{message}");
    }
    let begin = std::time::Instant::now();
    assert!(matches!(world.cluster.evict(&name, &uid).await, EvictionAnswer::Blocked { .. }));
    assert!(begin.elapsed() < Duration::from_secs(5), "nobody but us retries");
    let allows = json!({"status": {"disruptionsAllowed": 1, "currentHealthy": 2, "expectedPods": 2}});
    let api: Api<PodDisruptionBudget> = world.api();
    api.patch_status("train-budget", &PatchParams::default(), &Patch::Merge(allows)).await.unwrap();
    eventually("the budget allows it", Duration::from_secs(20), async || match world.cluster.evict(&name, &uid).await {
        EvictionAnswer::Accepted => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

#[tokio::test]
async fn two_budgets_are_too_many_whatever_they_allow() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "two").await;
    let (name, uid) = world.pod("rank-0", "gpu-07").await;
    world.budget("one", 5).await;
    world.budget("two", 5).await;
    let answer = world.cluster.evict(&name, &uid).await;
    let EvictionAnswer::ManyBudgets { message } = answer else { panic!("{answer:?}") };
    assert!(message.contains("more than one PodDisruptionBudget"), "{message}");
}

#[tokio::test]
async fn whoever_may_not_is_told_what_to_allow() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "rights").await;
    let (name, uid) = world.pod("rank-0", "gpu-07").await;
    let stranger = cluster(server, Some("stranger")).await;
    for (answer, allow) in [
        (stranger.evict(&name, &uid).await, "; allow create on pods/eviction"),
        (stranger.delete(&name, &uid).await, "; allow delete on pods"),
    ] {
        let EvictionAnswer::Forbidden { message } = answer else { panic!("{answer:?}") };
        assert!(message.contains("stranger") && message.ends_with(allow), "{message}");
    }
    let node = NodeName::parse("gpu-07").unwrap();
    let place = LedgerPlace { namespace: world.namespace.clone(), name: "ledger".to_owned() };
    for (told, allow) in [
        (stranger.pods_on(&node).await.unwrap_err(), "list on pods"),
        (stranger.pod(&name).await.unwrap_err(), "get on pods"),
        (stranger.pods_of(&world.namespace, "a=b", 1).await.unwrap_err(), "list on pods"),
        (stranger.node_raw(&node).await.unwrap_err(), "get on nodes"),
        (stranger.events_about(None, "gpu-07", "u", 1).await.unwrap_err(), "list on events in the namespace default"),
        (stranger.read_evidence(&place, "e").await.unwrap_err(), "get, list, create, patch and delete on configmaps there"),
    ] {
        let told = told.to_string();
        assert!(told.contains("HTTP 403") && told.ends_with(&format!("; allow {allow}")), "{told}");
    }
    assert_eq!(world.facts(&name).await.unwrap().deleted, None);
    // The tests' own user may do all of it, or the refusals above would prove nothing.
    let review: SelfSubjectAccessReview = serde_json::from_value(json!({"spec": {"resourceAttributes": {
        "namespace": world.namespace, "verb": "create", "resource": "pods", "subresource": "eviction",
    }}}))
    .unwrap();
    let reviews: Api<SelfSubjectAccessReview> = Api::all(world.client.clone());
    let reviewed = reviews.create(&PostParams::default(), &review).await.unwrap();
    assert!(reviewed.status.is_some_and(|s| s.allowed));
}

fn document(name: &str, at: &str, json: &str) -> EvidenceDocument {
    let node = NodeName::parse("gpu-07").unwrap();
    EvidenceDocument { name: name.to_owned(), node, at: at.parse().unwrap(), json: json.to_owned() }
}

#[tokio::test]
async fn evidence_is_kept_replaced_and_pruned_and_what_is_not_ours_stays() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "evidence").await;
    let place = LedgerPlace { namespace: world.namespace.clone(), name: "ledger".to_owned() };
    let retention = Retention { count: 2, age: Duration::from_secs(3600) };
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"evidence.json": "X"}});
    world.create::<ConfigMap>(theirs).await;
    let kept = async || {
        let mut kept = Vec::new();
        for name in ["a", "b", "c", "d", "theirs"] {
            kept.extend(world.cluster.read_evidence(&place, name).await.unwrap());
        }
        kept.join(" ")
    };
    for (document, expected) in [
        (document("a", "2026-03-01T12:00:00Z", "A"), "A"),
        (document("a", "2026-03-01T12:01:00Z", "A2"), "A2"),
        (document("b", "2026-03-01T12:02:00Z", "B"), "A2 B"),
        (document("c", "2026-03-01T12:03:00Z", "C"), "B C"),
        (document("d", "2026-03-01T14:00:00Z", "D"), "D"),
    ] {
        world.cluster.keep_evidence(&place, &document, retention).await.unwrap();
        assert_eq!(kept().await, expected);
    }
    let map: ConfigMap = world.api().get("d").await.unwrap();
    let labels = map.metadata.labels.unwrap();
    assert_eq!(labels["app.kubernetes.io/managed-by"], "gpu-quarantine");
    assert_eq!((labels["gpu-quarantine.dev/evidence"].as_str(), labels["gpu-quarantine.dev/node"].as_str()), ("true", "gpu-07"));
    let told =
        world.cluster.keep_evidence(&place, &document("theirs", "2026-03-01T14:00:00Z", "Y"), retention).await.unwrap_err();
    assert!(told.to_string().ends_with("there is one of that name that is not ours"), "{told}");
    let theirs: ConfigMap = world.api().get("theirs").await.unwrap();
    assert_eq!(theirs.data.unwrap()["evidence.json"], "X");
    // As large as a document may be.
    let large = document("large", "2026-03-01T14:00:00Z", &"x".repeat(900 * 1024));
    world.cluster.keep_evidence(&place, &large, retention).await.unwrap();
    assert_eq!(world.cluster.read_evidence(&place, "large").await.unwrap().map(|t| t.len()), Some(900 * 1024));
}

#[tokio::test]
async fn the_events_about_a_pod_or_a_node_are_read_oldest_first() {
    let Some(server) = ApiServer::shared().await else { return };
    let world = World::new(server, "said").await;
    let event = |name: &str, object: Value, last: &str, reason: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": object, "type": "Warning",
            "reason": reason, "message": format!("note of {reason}"), "count": 3, "lastTimestamp": last,
        })
    };
    let about = |uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "namespace": world.namespace, "name": "p", "uid": uid});
    world.create::<Event>(event("z", about("u-1"), "2026-03-01T12:00:00Z", "First")).await;
    world.create::<Event>(event("y", about("u-1"), "2026-03-01T12:01:00Z", "Second")).await;
    world.create::<Event>(event("x", about("u-1"), "2026-03-01T12:02:00Z", "Third")).await;
    world.create::<Event>(event("w", about("u-2"), "2026-03-01T12:03:00Z", "OfAnother")).await;
    let said = world.cluster.events_about(Some(&world.namespace), "p", "u-1", 2).await.unwrap();
    let second =
        json!({"at": "2026-03-01T12:01:00Z", "type": "Warning", "reason": "Second", "note": "note of Second", "count": 3});
    assert_eq!((said.len(), &said[0], &said[1]["reason"]), (2, &second, &json!("Third")));

    let node = unique("gpu-said");
    let default: Api<Event> = Api::namespaced(world.client.clone(), "default");
    let about = |uid: &str| json!({"kind": "Node", "name": node, "uid": uid});
    for (uid, last, reason) in [
        ("u-node", "2026-03-01T12:02:00Z", "ByUid"),
        (node.as_str(), "2026-03-01T12:01:00Z", "ByName"),
        ("u-former", "2026-03-01T12:03:00Z", "OfAnother"),
    ] {
        let raw = event(&unique("event"), about(uid), last, reason);
        default.create(&PostParams::default(), &serde_json::from_value(raw).unwrap()).await.expect("an Event");
    }
    let said = world.cluster.events_about(None, &node, "u-node", 10).await.unwrap();
    let reasons: Vec<_> = said.iter().map(|event| event["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["ByName", "ByUid"]);
}
