//! The decision about one node: pure, and a fixpoint (deciding again on its own result changes nothing).

use jiff::Timestamp;
use serde_json::Value;

use super::{
    claim::{Claim, ClaimState, Episode},
    eviction::forget_restarts,
    fold::{Heard, fold},
    guard::{Candidate, Room, Turn, is_healthy, pool_of},
    machine::note_machine,
    outcome::{Outcome, Verdict},
    record::{Added, Before, Record, Stored, Unknown, read},
    release::{Known, forgotten_at, requires_evidence, waits_for},
    scope::{Standing, standing, word},
};
use crate::{
    alert::{Fingerprint, Status},
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
    /// What the guard leaves room for.
    pub room: Room<'a>,
    /// Our clock.
    pub now: Timestamp,
    /// How what was heard came here.
    pub told: Told<'a>,
    /// What else is known about the node.
    pub known: Known<'a>,
}

impl Context<'_> {
    /// Why the node may not be isolated now for what wants it, if so.
    pub(super) fn refusal(&self, node: &NodeFacts, turn: &Turn) -> Option<String> {
        let candidate = Candidate { node: &node.name, pool: pool_of(node, self.config), healthy: is_healthy(node), turn };
        let full = || self.room.refusal(&candidate, self.config, self.now);
        self.known.paused.map(str::to_owned).or_else(full)
    }
}

/// How alerts came here, and what that proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told<'a> {
    /// By a webhook, or by nobody.
    Pushed,
    /// By a webhook that was answered with an error: its sender counts it as never told, and will tell no end of it either.
    Refused,
    /// By a webhook that was answered with success.
    Accepted,
    /// By a pull that proves nothing about what it does not list.
    Pulled,
    /// By a complete pull: members that it does not list are over, but for those heard of after it began.
    Complete {
        /// Those, by their fingerprints.
        newer: &'a [Fingerprint],
    },
}

