//! A machine whose Node was deleted while it was isolated, and that registers anew: the same broken hardware under a new UID.

use super::{
    claim::ClaimState,
    decide::{Context, Effect, Next, strongest},
    guard::Turn,
    ledger::Open,
    machine::widen,
    record::Unknown,
};
use crate::locate::NodeFacts;

impl Next {
    /// Take over the claims of the Node that the machine had before, and isolate it as that was. Where the guard refuses, all of
    /// them wait in this record.
    pub(super) fn take_over(&mut self, node: &NodeFacts, open: &Open, ctx: &Context<'_>) {
        let carried = open.claims.iter().filter(|c| c.state != ClaimState::Released).cloned();
        self.record.claims = carried.collect();
        for claim in &mut self.record.claims {
            // What was seen of the former Node proves nothing about this one.
            if claim.state == ClaimState::Cleared {
                claim.cleared = Some(ctx.now);
            }
        }
        self.record.overflow = open.overflow;
        self.record.gpus = open.gpus;
        self.record.node.boot_id = open.boot_id.clone().or(self.record.node.boot_id.take());
        let former = [("node", &open.node), ("uid", &open.uid)].map(|(key, text)| (key.to_owned(), text.as_str().into()));
        self.record.former = Some(Unknown::from(former));
        widen(&mut self.record);
        if !open.isolated {
            return;
        }
        let first = || self.record.claims.iter().filter(|c| c.action.isolates()).max_by_key(|c| c.action);
        let Some(claim) = strongest(&self.record, |_| true).or_else(first) else { return };
        let (policy, subject) = (claim.policy.clone(), claim.subject());
        // Whoever silenced its alerts did not release it.
        let turn = Turn::of(&self.record, ctx.config).unwrap_or_else(|| Turn::of_claim(claim, ctx.config));
        if ctx.refusal(node, &turn).is_some() {
            return;
        }
        self.isolate(node, ctx, &policy);
        let reason = format!("{subject}: the machine was isolated as {} before, and that was never released", open.node);
        self.effect = Some((Effect::Isolate, Some(policy), reason));
    }
}
