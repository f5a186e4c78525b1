//! The embedded cluster: the Nodes and Pods of a YAML file, in memory. For trying things out, for replays and for tests.
//!
//! It answers a patch or an eviction as the real API server does, refusals included: what works here works there.

mod budget;
mod load;
mod patch;
mod valid;
mod workloads;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Cluster, ClusterError, LedgerError, LedgerWrite, StoredText, Workloads, node_facts, owner_object};
use crate::{
    locate::{ExporterPod, Inventory, NodeFacts, NodeName, PodFacts, PodName},
    policy::{LedgerPlace, Selector},
};
use budget::Budget;
use load::{Found, Kind};
pub use load::{LoadError, Place};
use patch::Refusal;
use workloads::Documents;

/// A cluster in memory. Every change is seen at once by all of its readers.
pub struct SnapshotCluster {
    domain: String,
    /// The truth. Whoever changes it holds this lock until the inventory is in step; always locked before the inventory.
    objects: Mutex<Objects>,
    inventory: RwLock<Inventory>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Objects {
    nodes: BTreeMap<NodeName, Value>,
    pods: BTreeMap<PodName, Pod>,
    budgets: Vec<Budget>,
    /// All other objects, by apiVersion and kind, namespace and name.
    others: BTreeMap<(String, String, String), Value>,
    /// The evidence that is kept, by namespace.
    documents: BTreeMap<String, Documents>,
    /// The ledger by its place: its version and its text.
    ledgers: BTreeMap<(String, String), (u64, String)>,
    /// The last resourceVersion given out; one counter for all objects, like etcd's revision.
    version: u64,
}

struct Pod {
    raw: Value,
    facts: PodFacts,
    /// `None` while it is not bound to a node.
    bound: Option<ExporterPod>,
}

impl SnapshotCluster {
    /// A cluster from the text of a file: YAML documents of Nodes, Pods and Lists, as `kubectl get nodes,pods -A -o yaml`
    /// prints them; also of disruption budgets, which are obeyed, and of any other kind, e.g. the Jobs that control the pods.
    /// `file` is for messages; of the nodes' annotations, those below `domain` become facts.
    ///
    /// Missing UIDs are derived from the name, missing resourceVersions counted on from the greatest in the file.
    ///
    /// # Errors
    /// If the text is not YAML, holds anything but objects, an object twice or one that the API server would not accept,
    /// or no node.
    pub fn load(file: &str, text: &str, domain: &str) -> Result<Self, LoadError> {
        let found = load::objects(file, text)?;
        let error = |place: &Place, problem| LoadError::Object { file: file.to_owned(), place: place.clone(), problem };
        let cluster = Self {
            domain: domain.to_owned(),
            objects: Mutex::default(),
            inventory: RwLock::default(),
            changes: watch::Sender::new(0),
        };
        let mut objects = cluster.lock();
        for Found { place, raw, .. } in &found {
            let version = load::version(raw).map_err(|problem| error(place, problem))?;
            objects.version = objects.version.max(version.unwrap_or(0));
        }
        for Found { place, kind, raw } in found {
            cluster.add(&mut objects, kind, raw, 0).map_err(|problem| error(&place, problem))?;
        }
        if objects.nodes.is_empty() {
            return Err(LoadError::NoNodes { file: file.to_owned() });
        }
        objects.expect();
        drop(objects);
        Ok(cluster)
    }

    /// The nodes as they are, whole, in the order of their names.
    #[must_use]
    pub fn nodes_json(&self) -> Vec<Value> {
        self.lock().nodes.values().cloned().collect()
    }

    /// Change a node as another writer would: the resourceVersion changes in any case. `edit` must not call this cluster.
    ///
    /// # Errors
    /// [`ClusterError::NotFound`], and [`ClusterError::Refused`] if the outcome is not a valid node or has another name or UID;
    /// then nothing is changed.
    pub fn edit(&self, node: &NodeName, edit: impl FnOnce(&mut Value)) -> Result<(), ClusterError> {
        let mut objects = self.lock();
        let current = objects.nodes.get(node).ok_or_else(|| ClusterError::NotFound { node: node.clone() })?;
        let mut next = current.clone();
        edit(&mut next);
        for (path, field) in [("/metadata/name", "metadata.name"), ("/metadata/uid", "metadata.uid")] {
            if next.pointer(path) != current.pointer(path) {
                return Err(ClusterError::Refused { node: node.clone(), message: format!("{field}: field is immutable") });
            }
        }
        patch::settle(&mut next);
        let stored = self.store(&mut objects, next);
        stored.map(drop).map_err(|message| ClusterError::Refused { node: node.clone(), message })
    }

