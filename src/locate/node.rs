//! What we know of a Node: its name as a parsed type, and the compact facts that decisions are made from.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The name of a Node: an RFC 1123 subdomain. kube-rs does not escape names in request paths
/// (`patch("a/status")` writes the status of `a`), so nothing else ever reaches the API server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// A text that is not the name of a Node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a node name: at most 253 of a-z, 0-9, '-' and '.', each part beginning and ending with a letter or digit")]
pub struct NodeNameError(pub String);

impl NodeName {
    /// Parse a name.
    ///
    /// # Errors
    ///
    /// If it is not an RFC 1123 subdomain.
    pub fn parse(text: &str) -> Result<Self, NodeNameError> {
        let part = |p: &str| {
            let b = p.as_bytes();
            !b.is_empty()
                && b.iter().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'-')
                && b[0] != b'-'
                && b[b.len() - 1] != b'-'
        };
        if text.len() <= 253 && text.split('.').all(part) {
            Ok(Self(text.to_owned()))
        } else {
            // The text may be a hostile label value; what is shown of it stays short.
            Err(NodeNameError(text.chars().take(64).collect()))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeName {
    type Error = NodeNameError;
    fn try_from(text: String) -> Result<Self, NodeNameError> {
        Self::parse(&text)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A taint as it stands on a Node. Fields that we do not know are kept: the list is written back whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// The key, e.g. `gpu-quarantine.dev/isolated`.
    pub key: String,
    /// The value; `None` and empty are the same to Kubernetes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(default)]
    pub effect: String,
    /// Everything else, `timeAdded` for one.
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

/// A Node, reduced to what locating and deciding need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: NodeName,
    /// `metadata.uid`: names are used again after a repair, UIDs are not.
    pub uid: String,
    /// `metadata.resourceVersion`: every patch of ours carries it.
    pub resource_version: String,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// The annotations below our domain prefix (`gpu-quarantine.dev/...`), under their full names.
    pub annotations: BTreeMap<String, String>,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// The field manager that owns `spec.taints`, which is the last that changed the list; `None` if nobody does, as when the
    /// list is empty.
    pub taints_manager: Option<String>,
    /// `spec.unschedulable`: cordoned.
    pub unschedulable: bool,
    /// The condition `Ready`; a Node that tells none, as in a file, counts as ready.
    pub ready: bool,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`: the machine.
    pub system_uuid: Option<String>,
    /// `status.nodeInfo.bootID`: changes with each boot.
    pub boot_id: Option<String>,
    /// The addresses of type `InternalIP`.
    pub internal_ips: Vec<IpAddr>,
    /// How many GPUs the machine has, as far as Kubernetes tells: the label `nvidia.com/gpu.count` of GPU feature discovery, else
    /// the capacity `nvidia.com/gpu`.
    pub gpus: Option<u32>,
    /// The same, if each of the `nvidia.com/gpu` that pods can ask for is one whole GPU of them, and these are all; `None` if they are shares
    /// or slices, or nobody knows.
    pub whole_gpus: Option<u32>,
}

#[cfg(test)]
impl NodeFacts {
    /// A ready node of which nothing but its name is told.
    pub(crate) fn bare(name: &str) -> Self {
        Self {
            name: NodeName::parse(name).unwrap(),
            uid: format!("uid-of-{name}"),
            resource_version: "1".to_owned(),
            created: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            taints_manager: None,
            unschedulable: false,
            ready: true,
            provider_id: None,
            system_uuid: None,
            boot_id: None,
            internal_ips: Vec::new(),
            gpus: None,
            whole_gpus: None,
        }
    }
}

/// A Pod of a DCGM exporter, reduced to what locating needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExporterPod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.nodeName`.
    pub node: NodeName,
    /// `status.podIPs` (and `status.podIP`).
    pub ips: Vec<IpAddr>,
}
