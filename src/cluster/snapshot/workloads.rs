//! The pods of the embedded cluster. A pod that is evicted or deleted is gone at once: nobody plays the kubelet here.

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Objects, Pod, SnapshotCluster, budget};
use crate::{
    cluster::{
        EvictionAnswer, EvidenceDocument, PodsError, Retention, Workloads,
        facts::{Claimed, claimed_gpus, owner_object, pod_facts},
    },
    locate::{NodeName, Owner, OwnerObject, PodFacts, PodName},
    policy::{LedgerPlace, Selector},
};

#[cfg(test)]
mod tests;

/// The documents of a place, by name: when each was taken, and its text.
pub(super) type Documents = BTreeMap<String, (Timestamp, String)>;

impl Pod {
    /// A pod that the API server would accept.
    pub(super) fn read(raw: Value) -> Result<Self, String> {
        let facts = pod_facts(&raw).map_err(|error| error.problem())?;
        Ok(Self { bound: crate::cluster::exporter_pod(&raw), facts, raw })
    }
}

impl Objects {
    pub(super) fn expect(&mut self) {
        for budget in &mut self.budgets {
            budget.expect(self.pods.values());
        }
    }

    /// The facts of a pod, its claims looked up.
    fn facts(&self, pod: &Pod) -> PodFacts {
        let mut facts = pod.facts.clone();
        if !facts.claims.is_empty() {
            let of_kind = |kind: &'static str| self.others.values().filter(move |o| o["kind"] == kind);
            let named = |claim: &String| of_kind("ResourceClaim").find(|o| is_called(o, facts.name.namespace(), claim));
            let claims: Option<Vec<&Value>> = facts.claims.iter().map(named).collect();
            let slices: Vec<&Value> = of_kind("ResourceSlice").collect();
            let found = claims.map_or(Claimed::Unknown, |claims| claimed_gpus(&claims, &slices));
            facts.devices = found.beside(facts.devices.take(), facts.gpus);
        }
        facts
    }

    /// What the API server answers, and then it is gone if it is to go.
    fn remove(&mut self, name: &PodName, uid: &str, obey: bool) -> EvictionAnswer {
        let Some(pod) = self.pods.get(name) else { return EvictionAnswer::Gone };
        if obey && let Err(answer) = budget::check(pod, &self.budgets, self.pods.values()) {
            return answer;
        }
        if pod.facts.uid != uid {
            return EvictionAnswer::AnotherPod;
        }
        self.pods.remove(name);
        self.version += 1;
        EvictionAnswer::Accepted
    }
}

fn is_called(object: &Value, namespace: &str, name: &str) -> bool {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    text("/metadata/namespace").unwrap_or("default") == namespace && text("/metadata/name") == Some(name)
}

impl SnapshotCluster {
    /// The pods as they are, whole, in the order of their names.
    #[must_use]
    pub fn pods_json(&self) -> Vec<Value> {
        self.lock().pods.values().map(|pod| pod.raw.clone()).collect()
    }

    /// Change a pod as another writer would. `edit` must not call this cluster.
    ///
    /// # Errors
    /// In words, if there is no such pod, or the outcome is not a valid one or has another name or UID; then nothing is changed.
    pub fn edit_pod(&self, pod: &PodName, edit: impl FnOnce(&mut Value)) -> Result<(), String> {
        let mut objects = self.lock();
        let current = objects.pods.get(pod).ok_or_else(|| format!("pod {pod} is not there"))?;
        let mut raw = current.raw.clone();
        edit(&mut raw);
        let version = objects.version + 1;
        if let Some(Value::Object(metadata)) = raw.get_mut("metadata") {
            metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
        }
        let next = Pod::read(raw)?;
        if (&next.facts.name, &next.facts.uid) != (pod, &current.facts.uid) {
            return Err("metadata: name and uid are immutable".to_owned());
        }
        objects.version = version;
        objects.pods.insert(pod.clone(), next);
        objects.expect();
        Ok(())
    }

    /// Delete a pod as another writer would.
    ///
    /// # Errors
    /// In words, if there is no such pod.
    pub fn delete_pod(&self, pod: &PodName) -> Result<(), String> {
        let mut objects = self.lock();
        objects.pods.remove(pod).ok_or_else(|| format!("pod {pod} is not there"))?;
        objects.version += 1;
        Ok(())
    }

