//! `eviction`: which pods are asked to leave an isolated node, and how.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use super::Selector;

/// Which pods are asked to leave an isolated node, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The pods that opted in.
    pub pods: Selector,
    /// Only in these namespaces; all if it is empty.
    pub namespaces: BTreeSet<String>,
    /// Never in these.
    pub never_namespaces: BTreeSet<String>,
    /// Only pods that something of these kinds controls, e.g. `Job` or `JobSet`, directly or not; all if it is empty.
    pub owners: BTreeSet<String>,
    /// Pods that any of these matches are never evicted, opted in or not.
    pub protect: Vec<Selector>,
    /// A label of pods whose value names the group that a pod belongs to, whatever runs it.
    pub group_label: Option<String>,
    /// In which order groups go.
    pub order: Vec<OrderBy>,
    /// How often one group may be restarted by us within an hour.
    pub max_restarts_per_hour: u32,
    /// Fault classes (label `fault`) with which no progress is possible: no checkpoint is waited for.
    pub no_progress: BTreeSet<String>,
    /// How many documents of evidence are kept.
    pub evidence_count: usize,
    /// For how long they are kept.
    pub evidence_age: Duration,
    /// What a policy may have of its own.
    pub rules: EvictionRules,
}

/// How pods are asked to leave, by policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionRules {
    /// How long after the isolation nothing is evicted: what a short alert began ends by then, and pods on their way have arrived.
    pub settle: Duration,
    /// How long a pod is asked, from the first time.
    pub deadline: Duration,
    /// What becomes of one that has not left by then.
    pub on_deadline: OnDeadline,
    /// What is done for a fault of one GPU if nobody knows which pod uses it.
    pub unknown_gpu: UnknownGpu,
    /// How long a pod that asks for time may write its checkpoint; zero for not at all.
    pub checkpoint: Duration,
}

/// What becomes of a pod that has not left by the deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDeadline {
    /// It is left where it is, and people are told.
    #[default]
    Leave,
    /// It is deleted with its own grace, past every disruption budget.
    Delete,
}

/// What is done for a fault of one GPU if nobody knows which pod uses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownGpu {
    /// All pods of the node that opted in and use GPUs are evicted.
    Node,
    /// None is, and people are told.
    #[default]
    Refuse,
}

/// By what groups are put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderBy {
    /// Those of lower priority first.
    Priority,
    /// Batch before inference.
    Batch,
}
