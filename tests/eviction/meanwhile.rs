//! What changes while pods wait to be evicted: each time it is read again whether they may be.

use gpu_quarantine::alert::Labels;
use serde_json::json;

use crate::{
    alertmanager::Alertmanager,
    nodes::{tainted, taints},
    pods::{budget, name, runs, template, uid},
    process::{eventually, in_path, required},
    service::{Alert, Service},
    world::{AT_ONCE, PATIENCE, QUIET, World},
};

/// A node with a pod that a budget keeps, and the service at it.
struct Kept {
    world: World,
    service: Service,
    alert: Alert,
    node: String,
    pod: String,
}

impl Kept {
    async fn start(stem: &str) -> Option<Self> {
        let world = World::of(stem, 1, 8).await?;
        let node = world.names[0].clone();
        world.pods.create(&budget("kept", ("app", "kept"), 1)).await;
        let pod = world.pod_on("pod", "kept", &node).await;
        let service = world.service(AT_ONCE).await;
        let alert = Alert::on(&node);
        service.insist(&alert.firing()).await;
        world.wait_stands(&service, &node, &pod, "blocked", &["kept"]).await;
        Some(Self { world, service, alert, node, pod })
    }

    /// From now on nothing keeps the pod but what was done meanwhile, which does.
    async fn stays(&self) {
        self.world.pods.delete(&budget("kept", ("app", "kept"), 1)).await;
        self.world.stays(&self.service, "pod-0", &self.pod).await;
    }
}

#[tokio::test]
async fn a_node_that_a_person_releases_meanwhile_keeps_its_pods() {
    let Some(kept) = Kept::start("released").await else { return };
    kept.world.nodes_command(&["release", &kept.node, "--yes", "--verdict", "false-alarm"]);
    assert!(!tainted(&kept.world.nodes.get(&kept.node).await));
    kept.stays().await;
}

#[tokio::test]
async fn a_node_whose_alert_ends_meanwhile_keeps_its_pods() {
    let Some(kept) = Kept::start("resolved").await else { return };
    kept.service.insist(&kept.alert.resolved()).await;
    kept.stays().await;
}

#[tokio::test]
async fn a_node_that_a_person_holds_meanwhile_keeps_its_pods_until_it_is_let_go() {
    let Some(kept) = Kept::start("held").await else { return };
    kept.world.nodes_command(&["hold", &kept.node, "--reason", "is looked at"]);
    kept.stays().await;
    assert!(tainted(&kept.world.nodes.get(&kept.node).await));
    kept.world.nodes_command(&["unhold", &kept.node]);
    kept.world.wait_leaves(&kept.service, "pod-0", &kept.pod).await;
    assert_eq!(kept.world.times_evicted("pod-0"), 1);
}

#[tokio::test]
async fn a_node_whose_taint_was_taken_away_by_a_person_meanwhile_keeps_its_pods() {
    let Some(kept) = Kept::start("untainted").await else { return };
    // One taint stays, so that it shows who wrote the list last.
    let other = json!({"key": "other.dev/maintenance", "effect": "NoSchedule"});
    let mut both = taints(&kept.world.nodes.get(&kept.node).await);
    both.push(other.clone());
    kept.world.nodes.patch("operator", &kept.node, json!({"spec": {"taints": both}})).await;
    kept.world.nodes.patch("kubectl-taint", &kept.node, json!({"spec": {"taints": [other]}})).await;
    kept.stays().await;
}

#[tokio::test]
async fn a_pod_that_somebody_deletes_meanwhile_is_gone_and_nobody_is_asked_again() {
    let Some(kept) = Kept::start("deleted").await else { return };
    kept.world.pods.delete_at_once("pod-0").await;
    kept.world.wait_stands(&kept.service, &kept.node, &kept.pod, "gone", &[]).await;
    let asked = kept.world.asked().len();
    tokio::time::sleep(QUIET).await;
    assert_eq!(kept.world.asked().len(), asked, "{:?}", kept.world.asked());
}

#[tokio::test]
async fn an_alert_that_ends_while_the_node_settles_costs_no_pod() {
    let Some(world) = World::of("settles", 1, 8).await else { return };
    let node = &world.names[0];
    let pod = world.pod_on("pod", "any", node).await;
    let service = world.service("settle: 5s, unknown_gpu: node").await;
    let alert = Alert::on(node);
    service.insist(&alert.firing()).await;
    assert!(tainted(&world.nodes.get(node).await));
    service.insist(&alert.resolved()).await;
    world.stays(&service, "pod-0", &pod).await;
    service.wait_state(node, "free").await;
}

