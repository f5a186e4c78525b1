//! The engine: alerts in, one decision and one write per node out.
//!
//! One worker per node at a time, many nodes side by side, bounded. It reads, decides (purely, in [`crate::quarantine`]) and
//! applies; on a conflict it reads and decides again.

mod answer;
mod clock;
mod fleet;
mod node;
mod parked;
mod plan;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use futures::{StreamExt, future::BoxFuture, stream};
use jiff::{SignedDuration, Timestamp};

pub use answer::{AlertResult, Answer, Step};
pub use clock::{Clock, SystemClock, VirtualClock};
pub use plan::Plan;

use crate::{
    alert::{Alert, Delivery, Status},
    cluster::Cluster,
    locate::{ExporterPod, NodeFacts, NodeName},
    metrics::Metrics,
    policy::{Config, Policy},
    quarantine::{Heard, NodeState, NodeView, Outcome, Rule},
};
use fleet::Fleet;
use node::Done;
use parked::Parked;

/// How many nodes are worked on at once: the API server is bound by its processor, more only adds latency.
const SIDE_BY_SIDE: usize = 8;
/// When a node whose timer could not be carried out is tried again.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(15);

/// A configuration that cannot replace the running one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadRefused {
    /// `instance` or `domain` differ.
    #[error("`{0}` is set at start only: restart to change it")]
    StartOnly(&'static str),
    /// The taint key differs and the old one would be orphaned.
    #[error("isolation.taint.key was {0}: add that to isolation.former_keys, so that nodes isolated with it can be given back")]
    KeyForgotten(String),
}

/// Where changes of nodes are told.
pub type StepSink = Box<dyn Fn(Step) + Send + Sync>;

/// The engine.
pub struct Engine {
    cluster: Arc<dyn Cluster>,
    config: ArcSwap<Config>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    fleet: Mutex<Fleet>,
    parked: Mutex<Parked>,
    clusters_seen: Mutex<BTreeSet<String>>,
    workers: Mutex<HashMap<NodeName, Arc<tokio::sync::Mutex<()>>>>,
    sink: StepSink,
    side_by_side: usize,
    /// Told when a timer may have moved.
    pub(crate) timers: tokio::sync::Notify,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds one of these locks calls out, so a poisoned one still holds whole data.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// An engine on a cluster. Call [`Engine::refresh`] before the first delivery.
    #[must_use]
    pub fn new(cluster: Arc<dyn Cluster>, config: Config, clock: Arc<dyn Clock>, metrics: Arc<Metrics>, sink: StepSink) -> Self {
        Self {
            cluster,
            config: ArcSwap::from_pointee(config),
            clock,
            metrics,
            fleet: Mutex::default(),
            parked: Mutex::default(),
            clusters_seen: Mutex::default(),
            workers: Mutex::default(),
            sink,
            side_by_side: SIDE_BY_SIDE,
            timers: tokio::sync::Notify::new(),
        }
    }

    /// Work on one node after the other, so that the same input gives the same steps in the same order.
    #[must_use]
    pub fn one_at_a_time(mut self) -> Self {
        self.side_by_side = 1;
        self
    }

