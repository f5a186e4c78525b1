//! Some nodes with a kubelet, a namespace, and the service for them.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    audit::{Asked, asked},
    controllers::Controlled,
    kubelet::{Kubelet, Runs, register},
    nodes::{Nodes, record},
    pods::{OPTED_IN, Pods, runs, template, uid},
    process::{eventually, unique},
    service::Service,
};

/// How long a deleted pod takes to be gone, if its grace is not shorter.
const LINGERS: Duration = Duration::from_millis(300);
/// For how long is waited: a refused eviction is tried again after a pause that doubles.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the first pause after a refusal: what was not evicted by then is not about to be.
pub(crate) const QUIET: Duration = Duration::from_secs(8);
/// Whatever a budget does not forbid goes at once.
pub(crate) const AT_ONCE: &str = "settle: 0s, deadline: 10m, unknown_gpu: node, max_restarts_per_hour: 1000";

/// A small cluster in a large one.
pub(crate) struct World {
    pub(crate) server: &'static Controlled,
    /// The value of the label of its nodes, and its namespace.
    pub(crate) scope: String,
    pub(crate) nodes: Nodes,
    pub(crate) names: Vec<String>,
    pub(crate) pods: Pods,
    // Ends with it.
    _kubelet: Kubelet,
}

impl World {
    /// So many nodes with so many GPUs each. `None` if a program is missing, which is said then.
    pub(crate) async fn of(stem: &str, count: usize, gpus: usize) -> Option<Self> {
        let server = Controlled::shared().await?;
        let client = server.api.client().await;
        let nodes = Nodes::of(client.clone());
        let scope = unique(stem);
        let names: Vec<String> = (0..count).map(|i| format!("{scope}-{i}")).collect();
        let kubelet = Kubelet::start(&client, &names, Runs::InName(LINGERS));
        for name in &names {
            register(&nodes, name, &scope, gpus).await;
        }
        let pods = Pods::in_namespace(client, &scope).await;
        Some(Self { server, scope, nodes, names, pods, _kubelet: kubelet })
    }

    /// The configuration of a service that evicts; what is said of evictions is the inside of a map.
    pub(crate) fn config(&self, eviction: &str) -> String {
        let scope = &self.scope;
        format!(
            "instance: {scope}\nscope: {{nodes: gq-test={scope}}}\nledger: {{namespace: kube-system, name: {scope}}}\n\
             events: {{namespace: kube-system}}\nguard: {{max_isolated: {{count: 100, percent: 100}}, pools: {{max_isolated: {{count: 100, percent: 100}}, min_healthy: 0}}, max_new_isolations: {{count: 1000}}, max_evicted_gangs: {{count: 1000}}}}\n\
             release: {{after: 200ms, require: [resolved], flapping: {{longer_after: 0, person_after: 0}}}}\n\
             policies:\n  - {{name: gpu-lost, match: ['alertname=\"GpuLost\"'], action: evict}}\neviction: {{{eviction}}}\n"
        )
    }

    /// The service, started and ready.
    pub(crate) async fn service(&self, eviction: &str) -> Service {
        Service::start(self.server.api.kubeconfig(), &self.config(eviction), &[]).await
    }

    /// Run `nodes` with these arguments, which must go well.
    pub(crate) fn nodes_command(&self, args: &[&str]) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("config.yaml");
        fs::write(&file, self.config(AT_ONCE)).expect("the directory is writable");
        let output = Command::new(env!("CARGO_BIN_EXE_gpu-quarantine"))
            .arg("nodes")
            .args(args)
            .arg("--config.file")
            .arg(&file)
            .arg("--kubeconfig")
            .arg(self.server.api.kubeconfig())
            .env_remove("KUBECONFIG")
            .env("USER", "alice")
            .stdin(Stdio::null())
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "{args:?}: {output:?}");
    }

    /// What makes pods that opted in and use a GPU; `labels` is an object with more.
    pub(crate) fn opted_in(&self, mut labels: Value) -> Value {
        labels[OPTED_IN] = json!("true");
        template(&self.scope, &labels, 1)
    }

    /// A `StatefulSet` of one pod that opted in, has the label `app` and can run on this node only.
    pub(crate) fn set_of_one(&self, name: &str, app: &str, node: &str) -> Value {
        let mut template = self.opted_in(json!({"app": app, "set": name}));
        template["spec"]["restartPolicy"] = json!("Always");
        template["spec"]["nodeSelector"]["kubernetes.io/hostname"] = json!(node);
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"set": name}}, "serviceName": name, "template": template,
                     "updateStrategy": {"type": "OnDelete"}},
        })
    }

    /// Create one, and wait for its pod `<name>-0`; the UID of that.
    pub(crate) async fn pod_on(&self, name: &str, app: &str, node: &str) -> String {
        self.pods.create(&self.set_of_one(name, app, node)).await;
        uid(&self.pods.wait_running(&format!("set={name}"), 1).await[0]).to_owned()
    }

    /// Wait until the pod of that UID stands so in the record of a node, for a reason with these words.
    pub(crate) async fn wait_stands(&self, service: &Service, node: &str, uid: &str, state: &str, words: &[&str]) -> Value {
        eventually(&format!("{uid} on {node} is {state}, with {words:?}"), PATIENCE, async || {
            let record = record(&self.nodes.get(node).await).unwrap_or_default();
            let pods = record["eviction"]["pods"].as_array().cloned().unwrap_or_default();
            let pod = pods.iter().find(|pod| pod["uid"] == uid);
            let why = pod.and_then(|pod| pod["why"].as_str()).unwrap_or_default();
            match pod {
                Some(pod) if pod["state"] == state && words.iter().all(|word| why.contains(word)) => Ok(pod.clone()),
                _ => Err(format!("{}\n{}", record["eviction"], service.tail())),
            }
        })
        .await
    }

    /// Wait until the pod of that UID is not there any more, or told to leave.
    pub(crate) async fn wait_leaves(&self, service: &Service, name: &str, uid: &str) {
        eventually(&format!("{name} leaves"), PATIENCE, async || match self.pods.get(name).await {
            Some(pod) if self::uid(&pod) == uid && pod["metadata"]["deletionTimestamp"].is_null() => {
                Err(format!("{pod}\n{}", service.tail()))
            }
            _ => Ok(()),
        })
        .await;
    }

    /// The pod of that UID runs, and goes on doing so for a while.
    pub(crate) async fn stays(&self, service: &Service, name: &str, uid: &str) {
        let end = Instant::now() + QUIET;
        while Instant::now() < end {
            let pod = self.pods.get(name).await;
            let stays = pod.as_ref().is_some_and(|pod| runs(pod) && self::uid(pod) == uid);
            assert!(stays, "{name} did not stay: {pod:?}\n{}", service.tail());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(self.times_evicted(name), 0);
    }

    /// All requests so far by which pods of this world were to go.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        asked(&self.server.audit_log(), &self.scope)
    }

    /// How often the API server took an eviction of a pod of that name.
    pub(crate) fn times_evicted(&self, pod: &str) -> usize {
        self.asked().iter().filter(|asked| asked.evicted() && asked.pod == pod).count()
    }
}
