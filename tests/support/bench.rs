//! One node on the embedded cluster, decided again and again. Whatever a test does with it, each decision is held to the promises
//! that must hold for all of them.

use std::collections::BTreeSet;

use futures::FutureExt as _;
use gpu_quarantine::{
    alert::{Alert, Fingerprint, Labels, Status},
    cluster::{Cluster as _, snapshot::SnapshotCluster},
    locate::{NodeFacts, NodeName, Taint, gpu_of},
    policy::{Config, load},
    quarantine::{
        Context, Decision, Heard, Known, MAX_BYTES, Muster, NodeView, Outcome, Record, Room, Rule, Stored, Told, Verdict, decide,
        evidence::Shown, read,
    },
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub(crate) const DOMAIN: &str = "gpu-quarantine.dev";
pub(crate) const KEY: &str = "gpu-quarantine.dev/isolated";
pub(crate) const FORMER: &str = "old.example/gpu-broken";
pub(crate) const RECORD: &str = "gpu-quarantine.dev/record";
/// The hold-down of [`config`].
pub(crate) const HOLD: i64 = 600;
/// Room for everybody.
pub(crate) const ROOM: Room<'static> = Room::In(&EMPTY);
/// Room for nobody.
pub(crate) const NO_ROOM: Room<'static> = Room::Closed("guard.max_isolated: 3 of 3 nodes are isolated, number 3 in the queue");
static EMPTY: Muster = Muster::new();

/// How many cases to run: `cases`, times `GPU_QUARANTINE_SOAK`. What fails is not written into the source tree.
pub(crate) fn cases(cases: u32) -> proptest::test_runner::Config {
    let soak: u32 = std::env::var("GPU_QUARANTINE_SOAK").map_or(1, |v| v.parse().expect("GPU_QUARANTINE_SOAK is a whole number"));
    proptest::test_runner::Config { cases: cases.saturating_mul(soak), failure_persistence: None, ..Default::default() }
}

/// The default policies (`remediation` says what is done), a former key, and what else a test needs.
pub(crate) fn config(cordon: bool, after: &str) -> Config {
    let text = format!(
        "scope: {{never: ['team=infra']}}\nisolation: {{cordon: {cordon}, former_keys: [{FORMER}]}}\n\
         release: {{after: {after}, require: [resolved], flapping: {{longer_after: 0, person_after: 0}}}}\n"
    );
    load("config.yaml", &text).expect("the configuration of the tests is valid")
}

/// A GPU node, created long before anything happens.
pub(crate) fn plain_node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "gpu-07", "uid": "u-1", "resourceVersion": "41", "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": {"nvidia.com/gpu.present": "true", "zone": "a"}, "annotations": {"other.example/note": "keep"},
        },
        "spec": {"podCIDR": "10.0.7.0/24", "providerID": "metal://7"},
        "status": {"nodeInfo": {"bootID": "b-1", "systemUUID": "s-1"}},
    })
}

/// The start of every story, on all clocks.
pub(crate) fn start() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

/// A firing alert that asks for `remediation`.
pub(crate) fn firing(labels: &[(&str, &str)], remediation: &str, starts_at: Timestamp) -> Alert {
    let mut labels: Labels = labels.iter().copied().collect();
    labels.insert("remediation", remediation);
    Alert {
        name: labels.get("alertname").expect("an alert has a name").to_owned(),
        fingerprint: Fingerprint::of(&labels),
        labels,
        annotations: [("summary", "it is broken")].into_iter().collect(),
        status: Status::Firing,
        starts_at,
        ends_at: None,
    }
}

/// The same alert, over.
pub(crate) fn resolved(alert: &Alert, ends_at: Timestamp) -> Alert {
    Alert { status: Status::Resolved, ends_at: Some(ends_at), ..alert.clone() }
}

/// `alert` as the engine hands it to the decision.
pub(crate) fn heard<'a>(alert: &'a Alert, config: &'a Config) -> Heard<'a> {
    let policy = config.policy_for(&alert.labels);
    Heard {
        alert,
        gpu: gpu_of(&alert.labels, &config.locate),
        rule: policy.map(|p| Rule { policy: &p.name, action: p.action }),
        muted: None,
    }
}

