//! The ledger: what must outlive Node objects. The history of each machine, and the claims that stood on one whose Node was deleted.
//!
//! It is a cache of the records: whatever is lost of it is written anew from them. Only what concerns machines without a Node stands
//! nowhere else.

use std::collections::{BTreeMap, btree_map::Entry};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    claim::{Claim, ClaimState, Episode, Member},
    pause::Pause,
    record::Unknown,
    view::NodeView,
};
use crate::locate::NodeFacts;

/// The version that this program writes.
pub const LEDGER_VERSION: u64 = 1;
/// The longest ledger, in bytes of JSON. A `ConfigMap` holds 1 MiB.
pub const MAX_LEDGER_BYTES: usize = 512 * 1024;
/// Episodes kept of one machine.
const MAX_EPISODES: usize = 20;
/// A machine without news is forgotten after so long.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(90 * 24);
/// How far the API server's clock, which dates Node objects, may lag behind ours.
const SKEW: SignedDuration = SignedDuration::from_secs(60);
/// Bytes of JSON around a machine's key and value.
const PER_MACHINE: usize = 4;

/// All that is known of machines and outlives their Nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// [`LEDGER_VERSION`].
    pub v: u64,
    /// The instance that wrote it.
    pub owner: String,
    /// Set while nothing new is begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// By systemUUID, or `node:NAME` where a machine tells none of its own.
    #[serde(default)]
    pub machines: BTreeMap<String, Machine>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What is known of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The name that its Node had last.
    pub node: String,
    /// When there was last news of it.
    pub at: Timestamp,
    /// Past episodes, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub episodes: Vec<Episode>,
    /// The claims that stand on it, or stood on it when its Node went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Open>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// The claims of a machine that is isolated or is to be, as its Node's record has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The name of the Node.
    pub node: String,
    /// Its `metadata.uid`.
    pub uid: String,
    /// Its `bootID`: a reboot while it was away counts as one.
    #[serde(default, rename = "bootID", skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Whether it was isolated, not only waiting for that.
    pub isolated: bool,
    /// Whether more alerts came than its record held.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow: bool,
    /// The most GPUs that were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// The claims, without what their alerts said.
    pub claims: Vec<Claim>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What a stored ledger turns out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredLedger {
    /// Ours.
    Ours(Box<Ledger>),
    /// One that must not be touched, and why.
    Untouchable(String),
    /// Nothing that can be used, and why. It is kept beside the new one.
    Unreadable(String),
}

/// What a ledger does not say yet, by machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct News(BTreeMap<String, MachineNews>);

#[derive(Debug, Clone, PartialEq)]
struct MachineNews {
    node: String,
    at: Timestamp,
    episodes: Vec<Episode>,
    /// `Some(None)` closes what was open.
    #[expect(clippy::option_option, reason = "no news, or news of an end")]
    open: Option<Option<Open>>,
}

/// Under what a machine is known. Names of Nodes are used again, and so are systemUUIDs by careless makers: those that many machines
/// share count as none.
#[must_use]
pub fn machine_key(node: &NodeFacts) -> String {
    system_uuid(node).unwrap_or_else(|| format!("node:{}", node.name))
}

/// The systemUUID, in lower case, if it can be the machine's own.
fn system_uuid(node: &NodeFacts) -> Option<String> {
    // Of a board whose maker left the reference design's value in place.
    const LEFT_IN_PLACE: &str = "03000200-0400-0500-0006-000700080009";
    let uuid = node.system_uuid.as_deref()?.trim().to_ascii_lowercase();
    let digits: Vec<char> = uuid.chars().filter(|c| *c != '-').collect();
    let is_one = digits.len() == 32 && digits.iter().all(char::is_ascii_hexdigit) && digits.iter().any(|c| *c != digits[0]);
    (is_one && uuid != LEFT_IN_PLACE).then_some(uuid)
}

impl Open {
    fn of(node: &NodeFacts, view: &NodeView) -> Self {
        let claims = view.claims.iter().filter(|c| c.state != ClaimState::Released).map(|claim| {
            let mut claim = claim.clone();
            (claim.summary, claim.runbook, claim.muted) = (None, None, None);
            claim.members.retain(Member::fires);
            claim
        });
        Self {
            node: node.name.to_string(),
            uid: node.uid.clone(),
            boot_id: node.boot_id.clone(),
            isolated: view.isolated,
            overflow: view.overflow,
            gpus: view.gpus,
            claims: claims.collect(),
            other: Unknown::new(),
        }
    }
}

