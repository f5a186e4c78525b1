//! What becomes of claims when the machine below a node is booted again, or is another one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    claim::{Claim, ClaimState},
    record::{Identity, Record, Unknown},
};
use crate::locate::{Gpu, NodeFacts};

/// The machine below the node is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineChange {
    /// What happened to it.
    pub event: MachineEvent,
    /// When it was noticed, on our clock.
    pub at: Timestamp,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// What can happen to a machine, the stronger last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineEvent {
    /// It booted again: another `bootID`.
    Rebooted,
    /// It is another one: another `systemUUID`.
    Exchanged,
}

/// Note on every claim what happened to the machine since the record was written. Whatever was seen before that proves nothing about
/// the machine as it is now: the hold-down begins anew.
pub(super) fn note_machine(record: &mut Record, node: &NodeFacts, now: Timestamp) {
    let is = Identity::of(node);
    // Kernels differ in how they spell a systemUUID.
    let differs = |was: &Option<String>, is: &Option<String>| {
        was.as_ref().zip(is.as_ref()).is_some_and(|(was, is)| !was.trim().eq_ignore_ascii_case(is.trim()))
    };
    let exchanged = differs(&record.node.system_uuid, &is.system_uuid);
    let rebooted = differs(&record.node.boot_id, &is.boot_id);
    let event = match (exchanged, rebooted) {
        (true, _) => MachineEvent::Exchanged,
        (false, true) => MachineEvent::Rebooted,
        (false, false) => return,
    };
    record.node.system_uuid = is.system_uuid.or(record.node.system_uuid.take());
    record.node.boot_id = is.boot_id.or(record.node.boot_id.take());
    for claim in &mut record.claims {
        // Another machine remains another one, however often it boots.
        let event = claim.machine.as_ref().map_or(event, |before| before.event.max(event));
        claim.machine = Some(MachineChange { event, at: now, other: Unknown::new() });
    }
    widen(record);
}

/// An index names a GPU only until the node reboots: afterwards such a claim is one on the node as a whole.
pub(super) fn widen(record: &mut Record) {
    let (by_index, mut claims): (Vec<Claim>, Vec<Claim>) =
        record.claims.drain(..).partition(|c| matches!(c.gpu, Some(Gpu::Index(_))));
    for mut claim in by_index {
        claim.gpu = None;
        let Some(whole) = claims.iter_mut().find(|c| c.alert == claim.alert && c.gpu.is_none()) else {
            claims.push(claim);
            continue;
        };
        for policy in claim.policies() {
            whole.matched(policy, whole.action);
        }
        whole.matched(&claim.policy, claim.action);
        for member in claim.members {
            match whole.members.iter_mut().find(|m| m.fp == member.fp) {
                Some(known) if member.fires() => *known = member,
                Some(_) => {}
                None => whole.members.push(member),
            }
        }
        whole.since = whole.since.min(claim.since);
        whole.cleared = whole.cleared.max(claim.cleared);
        if claim.state == ClaimState::Firing {
            whole.state = ClaimState::Firing;
            whole.cleared = None;
        }
        for asked in claim.recovery {
            if let Err(at) = whole.recovery.binary_search(&asked) {
                whole.recovery.insert(at, asked);
            }
        }
        whole.unlabelled |= claim.unlabelled;
        whole.unproven = whole.unproven.take().or(claim.unproven);
        for query in claim.queries {
            whole.add_query(query.as_str());
        }
    }
    record.claims = claims;
}
