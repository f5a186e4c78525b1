//! The chain of links from the labels of an alert to one node.
//!
//! 1. Labels with the name of a Node.
//! 2. Labels with a host name.
//! 3. Only if none of these is present: the address of the scrape target, and the exporter's own pod.
//!
//! What several labels say must agree; where it does not, or where a label fits several nodes, there is no answer. A healthy
//! node isolated by mistake is worse than an alert that a person must read.

mod finding;
#[cfg(test)]
pub(super) mod tests;

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
};

use finding::{Finding, What, settle};

use super::inventory::{first_label, host_names};
use crate::{
    alert::Labels,
    locate::{ExporterPod, Inventory, NodeName},
    policy,
};

/// The node that an alert is about, and how we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// A node of the inventory.
    pub node: NodeName,
    /// The first link of the chain that led there.
    pub link: Link,
}

/// What led to a node. `label` is the name of the label; pods are `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields mean the same in each variant and are told above")]
pub enum Link {
    /// The value is the name of a Node.
    NodeName { label: String },
    /// The value is the `kubernetes.io/hostname` of a node.
    Hostname { label: String, node: NodeName },
    /// The value is the first DNS label of a node's name or host name.
    ShortName { label: String, node: NodeName },
    /// The value begins with the name or host name of a node, which has no domain.
    FullName { label: String, node: NodeName },
    /// The value is the name of an exporter pod.
    PodName { label: String, pod: String, node: NodeName },
    /// The value is an `InternalIP` of a node.
    InternalIp { label: String, node: NodeName },
    /// The value is the address of an exporter pod.
    PodIp { label: String, pod: String, node: NodeName },
    /// The labels `namespace` and `pod` are those of an exporter pod.
    Pod { pod: String, node: NodeName },
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeName { label } => write!(f, "label {label} is the name of a Node"),
            Self::Hostname { label, node } => write!(f, "label {label} is the kubernetes.io/hostname of Node {node}"),
            Self::ShortName { label, node } => write!(f, "label {label} is the short name of Node {node}"),
            Self::FullName { label, node } => write!(f, "label {label} is the full name of Node {node}"),
            Self::PodName { label, pod, node } => write!(f, "label {label} is the exporter pod {pod} on Node {node}"),
            Self::InternalIp { label, node } => write!(f, "label {label} is the InternalIP of Node {node}"),
            Self::PodIp { label, pod, node } => {
                write!(f, "label {label} is the address of the exporter pod {pod} on Node {node}")
            }
            Self::Pod { pod, node } => write!(f, "labels namespace and pod are the exporter pod {pod} on Node {node}"),
        }
    }
}

/// An alert that leads to no node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unmapped {
    /// The kind, few in number.
    pub reason: UnmappedReason,
    /// A sentence without a full stop that names the labels and their values; of hostile values it shows no more than their beginning.
    pub message: String,
}

/// Why an alert leads to no node. The weightiest comes first: of several, it is the one that is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum UnmappedReason {
    /// The exporter pods decide, and were not given.
    ExporterPodsUnknown,
    /// Two labels lead to different nodes.
    Disagree,
    /// A label fits several nodes.
    Ambiguous,
    /// The only host named is the one that the label is read on.
    Localhost,
    /// A label names a node that is not known.
    NoSuchNode,
    /// No node and no exporter pod has the address.
    NoSuchAddress,
    /// The scrape target is not given as an IP address.
    NotAnAddress,
    /// The pod is no exporter, so it says nothing of the node that was measured.
    NotAnExporter,
    /// None of the labels is present.
    NoLabel,
}

impl UnmappedReason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ExporterPodsUnknown,
        Self::Disagree,
        Self::Ambiguous,
        Self::Localhost,
        Self::NoSuchNode,
        Self::NoSuchAddress,
        Self::NotAnAddress,
        Self::NotAnExporter,
        Self::NoLabel,
    ];

    /// The word for a metric's label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExporterPodsUnknown => "exporter_pods_unknown",
            Self::Disagree => "disagree",
            Self::Ambiguous => "ambiguous",
            Self::Localhost => "localhost",
            Self::NoSuchNode => "no_such_node",
            Self::NoSuchAddress => "no_such_address",
            Self::NotAnAddress => "not_an_address",
            Self::NotAnExporter => "not_an_exporter",
            Self::NoLabel => "no_label",
        }
    }

    /// Whether the same question with the exporter pods may have another answer. No other reason changes with them.
    #[must_use]
    pub fn needs_pods(self) -> bool {
        self == Self::ExporterPodsUnknown
    }
}