    /// Delete a node.
    ///
    /// # Errors
    /// [`ClusterError::NotFound`].
    pub fn delete(&self, node: &NodeName) -> Result<(), ClusterError> {
        let mut objects = self.lock();
        objects.nodes.remove(node).ok_or_else(|| ClusterError::NotFound { node: node.clone() })?;
        objects.version += 1;
        self.inventory.write().unwrap_or_else(PoisonError::into_inner).remove(node);
        self.changed();
        Ok(())
    }

    /// Create a Node, a Pod or another object. Its resourceVersion is always a new one; its UID too if it has none, so that a node that comes
    /// back under its old name is another node.
    ///
    /// # Errors
    /// In words, if there is one of that name, or the API server would not accept it.
    pub fn create(&self, raw: Value) -> Result<(), String> {
        let (kind, mut raw) = load::typed(raw, None)?;
        if let Some(Value::Object(metadata)) = raw.get_mut("metadata") {
            metadata.remove("resourceVersion");
        }
        let mut objects = self.lock();
        // The version that it will have: no earlier object of that name can have been created at it.
        let birth = objects.version + 1;
        self.add(&mut objects, kind, raw, birth)?;
        objects.expect();
        self.changed();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        // A writer that panicked has changed nothing yet: each works on a copy, and stores that last.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Add an object that is new here, with the UID and resourceVersion it lacks.
    fn add(&self, objects: &mut Objects, kind: Kind, mut raw: Value, birth: u64) -> Result<(), String> {
        let text = |raw: &Value, path| raw.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (namespace, name) = (text(&raw, "/metadata/namespace"), text(&raw, "/metadata/name"));
        let what = match kind {
            Kind::Node | Kind::Pod => text(&raw, "/kind"),
            Kind::Budget | Kind::Other => format!("{} {}", text(&raw, "/apiVersion"), text(&raw, "/kind")),
        };
        if let Some(Value::Object(metadata)) = raw.get_mut("metadata") {
            if metadata.get("uid").is_none_or(Value::is_null) {
                metadata.insert("uid".to_owned(), json!(load::uid(&what, &namespace, &name, birth)));
            }
            if metadata.get("resourceVersion").is_none_or(Value::is_null) {
                objects.version += 1;
                metadata.insert("resourceVersion".to_owned(), json!(objects.version.to_string()));
            }
        }
        match kind {
            Kind::Node => {
                patch::settle(&mut raw);
                let facts = self.facts(&raw)?;
                let Entry::Vacant(slot) = objects.nodes.entry(facts.name.clone()) else {
                    return Err("there is another Node of this name".to_owned());
                };
                slot.insert(raw);
                self.inventory.write().unwrap_or_else(PoisonError::into_inner).insert(facts);
            }
            Kind::Pod => {
                let pod = Pod::read(raw)?;
                let Entry::Vacant(slot) = objects.pods.entry(pod.facts.name.clone()) else {
                    return Err("there is another Pod of this name in its namespace".to_owned());
                };
                slot.insert(pod);
            }
            Kind::Budget => {
                let budget = Budget::read(&raw)?;
                if objects.budgets.iter().any(|b| (&b.namespace, &b.name) == (&budget.namespace, &budget.name)) {
                    return Err("there is another PodDisruptionBudget of this name in its namespace".to_owned());
                }
                objects.budgets.push(budget);
            }
            Kind::Other => {
                owner_object(&raw).map_err(|error| error.problem())?;
                let Entry::Vacant(slot) = objects.others.entry((what, namespace, name)) else {
                    return Err("there is another object of this kind and name".to_owned());
                };
                slot.insert(raw);
            }
        }
        Ok(())
    }

    /// Write a node that is there already, under a new resourceVersion. Errors if it is not valid; then nothing is changed.
    fn store(&self, objects: &mut Objects, mut raw: Value) -> Result<NodeFacts, String> {
        let version = objects.version + 1;
        if let Some(Value::Object(metadata)) = raw.get_mut("metadata") {
            metadata.insert("resourceVersion".to_owned(), json!(version.to_string()));
        }
        let facts = self.facts(&raw)?;
        objects.version = version;
        objects.nodes.insert(facts.name.clone(), raw);
        self.inventory.write().unwrap_or_else(PoisonError::into_inner).insert(facts.clone());
        self.changed();
        Ok(facts)
    }

    /// The facts of a node that the API server would accept.
    fn facts(&self, raw: &Value) -> Result<NodeFacts, String> {
        let facts = node_facts(raw, &self.domain).map_err(|error| error.problem())?;
        valid::check(raw, &facts)?;
        Ok(facts)
    }

    fn write_over(&self, place: &LedgerPlace, write: LedgerWrite<'_>) -> Result<(), LedgerError> {
        let mut objects = self.lock();
        let at = (place.namespace.clone(), place.name.clone());
        let stands = objects.ledgers.get(&at).map(|(version, _)| version.to_string());
        if stands.as_deref() != write.over {
            return Err(LedgerError::Conflict);
        }
        objects.version += 1;
        let version = objects.version;
        objects.ledgers.insert(at, (version, write.text.to_owned()));
        Ok(())
    }

    fn read(&self, node: &NodeName) -> Result<Option<NodeFacts>, ClusterError> {
        let objects = self.lock();
        let facts = objects.nodes.get(node).map(|raw| self.facts(raw)).transpose();
        facts.map_err(|message| ClusterError::Refused { node: node.clone(), message })
    }

    fn write(&self, node: &NodeName, patch: &Value) -> Result<NodeFacts, ClusterError> {
        let refused = |message| ClusterError::Refused { node: node.clone(), message };
        let mut objects = self.lock();
        let current = objects.nodes.get(node).ok_or_else(|| ClusterError::NotFound { node: node.clone() })?;
        match patch::apply(current, patch) {
            Ok(Some(next)) => self.store(&mut objects, next).map_err(refused),
            Ok(None) => self.facts(current).map_err(refused),
            Err(Refusal::Conflict) => Err(ClusterError::Conflict { node: node.clone() }),
            Err(Refusal::Invalid(message)) => Err(refused(message)),
        }
    }

    fn select(&self, selectors: &[Selector]) -> Vec<ExporterPod> {
        let objects = self.lock();
        let selected = objects.pods.values().filter(|pod| selectors.iter().any(|selector| selector.matches(&pod.facts.labels)));
        selected.filter_map(|pod| pod.bound.clone()).collect()
    }
}

impl Cluster for SnapshotCluster {
    fn ready(&self) -> bool {
        true
    }

