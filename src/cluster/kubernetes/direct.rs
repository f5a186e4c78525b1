//! Nodes without a watch, for commands: each is listed, read or written once, whether or not the service runs.

use std::{future::Future, time::Duration};

use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::Value;

use super::{CALL_TIMEOUT, CallError, ConnectError, connect, objects::NodeObject};
use crate::{
    cluster::{ClusterError, node_facts},
    locate::{NodeFacts, NodeName},
};

/// The field manager of what people write by command. It is none of `people.field_managers` and need not be: the record that
/// stands in the same patch says who released the node.
pub const CLI_MANAGER: &str = "gpu-quarantine-cli";
/// Nodes are listed in pages: a large Node has 50 KiB.
const NODE_PAGE: u32 = 500;
/// How long one page may take.
const PAGE_TIMEOUT: Duration = Duration::from_secs(15);

/// The nodes behind an API server.
pub struct DirectNodes {
    nodes: Api<NodeObject>,
    domain: String,
}

impl std::fmt::Debug for DirectNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectNodes").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl DirectNodes {
    /// The nodes behind `config`; `domain` is the prefix of our annotations.
    ///
    /// # Errors
    ///
    /// If no client can be made of the configuration.
    pub fn new(config: kube::Config, domain: &str) -> Result<Self, ConnectError> {
        let (client, _) = connect::clients(config)?;
        Ok(Self { nodes: Api::all(client), domain: domain.to_owned() })
    }

    /// All nodes, page by page, in the order of the API server, which is that of their names; and of each that cannot be read, why.
    ///
    /// # Errors
    ///
    /// If a page cannot be had.
    pub async fn list(&self) -> Result<(Vec<NodeFacts>, Vec<String>), String> {
        let mut params = ListParams::default().limit(NODE_PAGE);
        let (mut nodes, mut unreadable) = (Vec::new(), Vec::new());
        loop {
            let page = bounded(PAGE_TIMEOUT, self.nodes.list(&params)).await;
            let page = page.map_err(|e| format!("the nodes cannot be listed: {e}"))?;
            for node in &page.items {
                match self.facts(node) {
                    Ok(facts) => nodes.push(facts),
                    Err(why) => unreadable.push(why),
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok((nodes, unreadable)),
            }
        }
    }

    /// One node; `None` if there is none of that name.
    ///
    /// # Errors
    ///
    /// If the API server cannot be asked, or the Node cannot be read.
    pub async fn get(&self, name: &NodeName) -> Result<Option<NodeFacts>, ClusterError> {
        let node = bounded(CALL_TIMEOUT, self.nodes.get_opt(name.as_str())).await.map_err(|e| e.about(name))?;
        node.map(|node| self.read(name, &node)).transpose()
    }

    /// Apply one JSON merge patch that carries `metadata.resourceVersion`, as a person's. The node as it is afterwards.
    ///
    /// # Errors
    ///
    /// [`ClusterError::Conflict`] if somebody wrote meanwhile; after a timeout the outcome is unknown until the node is read.
    pub async fn patch(&self, name: &NodeName, patch: &Value) -> Result<NodeFacts, ClusterError> {
        let params = PatchParams { field_manager: Some(CLI_MANAGER.to_owned()), ..PatchParams::default() };
        let call = async { self.nodes.patch(name.as_str(), &params, &Patch::Merge(patch)).await };
        let node = bounded(CALL_TIMEOUT, call).await.map_err(|e| e.about(name))?;
        self.read(name, &node)
    }

    fn read(&self, name: &NodeName, node: &NodeObject) -> Result<NodeFacts, ClusterError> {
        self.facts(node).map_err(|message| ClusterError::Refused { node: name.clone(), message })
    }

    fn facts(&self, node: &NodeObject) -> Result<NodeFacts, String> {
        let raw = serde_json::to_value(node).map_err(|e| format!("a node cannot be read: {e}"))?;
        node_facts(&raw, &self.domain).map_err(|e| e.to_string())
    }
}

pub(super) async fn bounded<T>(timeout: Duration, call: impl Future<Output = kube::Result<T>> + Send) -> Result<T, CallError> {
    match tokio::time::timeout(timeout, call).await {
        Ok(result) => result.map_err(CallError::from),
        Err(_) => Err(CallError::Timeout(timeout)),
    }
}
