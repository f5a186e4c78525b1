//! The decision about one node: pure, and a fixpoint (deciding again on its own result changes nothing).

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    claim::{ClaimState, Episode},
    fold::{Folded, Heard, fold, widen_after_reboot},
    guard::Slots,
    outcome::{Outcome, Verdict},
    record::{Added, Before, Record, Stored, Unknown, read},
    release::{Wait, forgotten_at, waits_for},
    scope::{Standing, standing, word},
};
use crate::{
    alert::Status,
    locate::{NodeFacts, Taint},
    policy::{Action, Config},
};

/// The effect of every taint of ours.
pub(super) const EFFECT: &str = "NoSchedule";
/// The name of the record's annotation, below our domain.
pub(super) const RECORD: &str = "record";

/// Everything besides the node that a decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The fleet as the guard sees it.
    pub slots: Slots,
    /// Our clock.
    pub now: Timestamp,
    /// Whether `heard` is all that fires for this node: then members that it does not name are over.
    pub complete: bool,
}

/// How the node's effective action changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It becomes isolated.
    Isolate,
    /// It is given back.
    Release,
    /// It should be isolated, and the guard refuses.
    Refuse,
    /// It waited for the guard, and no longer needs to.
    Withdraw,
}

/// What is to be written, and what became of each alert.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a decision does nothing until its patch is applied"]
pub struct Decision {
    /// One merge patch with the resourceVersion that it was decided on; `None` if nothing is to be written.
    pub patch: Option<Value>,
    /// The change of the effective action, the policy behind it and why.
    pub effect: Option<(Effect, Option<String>, String)>,
    /// Whether the patch must be written at once. One that only notes that alerts ended while others hold the node may wait:
    /// if it is lost, the node stays isolated for longer and nothing else happens.
    pub urgent: bool,
    /// One verdict per alert, in their order.
    pub verdicts: Vec<Verdict>,
}

impl Decision {
    fn nothing(verdicts: Vec<Verdict>) -> Self {
        Self { patch: None, effect: None, urgent: false, verdicts }
    }
}

/// Decide about one node.
pub fn decide(node: &NodeFacts, heard: &[Heard<'_>], ctx: &Context<'_>) -> Decision {
    let all = |outcome: Outcome, reason: &str| {
        let verdict = |h: &Heard<'_>| match (h.alert.status, h.rule) {
            // A resolve of something that we never took up is no news, whatever the node's state.
            (Status::Resolved, None) => Verdict::new(Outcome::Unchanged, "nothing of it is on record"),
            _ => Verdict::new(outcome, reason),
        };
        Decision::nothing(heard.iter().map(verdict).collect())
    };
    let text = node.annotations.get(&ctx.config.annotation(RECORD)).map(String::as_str);
    let stored = read(text, node, &ctx.config.instance);
    let standing = standing(node, ctx.config);
    if let Standing::Untouchable(why) = &standing {
        return all(Outcome::OutOfScope, why);
    }
    if let (Standing::OutOfScope(why), Stored::None | Stored::Unreadable(_)) = (&standing, &stored) {
        return all(Outcome::OutOfScope, why);
    }
    if let Stored::Untouchable(why) = &stored {
        return all(Outcome::Failed, why);
    }
    if let Some(reason) = word(node, ctx.config, "ignore") {
        return all(Outcome::Ignored, &format!("a person said that nothing is done to this node: {reason}"));
    }

    let (old, unreadable) = match stored {
        Stored::Ours(record) => (Some(*record), None),
        Stored::Unreadable(_) => (None, text.map(str::to_owned)),
        Stored::None | Stored::Untouchable(_) => (None, None),
    };
    let mut next = Next {
        record: old.clone().unwrap_or_else(|| Record::new(&ctx.config.instance, node)),
        taints: node.taints.clone(),
        unschedulable: node.unschedulable,
        effect: None,
    };
    widen_after_reboot(&mut next.record, node);
    let no_new_claims = match &standing {
        Standing::OutOfScope(why) => Some(why.as_str()),
        _ => None,
    };
    let was_pending = old.as_ref().is_some_and(is_pending);
    let folded = fold(&mut next.record, node, heard, ctx.complete, no_new_claims, ctx.now);
    next.settle_claims(ctx);
    next.taint_taken_away(node, ctx);
    next.isolate_or_release(node, ctx, no_new_claims, was_pending);

    let verdicts = heard.iter().zip(folded).map(|(h, f)| next.verdict(node, h, f, ctx)).collect();
    match next.patch(node, old.as_ref(), unreadable, ctx) {
        Ok(patch) => {
            let urgent = patch.as_ref().is_some_and(|p| p.get("spec").is_some())
                || next.effect.is_some()
                || old.is_none_or(|old| !next.record.is_milder_than(&old));
            Decision { patch, effect: next.effect, urgent, verdicts }
        }
        Err(why) => all(Outcome::Failed, why),
    }
}

/// Whether a node waits for the guard: something wants it isolated, and it is not.
pub(super) fn is_pending(record: &Record) -> bool {
    record.added.is_none() && wanted(record).is_some()
}

