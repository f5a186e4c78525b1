//! Pods of an isolated node are asked to leave (P3, P8, P9): the engine on the embedded cluster, which fails when told to.

use std::sync::Arc;

use gpu_quarantine::{
    alert::{Delivery, parse_body},
    cluster::{EvictionAnswer, snapshot::SnapshotCluster},
    locate::PodName,
};
use serde_json::{Value, json};

use crate::harness::{Fault, Faulty, Meets, Sent, Service, at, body, fixture, name, sent};

pub(crate) const EVICTING: &str = "
release: {after: 10m, require: [resolved]}
eviction: {settle: 10s, deadline: 5m, checkpoint: 1m}
guard: {pools: {min_healthy: 0}}
policies:
  - {name: gpu-lost, match: ['alertname=\"GpuLost\"'], action: evict}
";
pub(crate) const BEGIN: &str = "2026-11-29T20:16:00Z";
pub(crate) const POD: &str = "team-a/llm-0";

/// The node as a whole is lost.
pub(crate) fn lost() -> Sent {
    sent(&[("alertname", "GpuLost"), ("node", "gpu-1"), ("gpu_scope", "node"), ("fault", "memory-uncontained")])
}

/// A body with it.
pub(crate) fn delivery() -> Delivery {
    let bytes: axum::body::Bytes = body(&[lost()]).into();
    parse_body(&bytes).unwrap()
}

pub(crate) fn cluster() -> SnapshotCluster {
    let text = String::from_utf8(fixture("eviction/cluster.yaml")).unwrap();
    SnapshotCluster::load("cluster.yaml", &text, "gpu-quarantine.dev").unwrap()
}

/// The service on fixtures/eviction, of whose pods only `llm-0` is left to be evicted: the others of team-b and team-c opted out.
pub(crate) async fn start() -> Service {
    let cluster = cluster();
    for pod in ["team-b/chat-5d9c-x2x4t", "team-c/sim-workers-0-0-k8r2p", "team-d/license-server-0"] {
        edit(&cluster, pod, |pod| pod["metadata"]["labels"]["gpu-quarantine.dev/evict"] = json!("false"));
    }
    Service::on(Arc::new(Faulty::around(cluster)), EVICTING, at(BEGIN)).await
}

pub(crate) fn pod(name: &str) -> PodName {
    PodName::try_from(name.to_owned()).unwrap()
}

pub(crate) fn edit(cluster: &SnapshotCluster, name: &str, change: impl FnOnce(&mut Value)) {
    cluster.edit_pod(&pod(name), change).unwrap();
}

impl Service {
    pub(crate) fn asked(&self) -> Vec<String> {
        self.cluster.evictions.asked().into_iter().map(|(pod, _)| pod.to_string()).collect()
    }

    pub(crate) fn pods(&self) -> Vec<String> {
        let name = |pod: &Value| {
            format!("{}/{}", pod["metadata"]["namespace"].as_str().unwrap(), pod["metadata"]["name"].as_str().unwrap())
        };
        self.cluster.inner.pods_json().iter().map(name).collect()
    }

    /// What stands on record of a pod of gpu-1.
    pub(crate) fn evictee(&self, pod: &str) -> Value {
        let record = self.record("gpu-1").unwrap();
        let pods = record["eviction"]["pods"].as_array().cloned().unwrap_or_default();
        pods.into_iter().find(|p| p["pod"] == pod).unwrap_or_else(|| panic!("{pod} is not on record: {record}"))
    }

    pub(crate) fn state_of(&self, pod: &str) -> String {
        self.evictee(pod)["state"].as_str().unwrap().to_owned()
    }

    pub(crate) fn why(&self, pod: &str) -> String {
        self.evictee(pod)["why"].as_str().unwrap_or_default().to_owned()
    }
}

#[tokio::test]
async fn nobody_is_asked_before_the_isolation_was_read_back_and_settled() {
    let service = start().await;
    assert_eq!(service.outcomes(&[lost()]).await, ["recorded"]);
    service.pass("9s").await;
    assert!(service.asked().is_empty(), "{:?}", service.asked());
    service.pass("1s").await;
    assert_eq!(service.asked(), [POD]);
    assert!(!service.pods().contains(&POD.to_owned()));
    service.pass("10m").await;
    assert_eq!(service.asked(), [POD], "once");
    assert_eq!(service.state_of(POD), "gone");
    assert_eq!(service.metric("gpu_quarantine_evictions_total{answer=\"accepted\"}").await.to_string(), "1");
    assert_eq!(service.metric("gpu_quarantine_evicted_pods{state=\"gone\"}").await.to_string(), "1");
}

