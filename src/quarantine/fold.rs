//! Folding what was heard into the claims of one node. Within one body, firing dominates: resolves are folded first.

use jiff::{SignedDuration, Timestamp};

use super::{
    claim::{Claim, ClaimState},
    decide::{Context, Told},
    outcome::{Outcome, Verdict},
    record::Record,
};
use crate::{
    alert::{Alert, Fingerprint, Status},
    locate::{Gpu, NodeFacts},
    policy::{Action, WhenCordoned},
};

/// How long after a node's creation an older alert counts as one about the machine before.
const STALE_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The policy that an alert matched, as far as it acts on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule<'a> {
    /// Its name.
    pub policy: &'a str,
    /// `freeze`, `isolate` or `evict`.
    pub action: Action,
}

/// An alert that was mapped to the node.
#[derive(Debug, Clone)]
pub struct Heard<'a> {
    /// The alert.
    pub alert: &'a Alert,
    /// The GPU that it names.
    pub gpu: Option<Gpu>,
    /// `None` if no policy acts for it; a resolve still ends its member, since claims survive edits of the configuration.
    pub rule: Option<Rule<'a>>,
    /// Why its sender would not tell of it, if it is silenced, inhibited or muted: then it begins nothing.
    pub muted: Option<&'a str>,
}

/// What folding did to one alert. The final verdict of a firing depends on what is decided for its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Folded {
    /// It stands in this claim, by index; whether that changed anything.
    In(usize, bool),
    /// It ended its member.
    Resolved,
    /// There was nothing to end.
    NothingToEnd,
    /// It did not fit in.
    Overflow,
    /// Decided at once.
    Done(Verdict),
}

/// Fold all of `heard` into `record`. `new_claims` says why no new claim may be made, if so.
pub(super) fn fold(
    record: &mut Record,
    node: &NodeFacts,
    heard: &[Heard<'_>],
    ctx: &Context<'_>,
    no_new_claims: Option<&str>,
) -> Vec<Folded> {
    let mut folded: Vec<Option<Folded>> = vec![None; heard.len()];
    if let Told::Complete { newer } = ctx.told {
        drop_missing(record, heard, newer);
    }
    for (heard, slot) in heard.iter().zip(&mut folded) {
        if heard.alert.status == Status::Resolved {
            *slot = Some(resolve(record, heard));
        }
    }
    let mut full = false;
    // Those that begin nothing on a cordoned node come last: another of the body may isolate it.
    for shy in [false, true] {
        for (heard, slot) in heard.iter().zip(&mut folded) {
            if heard.alert.status == Status::Firing && shy == is_shy(heard, node, ctx) {
                *slot = Some(fire(record, node, heard, ctx, no_new_claims, &mut full));
            }
        }
    }
    folded.into_iter().flatten().collect()
}

/// A complete pull proves that what it does not list is over.
fn drop_missing(record: &mut Record, heard: &[Heard<'_>], newer: &[Fingerprint]) {
    let listed = |fp| heard.iter().any(|h| h.alert.status == Status::Firing && h.alert.fingerprint == fp);
    for claim in &mut record.claims {
        claim.members.retain(|m| !m.fires() || listed(m.fp) || newer.contains(&m.fp));
    }
    // What did not fit may have come after the pull began.
    record.overflow &= !newer.is_empty();
}

/// Whether its policy begins nothing on a node that is cordoned, as this one is.
fn is_shy(heard: &Heard<'_>, node: &NodeFacts, ctx: &Context<'_>) -> bool {
    let rule = heard.rule.filter(|rule| node.unschedulable && rule.action.isolates());
    rule.is_some_and(|rule| ctx.config.when_cordoned(rule.policy) == WhenCordoned::Observe)
}

/// Whether the node is isolated by us, or something on record wants it to be: the cordon is then no reason to leave it alone.
fn is_taken(record: &Record) -> bool {
    let wants = |c: &Claim| c.action.isolates() && c.state != ClaimState::Released && c.fires() && !c.is_muted();
    record.added.is_some() || record.claims.iter().any(wants)
}

fn resolve(record: &mut Record, heard: &Heard<'_>) -> Folded {
    // By fingerprint in every claim of that alert: the same labels are the same alert, whatever GPU they were read as then.
    let mut changed = false;
    for claim in record.claims.iter_mut().filter(|c| c.alert == heard.alert.name) {
        changed |= claim.resolve(heard.alert);
    }
    if changed { Folded::Resolved } else { Folded::NothingToEnd }
}

fn fire(
    record: &mut Record,
    node: &NodeFacts,
    heard: &Heard<'_>,
    ctx: &Context<'_>,
    no_new_claims: Option<&str>,
    full: &mut bool,
) -> Folded {
    let alert = heard.alert;
    let Some(rule) = heard.rule else {
        return Folded::Done(Verdict::new(Outcome::Unmatched, "no policy acts for it"));
    };
    let at = record.claims.iter().position(|c| c.alert == alert.name && c.gpu == heard.gpu);
    let known = at.is_some_and(|i| record.claims[i].members.iter().any(|m| m.fp == alert.fingerprint));
    if !known {
        if let Some(why) = heard.muted {
            return Folded::Done(Verdict::new(Outcome::Silenced, format!("nothing is begun for it: it is {why}")));
        }
        if let Some(created) = node.created
            && alert.starts_at < created
            && ctx.now < created.checked_add(STALE_FOR).unwrap_or(Timestamp::MAX)
        {
            return Folded::Done(Verdict::new(
                Outcome::Stale,
                format!("it began at {}, before the node was created at {created}", alert.starts_at),
            ));
        }
        if let (None, Some(why)) = (at, no_new_claims) {
            return Folded::Done(Verdict::new(Outcome::OutOfScope, why));
        }
        if at.is_none() && is_shy(heard, node, ctx) && !is_taken(record) {
            let why = format!(
                "nothing is begun: somebody else cordoned the node, and when_cordoned of policy {} is observe",
                rule.policy
            );
            return Folded::Done(Verdict::new(Outcome::Observed, why));
        }
        if *full {
            record.overflow = true;
            return Folded::Overflow;
        }
    }
    // A member or claim is taken back if it does not fit; one that is there already costs nothing.
    let before = (!known).then(|| (record.claims.len(), at.map(|i| record.claims[i].clone())));
    let i = at.unwrap_or_else(|| {
        record.claims.push(Claim::new(alert, heard.gpu.clone(), rule.policy, rule.action, ctx.now));
        record.claims.len() - 1
    });
    let claim = &mut record.claims[i];
    let queries = claim.queries.len();
    let mut changed = claim.fire(alert, matches!(ctx.told, Told::Complete { .. }), heard.muted);
    changed |= claim.answered(ctx.told.confirms());
    changed |= claim.matched(rule.policy, rule.action);
    if known {
        record.keep_room(i, queries);
    }
    if let Some((len, old)) = before
        && !record.has_room()
    {
        if let Some(old) = old {
            record.claims[i] = old;
        }
        record.claims.truncate(len);
        record.overflow = true;
        *full = true;
        return Folded::Overflow;
    }
    Folded::In(i, changed)
}