impl Machine {
    fn is_blank(&self) -> bool {
        self.episodes.is_empty() && self.open.is_none() && self.other.is_empty()
    }

    fn add(&mut self, episode: &Episode) {
        if !self.episodes.contains(episode) {
            let at = self.episodes.partition_point(|e| e.to <= episode.to);
            self.episodes.insert(at, episode.clone());
            if self.episodes.len() > MAX_EPISODES {
                self.episodes.remove(0);
            }
        }
    }

    /// Whether an episode of that age would be kept.
    fn has_room_for(&self, episode: &Episode) -> bool {
        self.episodes.len() < MAX_EPISODES || self.episodes.first().is_some_and(|oldest| oldest.to <= episode.to)
    }
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub fn new(owner: &str) -> Self {
        Self { v: LEDGER_VERSION, owner: owner.to_owned(), paused: None, machines: BTreeMap::new(), other: Unknown::new() }
    }

    /// Read what is stored, for the instance `owner`.
    #[must_use]
    pub fn read(text: &str, owner: &str) -> StoredLedger {
        let value: Value = match serde_json::from_str(text) {
            Ok(value) => value,
            Err(e) => return StoredLedger::Unreadable(format!("it is not JSON: {e}")),
        };
        // Version and owner come first: a newer ledger may have any other shape.
        match value.get("v").and_then(Value::as_u64) {
            Some(LEDGER_VERSION) => {}
            Some(newer) if newer > LEDGER_VERSION => {
                return StoredLedger::Untouchable(format!(
                    "it has version {newer} and this program knows {LEDGER_VERSION}: run the newer program, or remove the ConfigMap"
                ));
            }
            _ => return StoredLedger::Unreadable("it has no version that we know".to_owned()),
        }
        if let Some(other) = value.get("owner").and_then(Value::as_str).filter(|other| *other != owner) {
            let other: String = other.chars().take(64).collect();
            return StoredLedger::Untouchable(format!(
                "it belongs to instance {other:?} and this is {owner:?}: give each instance its own ledger.name"
            ));
        }
        match serde_json::from_value(value) {
            Ok(ledger) => StoredLedger::Ours(Box::new(ledger)),
            Err(e) => StoredLedger::Unreadable(format!("it is not a ledger: {e}")),
        }
    }

    /// What this ledger does not say yet of a node as it is seen now.
    #[must_use]
    pub fn news_of(&self, node: &NodeFacts, view: &NodeView, now: Timestamp) -> News {
        let mut news = News::default();
        // What cannot be read says nothing, and what is known stays.
        if view.unusable.is_some() {
            return news;
        }
        let key = machine_key(node);
        let known = self.machines.get(&key);
        let is_new = |e: &&Episode| {
            now.duration_since(e.to) < KEPT_FOR && known.is_none_or(|m| m.has_room_for(e) && !m.episodes.contains(*e))
        };
        let episodes: Vec<Episode> = view.history.iter().filter(is_new).cloned().collect();
        // What a machine brought with it is over, and still to be shown to be gone.
        let live = |c: &Claim| match c.state {
            ClaimState::Firing => c.action.isolates() && !c.is_muted(),
            ClaimState::Cleared => c.action.isolates() && view.former.is_some(),
            ClaimState::Released => false,
        };
        let open = (view.isolated || view.claims.iter().any(live)).then(|| Open::of(node, view));
        let was = known.and_then(|m| m.open.as_ref());
        let open = match (open, was) {
            // The claims of the Node that went are open until they were taken over, all of them.
            (Some(_), Some(was)) if was.uid != node.uid && view.former.as_ref() != Some(&was.uid) => None,
            (Some(open), was) => (was != Some(&open)).then_some(Some(open)),
            // Released before there was room for it, say.
            (None, Some(was)) if was.uid == node.uid || view.former.as_ref() == Some(&was.uid) => Some(None),
            // Claims of a Node that went are no news of the one that came after it.
            (None, _) => None,
        };
        // The claims are with the Node: another machine below it is told by its record.
        if let Some(Some(_)) = &open {
            for (other, machine) in &self.machines {
                if *other != key && machine.open.as_ref().is_some_and(|o| o.uid == node.uid) {
                    let node = machine.node.clone();
                    news.0.insert(other.clone(), MachineNews { node, at: machine.at, episodes: Vec::new(), open: Some(None) });
                }
            }
        }
        if !episodes.is_empty() || open.is_some() {
            let at = if open.is_some() { Some(now) } else { episodes.iter().map(|e| e.to).max() };
            let node = node.name.to_string();
            news.0.insert(key, MachineNews { node, at: at.unwrap_or(now), episodes, open });
        }
        news
    }

