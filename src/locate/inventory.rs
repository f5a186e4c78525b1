//! The nodes that we know, with the look-ups that the chain of links asks for.
//!
//! The indexes follow each change of one node, so that a fleet of 15,000 nodes costs no more per change than a small one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use crate::locate::{NodeFacts, NodeName};

/// The well-known label with the host name as the kubelet sees it. It need not be the name of the Node: cloud providers and
/// `--hostname-override` make them differ (<https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetesiohostname>).
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

static NONE: BTreeSet<NodeName> = BTreeSet::new();

/// All known nodes. Two inventories are equal if they hold the same nodes, however they came to hold them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    nodes: BTreeMap<NodeName, Arc<NodeFacts>>,
    by_hostname: BTreeMap<String, BTreeSet<NodeName>>,
    by_first_label: BTreeMap<String, BTreeSet<NodeName>>,
    by_internal_ip: BTreeMap<IpAddr, BTreeSet<NodeName>>,
}

impl Inventory {
    /// Add a node, in place of the one of the same name if there is one.
    pub fn insert(&mut self, facts: NodeFacts) {
        let name = facts.name.clone();
        self.remove(&name);
        if let Some(hostname) = hostname_of(&facts) {
            self.by_hostname.entry(hostname).or_default().insert(name.clone());
        }
        for label in first_labels(&facts) {
            self.by_first_label.entry(label).or_default().insert(name.clone());
        }
        for ip in &facts.internal_ips {
            self.by_internal_ip.entry(ip.to_canonical()).or_default().insert(name.clone());
        }
        self.nodes.insert(name, Arc::new(facts));
    }

    /// Forget a node; its facts are returned if it was known.
    pub fn remove(&mut self, name: &NodeName) -> Option<Arc<NodeFacts>> {
        let facts = self.nodes.remove(name)?;
        if let Some(hostname) = hostname_of(&facts) {
            take(&mut self.by_hostname, &hostname, name);
        }
        for label in first_labels(&facts) {
            take(&mut self.by_first_label, &label, name);
        }
        for ip in &facts.internal_ips {
            take(&mut self.by_internal_ip, &ip.to_canonical(), name);
        }
        Some(facts)
    }

    /// The node of exactly this name.
    #[must_use]
    pub fn get(&self, name: &NodeName) -> Option<&Arc<NodeFacts>> {
        self.nodes.get(name)
    }

    /// All nodes in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<NodeFacts>> {
        self.nodes.values()
    }

    /// How many nodes are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no node is known at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The nodes whose label `kubernetes.io/hostname` is this, in any case.
    #[must_use]
    pub fn with_hostname(&self, hostname: &str) -> &BTreeSet<NodeName> {
        self.by_hostname.get(&hostname.to_ascii_lowercase()).unwrap_or(&NONE)
    }

    /// The nodes whose name or `kubernetes.io/hostname` begins with this DNS label, in any case. A name that is an IP address
    /// has no DNS label: `10` is not short for `10.0.0.7`.
    #[must_use]
    pub fn with_first_label(&self, label: &str) -> &BTreeSet<NodeName> {
        self.by_first_label.get(&label.to_ascii_lowercase()).unwrap_or(&NONE)
    }

    /// The nodes that have this `InternalIP`. An IPv4 address mapped into IPv6 is the IPv4 address.
    #[must_use]
    pub fn with_internal_ip(&self, ip: IpAddr) -> &BTreeSet<NodeName> {
        self.by_internal_ip.get(&ip.to_canonical()).unwrap_or(&NONE)
    }
}

/// The names by which monitoring may know a node: its own, its host name, and the first part of either if no other node has it.
#[must_use]
pub fn names_in_monitoring(node: &NodeFacts, nodes: &Inventory) -> Vec<String> {
    let short = first_labels(node).into_iter().filter(|label| nodes.with_first_label(label).iter().all(|n| *n == node.name));
    let names: BTreeSet<String> = host_names(node).chain(short).collect();
    names.into_iter().collect()
}

/// The names that a node's host goes by, in lower case: that of the Node and, if it has one, its `kubernetes.io/hostname`.
pub(super) fn host_names(facts: &NodeFacts) -> impl Iterator<Item = String> {
    [Some(facts.name.as_str().to_owned()), hostname_of(facts)].into_iter().flatten()
}

fn hostname_of(facts: &NodeFacts) -> Option<String> {
    facts.labels.get(HOSTNAME_LABEL).filter(|v| !v.is_empty()).map(|v| v.to_ascii_lowercase())
}

fn first_labels(facts: &NodeFacts) -> BTreeSet<String> {
    host_names(facts).filter_map(|n| first_label(&n).map(str::to_owned)).collect()
}

/// The part of a host name before its first dot, unless the whole is an IPv4 address.
pub(super) fn first_label(name: &str) -> Option<&str> {
    if name.parse::<Ipv4Addr>().is_ok() { None } else { name.split('.').next().filter(|l| !l.is_empty()) }
}

