//! When a node may be given back: every claim cleared, the hold-down over, what is required shown, and nobody holding it.
//!
//! What is required grows here: a stronger requirement is one more [`Wait`].

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use super::{
    claim::{Claim, ClaimState, Recovery},
    record::Record,
    scope::word,
};
use crate::{
    locate::NodeFacts,
    policy::{Config, Requirement},
};

/// What stands between an isolated node and its release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wait {
    /// A claim still fires.
    Firing,
    /// A person holds the node; their reason.
    Held(String),
    /// The recorded taint has a key that is neither ours nor a former one of ours.
    ForeignKey(String),
    /// Alerts did not fit into the record.
    Overflow,
    /// A person must say so, and what asks for it.
    Person(String),
    /// The hold-down, until then.
    HoldDown(Timestamp),
}

/// What an isolated node still waits for; `None` if it may be released now.
pub(super) fn waits_for(node: &NodeFacts, record: &Record, config: &Config, now: Timestamp) -> Option<Wait> {
    if record.claims.iter().any(|c| c.state == ClaimState::Firing) {
        return Some(Wait::Firing);
    }
    if let Some(reason) = word(node, config, "hold") {
        return Some(Wait::Held(reason));
    }
    if let Some(taint) = record.added.as_ref().and_then(|a| a.taint.as_ref())
        && !is_our_key(&taint.key, config)
    {
        return Some(Wait::ForeignKey(taint.key.clone()));
    }
    if record.overflow {
        return Some(Wait::Overflow);
    }
    if let Some(asks) = asks_for_a_person(record, config) {
        return Some(Wait::Person(asks));
    }
    match due(record, config) {
        Some(due) if now < due => Some(Wait::HoldDown(due)),
        _ => None,
    }
}

/// Whether a taint of that key may be ours.
pub(super) fn is_our_key(key: &str, config: &Config) -> bool {
    key == config.isolation.taint_key || config.isolation.former_keys.contains(key)
}

/// When the hold-downs of all cleared claims are over.
pub(super) fn due(record: &Record, config: &Config) -> Option<Timestamp> {
    let cleared = record.claims.iter().filter(|c| c.state == ClaimState::Cleared).filter_map(|c| c.cleared).max()?;
    // The longest hold-down of any claim, from the last clearing of any.
    let after = record.claims.iter().flat_map(Claim::policies).map(|p| config.release_for(p).after).max()?;
    Some(later(cleared, after))
}

/// `at` plus a configured duration; the end of time instead of an overflow.
pub(super) fn later(at: Timestamp, after: Duration) -> Timestamp {
    at.checked_add(after).unwrap_or(Timestamp::MAX)
}

fn asks_for_a_person(record: &Record, config: &Config) -> Option<String> {
    let asks = |claim: &Claim| {
        if let Some(policy) = claim.policies().find(|p| config.release_for(p).require.contains(&Requirement::Manual)) {
            return Some(format!("policy {policy} requires it"));
        }
        // Reboots and replacements are shown to a person as long as nothing here can prove them.
        let asked: BTreeSet<Recovery> = claim.recovery.iter().copied().collect();
        let words: Vec<&str> = asked.into_iter().map(Recovery::as_str).collect();
        (!words.is_empty()).then(|| format!("{} asks for recovery {}", claim.subject(), words.join(" and ")))
    };
    record.claims.iter().filter(|c| c.state == ClaimState::Cleared).find_map(asks)
}

/// When a claim that was released by hand stops counting: seen cleared for its hold-down.
pub(super) fn forgotten_at(claim: &Claim, config: &Config) -> Option<Timestamp> {
    (claim.state == ClaimState::Released)
        .then_some(claim.cleared)
        .flatten()
        .map(|cleared| later(cleared, claim.policies().map(|p| config.release_for(p).after).max().unwrap_or_default()))
}
