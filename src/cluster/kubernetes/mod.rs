//! A real cluster. Two clients: one for calls, each with a timeout and without kube-rs' own retries; one for the watch, which
//! guards itself.

mod claims;
mod connect;
mod direct;
mod events;
mod eviction;
mod evidence;
mod exporters;
mod ledger;
mod objects;
mod said;
mod watch;
mod workloads;

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::Value;

pub use connect::{ConnectError, config};
pub use direct::{CLI_MANAGER, DirectNodes};
pub use events::EventWriter;
pub use evidence::DirectEvidence;
use exporters::Exporters;
pub use ledger::DirectLedger;
use objects::{NodeObject, PodObject};

use super::{Cluster, ClusterError, LedgerError, LedgerWrite, StoredText, Workloads, exporter_pod, node_facts};
use crate::{
    locate::{ExporterPod, HOSTNAME_LABEL, Inventory, NodeFacts, NodeName, Taint},
    metrics::Metrics,
    policy::{LedgerPlace, Selector},
    quarantine::CONTROL_PLANE,
    sources::with_causes,
};

/// Our field manager, by which a write of ours is told from others.
pub const FIELD_MANAGER: &str = "gpu-quarantine";
/// When a call is given up. What it did is unknown then: 4 of 15 patches given up like this took effect later (measured).
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// A list of exporter pods may be long.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a reload waits for a new list of all nodes.
const RELIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Exporter pods are listed in pages.
const POD_PAGE: u32 = 500;

/// A cluster behind a Kubernetes API server.
pub struct KubeCluster {
    client: Client,
    nodes: Api<NodeObject>,
    watched: Api<NodeObject>,
    domain: String,
    labels: RwLock<BTreeSet<String>>,
    inventory: RwLock<Inventory>,
    ready: AtomicBool,
    changes: tokio::sync::watch::Sender<u64>,
    /// How many times a list from the beginning was asked for, and which of these requests the last whole list answered.
    asked: AtomicU64,
    answered: tokio::sync::watch::Sender<u64>,
    relist: tokio::sync::Notify,
    exporters: tokio::sync::Mutex<Exporters>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for KubeCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeCluster").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl KubeCluster {
    /// A cluster behind `config`; of each node's labels only those in `labels` are kept, and
    /// those that locating and scope always look at. Nothing is read before
    /// [`KubeCluster::watch`] runs.
    ///
    /// # Errors
    ///
    /// If no client can be made of the configuration.
    pub fn new(
        config: kube::Config,
        domain: &str,
        labels: BTreeSet<String>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ConnectError> {
        let (client, watching) = connect::clients(config)?;
        Ok(Self {
            nodes: Api::all(client.clone()),
            client,
            watched: Api::all(watching),
            domain: domain.to_owned(),
            labels: RwLock::new(labels),
            inventory: RwLock::default(),
            ready: AtomicBool::new(false),
            changes: tokio::sync::watch::Sender::new(0),
            asked: AtomicU64::new(0),
            answered: tokio::sync::watch::Sender::new(0),
            relist: tokio::sync::Notify::new(),
            exporters: tokio::sync::Mutex::default(),
            metrics,
        })
    }

    /// The client for calls.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The facts of a node as read, with the labels that somebody looks at. A node that cannot be read is logged and left out.
    fn facts(&self, node: &NodeObject) -> Option<NodeFacts> {
        let raw = serde_json::to_value(node).ok()?;
        match node_facts(&raw, &self.domain) {
            Ok(mut facts) => {
                let wanted = self.labels.read().unwrap_or_else(PoisonError::into_inner);
                let always = |key: &str| key == HOSTNAME_LABEL || CONTROL_PLANE.contains(&key);
                facts.labels.retain(|key, _| always(key) || wanted.contains(key));
                Some(facts)
            }
            Err(error) => {
                tracing::error!(%error, "A node cannot be read and is left out.");
                None
            }
        }
    }

    /// Keep what was read, unless it is older than what we have.
    fn learn(&self, facts: NodeFacts) {
        let mut inventory = self.inventory.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = inventory.get(&facts.name)
            && known.uid == facts.uid
            && is_older(&facts.resource_version, &known.resource_version)
        {
            return;
        }
        inventory.insert(facts);
    }

    /// One call with its timeout, measured.
    async fn call<T>(
        &self,
        verb: &'static str,
        timeout: Duration,
        call: impl Future<Output = kube::Result<T>> + Send,
    ) -> Result<T, CallError> {
        let begin = Instant::now();
        let result = match tokio::time::timeout(timeout, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(CallError::from(error)),
            Err(_) => Err(CallError::Timeout(timeout)),
        };
        let outcome = result.as_ref().err().map_or("ok", CallError::outcome);
        self.metrics.kubernetes_call(verb, outcome, begin.elapsed());
        result
    }
}

/// resourceVersions of one object grow; they are numbers on every server there is, and what is not is taken as newer.
fn is_older(a: &str, b: &str) -> bool {
    matches!((a.parse::<u64>(), b.parse::<u64>()), (Ok(a), Ok(b)) if a < b)
}

/// Why a call failed, as far as it matters here.
#[derive(Debug)]
enum CallError {
    Timeout(Duration),
    Status(u16, String),
    Transport(String),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Status(status.code, status.message.chars().take(300).collect()),
            other => Self::Transport(with_causes(&other)),
        }
    }
}

