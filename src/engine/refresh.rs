//! What changed on the nodes since they were last looked at.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use jiff::Timestamp;

use super::{Engine, Foreign, lock, notices};
use crate::{
    alert::Alert,
    locate::{NodeFacts, NodeName},
    notice::{self, Notice},
    quarantine::NodeView,
};

impl Engine {
    /// Take in what changed on the nodes since they were last looked at. Parked alerts are tried again if nodes came or went.
    pub async fn refresh(&self) {
        if self.look_at_all(false).await {
            self.retry_parked().await;
        }
        self.admit_waiting().await;
        self.timers.notify_one();
    }

    /// Try parked alerts again.
    pub async fn retry_parked(&self) {
        let parked = lock(&self.parked).all();
        if !parked.is_empty() {
            let alerts: Vec<&Alert> = parked.iter().collect();
            self.take(&alerts, None).await;
        }
    }

    /// Count what the isolation of a node came to, if it is over, and tell if a person ended it by command. What is only decided and
    /// never written withholds nothing.
    pub(super) fn count(&self, node: &NodeFacts, view: &NodeView, now: Timestamp) -> Option<Notice> {
        if self.shadow.is_some() {
            return None;
        }
        let mut tally = lock(&self.tally);
        tally.see(node, view, &self.metrics).map(|episode| notice::released_by_command(view, episode, now))
    }

    /// Whether nodes came or went.
    pub(super) async fn look_at_all(&self, even_unchanged: bool) -> bool {
        if !self.cluster.ready() {
            return false;
        }
        let (config, now) = (self.config(), self.clock.now());
        let mut to_decide = Vec::new();
        let mut notices = Vec::new();
        let others;
        let mut foreign = Vec::new();
        {
            // Both at once: else a write in between would be overwritten here by what was before it.
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            let mut fleet = lock(&self.fleet);
            let mut gone: BTreeSet<NodeName> = fleet.names().into_iter().collect();
            let known = gone.len();
            for node in nodes.iter() {
                gone.remove(&node.name);
                if even_unchanged || !fleet.has_seen(&node.name, &node.resource_version) {
                    let view = match &self.shadow {
                        Some(shadow) => self.view(&lock(shadow).over(node, &config), &config, now),
                        None => self.view(node, &config, now),
                    };
                    self.note_in_ledger(node, &view, now);
                    if !fleet.has_seen(&node.name, &node.resource_version) {
                        foreign.push(Foreign::Is(Arc::clone(node)));
                    }
                    fleet.update(&view, &node.resource_version, now);
                    self.see_eviction(&view, now);
                    notices.extend(self.count(node, &view, now));
                    if let Some(reason) = fleet.tell(&node.name) {
                        notices.extend(notices::lasting(reason, node, &view, &config, now));
                    }
                    if view.isolated || !view.claims.is_empty() {
                        to_decide.push(node.name.clone());
                    }
                }
            }
            others = !gone.is_empty() || known != nodes.len();
            for name in gone {
                fleet.remove(&name);
                lock(&self.tally).forget(&name);
                self.forget_eviction(&name);
                foreign.push(Foreign::Gone(name));
            }
        }
        if let Some(sink) = &self.foreign
            && self.ready()
        {
            foreign.into_iter().for_each(sink);
        }
        self.counted.store(true, Ordering::Release);
        for notice in notices {
            self.tell(notice, &config);
        }
        self.decide_again(&to_decide).await;
        self.take_over_heirs().await;
        others
    }
}
