//! The engine: alerts in, one decision and one write per node out.
//!
//! One worker per node at a time, many nodes side by side, bounded. It reads, decides (purely, in [`crate::quarantine`]) and
//! applies; on a conflict it reads and decides again.

mod answer;
mod clock;
mod damper;
mod deliver;
mod evidence;
mod fleet;
mod health;
mod ledger;
mod node;
mod notices;
mod parked;
mod plan;
mod pull;
mod shadow;
mod tally;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use futures::{StreamExt, future::BoxFuture, stream};
use jiff::{SignedDuration, Timestamp};

pub use answer::{AlertResult, Answer, Step};
pub use clock::{Clock, SystemClock, VirtualClock};
pub use notices::NoticeSink;
pub use plan::Plan;
pub use pull::{LastPull, Pulled};

use crate::{
    alert::Alert,
    cluster::Cluster,
    locate::{NodeFacts, NodeName},
    metrics::Metrics,
    notice::{self, Notice},
    policy::Config,
    quarantine::{Heard, NodeState, NodeView, Told},
};
use damper::Damper;
use evidence::Evidence;
pub(crate) use fleet::Busy;
use fleet::Fleet;
use health::Labelled;
use ledger::Book;
use node::Done;
use parked::Parked;
use pull::Recent;
use shadow::Shadow;
use tally::Tally;

/// How many nodes are worked on at once: the API server is bound by its processor, more only adds latency.
const SIDE_BY_SIDE: usize = 8;
/// Nodes that a metric names at most.
const BUSY_SHOWN: usize = 500;
/// When a node whose timer could not be carried out is tried again.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(15);

/// A configuration that cannot replace the running one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadRefused {
    /// The cluster cannot tell what the new selectors look at.
    #[error("the nodes could not be read for the new selectors: {0}")]
    Labels(String),
    /// `instance` or `domain` differ.
    #[error("`{0}` is set at start only: restart to change it")]
    StartOnly(&'static str),
    /// The taint key differs and the old one would be orphaned.
    #[error("isolation.taint.key was {0}: add that to isolation.former_keys, so that nodes isolated with it can be given back")]
    KeyForgotten(String),
}