#[tokio::test]
async fn a_node_that_could_not_be_isolated_loses_no_pod() {
    let service = start().await;
    service.cluster.fail_node("gpu-1", Some(Fault::Refused));
    assert_eq!(service.outcomes(&[lost()]).await, ["failed"]);
    service.pass("10m").await;
    assert!(service.asked().is_empty());
}

#[tokio::test]
async fn a_policy_that_only_isolates_evicts_nobody() {
    let service =
        Service::on(Arc::new(Faulty::around(cluster())), &EVICTING.replace("action: evict", "action: isolate"), at(BEGIN)).await;
    assert_eq!(service.outcomes(&[lost()]).await, ["recorded"]);
    service.pass("10m").await;
    assert!(service.asked().is_empty() && service.record("gpu-1").unwrap()["eviction"].is_null());
}

#[tokio::test]
async fn a_budget_that_never_allows_is_asked_until_the_deadline_and_the_pod_stays() {
    let service = start().await;
    edit(&service.cluster.inner, POD, |pod| pod["metadata"]["labels"]["app"] = json!("chat"));
    service
        .cluster
        .inner
        .create(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "never", "namespace": "team-a" },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "chat" } } },
        }))
        .unwrap();
    service.outcomes(&[lost()]).await;
    service.pass("1m").await;
    assert_eq!(
        (service.state_of(POD).as_str(), service.why(POD).as_str()),
        ("blocked", "the PodDisruptionBudget never allows no disruption now")
    );
    service.pass("30m").await;
    assert_eq!(service.state_of(POD), "left");
    assert!(service.why(POD).starts_with("not gone within 5m: the PodDisruptionBudget never"), "{}", service.why(POD));
    assert!(service.pods().contains(&POD.to_owned()));
    let asked = service.asked().len();
    assert!((5..12).contains(&asked), "ever more rarely: {asked}");
}

#[tokio::test]
async fn a_budget_that_allows_later_lets_it_go_then() {
    let service = start().await;
    let blocked = EvictionAnswer::Blocked { budget: Some("llm".to_owned()), message: "no".to_owned() };
    service.cluster.evictions.answer([blocked.clone(), blocked]);
    service.outcomes(&[lost()]).await;
    service.pass("12s").await;
    assert_eq!(service.state_of(POD), "blocked");
    service.pass("1m").await;
    assert_eq!((service.asked().len(), service.state_of(POD).as_str()), (3, "gone"));
}

#[tokio::test]
async fn two_budgets_are_named_as_what_they_are() {
    let service = start().await;
    for budget in ["one", "two"] {
        service
            .cluster
            .inner
            .create(json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": budget, "namespace": "team-a" },
                "spec": { "maxUnavailable": 1, "selector": {} },
            }))
            .unwrap();
    }
    service.outcomes(&[lost()]).await;
    service.pass("15s").await;
    assert_eq!(service.state_of(POD), "blocked");
    assert!(service.why(POD).starts_with("more than one PodDisruptionBudget matches it"), "{}", service.why(POD));
}

#[tokio::test]
async fn a_throttled_request_is_tried_again_and_one_forbidden_says_what_to_allow() {
    let service = start().await;
    let throttled = EvictionAnswer::Throttled { retry_after: Some(std::time::Duration::from_secs(3)) };
    let forbidden = EvictionAnswer::Forbidden { message: "allow create on pods/eviction".to_owned() };
    service.cluster.evictions.answer([throttled, forbidden]);
    service.outcomes(&[lost()]).await;
    service.pass("10s").await;
    assert_eq!(service.why(POD), "the API server has no room for it now (priority and fairness)");
    service.pass("3s").await;
    assert_eq!(service.why(POD), "the API server forbids it: allow create on pods/eviction");
    service.pass("70s").await;
    assert_eq!(service.state_of(POD), "gone");
}

