//! What we know of a Pod: its name as a parsed type, and the compact facts that an eviction is decided from.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Gpu, NodeName, Taint, Toleration, tolerates};

/// Namespace and name of a Pod, both as Kubernetes demands of names. kube-rs does not escape names in request paths, so nothing
/// else ever reaches the API server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodName {
    namespace: String,
    name: String,
}

/// A text that is not `namespace/name` of a Pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the namespace and name of a pod: both are made of a-z, 0-9 and '-' (the name also of '.')")]
pub struct PodNameError(pub String);

impl PodName {
    /// Check a namespace and a name.
    ///
    /// # Errors
    ///
    /// If the namespace is not an RFC 1123 label, or the name not an RFC 1123 subdomain.
    pub fn new(namespace: &str, name: &str) -> Result<Self, PodNameError> {
        let is_namespace = namespace.len() <= 63 && !namespace.contains('.') && NodeName::parse(namespace).is_ok();
        // The same rule as for the name of a Node.
        if is_namespace && NodeName::parse(name).is_ok() {
            return Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() });
        }
        // The texts may be hostile label values; what is shown of them stays short.
        Err(PodNameError(format!("{namespace}/{name}").chars().take(64).collect()))
    }

    /// `metadata.namespace`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl TryFrom<String> for PodName {
    type Error = PodNameError;
    fn try_from(text: String) -> Result<Self, PodNameError> {
        let (namespace, name) = text.split_once('/').ok_or_else(|| PodNameError(text.chars().take(64).collect()))?;
        Self::new(namespace, name)
    }
}

impl From<PodName> for String {
    fn from(pod: PodName) -> Self {
        pod.to_string()
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The object that controls another: the entry of `metadata.ownerReferences` with `controller: true`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// `apiVersion`, e.g. `batch/v1`.
    pub api_version: String,
    /// `kind`, e.g. `Job`.
    pub kind: String,
    /// `name`.
    pub name: String,
    /// `uid`.
    pub uid: String,
}

/// What controls a pod, read whole, e.g. its Job.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnerObject {
    /// What it is called.
    pub owner: Owner,
    /// What controls it in turn.
    pub controller: Option<Owner>,
    /// The object, for what its framework does when a pod is lost.
    pub raw: serde_json::Value,
}

/// `status.phase`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers run yet.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
    /// The node cannot be asked.
    Unknown,
}

/// A Pod, reduced to what an eviction is decided from.
#[derive(Debug, Clone, PartialEq)]
pub struct PodFacts {
    /// Namespace and name.
    pub name: PodName,
    /// `metadata.uid`: names are used again, UIDs are not.
    pub uid: String,
    /// `spec.nodeName`, if it is bound.
    pub node: Option<NodeName>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp`: it is terminating.
    pub deleted: Option<Timestamp>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`, all of them.
    pub annotations: BTreeMap<String, String>,
    /// What controls it; `None` for a bare pod.
    pub controller: Option<Owner>,
    /// `status.phase`.
    pub phase: PodPhase,
    /// `spec.priority`; 0 if there is none.
    pub priority: i32,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: Option<u64>,
    /// `spec.restartPolicy`.
    pub restart_policy: String,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// How much it asks for of GPUs, MIG slices and shares: the sum of all resources `nvidia.com/...` over its containers.
    pub gpus: u64,
    /// How many `nvidia.com/gpu` one of its containers asks for, the most of any.
    pub whole_gpus: u64,
    /// The names of its `ResourceClaim`s (DRA), in its namespace.
    pub claims: Vec<String>,
    /// The GPUs that it is known to use, by `allocatedResourcesStatus`, an annotation of the device plugin's or its claims; `None` if
    /// nothing tells.
    pub devices: Option<Vec<Gpu>>,
    /// `spec.hostNetwork`: its address is that of its node.
    pub host_network: bool,
    /// `status.podIP`.
    pub ip: Option<IpAddr>,
    /// The images of its containers.
    pub images: Vec<String>,
    /// `spec.schedulingGroup.podGroupName` (Kubernetes 1.36 and later).
    pub pod_group: Option<String>,
}

impl PodFacts {
    /// Whether it is the copy of a pod that its node runs by itself, which nobody can evict
    /// (<https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror>).
    #[must_use]
    pub fn is_mirror(&self) -> bool {
        self.annotations.contains_key("kubernetes.io/config.mirror")
    }

    /// Whether it uses GPUs at all. Its claims may be for other things, but count until that is known.
    #[must_use]
    pub fn uses_gpus(&self) -> bool {
        self.gpus > 0 || self.devices.as_ref().map_or(!self.claims.is_empty(), |devices| !devices.is_empty())
    }

    /// Whether it can be scheduled past the taint.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        tolerates(&self.tolerations, taint)
    }
}
