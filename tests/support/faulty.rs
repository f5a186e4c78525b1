//! A cluster that fails when told to, around the embedded one, which stays the truth.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, RwLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use gpu_quarantine::{
    cluster::{Cluster, ClusterError, LedgerError, LedgerWrite, StoredText, Workloads, snapshot::SnapshotCluster},
    locate::{ExporterPod, Inventory, NodeFacts, NodeName},
    policy::{LedgerPlace, Selector},
};
use serde_json::Value;
use tokio::sync::watch;

use super::{evictions::Evictions, name};

/// How one call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Conflict,
    NotFound,
    /// No answer, and nothing was done.
    TimeoutBefore,
    /// No answer, and yet it was done.
    TimeoutAfter,
    Unavailable,
    Refused,
}

type Hook = Box<dyn FnOnce(&SnapshotCluster) + Send>;

pub(crate) struct Faulty {
    /// The truth.
    pub(crate) inner: SnapshotCluster,
    ready: AtomicBool,
    pods_fail: AtomicBool,
    /// What the next patches meet, one each.
    next: Mutex<VecDeque<Fault>>,
    /// What the next reads of single nodes meet, one each.
    next_reads: Mutex<VecDeque<Fault>>,
    /// What every patch of a node meets.
    standing: Mutex<BTreeMap<NodeName, Fault>>,
    /// What another writer does just before the next patch arrives.
    before: Mutex<Option<Hook>>,
    /// What another writer does just after the next patch was written.
    after: Mutex<Option<Hook>>,
    ledger_fails: AtomicBool,
    /// What another writer does just before the next write of the ledger arrives.
    before_ledger: Mutex<Option<Hook>>,
    paused: watch::Sender<bool>,
    /// A patch that never gets an answer, after so many others, and whether it takes effect: the process dies there.
    dies: Mutex<Option<(usize, bool)>>,
    dead: AtomicBool,
    asked: watch::Sender<usize>,
    written: AtomicUsize,
    /// While behind: the nodes as the watch cache saw them last.
    old: RwLock<Inventory>,
    behind: AtomicBool,
    /// What evictions and deletions of pods meet.
    pub(crate) evictions: Evictions,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Faulty").field(&self.inner).finish()
    }
}

impl Faulty {
    pub(crate) fn around(inner: SnapshotCluster) -> Self {
        Self {
            inner,
            ready: AtomicBool::new(true),
            pods_fail: AtomicBool::new(false),
            next: Mutex::default(),
            next_reads: Mutex::default(),
            standing: Mutex::default(),
            before: Mutex::default(),
            after: Mutex::default(),
            ledger_fails: AtomicBool::new(false),
            before_ledger: Mutex::default(),
            paused: watch::Sender::new(false),
            dies: Mutex::default(),
            dead: AtomicBool::new(false),
            asked: watch::Sender::new(0),
            written: AtomicUsize::new(0),
            old: RwLock::default(),
            behind: AtomicBool::new(false),
            evictions: Evictions::default(),
        }
    }

    /// Whether the first list of nodes has been read.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::SeqCst);
    }

    pub(crate) fn fail_pods(&self, fail: bool) {
        self.pods_fail.store(fail, Ordering::SeqCst);
    }

    /// The ledger can be neither read nor written.
    pub(crate) fn fail_ledger(&self, fail: bool) {
        self.ledger_fails.store(fail, Ordering::SeqCst);
    }

    /// Another writer gets in just before the next write of the ledger.
    pub(crate) fn before_ledger(&self, hook: impl FnOnce(&SnapshotCluster) + Send + 'static) {
        *self.before_ledger.lock().unwrap() = Some(Box::new(hook));
    }

    /// The next patches, whatever node they are for, fail like this.
    pub(crate) fn fail_next(&self, faults: &[Fault]) {
        self.next.lock().unwrap().extend(faults);
    }

    /// The next reads of single nodes fail like this.
    pub(crate) fn fail_next_reads(&self, faults: &[Fault]) {
        self.next_reads.lock().unwrap().extend(faults);
    }

    /// All patches of a node fail like this.
    pub(crate) fn fail_node(&self, node: &str, fault: Option<Fault>) {
        let mut standing = self.standing.lock().unwrap();
        match fault {
            Some(fault) => standing.insert(name(node), fault),
            None => standing.remove(&name(node)),
        };
    }

    /// Another writer gets in just before the next patch arrives.
    pub(crate) fn before_next(&self, hook: impl FnOnce(&SnapshotCluster) + Send + 'static) {
        *self.before.lock().unwrap() = Some(Box::new(hook));
    }

    /// Another writer gets in just after the next patch was written.
    pub(crate) fn after_next(&self, hook: impl FnOnce(&SnapshotCluster) + Send + 'static) {
        *self.after.lock().unwrap() = Some(Box::new(hook));
    }

    /// Patches hang until [`Faulty::go_on`].
    pub(crate) fn pause(&self) {
        self.paused.send_replace(true);
    }

    pub(crate) fn go_on(&self) {
        self.paused.send_replace(false);
    }

    /// After `skip` more patches one never gets an answer, whether or not it takes effect, and none after it.
    pub(crate) fn die_at(&self, skip: usize, applied: bool) {
        *self.dies.lock().unwrap() = Some((skip, applied));
    }

    /// Whether that patch was met.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// A new process takes the place of the dead one.
    pub(crate) fn revive(&self) {
        *self.dies.lock().unwrap() = None;
        self.dead.store(false, Ordering::SeqCst);
    }

    /// All is well from now on; what hangs goes on.
    pub(crate) fn heal(&self) {
        self.revive();
        self.next.lock().unwrap().clear();
        self.next_reads.lock().unwrap().clear();
        self.standing.lock().unwrap().clear();
        self.evictions.heal();
        self.behind.store(false, Ordering::SeqCst);
        self.go_on();
    }

    /// Whether every request is answered, truly.
    pub(crate) fn is_calm(&self) -> bool {
        let queues = self.next.lock().unwrap().is_empty() && self.next_reads.lock().unwrap().is_empty();
        queues && self.evictions.is_calm() && !*self.paused.borrow() && !self.behind.load(Ordering::SeqCst) && !self.is_dead()
    }

    /// Whether the process dies at this patch, and whether that takes effect.
    fn death(&self) -> Option<bool> {
        let mut dies = self.dies.lock().unwrap();
        match &mut *dies {
            Some((0, applied)) => Some(*applied),
            Some((skip, _)) => {
                *skip -= 1;
                None
            }
            None => None,
        }
    }

    /// The watch cache stands still from now on, or catches up.
    pub(crate) fn fall_behind(&self, behind: bool) {
        *self.old.write().unwrap() = self.inner.inventory().read().unwrap().clone();
        self.behind.store(behind, Ordering::SeqCst);
    }

    /// Wait until so many patches arrived in all.
    pub(crate) async fn arrived(&self, patches: usize) {
        let mut asked = self.asked.subscribe();
        let arrived = asked.wait_for(|n| *n >= patches);
        tokio::time::timeout(Duration::from_secs(60), arrived).await.expect("a patch should have arrived").unwrap();
    }

    /// How many patches arrived.
    pub(crate) fn patches(&self) -> usize {
        *self.asked.borrow()
    }

    /// How many patches took effect.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }

    /// A node, whole.
    pub(crate) fn raw(&self, node: &str) -> Value {
        let found = self.inner.nodes_json().into_iter().find(|n| n["metadata"]["name"] == node);
        found.unwrap_or_else(|| panic!("there is no node {node}"))
    }

    /// Change a node as another writer would.
    pub(crate) fn edit(&self, node: &str, edit: impl FnOnce(&mut Value)) {
        self.inner.edit(&name(node), edit).unwrap();
    }

    async fn write(&self, node: &NodeName, patch: &Value) -> Result<NodeFacts, ClusterError> {
        let written = self.inner.patch(node, patch).await?;
        self.written.fetch_add(1, Ordering::SeqCst);
        let hook = self.after.lock().unwrap().take();
        if let Some(hook) = hook {
            hook(&self.inner);
        }
        Ok(written)
    }
}

