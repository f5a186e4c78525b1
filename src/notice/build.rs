//! Notices out of what happened.

use jiff::Timestamp;

use super::{
    Notice, Reason, Subject,
    text::{MAX_NOTE, cut, note},
};
use crate::{
    alert::Alert,
    locate::{NodeFacts, NodeName, Taint},
    policy::{Config, Requirement},
    quarantine::{Claim, ClaimState, Effect, Episode, NodeView, Record, Recovery, Stored, read},
};

/// The bounds of the parts of a note, in bytes. Together with the spaces between them below [`MAX_NOTE`], so that the summary,
/// which comes last, is what is cut.
const HEAD: usize = 360;
const RUNBOOK: usize = 250;
const NEXT: usize = 260;
/// The longest name of an alert within a head.
const NAME: usize = 120;

/// A change of a node's effective action that was written.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// When, on our clock.
    pub at: Timestamp,
    /// How its action changed.
    pub effect: &'a Effect,
    /// The policy behind it.
    pub policy: Option<&'a str>,
    /// Why, in words.
    pub reason: &'a str,
    /// The node as it was decided on.
    pub before: &'a NodeFacts,
    /// The node as it is now.
    pub after: &'a NodeFacts,
}

/// What people are told of a change.
#[must_use]
pub fn of_change(change: &Change<'_>, config: &Config) -> Notice {
    let (was, is) = (record(change.before, config), record(change.after, config));
    let (was, is) = (was.as_deref(), is.as_deref());
    let added = is.and_then(|r| r.added.as_ref());
    let restored_before = was.and_then(|r| r.added.as_ref()).is_some_and(|a| a.restored);
    let reason = match change.effect {
        Effect::Isolate if added.is_some_and(|a| a.restored) && !restored_before => Reason::Restored,
        Effect::Isolate => Reason::Isolated,
        Effect::Release if by_hand(was, is) => Reason::ReleasedByHand,
        Effect::Release => Reason::Released,
        Effect::Refuse => Reason::Refused,
        Effect::Withdraw => Reason::Withdrawn,
    };
    // What is given back has its claims in the record that was.
    let claims = match change.effect {
        Effect::Isolate | Effect::Refuse => is,
        Effect::Release | Effect::Withdraw => was,
    };
    let claims: Vec<&Claim> = claims.map(|r| r.claims.iter().filter(|c| c.action.isolates()).collect()).unwrap_or_default();
    let claim = leading(&claims, change.policy);
    let about = claim.map(|c| subject(c, claims.len())).unwrap_or_default();
    let policy = change.policy.unwrap_or("-");
    let manager = change.before.taints_manager.as_deref().map(|m| format!(" by {}", cut(m, 60))).unwrap_or_default();
    let key = &config.isolation.taint_key;
    let (head, next) = match reason {
        Reason::Restored => (
            format!(
                "The taint of policy {policy} ({about}) was taken away{manager}, which is no release, and was put back once."
            ),
            "Next: taken away again, the node is left alone. Find what removed it.".to_owned(),
        ),
        Reason::Isolated => (
            format!("Isolated by policy {policy}: {about}."),
            format!("Next: nothing new is scheduled here; released when {}.", needs(&claims, policy, config)),
        ),
        Reason::ReleasedByHand => {
            let again = if restored_before { " again, after it had been put back" } else { "" };
            (
                format!("Released by hand: the taint of policy {policy} ({about}) was taken away{manager}{again}."),
                "Next: the node is left alone until its alerts were seen to end, or another alert or GPU fires.".to_owned(),
            )
        }
        Reason::Released => (
            format!("Released: {} (policy {policy}: {about}).", change.reason),
            "Next: pods are scheduled here again; a new firing isolates the node again.".to_owned(),
        ),
        Reason::Refused => (
            format!("Not isolated although policy {policy} asks for it: {about}. The guard refuses, {}.", change.reason),
            "Next: isolated as soon as there is room and the fault lasts. Release other nodes, or raise the limit.".to_owned(),
        ),
        _ => (format!("Not isolated: {} ({about}).", change.reason), "Next: nothing is to be done.".to_owned()),
    };
    let taint = matches!(reason, Reason::Isolated | Reason::Restored)
        .then(|| change.after.taints.iter().find(|t| t.key == *key && t.effect == "NoSchedule").cloned())
        .flatten();
    let runbook = claim.and_then(|c| c.runbook.as_deref()).filter(|_| reason != Reason::Released);
    let summary = claim.and_then(|c| c.summary.as_deref()).filter(|_| reason.is_warning());
    Notice { at: change.at, reason, node: Some(of_node(change.after)), note: parts(&head, runbook, &next, summary), taint }
}

