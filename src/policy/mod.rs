//! The configuration: which alerts are ours, what is done for them, and within which limits.
//!
//! [`Config`] is what the rest of the program sees: parsed, checked and complete. [`load()`] makes one from a file's text,
//! whole or not at all.

mod alertmanagers;
mod eviction;
mod guard;
mod load;
mod names;
mod prometheus;
mod raw;
mod selector;

use std::{collections::BTreeSet, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::alert::{Labels, Matcher};
pub use alertmanagers::{
    Alertmanagers, Authorization, DnsPeers, Header, HttpOptions, Identity, PeerUrl, Peers, Secret, SecretFrom, TlsOptions,
};
pub use eviction::{Eviction, EvictionRules, OnDeadline, OrderBy, UnknownGpu};
pub use guard::{Guard, Limits, Percent, PolicyGuard, Rate, Share};
pub use load::{ConfigError, Problem, load};
pub use prometheus::Prometheus;
pub use selector::{Selector, SelectorError};

/// The whole configuration, valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The name of this instance, written into each record so that two instances never share a node. Set at start only.
    pub instance: String,
    /// The prefix of our annotations and default taint, `gpu-quarantine.dev`. Set at start only.
    pub domain: String,
    /// Which nodes and alerts are ours.
    pub scope: Scope,
    /// How a node is isolated.
    pub isolation: Isolation,
    /// When a node is given back, unless a policy says otherwise.
    pub release: Release,
    /// Which pods are asked to leave an isolated node, and how, unless a policy says otherwise.
    pub eviction: Eviction,
    /// When a fault that comes back makes a release harder.
    pub flapping: Flapping,
    /// Whether the health of each machine is written as a label of its node.
    pub health_label: bool,
    /// Where the history of machines is kept.
    pub ledger: LedgerPlace,
    /// How labels are mapped to nodes and GPUs.
    pub locate: Locate,
    /// How many nodes may be isolated, and how fast.
    pub guard: Guard,
    /// Field managers behind which people stand (P10).
    pub human_managers: Vec<ManagerPattern>,
    /// Where people are told of what happens to nodes.
    pub events: Events,
    /// Who is asked what fires; `None` means that webhooks are all there is.
    pub alertmanagers: Option<Alertmanagers>,
    /// Who is asked whether faults are gone; there if anything requires evidence.
    pub prometheus: Option<Prometheus>,
    /// In order: the first that matches an alert wins.
    pub policies: Vec<Policy>,
}

/// Which nodes and alerts are ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Only nodes that it matches are ever isolated.
    pub nodes: Selector,
    /// What an alert must meet; else it is `out_of_scope`.
    pub alerts: Vec<Matcher>,
    /// Nodes that any of these matches are never isolated, as control-plane nodes never are. What we added before is given back.
    pub never: Vec<Selector>,
}

/// How a node is isolated. The effect of the taint is always `NoSchedule`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Isolation {
    /// The key of the taint; its value is the name of the policy.
    pub taint_key: String,
    /// Whether nodes are cordoned as well.
    pub cordon: bool,
    /// Keys of earlier configurations, whose recorded taints are still ours to remove.
    pub former_keys: BTreeSet<String>,
}

/// When a node is given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The hold-down: how long every claim must have been cleared, on our clock.
    pub after: Duration,
    /// What must be shown besides. Never empty.
    pub require: BTreeSet<Requirement>,
}

/// When a fault that comes back makes a release harder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flapping {
    /// Releases count that lie so shortly before the fault began.
    pub within: Duration,
    /// From so many releases on each doubles the hold-down; 0 for never.
    pub longer_after: u32,
    /// From so many releases on a person decides; 0 for never.
    pub person_after: u32,
}

/// The `ConfigMap` with the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerPlace {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for LedgerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a release needs besides the hold-down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requirement {
    /// Alertmanager reported the alerts as resolved.
    Resolved,
    /// The fault was positively seen to be gone, for the whole hold-down.
    Evidence,
    /// A person says so.
    Manual,
}

/// Which labels name nodes and GPUs, in order. An empty list turns that link of the chain off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locate {
    /// Labels whose value is the name of a Node.
    pub node_labels: Vec<String>,
    /// Labels whose value is a host name.
    pub hostname_labels: Vec<String>,
    /// Labels whose value is an `ip:port` of a scrape target.
    pub instance_labels: Vec<String>,
    /// Whether `pod` and `namespace` may name an exporter pod.
    pub exporter_pod_labels: bool,
    /// Labels whose value is the UUID of a GPU.
    pub uuid_labels: Vec<String>,
    /// Labels whose value is the PCI bus id of a GPU.
    pub pci_labels: Vec<String>,
    /// Labels whose value is the index of a GPU (`3` or `nvidia3`).
    pub index_labels: Vec<String>,
    /// A pod that any of these matches is a DCGM exporter.
    pub exporter_pods: Vec<Selector>,
}

/// Kubernetes Events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Events {
    /// Whether they are written.
    pub enabled: bool,
    /// Their namespace: `default` or `kube-system`, since Kubernetes takes Events about nodes in no other.
    pub namespace: String,
}