fn error(fault: Fault, node: &NodeName) -> ClusterError {
    let (node, message) = (node.clone(), "as the test says".to_owned());
    match fault {
        Fault::Conflict => ClusterError::Conflict { node },
        Fault::NotFound => ClusterError::NotFound { node },
        Fault::TimeoutBefore | Fault::TimeoutAfter => ClusterError::Timeout { node, after_ms: 5000 },
        Fault::Unavailable => ClusterError::Unavailable { node, message },
        Fault::Refused => ClusterError::Refused { node, message },
    }
}

impl Cluster for Faulty {
    fn ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    fn inventory(&self) -> &RwLock<Inventory> {
        if self.behind.load(Ordering::SeqCst) { &self.old } else { self.inner.inventory() }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes()
    }

    fn get<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<NodeFacts>, ClusterError>> {
        Box::pin(async move {
            let fault = self.next_reads.lock().unwrap().pop_front();
            match fault {
                Some(fault) => Err(error(fault, node)),
                None => self.inner.get(node).await,
            }
        })
    }

    fn patch<'a>(&'a self, node: &'a NodeName, patch: &'a Value) -> BoxFuture<'a, Result<NodeFacts, ClusterError>> {
        Box::pin(async move {
            self.asked.send_modify(|n| *n += 1);
            self.paused.subscribe().wait_for(|paused| !paused).await.unwrap();
            let hook = self.before.lock().unwrap().take();
            if let Some(hook) = hook {
                hook(&self.inner);
            }
            if let Some(applied) = self.death() {
                // The dead hear no answer, and their later requests are none.
                if applied && !self.dead.load(Ordering::SeqCst) {
                    drop(self.write(node, patch).await);
                }
                self.dead.store(true, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            let standing = self.standing.lock().unwrap().get(node).copied();
            let fault = standing.or_else(|| self.next.lock().unwrap().pop_front());
            match fault {
                None => self.write(node, patch).await,
                Some(fault @ Fault::TimeoutAfter) => {
                    self.write(node, patch).await?;
                    Err(error(fault, node))
                }
                Some(fault) => Err(error(fault, node)),
            }
        })
    }

    fn read_ledger<'a>(&'a self, place: &'a LedgerPlace) -> BoxFuture<'a, Result<Option<StoredText>, LedgerError>> {
        let fails = self.ledger_fails.load(Ordering::SeqCst);
        Box::pin(async move {
            if fails {
                return Err(LedgerError::Failed("as the test says".to_owned()));
            }
            self.inner.read_ledger(place).await
        })
    }

    fn write_ledger<'a>(&'a self, place: &'a LedgerPlace, write: LedgerWrite<'a>) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(async move {
            let hook = self.before_ledger.lock().unwrap().take();
            if let Some(hook) = hook {
                hook(&self.inner);
            }
            self.inner.write_ledger(place, write).await
        })
    }

    fn workloads(&self) -> Option<&dyn Workloads> {
        Some(self)
    }

    fn exporter_pods<'a>(&'a self, selectors: &'a [Selector]) -> BoxFuture<'a, Result<Vec<ExporterPod>, String>> {
        Box::pin(async move {
            if self.pods_fail.load(Ordering::SeqCst) {
                return Err("the pods cannot be listed, as the test says".to_owned());
            }
            self.inner.exporter_pods(selectors).await
        })
    }
}