/// A node that a person released by command; `episode` is the first that ended with it.
#[must_use]
pub fn released_by_command(view: &NodeView, episode: &Episode, at: Timestamp) -> Notice {
    let of = view.history.iter().filter(|e| e.to == episode.to && e.who.is_some()).count();
    let gpu = episode.gpu.as_ref().map(|gpu| format!(" on {gpu}")).unwrap_or_default();
    let more = if of > 1 { format!(" and {} more", of - 1) } else { String::new() };
    let who = cut(episode.who.as_deref().unwrap_or("a person"), NAME);
    let verdict = episode.verdict.as_ref().map(|verdict| format!(" as {}", cut(verdict, NAME))).unwrap_or_default();
    let reason = episode.reason.as_ref().map(|reason| format!(", {}", cut(reason, NAME))).unwrap_or_default();
    let head = format!("Released by {who} by command{verdict} ({}{gpu}{more}){reason}.", cut(&episode.alert, NAME));
    let next = "Next: the node is left alone until its alerts were seen to end, or another alert or GPU fires.";
    Notice { at, reason: Reason::ReleasedByHand, node: Some(of_view(view)), note: parts(&head, None, next, None), taint: None }
}

/// An alert that fires and whose labels lead to no node, and why.
#[must_use]
pub fn unmapped(alert: &Alert, policy: Option<&str>, why: &str, at: Timestamp) -> Notice {
    let policy = policy.unwrap_or("-");
    let head = format!("Alert {} of policy {policy} is mapped to no node: {why}", cut(&alert.name, NAME));
    let next = "Next: nothing is isolated for it; it is kept and tried again. Fix the labels of the rule, or `locate`.";
    let (runbook, summary) = (alert.annotations.get("runbook_url"), alert.annotations.get("summary"));
    Notice { at, reason: Reason::Unmapped, node: None, note: parts(&head, runbook, next, summary), taint: None }
}

/// A node that would be given back now but for a person's word; `None` if the node is none.
#[must_use]
pub fn waits_for_person(view: &NodeView, at: Timestamp) -> Option<Notice> {
    let why = view.held_back.as_ref()?;
    let claims: Vec<&Claim> = view.claims.iter().filter(|c| c.action.isolates()).collect();
    let claim = leading(&claims, None);
    let (policy, about) = claim.map_or(("-", String::new()), |c| (c.policy.as_str(), subject(c, claims.len())));
    let head = format!("Its alerts ended and the hold-down is over, and it stays isolated (policy {policy}: {about}).");
    let next = format!("Next: it waits for {why}.");
    let note = parts(&head, claim.and_then(|c| c.runbook.as_deref()), &next, None);
    Some(Notice { at, reason: Reason::ReleaseHeld, node: Some(of_view(view)), note, taint: None })
}

/// A node that would be given back now if its fault were shown to be gone; `None` if the node is none.
#[must_use]
pub fn unproven(view: &NodeView, at: Timestamp) -> Option<Notice> {
    let why = view.unproven.as_ref()?;
    let claims: Vec<&Claim> = view.claims.iter().filter(|c| c.action.isolates()).collect();
    let claim = leading(&claims, None);
    let (policy, about) = claim.map_or(("-", String::new()), |c| (c.policy.as_str(), subject(c, claims.len())));
    let head =
        format!("Its alerts ended and the hold-down is over, but the fault is not shown to be gone (policy {policy}: {about}).");
    let next = format!("Next: it stays isolated and waits for {why}.");
    let note = parts(&head, claim.and_then(|c| c.runbook.as_deref()), &next, None);
    Some(Notice { at, reason: Reason::ReleaseUnproven, node: Some(of_view(view)), note, taint: None })
}

/// A node on which all that fires is silenced, inhibited or muted; `None` if something is not.
#[must_use]
pub fn silenced(view: &NodeView, at: Timestamp) -> Option<Notice> {
    let why = view.muted.as_ref()?;
    let claims: Vec<&Claim> = view.claims.iter().collect();
    let about = leading(&claims, None).map(|c| subject(c, claims.len())).unwrap_or_default();
    let head = format!("All that fires on this node is muted in Alertmanager: {about} is {why}.");
    let next = if view.isolated {
        "Next: it stays isolated and is not released until that ends."
    } else {
        "Next: nothing is begun for it until that ends."
    };
    Some(Notice { at, reason: Reason::Silenced, node: Some(of_view(view)), note: parts(&head, None, next, None), taint: None })
}

/// A node whose record cannot be used; `None` if it can.
#[must_use]
pub fn unusable_record(node: &NodeFacts, config: &Config, at: Timestamp) -> Option<Notice> {
    let text = node.annotations.get(&config.annotation("record")).map(String::as_str);
    let (why, next) = match read(text, node, &config.instance) {
        Stored::Unreadable(why) => (
            why,
            format!(
                "Next: at its next alert the node starts afresh, and the old text is kept in the annotation {}. Taints that \
                 stand on it now count as foreign and are never removed.",
                config.annotation("record-corrupt")
            ),
        ),
        Stored::Untouchable(why) => (why, "Next: nothing is done to this node until a person has looked.".to_owned()),
        Stored::None | Stored::Ours(_) => return None,
    };
    let head = format!("The record in the annotation {} cannot be used: {why}.", cut(&config.annotation("record"), NAME));
    let text = parts(&head, None, &next, None);
    Some(Notice { at, reason: Reason::RecordUnreadable, node: Some(of_node(node)), note: text, taint: None })
}

