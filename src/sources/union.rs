//! From the answers of all peers to one [`Pull`]. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::alertmanager::Answer;
use crate::alert::{Alert, Fingerprint, Listed, Listing, Pull, Pulled, Silence, Suppression};

/// What is shown of a comment, and of a name.
const SHOWN: usize = 80;
/// What is shown of what is wrong with an alert.
const REASON_SHOWN: usize = 200;
/// How many reasons are named.
const REASONS: usize = 3;

/// A peer and what it answered, or why it did not.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its URL.
    pub(super) peer: String,
    /// What it said.
    pub(super) answer: Result<Answer, String>,
}

/// How many peers were in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PeerStates {
    /// They answered, and what they do not list is absent there.
    pub(crate) answered: usize,
    /// They did not answer.
    pub(crate) failed: usize,
    /// They started so recently that they may not have heard of everything.
    pub(crate) settling: usize,
}

/// The alerts that any peer lists, and why that may not be all.
pub(super) fn unite(begun: Timestamp, settle: Duration, receiver: &str, asked: &[Asked]) -> (Pull, PeerStates) {
    let mut states = PeerStates::default();
    let mut reasons = Vec::new();
    if asked.is_empty() {
        reasons.push("no Alertmanager was asked".to_owned());
    }
    for Asked { peer, answer } in asked {
        match answer {
            Err(error) => {
                states.failed += 1;
                reasons.push(error.clone());
            }
            Ok(answer) => {
                match unsettled(answer, settle) {
                    Some(why) => {
                        states.settling += 1;
                        reasons.push(format!("{peer} {why}"));
                    }
                    None => states.answered += 1,
                }
                reasons.extend(unproven(answer, receiver).map(|why| format!("{peer} {why}")));
            }
        }
    }
    let answers: Vec<&Answer> = asked.iter().filter_map(|a| a.answer.as_ref().ok()).collect();
    let silences = answers.iter().flat_map(|a| &a.silences).map(|s| (s.id.as_str(), s)).collect();
    let (alerts, changes_at) = merge(answers.iter().flat_map(|a| &a.listing.alerts), &silences);
    (Pull { begun, alerts, incomplete: joined(&reasons), changes_at }, states)
}

/// Why a peer may not have heard of every alert yet: alerts are kept in memory only, and come back as Prometheus repeats them.
fn unsettled(answer: &Answer, settle: Duration) -> Option<String> {
    if answer.status.cluster == "settling" {
        return Some("has not settled in its cluster yet".to_owned());
    }
    let settle = SignedDuration::try_from(settle).unwrap_or(SignedDuration::MAX);
    match answer.age {
        None => Some("does not say since when it runs".to_owned()),
        Some(age) if age < settle => {
            Some(format!("started {} s ago, and may not have heard of every alert again", age.as_secs().max(0)))
        }
        Some(_) => None,
    }
}

/// Why the list of a peer is not all that fires there.
fn unproven(answer: &Answer, receiver: &str) -> Option<String> {
    if let Some(invalid) = answer.listing.invalid.first() {
        let name = invalid.name.as_deref().map_or_else(String::new, |name| format!(" {}", line(name)));
        let count = answer.listing.invalid.len();
        return Some(format!(
            "listed {count} alerts that cannot be read, the first{name}: {}",
            cut(&invalid.reason, REASON_SHOWN)
        ));
    }
    let missing = format!("has no receiver {receiver:?}; check sources.alertmanagers.receiver");
    (!answer.has_receiver).then_some(missing)
}

fn joined(reasons: &[String]) -> Option<String> {
    let named = reasons.iter().take(REASONS).map(String::as_str).collect::<Vec<_>>().join("; and ");
    match reasons.len() {
        0 => None,
        n if n > REASONS => Some(format!("{named}; and {} more", n - REASONS)),
        _ => Some(named),
    }
}

/// The alerts of listings whose silences are not known.
pub(super) fn merge_listings(listings: &[Listing]) -> (Vec<Pulled>, Option<Timestamp>) {
    merge(listings.iter().flat_map(|l| &l.alerts), &BTreeMap::new())
}

