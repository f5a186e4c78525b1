//! When a node may be given back: every claim cleared, the hold-down over, what is required shown, and nobody holding it.
//!
//! What is required grows here: a stronger requirement is one more [`Wait`].

use std::time::Duration;

use jiff::Timestamp;

use super::{
    claim::{Claim, ClaimState, Episode, Recovery},
    evidence::{Finding, Shown, needing},
    ledger::Open,
    machine::MachineEvent,
    record::Record,
    recurrence::{self, lengthened, releases},
    scope::word,
};
use crate::{
    alert::Fingerprint,
    locate::NodeFacts,
    policy::{Config, Prometheus, Requirement},
};

/// What is known about a node besides what stands on it. Nothing, by default: then what needs it waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// What was last shown about it.
    pub shown: Option<&'a Shown>,
    /// Why alerts may fire of which nobody has told us, as a clause, if so.
    pub unheard: Option<&'a str>,
    /// The annotation `recovery_query` of alerts as Prometheus itself renders it.
    pub rendered: &'a [(Fingerprint, String)],
    /// Past episodes of its machine, besides those on its record.
    pub past: &'a [Episode],
    /// Why nothing new is begun, as a clause, if so.
    pub paused: Option<&'a str>,
    /// Why nothing is released, as a clause, if so.
    pub no_releases: Option<&'a str>,
    /// The claims that its machine had when its former Node was deleted.
    pub left_behind: Option<&'a Open>,
}

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
    /// The machine must be repaired in a certain way, and what asks for it.
    Repair(String),
    /// Nobody can tell whether the fault is gone, and why not.
    Blind(String),
    /// The fault is still seen, and by what.
    Fault(String),
    /// The hold-down, until then.
    HoldDown(Timestamp),
    /// Nothing is released now: a person said so, and why.
    Paused(String),
    /// Alerts may fire that nobody told us of, and why.
    Unheard(String),
    /// The fault must have been seen to be gone for so long, and was for so long.
    Proving {
        /// What is seen.
        subject: String,
        /// For how long it was.
        lasted: Duration,
        /// For how long it must be.
        needs: Duration,
    },
}

impl Wait {
    /// Whether it ends only by what a person does.
    pub(super) fn is_for_a_person(&self) -> bool {
        matches!(self, Self::Held(_) | Self::ForeignKey(_) | Self::Overflow | Self::Person(_) | Self::Repair(_))
    }

    /// Whether the fault is not proven gone although time has passed.
    pub(super) fn is_for_evidence(&self) -> bool {
        matches!(self, Self::Blind(_) | Self::Fault(_))
    }
}

/// What an isolated node still waits for; `None` if it may be released now.
pub(super) fn waits_for(node: &NodeFacts, record: &Record, config: &Config, known: Known<'_>, now: Timestamp) -> Option<Wait> {
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
    let shown = known.shown.filter(|shown| shown.uid == node.uid);
    let needs = hold_down(record, config, known.past);
    let cleared = || record.claims.iter().filter(|c| c.state == ClaimState::Cleared);
    if let Some(asks) = cleared().find_map(|c| asks_for_a_person(c, shown, config)) {
        return Some(Wait::Person(asks));
    }
    if let Some(asks) = recurrence::asks_for_a_person(record, known.past, config) {
        return Some(Wait::Person(asks));
    }
    if let Some(asks) = cleared().find_map(|c| asks_for_a_repair(c, shown)) {
        return Some(Wait::Repair(asks));
    }
    // Whoever looks at a node in its hold-down is to see at once that it will not end.
    let lacks = lacks_evidence(record, config, shown, needs, now);
    if shown.is_some() && lacks.as_ref().is_some_and(Wait::is_for_evidence) {
        return lacks;
    }
    if let Some(due) = due(record, config, known.past).filter(|due| now < *due) {
        return Some(Wait::HoldDown(due));
    }
    if let Some(why) = known.no_releases {
        return Some(Wait::Paused(why.to_owned()));
    }
    known.unheard.map(|why| Wait::Unheard(why.to_owned())).or(lacks)
}

/// Whether a taint of that key may be ours.
pub(super) fn is_our_key(key: &str, config: &Config) -> bool {
    key == config.isolation.taint_key || config.isolation.former_keys.contains(key)
}

/// When the hold-downs of all cleared claims are over.
pub(super) fn due(record: &Record, config: &Config, past: &[Episode]) -> Option<Timestamp> {
    // The longest hold-down of any claim, from the last clearing of any.
    let cleared = record.claims.iter().filter_map(Claim::evidence_since).max()?;
    Some(later(cleared, hold_down(record, config, past)))
}

