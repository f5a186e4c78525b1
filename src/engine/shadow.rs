//! What would have been written, in memory: the service reads and decides for real and writes nothing (`--mode observe`).
//!
//! Only records are kept; the taint and the cordon follow from them. So hold-downs, releases and the guard run as they would.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    locate::{NodeFacts, NodeName},
    policy::Config,
    quarantine::{Added, Stored, read},
};

/// The records that would stand on the nodes, by node and its UID.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    records: HashMap<NodeName, (String, Option<String>)>,
}

impl Shadow {
    /// The node as it would be.
    pub(super) fn over(&self, node: &NodeFacts, config: &Config) -> NodeFacts {
        let mut node = node.clone();
        let Some((_, text)) = self.records.get(&node.name).filter(|(uid, _)| *uid == node.uid) else { return node };
        let name = config.annotation("record");
        // What a record of an earlier life in enforce mode added is not there in the shadow.
        if let Some(added) = added(&node, config) {
            node.taints.retain(|t| Some(t) != added.taint.as_ref());
            node.unschedulable &= !added.cordon;
        }
        match text {
            Some(text) => node.annotations.insert(name, text.clone()),
            None => node.annotations.remove(&name),
        };
        if let Some(added) = added(&node, config) {
            node.unschedulable |= added.cordon;
            let taken = |key: &str, effect: &str| node.taints.iter().any(|t| t.key == key && t.effect == effect);
            let taint = added.taint.filter(|t| !taken(&t.key, &t.effect));
            node.taints.extend(taint);
        }
        node
    }

    /// Keep what a patch would have written.
    pub(super) fn patch(&mut self, node: &NodeFacts, patch: &Value, config: &Config) {
        let name = config.annotation("record");
        if let Some(record) = patch["metadata"]["annotations"].get(&name) {
            let text = record.as_str().map(str::to_owned);
            self.records.insert(node.name.clone(), (node.uid.clone(), text));
        }
    }
}

fn added(node: &NodeFacts, config: &Config) -> Option<Added> {
    let text = node.annotations.get(&config.annotation("record")).map(String::as_str);
    match read(text, node, &config.instance) {
        Stored::Ours(record) => record.added,
        _ => None,
    }
}
