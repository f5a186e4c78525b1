//! The guard as people and programs see it: each limit, its use, and who waits for what.

use jiff::Timestamp;
use serde::Serialize;

use super::{Muster, Severity, Window, muster::Sheet, queue::Turn};
use crate::{
    locate::NodeName,
    policy::{Config, Limits, PolicyGuard},
    quarantine::eviction::Restart,
};

/// Those who wait are named up to so many, the first of the queue.
const MOST_SHOWN: usize = 200;

/// All limits and the queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GuardReport {
    /// Why nothing new is begun, if a person paused the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// Each limit, for all policies first.
    pub limits: Vec<LimitUse>,
    /// Who waits, in order; 200 at most.
    pub queue: Vec<Waiting>,
    /// How many wait.
    pub waiting: usize,
    /// The policies that nothing limits.
    pub exempt: Vec<String>,
}

/// One limit and its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitUse {
    /// Its name in the configuration.
    pub limit: &'static str,
    /// The policy whose own limit it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The pool; empty for nodes without the label. Absent for limits of the whole fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// What is counted, as it is now: nodes isolated, healthy, or isolated of late; groups restarted of late.
    pub value: usize,
    /// The most that may be; for `min_healthy` the least.
    pub bound: usize,
    /// The nodes of the fleet or pool that are in scope; absent for rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<usize>,
    /// Whether it refuses another isolation of a healthy node, or another group.
    pub full: bool,
    /// When time alone makes room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room_at: Option<Timestamp>,
}

/// A node that waits for room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Its place, from 1.
    pub number: usize,
    /// Its name.
    pub node: NodeName,
    /// The policy that wants it isolated.
    pub policy: String,
    /// The policy's weight.
    pub weight: i32,
    /// How grave the fault is, if its alerts say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Since when it has waited.
    pub since: Timestamp,
    /// Which limit refuses it; absent if there is room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl GuardReport {
    /// As of now. `restarts` are those of groups, on all nodes.
    #[must_use]
    pub fn of(muster: &Muster, restarts: &[Restart], paused: Option<String>, config: &Config, now: Timestamp) -> Self {
        let exempt = config.policies.iter().filter(|policy| policy.guard == Some(PolicyGuard::Exempt));
        Self {
            paused,
            limits: LimitUse::all(muster, restarts, config, now),
            queue: muster.queue(MOST_SHOWN, config, now),
            waiting: muster.waiting(),
            exempt: exempt.map(|policy| policy.name.clone()).collect(),
        }
    }
}

impl LimitUse {
    /// Each limit as of now, those of the whole fleet first: pools are as many as whoever labels nodes likes.
    #[must_use]
    pub fn all(muster: &Muster, restarts: &[Restart], config: &Config, now: Timestamp) -> Vec<Self> {
        let own = config.policies.iter().filter_map(|policy| match &policy.guard {
            Some(PolicyGuard::Limits(limits)) => Some((Some(policy.name.as_str()), limits)),
            _ => None,
        });
        let sheet = Sheet::new(muster, None, now);
        let (mut all, mut of_pools) = (Vec::new(), Vec::new());
        for (policy, limits) in std::iter::once((None, &config.guard.limits)).chain(own) {
            all.extend(sheet.uses(limits, policy));
            of_pools.extend(sheet.uses_of_pools(limits, policy));
        }
        all.push(gangs(restarts, config, now));
        all.extend(of_pools);
        all
    }

    fn of(limit: &'static str, policy: Option<&str>, (value, bound): (usize, usize), full: bool) -> Self {
        let policy = policy.map(str::to_owned);
        Self { limit, policy, pool: None, value, bound, nodes: None, full, room_at: None }
    }

    fn of_rate(limit: &'static str, policy: Option<&str>, window: Window) -> Self {
        let full = window.is_full();
        Self { room_at: window.room_at, ..Self::of(limit, policy, (window.begun, window.most), full) }
    }
}

fn gangs(restarts: &[Restart], config: &Config, now: Timestamp) -> LimitUse {
    LimitUse::of_rate("guard.max_evicted_gangs", None, Restart::window(restarts, config.guard.max_evicted_gangs, now))
}

impl Sheet<'_> {
    fn uses(&self, limits: &Limits, policy: Option<&str>) -> [LimitUse; 2] {
        let fleet = self.fleet();
        let most = limits.fleet.of(fleet.nodes);
        let share = LimitUse::of("guard.max_isolated", policy, (fleet.isolated, most), fleet.isolated >= most);
        let new = LimitUse::of_rate("guard.max_new_isolations", policy, self.new_isolations(limits.new));
        [LimitUse { nodes: Some(fleet.nodes), ..share }, new]
    }

    fn uses_of_pools(&self, limits: &Limits, policy: Option<&str>) -> Vec<LimitUse> {
        let uses = self.all_pools().flat_map(|(pool, count)| {
            let (most, least) = (limits.pool.of(count.nodes), limits.min_healthy.of(count.nodes));
            let share = LimitUse::of("guard.pools.max_isolated", policy, (count.isolated, most), count.isolated >= most);
            let floor = LimitUse::of("guard.pools.min_healthy", policy, (count.healthy, least), count.healthy <= least);
            [share, floor].map(|limit| LimitUse { pool: Some(pool.to_owned()), nodes: Some(count.nodes), ..limit })
        });
        uses.collect()
    }
}

impl Muster {
    fn queue(&self, most: usize, config: &Config, now: Timestamp) -> Vec<Waiting> {
        let waits = |(at, (node, Turn { rank, policy, .. })): (usize, (&NodeName, &Turn))| Waiting {
            number: at + 1,
            node: node.clone(),
            policy: policy.clone(),
            weight: rank.weight.0,
            severity: rank.severity.0,
            since: rank.since,
            refused: self.refused(node, config, now).map(|(why, _)| why),
        };
        self.in_order().take(most).enumerate().map(waits).collect()
    }
}