    /// Whether alerts can be taken: before the first list of nodes they cannot.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.cluster.ready()
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &Arc<dyn Cluster> {
        &self.cluster
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Replace the configuration and decide every node again that bears a record.
    ///
    /// # Errors
    ///
    /// If it cannot follow the running one; that stays in force then.
    pub async fn reload(&self, config: Config) -> Result<(), ReloadRefused> {
        let old = self.config();
        if config.instance != old.instance {
            return Err(ReloadRefused::StartOnly("instance"));
        }
        if config.domain != old.domain {
            return Err(ReloadRefused::StartOnly("domain"));
        }
        let (new, was) = (&config.isolation, &old.isolation);
        if new.taint_key != was.taint_key && !new.former_keys.contains(&was.taint_key) {
            return Err(ReloadRefused::KeyForgotten(was.taint_key.clone()));
        }
        self.config.store(Arc::new(config));
        self.look_at_all(true).await;
        Ok(())
    }

    /// Take one body. The outcome of every alert stands in the answer; nothing of it is lost if nobody waits for the answer.
    pub async fn deliver(&self, delivery: Delivery) -> Answer {
        let mut warnings = self.note_clusters(&delivery);
        self.metrics.delivered(delivery.alerts.len(), delivery.truncated);
        if delivery.truncated > 0 {
            let text = format!(
                "{} alerts were cut off by max_alerts and are unknown here: set max_alerts: 0 in the webhook_config",
                delivery.truncated
            );
            tracing::warn!(truncated = delivery.truncated, receiver = %delivery.receiver, "{text}.");
            warnings.push(text);
        }
        let alerts: Vec<&Alert> = delivery.alerts.iter().filter_map(|a| a.as_ref().ok()).collect();
        let (taken, retry) = self.take(&alerts).await;
        let mut taken = taken.into_iter();
        let results: Vec<AlertResult> = delivery
            .alerts
            .iter()
            .filter_map(|alert| match alert {
                Ok(_) => taken.next(),
                Err(invalid) => Some(AlertResult::invalid(invalid)),
            })
            .collect();
        for result in &results {
            self.metrics.outcome(result.outcome);
        }
        self.admit_waiting().await;
        self.timers.notify_one();
        Answer { results, truncated: delivery.truncated, warnings, retry }
    }

    /// Take alerts; whether any of them failed in a way that the sender's retry can cure.
    async fn take(&self, alerts: &[&Alert]) -> (Vec<AlertResult>, bool) {
        let config = self.config();
        let mut plans = self.plan(alerts, &config, None);
        let mut no_pods = None;
        if plans.iter().any(Plan::needs_pods) {
            match self.cluster.exporter_pods(&config.locate.exporter_pods).await {
                Ok(pods) => plans = self.plan(alerts, &config, Some(&pods)),
                Err(e) => no_pods = Some(e),
            }
        }
        let mut results: Vec<Option<AlertResult>> = vec![None; alerts.len()];
        let mut by_node: Vec<(NodeName, Vec<usize>)> = Vec::new();
        let mut places: BTreeMap<NodeName, usize> = BTreeMap::new();
        let mut retry = false;
        for (i, plan) in plans.iter().enumerate() {
            match &plan.target {
                Ok((node, _)) if plan.passive.is_none() || plan.alert.status == Status::Resolved => {
                    let place = *places.entry(node.clone()).or_insert_with(|| {
                        by_node.push((node.clone(), Vec::new()));
                        by_node.len() - 1
                    });
                    by_node[place].1.push(i);
                }
                _ if plan.needs_pods() => {
                    let why = no_pods.as_deref().unwrap_or("they were not read");
                    let reason = format!("the exporter pods are needed to find its node and could not be listed: {why}");
                    results[i] = Some(AlertResult::of(plan.alert, Outcome::Failed, reason));
                    retry = true;
                }
                _ => results[i] = Some(self.without_node(plan)),
            }
        }
        let mut work = Vec::with_capacity(by_node.len());
        for (node, at) in &by_node {
            work.push(self.work(node, at.iter().map(|i| heard(&plans[*i])).collect()));
        }
        let done: Vec<Done> = stream::iter(work).buffered(self.side_by_side).collect().await;
        for ((node, at), done) in by_node.iter().zip(done) {
            retry |= done.retry;
            for (i, verdict) in at.iter().zip(done.verdicts) {
                let plan = &plans[*i];
                // A resolve that ended nothing says what its policy would have said.
                let (outcome, reason) = match &plan.passive {
                    Some((outcome, reason)) if verdict.outcome == Outcome::Unchanged => (*outcome, reason.clone()),
                    _ => (verdict.outcome, verdict.reason),
                };
                let mut result = AlertResult::of(plan.alert, outcome, reason);
                result.node = Some(node.clone());
                result.policy = plan.policy.map(|p| p.name.clone());
                if outcome == Outcome::Failed && !done.retry {
                    self.park(plan.alert);
                } else {
                    lock(&self.parked).forget(plan.alert.fingerprint);
                }
                results[*i] = Some(result);
            }
        }
        (results.into_iter().flatten().collect(), retry)
    }

    fn plan<'a>(&self, alerts: &[&'a Alert], config: &'a Config, pods: Option<&[ExporterPod]>) -> Vec<Plan<'a>> {
        let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
        alerts.iter().map(|alert| Plan::of(alert, config, &nodes, pods)).collect()
    }

