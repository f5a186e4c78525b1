//! What comes next for the pods of one isolated node.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{
    checkpoint::Call,
    choose::{Resident, Spared, asked_by, came_back, evicting, is_hopeless, may_go},
    gang::Loss,
    order::in_order,
    state::{Evictee, EvicteeState, Evicting},
    work::Work,
};
use crate::{
    locate::{NodeFacts, PodName, Taint},
    policy::{Config, EvictionRules},
    quarantine::{
        claim::Claim,
        decide::{EFFECT, RECORD},
        record::{Record, Stored, read},
        scope::{Standing, standing, word},
    },
};

/// Everything that the eviction of a node depends on.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// All pods on it.
    pub here: &'a [Resident],
    /// Pods elsewhere, of groups of which all must go.
    pub elsewhere: &'a [Resident],
    /// When groups were restarted by us, on any node.
    pub restarts: &'a [super::Restart],
    /// How many pods of each group are on their way out of other nodes.
    pub going: &'a BTreeMap<String, u64>,
    /// Why nothing new is begun, as a clause, if so.
    pub paused: Option<&'a str>,
    /// What pods that were called for their checkpoint answered, by UID.
    pub called: &'a BTreeMap<String, String>,
    /// The configuration.
    pub config: &'a Config,
    /// Our clock.
    pub now: Timestamp,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What is to stand on record first.
    pub record: Option<Evicting>,
    /// The groups that are restarted by it, which is to stand there as well.
    pub restarted: Vec<super::Restart>,
    /// What is to be done then, in this order.
    pub acts: Vec<Act>,
    /// Nothing of it was on record before.
    pub begins: bool,
    /// The policy of the claim that asks for it, and what the claim is about.
    pub by: Option<(String, String)>,
    /// The pods whose state changes with it, and to what.
    pub news: Vec<Evictee>,
    /// The pods of the node that are left, and why.
    pub left: Vec<(PodName, Spared)>,
    /// When to look again.
    pub next: Option<Timestamp>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Ask a pod to write its checkpoint.
    Checkpoint {
        /// The pod.
        pod: PodName,
        /// Its UID.
        uid: String,
        /// Where it asks to be called.
        call: Call,
        /// How long it may take.
        within: Duration,
    },
    /// Ask a pod to leave.
    Evict {
        /// The pod.
        pod: PodName,
        /// Its UID.
        uid: String,
    },
    /// Delete a pod with its own grace.
    Delete {
        /// The pod.
        pod: PodName,
        /// Its UID.
        uid: String,
    },
}

/// Why nothing is evicted from a node now, as a clause; `Ok` with the record if it may be.
///
/// # Errors
///
/// With the reason.
pub fn may_evict(node: &NodeFacts, config: &Config) -> Result<Record, String> {
    let text = node.annotations.get(&config.annotation(RECORD)).map(String::as_str);
    let Stored::Ours(record) = read(text, node, &config.instance) else { return Err("it has no record of ours".to_owned()) };
    allows(node, &record, config).map(|()| *record)
}

/// The same, with the record read.
pub(in crate::quarantine) fn allows(node: &NodeFacts, record: &Record, config: &Config) -> Result<(), String> {
    if standing(node, config) != Standing::InScope {
        return Err("the node is out of scope".to_owned());
    }
    if let Some(why) = word(node, config, "ignore") {
        return Err(format!("a person said that nothing is done to the node: {why}"));
    }
    if let Some(why) = word(node, config, "hold") {
        return Err(format!("a person holds the node: {why}"));
    }
    let Some(added) = &record.added else { return Err("the node is not isolated".to_owned()) };
    // P3: as read from the API server, not as we remember to have written it.
    let before = record.before.as_ref().and_then(|b| b.taint.as_ref());
    let stands =
        |taint: &Taint| taint.effect == EFFECT && node.taints.iter().any(|t| t.key == taint.key && t.effect == taint.effect);
    if !added.taint.as_ref().or(before).is_some_and(stands) {
        return Err("the taint does not stand on the node".to_owned());
    }
    if evicting(record).next().is_none() {
        return Err("no claim that evicts fires, or all are silenced".to_owned());
    }
    Ok(())
}

