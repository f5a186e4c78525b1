//! What is asked of a cluster about pods, and how a pod is asked to leave.

use std::{fmt::Debug, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    locate::{NodeName, Owner, OwnerObject, PodFacts, PodName},
    policy::LedgerPlace,
    quarantine::eviction::EvictionAnswer,
};

/// Pods could not be read. A retry may cure it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PodsError(
    /// What was tried, on which object, and what the server said.
    pub String,
);

/// A document that is kept for people: the evidence of one episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EvidenceDocument {
    /// The name of its `ConfigMap`, in the namespace of the ledger.
    pub name: String,
    /// The node, for a label.
    pub node: NodeName,
    /// When it was taken.
    pub at: Timestamp,
    /// The document.
    pub json: String,
}

/// How many documents are kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The most of all.
    pub count: usize,
    /// The oldest.
    pub age: Duration,
}

/// The pods of a cluster. Implementations bound every call with a timeout and never retry by themselves.
pub trait Workloads: Send + Sync + Debug {
    /// All pods that are bound to a node, finished and terminating ones included, in the order of their names. Read from the source of
    /// truth.
    fn pods_on<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<PodFacts>, PodsError>>;

    /// One pod as it is now; `None` if there is none of that name.
    fn pod<'a>(&'a self, name: &'a PodName) -> BoxFuture<'a, Result<Option<PodFacts>, PodsError>>;

    /// The pods of a namespace that a label selector matches, at most `most` of them.
    fn pods_of<'a>(
        &'a self,
        namespace: &'a str,
        selector: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<PodFacts>, PodsError>>;

    /// What controls an object; `Ok(None)` if it is not there, has another UID, or is of a kind that nobody here looks at.
    fn owner<'a>(&'a self, namespace: &'a str, owner: &'a Owner) -> BoxFuture<'a, Result<Option<OwnerObject>, PodsError>>;

    /// Ask the pod of that UID to leave, through the Eviction API, with its own grace.
    fn evict<'a>(&'a self, pod: &'a PodName, uid: &'a str) -> BoxFuture<'a, EvictionAnswer>;

    /// Delete the pod of that UID with its own grace, past every budget.
    fn delete<'a>(&'a self, pod: &'a PodName, uid: &'a str) -> BoxFuture<'a, EvictionAnswer>;

    /// The node as it is, whole, for the evidence.
    fn node_raw<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<Value>, PodsError>>;

    /// What was said of late about an object by Kubernetes Events, oldest first, at most `most`: each with `at`, `type`, `reason`, `note` and `count`.
    /// `namespace` is that of the object; `None` for a node.
    fn events_about<'a>(
        &'a self,
        namespace: Option<&'a str>,
        name: &'a str,
        uid: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Value>, PodsError>>;

    /// Keep a document, and drop what is too many or too old; only documents that were kept by us are ever dropped. Keeping one again
    /// under its name replaces it.
    fn keep_evidence<'a>(
        &'a self,
        place: &'a LedgerPlace,
        document: &'a EvidenceDocument,
        retention: Retention,
    ) -> BoxFuture<'a, Result<(), PodsError>>;

    /// A document that was kept; `None` if there is none of that name.
    fn read_evidence<'a>(&'a self, place: &'a LedgerPlace, name: &'a str) -> BoxFuture<'a, Result<Option<String>, PodsError>>;
}