/// The policy that wants the node isolated: that of the strongest live claim, the oldest of several.
fn wanted(record: &Record) -> Option<&super::claim::Claim> {
    let live = record.claims.iter().filter(|c| c.state == ClaimState::Firing && c.action.isolates());
    // Of equals `max_by` takes the last; the first is the one that the body named first.
    live.rev().max_by(|a, b| a.action.cmp(&b.action).then(b.since.cmp(&a.since)))
}

/// The node as it shall be.
struct Next {
    record: Record,
    taints: Vec<Taint>,
    unschedulable: bool,
    effect: Option<(Effect, Option<String>, String)>,
}

impl Next {
    /// Claims follow their members; our clock says when they cleared.
    fn settle_claims(&mut self, ctx: &Context<'_>) {
        for claim in &mut self.record.claims {
            let fires = claim.fires();
            match claim.state {
                ClaimState::Firing | ClaimState::Cleared if fires => {
                    claim.state = ClaimState::Firing;
                    claim.cleared = None;
                }
                ClaimState::Firing => {
                    claim.state = ClaimState::Cleared;
                    claim.cleared = Some(ctx.now);
                }
                ClaimState::Released if fires => claim.cleared = None,
                // A record edited by hand may lack the time; the hold-down then runs from now.
                ClaimState::Cleared | ClaimState::Released => claim.cleared = claim.cleared.or(Some(ctx.now)),
            }
        }
        let over = |c: &super::claim::Claim| forgotten_at(c, ctx.config).is_some_and(|at| at <= ctx.now);
        self.record.claims.retain(|c| !over(c));
    }

    /// Somebody took our taint away (P10): put it back once while the fault lasts, then leave the node alone.
    fn taint_taken_away(&mut self, node: &NodeFacts, ctx: &Context<'_>) {
        let policy = wanted(&self.record).map(|c| c.policy.clone());
        let Some(added) = &mut self.record.added else { return };
        let foreign = self.record.before.as_ref().and_then(|b| b.taint.as_ref());
        let Some(taint) = added.taint.as_ref().or(foreign) else { return };
        if node.taints.iter().any(|t| t.key == taint.key && t.effect == taint.effect) {
            return;
        }
        let by_hand = node.taints_manager.as_ref().is_some_and(|m| ctx.config.human_managers.iter().any(|p| p.matches(m)));
        match (policy, added.taint.is_some()) {
            (Some(_), true) if !added.restored && !by_hand => {
                let (taint, policy) = (taint.clone(), taint.value.clone());
                added.restored = true;
                self.taints.push(taint);
                let reason = "our taint was taken away while the fault lasts: put back once".to_owned();
                self.effect = Some((Effect::Isolate, policy, reason));
                return;
            }
            (Some(policy), false) => {
                self.isolate(node, ctx, &policy);
                let reason = "the taint that stood here before is gone and the fault lasts".to_owned();
                self.effect = Some((Effect::Isolate, Some(policy), reason));
                return;
            }
            _ => {}
        }
        let reason = "our taint was taken away: the node counts as released by hand".to_owned();
        self.give_back(node, ctx, "hand", reason);
        // The fault may go on: it is left alone until it was seen to end.
        for claim in self.record.claims.iter_mut().filter(|c| c.action.isolates()) {
            claim.state = ClaimState::Released;
        }
    }

    fn isolate_or_release(&mut self, node: &NodeFacts, ctx: &Context<'_>, barred: Option<&str>, was_pending: bool) {
        if self.record.added.is_some() {
            if waits_for(node, &self.record, ctx.config, ctx.now).is_none() {
                let reason = "every claim cleared and the hold-down is over".to_owned();
                self.give_back(node, ctx, "resolved", reason);
                self.record.claims.retain(|c| c.state == ClaimState::Released);
            }
            return;
        }
        // Nothing of ours stands on the node, so there is nothing to hold down.
        self.record.claims.retain(|c| c.state != ClaimState::Cleared);
        let Some((policy, action, reason)) =
            wanted(&self.record).map(|c| (c.policy.clone(), c.action, c.subject())).filter(|_| barred.is_none())
        else {
            if was_pending && self.effect.is_none() {
                self.effect = Some((Effect::Withdraw, None, "the fault ended before there was room".to_owned()));
            }
            self.record.overflow &= !self.record.claims.is_empty();
            return;
        };
        if ctx.slots.admits() {
            self.isolate(node, ctx, &policy);
            self.effect = Some((Effect::Isolate, Some(policy), format!("{reason} ({action})")));
        } else if !was_pending {
            self.effect = Some((Effect::Refuse, Some(policy), ctx.slots.refusal()));
        }
    }