/// Which faults ask for it, in a text that changes when they do.
pub(in crate::quarantine) fn about(record: &Record) -> String {
    let mut text = record.added.as_ref().map(|a| a.at.to_string()).unwrap_or_default();
    for claim in evicting(record) {
        text = format!("{text} {} {:?} {:?}", claim.subject(), claim.scope, claim.workloads);
    }
    text
}

/// Whether a pod may be taken from another node because all of its group must go: it is ours, and nobody said otherwise.
#[must_use]
pub fn may_touch(node: &NodeFacts, config: &Config) -> bool {
    standing(node, config) == Standing::InScope && ["hold", "ignore"].iter().all(|said| word(node, config, said).is_none())
}

/// The pods that something is still to be done for, by the record of a node.
#[must_use]
pub fn unfinished(node: &NodeFacts, config: &Config) -> Vec<(PodName, String)> {
    let text = node.annotations.get(&config.annotation(RECORD)).map(String::as_str);
    let Stored::Ours(record) = read(text, node, &config.instance) else { return Vec::new() };
    let pods = record.eviction.into_iter().flat_map(|e| e.pods);
    pods.filter(|p| !p.state.is_over()).map(|p| (p.pod, p.uid)).collect()
}

/// What comes next. `node` is as it was read just now.
#[must_use]
pub fn plan(node: &NodeFacts, look: &Look<'_>) -> Plan {
    let record = match may_evict(node, look.config) {
        Ok(record) => record,
        Err(why) => return stop(node, look, &why),
    };
    let old = record.eviction.as_ref();
    let mut work = Work::on(&record, look);
    let (chosen, left) = choose(node, look, &record);
    let noted: Vec<&Resident> = left.iter().filter(|(_, spared)| spared.is_puzzling()).map(|(resident, _)| *resident).collect();
    let is_to_go = |uid: &str| chosen.iter().any(|c| c.resident.pod.uid == uid) || noted.iter().any(|r| r.pod.uid == uid);
    work.follow(is_to_go, "nothing asks it to leave now");
    for group in in_order(chosen, &look.config.eviction.order) {
        work.group(&group);
    }
    for (resident, spared) in &left {
        match spared.reason {
            "returned" => work.returned(resident, &spared.why),
            _ if spared.is_puzzling() => work.note(resident, EvicteeState::Waiting, &spared.why),
            _ => {}
        }
    }
    let changed = !work.new.pods.is_empty() && old != Some(&work.new);
    Plan {
        by: evicting(&record).next().map(|claim| (claim.policy.clone(), claim.subject())),
        begins: old.is_none(),
        news: news(old, &work.new),
        record: changed.then_some(work.new),
        restarted: work.restarted,
        acts: work.acts,
        left: left.into_iter().map(|(resident, spared)| (resident.pod.name.clone(), spared)).collect(),
        next: Some(work.next),
    }
}

/// Whether a pod is still to go, as node and pod are now, just before it is asked. `here` are the pods of the node as they were planned
/// with.
///
/// # Errors
///
/// With what changed, as a clause.
pub fn still(node: &NodeFacts, resident: &Resident, here: &[Resident], config: &Config) -> Result<(), String> {
    let record = may_evict(node, config)?;
    if record.eviction.as_ref().and_then(|e| e.of(&resident.pod.uid)).is_none_or(|p| p.state != EvicteeState::Asking) {
        return Err("it is no longer to be asked by the record".to_owned());
    }
    may_go(resident, config).map_err(|spared| spared.why)?;
    if resident.pod.node.as_ref() != Some(&node.name) {
        // One of a group of which all must go, wherever they are.
        return if resident.gang.loss == Loss::All { Ok(()) } else { Err("it is not on the node any more".to_owned()) };
    }
    asked_by(resident, node, here, &record, config).map(drop).map_err(|spared| spared.why)
}

/// A pod that is to go, the claim that asks for it and its rules.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) resident: &'a Resident,
    pub(super) rules: &'a EvictionRules,
    /// Since when the claim has stood.
    pub(super) since: Timestamp,
    /// The fault with which nothing can be saved, if it is such a one.
    pub(super) hopeless: Option<&'a str>,
}