pub(crate) struct Bench {
    cluster: SnapshotCluster,
    name: NodeName,
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    pub(crate) room: Room<'static>,
    /// What was last shown about the node.
    pub(crate) shown: Option<Shown>,
}

impl Bench {
    pub(crate) fn new(node: &Value, config: Config) -> Self {
        let cluster = SnapshotCluster::load("node.json", &node.to_string(), DOMAIN).expect("the node is valid");
        let name = node["metadata"]["name"].as_str().expect("the node has a name");
        Self { cluster, name: NodeName::parse(name).expect("a valid name"), config, now: start(), room: ROOM, shown: None }
    }

    pub(crate) fn facts(&self) -> NodeFacts {
        let read = self.cluster.get(&self.name).now_or_never().expect("the embedded cluster answers at once");
        read.expect("the node can be read").expect("the node is there")
    }

    /// The whole node.
    pub(crate) fn raw(&self) -> Value {
        self.cluster.nodes_json().remove(0)
    }

    pub(crate) fn record(&self) -> Option<Record> {
        let node = self.facts();
        match read(node.annotations.get(RECORD).map(String::as_str), &node, &self.config.instance) {
            Stored::Ours(record) => Some(*record),
            _ => None,
        }
    }

    pub(crate) fn isolated(&self) -> bool {
        self.record().is_some_and(|r| r.added.is_some())
    }

    /// Whether a taint stands on the node that keeps new pods away as ours does.
    pub(crate) fn tainted(&self) -> bool {
        self.facts().taints.iter().any(|t| t.key == KEY && t.effect == "NoSchedule")
    }

    /// The firing members of all claims.
    pub(crate) fn firing(&self) -> BTreeSet<(Fingerprint, Timestamp)> {
        let claims = self.record().map(|r| r.claims).unwrap_or_default();
        claims.iter().flat_map(|c| &c.members).filter(|m| m.fires()).map(|m| (m.fp, m.starts_at)).collect()
    }