    fn selected(&self, wanted: impl Fn(&PodFacts) -> bool) -> Vec<PodFacts> {
        let objects = self.lock();
        objects.pods.values().filter(|pod| wanted(&pod.facts)).map(|pod| objects.facts(pod)).collect()
    }

    fn keep(&self, place: &LedgerPlace, document: &EvidenceDocument, retention: Retention) {
        let mut objects = self.lock();
        let documents = objects.documents.entry(place.namespace.clone()).or_default();
        documents.insert(document.name.clone(), (document.at, document.json.clone()));
        let oldest = document.at.checked_sub(retention.age).unwrap_or(Timestamp::MIN);
        documents.retain(|name, (at, _)| *at >= oldest || *name == document.name);
        let mut by_age: Vec<(Timestamp, String)> = documents.iter().map(|(name, (at, _))| (*at, name.clone())).collect();
        // The one that was just taken is the last to go, whatever the clock says.
        by_age.sort_by_key(|(at, name)| (*name == document.name, *at));
        let surplus = by_age.len().saturating_sub(retention.count.max(1));
        for (_, name) in by_age.into_iter().take(surplus) {
            documents.remove(&name);
        }
    }
}

/// An answer that is there at once.
fn now<'a, T: Send + 'a>(answer: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(answer))
}

impl Workloads for SnapshotCluster {
    fn pods_on<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<PodFacts>, PodsError>> {
        Box::pin(async move { Ok(self.selected(|pod| pod.node.as_ref() == Some(node))) })
    }

    fn pod<'a>(&'a self, name: &'a PodName) -> BoxFuture<'a, Result<Option<PodFacts>, PodsError>> {
        Box::pin(async move {
            let objects = self.lock();
            Ok(objects.pods.get(name).map(|pod| objects.facts(pod)))
        })
    }

    fn pods_of<'a>(
        &'a self,
        namespace: &'a str,
        selector: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<PodFacts>, PodsError>> {
        Box::pin(async move {
            let parsed = Selector::parse(selector).map_err(|e| PodsError(format!("cannot list pods {selector}: {e}")))?;
            let mut pods = self.selected(|pod| pod.name.namespace() == namespace && parsed.matches(&pod.labels));
            pods.truncate(most);
            Ok(pods)
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str, owner: &'a Owner) -> BoxFuture<'a, Result<Option<OwnerObject>, PodsError>> {
        Box::pin(async move {
            let objects = self.lock();
            let found = objects.others.values().filter(|o| is_called(o, namespace, &owner.name));
            Ok(found.filter_map(|o| owner_object(o).ok()).find(|o| o.owner == *owner))
        })
    }

    fn evict<'a>(&'a self, pod: &'a PodName, uid: &'a str) -> BoxFuture<'a, EvictionAnswer> {
        Box::pin(async move { self.lock().remove(pod, uid, true) })
    }

    fn delete<'a>(&'a self, pod: &'a PodName, uid: &'a str) -> BoxFuture<'a, EvictionAnswer> {
        Box::pin(async move { self.lock().remove(pod, uid, false) })
    }

    fn node_raw<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<Value>, PodsError>> {
        Box::pin(async move { Ok(self.lock().nodes.get(node).cloned()) })
    }

    fn events_about<'a>(
        &'a self,
        _namespace: Option<&'a str>,
        _name: &'a str,
        _uid: &'a str,
        _most: usize,
    ) -> BoxFuture<'a, Result<Vec<Value>, PodsError>> {
        now(Ok(Vec::new()))
    }

    fn keep_evidence<'a>(
        &'a self,
        place: &'a LedgerPlace,
        document: &'a EvidenceDocument,
        retention: Retention,
    ) -> BoxFuture<'a, Result<(), PodsError>> {
        Box::pin(async move {
            self.keep(place, document, retention);
            Ok(())
        })
    }

    fn read_evidence<'a>(&'a self, place: &'a LedgerPlace, name: &'a str) -> BoxFuture<'a, Result<Option<String>, PodsError>> {
        Box::pin(async move {
            let objects = self.lock();
            let found = objects.documents.get(&place.namespace).and_then(|documents| documents.get(name));
            Ok(found.map(|(_, json)| json.clone()))
        })
    }
}