    fn inventory(&self) -> &RwLock<Inventory> {
        &self.inventory
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn get<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<NodeFacts>, ClusterError>> {
        Box::pin(async move { self.read(node) })
    }

    fn patch<'a>(&'a self, node: &'a NodeName, patch: &'a Value) -> BoxFuture<'a, Result<NodeFacts, ClusterError>> {
        Box::pin(async move { self.write(node, patch) })
    }

    fn read_ledger<'a>(&'a self, place: &'a LedgerPlace) -> BoxFuture<'a, Result<Option<StoredText>, LedgerError>> {
        let objects = self.lock();
        let found = objects.ledgers.get(&(place.namespace.clone(), place.name.clone()));
        let stored = found.map(|(version, text)| StoredText {
            version: version.to_string(),
            text: Some(text.clone()),
            annotations: BTreeMap::new(),
        });
        Box::pin(std::future::ready(Ok(stored)))
    }

    fn write_ledger<'a>(&'a self, place: &'a LedgerPlace, write: LedgerWrite<'a>) -> BoxFuture<'a, Result<(), LedgerError>> {
        Box::pin(std::future::ready(self.write_over(place, write)))
    }

    fn workloads(&self) -> Option<&dyn Workloads> {
        Some(self)
    }

    fn exporter_pods<'a>(&'a self, selectors: &'a [Selector]) -> BoxFuture<'a, Result<Vec<ExporterPod>, String>> {
        Box::pin(async move { Ok(self.select(selectors)) })
    }
}

impl fmt::Debug for SnapshotCluster {
    /// Counts only: the objects may be hundreds of megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects = self.lock();
        f.debug_struct("SnapshotCluster")
            .field("nodes", &objects.nodes.len())
            .field("pods", &objects.pods.len())
            .field("version", &objects.version)
            .finish_non_exhaustive()
    }
}
