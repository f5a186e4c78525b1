//! Evictions that fail when told to. All else about pods is as the embedded cluster says.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use futures::future::BoxFuture;
use gpu_quarantine::{
    cluster::{EvictionAnswer, EvidenceDocument, PodsError, Retention, Workloads, snapshot::SnapshotCluster},
    locate::{NodeName, Owner, OwnerObject, PodFacts, PodName},
    policy::LedgerPlace,
};
use serde_json::Value;

use super::Faulty;

/// What one eviction or deletion meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meets {
    /// This answer, and nothing was done.
    Instead(EvictionAnswer),
    /// This answer, and yet it was done.
    Afterwards(EvictionAnswer),
}

type Hook = Box<dyn FnOnce(&SnapshotCluster) + Send>;

/// What the next evictions and deletions meet, and what became of all.
#[derive(Default)]
pub(crate) struct Evictions {
    next: Mutex<VecDeque<Meets>>,
    before: Mutex<Option<Hook>>,
    asked: Mutex<Vec<(PodName, String)>>,
    accepted: Mutex<BTreeMap<String, usize>>,
    reads_fail: Mutex<Option<String>>,
    evidence_fails: Mutex<Option<String>>,
}

impl Evictions {
    /// The next ones, whatever pod they are for, meet this, one each.
    pub(crate) fn meet(&self, what: impl IntoIterator<Item = Meets>) {
        self.next.lock().unwrap().extend(what);
    }

    /// The next ones get these answers in the place of the cluster's.
    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = EvictionAnswer>) {
        self.meet(answers.into_iter().map(Meets::Instead));
    }

    /// Something happens just before the next one arrives.
    pub(crate) fn before_next(&self, hook: impl FnOnce(&SnapshotCluster) + Send + 'static) {
        *self.before.lock().unwrap() = Some(Box::new(hook));
    }

    /// Pods and owners cannot be read from now on, or can again.
    pub(crate) fn fail_reads(&self, why: Option<&str>) {
        *self.reads_fail.lock().unwrap() = why.map(str::to_owned);
    }

    /// Evidence cannot be kept from now on, or can again.
    pub(crate) fn fail_evidence(&self, why: Option<&str>) {
        *self.evidence_fails.lock().unwrap() = why.map(str::to_owned);
    }

    /// Which pods were asked to leave, or deleted, with which UID, in order, whatever came of it.
    pub(crate) fn asked(&self) -> Vec<(PodName, String)> {
        self.asked.lock().unwrap().clone()
    }

    /// How often a pod of each UID really was made to leave.
    pub(crate) fn accepted(&self) -> BTreeMap<String, usize> {
        self.accepted.lock().unwrap().clone()
    }

    /// All is well from now on.
    pub(super) fn heal(&self) {
        self.next.lock().unwrap().clear();
        self.fail_reads(None);
        self.fail_evidence(None);
    }

    /// Whether every request is answered, truly.
    pub(super) fn is_calm(&self) -> bool {
        let fails = |why: &Mutex<Option<String>>| why.lock().unwrap().is_some();
        self.next.lock().unwrap().is_empty() && !fails(&self.reads_fail) && !fails(&self.evidence_fails)
    }

    fn read(&self) -> Result<(), PodsError> {
        self.reads_fail.lock().unwrap().clone().map_or(Ok(()), |why| Err(PodsError(why)))
    }

    /// One eviction or deletion; `act` is what the cluster does of itself.
    async fn one(
        &self,
        inner: &SnapshotCluster,
        pod: &PodName,
        uid: &str,
        act: impl Future<Output = EvictionAnswer>,
    ) -> EvictionAnswer {
        let hook = self.before.lock().unwrap().take();
        if let Some(hook) = hook {
            hook(inner);
        }
        self.asked.lock().unwrap().push((pod.clone(), uid.to_owned()));
        let met = self.next.lock().unwrap().pop_front();
        if let Some(Meets::Instead(answer)) = met {
            return answer;
        }
        let answer = act.await;
        if answer == EvictionAnswer::Accepted {
            *self.accepted.lock().unwrap().entry(uid.to_owned()).or_default() += 1;
        }
        match met {
            Some(Meets::Afterwards(told)) => told,
            _ => answer,
        }
    }
}

impl Workloads for Faulty {
    fn pods_on<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<PodFacts>, PodsError>> {
        Box::pin(async move {
            self.evictions.read()?;
            self.inner.pods_on(node).await
        })
    }

    fn pod<'a>(&'a self, name: &'a PodName) -> BoxFuture<'a, Result<Option<PodFacts>, PodsError>> {
        Box::pin(async move {
            self.evictions.read()?;
            self.inner.pod(name).await
        })
    }

    fn pods_of<'a>(
        &'a self,
        namespace: &'a str,
        selector: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<PodFacts>, PodsError>> {
        Box::pin(async move {
            self.evictions.read()?;
            self.inner.pods_of(namespace, selector, most).await
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str, owner: &'a Owner) -> BoxFuture<'a, Result<Option<OwnerObject>, PodsError>> {
        Box::pin(async move {
            self.evictions.read()?;
            self.inner.owner(namespace, owner).await
        })
    }

    fn evict<'a>(&'a self, pod: &'a PodName, uid: &'a str) -> BoxFuture<'a, EvictionAnswer> {
        Box::pin(self.evictions.one(&self.inner, pod, uid, self.inner.evict(pod, uid)))
    }

    fn delete<'a>(&'a self, pod: &'a PodName, uid: &'a str) -> BoxFuture<'a, EvictionAnswer> {
        Box::pin(self.evictions.one(&self.inner, pod, uid, Workloads::delete(&self.inner, pod, uid)))
    }

    fn node_raw<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<Value>, PodsError>> {
        self.inner.node_raw(node)
    }

    fn events_about<'a>(
        &'a self,
        namespace: Option<&'a str>,
        name: &'a str,
        uid: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Value>, PodsError>> {
        self.inner.events_about(namespace, name, uid, most)
    }

    fn keep_evidence<'a>(
        &'a self,
        place: &'a LedgerPlace,
        document: &'a EvidenceDocument,
        retention: Retention,
    ) -> BoxFuture<'a, Result<(), PodsError>> {
        Box::pin(async move {
            if let Some(why) = self.evictions.evidence_fails.lock().unwrap().clone() {
                return Err(PodsError(why));
            }
            self.inner.keep_evidence(place, document, retention).await
        })
    }

    fn read_evidence<'a>(&'a self, place: &'a LedgerPlace, name: &'a str) -> BoxFuture<'a, Result<Option<String>, PodsError>> {
        self.inner.read_evidence(place, name)
    }
}
