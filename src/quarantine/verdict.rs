//! What becomes of each alert, once it is decided what becomes of its node.

use super::{
    claim::ClaimState,
    decide::{Context, Next, is_pending},
    fold::{Folded, Heard},
    guard::Turn,
    outcome::{Outcome, Verdict},
    release::{Wait, requires_evidence, waits_for},
    scope::word,
};
use crate::{locate::NodeFacts, policy::Action};

impl Next {
    /// The verdict on one alert.
    pub(super) fn verdict(
        &self,
        node: &NodeFacts,
        heard: &Heard<'_>,
        folded: Folded,
        ctx: &Context<'_>,
        barred: Option<&str>,
    ) -> Verdict {
        let (i, changed) = match folded {
            Folded::Done(verdict) => return verdict,
            Folded::NothingToEnd => return Verdict::new(Outcome::Unchanged, "nothing is on record that it could end"),
            Folded::Overflow => return self.without_room(node, heard, ctx),
            Folded::Resolved => {
                return match word(node, ctx.config, "hold") {
                    Some(why) if self.record.added.is_some() => {
                        Verdict::new(Outcome::Held, format!("it is over, and a person holds the node: {why}"))
                    }
                    _ => Verdict::new(Outcome::Resolved, self.after_a_resolve(node, ctx)),
                };
            }
            Folded::In(i, changed) => (i, changed),
        };
        // Claims that fire are never dropped while deciding, but the index may have moved past dropped ones.
        let claim = self
            .record
            .claims
            .iter()
            .find(|c| c.alert == heard.alert.name && c.members.iter().any(|m| m.fp == heard.alert.fingerprint))
            .or_else(|| self.record.claims.get(i));
        let action = claim.map_or(Action::Freeze, |c| c.action);
        if let Some(why) = heard.muted {
            let stays = if self.record.added.is_some() { "the node stays isolated" } else { "nothing is begun for it" };
            return Verdict::new(Outcome::Silenced, format!("{stays}: it is {why}"));
        }
        match claim.map(|c| c.state) {
            Some(ClaimState::Released) => {
                let why = "the node was released by hand: left alone until this alert was seen to end";
                Verdict::new(Outcome::Unchanged, why)
            }
            _ if !action.isolates() => Verdict::new(Outcome::Frozen, "the node is not released while it fires"),
            _ if self.record.added.is_none() && barred.is_some() => Verdict::new(Outcome::OutOfScope, barred.unwrap_or_default()),
            _ if self.record.added.is_none() => Verdict::new(Outcome::Pending, self.refusal(node, ctx)),
            _ if changed => Verdict::new(Outcome::Recorded, "the node is isolated"),
            _ => Verdict::new(Outcome::Unchanged, "it is on record and the node is isolated"),
        }
    }

    /// Why the node waits.
    fn refusal(&self, node: &NodeFacts, ctx: &Context<'_>) -> String {
        let refusal = Turn::of(&self.record, ctx.config).and_then(|turn| ctx.refusal(node, &turn));
        refusal.unwrap_or_else(|| "it waits for room".to_owned())
    }

    /// What became of a firing alert for which the record has no room.
    fn without_room(&self, node: &NodeFacts, heard: &Heard<'_>, ctx: &Context<'_>) -> Verdict {
        if self.record.added.is_some() {
            let why = "the record is full: the node stays isolated until a person releases it";
            return Verdict::new(Outcome::Recorded, why);
        }
        if is_pending(&self.record) {
            return Verdict::new(Outcome::Pending, format!("the record is full; {}", self.refusal(node, ctx)));
        }
        if self.record.overflow && heard.rule.is_some_and(|r| !r.action.isolates()) {
            return Verdict::new(Outcome::Frozen, "the record is full: once isolated, the node is not released by itself");
        }
        Verdict::new(Outcome::Failed, "the record is full, and nothing that is on it isolates the node")
    }

    fn after_a_resolve(&self, node: &NodeFacts, ctx: &Context<'_>) -> String {
        if self.record.added.is_none() {
            return "the node is not isolated".to_owned();
        }
        let needs = self.record.claims.iter().any(|c| c.state == ClaimState::Cleared && requires_evidence(c, ctx.config));
        match waits_for(node, &self.record, ctx.config, ctx.known, ctx.now) {
            Some(Wait::Firing) => "other alerts of the node fire".to_owned(),
            Some(Wait::HoldDown(until)) if needs => {
                format!("the node is released after {until} if its fault is shown to be gone until then")
            }
            Some(Wait::HoldDown(until)) => format!("the node is released at {until} if nothing fires again"),
            Some(Wait::Blind(_) | Wait::Fault(_) | Wait::Proving { .. }) => {
                "the node waits until its fault is shown to be gone".to_owned()
            }
            Some(Wait::Unheard(why) | Wait::Paused(why)) => format!("the node waits: {why}"),
            Some(Wait::Repair(asks)) => format!("the node waits for a repair: {asks}"),
            _ => "the node waits for a person".to_owned(),
        }
    }
}