    /// The result of an alert that no policy acts for, or whose labels name no node.
    fn without_node(&self, plan: &Plan<'_>) -> AlertResult {
        let alert = plan.alert;
        let mut result = match (&plan.passive, &plan.target, alert.status) {
            (Some((outcome, reason)), _, _) => {
                if *outcome == Outcome::Heartbeat && alert.status == Status::Firing {
                    self.metrics.heartbeat(self.clock.now());
                }
                AlertResult::of(alert, *outcome, reason.clone())
            }
            (None, Err(unmapped), Status::Firing) => {
                self.metrics.unmapped(unmapped.reason);
                tracing::warn!(
                    alert = %alert.name, fingerprint = %alert.fingerprint, reason = unmapped.reason.as_str(),
                    "An alert could not be mapped to a node: {}.", unmapped.message
                );
                self.park(alert);
                AlertResult::of(alert, Outcome::Unmapped, unmapped.message.clone())
            }
            (None, Err(unmapped), Status::Resolved) => {
                lock(&self.parked).forget(alert.fingerprint);
                let reason = format!("it is over, and no node is known for it: {}", unmapped.message);
                AlertResult::of(alert, Outcome::Unchanged, reason)
            }
            // Those go to their node's worker.
            (None, Ok(_), _) => AlertResult::of(alert, Outcome::Unchanged, "nothing to do"),
        };
        result.node = plan.target.as_ref().ok().map(|(node, _)| node.clone());
        result.policy = plan.policy.map(|p| p.name.clone());
        result
    }

    fn park(&self, alert: &Alert) {
        if alert.status == Status::Firing && !lock(&self.parked).keep(alert.clone()) {
            self.metrics.parked_dropped();
            tracing::error!("Too many alerts wait to be mapped; the oldest was forgotten. Fix the labels of the rules.");
        }
    }

    /// Two different `cluster` labels without `scope.alerts`: node names of another cluster could be taken for ours.
    fn note_clusters(&self, delivery: &Delivery) -> Vec<String> {
        if !self.config.load().scope.alerts.is_empty() {
            return Vec::new();
        }
        let mut seen = lock(&self.clusters_seen);
        let before = seen.len();
        for alert in delivery.alerts.iter().flatten() {
            if seen.len() < 2
                && let Some(cluster) = alert.labels.get("cluster")
                && !seen.contains(cluster)
            {
                seen.insert(cluster.chars().take(64).collect());
            }
        }
        if seen.len() < 2 {
            return Vec::new();
        }
        let names: Vec<String> = seen.iter().map(|c| format!("{c:?}")).collect();
        let text = format!("alerts of several clusters arrive ({}): set scope.alerts to this one", names.join(", "));
        if before < 2 {
            tracing::warn!("{text}.");
        }
        vec![text]
    }

    /// Take in what changed on the nodes since they were last looked at, and try parked alerts again.
    pub async fn refresh(&self) {
        self.look_at_all(false).await;
        let parked = lock(&self.parked).all();
        if !parked.is_empty() {
            let alerts: Vec<&Alert> = parked.iter().collect();
            self.take(&alerts).await;
        }
        self.admit_waiting().await;
        self.timers.notify_one();
    }