fn choose<'a>(node: &NodeFacts, look: &Look<'a>, record: &'a Record) -> (Vec<Chosen<'a>>, Vec<(&'a Resident, Spared)>) {
    let (mut chosen, mut left): (Vec<Chosen<'a>>, Vec<_>) = (Vec::new(), Vec::new());
    let config = look.config;
    for resident in look.here {
        let asked = may_go(resident, config)
            .and_then(|()| {
                let why = "it came here after the node was isolated, past our taint or past the scheduler: it is left";
                if came_back(resident, record) { Err(Spared { reason: "returned", why: why.to_owned() }) } else { Ok(()) }
            })
            .and_then(|()| asked_by(resident, node, look.here, record, config));
        match asked {
            Ok((claim, rules)) => chosen.push(Chosen::by(resident, claim, rules, config)),
            Err(why) => left.push((resident, why)),
        }
    }
    let followers: Vec<Chosen<'a>> = look.elsewhere.iter().filter_map(|r| follower(r, &chosen, look, record)).collect();
    chosen.extend(followers);
    (chosen, left)
}

impl<'a> Chosen<'a> {
    fn by(resident: &'a Resident, claim: &'a Claim, rules: &'a EvictionRules, config: &Config) -> Self {
        Self { resident, rules, since: claim.since, hopeless: claim.fault.as_deref().filter(|_| is_hopeless(claim, config)) }
    }
}

/// Of a group of which all must go, one elsewhere goes as well, if it opted in, too, and was there when the first of the group was asked.
/// The successors of those are what it is done for.
fn follower<'a>(resident: &'a Resident, here: &[Chosen<'a>], look: &Look<'a>, record: &'a Record) -> Option<Chosen<'a>> {
    let key = &resident.gang.key;
    if resident.gang.loss != Loss::All || may_go(resident, look.config).is_err() {
        return None;
    }
    let on_record = || record.eviction.iter().flat_map(|e| &e.pods);
    if on_record().any(|p| p.uid == resident.pod.uid) {
        // Perhaps the one here is gone, and it is still to follow.
        let claim = evicting(record).next()?;
        return Some(Chosen::by(resident, claim, look.config.eviction_for(&claim.policy), look.config));
    }
    let begun = on_record().filter(|p| p.group == *key).filter_map(|p| p.asked).min();
    let was_there = begun.is_none_or(|begun| resident.pod.created.is_some_and(|created| created <= begun));
    let leader = here.iter().find(|c| c.resident.gang.key == *key && c.resident.pod.deleted.is_none())?;
    was_there.then_some(Chosen { resident, ..*leader })
}

/// Nothing is evicted now: what was about to be is put off.
fn stop(node: &NodeFacts, look: &Look<'_>, why: &str) -> Plan {
    let text = node.annotations.get(&look.config.annotation(RECORD)).map(String::as_str);
    let Stored::Ours(record) = read(text, node, &look.config.instance) else { return Plan::nothing() };
    let Some(old) = record.eviction.as_ref() else { return Plan::nothing() };
    let mut work = Work::on(&record, look);
    let leaving = work.follow(|_| false, &format!("not now: {why}"));
    Plan {
        news: news(Some(old), &work.new),
        next: leaving.then_some(work.next),
        record: (work.new != *old).then_some(work.new),
        ..Plan::nothing()
    }
}

/// What differs, but for what is still to be answered.
fn news(old: Option<&Evicting>, new: &Evicting) -> Vec<Evictee> {
    let was = |pod: &Evictee| old.and_then(|old| old.of(&pod.uid)).map(|p| p.state);
    let slow = |pod: &Evictee| {
        pod.state == EvicteeState::Leaving
            && pod.why.is_some()
            && old.and_then(|old| old.of(&pod.uid)).is_some_and(|p| p.why.is_none())
    };
    new.pods.iter().filter(|p| (p.state != EvicteeState::Asking && was(p) != Some(p.state)) || slow(p)).cloned().collect()
}

impl Plan {
    fn nothing() -> Self {
        Self {
            record: None,
            begins: false,
            by: None,
            news: Vec::new(),
            restarted: Vec::new(),
            acts: Vec::new(),
            left: Vec::new(),
            next: None,
        }
    }
}