#[tokio::test]
async fn an_answer_that_got_lost_is_looked_for_before_it_is_asked_again() {
    let service = start().await;
    let unknown = EvictionAnswer::Unknown { message: "no answer within 3s".to_owned() };
    service.cluster.evictions.meet([Meets::Afterwards(unknown)]);
    service.outcomes(&[lost()]).await;
    service.pass("1m").await;
    assert_eq!((service.asked().len(), service.state_of(POD).as_str()), (1, "gone"));
}

type Meanwhile = fn(&SnapshotCluster);

/// The plan stands on record, and somebody does this before the pod's turn comes.
async fn meanwhile(service: &Service, change: Meanwhile) {
    service.outcomes(&[lost()]).await;
    service.pass("5s").await;
    service.cluster.after_next(change);
    service.pass("6s").await;
}

#[tokio::test]
async fn a_pod_that_another_took_the_name_of_is_left_alone() {
    let service = start().await;
    service.cluster.evictions.before_next(|cluster| {
        cluster.delete_pod(&pod(POD)).unwrap();
        let raw = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "llm-0", "namespace": "team-a", "creationTimestamp": "2026-11-29T20:16:10Z" },
            "spec": { "nodeName": "gpu-2", "containers": [] }, "status": { "phase": "Running" },
        });
        cluster.create(raw).unwrap();
    });
    service.outcomes(&[lost()]).await;
    service.pass("1m").await;
    assert_eq!(service.asked(), [POD]);
    assert!(service.pods().contains(&POD.to_owned()), "the other one runs on");
    assert_eq!((service.state_of(POD).as_str(), service.why(POD).as_str()), ("gone", "another pod has its name now"));
}

#[tokio::test]
async fn a_pod_that_is_gone_is_no_failure() {
    let service = start().await;
    service.cluster.evictions.before_next(|cluster| cluster.delete_pod(&pod(POD)).unwrap());
    service.outcomes(&[lost()]).await;
    service.pass("1m").await;
    assert_eq!(service.state_of(POD), "gone");
}

#[tokio::test]
async fn a_node_held_or_released_between_plan_and_eviction_loses_nobody() {
    let hold: Meanwhile = |cluster| {
        cluster.edit(&name("gpu-1"), |node| node["metadata"]["annotations"]["gpu-quarantine.dev/hold"] = json!("mine")).unwrap();
    };
    let release: Meanwhile = |cluster| {
        cluster
            .edit(&name("gpu-1"), |node| {
                node["spec"]["taints"] = json!([]);
                node["metadata"]["managedFields"] =
                    json!([{"manager": "kubectl-taint", "fieldsV1": {"f:spec": {"f:taints": {}}}}]);
            })
            .unwrap();
    };
    for change in [hold, release] {
        let service = start().await;
        meanwhile(&service, change).await;
        assert!(service.asked().is_empty(), "{:?}", service.asked());
        assert!(service.pods().contains(&POD.to_owned()));
    }
}

#[tokio::test]
async fn an_alert_that_is_over_or_silenced_meanwhile_ends_it_and_a_new_firing_goes_on() {
    let service = start().await;
    let blocked = EvictionAnswer::Blocked { budget: None, message: "no".to_owned() };
    service.cluster.evictions.answer([blocked]);
    service.outcomes(&[lost()]).await;
    service.pass("11s").await;
    service.outcomes(&[lost().over("2026-11-29T20:16:11Z")]).await;
    service.pass("2m").await;
    assert_eq!((service.asked().len(), service.state_of(POD).as_str()), (1, "waiting"));
    assert_eq!(service.why(POD), "not now: no claim that evicts fires, or all are silenced");
    service.outcomes(&[lost().since("2026-11-29T20:18:00Z")]).await;
    service.pass("1m").await;
    assert_eq!((service.asked().len(), service.state_of(POD).as_str()), (2, "gone"));
}

#[tokio::test]
async fn one_failure_does_not_stop_the_others() {
    let cluster = cluster();
    edit(&cluster, "team-c/sim-workers-0-0-k8r2p", |pod| {
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "example.com/v1", "kind": "Sim", "name": "sim", "uid": "x", "controller": true,
        }]);
    });
    let service = Service::on(Arc::new(Faulty::around(cluster)), EVICTING, at(BEGIN)).await;
    service.cluster.evictions.answer([EvictionAnswer::Refused { message: "an admission webhook says no".to_owned() }]);
    service.outcomes(&[lost()]).await;
    service.pass("1m").await;
    let states: Vec<String> =
        ["team-a/llm-0", "team-b/chat-5d9c-x2x4t", "team-c/sim-workers-0-0-k8r2p"].map(|p| service.state_of(p)).into();
    assert_eq!(states, ["blocked", "blocked", "gone"]);
    assert_eq!(service.why(POD), "the API server refuses it: an admission webhook says no");
}