/// A configured rule: for alerts that match, do this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Unique; a valid value of a taint, since that is where it is written.
    pub name: String,
    /// All must match.
    pub matchers: Vec<Matcher>,
    /// What is done.
    pub action: Action,
    /// Its own release rules, if they differ.
    pub release: Option<Release>,
    /// Its own rules of eviction, if they differ.
    pub eviction: Option<EvictionRules>,
    /// What it has of its own of the guard.
    pub guard: Option<PolicyGuard>,
    /// Where its nodes stand in the queue for the guard: those of a heavier policy come first.
    pub weight: i32,
    /// What it does on a node that somebody else cordoned first.
    pub when_cordoned: WhenCordoned,
}

/// What a policy that isolates does on a node that somebody else cordoned before anything isolated it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenCordoned {
    /// Isolate it all the same: the cordon may be lifted while the fault lasts.
    #[default]
    Isolate,
    /// Begin nothing: whoever cordoned it is at work on it.
    Observe,
}

/// What a policy does, weakest first, so that the strongest of several is their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Prove that alerts arrive.
    Heartbeat,
    /// Report, touch nothing.
    Observe,
    /// Block the release of the node while the alert fires.
    Freeze,
    /// Taint the node, and cordon it if so configured.
    Isolate,
    /// Isolate, and ask the pods that opted in to leave.
    Evict,
}

impl Action {
    /// The word of the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Observe => "observe",
            Self::Freeze => "freeze",
            Self::Isolate => "isolate",
            Self::Evict => "evict",
        }
    }

    /// Whether it takes the node out of service.
    #[must_use]
    pub fn isolates(self) -> bool {
        self >= Self::Isolate
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The name of a field manager, or its beginning followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerPattern(String);

impl ManagerPattern {
    /// Parse a pattern.
    ///
    /// # Errors
    ///
    /// If it is empty or has a `*` anywhere but at its end. A lone `*` is refused as well: it would take every controller for
    /// a person.
    pub fn parse(text: &str) -> Result<Self, String> {
        let stem = text.strip_suffix('*').unwrap_or(text);
        if stem.is_empty() || stem.contains('*') || stem.chars().any(char::is_whitespace) {
            return Err(format!("{text:?} is not a field manager; write its name, or its beginning and *, such as kubectl*"));
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether it means this field manager.
    #[must_use]
    pub fn matches(&self, manager: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(stem) => manager.starts_with(stem),
            None => manager == self.0,
        }
    }
}

impl Config {
    /// The keys of all node labels that anything here looks at; no others need to be kept of a node.
    #[must_use]
    pub fn node_label_keys(&self) -> BTreeSet<String> {
        let selectors = std::iter::once(&self.scope.nodes).chain(&self.scope.never);
        // A label of ours that is no longer wanted must be seen, too.
        let ours = [self.annotation("health"), self.guard.pool_label.clone()];
        selectors.flat_map(Selector::keys).map(str::to_owned).chain(ours).collect()
    }

    /// The first policy that matches, which is the one that counts.
    #[must_use]
    pub fn policy_for(&self, labels: &Labels) -> Option<&Policy> {
        self.policies.iter().find(|p| p.matchers.iter().all(|m| m.matches(labels)))
    }

    fn policy(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|p| p.name == name)
    }

    /// The limits of the policy of that name, and whether they are its own; those for all if it has none or is gone, `None` if nothing
    /// limits it.
    #[must_use]
    pub fn limits_for(&self, policy: &str) -> Option<(&Limits, bool)> {
        match self.policy(policy).and_then(|p| p.guard.as_ref()) {
            Some(PolicyGuard::Exempt) => None,
            Some(PolicyGuard::Limits(own)) => Some((own, true)),
            None => Some((&self.guard.limits, false)),
        }
    }

    /// Whether the policy of that name isolates; one that is gone did.
    #[must_use]
    pub fn isolates(&self, policy: &str) -> bool {
        self.policy(policy).is_none_or(|p| p.action.isolates())
    }

    /// The weight of the policy of that name; 0 if it is gone.
    #[must_use]
    pub fn weight_of(&self, policy: &str) -> i32 {
        self.policy(policy).map_or(0, |p| p.weight)
    }

    /// The release rules of the policy of that name; those of the whole configuration if it has none or is gone.
    #[must_use]
    pub fn release_for(&self, policy: &str) -> &Release {
        self.policy(policy).and_then(|p| p.release.as_ref()).unwrap_or(&self.release)
    }

    /// The rules of eviction of the policy of that name; those of the whole configuration if it has none or is gone.
    #[must_use]
    pub fn eviction_for(&self, policy: &str) -> &EvictionRules {
        self.policy(policy).and_then(|p| p.eviction.as_ref()).unwrap_or(&self.eviction.rules)
    }

    /// What the policy of that name does on a node that somebody else cordoned; one that is gone isolates.
    #[must_use]
    pub fn when_cordoned(&self, policy: &str) -> WhenCordoned {
        self.policy(policy).map(|p| p.when_cordoned).unwrap_or_default()
    }

    /// The name of an annotation of ours, e.g. `gpu-quarantine.dev/record`.
    #[must_use]
    pub fn annotation(&self, name: &str) -> String {
        format!("{}/{name}", self.domain)
    }
}