impl fmt::Display for UnmappedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Find the node that the labels of an alert are about. Without `pods` the answer is the one that any pods would give, or
/// [`UnmappedReason::ExporterPodsUnknown`].
///
/// # Errors
/// If the labels lead to no node of the inventory, or not clearly to one.
pub fn locate(
    labels: &Labels,
    rules: &policy::Locate,
    nodes: &Inventory,
    pods: Option<&[ExporterPod]>,
) -> Result<Located, Unmapped> {
    let chain = Chain { labels, rules, nodes, pods };
    let mut findings = chain.names();
    if findings.is_empty() {
        findings = chain.addresses();
    }
    if findings.is_empty() { Err(no_label(rules)) } else { settle(&findings) }
}

/// One question, with all that its links look at.
struct Chain<'a> {
    labels: &'a Labels,
    rules: &'a policy::Locate,
    nodes: &'a Inventory,
    pods: Option<&'a [ExporterPod]>,
}

impl<'a> Chain<'a> {
    fn names(&self) -> Vec<Finding<'a>> {
        // A host name may be the name of a Node: a label in both lists is asked once.
        let only_a_node = |(label, _): &(&str, &str)| !self.rules.hostname_labels.iter().any(|l| l == label);
        let by_node =
            self.present(&self.rules.node_labels).filter(only_a_node).map(|(l, v)| Finding::of_label(l, v, self.node_name(l, v)));
        let by_host = self.present(&self.rules.hostname_labels).map(|(l, v)| Finding::of_label(l, v, self.host_name(l, v)));
        by_node.chain(by_host).collect()
    }

    fn addresses(&self) -> Vec<Finding<'a>> {
        let by_instance = self.present(&self.rules.instance_labels).map(|(l, v)| Finding::of_label(l, v, self.instance(l, v)));
        by_instance.chain(self.exporter_pod()).collect()
    }

    fn present(&self, names: &'a [String]) -> impl Iterator<Item = (&'a str, &'a str)> {
        let labels = self.labels;
        names.iter().filter_map(move |n| labels.get(n).map(|v| (n.as_str(), v)))
    }

    fn node_name(&self, label: &str, value: &str) -> What<'a> {
        if is_local(value) {
            return What::LOCAL;
        }
        self.exact(label, value).unwrap_or(What::Nothing(UnmappedReason::NoSuchNode, "names no Node".into()))
    }

    fn exact(&self, label: &str, value: &str) -> Option<What<'a>> {
        let known = self.nodes.get(&NodeName::parse(value).ok()?)?;
        Some(What::Node(&known.name, Link::NodeName { label: label.to_owned() }))
    }

    fn host_name(&self, label: &str, value: &str) -> What<'a> {
        if is_local(value) {
            return What::LOCAL;
        }
        // A longer value is no DNS name, thus neither a host nor a pod (RFC 1035, section 2.3.4: 255 octets, as text 253).
        let host = if value.len() <= 253 { value.to_ascii_lowercase() } else { String::new() };
        self.exact(label, &host)
            .or_else(|| {
                What::one_of(self.nodes.with_hostname(&host), |n| Link::Hostname { label: label.to_owned(), node: n.clone() })
            })
            .or_else(|| self.short_or_full(label, &host))
            .or_else(|| {
                // Before 3.1.6-3.1.3 dcgm-exporter took the name of its own host, which is its pod
                // (https://github.com/NVIDIA/dcgm-exporter/pull/129). Pods are named by the same grammar as Nodes.
                let pod = NodeName::parse(value).ok()?;
                self.pods_that(
                    |p| p.name == pod.as_str(),
                    |pod, node| Link::PodName { label: label.to_owned(), pod, node: node.clone() },
                )
            })
            .unwrap_or(What::Nothing(UnmappedReason::NoSuchNode, "is the name of no Node, no host and no exporter pod".into()))
    }

    /// One of the two has a domain and the other has none. With two domains they would be two hosts.
    fn short_or_full(&self, label: &str, host: &str) -> Option<What<'a>> {
        let (label, short) = (label.to_owned(), first_label(host)?);
        if short == host {
            return What::one_of(self.nodes.with_first_label(short), |n| Link::ShortName { label, node: n.clone() });
        }
        let without_domain = |name: &&NodeName| {
            let names: Vec<_> = self.nodes.get(name).map(|n| host_names(n).collect()).unwrap_or_default();
            names.iter().any(|n| n == short) && names.iter().all(|n| first_label(n).is_none_or(|f| f == n))
        };
        let named = NodeName::parse(short).ok().and_then(|n| self.nodes.get(&n)).map(|n| &n.name);
        let fitting = named.into_iter().chain(self.nodes.with_hostname(short)).filter(without_domain);
        What::one_of(fitting, |n| Link::FullName { label, node: n.clone() })
    }

    /// A node's own address goes first: a pod has that address only on the host network, where it means the same node.
    fn instance(&self, label: &str, value: &str) -> What<'a> {
        let ip = value.parse::<SocketAddr>().map(|a| a.ip()).or_else(|_| value.parse::<IpAddr>());
        let host = value.rsplit_once(':').map_or(value, |(host, _)| host);
        match ip.map(|ip| ip.to_canonical()) {
            Ok(ip) if is_local_ip(ip) => What::LOCAL,
            Err(_) if is_local(host) || is_local(value) => What::LOCAL,
            Err(_) => What::Nothing(UnmappedReason::NotAnAddress, "is no IP address with or without a port".into()),
            Ok(ip) => {
                What::one_of(self.nodes.with_internal_ip(ip), |n| Link::InternalIp { label: label.to_owned(), node: n.clone() })
                    .or_else(|| {
                        self.pods_that(
                            |p| p.ips.iter().any(|i| i.to_canonical() == ip),
                            |pod, node| Link::PodIp { label: label.to_owned(), pod, node: node.clone() },
                        )
                    })
                    .unwrap_or(What::Nothing(
                        UnmappedReason::NoSuchAddress,
                        "is the address of no Node and no exporter pod".into(),
                    ))
            }
        }
    }

    /// Whose `pod` and `namespace` are depends on honorLabels of the scrape: the exporter's, or those of a workload that
    /// may have moved since. Only an exporter pod is sure to be where the GPU is.
    fn exporter_pod(&self) -> Option<Finding<'a>> {
        let (namespace, name) = (self.labels.get("namespace")?, self.labels.get("pod")?);
        if !self.rules.exporter_pod_labels {
            return None;
        }
        let what = self
            .pods_that(|p| p.namespace == namespace && p.name == name, |pod, node| Link::Pod { pod, node: node.clone() })
            .unwrap_or(What::Nothing(UnmappedReason::NotAnExporter, "name no exporter pod".into()));
        Some(Finding::of_pod(namespace, name, what))
    }

    fn pods_that(&self, meets: impl Fn(&ExporterPod) -> bool, link: impl Fn(String, &NodeName) -> Link) -> Option<What<'a>> {
        let Some(pods) = self.pods else { return Some(What::AskPods) };
        let found: Vec<_> = pods.iter().filter(|p| meets(p)).collect();
        let pod = format!("{}/{}", found.first()?.namespace, found.first()?.name);
        match What::one_of(found.iter().map(|p| &p.node), |n| link(pod.clone(), n))? {
            What::Node(node, _) if self.nodes.get(node).is_none() => {
                let why = format!("led to the exporter pod {pod} on {node}, which is no known Node");
                Some(What::Nothing(UnmappedReason::NoSuchNode, why.into()))
            }
            what => Some(what),
        }
    }
}