impl CallError {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::Transport(_) => "transport",
            Self::Status(404, _) => "not_found",
            Self::Status(409, _) => "conflict",
            Self::Status(401 | 403, _) => "forbidden",
            Self::Status(429, _) => "throttled",
            Self::Status(400..500, _) => "refused",
            Self::Status(..) => "server_error",
        }
    }

    fn about(self, node: &NodeName) -> ClusterError {
        let node = node.clone();
        match self {
            Self::Timeout(after) => {
                ClusterError::Timeout { node, after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX) }
            }
            Self::Transport(message) => ClusterError::Unavailable { node, message },
            Self::Status(404, _) => ClusterError::NotFound { node },
            Self::Status(409, _) => ClusterError::Conflict { node },
            Self::Status(code @ (429 | 500..), message) => {
                ClusterError::Unavailable { node, message: format!("HTTP {code}: {message}") }
            }
            Self::Status(code, message) => ClusterError::Refused { node, message: format!("HTTP {code}: {message}") },
        }
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Timeout(after) => write!(f, "no answer within {after:?}"),
            Self::Status(code, message) => write!(f, "HTTP {code}: {message}"),
            Self::Transport(message) => f.write_str(message),
        }
    }
}

impl Cluster for KubeCluster {
    fn ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn inventory(&self) -> &RwLock<Inventory> {
        &self.inventory
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn get<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<NodeFacts>, ClusterError>> {
        Box::pin(async move {
            match self.call("get", CALL_TIMEOUT, self.nodes.get_opt(node.as_str())).await {
                Ok(Some(object)) => match self.facts(&object) {
                    Some(facts) => {
                        self.learn(facts.clone());
                        Ok(Some(facts))
                    }
                    None => Err(ClusterError::Refused {
                        node: node.clone(),
                        message: "the Node object cannot be read, see the log".to_owned(),
                    }),
                },
                Ok(None) => Ok(None),
                Err(error) => Err(error.about(node)),
            }
        })
    }

    fn patch<'a>(&'a self, node: &'a NodeName, patch: &'a Value) -> BoxFuture<'a, Result<NodeFacts, ClusterError>> {
        Box::pin(async move {
            let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
            let call = async { self.nodes.patch(node.as_str(), &params, &Patch::Merge(patch)).await };
            let object = self.call("patch", CALL_TIMEOUT, call).await.map_err(|e| e.about(node))?;
            let Some(facts) = self.facts(&object) else {
                let message = "the Node object cannot be read, see the log".to_owned();
                return Err(ClusterError::Refused { node: node.clone(), message });
            };
            self.learn(facts.clone());
            Ok(facts)
        })
    }

    fn not_tolerating<'a>(&'a self, exporters: &'a [Selector], taint: &'a Taint, now: Timestamp) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move { self.exporters.lock().await.not_tolerating(self, exporters, taint, now).await })
    }

    fn workloads(&self) -> Option<&dyn Workloads> {
        Some(self)
    }

    fn exporter_pods<'a>(&'a self, selectors: &'a [Selector]) -> BoxFuture<'a, Result<Vec<ExporterPod>, String>> {
        Box::pin(async move {
            let api: Api<PodObject> = Api::all(self.client.clone());
            let mut pods: Vec<ExporterPod> = Vec::new();
            for selector in selectors {
                let mut params = ListParams::default().labels(&selector.to_string()).limit(POD_PAGE);
                loop {
                    let page = self
                        .call("list", LIST_TIMEOUT, api.list(&params))
                        .await
                        .map_err(|e| format!("listing pods {selector}: {e}"))?;
                    for pod in &page.items {
                        let pod = serde_json::to_value(pod).ok().as_ref().and_then(exporter_pod);
                        pods.extend(pod.filter(|p| !pods.contains(p)));
                    }
                    match page.metadata.continue_.filter(|token| !token.is_empty()) {
                        Some(token) => params = params.continue_token(&token),
                        None => break,
                    }
                }
            }
            Ok(pods)
        })
    }

    fn read_ledger<'a>(&'a self, place: &'a LedgerPlace) -> BoxFuture<'a, Result<Option<StoredText>, LedgerError>> {
        Box::pin(async move {
            let read = self.call("get", ledger::TIMEOUT, ledger::read(&self.client, place)).await;
            read.map_err(|e| ledger::failed(e, "read", place, None))
        })
    }

    fn write_ledger<'a>(&'a self, place: &'a LedgerPlace, write: LedgerWrite<'a>) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(async move {
            let verb = if write.over.is_some() { "patch" } else { "create" };
            let written = self.call(verb, ledger::TIMEOUT, ledger::write(&self.client, place, write)).await;
            written.map_err(|e| ledger::failed(e, "write", place, write.over))
        })
    }

    fn keep_labels(&self, keys: BTreeSet<String>) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            {
                let mut kept = self.labels.write().unwrap_or_else(PoisonError::into_inner);
                // A request that is still open may be one for these very keys.
                if keys.is_subset(&kept) && *self.answered.borrow() >= self.asked.load(Ordering::Acquire) {
                    return Ok(());
                }
                kept.extend(keys);
            }
            // A list that began before this may have been read with the old labels.
            let request = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
            let mut answered = self.answered.subscribe();
            self.relist.notify_one();
            match tokio::time::timeout(RELIST_TIMEOUT, answered.wait_for(|last| *last >= request)).await {
                Ok(Ok(_)) => Ok(()),
                _ => Err("the nodes could not be listed again for the labels that the new selectors look at".to_owned()),
            }
        })
    }
}
