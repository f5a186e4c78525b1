//! The engine: alerts in, one decision and one write per node out.
//!
//! One worker per node at a time, many nodes side by side, bounded. It reads, decides (purely, in [`crate::quarantine`]) and
//! applies; on a conflict it reads and decides again.

mod answer;
mod census;
mod clock;
mod damper;
mod deliver;
mod eviction;
mod evidence;
mod fleet;
mod health;
mod ledger;
mod node;
mod notices;
mod parked;
mod pause;
mod plan;
mod pull;
mod refresh;
mod reload;
mod shadow;
mod steps;
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
pub use eviction::{Aids, Turn};
pub use notices::NoticeSink;
pub use pause::NotStored;
pub use plan::Plan;
pub use pull::{LastPull, Pulled};
pub use reload::ReloadRefused;
pub use steps::PodStep;

use crate::{
    cluster::Cluster,
    locate::{NodeFacts, NodeName},
    metrics::Metrics,
    policy::Config,
    quarantine::{Heard, Told},
};
pub(crate) use census::Census;
use damper::Damper;
use eviction::Agenda;
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
/// When a node whose timer could not be carried out is tried again.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(15);

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
    /// Whose pods are looked at when. Shared with the calls to pods.
    evictions: Arc<Mutex<Agenda>>,
    /// Held while an eviction is planned and put on record.
    planning: tokio::sync::Mutex<()>,
    /// How many nodes are emptied at once.
    evicting: tokio::sync::Semaphore,
    evictions_moved: Arc<tokio::sync::Notify>,
    aids: Option<Arc<dyn Aids>>,
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
            evictions: Arc::default(),
            planning: tokio::sync::Mutex::default(),
            evicting: tokio::sync::Semaphore::new(eviction::AT_ONCE),
            evictions_moved: Arc::default(),
            aids: None,
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
        let paused = self.paused().why.is_some();
        let fleet = lock(&self.fleet);
        let room = if paused { None } else { fleet.muster().next_room(&self.config.load(), self.clock.now()) };
        fleet.next_due().into_iter().chain(room).min()
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
        if self.paused().why.is_some() {
            return;
        }
        let mut tried = BTreeSet::new();
        loop {
            let next = lock(&self.fleet).muster().next_in(&tried, &self.config.load(), self.clock.now());
            let Some(name) = next else { return };
            tried.insert(name.clone());
            let failed = self.work_on(&name, &[], Told::Pushed).await.failed;
            let (config, now) = (self.config.load(), self.clock.now());
            let mut fleet = lock(&self.fleet);
            // Whatever keeps it from being isolated although there is room, it must not block those behind it.
            if failed || fleet.muster().is_let_in(&name, &config, now) {
                fleet.muster_mut().step_aside(&name);
                fleet.postpone(&name, now + TRY_AGAIN);
            }
        }
    }
}
