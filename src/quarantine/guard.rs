//! The guard: how many nodes may be isolated by us at once, and how fast. It never limits a release.

mod muster;
mod queue;
mod report;
#[cfg(test)]
mod tests;
mod window;

use std::time::Duration;

use jiff::Timestamp;

pub use muster::Muster;
pub use queue::{Rank, Severity, Turn};
pub use report::{GuardReport, LimitUse, Waiting};

pub(super) use window::Window;

use crate::{
    locate::{NodeFacts, NodeName},
    policy::{Config, Percent},
};

/// Whether there is room for another isolation.
#[derive(Debug, Clone, Copy)]
pub enum Room<'a> {
    /// There is none, and why.
    Closed(&'a str),
    /// What the limits leave of this fleet.
    In(&'a Muster),
}

impl Room<'_> {
    /// Why that node may not be isolated now, if so.
    pub(super) fn refusal(&self, candidate: &Candidate<'_>, config: &Config, now: Timestamp) -> Option<String> {
        match self {
            Self::Closed(why) => Some((*why).to_owned()),
            Self::In(muster) => muster.refusal(candidate, config, now),
        }
    }
}

/// A node that is to be isolated.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its name.
    pub node: &'a NodeName,
    /// Its pool.
    pub pool: &'a str,
    /// Whether it is healthy as far as its pool is concerned.
    pub healthy: bool,
    /// Where it stands in the queue, and for whom.
    pub turn: &'a Turn,
}

/// The pool of a node; nodes without the label are a pool of their own, without a name.
pub(super) fn pool_of<'a>(node: &'a NodeFacts, config: &Config) -> &'a str {
    node.labels.get(&config.guard.pool_label).map_or("", String::as_str)
}

/// Whether pods can use a node, as far as others than we tell.
pub(super) fn is_healthy(node: &NodeFacts) -> bool {
    node.ready && !node.unschedulable
}

/// The limit that refuses, and its use without those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit<'a> {
    Fleet { isolated: usize, most: usize },
    Pool { pool: &'a str, isolated: usize, most: usize },
    Floor { pool: &'a str, healthy: usize, nodes: usize, least: usize, percent: Percent },
    New { window: Window, within: Duration },
}

impl Limit<'_> {
    fn text(&self, own: Option<&str>) -> String {
        let whose = own.map(|policy| format!(" of policy {policy}")).unwrap_or_default();
        match self {
            Self::Fleet { isolated, most } => format!("guard.max_isolated{whose}: {isolated} of {most} nodes are isolated"),
            Self::Pool { pool, isolated, most } => {
                format!("guard.pools.max_isolated{whose}: {isolated} of {most} nodes of {} are isolated", pool_name(pool))
            }
            Self::Floor { pool, healthy, nodes, least, percent } => format!(
                "guard.pools.min_healthy{whose}: {healthy} of {nodes} nodes of {} are healthy, and {percent} % ({least}) stay so",
                pool_name(pool)
            ),
            Self::New { window: Window { begun, most, room_at }, within } => {
                let within = humantime::format_duration(*within);
                let next = room_at.map(|at| format!(", the next may be at {at}")).unwrap_or_default();
                format!("guard.max_new_isolations{whose}: {begun} of {most} nodes were isolated within {within}{next}")
            }
        }
    }
}

/// A pool in a sentence.
fn pool_name(pool: &str) -> String {
    if pool.is_empty() { "the pool without a name".to_owned() } else { format!("pool {pool}") }
}
