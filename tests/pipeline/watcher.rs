//! Looks at a node again and again: while its fault lasts it must never be free, or never isolated.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    nodes::{Nodes, record, tainted},
    service::now,
};

/// Polls a node, and notes when it is not as it should be.
#[derive(Debug)]
pub(crate) struct Watcher {
    wrong: Arc<Mutex<Vec<String>>>,
    watching: JoinHandle<()>,
}

impl Watcher {
    /// Watch a node that is isolated now.
    pub(crate) async fn of(nodes: &Nodes, name: &str) -> Self {
        Self::start(nodes, name, true).await
    }

    /// Watch a node that is free now.
    pub(crate) async fn of_free(nodes: &Nodes, name: &str) -> Self {
        Self::start(nodes, name, false).await
    }

    async fn start(nodes: &Nodes, name: &str, isolated: bool) -> Self {
        assert_eq!(tainted(&nodes.get(name).await), isolated, "{name} is not yet so");
        let wrong = Arc::new(Mutex::new(Vec::new()));
        let (found, nodes, name) = (Arc::clone(&wrong), nodes.clone(), name.to_owned());
        let watching = tokio::spawn(async move {
            loop {
                // A read that failed has seen nothing.
                if let Ok(node) = nodes.0.get(&name).await.map(|node| json!(node))
                    && tainted(&node) != isolated
                {
                    let what = format!("{}: {:?}", now(), record(&node));
                    found.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { wrong, watching }
    }

    /// The fault ends now: until now the node was never free.
    pub(crate) fn never_free(self) {
        self.assert_never("free while its fault lasted");
    }

    /// Until now the node was never isolated.
    pub(crate) fn never_isolated(self) {
        self.assert_never("isolated");
    }

    fn assert_never(&self, what: &str) {
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wrong.is_empty(), "the node was {what}, seen {} times, first {}", wrong.len(), wrong[0]);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watching.abort();
    }
}