impl<'a> What<'a> {
    fn one_of(nodes: impl IntoIterator<Item = &'a NodeName>, link: impl FnOnce(&NodeName) -> Link) -> Option<Self> {
        let nodes: BTreeSet<_> = nodes.into_iter().collect();
        match nodes.first() {
            Some(node) if nodes.len() == 1 => Some(Self::Node(node, link(node))),
            Some(_) => Some(Self::Several(nodes)),
            None => None,
        }
    }
}

/// dcgm-exporter with `-r` shows the host of that address, `localhost` more often than not
/// (<https://github.com/NVIDIA/dcgm-exporter/issues/572>). `*.localhost` is RFC 6761, section 6.3; `localhost4` and `localhost6`
/// stand in `/etc/hosts` of Red Hat's systems.
fn is_local(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return is_local_ip(ip.to_canonical());
    }
    let local = |part: Option<&str>| {
        part.is_some_and(|p| ["localhost", "localhost4", "localhost6"].iter().any(|l| p.eq_ignore_ascii_case(l)))
    };
    local(bare.split('.').next()) || local(bare.rsplit('.').next())
}

fn is_local_ip(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

fn no_label(rules: &policy::Locate) -> Unmapped {
    let lists = [&rules.node_labels, &rules.hostname_labels, &rules.instance_labels];
    let mut names: Vec<&str> = Vec::new();
    for name in lists.into_iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    if rules.exporter_pod_labels {
        names.push("pod with namespace");
    }
    let message = format!("the alert has none of the labels that lead to a node: {}", names.join(", "));
    Unmapped { reason: UnmappedReason::NoLabel, message }
}
