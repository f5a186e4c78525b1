//! Which node's pods are looked at when, and which pods are being called.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::{
    engine::{Clock, TRY_AGAIN, lock},
    locate::NodeName,
    quarantine::{NodeView, eviction::Evicting},
};

/// Pods that are called at once, over all nodes.
const MOST_CALLS: usize = 256;

/// A node whose pods are looked at.
#[derive(Debug)]
struct Due {
    at: Timestamp,
    /// For what its pods are to go, in a text that changes when that does.
    about: String,
    /// Somebody is at it.
    busy: bool,
    /// People were told that all are left.
    told: bool,
}

/// What is to be done when.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    nodes: BTreeMap<NodeName, Due>,
    /// Pods that were called, by their UIDs: their nodes, and what came of it.
    calls: BTreeMap<String, (NodeName, Option<String>)>,
}

impl Agenda {
    /// A node was seen: it is looked at at once if anything about its claims is new. Whether anything changed.
    pub(super) fn see(&mut self, view: &NodeView, now: Timestamp) -> bool {
        if view.eviction.is_none() {
            self.calls.retain(|_, (node, _)| *node != view.name);
        }
        let unfinished = || view.eviction.as_ref().is_some_and(|e| e.pods.iter().any(|p| !p.state.is_over()));
        let about = match &view.evicts {
            Some(about) => about.clone(),
            // What was begun is brought to an end on record.
            None if unfinished() => String::new(),
            None => return self.nodes.remove(&view.name).is_some(),
        };
        match self.nodes.get_mut(&view.name) {
            Some(due) if due.about == about => false,
            Some(due) => {
                *due = Due { at: now, about, busy: due.busy, told: false };
                true
            }
            None => {
                self.nodes.insert(view.name.clone(), Due { at: now, about, busy: false, told: false });
                true
            }
        }
    }

    pub(super) fn forget(&mut self, name: &NodeName) {
        self.nodes.remove(name);
        self.calls.retain(|_, (node, _)| node != name);
    }

    pub(super) fn clear(&mut self) {
        self.nodes.clear();
    }

    /// When the next node is due that nobody is at.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.nodes.values().filter(|due| !due.busy).map(|due| due.at).min()
    }

    /// Whether people are to be told that all pods of a node are left: once for what they are to go for.
    pub(super) fn tells(&mut self, name: &NodeName) -> bool {
        self.nodes.get_mut(name).is_some_and(|due| !std::mem::replace(&mut due.told, true))
    }

    /// What pods that were called answered, and those that have not answered yet.
    pub(super) fn calls(&self) -> (BTreeMap<String, String>, BTreeSet<String>) {
        let answered = self.calls.iter().filter_map(|(uid, (_, came))| Some((uid.clone(), came.clone()?))).collect();
        let calling = self.calls.iter().filter(|(_, (_, came))| came.is_none()).map(|(uid, _)| uid.clone()).collect();
        (answered, calling)
    }

    /// Whether one more pod may be called; it counts from now on.
    pub(super) fn begin_call(&mut self, node: &NodeName, uid: &str) -> bool {
        let open = self.calls.values().filter(|(_, came)| came.is_none()).count();
        let may = open < MOST_CALLS;
        if may {
            self.calls.insert(uid.to_owned(), (node.clone(), None));
        }
        may
    }

    /// What stands on record by now need not be known here.
    pub(super) fn recorded(&mut self, evicting: &Evicting) {
        self.calls.retain(|uid, (_, came)| came.is_none() || evicting.of(uid).is_none_or(|pod| pod.checkpoint.is_none()));
    }

    /// A pod that was called answered, or cannot be called. Its node is looked at at once.
    pub(super) fn called(&mut self, node: &NodeName, uid: &str, came: String, now: Timestamp) {
        let Some(due) = self.nodes.get_mut(node) else {
            self.calls.remove(uid);
            return;
        };
        due.at = now;
        self.calls.insert(uid.to_owned(), (node.clone(), Some(came)));
    }
}

/// What follows a look at a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Next {
    /// It did not come to an end: another, soon.
    Soon,
    /// Another, then.
    At(Timestamp),
    /// None, until something about the node is new.
    Nothing,
}

/// One look at a node. Dropped, the node is due again: when it says so, or soon if whoever was at it did not come to an end.
pub struct Turn {
    agenda: Arc<Mutex<Agenda>>,
    moved: Arc<Notify>,
    clock: Arc<dyn Clock>,
    pub(super) name: NodeName,
    about: String,
    begun: Timestamp,
    /// What follows.
    pub(super) next: Next,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Turn {
    /// All nodes that are due and that nobody is at.
    pub(super) fn all(agenda: &Arc<Mutex<Agenda>>, moved: &Arc<Notify>, clock: &Arc<dyn Clock>) -> Vec<Self> {
        let now = clock.now();
        let mut nodes = lock(agenda);
        let due = nodes.nodes.iter_mut().filter(|(_, due)| !due.busy && due.at <= now);
        due.map(|(name, due)| {
            due.busy = true;
            Self {
                agenda: Arc::clone(agenda),
                moved: Arc::clone(moved),
                clock: Arc::clone(clock),
                name: name.clone(),
                about: due.about.clone(),
                begun: due.at,
                next: Next::Soon,
            }
        })
        .collect()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut agenda = lock(&self.agenda);
        if let Some(due) = agenda.nodes.get_mut(&self.name) {
            due.busy = false;
            // What came meanwhile has made it due already.
            if due.about == self.about && due.at == self.begun {
                match self.next {
                    Next::At(at) => due.at = at,
                    Next::Nothing => drop(agenda.nodes.remove(&self.name)),
                    Next::Soon => due.at = self.clock.now() + TRY_AGAIN,
                }
            }
        }
        self.moved.notify_one();
    }
}
