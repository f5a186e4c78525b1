//! Notices as Kubernetes Events on the nodes they are about.
//!
//! Our own `events.k8s.io/v1` objects: kube-rs' `Recorder` groups Events without looking at their note, so that the second
//! fault of a node within six minutes is lost, and before Kubernetes 1.21 it fails for Nodes altogether. An Event is best
//! effort: it is written by a task of its own, and nobody waits for it.

#[cfg(test)]
mod tests;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, api::PostParams};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use super::{CALL_TIMEOUT, CallError, FIELD_MANAGER, KubeCluster};
use crate::{
    cluster::Cluster as _,
    engine::{Clock, NoticeSink},
    metrics::{EventResult, Metrics},
    notice::{Admission, Limiter, Notice, exporter_not_tolerating},
    policy::Config,
};

/// Notices that wait to be sent. More are dropped, and counted.
const QUEUE: usize = 256;
/// The longest `reportingInstance` that the API server takes.
const MAX_INSTANCE: usize = 128;
/// The part of a node's name that fits into an Event's name beside what makes it unique.
const MAX_NAME: usize = 200;

type Told = (Notice, Arc<Config>);

/// The task that writes Events.
#[derive(Debug)]
pub struct EventWriter {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl EventWriter {
    /// Start it. What the sink is told is written by and by; the sink itself returns at once, always.
    #[must_use]
    pub fn start(cluster: Arc<KubeCluster>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> (NoticeSink, Self) {
        Self::start_with(cluster, clock, metrics, &host_name())
    }

    fn start_with(cluster: Arc<KubeCluster>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>, host: &str) -> (NoticeSink, Self) {
        let (queue, waiting) = mpsc::channel::<Told>(QUEUE);
        let (stop, stopped) = watch::channel(false);
        let writer = Writer {
            cluster,
            clock,
            metrics: Arc::clone(&metrics),
            host: host.to_owned(),
            limiter: Limiter::default(),
            count: 0,
        };
        let task = tokio::spawn(writer.run(waiting, stopped));
        let sink = move |notice: Notice, config: &Arc<Config>| {
            if config.events.enabled && queue.try_send((notice, Arc::clone(config))).is_err() {
                metrics.event(EventResult::Dropped);
            }
        };
        (Box::new(sink), Self { task, stop })
    }

    /// Write what waits, for at most `patience`, and end.
    pub async fn finish(mut self, patience: Duration) {
        self.stop.send_replace(true);
        if tokio::time::timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

struct Writer {
    cluster: Arc<KubeCluster>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    host: String,
    limiter: Limiter,
    count: u16,
}

impl Writer {
    async fn run(mut self, mut waiting: mpsc::Receiver<Told>, mut stopped: watch::Receiver<bool>) {
        loop {
            let told = tokio::select! {
                told = waiting.recv() => told,
                // Told once, to stop; an error means that the owner is gone, which is a stop as well.
                _ = stopped.changed() => break,
            };
            let Some((notice, config)) = told else { return };
            self.take(notice, &config).await;
        }
        // What was told before is still written.
        waiting.close();
        while let Some((notice, config)) = waiting.recv().await {
            self.take(notice, &config).await;
        }
    }

    async fn take(&mut self, notice: Notice, config: &Config) {
        if !self.write(&notice, config).await {
            return;
        }
        let Some(taint) = &notice.taint else { return };
        let (selectors, now) = (&config.locate.exporter_pods, self.clock.now());
        let names = self.cluster.not_tolerating(selectors, taint, now).await;
        if !names.is_empty() {
            self.write(&exporter_not_tolerating(&notice, taint, &names), config).await;
        }
    }

    /// Whether it was admitted, written or not.
    async fn write(&mut self, notice: &Notice, config: &Config) -> bool {
        match self.limiter.admit(notice, self.clock.now()) {
            Admission::Send => {}
            Admission::Repeated => {
                self.metrics.event(EventResult::Repeated);
                return false;
            }
            Admission::Dropped => {
                self.metrics.event(EventResult::Dropped);
                return false;
            }
        }
        self.count = self.count.wrapping_add(1);
        let event = event(notice, config, &self.host, self.count);
        match self.cluster.create_event(&event, &config.events.namespace).await {
            Ok(()) => self.metrics.event(EventResult::Sent),
            Err(error) => {
                self.limiter.failed(notice);
                self.metrics.event(EventResult::Failed);
                let node = notice.node.as_ref().map(|n| n.name.as_str()).unwrap_or_default();
                tracing::warn!(
                    %error, reason = %notice.reason, node, note = %notice.note,
                    "An Event could not be written; what it tells was done all the same.{}", advice(&error, config)
                );
            }
        }
        true
    }
}

impl KubeCluster {
    async fn create_event(&self, event: &Event, namespace: &str) -> Result<(), CallError> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        self.call("create", CALL_TIMEOUT, api.create(&params, event)).await.map(drop)
    }
}

/// What to set if the API server will not take Events there.
fn advice(error: &CallError, config: &Config) -> String {
    let namespace = &config.events.namespace;
    match error {
        CallError::Status(401 | 403, _) => format!(
            " Allow `create` on events.events.k8s.io in the namespace {namespace} (a Role and a RoleBinding there), or set \
             events.enabled to false."
        ),
        CallError::Status(404, _) => {
            format!(" The namespace {namespace} or events.k8s.io/v1 (Kubernetes 1.19) is not there: set events.namespace.")
        }
        CallError::Status(422, _) if namespace != "kube-system" => {
            " Before Kubernetes 1.21 Events about nodes are taken in kube-system only: set events.namespace to that.".to_owned()
        }
        _ => String::new(),
    }
}

/// The Event of a notice. One without a node regards the namespace that it is written to.
fn event(notice: &Notice, config: &Config, host: &str, count: u16) -> Event {
    let instance = reporting_instance(&config.instance, host);
    let (kind, name, uid) = match &notice.node {
        // `kubectl describe node` looks for the UID and, as kubelets have it, for the name in its place.
        Some(node) => ("Node", node.name.as_str(), Some(node.uid.clone().unwrap_or_else(|| node.name.to_string()))),
        None => ("Namespace", config.events.namespace.as_str(), None),
    };
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(name, notice, &instance, count)),
            namespace: Some(config.events.namespace.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(notice.at)),
        type_: Some(if notice.reason.is_warning() { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(notice.reason.as_str().to_owned()),
        action: Some(notice.reason.action().to_owned()),
        note: Some(notice.note.clone()),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(kind.to_owned()),
            name: Some(name.to_owned()),
            // Neither has a namespace, and `kubectl describe` looks for those that say so.
            uid,
            ..ObjectReference::default()
        }),
        reporting_controller: Some(format!("{}/gpu-quarantine", config.domain)),
        reporting_instance: Some(instance),
        ..Event::default()
    }
}

/// Unique among the Events of all replicas: the object, then time, replica and a running number in hex (RFC 1123).
fn event_name(object: &str, notice: &Notice, instance: &str, count: u16) -> String {
    // Names of nodes and namespaces are ASCII.
    let object = object.get(..MAX_NAME).unwrap_or(object).trim_end_matches(['-', '.']);
    let mut replica = DefaultHasher::new();
    instance.hash(&mut replica);
    let replica = replica.finish() & 0xffff;
    format!("{object}.{:x}{replica:04x}{count:04x}", notice.at.as_microsecond())
}

fn reporting_instance(instance: &str, host: &str) -> String {
    format!("{instance}-{host}").chars().filter(char::is_ascii).take(MAX_INSTANCE).collect()
}

/// The name of this host, which in a pod is the pod's.
fn host_name() -> String {
    let named = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let name = named.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    name.map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
