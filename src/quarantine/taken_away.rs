//! What it means that our taint is not there any more (P10).

use super::{
    decide::{Context, EFFECT, Effect, Next, strongest},
    release::{is_our_key, waits_for},
};
use crate::locate::{Gpu, NodeFacts};

impl Next {
    /// Somebody took away our taint, or the foreign one that isolated in its place (P10): put ours there once while the fault
    /// lasts, then leave the node alone. `known` are the claims that were on record before this decision.
    pub(super) fn taint_taken_away(
        &mut self,
        node: &NodeFacts,
        ctx: &Context<'_>,
        known: &[(String, Option<Gpu>)],
        barred: bool,
    ) {
        let Some(added) = &self.record.added else { return };
        let before = self.record.before.as_ref().and_then(|b| b.taint.as_ref());
        let (key, effect) = match added.taint.as_ref().or(before) {
            Some(taint) => (&taint.key, taint.effect.as_str()),
            None => (&ctx.config.isolation.taint_key, EFFECT),
        };
        // As the node shall be: what this decision itself puts there, for a machine that came back, was never taken away.
        if self.taints.iter().any(|t| t.key == *key && t.effect == effect) {
            return;
        }
        // Who changed the list last, as far as Kubernetes tells; whoever takes away a taint that was not ours says nothing about it.
        let manager = node.taints_manager.as_ref().filter(|_| added.taint.is_some());
        let by_hand = manager.is_some_and(|m| ctx.config.human_managers.iter().any(|p| p.matches(m)));
        let by_program = manager.is_some() && !by_hand;
        let ours = added.taint.as_ref().filter(|t| is_our_key(&t.key, ctx.config)).and_then(|t| t.value.clone());
        // A silence begins nothing, and ends nothing: what stood there is put back under it as well.
        let holds = strongest(&self.record, |_| true);
        let policy = match holds {
            Some(claim) if !by_hand => Some(ours.unwrap_or_else(|| claim.policy.clone())),
            // While it waits for its release, a program's hand is no reason for one.
            None if by_program => ours,
            _ => None,
        };
        if let Some(policy) = policy.filter(|_| !added.restored && !barred) {
            self.put_back(ctx, policy);
            return;
        }
        // The foreign taint only went before us, unless a person was asked to take it away.
        let asked = || waits_for(node, &self.record, ctx.config, ctx.known, ctx.now).is_some_and(|wait| wait.is_for_a_person());
        if added.taint.is_none() && holds.is_none() && !asked() {
            return;
        }
        // What begins only now was not known to whoever released the node: it is no part of that.
        let (released, new) = self.record.claims.drain(..).partition(|c| known.iter().any(|k| k.0 == c.alert && k.1 == c.gpu));
        self.record.claims = released;
        let reason = "our taint was taken away: the node counts as released by hand".to_owned();
        self.give_back_by_hand(node, ctx, reason);
        self.record.claims.extend::<Vec<_>>(new);
    }

    /// Always under the key and effect of today: a record says which taint was ours, not which taints we may add.
    fn put_back(&mut self, ctx: &Context<'_>, policy: String) {
        let (standing, ours) = self.our_taint(ctx, &policy);
        self.taints.extend(ours.clone());
        if let Some(before) = &mut self.record.before {
            before.taint = standing;
        }
        if let Some(added) = &mut self.record.added {
            added.taint = ours;
            added.restored = true;
        }
        let reason = "our taint was taken away and nobody released the node: put back once".to_owned();
        self.effect = Some((Effect::Isolate, Some(policy), reason));
    }
}
