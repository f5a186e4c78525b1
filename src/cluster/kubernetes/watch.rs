//! The watch on nodes: a list in pages, then changes, kept as compact facts.

use std::{
    collections::BTreeSet,
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, pin_mut};
use kube::runtime::{
    WatchStreamExt,
    utils::Backoff,
    watcher::{self, Event, watcher},
};

use super::{KubeCluster, objects::NodeObject};
use crate::locate::NodeName;

/// kube-rs' own backoff left the list stale for up to a minute after the server's return; this one for 1 to 2 s (measured).
#[derive(Debug, Clone)]
struct Quick(Duration);

impl Quick {
    const FIRST: Duration = Duration::from_millis(200);
    const LAST: Duration = Duration::from_secs(3);
}

impl Iterator for Quick {
    type Item = Duration;
    fn next(&mut self) -> Option<Duration> {
        let now = self.0;
        self.0 = (now * 2).min(Self::LAST);
        Some(now)
    }
}

impl Backoff for Quick {
    fn reset(&mut self) {
        self.0 = Self::FIRST;
    }
}

/// A watch ends after this long, in seconds, and one that is silent for 5 s longer is lost: a connection that is gone without a word
/// costs half a minute. The default of 290 s would leave us blind for 5 minutes (measured).
const SILENCE: u32 = 25;
/// Pages of 500, the default, cost three times the memory (measured with 15,000 nodes).
const PAGE: u32 = 100;

impl KubeCluster {
    /// Keep the inventory current until the process ends. Errors are logged and retried.
    pub async fn watch(&self) {
        loop {
            let config = watcher::Config::default().timeout(SILENCE).page_size(PAGE);
            let events = watcher(self.watched.clone(), config).backoff(Quick(Quick::FIRST));
            pin_mut!(events);
            let mut listed = BTreeSet::new();
            let request = self.asked.load(Ordering::Acquire);
            loop {
                tokio::select! {
                    () = self.relist.notified() => break,
                    event = events.next() => match event {
                        Some(Ok(event)) => self.take(event, &mut listed, request),
                        Some(Err(error)) => tracing::warn!(%error, "The watch on nodes was interrupted."),
                        None => break,
                    },
                }
            }
        }
    }

    fn take(&self, event: Event<NodeObject>, listed: &mut BTreeSet<NodeName>, request: u64) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(node) => {
                if let Some(name) = self.upsert(&node) {
                    listed.insert(name);
                }
                // One change is told when the list is whole.
                return;
            }
            Event::InitDone => {
                let mut inventory = self.inventory.write().unwrap_or_else(PoisonError::into_inner);
                let gone: Vec<NodeName> = inventory.iter().map(|n| &n.name).filter(|n| !listed.contains(*n)).cloned().collect();
                for name in gone {
                    inventory.remove(&name);
                }
                drop(inventory);
                listed.clear();
                self.answered.send_replace(request);
                if !self.ready.swap(true, Ordering::Relaxed) {
                    tracing::info!("The first list of nodes was read.");
                }
            }
            Event::Apply(node) => drop(self.upsert(&node)),
            Event::Delete(node) => {
                if let Some(facts) = self.facts(&node) {
                    let mut inventory = self.inventory.write().unwrap_or_else(PoisonError::into_inner);
                    if inventory.get(&facts.name).is_some_and(|known| known.uid == facts.uid) {
                        inventory.remove(&facts.name);
                    }
                }
            }
        }
        self.changes.send_modify(|n| *n += 1);
    }

    /// Take a node as read, unless it is older than what we have: our own writes are known before the watch tells of them.
    fn upsert(&self, node: &NodeObject) -> Option<NodeName> {
        let facts = self.facts(node)?;
        let name = facts.name.clone();
        self.learn(facts);
        Some(name)
    }
}