    /// Take news in. Doing it again changes nothing.
    pub fn take(&mut self, news: &News) {
        for (key, news) in &news.0 {
            let entry = self.machines.entry(key.clone());
            if matches!(entry, Entry::Vacant(_)) && news.episodes.is_empty() && !matches!(news.open, Some(Some(_))) {
                continue;
            }
            let machine = entry.or_insert_with(|| Machine {
                node: news.node.clone(),
                at: news.at,
                episodes: Vec::new(),
                open: None,
                other: Unknown::new(),
            });
            if machine.at <= news.at {
                (machine.node, machine.at) = (news.node.clone(), news.at);
            }
            news.episodes.iter().for_each(|e| machine.add(e));
            if let Some(open) = &news.open {
                machine.open.clone_from(open);
            }
            if machine.is_blank() {
                self.machines.remove(key);
            }
        }
    }

    /// The claims that the machine below a node had when its former Node went. Whether that Node is gone indeed, and no other machine
    /// has the same systemUUID, is for the caller to see.
    #[must_use]
    pub fn left_behind(&self, node: &NodeFacts) -> Option<&Open> {
        let open = self.machines.get(&system_uuid(node)?)?.open.as_ref()?;
        let since = open.claims.iter().map(|c| c.since).min()?;
        // A Node that was there before its namesake's fault began is another machine's, whatever its maker wrote into it.
        let came_after = node.created.is_none_or(|created| created >= since.saturating_sub(SKEW).unwrap_or(since));
        (open.uid != node.uid && came_after).then_some(open)
    }

    /// The UIDs of the Nodes that have, or had when they went, open claims.
    pub fn uids_with_claims(&self) -> impl Iterator<Item = &str> {
        self.machines.values().filter_map(|m| m.open.as_ref()).map(|open| open.uid.as_str())
    }

    /// Past episodes of the machine below a node.
    #[must_use]
    pub fn past_of(&self, node: &NodeFacts) -> &[Episode] {
        self.machines.get(&machine_key(node)).map_or(&[], |m| &m.episodes)
    }

    /// Drop what is too old or too much, and give the JSON. Machines with open claims go last.
    pub fn fit(&mut self, now: Timestamp) -> String {
        self.machines.retain(|_, m| m.open.is_some() || now.duration_since(m.at) < KEPT_FOR);
        let text = self.to_text();
        let Some(mut excess) = text.len().checked_sub(MAX_LEDGER_BYTES).filter(|excess| *excess > 0) else { return text };
        let mut order: Vec<(bool, Timestamp, String, usize)> = self
            .machines
            .iter()
            .map(|(key, machine)| {
                let length = serde_json::to_string(machine).map_or(0, |text| text.len());
                (machine.open.is_some(), machine.at, key.clone(), length + key.len() + PER_MACHINE)
            })
            .collect();
        order.sort();
        for (_, _, key, length) in order {
            self.machines.remove(&key);
            match excess.checked_sub(length) {
                Some(rest) if rest > 0 => excess = rest,
                _ => break,
            }
        }
        self.to_text()
    }

    fn to_text(&self) -> String {
        // Keys are strings and no value is a float: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl News {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These, and then later ones.
    pub fn then(&mut self, later: Self) {
        for (key, later) in later.0 {
            match self.0.entry(key) {
                Entry::Vacant(slot) => drop(slot.insert(later)),
                Entry::Occupied(mut slot) => {
                    let news = slot.get_mut();
                    (news.node, news.at) = (later.node, later.at.max(news.at));
                    news.episodes.extend(later.episodes);
                    news.open = later.open.or(news.open.take());
                }
            }
        }
    }
}