/// Each alert once, and when the first silence of any ends.
fn merge<'a>(listed: impl Iterator<Item = &'a Listed>, silences: &BTreeMap<&str, &Silence>) -> (Vec<Pulled>, Option<Timestamp>) {
    struct Found<'a> {
        alert: &'a Alert,
        suppressions: Vec<&'a Suppression>,
    }
    let mut found: BTreeMap<Fingerprint, Found<'_>> = BTreeMap::new();
    for listed in listed {
        let entry = found.entry(listed.alert.fingerprint).or_insert(Found { alert: &listed.alert, suppressions: Vec::new() });
        // The latest: each peer keeps the earliest startsAt that it remembers, so one that ran on may still have that of an
        // episode before, whose late resolve would then end this one. A resolve that is ignored is made good by a later pull; one
        // that counts wrongly is not.
        if listed.alert.starts_at > entry.alert.starts_at {
            entry.alert = &listed.alert;
        }
        // Any: a silence is a person's veto, and reaches the peers one after the other. Taking it from the first to know it can
        // only delay an action; the other way round we would act on what its owner already has in hand.
        entry.suppressions.extend(&listed.suppression);
    }
    let names: BTreeMap<Fingerprint, &str> = found.iter().map(|(fp, f)| (*fp, f.alert.name.as_str())).collect();
    let mut changes_at: Option<Timestamp> = None;
    let mut alerts = Vec::with_capacity(found.len());
    for Found { alert, suppressions } in found.values() {
        for silence in suppressions.iter().flat_map(|s| &s.silenced_by).filter_map(|id| silences.get(id.as_str())) {
            changes_at = Some(changes_at.map_or(silence.ends_at, |at| at.min(silence.ends_at)));
        }
        let muted = (!suppressions.is_empty()).then(|| clause(suppressions, silences, &names));
        alerts.push(Pulled { alert: Alert::clone(alert), muted });
    }
    (alerts, changes_at)
}

/// Why nothing is sent of an alert, for people. A silence comes first, since it has an owner.
fn clause(suppressions: &[&Suppression], known: &BTreeMap<&str, &Silence>, names: &BTreeMap<Fingerprint, &str>) -> String {
    let all = |of: fn(&Suppression) -> &Vec<String>| -> BTreeSet<&str> {
        suppressions.iter().flat_map(|s| of(s)).map(String::as_str).collect()
    };
    let (silenced, inhibited, muted) = (all(|s| &s.silenced_by), all(|s| &s.inhibited_by), all(|s| &s.muted_by));
    let more = |count: usize| if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
    if let Some(id) = silenced.first() {
        // The one that ends last is the one that counts.
        let last = silenced.iter().filter_map(|id| known.get(id)).max_by_key(|s| (s.ends_at, s.id.as_str()));
        let which = match last {
            Some(s) => format!("by {} until {}: \"{}\"", line(&s.created_by), s.ends_at, line(&s.comment)),
            None => format!("by the silence {}", line(id)),
        };
        return format!("silenced {which}{}", more(silenced.len()));
    }
    if let Some(by) = inhibited.first() {
        let source = inhibited.iter().find_map(|fp| names.get(&fp.parse().ok()?).copied()).unwrap_or(by);
        return format!("inhibited by {}{}", line(source), more(inhibited.len()));
    }
    match muted.first() {
        Some(interval) => format!("muted by the time interval {}{}", line(interval), more(muted.len())),
        None => "suppressed by Alertmanager, which does not say why".to_owned(),
    }
}

/// A foreign text on one line, cut.
fn line(text: &str) -> String {
    cut(text, SHOWN)
}

fn cut(text: &str, length: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match clean.char_indices().nth(length) {
        Some((end, _)) => format!("{}...", clean.get(..end).unwrap_or_default()),
        None => clean,
    }
}

#[cfg(test)]
mod tests;