    async fn look_at_all(&self, even_unchanged: bool) {
        let nodes: Vec<Arc<NodeFacts>> = {
            let inventory = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            inventory.iter().cloned().collect()
        };
        let (config, now) = (self.config(), self.clock.now());
        let mut to_decide = Vec::new();
        {
            let mut fleet = lock(&self.fleet);
            let mut gone: BTreeSet<NodeName> = fleet.names().into_iter().collect();
            for node in &nodes {
                gone.remove(&node.name);
                if even_unchanged || !fleet.has_seen(&node.name, &node.resource_version) {
                    let view = NodeView::of(node, &config, now);
                    fleet.update(&view, &node.resource_version);
                    if view.isolated || !view.claims.is_empty() {
                        to_decide.push(node.name.clone());
                    }
                }
            }
            for name in gone {
                fleet.remove(&name);
            }
        }
        self.decide_again(&to_decide).await;
    }

    /// Carry out what is due: hold-downs that are over.
    pub async fn run_due(&self) {
        let due = lock(&self.fleet).due(self.clock.now());
        self.decide_again(&due).await;
        // What is due and did not move would be due again at once.
        let now = self.clock.now();
        {
            let mut fleet = lock(&self.fleet);
            for name in fleet.due(now).into_iter().filter(|name| due.contains(name)) {
                fleet.postpone(&name, now + TRY_AGAIN);
            }
        }
        self.admit_waiting().await;
    }

    /// When [`Engine::run_due`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        lock(&self.fleet).next_due()
    }

    async fn decide_again(&self, names: &[NodeName]) {
        let mut work = Vec::with_capacity(names.len());
        for name in names {
            work.push(self.work(name, Vec::new()));
        }
        let done: Vec<Done> = stream::iter(work).buffered(self.side_by_side).collect().await;
        for (name, done) in names.iter().zip(done) {
            if done.failed {
                lock(&self.fleet).postpone(name, self.clock.now() + TRY_AGAIN);
            }
        }
    }

    /// Boxed: the compiler cannot prove a stream of closures' futures `Send`.
    fn work<'a>(&'a self, name: &'a NodeName, heard: Vec<Heard<'a>>) -> BoxFuture<'a, Done> {
        Box::pin(async move { self.work_on(name, &heard).await })
    }

    /// Let nodes in that wait for a slot, in order, as far as there is room.
    async fn admit_waiting(&self) {
        let waiting = lock(&self.fleet).waiting();
        for name in waiting {
            let limits = self.config().guard;
            let slots = lock(&self.fleet).slots(&name, &limits);
            if !slots.admits() {
                return;
            }
            self.work_on(&name, &[]).await;
        }
    }

    /// All nodes that are ours or bear our record, in the order of their names.
    #[must_use]
    pub fn views(&self) -> Vec<NodeView> {
        let (config, now) = (self.config(), self.clock.now());
        let limits = config.guard;
        let inventory = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
        let views = inventory.iter().map(|node| NodeView::of(node, &config, now));
        let mut views: Vec<NodeView> =
            views.filter(|v| v.in_scope || v.state != NodeState::Free || !v.history.is_empty()).collect();
        let fleet = lock(&self.fleet);
        for view in views.iter_mut().filter(|v| v.state == NodeState::Pending) {
            view.waiting_for = format!("room: {}", fleet.slots(&view.name, &limits).refusal());
        }
        views
    }

    /// How many nodes are in each state, and how many alerts are parked.
    #[must_use]
    pub fn census(&self) -> (BTreeMap<NodeState, usize>, usize) {
        (lock(&self.fleet).states(), lock(&self.parked).len())
    }
}

fn heard<'a>(plan: &Plan<'a>) -> Heard<'a> {
    let acts = |p: &'a Policy| Rule { policy: &p.name, action: p.action };
    Heard { alert: plan.alert, gpu: plan.gpu.clone(), rule: plan.policy.filter(|_| plan.passive.is_none()).map(acts) }
}
