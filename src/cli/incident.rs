//! Deliveries on a virtual clock and an embedded cluster: the machine behind `replay` and `explain`.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::statements::{Stated, Statements};
use crate::{
    alert::{Alert, Delivery},
    cluster::{Cluster, snapshot::SnapshotCluster},
    engine::{AlertResult, Answer, Clock, Engine, Step, VirtualClock},
    locate::NodeName,
    metrics::Metrics,
    policy::Config,
    quarantine::{
        NodeView,
        evidence::{Shown, judge},
    },
};

/// What a replay comes to. Same inputs, same bytes.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    /// One per alert, in the order of the bodies.
    pub(super) results: Vec<AlertResult>,
    /// Each change of a node's effective action.
    pub(super) steps: Vec<Step>,
    /// The nodes as they are at the end.
    pub(super) nodes: Vec<NodeView>,
}

/// A cluster, an engine and a clock that only moves when told to.
pub(super) struct Incident {
    engine: Engine,
    cluster: Arc<SnapshotCluster>,
    clock: Arc<VirtualClock>,
    /// What Prometheus says, and when it is asked next.
    stated: Stated,
    next_round: Timestamp,
    new_steps: Arc<Mutex<Vec<Step>>>,
}

impl Incident {
    /// Begin at the latest time that the records of the cluster speak of.
    pub(super) async fn begin(config: Config, cluster: SnapshotCluster) -> Self {
        let clock = Arc::new(VirtualClock::at(Timestamp::UNIX_EPOCH));
        let new_steps = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&new_steps);
        let cluster = Arc::new(cluster);
        let engine = Engine::new(
            Arc::clone(&cluster) as Arc<dyn Cluster>,
            config,
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::new(Metrics::new()),
            Box::new(move |step| sink.lock().unwrap_or_else(PoisonError::into_inner).push(step)),
        )
        .one_at_a_time();
        let views = engine.views();
        let claims = views.iter().flat_map(|v| &v.claims).flat_map(|c| [Some(c.since), c.cleared]).flatten();
        let past = views.iter().flat_map(|v| &v.history).map(|h| h.to);
        if let Some(latest) = claims.chain(past).max() {
            clock.advance_to(latest);
        }
        engine.refresh().await;
        Self { engine, cluster, clock, stated: Stated::default(), next_round: Timestamp::MIN, new_steps }
    }

    /// Where the clock stands.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The engine.
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Take a body at its latest time. Timers that are due before it fire first.
    pub(super) async fn deliver(&mut self, delivery: Delivery) -> Answer {
        self.advance_for(&delivery).await;
        self.engine.deliver(delivery).await
    }

    /// Let time pass until a body's latest time. Timers fire when they are due.
    pub(super) async fn advance_for(&mut self, delivery: &Delivery) {
        let times = |a: &Alert| [Some(a.starts_at), a.ends_at];
        if let Some(received) = delivery.received_at {
            self.advance_to(received).await;
        } else if let Some(latest) = delivery.alerts.iter().flatten().flat_map(times).flatten().max() {
            self.advance_to(latest).await;
        }
    }

    /// Somebody else changed, added or deleted a node, at that time.
    pub(super) async fn change(&mut self, at: Timestamp, node: &Value) -> Result<(), String> {
        self.advance_to(at).await;
        let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let name = NodeName::parse(name).map_err(|e| e.to_string())?;
        let known = {
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            nodes.get(&name).map(|n| n.uid.clone())
        };
        let same = known.as_deref() == node.pointer("/metadata/uid").and_then(Value::as_str);
        if known.is_some() && !same {
            self.cluster.delete(&name).map_err(|e| e.to_string())?;
        }
        if same && known.is_some() {
            self.cluster.edit(&name, |now| *now = node.clone()).map_err(|e| e.to_string())?;
        } else if node.get("gone").is_none() {
            self.cluster.create(node.clone())?;
        }
        self.engine.refresh().await;
        Ok(())
    }

    /// Let time pass. Timers fire when they are due.
    pub(super) async fn advance(&mut self, by: SignedDuration) {
        let until = self.now().checked_add(by).unwrap_or(Timestamp::MAX);
        self.advance_to(until).await;
    }

    /// Let time pass until then. Timers fire when they are due, pods are asked to leave, and evidence is asked for at its interval.
    pub(super) async fn advance_to(&mut self, until: Timestamp) {
        loop {
            let due = self.engine.next_due();
            let eviction = self.engine.next_eviction();
            let round = self.next_round();
            let Some(next) = [due, eviction, round].into_iter().flatten().min().filter(|next| *next <= until) else { break };
            self.clock.advance_to(next);
            // At the same moment, a release comes before whatever it makes needless.
            if due == Some(next) {
                self.engine.run_due().await;
            } else if eviction == Some(next) {
                self.engine.run_evictions().await;
            } else {
                self.ask().await;
            }
        }
        self.clock.advance_to(until);
    }

    /// Prometheus says so from now on.
    pub(super) async fn state(&mut self, statements: Statements) {
        if let Some(at) = statements.at {
            self.advance_to(at).await;
        }
        self.stated.add(self.now(), statements);
        self.next_round = self.now();
        // What is due now comes first.
        self.advance_to(self.now()).await;
    }

    /// What was shown of a node, by a recording.
    pub(super) async fn take_shown(&mut self, node: NodeName, shown: Shown) {
        drop(self.engine.questions());
        self.engine.take_shown(&node, shown);
        self.engine.run_due().await;
    }

    fn next_round(&self) -> Option<Timestamp> {
        let waits = !self.stated.is_empty() && !self.engine.questions().is_empty();
        waits.then(|| self.next_round.max(self.now()))
    }

    async fn ask(&mut self) {
        let questions = self.engine.questions();
        for (question, _) in questions {
            let shown = judge(&question, &self.stated.answer(&question));
            self.engine.take_shown(&question.node, shown);
        }
        let interval = self.engine.config().prometheus.as_ref().map(|p| p.poll_interval).unwrap_or_default();
        self.next_round = self.now() + interval.max(Duration::from_secs(1));
        self.engine.run_due().await;
    }

    /// The steps since the last call.
    pub(super) fn new_steps(&self) -> Vec<Step> {
        mem::take(&mut *self.new_steps.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
