//! The cluster behind one trait. `snapshot` is the embedded one: Nodes and Pods from a YAML file, in memory.
//!
//! Nothing here decides: a cluster reads, writes one patch with a resourceVersion, and asks a pod of one UID to leave.

mod facts;
mod json;
pub mod kubernetes;
mod ledger;
pub mod snapshot;
mod workloads;

use std::{collections::BTreeSet, fmt::Debug, sync::RwLock};

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

pub use crate::quarantine::eviction::EvictionAnswer;
use crate::{
    locate::{ExporterPod, Inventory, NodeFacts, NodeName, Taint},
    policy::{LedgerPlace, Selector},
};
pub use facts::{FactsError, exporter_pod, node_facts, owner_object, pod_facts};
pub use json::{node_json, pod_json};
pub use ledger::{LedgerError, LedgerWrite, StoredText};
pub use workloads::{EvidenceDocument, PodsError, Retention, Workloads};

/// A call to the cluster that did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The object is not there (404), or has another UID than the patch says.
    #[error("node {node} is not there")]
    NotFound {
        /// The node asked for.
        node: NodeName,
    },
    /// Somebody wrote in between (409): read again and decide again.
    #[error("node {node} was changed by another writer meanwhile")]
    Conflict {
        /// The node that was to be written.
        node: NodeName,
    },
    /// No answer in time. The outcome of a write is unknown until the node has been read.
    #[error("no answer from the cluster about node {node} within {after_ms} ms")]
    Timeout {
        /// The node asked for.
        node: NodeName,
        /// How long was waited, in milliseconds.
        after_ms: u64,
    },
    /// Something that a retry can cure: 429, 5xx, the connection.
    #[error("the cluster cannot serve node {node} now: {message}")]
    Unavailable {
        /// The node asked for.
        node: NodeName,
        /// What the server or the connection said.
        message: String,
    },
    /// A refusal that a retry does not cure: 401, 403, 422.
    #[error("the cluster refuses to write node {node}: {message}")]
    Refused {
        /// The node asked for.
        node: NodeName,
        /// What the server said.
        message: String,
    },
}

impl ClusterError {
    /// Every word of [`ClusterError::reason`].
    pub const REASONS: [&str; 5] = ["not_found", "conflict", "timeout", "unavailable", "refused"];

    /// The kind of failure in one word, for a metric label.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Conflict { .. } => "conflict",
            Self::Timeout { .. } => "timeout",
            Self::Unavailable { .. } => "unavailable",
            Self::Refused { .. } => "refused",
        }
    }

    /// Whether a retry can cure it.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }
}

/// A cluster. Implementations bound every call with a timeout and never retry by themselves.
pub trait Cluster: Send + Sync + Debug {
    /// Whether the first full list of nodes has been read. Until then nothing is decided.
    fn ready(&self) -> bool;

    /// The nodes as last seen; may be behind the API server. The lock is held for look-ups only, never across an await.
    fn inventory(&self) -> &RwLock<Inventory>;

    /// Changes whenever the inventory may have changed.
    fn changes(&self) -> tokio::sync::watch::Receiver<u64>;

    /// Read one node from the source of truth. `Ok(None)` if there is none of that name.
    fn get<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<NodeFacts>, ClusterError>>;

    /// Apply one JSON merge patch (RFC 7396) that carries `metadata.resourceVersion`. Errors with
    /// [`ClusterError::Conflict`] if the node has another one. Returns the node as it is afterwards.
    fn patch<'a>(&'a self, node: &'a NodeName, patch: &'a Value) -> BoxFuture<'a, Result<NodeFacts, ClusterError>>;

    /// From now on the nodes' labels with these keys are looked at as well; returns when the inventory has them.
    fn keep_labels(&self, _keys: BTreeSet<String>) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The exporters' DaemonSets, as `namespace/name`, whose pods would not come back on a node with that taint. None if nobody can
    /// tell.
    fn not_tolerating<'a>(
        &'a self,
        _exporters: &'a [Selector],
        _taint: &'a Taint,
        _now: Timestamp,
    ) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Read the ledger; `None` if there is none.
    fn read_ledger<'a>(&'a self, _place: &'a LedgerPlace) -> BoxFuture<'a, Result<Option<StoredText>, LedgerError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Write the ledger over the version that was read. Errors with [`LedgerError::Conflict`] if there is another one.
    fn write_ledger<'a>(&'a self, _place: &'a LedgerPlace, _write: LedgerWrite<'a>) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Its pods; `None` if this cluster cannot tell of them, and nothing is evicted then.
    fn workloads(&self) -> Option<&dyn Workloads> {
        None
    }

    /// The pods that any of the selectors matches and that are bound to a node.
    fn exporter_pods<'a>(&'a self, selectors: &'a [Selector]) -> BoxFuture<'a, Result<Vec<ExporterPod>, String>>;
}
