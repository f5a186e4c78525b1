//! Looks at a node again and again: while its fault lasts it must never be free.

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

/// Polls a node from its first isolation on.
#[derive(Debug)]
pub(crate) struct Watcher {
    free: Arc<Mutex<Vec<String>>>,
    watching: JoinHandle<()>,
}

impl Watcher {
    /// Watch a node that is isolated now.
    pub(crate) async fn of(nodes: &Nodes, name: &str) -> Self {
        assert!(tainted(&nodes.get(name).await), "{name} is not isolated yet");
        let free = Arc::new(Mutex::new(Vec::new()));
        let (found, nodes, name) = (Arc::clone(&free), nodes.clone(), name.to_owned());
        let watching = tokio::spawn(async move {
            loop {
                // A read that failed has seen nothing.
                if let Ok(node) = nodes.0.get(&name).await.map(|node| json!(node))
                    && !tainted(&node)
                {
                    let what = format!("{}: {:?}", now(), record(&node));
                    found.lock().unwrap_or_else(PoisonError::into_inner).push(what);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { free, watching }
    }

    /// The fault ends now: until now the node was never free.
    pub(crate) fn never_free(self) {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(free.is_empty(), "the node was free while its fault lasted, {} times, first {}", free.len(), free[0]);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watching.abort();
    }
}