/// A node that could not be read or written.
#[must_use]
pub fn write_failed(name: &NodeName, uid: Option<String>, error: &str, passing: bool, at: Timestamp) -> Notice {
    let next = if passing {
        "Next: Alertmanager is asked to send its alerts again."
    } else {
        "Next: its alerts are kept and tried again. Check the permissions (RBAC) and admission webhooks."
    };
    let note = parts(&format!("Nothing was changed on this node: {error}."), None, next, None);
    Notice { at, reason: Reason::WriteFailed, node: Some(Subject { name: name.clone(), uid }), note, taint: None }
}

/// DCGM exporters that do not tolerate the taint of a node that was isolated just now.
#[must_use]
pub fn exporter_not_tolerating(isolated: &Notice, taint: &Taint, daemonsets: &[String]) -> Notice {
    let named = daemonsets.first().map(|d| cut(d, NAME)).unwrap_or_default();
    let more = match daemonsets.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let key = cut(&taint.key, NAME);
    let head = format!(
        "DaemonSet {named}{more} does not tolerate {key}: an exporter that restarts on this node does not come back, and the \
         silence then looks like recovery."
    );
    let next = format!("Next: add the toleration {{key: {key}, operator: Exists, effect: {}}} to it.", taint.effect);
    let note = parts(&head, None, &next, None);
    Notice { at: isolated.at, reason: Reason::ExporterNotTolerating, node: isolated.node.clone(), note, taint: None }
}

fn parts(head: &str, runbook: Option<&str>, next: &str, summary: Option<&str>) -> String {
    let runbook = runbook.map(|r| format!("Runbook: {r}")).unwrap_or_default();
    let summary = summary.map(|s| format!("Summary: {s}")).unwrap_or_default();
    note([(head, HEAD), (runbook.as_str(), RUNBOOK), (next, NEXT), (summary.as_str(), MAX_NOTE)])
}

fn record(node: &NodeFacts, config: &Config) -> Option<Box<Record>> {
    let text = node.annotations.get(&config.annotation("record")).map(String::as_str);
    match read(text, node, &config.instance) {
        Stored::Ours(record) => Some(record),
        _ => None,
    }
}

/// Whether the episodes that ended just now were ended by hand. Their claims are left as released in any case.
fn by_hand(was: Option<&Record>, is: Option<&Record>) -> bool {
    let last = |r: Option<&Record>| r.and_then(|r| r.history.last().cloned());
    let ended = last(is).filter(|e| last(was).as_ref() != Some(e));
    let released = |r: &Record| r.claims.iter().any(|c| c.state == ClaimState::Released);
    ended.map_or_else(|| is.is_some_and(released), |e| e.by == "hand")
}

/// The claim that speaks for a node: one that fires before one that does not, one of the policy before another, the oldest.
fn leading<'a>(claims: &[&'a Claim], policy: Option<&str>) -> Option<&'a Claim> {
    let rank = |c: &Claim| (c.state != ClaimState::Firing, policy.is_some_and(|p| p != c.policy), c.since);
    claims.iter().copied().min_by_key(|c| rank(c))
}

fn subject(claim: &Claim, of: usize) -> String {
    let gpu = claim.gpu.as_ref().map(|gpu| format!(" on {gpu}")).unwrap_or_default();
    let more = if of > 1 { format!(" and {} more", of - 1) } else { String::new() };
    format!("{}{gpu}{more}", cut(&claim.alert, NAME))
}

/// What the release needs, in words.
fn needs(claims: &[&Claim], policy: &str, config: &Config) -> String {
    let releases: Vec<_> = claims.iter().map(|c| config.release_for(&c.policy)).collect();
    let after = releases.iter().map(|r| r.after).max().unwrap_or(config.release_for(policy).after);
    let manual = releases.iter().any(|r| r.require.contains(&Requirement::Manual));
    let asked = claims.iter().flat_map(|c| &c.recovery).next();
    let evidence = releases.iter().any(|r| r.require.contains(&Requirement::Evidence));
    let hold_down = humantime::format_duration(after);
    match (manual, asked) {
        (false, None) if evidence => format!("every claim cleared and evidence over {hold_down} that the fault is gone"),
        (false, None) => format!("every claim cleared and stayed so for {hold_down}"),
        (true, _) => format!("every claim cleared and a person releases it (remove the taint {})", config.isolation.taint_key),
        (_, Some(Recovery::Manual)) => "every claim cleared and a person confirms the recovery".to_owned(),
        (_, Some(asked)) => format!("every claim cleared and the machine was repaired ({})", asked.as_str()),
    }
}

fn of_node(node: &NodeFacts) -> Subject {
    Subject { name: node.name.clone(), uid: Some(node.uid.clone()) }
}

fn of_view(view: &NodeView) -> Subject {
    Subject { name: view.name.clone(), uid: Some(view.uid.clone()) }
}
