//! The kubelet of the nodes of one test. It makes nodes ready, runs the pods that are bound to them, in name or as processes, and
//! takes away those that were deleted. Of heartbeats it sends none: nobody listens.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use crate::{
    container::Container,
    nodes::{Nodes, node},
    process::unique,
    service::now,
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What a pod is to this kubelet.
#[derive(Debug, Clone)]
pub(crate) enum Runs {
    /// A name. Deleted, it is gone after its grace, but not later than this.
    InName(Duration),
    /// A process: the command of its first container, with its log in this directory.
    Processes(PathBuf),
}

/// A kubelet. Dropped, it runs nothing any more, and says so to nobody.
#[derive(Debug)]
pub(crate) struct Kubelet {
    inner: Arc<Inner>,
    tasks: Vec<JoinHandle<()>>,
}

struct Inner {
    client: Client,
    nodes: BTreeSet<String>,
    runs: Runs,
    /// By UID: all that were ever seen here.
    pods: Mutex<BTreeMap<String, Seen>>,
    addresses: AtomicU16,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").field("nodes", &self.nodes).field("runs", &self.runs).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Seen {
    /// The grace in seconds, once it is deleted.
    deleted: watch::Sender<Option<u64>>,
    container: Option<Arc<Mutex<Container>>>,
}

/// Create a node in the scope of `scope` that has so many GPUs and room for pods.
pub(crate) async fn register(nodes: &Nodes, name: &str, scope: &str, gpus: usize) -> Value {
    nodes.create(node(name, scope)).await;
    // One that a machine could have.
    let machine = name.bytes().fold(0_u32, |n, byte| n.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let room = json!({"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": gpus.to_string()});
    let status = json!({
        "capacity": room, "allocatable": room,
        "nodeInfo": {"systemUUID": format!("{machine:08x}-8a3e-4c1d-b7a1-000000000000"), "bootID": unique("boot"), "kernelVersion": "6.8.0-test", "kubeletVersion": "v0.0.0-test"},
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a test kubelet is ready",
                        "lastHeartbeatTime": now().to_string(), "lastTransitionTime": now().to_string()}],
    });
    nodes.set_status(name, status).await;
    nodes.get(name).await
}

impl Kubelet {
    /// Start one for these nodes.
    pub(crate) fn start(client: &Client, nodes: &[String], runs: Runs) -> Self {
        let inner = Arc::new(Inner {
            client: client.clone(),
            nodes: nodes.iter().cloned().collect(),
            runs,
            pods: Mutex::new(BTreeMap::new()),
            addresses: AtomicU16::new(1),
        });
        let tasks = vec![tokio::spawn(keep_ready(Arc::clone(&inner))), tokio::spawn(run_pods(Arc::clone(&inner)))];
        Self { inner, tasks }
    }

    /// Send a signal to the process of a pod.
    pub(crate) fn signal(&self, uid: &str, name: &str) {
        assert!(self.container(uid, |container| container.signal(name)), "the process of the pod {uid} has ended");
    }

    /// The end of a pod's log.
    pub(crate) fn tail(&self, uid: &str) -> String {
        self.container(uid, Container::tail)
    }