fn take<K: Ord>(index: &mut BTreeMap<K, BTreeSet<NodeName>>, key: &K, name: &NodeName) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A node of which only its name, its host name and its addresses are told.
    pub(in crate::locate) fn node(name: &str, hostname: Option<&str>, ips: &[&str]) -> NodeFacts {
        NodeFacts {
            labels: hostname.map(|h| (HOSTNAME_LABEL.to_owned(), h.to_owned())).into_iter().collect(),
            internal_ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            ..NodeFacts::bare(name)
        }
    }

    pub(in crate::locate) fn inventory(nodes: impl IntoIterator<Item = NodeFacts>) -> Inventory {
        let mut inventory = Inventory::default();
        nodes.into_iter().for_each(|n| inventory.insert(n));
        inventory
    }

    fn names(found: &BTreeSet<NodeName>) -> Vec<&str> {
        found.iter().map(NodeName::as_str).collect()
    }

    #[test]
    fn a_node_is_found_by_its_name_its_host_name_its_short_name_and_its_address() {
        let known = inventory([node("gpu-07.example.com", Some("Rack3-N7"), &["10.0.0.7", "fd00::7"])]);
        let only = vec!["gpu-07.example.com"];
        assert_eq!(known.get(&NodeName::parse("gpu-07.example.com").unwrap()).unwrap().uid, "uid-of-gpu-07.example.com");
        assert_eq!(names(known.with_hostname("RACK3-n7")), only);
        assert_eq!(names(known.with_first_label("GPU-07")), only);
        assert_eq!(names(known.with_first_label("rack3-n7")), only);
        assert_eq!(names(known.with_internal_ip("::ffff:10.0.0.7".parse().unwrap())), only);
        assert_eq!(names(known.with_internal_ip("fd00::7".parse().unwrap())), only);
    }

    #[test]
    fn a_name_that_is_an_address_has_no_short_name() {
        assert!(inventory([node("10.0.0.7", Some("10.0.0.7"), &[])]).with_first_label("10").is_empty());
    }

    #[test]
    fn nodes_come_in_the_order_of_their_names() {
        let known = inventory([node("c", None, &[]), node("a", None, &[]), node("b", None, &[])]);
        assert_eq!(known.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!((known.len(), known.is_empty()), (3, false));
    }

    #[test]
    fn a_node_that_is_replaced_is_no_longer_found_by_what_it_was() {
        let mut known = inventory([node("a", Some("old"), &["10.0.0.1"])]);
        known.insert(node("a", Some("new"), &["10.0.0.2"]));
        assert!(known.with_hostname("old").is_empty() && known.with_internal_ip("10.0.0.1".parse().unwrap()).is_empty());
        assert_eq!(names(known.with_hostname("new")), ["a"]);
    }

    #[derive(Debug, Clone)]
    enum Change {
        Insert(Box<NodeFacts>),
        Remove(NodeName),
    }

    /// Few names and few values, so that the same ones meet again.
    fn change() -> impl Strategy<Value = Change> {
        let name = prop::sample::select(vec!["a", "a.x.y", "a.z", "b", "b.x.y", "10.0.0.1"]);
        let hostname = prop::option::of(prop::sample::select(vec!["", "a", "A", "a.z", "b", "10.0.0.1"]));
        let ips = prop::collection::vec(prop::sample::select(vec!["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2", "fd00::1"]), 0..3);
        let insert = (name.clone(), hostname, ips).prop_map(|(n, h, i)| Change::Insert(Box::new(node(n, h, &i))));
        prop_oneof![3 => insert, 2 => name.prop_map(|n| Change::Remove(NodeName::parse(n).unwrap()))]
    }

    proptest! {
        /// Equality covers the indexes, left-over empty entries included.
        #[test]
        fn after_any_changes_it_equals_one_built_afresh(changes in prop::collection::vec(change(), 0..40)) {
            let mut known = Inventory::default();
            let mut expected = BTreeMap::new();
            for change in changes {
                match change {
                    Change::Insert(facts) => {
                        expected.insert(facts.name.clone(), (*facts).clone());
                        known.insert(*facts);
                    }
                    Change::Remove(name) => {
                        prop_assert_eq!(known.remove(&name).is_some(), expected.remove(&name).is_some());
                    }
                }
            }
            prop_assert_eq!(known, inventory(expected.into_values().rev()));
        }

        #[test]
        fn each_look_up_finds_just_the_nodes_that_a_scan_finds(changes in prop::collection::vec(change(), 0..20)) {
            let known = inventory(changes.into_iter().filter_map(|c| match c { Change::Insert(n) => Some(*n), Change::Remove(_) => None }));
            let scan = |meets: &dyn Fn(&NodeFacts) -> bool| -> BTreeSet<NodeName> {
                known.iter().filter(|n| meets(n)).map(|n| n.name.clone()).collect()
            };
            for text in ["a", "b", "a.z", "10", "10.0.0.1", ""] {
                let by_label = scan(&|n| n.labels.get(HOSTNAME_LABEL).is_some_and(|h| !text.is_empty() && h.eq_ignore_ascii_case(text)));
                prop_assert_eq!(known.with_hostname(text), &by_label);
                let by_first = scan(&|n| host_names(n).any(|h| first_label(&h) == Some(text)));
                prop_assert_eq!(known.with_first_label(text), &by_first);
            }
            for ip in ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|ip| ip.parse::<IpAddr>().unwrap()) {
                prop_assert_eq!(known.with_internal_ip(ip), &scan(&|n| n.internal_ips.iter().any(|i| i.to_canonical() == ip)));
            }
        }
    }
}