#[tokio::test]
async fn a_silence_meanwhile_keeps_the_pods_and_its_end_does_not() {
    let missing = "tests with a real Alertmanager need `alertmanager` in the PATH (Debian: prometheus-alertmanager)";
    let Some(program) = required(in_path("alertmanager"), missing) else { return };
    let Some(world) = World::of("silenced", 1, 8).await else { return };
    let node = &world.names[0];
    let kept = budget("kept", ("app", "kept"), 1);
    world.pods.create(&kept).await;
    let pod = world.pod_on("pod", "kept", node).await;
    let mut service = Service::prepare(&world.server.api.kubeconfig(), "", &[]);
    let route = format!(
        "route: {{receiver: q, group_by: [node], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}\n\
         receivers:\n  - name: q\n    webhook_configs:\n      - {{url: {:?}, send_resolved: true, max_alerts: 0}}\n",
        service.webhook()
    );
    let mut alertmanagers = Alertmanager::prepare(&program, &route, 1);
    let alertmanager = &mut alertmanagers[0];
    alertmanager.restart().await;
    service.configure(&format!(
        "{}sources:\n  alertmanagers: {{urls: [{:?}], receiver: q, poll_interval: 1s, settle: 0s}}\n",
        world.config(AT_ONCE),
        alertmanager.url()
    ));
    service.restart().await;
    let labels: Labels = Alert::on(node).labels();
    let labels: Vec<(&str, &str)> = labels.iter().collect();
    alertmanager.tell(&labels, false).await;
    world.wait_stands(&service, node, &pod, "blocked", &["kept"]).await;
    let silence = alertmanager.silence(node).await;
    world.wait_stands(&service, node, &pod, "waiting", &["silenced"]).await;
    world.pods.delete(&kept).await;
    world.stays(&service, "pod-0", &pod).await;
    assert!(tainted(&world.nodes.get(node).await), "a silence ends no isolation");
    alertmanager.unsilence(&silence).await;
    world.wait_leaves(&service, "pod-0", &pod).await;
    assert_eq!(world.times_evicted("pod-0"), 1);
}

#[tokio::test]
async fn pods_that_come_back_past_the_taint_are_told_of_and_not_evicted_again_and_again() {
    let Some(world) = World::of("tolerates", 1, 8).await else { return };
    let node = &world.names[0];
    let mut template = world.opted_in(json!({"app": "stubborn"}));
    template["spec"]["restartPolicy"] = json!("Always");
    template["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "stubborn"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "stubborn"}}, "template": template},
    });
    world.pods.create(&set).await;
    let first = world.pods.wait_running("app=stubborn", 1).await.remove(0);
    // Kubernetes tells times of creation in whole seconds: one that comes in the second of the isolation counts as there before.
    let service = world.service("settle: 2s, unknown_gpu: node, max_restarts_per_hour: 1000").await;
    service.insist(&Alert::on(node).firing()).await;
    world.wait_leaves(&service, name(&first), uid(&first)).await;
    let second = eventually("another pod runs in its place", PATIENCE, async || {
        let pods = world.pods.list("app=stubborn").await;
        pods.iter().find(|pod| runs(pod)).cloned().ok_or(crate::pods::brief(&pods))
    })
    .await;
    world.wait_stands(&service, node, uid(&second), "returned", &[]).await;
    world.stays(&service, name(&second), uid(&second)).await;
    let evicted = world.asked().iter().filter(|asked| asked.evicted()).count();
    assert_eq!(evicted, 1, "{:?}", world.asked());
}

#[tokio::test]
async fn a_service_that_may_not_evict_says_so_and_isolates_all_the_same() {
    let Some(world) = World::of("forbidden", 1, 8).await else { return };
    let node = &world.names[0];
    let pod = world.pod_on("pod", "any", node).await;
    let user = format!("{}-user", world.scope);
    // All but creating what lies below pods.
    let rules = json!([
        {"apiGroups": [""], "resources": ["nodes", "nodes/status", "configmaps", "namespaces"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["*"]},
    ]);
    world.server.api.bind(&user, &rules).await;
    let kubeconfig = world.server.api.kubeconfig_as(&user);
    let service = Service::start(kubeconfig, &world.config(AT_ONCE), &[]).await;
    service.insist(&Alert::on(node).firing()).await;
    world.wait_stands(&service, node, &pod, "blocked", &["forbids it"]).await;
    assert!(tainted(&world.nodes.get(node).await));
    world.stays(&service, "pod-0", &pod).await;
}

#[tokio::test]
async fn pods_that_opted_in_but_use_no_gpu_stay() {
    let Some(world) = World::of("no-gpu", 1, 8).await else { return };
    let node = &world.names[0];
    let labels = json!({"app": "cpu", crate::pods::OPTED_IN: "true"});
    world.pods.create(&crate::pods::bare("cpu", node, &template(&world.scope, &labels, 0))).await;
    let cpu = world.pods.wait_running("app=cpu", 1).await.remove(0);
    let gpu = world.pod_on("gpu", "gpu", node).await;
    let service = world.service(AT_ONCE).await;
    service.insist(&Alert::on(node).firing()).await;
    world.wait_stands(&service, node, &gpu, "gone", &[]).await;
    world.stays(&service, "cpu", uid(&cpu)).await;
}