    /// Write as somebody else would.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut Value)) {
        self.cluster.edit(&self.name, edit).expect("the other writer's change is valid");
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    fn context(&self, complete: bool) -> Context<'_> {
        Context {
            config: &self.config,
            room: self.room,
            now: self.now,
            told: if complete { Told::Complete { newer: &[] } } else { Told::Pushed },
            known: Known { shown: self.shown.as_ref(), ..Known::default() },
        }
    }

    pub(crate) fn tick(&mut self) -> Decision {
        self.hear(&[], false)
    }

    /// Decide and write. The promises are checked on the way.
    pub(crate) fn hear(&mut self, alerts: &[Alert], complete: bool) -> Decision {
        let (facts, before, was) = (self.facts(), self.raw(), self.record());
        let heard: Vec<Heard<'_>> = alerts.iter().map(|a| heard(a, &self.config)).collect();
        let decision = decide(&facts, &heard, &self.context(complete));
        assert_eq!(decision.verdicts.len(), alerts.len(), "one verdict per alert");
        if let Some(patch) = &decision.patch {
            let written = self.cluster.patch(&self.name, patch).now_or_never().expect("the embedded cluster answers at once");
            let written = written.unwrap_or_else(|e| panic!("the API server refuses {patch}: {e}"));
            assert_ne!(written.resource_version, facts.resource_version, "a patch that changes nothing: {patch}");
        }
        self.nothing_foreign_changed(&before, &facts, was.as_ref());
        self.what_is_said_is_on_record(&heard, &decision.verdicts);
        let after = self.facts();
        let text = after.annotations.get(RECORD).map_or(0, String::len);
        assert!(text <= MAX_BYTES, "the record has {text} bytes");
        let again = decide(&after, &[], &self.context(false));
        assert_eq!(again.patch, None, "deciding again changes something, after {:?}", decision.patch);
        let again = decide(&after, &heard, &self.context(complete));
        assert_eq!(again.patch, None, "hearing the same again changes something, after {:?}", decision.patch);
        let view = NodeView::knowing(&after, &self.config, self.context(false).known, self.now);
        assert_eq!(view.isolated, self.isolated());
        decision
    }

    /// Write a patch as a person's command does.
    pub(crate) fn apply(&mut self, patch: &Value) {
        let written = self.cluster.patch(&self.name, patch).now_or_never().expect("the embedded cluster answers at once");
        written.unwrap_or_else(|e| panic!("the API server refuses {patch}: {e}"));
    }

    /// Whether what isolates the node by its record stands on it.
    fn stands(&self, record: &Record) -> bool {
        let taint = record.added.as_ref().map(|a| a.taint.as_ref());
        taint.is_some_and(|t| {
            t.map_or_else(|| self.tainted(), |t| self.facts().taints.iter().any(|s| (&s.key, &s.effect) == (&t.key, &t.effect)))
        })
    }

    /// P2, and the part of P7 about taints.
    fn nothing_foreign_changed(&self, before: &Value, facts: &NodeFacts, was: Option<&Record>) {
        let after = self.facts();
        let ours = was.and_then(|r| r.added.as_ref()).and_then(|a| a.taint.as_ref());
        let gone: Vec<&Taint> = facts.taints.iter().filter(|t| !after.taints.contains(t)).collect();
        for taint in gone {
            assert!([KEY, FORMER].contains(&taint.key.as_str()), "a taint of another key was removed: {taint:?}");
            assert_eq!(Some(taint), ours, "a taint was removed that the record does not call ours");
        }
        let new: Vec<&Taint> = after.taints.iter().filter(|t| !facts.taints.contains(t)).collect();
        for taint in &new {
            assert_eq!((taint.key.as_str(), taint.effect.as_str()), (KEY, "NoSchedule"), "a taint that is not ours was added");
        }
        assert!(new.len() <= 1);
        if facts.unschedulable && !after.unschedulable {
            assert!(was.and_then(|r| r.added.as_ref()).is_some_and(|a| a.cordon), "somebody else's cordon was lifted");
        }
        assert_eq!(without_us(&self.raw(), true), without_us(before, true), "more than taints, cordon and record was changed");
    }

    /// P1.
    fn what_is_said_is_on_record(&self, heard: &[Heard<'_>], verdicts: &[Verdict]) {
        let record = self.record();
        for (h, verdict) in heard.iter().zip(verdicts) {
            let counts = matches!(verdict.outcome, Outcome::Recorded | Outcome::Unchanged | Outcome::Pending | Outcome::Frozen);
            if h.alert.status != Status::Firing || h.rule.is_none() || !counts {
                continue;
            }
            let record = record.as_ref().unwrap_or_else(|| panic!("{verdict:?}, but nothing is on record"));
            let firing = record.claims.iter().flat_map(|c| &c.members).any(|m| m.fp == h.alert.fingerprint && m.fires());
            assert!(firing || record.overflow, "{verdict:?}, but {} is not on record", h.alert.name);
            assert!(verdict.outcome != Outcome::Recorded || self.stands(record), "{verdict:?} of a free node");
        }
    }
}

/// A node without what we write; the cordon and our taints too if `and_isolation`.
pub(crate) fn without_us(node: &Value, and_isolation: bool) -> Value {
    let mut node = node.clone();
    let remove = |map: &mut Value, key: &str| {
        if let Some(fields) = map.as_object_mut() {
            fields.remove(key);
        }
    };
    for key in ["resourceVersion", "managedFields"] {
        remove(&mut node["metadata"], key);
    }
    for key in [RECORD, "gpu-quarantine.dev/record-corrupt"] {
        remove(&mut node["metadata"]["annotations"], key);
    }
    if and_isolation {
        remove(&mut node["spec"], "taints");
        remove(&mut node["spec"], "unschedulable");
    }
    for (part, key) in [("metadata", "annotations"), ("metadata", "labels"), ("spec", "taints")] {
        let empty = |v: &Value| v.is_null() || v.as_object().is_some_and(serde_json::Map::is_empty) || v == &json!([]);
        if node[part].get(key).is_some_and(empty) {
            remove(&mut node[part], key);
        }
    }
    node
}
