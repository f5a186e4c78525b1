//! The room of a record: what is never shed must fit, and what is shed first goes first.

use super::{
    claim::{Claim, Member},
    eviction::Evicting,
    record::{MAX_BYTES, Record},
};
use crate::locate::Gpu;

/// Room kept for what grows after an alert was let in: ownership and the mark of an overflow.
const RESERVED: usize = 1024;
/// Room kept for each claim's `cleared` time.
const RESERVED_PER_CLAIM: usize = 64;
/// Episodes kept at most, whatever room there is.
const MAX_HISTORY: usize = 20;

/// The length of a text as JSON, or a little more.
fn quoted(text: &str) -> usize {
    // At worst a character becomes `\u0000`.
    let escaped = text.bytes().filter(|b| *b < 0x20 || matches!(b, b'"' | b'\\')).count();
    2 + text.len() + 5 * escaped
}

impl Record {
    /// Whether what may never be shed fits, with room for what grows later: ownership and times.
    pub(super) fn has_room(&self) -> bool {
        // Serialising again for each alert of a body is what a decision would spend most of its time on.
        if self.length_at_most().is_some_and(|length| length + RESERVED + RESERVED_PER_CLAIM * self.claims.len() <= MAX_BYTES) {
            return true;
        }
        let mut core = self.unsheddable();
        core.restarts.clear();
        core.to_text().len() + RESERVED + RESERVED_PER_CLAIM * core.claims.len() <= MAX_BYTES
    }

    /// The room that is left for pods, in bytes.
    pub(super) fn room_for_pods(&self) -> usize {
        let core = self.unsheddable();
        MAX_BYTES.saturating_sub(core.to_text().len() + RESERVED + RESERVED_PER_CLAIM * core.claims.len())
    }

    /// What stays when all that may be was shed, but for the restarts of groups.
    fn unsheddable(&self) -> Self {
        let mut core = self.clone();
        core.shed_history(0);
        core.shed_notes();
        core.shed_resolved();
        core.eviction = None;
        core
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

    /// A length that what may never be shed does not exceed; `None` with fields that we do not know, or pods on record.
    fn length_at_most(&self) -> Option<usize> {
        // Names, punctuation, times and words of each part.
        const FRAME: usize = 340;
        const CLAIM: usize = 464;
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
        if self.eviction.is_some() || !self.restarts.is_empty() {
            return None;
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
                + claim.fault.as_deref().map_or(0, |fault| 16 + quoted(fault))
                + claim.workloads.iter().map(|pod| 2 + quoted(&pod.to_string())).sum::<usize>()
                + MEMBER * claim.members.len();
        }
        known.then_some(length)
    }

    /// Shed, in this order, until it fits: the oldest history, what alerts said, members that are over, what is said of pods, the pods
    /// (they are found again) and the restarts of groups. `None` if it never does.
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
            } else if self.eviction.as_mut().is_some_and(Evicting::shed_texts) {
                // That was something; what it is about stays.
            } else if self.eviction.is_some() {
                self.eviction = None;
            } else if !self.restarts.is_empty() {
                self.restarts.clear();
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
    use serde_json::{Value, json};

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
                "scope": "node", "fault": "f\u{1}\"", "severity": "critical", "workloads": ["team-a/p-0", "team-a/p-1"], "unproven": "\"\u{1}", "machine": { "event": "exchanged", "at": time }, "members": [member, member],
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
