//! The record: what stands in the node's annotation. It is written in the same patch as the taint, so the two never disagree.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim::{Claim, Episode, Member};
use crate::locate::{Gpu, NodeFacts, Taint};

/// The version that this program writes.
pub const VERSION: u64 = 1;
/// The longest record, in bytes of JSON.
pub const MAX_BYTES: usize = 16 * 1024;
/// Room kept for what grows after an alert was let in: ownership and the mark of an overflow.
const RESERVED: usize = 1024;
/// Room kept for each claim's `cleared` time.
const RESERVED_PER_CLAIM: usize = 64;
/// The longest identity string kept; a kubelet writes these and could write anything.
const MAX_IDENTITY: usize = 256;
/// Episodes kept at most, whatever room there is.
const MAX_HISTORY: usize = 20;

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
    /// The most GPUs that Kubernetes has told of the machine since a claim stands on it, where evidence is asked for: one that is lost
    /// may be lost to Kubernetes as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
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

/// The length of a text as JSON, or a little more.
fn quoted(text: &str) -> usize {
    // At worst a character becomes `\u0000`.
    let escaped = text.bytes().filter(|b| *b < 0x20 || matches!(b, b'"' | b'\\')).count();
    2 + text.len() + 5 * escaped
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
                && (&new.queries, &new.unproven) == (&old.queries, &old.unproven)
                && new.members.iter().filter(|m| m.fires()).all(|m| fired(m.fp))
        };
        self.overflow == old.overflow
            && self.gpus == old.gpus
            && self.claims.len() == old.claims.len()
            && self.claims.iter().zip(&old.claims).all(|(new, old)| same(new, old))
    }

    /// Whether what may never be shed fits, with room for what grows later: ownership and times.
    pub(super) fn has_room(&self) -> bool {
        // Serialising again for each alert of a body is what a decision would spend most of its time on.
        if self.length_at_most().is_some_and(|length| length + RESERVED + RESERVED_PER_CLAIM * self.claims.len() <= MAX_BYTES) {
            return true;
        }
        let mut core = self.clone();
        core.shed_history(0);
        core.shed_notes();
        core.shed_resolved();
        core.to_text().len() + RESERVED + RESERVED_PER_CLAIM * core.claims.len() <= MAX_BYTES
    }

    /// If queries were added to a claim that had so many and there is no room for them, it is as if they could not be used: a person is
    /// asked.
    pub(super) fn keep_room(&mut self, claim: usize, queries: usize) {
        if self.claims[claim].queries.len() > queries && !self.has_room() {
            let claim = &mut self.claims[claim];
            claim.queries.truncate(queries);
            claim.unproven.get_or_insert_with(|| "the record has no room for another recovery_query of it".to_owned());
        }
    }

    /// A length that what may never be shed does not exceed; `None` with fields that we do not know.
    fn length_at_most(&self) -> Option<usize> {
        // Names, punctuation, times and words of each part.
        const FRAME: usize = 340;
        const CLAIM: usize = 384;
        const MEMBER: usize = 160;
        const TAINT: usize = 64;
        let mut length = FRAME + quoted(&self.owner) + quoted(&self.node.uid);
        length +=
            self.former.iter().flatten().map(|(key, value)| 16 + quoted(key) + value.as_str().map_or(0, quoted)).sum::<usize>();
        let identity = [&self.node.provider_id, &self.node.system_uuid, &self.node.boot_id];
        length += identity.into_iter().flatten().map(|text| 16 + quoted(text)).sum::<usize>();
        let (added, before) = (self.added.as_ref(), self.before.as_ref());
        let mut known = self.other.is_empty() && self.node.other.is_empty();
        known &= self.former.iter().flatten().all(|(_, value)| value.is_string());
        known &= added.is_none_or(|a| a.other.is_empty()) && before.is_none_or(|b| b.other.is_empty());
        for taint in [added.and_then(|a| a.taint.as_ref()), before.and_then(|b| b.taint.as_ref())].into_iter().flatten() {
            known &= taint.other.is_empty();
            length += TAINT + quoted(&taint.key) + taint.value.as_deref().map_or(0, quoted) + quoted(&taint.effect);
        }
        for claim in &self.claims {
            known &= claim.other.is_empty() && claim.members.iter().all(|m| m.other.is_empty());
            known &= claim.machine.as_ref().is_none_or(|machine| machine.other.is_empty());
            let gpu = match &claim.gpu {
                Some(Gpu::Uuid(text) | Gpu::Pci(text)) => quoted(text),
                Some(Gpu::Index(_)) => 32,
                None => 0,
            };
            length += CLAIM
                + quoted(&claim.alert)
                + gpu
                + claim.policies().map(|p| 2 + quoted(p)).sum::<usize>()
                + claim.queries.iter().map(|query| 2 + quoted(query.as_str())).sum::<usize>()
                + claim.unproven.as_deref().map_or(0, quoted)
                + MEMBER * claim.members.len();
        }
        known.then_some(length)
    }

    /// Shed, in this order, until it fits: the oldest history, what alerts said, members that are over. `None` if it never does.
    pub(super) fn fit(mut self) -> Option<(Self, String)> {
        self.shed_history(MAX_HISTORY);
        loop {
            let text = self.to_text();
            if text.len() <= MAX_BYTES {
                return Some((self, text));
            }
            if !self.history.is_empty() {
                let keep = self.history.len() / 2;
                self.shed_history(keep);
            } else if self.claims.iter().any(Claim::has_notes) {
                self.shed_notes();
            } else if self.claims.iter().any(Claim::has_resolved) {
                self.shed_resolved();
            } else {
                return None;
            }
        }
    }

    fn shed_history(&mut self, keep: usize) {
        let over = self.history.len().saturating_sub(keep);
        self.history.drain(..over);
    }

    fn shed_notes(&mut self) {
        for claim in &mut self.claims {
            claim.summary = None;
            claim.runbook = None;
            claim.muted = None;
        }
    }

    /// Also of claims that are over: their state says so.
    fn shed_resolved(&mut self) {
        for claim in &mut self.claims {
            claim.members.retain(Member::fires);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The longest there is of each field, and texts that JSON escapes.
    #[test]
    fn the_bound_on_the_length_is_one() {
        let time = "9999-12-30T22:00:00.999999999Z";
        let taint = json!({ "key": "k\u{1}\"\\", "value": "v", "effect": "NoSchedule" });
        let member = json!({ "fp": "17ca147fb85cd638", "startsAt": time, "endsAt": time, "ended": true, "muted": true });
        let claim = |gpu: &str| {
            json!({
                "alert": "A\u{0}\u{7f}\n", "gpu": gpu, "policy": "p", "unconfirmed": true, "action": "heartbeat", "state": "released", "since": time,
                "cleared": time, "recovery": ["reboot", "replace", "manual"], "unlabelled": true, "queries": ["up{a=\"\\\\\"}", "up"],
                "unproven": "\"\u{1}", "machine": { "event": "exchanged", "at": time }, "members": [member, member],
            })
        };
        let claims = ["GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab", "00000000:1B:00.0", "index:1023"].map(claim);
        let full = json!({
            "v": 1, "owner": "o\t", "node": { "uid": "u", "providerID": "\"", "systemUUID": "s", "bootID": "b" },
            "added": { "taint": taint, "cordon": false, "at": time, "restored": true },
            "before": { "unschedulable": false, "taint": taint }, "overflow": true, "gpus": 4_294_967_295_u32,
            "claims": claims,
        });
        let empty = json!({ "v": 1, "owner": "", "node": { "uid": "" }, "claims": [] });
        for record in [full, empty] {
            let mut record: Record = serde_json::from_value(record).unwrap();
            assert!(record.to_text().len() <= record.length_at_most().unwrap(), "{}", record.to_text());
            record.other.insert("new".to_owned(), Value::Null);
            assert_eq!(record.length_at_most(), None);
        }
    }
}