impl Told<'_> {
    /// Whether the members of a claim can be trusted to be told an end.
    pub(super) fn confirms(self) -> Option<bool> {
        match self {
            Self::Pushed => None,
            Self::Refused => Some(false),
            Self::Accepted | Self::Pulled | Self::Complete { .. } => Some(true),
        }
    }
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

    /// Whether the node bears what this decision wrote: the record, which stands in the same patch as everything else.
    #[must_use]
    pub fn is_carried_out(&self, node: &NodeFacts) -> bool {
        let written = self.patch.as_ref().and_then(|p| p.pointer("/metadata/annotations")).and_then(Value::as_object);
        written.is_some_and(|w| w.iter().all(|(name, text)| node.annotations.get(name).map(String::as_str) == text.as_str()))
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
    let mut next = Next::of(node, old.clone().unwrap_or_else(|| Record::new(&ctx.config.instance, node)));
    if let (None, Some(open), Standing::InScope) = (&old, ctx.known.left_behind, &standing) {
        next.take_over(node, open, ctx);
    }
    note_machine(&mut next.record, node, ctx.now);
    let no_new_claims = match &standing {
        Standing::OutOfScope(why) => Some(why.as_str()),
        _ => None,
    };
    let was_pending = old.as_ref().is_some_and(is_pending);
    // First, so that an alert which fires anew after its hold-down is not taken for the one that was released by hand.
    next.forget(ctx);
    let known: Vec<_> = next.record.claims.iter().map(|c| (c.alert.clone(), c.gpu.clone())).collect();
    let folded = fold(&mut next.record, node, heard, ctx, no_new_claims);
    next.add_rendered(ctx.known.rendered);
    next.settle_claims(ctx);
    next.taint_taken_away(node, ctx, &known, no_new_claims.is_some());
    next.forget(ctx);
    next.isolate_or_release(node, ctx, no_new_claims, was_pending);
    next.count_gpus(node, ctx);

    let verdicts = heard.iter().zip(folded).map(|(h, f)| next.verdict(node, h, f, ctx, no_new_claims)).collect();
    match next.patch(node, old.as_ref(), unreadable, ctx.config) {
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

/// The policy that wants the node isolated: that of the strongest live claim, the oldest of several. One that is silenced, inhibited
/// or muted begins nothing.
pub(super) fn wanted(record: &Record) -> Option<&Claim> {
    strongest(record, |c| !c.is_muted()).or_else(|| brought(record))
}

/// A claim that is over, of a machine that was isolated under another Node and never released.
fn brought(record: &Record) -> Option<&Claim> {
    record.former.as_ref()?;
    record.claims.iter().find(|c| c.state == ClaimState::Cleared && c.action.isolates())
}

/// The same, of those claims.
pub(super) fn strongest(record: &Record, counts: impl Fn(&Claim) -> bool) -> Option<&Claim> {
    let live = record.claims.iter().filter(|c| c.state == ClaimState::Firing && c.action.isolates() && counts(c));
    // Of equals `max_by` takes the last; the first is the one that the body named first.
    live.rev().max_by(|a, b| a.action.cmp(&b.action).then(b.since.cmp(&a.since)))
}

/// The node as it shall be.
pub(super) struct Next {
    pub(super) record: Record,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) effect: Option<(Effect, Option<String>, String)>,
}

impl Next {
    /// The node as it is, with its record.
    pub(super) fn of(node: &NodeFacts, record: Record) -> Self {
        Self { record, taints: node.taints.clone(), unschedulable: node.unschedulable, effect: None }
    }

    /// Claims follow their members; our clock says when they cleared.
    pub(super) fn settle_claims(&mut self, ctx: &Context<'_>) {
        for claim in &mut self.record.claims {
            let fires = claim.fires();
            if !claim.is_muted() {
                claim.muted = None;
            }
            claim.unconfirmed &= fires;
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
    }

    /// What Prometheus itself renders counts besides what was posted.
    fn add_rendered(&mut self, rendered: &[(Fingerprint, String)]) {
        for (fp, query) in rendered {
            for i in 0..self.record.claims.len() {
                let claim = &mut self.record.claims[i];
                if claim.members.iter().any(|m| m.fp == *fp) {
                    let queries = claim.queries.len();
                    claim.add_query(query);
                    self.record.keep_room(i, queries);
                }
            }
        }
    }

    pub(super) fn count_gpus(&mut self, node: &NodeFacts, ctx: &Context<'_>) {
        let evicts = self.record.claims.iter().any(|c| c.action == Action::Evict);
        let counts = (evicts || ctx.config.prometheus.is_some()) && !self.record.claims.is_empty();
        self.record.gpus = if counts { self.record.gpus.max(node.gpus) } else { None };
    }

    /// Claims that were released by hand stop counting, and restarts of long ago.
    pub(super) fn forget(&mut self, ctx: &Context<'_>) {
        self.record.claims.retain(|c| forgotten_at(c, ctx.config).is_none_or(|at| at > ctx.now));
        forget_restarts(&mut self.record.restarts, ctx.now);
    }

    /// What stands where our taint would, and our taint if nothing does: one key and effect can stand on a node once, and what
    /// is there already isolates as well, and is not ours.
    pub(super) fn our_taint(&self, ctx: &Context<'_>, policy: &str) -> (Option<Taint>, Option<Taint>) {
        let key = &ctx.config.isolation.taint_key;
        let standing = self.taints.iter().find(|t| t.key == *key && t.effect == EFFECT).cloned();
        let ours = standing.is_none().then(|| Taint {
            key: key.clone(),
            value: Some(policy.to_owned()),
            effect: EFFECT.to_owned(),
            other: Unknown::new(),
        });
        (standing, ours)
    }

    fn isolate_or_release(&mut self, node: &NodeFacts, ctx: &Context<'_>, barred: Option<&str>, was_pending: bool) {
        if self.record.added.is_some() {
            if waits_for(node, &self.record, ctx.config, ctx.known, ctx.now).is_none() {
                let shown = self.record.claims.iter().any(|c| c.state == ClaimState::Cleared && requires_evidence(c, ctx.config));
                let (by, reason) = if shown {
                    ("evidence", "every fault was seen to be gone for the whole hold-down")
                } else {
                    ("resolved", "every claim cleared and the hold-down is over")
                };
                self.give_back(node, ctx, by, reason.to_owned());
                self.record.claims.retain(|c| c.state == ClaimState::Released);
            }
            return;
        }
        // Nothing of ours stands on the node, so there is nothing to hold down. But what a machine brought with it is still to be shown to
        // be gone, and waits for room as what fires does.
        let brought = self.record.former.is_some();
        self.record.claims.retain(|c| c.state != ClaimState::Cleared || brought);
        if self.record.claims.is_empty() {
            self.record.former = None;
        }
        let wanted = wanted(&self.record).map(|c| (c.action, c.subject())).zip(Turn::of(&self.record, ctx.config));
        let Some(((action, reason), turn)) = wanted.filter(|_| barred.is_none()) else {
            if was_pending && self.effect.is_none() && !is_pending(&self.record) {
                let muted = self.record.claims.iter().find(|c| c.state == ClaimState::Firing).and_then(|c| c.muted.clone());
                let reason = muted.unwrap_or_else(|| "the fault ended before there was room".to_owned());
                self.effect = Some((Effect::Withdraw, None, reason));
            }
            self.record.overflow &= !self.record.claims.is_empty();
            return;
        };
        let policy = turn.policy.clone();
        match ctx.refusal(node, &turn) {
            None => {
                self.isolate(node, ctx, &policy);
                // What is over on a machine that came back is held down from here: until now pods could use it.
                for claim in self.record.claims.iter_mut().filter(|c| c.state == ClaimState::Cleared) {
                    claim.cleared = Some(ctx.now);
                }
                self.effect = Some((Effect::Isolate, Some(policy), format!("{reason} ({action})")));
            }
            Some(why) if !was_pending => self.effect = Some((Effect::Refuse, Some(policy), why)),
            Some(_) => {}
        }
    }

    pub(super) fn isolate(&mut self, node: &NodeFacts, ctx: &Context<'_>, policy: &str) {
        let (standing, ours) = self.our_taint(ctx, policy);
        self.taints.extend(ours.clone());
        let cordon = ctx.config.isolation.cordon && !node.unschedulable;
        self.unschedulable |= cordon;
        self.record.before = Some(Before { unschedulable: node.unschedulable, taint: standing, other: Unknown::new() });
        self.record.added = Some(Added { taint: ours, cordon, at: ctx.now, restored: false, other: Unknown::new() });
    }

    /// Give back what a person released. The fault may go on: it is left alone until it was seen to end.
    pub(super) fn give_back_by_hand(&mut self, node: &NodeFacts, ctx: &Context<'_>, reason: String) {
        self.give_back(node, ctx, "hand", reason);
        for claim in self.record.claims.iter_mut().filter(|c| c.action.isolates()) {
            claim.state = ClaimState::Released;
        }
    }

    /// Take back exactly what the record says we added, and write the history.
    pub(super) fn give_back(&mut self, node: &NodeFacts, ctx: &Context<'_>, by: &str, reason: String) {
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
        self.record.former = None;
        self.record.overflow = false;
        self.end_episodes(by, ctx.now);
        self.record.eviction = None;
        self.effect = Some((Effect::Release, policy, reason));
    }

    /// Write the history of what ends now.
    pub(super) fn end_episodes(&mut self, by: &str, now: Timestamp) {
        // A freeze that goes on has not ended, whoever released the node.
        let goes_on = |c: &Claim| c.state == ClaimState::Firing && !c.action.isolates();
        let evidence = self.record.eviction.as_ref().and_then(|e| e.evidence.as_ref());
        for claim in self.record.claims.iter().filter(|c| c.state != ClaimState::Released && !goes_on(c)) {
            self.record.history.push(Episode {
                alert: claim.alert.clone(),
                gpu: claim.gpu.clone(),
                from: claim.since,
                to: now,
                by: by.to_owned(),
                who: None,
                verdict: None,
                reason: None,
                evidence: evidence.filter(|_| claim.action == Action::Evict).cloned(),
                other: Unknown::new(),
            });
        }
    }
}
