//! What people are told of evictions.

#[cfg(test)]
mod tests;

use jiff::Timestamp;

use super::{
    Notice, Reason, Subject,
    text::{MAX_NOTE, cut, note},
};
use crate::locate::NodeFacts;

/// Pods that are named in one notice.
const NAMED: usize = 4;
/// The longest part about one kind of outcome.
const PART: usize = 420;
/// The longest reason.
const WHY: usize = 110;

/// What was done to the pods of a node.
#[derive(Debug, Clone, Copy)]
pub struct Evicted<'a> {
    /// When, on our clock.
    pub at: Timestamp,
    /// The node.
    pub node: &'a NodeFacts,
    /// The policy of the claim that asks for it.
    pub policy: Option<&'a str>,
    /// What the claim is about.
    pub subject: Option<&'a str>,
    /// Each pod, what became of it in one word, and why.
    pub pods: &'a [(String, &'static str, &'a str)],
    /// Where the evidence is, if it was kept just now.
    pub evidence: Option<&'a str>,
}

/// The words of outcomes that belong together, and what is said of them.
const KINDS: [(&[&str], &str); 10] = [
    (&["accepted", "leaving"], "asked to leave"),
    (&["would_evict"], "would be asked to leave"),
    (&["blocked", "many_budgets", "throttled", "forbidden", "refused", "unknown"], "cannot leave yet"),
    (&["unknown_gpu"], "may use the GPU or not"),
    (&["unread"], "may be lost for good or not"),
    (&["waiting", "withheld"], "wait"),
    (&["checkpoint"], "write their checkpoints"),
    (&["gone", "another_pod"], "gone"),
    (&["returned"], "came back"),
    (&["left"], "left"),
];

impl Evicted<'_> {
    fn of<'a>(&'a self, words: &'a [&str]) -> impl Iterator<Item = &'a (String, &'static str, &'a str)> {
        self.pods.iter().filter(move |(_, outcome, _)| words.contains(outcome))
    }

    fn any(&self, words: &[&str]) -> bool {
        self.pods.iter().any(|(_, outcome, _)| words.contains(outcome))
    }
}

/// In one sentence, with numbers: `2 asked to leave, 1 cannot leave yet`. What was never to go is counted last.
#[must_use]
pub fn summary(evicted: &Evicted<'_>) -> String {
    let counted = KINDS.iter().map(|(words, what)| (evicted.of(words).count(), *what));
    let known: usize = KINDS.iter().map(|(words, _)| evicted.of(words).count()).sum();
    let spared = (evicted.pods.len() - known, "spared");
    let parts: Vec<String> = counted.chain([spared]).filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    parts.join(", ")
}

/// What people are told.
#[must_use]
pub fn of_eviction(evicted: &Evicted<'_>) -> Notice {
    let reason =
        if evicted.any(&["blocked", "many_budgets", "throttled", "forbidden", "refused", "unknown", "unknown_gpu", "unread"]) {
            Reason::EvictionBlocked
        } else if evicted.any(&["left", "returned"]) {
            Reason::PodsLeft
        } else {
            Reason::PodsEvicted
        };
    let policy = evicted.policy.unwrap_or("-");
    let about = evicted.subject.map(|subject| format!(": {}", cut(subject, WHY))).unwrap_or_default();
    let head = format!("Pods of this node, by policy {policy}{about}: {}.", summary(evicted));
    let named: Vec<String> = KINDS
        .iter()
        .filter_map(|(words, what)| {
            let pods: Vec<_> = evicted.of(words).collect();
            let first = pods.first()?;
            let names: Vec<&str> = pods.iter().take(NAMED).map(|(pod, ..)| pod.as_str()).collect();
            let more = if pods.len() > NAMED { format!(" and {} more", pods.len() - NAMED) } else { String::new() };
            let why = if first.2.is_empty() { String::new() } else { format!(" ({})", cut(first.2, WHY)) };
            Some(format!("{}{more} {what}{why}.", names.join(", ")))
        })
        .collect();
    let evidence = evicted.evidence.map(|name| format!("Evidence: ConfigMap {name}.")).unwrap_or_default();
    let text = note([(head.as_str(), PART), (evidence.as_str(), PART), (named.join(" ").as_str(), MAX_NOTE)]);
    let node = Subject { name: evicted.node.name.clone(), uid: Some(evicted.node.uid.clone()) };
    Notice { at: evicted.at, reason, node: Some(node), note: text, taint: None }
}