/// The longest hold-down of any claim, longer for a node that flaps.
pub(super) fn hold_down(record: &Record, config: &Config, past: &[Episode]) -> Duration {
    let after = record.claims.iter().flat_map(Claim::policies).map(|p| config.release_for(p).after).max().unwrap_or_default();
    lengthened(after, releases(record, past, &config.flapping), &config.flapping)
}

/// `at` plus a configured duration; the end of time instead of an overflow.
pub(super) fn later(at: Timestamp, after: Duration) -> Timestamp {
    at.checked_add(after).unwrap_or(Timestamp::MAX)
}

/// Whether a policy of the claim requires evidence.
pub(super) fn requires_evidence(claim: &Claim, config: &Config) -> bool {
    claim.policies().any(|p| config.release_for(p).require.contains(&Requirement::Evidence))
}

fn lacks_evidence(record: &Record, config: &Config, shown: Option<&Shown>, needs: Duration, now: Timestamp) -> Option<Wait> {
    let valid_for = config.prometheus.as_ref().map(Prometheus::valid_for).unwrap_or_default();
    needing(record, config).find_map(|claim| {
        let subject = claim.subject();
        let blind = |why: &str| Some(Wait::Blind(format!("{subject}: {why}")));
        let Some(of_node) = shown else { return blind("Prometheus has not answered yet") };
        let Some(shown) = of_node.of(claim) else { return blind("Prometheus has not been asked about it yet") };
        if of_node.is_stale(valid_for, now) {
            return blind(&format!("Prometheus has not answered since {}", of_node.at));
        }
        match &shown.now {
            Finding::Nothing(why) => blind(why),
            Finding::Fault(why) => Some(Wait::Fault(format!("{subject}: {why}"))),
            Finding::Gone if shown.lasted < needs => Some(Wait::Proving { subject, lasted: shown.lasted, needs }),
            Finding::Gone => None,
        }
    })
}

/// Whether another GPU is seen in the place of the claim's.
fn is_replaced(claim: &Claim, shown: Option<&Shown>) -> bool {
    shown.and_then(|shown| shown.of(claim)).is_some_and(|shown| shown.replaced)
}

fn asks_for_a_person(claim: &Claim, shown: Option<&Shown>, config: &Config) -> Option<String> {
    if let Some(policy) = claim.policies().find(|p| config.release_for(p).require.contains(&Requirement::Manual)) {
        return Some(format!("policy {policy} requires it"));
    }
    let subject = claim.subject();
    if claim.recovery.contains(&Recovery::Manual) {
        return Some(format!("{subject} asks for recovery manual"));
    }
    // Another GPU has nothing of the old one's fault.
    if !requires_evidence(claim, config) || is_replaced(claim, shown) {
        return None;
    }
    if let Some(why) = &claim.unproven {
        return Some(format!("{subject} cannot be proven gone, {why}"));
    }
    if claim.unlabelled {
        return Some(format!("{subject} has no label recovery, so nothing here can prove its end"));
    }
    let repairs = claim.recovery.iter().any(|r| matches!(r, Recovery::Reboot | Recovery::Replace));
    (claim.queries.is_empty() && !repairs).then(|| format!("{subject} has no annotation recovery_query that could prove its end"))
}

fn asks_for_a_repair(claim: &Claim, shown: Option<&Shown>) -> Option<String> {
    if is_replaced(claim, shown) {
        return None;
    }
    let event = claim.machine.as_ref().map(|machine| machine.event);
    let missing = claim.recovery.iter().find(|asked| match asked {
        Recovery::Reboot => event.is_none(),
        Recovery::Replace => event != Some(MachineEvent::Exchanged),
        Recovery::Manual => false,
    })?;
    Some(match missing {
        Recovery::Reboot => format!("reboot the machine: {} asks for recovery reboot", claim.subject()),
        _ => format!("replace the GPU or the machine: {} asks for recovery replace", claim.subject()),
    })
}

/// When a claim that was released by hand stops counting: seen cleared for its hold-down.
pub(super) fn forgotten_at(claim: &Claim, config: &Config) -> Option<Timestamp> {
    (claim.state == ClaimState::Released)
        .then_some(claim.cleared)
        .flatten()
        .map(|cleared| later(cleared, claim.policies().map(|p| config.release_for(p).after).max().unwrap_or_default()))
}
