//! The work on one node: read, decide, write, and again if somebody else wrote meanwhile.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::Value;

use super::{Engine, answer::Step, damper::PutOff, lock, notices};
use crate::{
    alert::Status,
    cluster::ClusterError,
    locate::{NodeFacts, NodeName},
    notice::Change,
    policy::Config,
    quarantine::{Context, Decision, Effect, Heard, Known, Outcome, Room, Told, Verdict, decide},
};

/// How often a node is read and decided again before the delivery is given back. With 20 writers on one node the unluckiest
/// needed 12 tries (measured on a real API server).
const TRIES: u32 = 16;

/// A pause after a lost race. The first retries are at once: the other writer is most likely done.
async fn let_others_write(attempt: u32) {
    if let Some(pause) = attempt.checked_sub(3) {
        tokio::time::sleep(Duration::from_millis(10 << pause.min(4))).await;
    }
}

/// What became of a write to one node.
#[derive(Debug)]
pub(super) enum Written {
    /// The node is so now, under this configuration; perhaps nothing was to be written.
    As(Box<NodeFacts>, Arc<Config>),
    /// The node is not there any more.
    Gone,
    /// It could not be read or written.
    Failed,
}

/// What the work on one node came to.
#[derive(Debug)]
pub(super) struct Done {
    /// One per alert.
    pub(super) verdicts: Vec<Verdict>,
    /// Something failed that the sender's retry can cure.
    pub(super) retry: bool,
    /// Something failed at all.
    pub(super) failed: bool,
}

