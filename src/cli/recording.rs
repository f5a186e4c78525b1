//! `serve --record`: what came and how the nodes were, such that `replay` of the directory decides the same.
//!
//! The directory holds `config.yaml`, `cluster.yaml` (the nodes when recording began, reduced to what decisions look at) and
//! `steps/`: bodies, changes of nodes by others and a last mark of the time, in the order of their numbers, and beside each
//! body what was answered. Bodies are redacted: of the labels only those that somebody looks at, of the annotations those that a
//! record keeps, no URLs.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Failure;
use crate::{
    alert::{ALERTNAME, Alert, Delivery, Pull},
    cluster::{Cluster, node_json, pod_json},
    engine::{Answer, Clock, Engine, Foreign, SystemClock},
    locate::NodeName,
    policy::Config,
    quarantine::evidence::Shown,
    server::Observer,
    sources::ActiveAlert,
};

/// The labels that steer the service, whatever the policies look at.
const STEERING: [&str; 6] = [ALERTNAME, "cluster", "remediation", "gpu_scope", "fault", "recovery"];
/// The annotations that a record keeps.
const KEPT: [&str; 3] = ["summary", "runbook_url", "recovery_query"];

/// A recording of a running engine's deliveries.
pub(super) struct Recorder {
    pub(super) recording: Arc<Recording>,
    pub(super) engine: Arc<Engine>,
}

impl Observer for Recorder {
    fn body<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, u64> {
        Box::pin(async move {
            let config = self.engine.config();
            self.recording.begin(&**self.engine.cluster(), &config).await;
            self.recording.body(delivery, &config, SystemClock.now())
        })
    }

    fn answer(&self, number: u64, answer: &Answer) {
        self.recording.answer(number, answer);
    }
}

/// Writes one directory.
#[derive(Debug)]
pub(super) struct Recording {
    dir: PathBuf,
    next: AtomicU64,
    begun: tokio::sync::OnceCell<()>,
}

impl Recording {
    /// Record into `dir`, which must be empty or new: two recordings in one would replay as one.
    pub(super) fn into(dir: &Path, config_file: &Path) -> Result<Self, Failure> {
        let failed = |e: io::Error| Failure::input(format!("cannot record into {}: {e}", dir.display()));
        fs::create_dir_all(dir).map_err(failed)?;
        if fs::read_dir(dir).map_err(failed)?.next().is_some() {
            return Err(Failure::input(format!("cannot record into {}: it is not empty", dir.display())));
        }
        fs::create_dir(dir.join("steps")).map_err(failed)?;
        fs::copy(config_file, dir.join("config.yaml")).map_err(failed)?;
        Ok(Self { dir: dir.to_owned(), next: AtomicU64::new(1), begun: tokio::sync::OnceCell::new() })
    }

