//! Evictions: the pods that opted in are asked to leave isolated nodes. What is to be done is planned purely, put on record, and only
//! then done; what became of it is put on record as well. A process that dies in between goes on from the record.

mod act;
mod agenda;
mod document;
mod look;

use std::{
    net::IpAddr,
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, stream};
use jiff::Timestamp;
use serde_json::Value;

pub(super) use agenda::Agenda;
use agenda::Next;
pub use agenda::Turn;

use super::{Engine, lock, node::Written};
use crate::{
    cluster::{PodsError, Workloads},
    locate::{NodeFacts, NodeName},
    policy::Config,
    quarantine::{
        NodeView,
        eviction::{Act, Call, Look, Plan, may_touch, note_plan, plan, unfinished},
    },
};
use look::Seen;

/// Nodes whose pods are asked to leave at once.
pub(super) const AT_ONCE: usize = 8;

/// What an eviction needs that is neither the cluster nor Alertmanager.
pub trait Aids: Send + Sync {
    /// Call a pod that asks for time to write its checkpoint, until it has answered. What it answered, in words.
    fn checkpoint(&self, ip: IpAddr, call: Call, within: Duration) -> BoxFuture<'static, String>;

    /// The last values that monitoring has of the GPUs of a node, which it calls by any of these names: a list of series, as
    /// Prometheus' API gives them. An error is a clause.
    fn last_values(&self, config: Arc<Config>, names: Vec<String>) -> BoxFuture<'_, Result<Vec<Value>, String>>;
}

impl Engine {
    /// Call pods and ask monitoring through these.
    #[must_use]
    pub fn aided(mut self, aids: Arc<dyn Aids>) -> Self {
        self.aids = Some(aids);
        self
    }

    /// A node was seen.
    pub(super) fn see_eviction(&self, view: &NodeView, now: Timestamp) {
        if lock(&self.evictions).see(view, now) {
            self.evictions_moved.notify_one();
        }
    }

    /// A node is gone.
    pub(super) fn forget_eviction(&self, name: &NodeName) {
        lock(&self.evictions).forget(name);
    }

    /// When [`Engine::due_evictions`] has something to do next.
    #[must_use]
    pub fn next_eviction(&self) -> Option<Timestamp> {
        lock(&self.evictions).next()
    }

    /// Told when [`Engine::next_eviction`] may have moved.
    pub async fn eviction_moved(&self) {
        self.evictions_moved.notified().await;
    }

    /// The nodes whose pods are to be looked at now. Each is to be handed to [`Engine::evict_from`].
    #[must_use]
    pub fn due_evictions(&self) -> Vec<Turn> {
        if self.cluster.workloads().is_none() {
            lock(&self.evictions).clear();
        }
        Turn::all(&self.evictions, &self.evictions_moved, &self.clock)
    }

    /// Carry out all that is due, and wait for it.
    pub async fn run_evictions(&self) {
        let nodes = self.due_evictions().into_iter().map(|turn| -> BoxFuture<'_, ()> { Box::pin(self.evict_from(turn)) });
        let nodes: Vec<_> = nodes.collect();
        stream::iter(nodes).buffer_unordered(self.side_by_side).for_each(|()| async {}).await;
    }

    /// Look at the pods of one node, and do what is to be done now.
    pub async fn evict_from(&self, mut turn: Turn) {
        let Some(workloads) = self.cluster.workloads() else { return };
        // It is ours, and nobody closes it.
        let Ok(_permit) = self.evicting.acquire().await else { return };
        let seen = match self.look(workloads, &turn.name).await {
            Ok(seen) => seen,
            Err(error) => {
                tracing::warn!(node = %turn.name, %error, "The pods of a node cannot be read, so none is asked to leave now.");
                return;
            }
        };
        let Some((node, plan, config)) = self.plan_on_record(&turn.name, &seen).await else { return };
        turn.next = plan.next.map_or(Next::Nothing, Next::At);
        self.act(workloads, &node, &seen, &plan, &config).await;
    }

    /// What is to be done, after it was put on record.
    async fn plan_on_record(&self, name: &NodeName, seen: &Seen) -> Option<(NodeFacts, Plan, Arc<Config>)> {
        // One node after the other: two of them with pods of one group must not both take what it bears.
        let _turn = self.planning.lock().await;
        let (restarts, going) = {
            let fleet = lock(&self.fleet);
            (fleet.restarts(), fleet.going(name))
        };
        let paused = self.paused().why;
        let (called, calling) = lock(&self.evictions).calls();
        let mut planned = None;
        let written = self
            .write_alone(name, |node, config, now| {
                let look = Look {
                    here: &seen.here,
                    elsewhere: &seen.elsewhere,
                    restarts: &restarts,
                    going: &going,
                    paused: paused.as_deref(),
                    called: &called,
                    config,
                    now,
                };
                let mut plan = plan(node, &look);
                // One that is being called is not called twice.
                plan.acts.retain(|act| !matches!(act, Act::Checkpoint { uid, .. } if calling.contains(uid)));
                let patch = match &plan.record {
                    Some(evicting) => note_plan(node, config, evicting, &plan.restarted, now),
                    None => Ok(None),
                };
                planned = Some(plan);
                patch
            })
            .await;
        match written {
            Written::As(node, config) => {
                let plan = planned?;
                if let Some(evicting) = &plan.record {
                    lock(&self.evictions).recorded(evicting);
                }
                Some((*node, plan, config))
            }
            Written::Gone => {
                self.forget_eviction(name);
                None
            }
            Written::Failed => None,
        }
    }

    /// The pods of a node, and those that leave with them.
    async fn look(&self, workloads: &dyn Workloads, name: &NodeName) -> Result<Seen, PodsError> {
        let config = self.config();
        let unfinished = {
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            let node = nodes.get(name).map(|node| match &self.shadow {
                Some(shadow) => lock(shadow).over(node, &config),
                None => NodeFacts::clone(node),
            });
            node.map(|node| unfinished(&node, &config)).unwrap_or_default()
        };
        let may_touch = |other: &NodeName| {
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            nodes.get(other).is_some_and(|node| may_touch(node, &config))
        };
        look::look(workloads, name, &unfinished, &may_touch, &config).await
    }
}
