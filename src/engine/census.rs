//! The nodes as people and metrics see them.

use std::{collections::BTreeMap, sync::PoisonError};

use super::{Busy, Engine, lock};
use crate::quarantine::{GuardReport, LimitUse, NodeState, NodeView, eviction::EvicteeState};

/// Nodes that a metric names at most.
const BUSY_SHOWN: usize = 500;

/// The fleet in numbers.
#[derive(Debug)]
pub(crate) struct Census {
    /// How many nodes are in each state.
    pub(crate) states: BTreeMap<NodeState, usize>,
    /// How many claims are in each state.
    pub(crate) claims: [(&'static str, usize); 3],
    /// How many pods of isolated nodes are in each state of their eviction.
    pub(crate) pods: [(EvicteeState, usize); 8],
    /// Nodes that are not free, as many as a metric may name.
    pub(crate) busy: Vec<Busy>,
    /// How many alerts are parked.
    pub(crate) parked: usize,
    /// How many nodes have a record that cannot be used.
    pub(crate) unusable: usize,
    /// Whether a person paused the service.
    pub(crate) paused: bool,
    /// Each limit of the guard and its use.
    pub(crate) limits: Vec<LimitUse>,
}

impl Engine {
    /// All nodes that are ours or bear our record, in the order of their names.
    #[must_use]
    pub fn views(&self) -> Vec<NodeView> {
        let (config, now) = (self.config(), self.clock.now());
        let inventory = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
        let views = inventory.iter().map(|node| {
            let mut view = self.view(node, &config, now);
            if let Some(shadow) = &self.shadow {
                let would = self.view(&lock(shadow).over(node, &config), &config, now);
                if would.state != view.state {
                    view.waiting_for = format!("{}; in enforce mode it would be {}", view.waiting_for, would.state);
                    view.waiting_for += &format!(", waiting for {}", would.waiting_for);
                }
            }
            view
        });
        let mut views: Vec<NodeView> = views.filter(|v| v.in_scope || v.state != NodeState::Free || v.has_record()).collect();
        for (name, why) in lock(&self.vetoed).iter() {
            // What stands on record says so itself.
            let free = |v: &&mut NodeView| v.name == *name && v.state == NodeState::Free && v.claims.is_empty();
            if let Some(view) = views.iter_mut().find(free) {
                view.waiting_for.clone_from(why);
            }
        }
        if self.paused().why.is_none() {
            let fleet = lock(&self.fleet);
            for view in &mut views {
                fleet.muster().explain(view, &config, now);
            }
        }
        views
    }

    /// Each limit of the guard, its use, and who waits.
    #[must_use]
    pub fn guard(&self) -> GuardReport {
        let (config, now, paused) = (self.config(), self.clock.now(), self.paused().why);
        let fleet = lock(&self.fleet);
        GuardReport::of(fleet.muster(), &fleet.restarts(), paused, &config, now)
    }

    /// What the gauges show.
    pub(crate) fn census(&self) -> Census {
        let (parked, paused) = (lock(&self.parked).len(), self.paused().why.is_some());
        let fleet = lock(&self.fleet);
        Census {
            states: fleet.states(),
            claims: fleet.claims(),
            pods: fleet.pods(),
            busy: fleet.busy(BUSY_SHOWN),
            parked,
            unusable: fleet.unusable(),
            paused,
            limits: LimitUse::all(fleet.muster(), &fleet.restarts(), &self.config.load(), self.clock.now()),
        }
    }
}