    /// Write the nodes as they are, before the first step.
    pub(super) async fn begin(&self, cluster: &dyn Cluster, config: &Config) {
        let write = || async {
            let pods = cluster.exporter_pods(&config.locate.exporter_pods).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "The exporter pods are missing from the recording.");
                Vec::new()
            });
            let mut items: Vec<Value> = {
                let nodes = cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
                nodes.iter().map(|node| node_json(node)).collect()
            };
            items.extend(pods.iter().map(|pod| pod_json(pod, &config.locate.exporter_pods)));
            self.write("cluster.yaml", &json!({ "apiVersion": "v1", "kind": "List", "items": items }));
        };
        self.begun.get_or_init(write).await;
    }

    /// A body that came. The number is for its answer.
    pub(super) fn body(&self, delivery: &Delivery, config: &Config, now: Timestamp) -> u64 {
        let looked_at = looked_at(config);
        let alerts: Vec<Value> = delivery
            .alerts
            .iter()
            .map(|alert| match alert {
                Ok(alert) => redacted(alert, &looked_at),
                // Nothing of one that could not be read is known to be harmless.
                Err(invalid) => json!({ "labels": {}, "unreadable": invalid.reason }),
            })
            .collect();
        let body = json!({
            "version": delivery.version, "receiver": delivery.receiver, "truncatedAlerts": delivery.truncated,
            "receivedAt": now, "alerts": alerts,
        });
        self.step("body", &body)
    }

    /// What a pull found.
    pub(super) fn pull(&self, pull: &Pull, config: &Config, now: Timestamp) {
        let looked_at = looked_at(config);
        let alerts: Vec<Value> = pull.alerts.iter().map(|p| redacted(&p.alert, &looked_at)).collect();
        let muted: Vec<Option<&str>> = pull.alerts.iter().map(|p| p.muted.as_deref()).collect();
        let content = json!({ "begun": pull.begun, "incomplete": pull.incomplete, "muted": muted, "alerts": alerts });
        self.step("pull", &json!({ "receivedAt": now, "pull": content }));
    }

    /// What was shown about a node.
    pub(super) fn shown(&self, node: &NodeName, shown: &Shown, now: Timestamp) {
        self.step("evidence", &json!({ "receivedAt": now, "evidence": { "node": node, "shown": shown } }));
    }

    /// How Prometheus renders alerts.
    pub(super) fn rendered(&self, alerts: &[ActiveAlert], now: Timestamp) {
        self.step("rendered", &json!({ "receivedAt": now, "rendered": alerts }));
    }

    /// What was answered.
    pub(super) fn answer(&self, number: u64, answer: &Answer) {
        // Not *.json: it is no step.
        self.write(&format!("steps/{number:06}-body.answer"), &json!(answer));
    }

    /// Somebody else changed, added or deleted a node.
    pub(super) fn foreign(&self, change: &Foreign, now: Timestamp) {
        let object = match change {
            Foreign::Is(node) => node_json(node),
            Foreign::Gone(name) => json!({ "kind": "Node", "metadata": { "name": name }, "gone": true }),
        };
        // What was so before the recording began stands in cluster.yaml.
        if !self.begun.initialized() {
            return;
        }
        self.step("node", &json!({ "receivedAt": now, "node": object }));
    }

    /// The end: replay lets time pass until here.
    pub(super) async fn end(&self, engine: &Engine) {
        self.begin(&**engine.cluster(), &engine.config()).await;
        let now = SystemClock.now();
        self.step("end", &json!({ "receivedAt": now, "alerts": [] }));
    }

    fn step(&self, what: &str, content: &Value) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(&format!("steps/{number:06}-{what}.json"), content);
        number
    }

    /// A recording that fails must never stop the service.
    fn write(&self, name: &str, content: &Value) {
        let path = self.dir.join(name);
        let written = serde_json::to_vec_pretty(content).map_err(io::Error::from).and_then(|json| fs::write(&path, json));
        if let Err(error) = written {
            tracing::error!(%error, path = %path.display(), "A part of the recording could not be written.");
        }
    }
}

fn looked_at(config: &Config) -> BTreeSet<String> {
    let matchers = config.scope.alerts.iter().chain(config.policies.iter().flat_map(|p| &p.matchers));
    let locate = &config.locate;
    let lists = [
        &locate.node_labels,
        &locate.hostname_labels,
        &locate.instance_labels,
        &locate.uuid_labels,
        &locate.pci_labels,
        &locate.index_labels,
    ];
    matchers
        .map(|m| m.name().to_owned())
        .chain(lists.into_iter().flatten().cloned())
        .chain(["pod", "namespace"].map(str::to_owned))
        .chain(STEERING.map(str::to_owned))
        .collect()
}

fn redacted(alert: &Alert, looked_at: &BTreeSet<String>) -> Value {
    let labels: serde_json::Map<String, Value> = alert
        .labels
        .iter()
        .filter(|(name, _)| looked_at.contains(*name))
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let annotations: serde_json::Map<String, Value> = alert
        .annotations
        .iter()
        .filter(|(name, _)| KEPT.contains(name))
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    json!({
        "status": alert.status.as_str(), "labels": labels, "annotations": annotations,
        "startsAt": alert.starts_at, "endsAt": alert.ends_at, "fingerprint": alert.fingerprint,
    })
}
