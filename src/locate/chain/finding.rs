//! What each label says, and what all of them say together.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use super::{Link, Located, Unmapped, UnmappedReason};
use crate::locate::NodeName;

/// How much of a value a message shows. A value may be megabytes long.
const SHOWN: usize = 64;
/// How many of the nodes that a label fits a message names.
const CANDIDATES: usize = 3;

/// What a label, or a pair of them, says.
pub(super) struct Finding<'a> {
    said: Said<'a>,
    what: What<'a>,
}

/// The label with its value, for messages: most alerts lead to a node and need none.
enum Said<'a> {
    Label(&'a str, &'a str),
    Pod(&'a str, &'a str),
}

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label, value) => write!(f, "label {label}={}", shown(value)),
            Self::Pod(namespace, pod) => write!(f, "labels namespace={} and pod={}", shown(namespace), shown(pod)),
        }
    }
}

pub(super) enum What<'a> {
    /// This one node.
    Node(&'a NodeName, Link),
    /// One of these; which of them cannot be told from this label alone.
    Several(BTreeSet<&'a NodeName>),
    /// Perhaps a node; the exporter pods would tell.
    AskPods,
    /// No node, and why, in words that follow the label.
    Nothing(UnmappedReason, Cow<'static, str>),
}

impl What<'_> {
    pub(super) const LOCAL: Self = Self::Nothing(UnmappedReason::Localhost, Cow::Borrowed("is whatever host it is read on"));
}

impl<'a> Finding<'a> {
    pub(super) fn of_label(label: &'a str, value: &'a str, what: What<'a>) -> Self {
        Self { said: Said::Label(label, value), what }
    }

    pub(super) fn of_pod(namespace: &'a str, pod: &'a str, what: What<'a>) -> Self {
        Self { said: Said::Pod(namespace, pod), what }
    }

    /// Why it leads to no node by itself.
    fn reason(&self) -> Option<UnmappedReason> {
        match &self.what {
            What::Node(..) => None,
            What::Several(_) => Some(UnmappedReason::Ambiguous),
            What::AskPods => Some(UnmappedReason::ExporterPodsUnknown),
            What::Nothing(reason, _) => Some(*reason),
        }
    }

    fn clause(&self) -> String {
        let said = &self.said;
        match &self.what {
            What::Node(node, _) => format!("{said} means Node {node}"),
            What::Several(nodes) => {
                let named: Vec<_> = nodes.iter().take(CANDIDATES).map(|n| n.as_str()).collect();
                let more = if nodes.len() > CANDIDATES { ", ..." } else { "" };
                format!("{said} fits {} nodes ({}{more})", nodes.len(), named.join(", "))
            }
            What::AskPods => format!("{said} may mean an exporter pod"),
            What::Nothing(_, why) => format!("{said} {why}"),
        }
    }
}

/// The one node that all findings allow. One that fits several nodes, or none, leaves the word to those that name one; but it
/// must allow that node if it fits any.
///
/// The order of the checks makes the answer without exporter pods final: what they may add to a disagreement leaves it one, and
/// what they may add to anything else is asked for first.
pub(super) fn settle(findings: &[Finding<'_>]) -> Result<Located, Unmapped> {
    let mut named = findings.iter().filter_map(|f| match &f.what {
        What::Node(node, link) => Some((*node, link)),
        _ => None,
    });
    let unmapped = |reason| Err(Unmapped { reason, message: sentence(reason, findings) });
    let weightiest = findings.iter().filter_map(Finding::reason).min();
    let Some((node, link)) = named.next() else {
        return unmapped(weightiest.unwrap_or(UnmappedReason::NoLabel));
    };
    let excluded = findings.iter().any(|f| matches!(&f.what, What::Several(nodes) if !nodes.contains(node)));
    if excluded || named.any(|(other, _)| other != node) {
        return unmapped(UnmappedReason::Disagree);
    }
    match weightiest {
        Some(reason) if reason.needs_pods() => unmapped(reason),
        _ => Ok(Located { node: node.clone(), link: link.clone() }),
    }
}

fn sentence(reason: UnmappedReason, findings: &[Finding<'_>]) -> String {
    let summary = match reason {
        UnmappedReason::Disagree => "the labels lead to different nodes",
        UnmappedReason::Ambiguous => "the labels do not lead to one node",
        UnmappedReason::ExporterPodsUnknown => "the exporter pods are needed to find the node",
        _ => "the labels lead to no known node",
    };
    let clauses: Vec<_> = findings.iter().map(Finding::clause).collect();
    format!("{summary}: {}", clauses.join("; "))
}

/// Quoted, cut, and with control characters escaped.
fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", value.get(..end).unwrap_or_default()),
        None => format!("{value:?}"),
    }
}