/// The fleet in numbers.
#[derive(Debug)]
pub(crate) struct Census {
    /// How many nodes are in each state.
    pub(crate) states: BTreeMap<NodeState, usize>,
    /// How many claims are in each state.
    pub(crate) claims: [(&'static str, usize); 3],
    /// Nodes that are not free, as many as a metric may name.
    pub(crate) busy: Vec<Busy>,
    /// How many alerts are parked.
    pub(crate) parked: usize,
    /// How many nodes have a record that cannot be used.
    pub(crate) unusable: usize,
}

/// What somebody else did to a node.
#[derive(Debug, Clone)]
pub enum Foreign {
    /// The node is like this now.
    Is(Arc<NodeFacts>),
    /// The node was deleted.
    Gone(NodeName),
}

/// Where changes by others are told.
pub type ForeignSink = Box<dyn Fn(Foreign) + Send + Sync>;

/// Where changes of nodes are told.
pub type StepSink = Box<dyn Fn(Step) + Send + Sync>;

/// The engine.
pub struct Engine {
    cluster: Arc<dyn Cluster>,
    config: ArcSwap<Config>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    fleet: Mutex<Fleet>,
    tally: Mutex<Tally>,
    parked: Mutex<Parked>,
    recent: Mutex<Recent>,
    /// Nodes on which nothing is begun, by the last pull, and why.
    vetoed: Mutex<BTreeMap<NodeName, String>>,
    evidence: Mutex<Evidence>,
    book: Mutex<Book>,
    labelled: Mutex<Labelled>,
    /// Held while the ledger is read and written.
    ledger_turn: tokio::sync::Mutex<()>,
    /// Nothing is released before the first complete pull.
    after_a_pull: bool,
    /// There was one.
    heard_all: Mutex<bool>,
    clusters_seen: Mutex<BTreeSet<String>>,
    workers: Mutex<HashMap<NodeName, Arc<tokio::sync::Mutex<()>>>>,
    sink: StepSink,
    foreign: Option<ForeignSink>,
    damper: Mutex<Damper>,
    /// Set if nothing may be written.
    shadow: Option<Mutex<Shadow>>,
    notices: Option<NoticeSink>,
    side_by_side: usize,
    /// The fleet was counted once. Before that the guard would let anything in.
    counted: AtomicBool,
    /// Told when a timer may have moved.
    pub(crate) timers: tokio::sync::Notify,
    /// Told when a pull is wanted at once.
    pub(crate) wanted: tokio::sync::Notify,
    /// The last pull that was taken.
    taken: tokio::sync::watch::Sender<Option<LastPull>>,
    /// How often the configuration was replaced.
    reloads: tokio::sync::watch::Sender<u64>,
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
        let book = Book::new(&config.instance);
        Self {
            cluster,
            config: ArcSwap::from_pointee(config),
            clock,
            metrics,
            fleet: Mutex::default(),
            tally: Mutex::default(),
            parked: Mutex::default(),
            recent: Mutex::default(),
            vetoed: Mutex::default(),
            evidence: Mutex::default(),
            book: Mutex::new(book),
            labelled: Mutex::default(),
            ledger_turn: tokio::sync::Mutex::default(),
            after_a_pull: false,
            heard_all: Mutex::default(),
            clusters_seen: Mutex::default(),
            workers: Mutex::default(),
            sink,
            foreign: None,
            damper: Mutex::default(),
            shadow: None,
            notices: None,
            side_by_side: SIDE_BY_SIDE,
            counted: AtomicBool::new(false),
            timers: tokio::sync::Notify::new(),
            wanted: tokio::sync::Notify::new(),
            taken: tokio::sync::watch::Sender::new(None),
            reloads: tokio::sync::watch::Sender::new(0),
        }
    }

    /// Work on one node after the other, so that the same input gives the same steps in the same order.
    #[must_use]
    pub fn one_at_a_time(mut self) -> Self {
        self.side_by_side = 1;
        self
    }

    /// Tell of changes that others make to nodes.
    #[must_use]
    pub fn telling_foreign(mut self, sink: ForeignSink) -> Self {
        self.foreign = Some(sink);
        self
    }

    /// Read and decide for real, and write nothing to nodes.
    #[must_use]
    pub fn observing(mut self) -> Self {
        self.shadow = Some(Mutex::default());
        self
    }

    /// Whether alerts can be taken: before the first list of nodes they cannot.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.counted.load(Ordering::Acquire) && self.cluster.ready()
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

    /// Changes when the configuration was replaced.
    #[must_use]
    pub fn reloads(&self) -> tokio::sync::watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// Ask for a pull at once, if there is anybody to ask.
    pub fn want_pull(&self) {
        if self.config.load().alertmanagers.is_some() {
            self.wanted.notify_one();
        }
    }

    /// Ask for a pull and wait until one that began after now was taken.
    pub async fn pull_now(&self) -> Option<LastPull> {
        let (mut taken, now) = (self.taken.subscribe(), self.clock.now());
        self.want_pull();
        let last = taken.wait_for(|last| last.as_ref().is_some_and(|last| last.begun >= now)).await;
        // The sender is ours, so it is there.
        last.ok().and_then(|last| last.clone())
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
        self.cluster.keep_labels(config.node_label_keys()).await.map_err(ReloadRefused::Labels)?;
        self.config.store(Arc::new(config));
        self.look_at_all(true).await;
        // Limits and hold-downs may have changed: somebody may be let in, and timers may have moved.
        self.admit_waiting().await;
        self.timers.notify_one();
        self.reloads.send_modify(|n| *n += 1);
        Ok(())
    }

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
    fn count(&self, node: &NodeFacts, view: &NodeView, now: Timestamp) -> Option<Notice> {
        if self.shadow.is_some() {
            return None;
        }
        let mut tally = lock(&self.tally);
        tally.see(node, view, &self.metrics).map(|episode| notice::released_by_command(view, episode, now))
    }

    /// Whether nodes came or went.
    async fn look_at_all(&self, even_unchanged: bool) -> bool {
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
                    fleet.update(&view, &node.resource_version);
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

    /// Write now what was put off: its senders had their answer and will not tell it again. For the end of the service.
    pub async fn flush(&self) {
        let names = lock(&self.damper).no_longer();
        self.decide_again(&names).await;
    }

    /// When [`Engine::run_due`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        lock(&self.fleet).next_due()
    }

    async fn decide_each(&self, names: &[NodeName]) -> Vec<Done> {
        let mut work = Vec::with_capacity(names.len());
        for (number, name) in names.iter().enumerate() {
            work.push(self.work(number, name, Vec::new(), Told::Pushed));
        }
        self.side_by_side(work).await
    }

    async fn decide_again(&self, names: &[NodeName]) {
        let done = self.decide_each(names).await;
        for (name, done) in names.iter().zip(done) {
            if done.failed {
                lock(&self.fleet).postpone(name, self.clock.now() + TRY_AGAIN);
            }
        }
    }

    /// What became of each, by number. One that takes long holds up no other.
    async fn side_by_side(&self, work: Vec<BoxFuture<'_, (usize, Done)>>) -> Vec<Done> {
        let mut done: Vec<(usize, Done)> = stream::iter(work).buffer_unordered(self.side_by_side).collect().await;
        done.sort_unstable_by_key(|(number, _)| *number);
        done.into_iter().map(|(_, done)| done).collect()
    }

    /// Boxed: the compiler cannot prove a stream of closures' futures `Send`.
    fn work<'a>(
        &'a self,
        number: usize,
        name: &'a NodeName,
        heard: Vec<Heard<'a>>,
        told: Told<'a>,
    ) -> BoxFuture<'a, (usize, Done)> {
        Box::pin(async move { (number, self.work_on(name, &heard, told).await) })
    }

    /// Let nodes in that wait for a slot, in order, as far as there is room.
    async fn admit_waiting(&self) {
        if self.paused().is_some() {
            return;
        }
        let waiting = lock(&self.fleet).waiting();
        for name in waiting {
            let limits = self.config().guard;
            let slots = lock(&self.fleet).slots(&name, &limits);
            if !slots.admits() {
                return;
            }
            if self.work_on(&name, &[], Told::Pushed).await.failed {
                // It must not block those behind it.
                let mut fleet = lock(&self.fleet);
                fleet.step_aside(&name);
                fleet.postpone(&name, self.clock.now() + TRY_AGAIN);
            }
        }
    }

    /// All nodes that are ours or bear our record, in the order of their names.
    #[must_use]
    pub fn views(&self) -> Vec<NodeView> {
        let (config, now) = (self.config(), self.clock.now());
        let limits = config.guard;
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
        let (fleet, paused) = (lock(&self.fleet), self.paused());
        for view in views.iter_mut().filter(|v| v.state == NodeState::Pending) {
            view.waiting_for = match &paused {
                Some(pause) => format!("the end of the pause: {pause}"),
                None => format!("room: {}", fleet.slots(&view.name, &limits).refusal()),
            };
        }
        views
    }

    /// What the gauges show.
    pub(crate) fn census(&self) -> Census {
        let parked = lock(&self.parked).len();
        let fleet = lock(&self.fleet);
        Census {
            states: fleet.states(),
            claims: fleet.claims(),
            busy: fleet.busy(BUSY_SHOWN),
            parked,
            unusable: fleet.unusable(),
        }
    }
}