    fn isolate(&mut self, node: &NodeFacts, ctx: &Context<'_>, policy: &str) {
        let isolation = &ctx.config.isolation;
        let standing = self.taints.iter().find(|t| t.key == isolation.taint_key && t.effect == EFFECT).cloned();
        // One key and effect can stand on a node once: what is there already isolates as well, and is not ours.
        let ours = standing.is_none().then(|| Taint {
            key: isolation.taint_key.clone(),
            value: Some(policy.to_owned()),
            effect: EFFECT.to_owned(),
            other: Unknown::new(),
        });
        self.taints.extend(ours.clone());
        let ours_already = self.record.added.as_ref().is_some_and(|a| a.cordon);
        let cordon = ours_already || (isolation.cordon && !node.unschedulable);
        self.unschedulable |= cordon;
        let unschedulable = node.unschedulable && !ours_already;
        self.record.before = Some(Before { unschedulable, taint: standing, other: Unknown::new() });
        self.record.added = Some(Added { taint: ours, cordon, at: ctx.now, restored: false, other: Unknown::new() });
    }

    /// Take back exactly what the record says we added, and write the history.
    fn give_back(&mut self, node: &NodeFacts, ctx: &Context<'_>, by: &str, reason: String) {
        let Some(added) = self.record.added.take() else { return };
        let policy = added.taint.as_ref().and_then(|t| t.value.clone());
        if let Some(ours) = added.taint {
            // One whose value is another was written by somebody else.
            self.taints.retain(|t| !(t.key == ours.key && t.effect == ours.effect && t.value == ours.value));
        }
        if added.cordon && node.unschedulable {
            self.unschedulable = false;
        }
        self.record.before = None;
        self.record.overflow = false;
        for claim in self.record.claims.iter().filter(|c| c.state != ClaimState::Released) {
            self.record.history.push(Episode {
                alert: claim.alert.clone(),
                gpu: claim.gpu.clone(),
                from: claim.since,
                to: ctx.now,
                by: by.to_owned(),
                other: Unknown::new(),
            });
        }
        self.effect = Some((Effect::Release, policy, reason));
    }

    fn verdict(&self, node: &NodeFacts, heard: &Heard<'_>, folded: Folded, ctx: &Context<'_>) -> Verdict {
        let (i, changed) = match folded {
            Folded::Done(verdict) => return verdict,
            Folded::NothingToEnd => return Verdict::new(Outcome::Unchanged, "nothing is on record that it could end"),
            Folded::Overflow => {
                let why = "the record is full: the node stays isolated until a person releases it";
                return Verdict::new(Outcome::Recorded, why);
            }
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
        match claim.map(|c| c.state) {
            Some(ClaimState::Released) => {
                let why = "the node was released by hand: left alone until this alert was seen to end";
                Verdict::new(Outcome::Unchanged, why)
            }
            _ if !action.isolates() => Verdict::new(Outcome::Frozen, "the node is not released while it fires"),
            _ if self.record.added.is_none() => Verdict::new(Outcome::Pending, ctx.slots.refusal()),
            _ if changed => Verdict::new(Outcome::Recorded, "the node is isolated"),
            _ => Verdict::new(Outcome::Unchanged, "it is on record and the node is isolated"),
        }
    }

    fn after_a_resolve(&self, node: &NodeFacts, ctx: &Context<'_>) -> String {
        if self.record.added.is_none() {
            return "the node is not isolated".to_owned();
        }
        match waits_for(node, &self.record, ctx.config, ctx.now) {
            Some(Wait::Firing) => "other alerts of the node fire".to_owned(),
            Some(Wait::HoldDown(until)) => format!("the node is released at {until} if nothing fires again"),
            _ => "the node waits for a person".to_owned(),
        }
    }

    /// The merge patch from the node as it is to the node as it shall be. Errors if the record cannot be made to fit.
    fn patch(
        &self,
        node: &NodeFacts,
        old: Option<&Record>,
        unreadable: Option<String>,
        ctx: &Context<'_>,
    ) -> Result<Option<Value>, &'static str> {
        let mut annotations = Map::new();
        let name = ctx.config.annotation(RECORD);
        if self.record.is_blank() {
            if old.is_some() {
                annotations.insert(name.clone(), Value::Null);
            }
        } else {
            let Some((record, text)) = self.record.clone().fit() else {
                return Err("the record would be longer than 16 KiB: remove what other programs added to it");
            };
            if old != Some(&record) {
                annotations.insert(name.clone(), text.into());
            }
        }
        let mut spec = Map::new();
        if self.taints != node.taints {
            spec.insert("taints".to_owned(), json!(self.taints));
        }
        if self.unschedulable != node.unschedulable {
            let cordon = if self.unschedulable { Value::Bool(true) } else { Value::Null };
            spec.insert("unschedulable".to_owned(), cordon);
        }
        if annotations.is_empty() && spec.is_empty() {
            return Ok(None);
        }
        if let Some(text) = unreadable {
            annotations.insert(ctx.config.annotation("record-corrupt"), text.into());
        }
        let mut patch = json!({ "metadata": { "resourceVersion": node.resource_version } });
        if !annotations.is_empty() {
            patch["metadata"]["annotations"] = annotations.into();
        }
        if !spec.is_empty() {
            patch["spec"] = spec.into();
        }
        Ok(Some(patch))
    }
}