#[tokio::test]
async fn pods_that_cannot_be_read_are_read_again_and_nothing_is_done_meanwhile() {
    let service = start().await;
    service.cluster.evictions.fail_reads(Some("HTTP 500"));
    service.outcomes(&[lost()]).await;
    service.pass("1m").await;
    assert!(service.asked().is_empty());
    service.cluster.evictions.fail_reads(None);
    service.pass("30s").await;
    assert_eq!(service.asked(), [POD]);
}

#[tokio::test]
async fn another_process_goes_on_from_the_record() {
    let service = start().await;
    let blocked = EvictionAnswer::Blocked { budget: Some("llm".to_owned()), message: "no".to_owned() };
    service.cluster.evictions.answer([blocked.clone(), blocked]);
    service.outcomes(&[lost()]).await;
    service.pass("12s").await;
    let before = service.evictee(POD);
    assert_eq!(before["tries"], 1);
    let service = service.restart(EVICTING).await;
    service.pass("2s").await;
    assert_eq!(service.evictee(POD), before, "it keeps to the pause of its predecessor");
    service.pass("2m").await;
    assert_eq!((service.asked().len(), service.evictee(POD)["asked"] == before["asked"]), (3, true));
}

#[tokio::test]
async fn what_was_done_is_told_as_a_step_with_its_pods() {
    let service = Service::on(Arc::new(Faulty::around(cluster())), EVICTING, at(BEGIN)).await;
    service.outcomes(&[lost()]).await;
    service.pass("20s").await;
    let steps = service.steps.lock().unwrap().clone();
    let told: Vec<String> = steps
        .iter()
        .filter(|s| s.action == "evict")
        .flat_map(|s| s.pods.iter().map(|p| format!("{} {} {}", p.pod, p.outcome, p.reason)))
        .collect();
    for want in [
        "team-c/sim-workers-0-0-k8r2p left JobSet team-c/sim would fail for good",
        "team-d/notebook-0 not_opted_in it has not opted in (gpu-quarantine.dev/evict=true)",
        "team-a/llm-0 accepted",
        "team-b/chat-5d9c-x2x4t blocked PodDisruptionBudget chat",
        "team-a/llm-0 gone",
    ] {
        assert!(told.iter().any(|t| t.starts_with(want)), "{want}: {told:#?}");
    }
    assert!(!told.iter().any(|t| t.contains("dcgm-exporter")), "nobody wonders about a DaemonSet: {told:#?}");
}

#[tokio::test]
async fn a_release_takes_the_eviction_off_the_record_and_keeps_what_restarts_count() {
    let service = start().await;
    service.outcomes(&[lost()]).await;
    service.pass("1m").await;
    service.outcomes(&[lost().over("2026-11-29T20:17:00Z")]).await;
    service.pass("11m").await;
    assert_eq!(service.state("gpu-1").await, "free");
    let record = service.record("gpu-1").unwrap();
    assert!(record["eviction"].is_null() && record["restarts"][0]["group"] == "Job team-a/llm", "{record}");
}

#[tokio::test]
async fn a_group_that_was_restarted_often_enough_waits_wherever_its_pods_are() {
    let text = EVICTING.replace("settle: 10s", "settle: 0s, max_restarts_per_hour: 1");
    let service = start().await.restart(&text).await;
    let on = |node: &str| sent(&[("alertname", "GpuLost"), ("node", node), ("gpu_scope", "node")]);
    service.outcomes(&[on("gpu-1")]).await;
    service.pass("5s").await;
    assert_eq!(service.asked(), [POD]);
    service.outcomes(&[on("gpu-2")]).await;
    service.pass("30m").await;
    assert_eq!(service.asked(), [POD]);
    service.pass("31m").await;
    assert_eq!(service.asked(), [POD, "team-a/llm-1"]);
}
