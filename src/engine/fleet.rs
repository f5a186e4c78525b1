//! The fleet as the guard and the timers see it: who is isolated, who waits, who is due. An index over the records, kept in
//! step with them and rebuilt from them at start.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::{
    locate::NodeName,
    notice::Reason,
    quarantine::{
        ClaimState, Muster, NodeState, NodeView,
        eviction::{EvicteeState, Restart},
    },
};

/// A node that is not free.
#[derive(Debug, Clone)]
pub(crate) struct Busy {
    pub(crate) node: NodeName,
    pub(crate) state: NodeState,
    /// Since when our isolation has been in force.
    pub(crate) isolated_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
struct Entry {
    resource_version: String,
    state: NodeState,
    isolated: bool,
    isolated_at: Option<Timestamp>,
    due: Option<Timestamp>,
    /// How many claims are firing, cleared and released by hand.
    claims: [usize; 3],
    /// Whether the sender of an alert on it may never tell its end.
    unconfirmed: bool,
    /// The groups that were restarted from it.
    restarts: Vec<Restart>,
    /// The states of its pods, and the groups of those that are on their way out.
    pods: Vec<(EvicteeState, Option<String>)>,
    /// What lasts on this node, and whether people were told of it.
    lasting: Option<(Reason, bool)>,
}

/// What of a node's state people are told once.
fn lasting(view: &NodeView) -> Option<Reason> {
    let all = [
        // One on a node that is not ours is for another instance to tell of; a fleet of them would drown what we have to tell.
        (view.unusable.is_some() && view.in_scope, Reason::RecordUnreadable),
        (view.held_back.is_some(), Reason::ReleaseHeld),
        (view.unproven.is_some(), Reason::ReleaseUnproven),
        (view.muted.is_some(), Reason::Silenced),
    ];
    all.into_iter().find(|(is_so, _)| *is_so).map(|(_, reason)| reason)
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    nodes: BTreeMap<NodeName, Entry>,
    muster: Muster,
    due: BTreeSet<(Timestamp, NodeName)>,
}

impl Fleet {
    /// Take a node as it is now.
    pub(super) fn update(&mut self, view: &NodeView, resource_version: &str, now: Timestamp) {
        let told = self.nodes.get(&view.name).and_then(|e| e.lasting);
        self.remove(&view.name);
        let name = &view.name;
        self.muster.see(view, now);
        if let Some(due) = view.due {
            self.due.insert((due, name.clone()));
        }
        let entry = Entry {
            resource_version: resource_version.to_owned(),
            state: view.state,
            isolated: view.isolated,
            isolated_at: view.isolated_at,
            due: view.due,
            claims: [ClaimState::Firing, ClaimState::Cleared, ClaimState::Released]
                .map(|state| view.claims.iter().filter(|c| c.state == state).count()),
            restarts: view.restarts.clone(),
            pods: view.eviction.iter().flat_map(|e| &e.pods).map(|p| (p.state, p.is_going().then(|| p.group.clone()))).collect(),
            unconfirmed: view.claims.iter().any(|c| c.unconfirmed),
            lasting: lasting(view).map(|reason| (reason, told == Some((reason, true)))),
        };
        self.nodes.insert(name.clone(), entry);
    }

    /// What people are to be told now of a state that lasts: once, and again only after it ended.
    pub(super) fn tell(&mut self, name: &NodeName) -> Option<Reason> {
        let (reason, told) = self.nodes.get_mut(name)?.lasting.as_mut()?;
        (!std::mem::replace(told, true)).then_some(*reason)
    }

    /// Forget a node that is gone.
    pub(super) fn remove(&mut self, name: &NodeName) {
        let Some(old) = self.nodes.remove(name) else { return };
        self.muster.forget(name);
        if let Some(due) = old.due {
            self.due.remove(&(due, name.clone()));
        }
    }

    /// Decide this node again at `at`, although nothing was heard.
    pub(super) fn postpone(&mut self, name: &NodeName, at: Timestamp) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if let Some(old) = entry.due.replace(at) {
            self.due.remove(&(old, name.clone()));
        }
        self.due.insert((at, name.clone()));
    }