    fn container<T>(&self, uid: &str, ask: impl FnOnce(&Container) -> T) -> T {
        let container = lock(&self.inner.pods).get(uid).and_then(|seen| seen.container.clone());
        let container = container.unwrap_or_else(|| panic!("no process runs for the pod {uid}"));
        let container = lock(&container);
        ask(&container)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        // With the tasks go the processes.
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Take the taint away that every new node has until it is ready.
async fn keep_ready(inner: Arc<Inner>) {
    let nodes = Nodes::of(inner.client.clone());
    let mut events = pin!(watcher(Api::<Node>::all(inner.client.clone()), watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let Ok(Event::Apply(node) | Event::InitApply(node)) = event else { continue };
        let (name, node) = (node.name_any(), json!(node));
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        if inner.nodes.contains(&name) && taints.iter().any(|taint| taint["key"] == NOT_READY) {
            let others: Vec<&Value> = taints.iter().filter(|taint| taint["key"] != NOT_READY).collect();
            let patch = json!({
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": others},
            });
            // If somebody else wrote meanwhile, the watch brings that.
            drop(nodes.try_patch("kubelet", &name, patch).await);
        }
    }
}

async fn run_pods(inner: Arc<Inner>) {
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    let mut events = pin!(watcher(Api::<Pod>::all(inner.client.clone()), bound).default_backoff());
    let mut running = JoinSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => inner.seen(pod, &mut running),
            Ok(Event::Delete(pod)) => inner.leave(&pod.uid().unwrap_or_default(), 0),
            _ => {}
        }
        while let Some(ended) = running.try_join_next() {
            ended.expect("running a pod does not panic");
        }
    }
}

impl Inner {
    fn seen(self: &Arc<Self>, pod: Pod, running: &mut JoinSet<()>) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let uid = pod.uid().expect("every object has one");
        if !self.nodes.contains(&node) {
            return;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        let new = !lock(&self.pods).contains_key(&uid) && !["Succeeded", "Failed"].contains(&phase.as_str());
        let grace = pod.metadata.deletion_timestamp.as_ref().map(|_| grace(&pod));
        if new {
            let (deleted, leaves) = watch::channel(None);
            let container = match &self.runs {
                Runs::Processes(logs) if grace.is_none() => Some(Arc::new(Mutex::new(Container::start(&pod, &node, logs)))),
                _ => None,
            };
            lock(&self.pods).insert(uid.clone(), Seen { deleted, container: container.clone() });
            running.spawn(Arc::clone(self).run(pod, leaves, container));
        }
        if let Some(grace) = grace {
            self.leave(&uid, grace);
        }
    }

    fn leave(&self, uid: &str, grace: u64) {
        if let Some(seen) = lock(&self.pods).get(uid) {
            seen.deleted.send_replace(Some(grace));
        }
    }

    /// The life of a pod.
    async fn run(self: Arc<Self>, pod: Pod, mut leaves: watch::Receiver<Option<u64>>, container: Option<Arc<Mutex<Container>>>) {
        let [high, low] = self.addresses.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        // Of this machine, so that what listens there can be reached.
        let address = format!("127.77.{high}.{low}");
        let begin = now();
        if leaves.borrow().is_none() {
            let running = json!({"running": {"startedAt": begin.to_string()}});
            self.tell(
                &pod,
                "Running",
                &running,
                json!({"podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.0.1",
                "startTime": begin.to_string()}),
            )
            .await;
        }
        let deleted = async |leaves: &mut watch::Receiver<Option<u64>>| match leaves.wait_for(Option::is_some).await {
            Ok(grace) => Duration::from_secs(grace.unwrap_or_default()),
            Err(_) => Duration::ZERO,
        };
        let code = if let Some(container) = container {
            let ended = tokio::select! {
                () = ended(&container) => None,
                grace = deleted(&mut leaves) => Some(grace),
            };
            if let Some(grace) = ended {
                lock(&container).signal("TERM");
                // One that was stopped does not hear it.
                drop(tokio::time::timeout(grace, self::ended(&container)).await);
            }
            lock(&container).end()
        } else {
            let grace = deleted(&mut leaves).await;
            let Runs::InName(most) = self.runs else { unreachable!("a process without a container") };
            tokio::time::sleep(grace.min(most)).await;
            143
        };
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let reason = if code == 0 { "Completed" } else { "Error" };
        let state = json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": begin.to_string(),
                                          "finishedAt": now().to_string()}});
        self.tell(&pod, phase, &state, json!({})).await;
        deleted(&mut leaves).await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().expect("pods have one"));
        let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
        let at_once = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
        // It may be gone already.
        drop(pods.delete(&pod.name_any(), &at_once).await);
    }

    /// Write the status of a pod.
    async fn tell(&self, pod: &Pod, phase: &str, state: &Value, more: Value) {
        let runs = phase == "Running";
        let condition = |kind: &str, holds: bool| json!({"type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": now().to_string()});
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "", "restartCount": 0, "ready": runs, "started": runs,
                "state": state,
            })
        });
        let mut status = more;
        status["phase"] = json!(phase);
        status["containerStatuses"] = containers.collect();
        status["conditions"] =
            json!([condition("Initialized", true), condition("ContainersReady", runs), condition("Ready", runs)]);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().expect("pods have one"));
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
        // A pod that is gone has no status.
        drop(pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await);
    }
}

/// Its grace when it was deleted.
fn grace(pod: &Pod) -> u64 {
    pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default()
}

/// Wait until a process has ended. Nobody tells: it is looked at.
async fn ended(container: &Mutex<Container>) {
    while !lock(container).has_ended() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