impl Done {
    fn failed(heard: &[Heard<'_>], error: &ClusterError, retry: bool) -> Self {
        let verdict = Verdict { outcome: Outcome::Failed, reason: error.to_string() };
        Self { verdicts: vec![verdict; heard.len()], retry: retry && !heard.is_empty(), failed: true }
    }
}

impl Engine {
    /// Decide about one node and carry it out. At most one worker is on a node at a time.
    pub(super) async fn work_on(&self, name: &NodeName, heard: &[Heard<'_>], told: Told<'_>) -> Done {
        let done = self.alone(name, self.decide_and_write(name, heard, told)).await;
        lock(&self.fleet).muster_mut().unreserve(name);
        done
    }

    /// Do something while nobody else of this process works on the node.
    async fn alone<T>(&self, name: &NodeName, work: impl Future<Output = T>) -> T {
        let worker = Arc::clone(lock(&self.workers).entry(name.clone()).or_default());
        let done = {
            let _alone = worker.lock().await;
            work.await
        };
        let mut workers = lock(&self.workers);
        // Ours and the map's.
        if Arc::strong_count(&worker) <= 2 {
            workers.remove(name);
        }
        done
    }

    /// Read the node and write what `change` makes of it, and again if somebody else wrote meanwhile. Nobody else of this process
    /// works on the node at the same time.
    pub(super) async fn write_alone(
        &self,
        name: &NodeName,
        change: impl FnMut(&NodeFacts, &Config, Timestamp) -> Result<Option<Value>, String> + Send,
    ) -> Written {
        self.alone(name, self.write_again(name, change)).await
    }

    async fn write_again(
        &self,
        name: &NodeName,
        mut change: impl FnMut(&NodeFacts, &Config, Timestamp) -> Result<Option<Value>, String> + Send,
    ) -> Written {
        for attempt in 0..TRIES {
            let node = match self.cluster.get(name).await {
                Ok(Some(node)) => node,
                Ok(None) => return Written::Gone,
                Err(error) => return self.not_written(name, &error),
            };
            let config = self.config();
            let node = match &self.shadow {
                Some(shadow) => lock(shadow).over(&node, &config),
                None => node,
            };
            let patch = match change(&node, &config, self.clock.now()) {
                Ok(Some(patch)) => patch,
                Ok(None) => return Written::As(Box::new(node), config),
                Err(why) => {
                    tracing::error!(node = %name, %why, "What is done to the pods of a node cannot be put on its record.");
                    return Written::Failed;
                }
            };
            if let Some(shadow) = &self.shadow {
                lock(shadow).patch(&node, &patch, &config);
                let after = lock(shadow).over(&node, &config);
                self.seen(&after, &config);
                return Written::As(Box::new(after), config);
            }
            match self.cluster.patch(name, &patch).await {
                Ok(written) => {
                    self.seen(&written, &config);
                    return Written::As(Box::new(written), config);
                }
                Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => {
                    let_others_write(attempt).await;
                }
                // What became of it is read.
                Err(ClusterError::Timeout { .. } | ClusterError::Unavailable { .. }) if attempt == 0 => {}
                Err(error) => return self.not_written(name, &error),
            }
        }
        self.not_written(name, &ClusterError::Conflict { node: name.clone() })
    }

    fn not_written(&self, name: &NodeName, error: &ClusterError) -> Written {
        self.metrics.write_failed(error.reason());
        self.tell_write_failed(name, error);
        tracing::warn!(%error, "The record of an eviction could not be read or written; it is tried again.");
        Written::Failed
    }

    async fn decide_and_write(&self, name: &NodeName, heard: &[Heard<'_>], told: Told<'_>) -> Done {
        // What was put off comes first, unless there is newer word of the same alert.
        let put_off: Vec<PutOff> = lock(&self.damper).take(name, heard);
        let all: Vec<Heard<'_>> = put_off.iter().map(PutOff::heard).chain(heard.iter().cloned()).collect();
        let mut done = self.decide_and_write_all(name, &all, told).await;
        if !done.failed {
            self.note_unrendered(name, heard, &self.config());
        }
        done.verdicts.drain(..put_off.len());
        drop(all);
        if done.failed {
            lock(&self.damper).put_back(name, put_off);
        }
        done
    }

    async fn decide_and_write_all(&self, name: &NodeName, heard: &[Heard<'_>], told: Told<'_>) -> Done {
        // A decision to write may come from the cache, since the resourceVersion guards it; one not to write may not.
        let mut cached = {
            let inventory = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            inventory.get(name).cloned()
        };
        let mut last = ClusterError::Conflict { node: name.clone() };
        let mut unanswered: Option<(Decision, Arc<NodeFacts>)> = None;
        for attempt in 0..TRIES {
            let from_cache = cached.is_some();
            let node = match cached.take() {
                Some(node) => node,
                None => match self.cluster.get(name).await {
                    Ok(Some(node)) => Arc::new(node),
                    Ok(None) => return self.gone(name, heard),
                    Err(error) => return self.give_up(name, heard, &error),
                },
            };
            let config = self.config();
            let node = match &self.shadow {
                Some(shadow) => Arc::new(lock(shadow).over(&node, &config)),
                None => node,
            };
            let decision = self.decide_with_room(&node, heard, told, &config);
            let Some(patch) = &decision.patch else {
                if from_cache {
                    continue;
                }
                self.seen(&node, &config);
                // Our write took effect although nobody answered: it is told as what it did.
                return match unanswered.filter(|(ours, _)| ours.is_carried_out(&node)) {
                    Some((ours, before)) => self.written(ours, &before, &node, &config),
                    None => Done { verdicts: decision.verdicts, retry: false, failed: false },
                };
            };
            if let Some(shadow) = &self.shadow {
                lock(shadow).patch(&node, patch, &config);
                let after = lock(shadow).over(&node, &config);
                self.seen(&after, &config);
                return self.written(decision, &node, &after, &config);
            }
            let now = self.clock.now();
            // What a pull proves cannot be put off as if it were heard by webhook.
            if !decision.urgent
                && told == Told::Pushed
                && let Some(until) = lock(&self.damper).put_off(name, heard, now)
            {
                self.seen(&node, &config);
                lock(&self.fleet).postpone(name, until);
                return Done { verdicts: decision.verdicts, retry: false, failed: false };
            }
            match self.cluster.patch(name, patch).await {
                Ok(written) => {
                    lock(&self.damper).wrote(name, now);
                    self.seen(&written, &config);
                    return self.written(decision, &node, &written, &config);
                }
                Err(error @ (ClusterError::Conflict { .. } | ClusterError::NotFound { .. })) => {
                    last = error;
                    let_others_write(attempt).await;
                }
                // Whether it was written is unknown until the node is read, and after that it is decided again.
                Err(error @ (ClusterError::Timeout { .. } | ClusterError::Unavailable { .. })) if attempt == 0 => {
                    last = error;
                    unanswered = Some((decision, Arc::clone(&node)));
                    // The slot stays ours until it is known.
                    continue;
                }
                Err(error) => return self.give_up(name, heard, &error),
            }
            lock(&self.fleet).muster_mut().unreserve(name);
        }
        self.give_up(name, heard, &last)
    }

    fn decide_with_room(&self, node: &NodeFacts, heard: &[Heard<'_>], told: Told<'_>, config: &Config) -> Decision {
        let left_behind = self.left_behind(node);
        let mut fleet = lock(&self.fleet);
        let begin = Instant::now();
        let decision = self.knowing(node, config, |known| {
            decide(
                node,
                heard,
                &Context {
                    config,
                    room: Room::In(fleet.muster()),
                    now: self.clock.now(),
                    told,
                    known: Known {
                        left_behind: left_behind.as_ref(),
                        // This is the very pull that is waited for.
                        unheard: known.unheard.filter(|_| !matches!(told, Told::Complete { .. })),
                        ..known
                    },
                },
            )
        });
        self.metrics.decided_in(begin.elapsed());
        if matches!(&decision.effect, Some((Effect::Isolate, ..))) {
            fleet.muster_mut().reserve(&node.name);
        }
        decision
    }

    pub(super) fn seen(&self, node: &NodeFacts, config: &Arc<Config>) {
        let now = self.clock.now();
        let view = self.view(node, config, now);
        self.note_in_ledger(node, &view, now);
        let (lasting, released) = {
            let mut fleet = lock(&self.fleet);
            fleet.update(&view, &node.resource_version, now);
            self.see_eviction(&view, now);
            (fleet.tell(&node.name), self.count(node, &view, now))
        };
        if let Some(notice) = released {
            self.tell(notice, config);
        }
        if let Some(notice) = lasting.and_then(|reason| notices::lasting(reason, node, &view, config, now)) {
            self.tell(notice, config);
        }
    }

    fn written(&self, decision: Decision, before: &NodeFacts, after: &NodeFacts, config: &Arc<Config>) -> Done {
        if let Some((effect, policy, reason)) = decision.effect {
            let action = Step::word(&effect);
            let action = if self.shadow.is_some() { Step::would(&effect) } else { action };
            self.metrics.action(action, policy.as_deref().unwrap_or_default());
            let at = self.clock.now();
            if effect == Effect::Isolate && self.shadow.is_none() {
                let view = self.view(after, config, at);
                let members = view.claims.iter().filter(|c| c.action.isolates()).flat_map(|c| &c.members);
                if let Some(began) = members.filter(|m| m.fires()).map(|m| m.starts_at).min() {
                    self.metrics.isolated_after(at.duration_since(began).as_secs_f64());
                }
            }
            let change = Change { at, effect: &effect, policy: policy.as_deref(), reason: &reason, before, after };
            self.tell_change(&change, config);
            (self.sink)(Step { at, node: before.name.clone(), action, policy, reason, patch: decision.patch, pods: Vec::new() });
        }
        Done { verdicts: decision.verdicts, retry: false, failed: false }
    }

    /// The node was deleted while its alerts were on the way: its claims went with it.
    fn gone(&self, name: &NodeName, heard: &[Heard<'_>]) -> Done {
        lock(&self.fleet).remove(name);
        let verdict = |h: &Heard<'_>| {
            let outcome = if h.alert.status == Status::Firing { Outcome::Unmapped } else { Outcome::Unchanged };
            Verdict { outcome, reason: format!("node {name} is not there any more") }
        };
        Done { verdicts: heard.iter().map(verdict).collect(), retry: false, failed: false }
    }

    fn give_up(&self, name: &NodeName, heard: &[Heard<'_>], error: &ClusterError) -> Done {
        self.metrics.write_failed(error.reason());
        self.tell_write_failed(name, error);
        let retry = error.is_passing();
        if retry {
            tracing::warn!(%error, "A node could not be read or written. Whoever asked for it is told to come again; timers do so by themselves.");
        } else {
            tracing::error!(%error, "A node cannot be written. Its alerts are kept and tried again.");
        }
        Done::failed(heard, error, retry)
    }
}