    /// Whether the node was last seen with that resourceVersion.
    pub(super) fn has_seen(&self, name: &NodeName, resource_version: &str) -> bool {
        self.nodes.get(name).is_some_and(|e| e.resource_version == resource_version)
    }

    /// The nodes that are isolated by us.
    pub(super) fn isolated(&self) -> Vec<NodeName> {
        self.nodes.iter().filter(|(_, e)| e.isolated).map(|(name, _)| name.clone()).collect()
    }

    /// The names of all nodes known.
    pub(super) fn names(&self) -> Vec<NodeName> {
        self.nodes.keys().cloned().collect()
    }

    /// The fleet as the guard counts it.
    pub(super) fn muster(&self) -> &Muster {
        &self.muster
    }

    /// The same, to be changed by those who write.
    pub(super) fn muster_mut(&mut self) -> &mut Muster {
        &mut self.muster
    }

    /// Nodes that are due at `now`, in order of their time.
    pub(super) fn due(&self, now: Timestamp) -> Vec<NodeName> {
        self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, name)| name.clone()).collect()
    }

    /// When the next node is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// How many claims are firing, cleared and released by hand.
    pub(super) fn claims(&self) -> [(&'static str, usize); 3] {
        let sum = |i: usize| self.nodes.values().map(|e| e.claims[i]).sum();
        [("firing", sum(0)), ("cleared", sum(1)), ("released", sum(2))]
    }

    /// Nodes with claims, those that were released by hand included: their members fire on until they are told to be over.
    pub(super) fn with_claims(&self) -> Vec<NodeName> {
        self.nodes.iter().filter(|(_, e)| e.claims != [0; 3]).map(|(name, _)| name.clone()).collect()
    }

    /// How many nodes have a record that cannot be used.
    pub(super) fn unusable(&self) -> usize {
        self.nodes.values().filter(|e| matches!(e.lasting, Some((Reason::RecordUnreadable, _)))).count()
    }

    /// The groups that were restarted by us, on any node.
    pub(super) fn restarts(&self) -> Vec<Restart> {
        self.nodes.values().flat_map(|e| &e.restarts).cloned().collect()
    }

    /// How many pods of each group are on their way out of other nodes than this.
    pub(super) fn going(&self, but: &NodeName) -> BTreeMap<String, u64> {
        let mut going = BTreeMap::new();
        let others = self.nodes.iter().filter(|(name, _)| *name != but);
        for group in others.flat_map(|(_, e)| &e.pods).filter_map(|(_, group)| group.as_ref()) {
            *going.entry(group.clone()).or_default() += 1;
        }
        going
    }

    /// How many pods on record stand in each state.
    pub(super) fn pods(&self) -> [(EvicteeState, usize); 8] {
        let count = |state| self.nodes.values().flat_map(|e| &e.pods).filter(|(s, _)| *s == state).count();
        EvicteeState::ALL.map(|state| (state, count(state)))
    }

    /// Whether the node has a claim that fires.
    pub(super) fn has_firing_claims(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_some_and(|e| e.claims[0] > 0)
    }

    /// Whether the sender of an alert on the node may never tell its end.
    pub(super) fn is_unconfirmed(&self, name: &NodeName) -> bool {
        self.nodes.get(name).is_some_and(|e| e.unconfirmed)
    }

    /// Nodes that are not free, the first so many by name.
    pub(super) fn busy(&self, most: usize) -> Vec<Busy> {
        let busy = self.nodes.iter().filter(|(_, e)| e.state != NodeState::Free);
        busy.take(most).map(|(name, e)| Busy { node: name.clone(), state: e.state, isolated_at: e.isolated_at }).collect()
    }

    /// How many nodes are in each state.
    pub(super) fn states(&self) -> BTreeMap<NodeState, usize> {
        let mut states: BTreeMap<_, _> = NodeState::ALL.into_iter().map(|s| (s, 0)).collect();
        for entry in self.nodes.values() {
            *states.entry(entry.state).or_default() += 1;
        }
        states
    }
}
