//! The record: what stands in the node's annotation. It is written in the same patch as the taint, so the two never disagree.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    claim::{Claim, Episode},
    eviction::{Evicting, Restart},
};
use crate::locate::{NodeFacts, Taint};

/// The version that this program writes.
pub const VERSION: u64 = 1;
/// The longest record, in bytes of JSON.
pub const MAX_BYTES: usize = 16 * 1024;
/// The longest identity string kept; a kubelet writes these and could write anything.
const MAX_IDENTITY: usize = 256;
/// Fields of a newer writer, kept as they are.
pub type Unknown = BTreeMap<String, Value>;

/// What we know and did about one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`VERSION`].
    pub v: u64,
    /// The instance that wrote it.
    pub owner: String,
    /// The node it is about.
    pub node: Identity,
    /// What we added; `None` while the node is not isolated by us.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<Added>,
    /// What stood there before we added anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
    /// The claims on the node.
    #[serde(default)]
    pub claims: Vec<Claim>,
    /// Alerts came that no longer fitted in: the node waits for a person, since nobody knows whether they are over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow: bool,
    /// The most GPUs that Kubernetes has told of the machine since a claim stands on it, where evidence is asked for or pods are evicted:
    /// one that is lost may be lost to Kubernetes as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// How the pods that opted in are asked to leave, while the node is isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Evicting>,
    /// The groups that this restarted within the last hour.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<Restart>,
    /// The Node that the machine had before, whose claims these are; only while they stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Unknown>,
    /// Past episodes, oldest first, as many as fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Episode>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// Which node a record is about: names are used again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.providerID`.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// `status.nodeInfo.systemUUID`.
    #[serde(default, rename = "systemUUID", skip_serializing_if = "Option::is_none")]
    pub system_uuid: Option<String>,
    /// `status.nodeInfo.bootID`.
    #[serde(default, rename = "bootID", skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// Exactly what we changed on the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Added {
    /// Our taint; `None` if one of that key and effect stood there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taint: Option<Taint>,
    /// Whether the cordon is ours.
    pub cordon: bool,
    /// When, on our clock.
    pub at: Timestamp,
    /// Whether the taint was put back after somebody took it away. That is done once (P10).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restored: bool,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What stood on the node before we added anything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// Whether it was cordoned.
    pub unschedulable: bool,
    /// A taint with our key that was not ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taint: Option<Taint>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What the annotation of a node holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Stored {
    /// No annotation.
    None,
    /// A record of ours about this very node.
    Ours(Box<Record>),
    /// A record that must not be touched, and why. The node is frozen.
    Untouchable(String),
    /// Nothing that we can use, and why. It is kept beside the new record.
    Unreadable(String),
}

/// Read a node's record for the instance `owner`.
#[must_use]
pub fn read(text: Option<&str>, node: &NodeFacts, owner: &str) -> Stored {
    let Some(text) = text else { return Stored::None };
    if text.len() > MAX_BYTES {
        return Stored::Unreadable(format!("it is {} bytes long, more than the {MAX_BYTES} that we ever write", text.len()));
    }
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(e) => return Stored::Unreadable(format!("it is not JSON: {e}")),
    };
    // Version and owner come first: a newer record may have any other shape.
    match value.get("v").and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(newer) if newer > VERSION => {
            return Stored::Untouchable(format!(
                "the record has version {newer} and this program knows {VERSION}: run the newer program, or remove the annotation"
            ));
        }
        _ => return Stored::Unreadable("it has no version that we know".to_owned()),
    }
    match value.get("owner").and_then(Value::as_str) {
        Some(other) if other != owner => {
            return Stored::Untouchable(format!(
                "the record belongs to instance {:?} and this is {owner:?}: give each instance its own nodes or domain",
                other.chars().take(64).collect::<String>()
            ));
        }
        _ => {}
    }
    match serde_json::from_value::<Record>(value) {
        Err(e) => Stored::Unreadable(format!("it is not a record: {e}")),
        Ok(record) if record.node.uid != node.uid => {
            Stored::Unreadable(format!("it is about another node object, {:?}", cut(&record.node.uid)))
        }
        Ok(record) => Stored::Ours(Box::new(record)),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_IDENTITY).collect()
}

impl Identity {
    /// The identity of a node, each part cut to a bounded length.
    #[must_use]
    pub fn of(node: &NodeFacts) -> Self {
        let cut = |s: &Option<String>| s.as_deref().map(cut);
        Self {
            uid: node.uid.clone(),
            provider_id: cut(&node.provider_id),
            system_uuid: cut(&node.system_uuid),
            boot_id: cut(&node.boot_id),
            other: Unknown::new(),
        }
    }
}

impl Record {
    /// An empty record about `node`.
    #[must_use]
    pub fn new(owner: &str, node: &NodeFacts) -> Self {
        Self {
            v: VERSION,
            owner: owner.to_owned(),
            node: Identity::of(node),
            added: None,
            before: None,
            claims: Vec::new(),
            overflow: false,
            gpus: None,
            eviction: None,
            restarts: Vec::new(),
            former: None,
            history: Vec::new(),
            other: Unknown::new(),
        }
    }

    /// Whether it says nothing: no claim, nothing added, no past, no field of a newer writer.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.claims.is_empty()
            && self.added.is_none()
            && !self.overflow
            && self.restarts.is_empty()
            && self.history.is_empty()
            && self.other.is_empty()
            && self.node.other.is_empty()
    }

    /// The JSON of the annotation.
    #[must_use]
    pub fn to_text(&self) -> String {
        // Keys are strings and no value is a map with other keys or a float that JSON lacks: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it differs from an older one only in alerts that ended while their claim goes on, or began anew: what may be
    /// lost without harm.
    pub(super) fn is_milder_than(&self, old: &Self) -> bool {
        let same = |new: &Claim, old: &Claim| {
            let fired = |fp| old.members.iter().any(|m| m.fp == fp && m.fires());
            (&new.alert, &new.gpu, new.state, new.action) == (&old.alert, &old.gpu, old.state, old.action)
                && (&new.recovery, new.unlabelled, &new.machine) == (&old.recovery, old.unlabelled, &old.machine)
                && (new.scope, &new.fault, &new.workloads) == (old.scope, &old.fault, &old.workloads)
                && (&new.queries, &new.unproven) == (&old.queries, &old.unproven)
                && new.members.iter().filter(|m| m.fires()).all(|m| fired(m.fp))
        };
        self.overflow == old.overflow
            && self.gpus == old.gpus
            && self.claims.len() == old.claims.len()
            && self.claims.iter().zip(&old.claims).all(|(new, old)| same(new, old))
    }
}
