//! The fleet as the guard counts it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{
    Candidate, Limit, Window,
    queue::{Rank, Turn},
};
use crate::{
    locate::NodeName,
    policy::{Config, Limits, PolicyGuard, Rate},
    quarantine::view::NodeView,
};

/// No window of a limit is longer.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(1);

/// Who is isolated, who is healthy, who was isolated of late, and who waits.
#[derive(Debug, Clone, Default)]
pub struct Muster {
    nodes: BTreeMap<NodeName, Counted>,
    fleet: Count,
    pools: BTreeMap<String, Count>,
    /// Those with a turn, in order.
    queue: BTreeSet<(Rank, NodeName)>,
    /// Isolations of the last hour, also of nodes that were released since.
    recent: BTreeSet<(Timestamp, NodeName)>,
    /// Isolations that are being written.
    reserved: BTreeSet<NodeName>,
}

#[derive(Debug, Clone)]
struct Counted {
    pool: String,
    in_scope: bool,
    isolated: bool,
    healthy: bool,
    turn: Option<Turn>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    /// In scope.
    pub(super) nodes: usize,
    /// By us, wherever.
    pub(super) isolated: usize,
    /// In scope, and neither isolated nor of no use.
    pub(super) healthy: usize,
}

impl Count {
    fn add(&mut self, node: &Counted) {
        self.nodes += usize::from(node.in_scope);
        self.isolated += usize::from(node.isolated);
        self.healthy += usize::from(node.is_healthy());
    }

    fn subtract(&mut self, node: &Counted) {
        self.nodes -= usize::from(node.in_scope);
        self.isolated -= usize::from(node.isolated);
        self.healthy -= usize::from(node.is_healthy());
    }
}

impl Counted {
    fn is_healthy(&self) -> bool {
        self.in_scope && self.healthy && !self.isolated
    }
}

impl Muster {
    /// Nobody.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nodes: BTreeMap::new(),
            fleet: Count { nodes: 0, isolated: 0, healthy: 0 },
            pools: BTreeMap::new(),
            queue: BTreeSet::new(),
            recent: BTreeSet::new(),
            reserved: BTreeSet::new(),
        }
    }

    /// Take a node as it is now.
    pub fn see(&mut self, view: &NodeView, now: Timestamp) {
        self.forget(&view.name);
        let node = Counted {
            pool: view.pool.clone(),
            in_scope: view.in_scope,
            isolated: view.isolated,
            healthy: view.healthy,
            turn: view.turn.clone(),
        };
        self.fleet.add(&node);
        self.pools.entry(node.pool.clone()).or_default().add(&node);
        if let Some(turn) = &node.turn {
            self.queue.insert((turn.rank, view.name.clone()));
        }
        if let Some(at) = view.isolated_at {
            // One that another clock dated into the future began now at the latest.
            self.recent.insert((at.min(now), view.name.clone()));
        }
        while let Some((first, _)) = self.recent.first()
            && now.duration_since(*first) > REMEMBERED
        {
            self.recent.pop_first();
        }
        self.nodes.insert(view.name.clone(), node);
    }

    /// A node is gone.
    pub fn forget(&mut self, name: &NodeName) {
        let Some(old) = self.nodes.remove(name) else { return };
        self.fleet.subtract(&old);
        if let Some(pool) = self.pools.get_mut(&old.pool) {
            pool.subtract(&old);
            if pool.nodes + pool.isolated == 0 {
                self.pools.remove(&old.pool);
            }
        }
        if let Some(turn) = &old.turn {
            self.queue.remove(&(turn.rank, name.clone()));
        }
    }

    /// Take the room for an isolation that is about to be written.
    pub fn reserve(&mut self, name: &NodeName) {
        self.reserved.insert(name.clone());
    }

    /// Give it back: the isolation is counted by now, or was not written.
    pub fn unreserve(&mut self, name: &NodeName) {
        self.reserved.remove(name);
    }

    /// Let the others go first, until this node is seen again.
    pub fn step_aside(&mut self, name: &NodeName) {
        if let Some(turn) = self.nodes.get_mut(name).and_then(|node| node.turn.take()) {
            self.queue.remove(&(turn.rank, name.clone()));
        }
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Who waits, and for what.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&NodeName, &Turn)> {
        self.queue.iter().filter_map(|(_, name)| Some((name, self.nodes.get(name)?.turn.as_ref()?)))
    }

    /// The first in the queue for which there is room now, but for those in `not`.
    #[must_use]
    pub fn next_in(&self, not: &BTreeSet<NodeName>, config: &Config, now: Timestamp) -> Option<NodeName> {
        let sheet = Sheet::new(self, None, now);
        self.queue
            .iter()
            .map(|(_, name)| name)
            .find(|name| {
                let tried = not.contains(*name) || self.reserved.contains(*name);
                !tried && self.waits(name).is_some_and(|waits| sheet.refuses(&waits, config).is_none())
            })
            .cloned()
    }

    /// A node that waits, as it was seen last.
    fn waits<'a>(&'a self, name: &'a NodeName) -> Option<Candidate<'a>> {
        let node = self.nodes.get(name)?;
        Some(Candidate { node: name, pool: &node.pool, healthy: node.healthy, turn: node.turn.as_ref()? })
    }

    /// Why a node that waits may not be isolated now, and its number in the queue; `None` if it may, or does not wait.
    pub(super) fn refused(&self, name: &NodeName, config: &Config, now: Timestamp) -> Option<(String, usize)> {
        self.refuses(&self.waits(name)?, config, now)
    }

    /// Whether a node waits although there is room for it.
    #[must_use]
    pub fn is_let_in(&self, name: &NodeName, config: &Config, now: Timestamp) -> bool {
        self.waits(name).is_some_and(|waits| self.refuses(&waits, config, now).is_none())
    }

    /// Say which limit a node waits for, if it waits.
    pub fn explain(&self, view: &mut NodeView, config: &Config, now: Timestamp) {
        if view.turn.is_some() {
            view.waiting_for = match self.refused(&view.name, config, now) {
                Some(refused) => format!("room: {}", sentence(refused)),
                None => "its isolation: there is room, and it is tried again if it fails".to_owned(),
            };
        }
    }

    /// Why a node may not be isolated now. Who stands before it in the queue takes the room first, as far as the limits let it: one
    /// that its pool keeps waiting keeps nobody else waiting.
    #[must_use]
    pub fn refusal(&self, candidate: &Candidate<'_>, config: &Config, now: Timestamp) -> Option<String> {
        self.refuses(candidate, config, now).map(sentence)
    }

    fn refuses(&self, candidate: &Candidate<'_>, config: &Config, now: Timestamp) -> Option<(String, usize)> {
        let mut sheet = Sheet::new(self, Some(candidate), now);
        let place = (candidate.turn.rank, candidate.node.clone());
        // One that is being written stands on the sheet already.
        let waits = |name: &NodeName| name != candidate.node && !self.reserved.contains(name);
        let ahead = || self.queue.range(..&place).map(|(_, name)| name).filter(|name| waits(name));
        let mut refused = sheet.refuses(candidate, config);
        if refused.is_none() {
            for first in ahead().filter_map(|name| self.waits(name)) {
                if sheet.refuses(&first, config).is_none() {
                    sheet.take(&first);
                    refused = sheet.refuses(candidate, config);
                    if refused.is_some() {
                        break;
                    }
                }
            }
        }
        let (limit, own) = refused?;
        Some((limit.text(own), ahead().count() + 1))
    }

    /// When time alone next makes room for somebody who waits.
    #[must_use]
    pub fn next_room(&self, config: &Config, now: Timestamp) -> Option<Timestamp> {
        self.queue.first()?;
        let sheet = Sheet::new(self, None, now);
        let own = config.policies.iter().filter_map(|policy| match &policy.guard {
            Some(PolicyGuard::Limits(limits)) => Some(limits),
            _ => None,
        });
        own.chain([&config.guard.limits]).filter_map(|limits| sheet.new_isolations(limits.new).room_at).min()
    }
}

/// What refuses a node and its number in the queue, as a clause.
pub(super) fn sentence((why, number): (String, usize)) -> String {
    format!("{why}, number {number} in the queue")
}

/// The room that is left while those in front take theirs.
pub(super) struct Sheet<'a> {
    muster: &'a Muster,
    now: Timestamp,
    /// Without the candidate.
    fleet: Count,
    pools: BTreeMap<&'a str, Count>,
    /// Isolations that are being written, without the candidate.
    writing: usize,
    /// Those who go first.
    first: Vec<(&'a str, bool)>,
}

impl<'a> Sheet<'a> {
    pub(super) fn new(muster: &'a Muster, candidate: Option<&Candidate<'a>>, now: Timestamp) -> Self {
        let mut sheet = Self { muster, now, fleet: muster.fleet, pools: BTreeMap::new(), writing: 0, first: Vec::new() };
        if let Some(candidate) = candidate {
            sheet.without(candidate);
        }
        for name in muster.reserved.iter().filter(|name| candidate.is_none_or(|c| c.node != *name)) {
            match muster.nodes.get(name) {
                // It stands already.
                Some(other) if other.isolated => continue,
                Some(other) => sheet.isolate(&other.pool, other.is_healthy()),
                // It has just come, and nobody knows its pool yet.
                None => sheet.fleet.isolated += 1,
            }
            sheet.writing += 1;
        }
        sheet
    }

    pub(super) fn fleet(&self) -> Count {
        self.fleet
    }

    /// Each pool with nodes that count, by name.
    pub(super) fn all_pools(&self) -> impl Iterator<Item = (&str, Count)> {
        let pools = self.muster.pools.iter().filter(|(_, count)| count.nodes + count.isolated > 0);
        pools.map(|(pool, count)| (pool.as_str(), *self.pools.get(pool.as_str()).unwrap_or(count)))
    }

    /// How many were isolated of late, and how many may be.
    pub(super) fn new_isolations(&self, rate: Rate) -> Window {
        // From the latest on: those that have been isolated for long stand there as well.
        let latest_first = self.muster.recent.iter().rev().map(|(at, _)| *at);
        Window::of(latest_first, self.writing, rate, self.now)
    }

    /// The candidate as one that is not isolated, whatever was seen of it last.
    fn without(&mut self, candidate: &Candidate<'a>) {
        let healthy = usize::from(candidate.healthy);
        match self.muster.nodes.get(candidate.node) {
            Some(this) if this.isolated => {
                self.fleet.isolated -= 1;
                let pool = self.pool(&this.pool);
                pool.isolated -= 1;
                pool.healthy += healthy;
            }
            // Somebody else uncordoned it since, or it became ready.
            Some(this) if this.in_scope && !this.healthy => self.pool(&this.pool).healthy += healthy,
            Some(_) => {}
            // It has just come.
            None => {
                self.fleet.nodes += 1;
                let pool = self.pool(candidate.pool);
                pool.nodes += 1;
                pool.healthy += healthy;
            }
        }
    }

    fn pool(&mut self, pool: &'a str) -> &mut Count {
        self.pools.entry(pool).or_insert_with(|| self.muster.pools.get(pool).copied().unwrap_or_default())
    }

    fn isolate(&mut self, pool: &'a str, healthy: bool) {
        self.fleet.isolated += 1;
        let pool = self.pool(pool);
        pool.isolated += 1;
        pool.healthy -= usize::from(healthy);
    }

    /// One that waits goes first.
    fn take(&mut self, first: &Candidate<'a>) {
        self.first.push((first.pool, first.healthy));
    }

    /// What refuses a node, and whose limit it is if a policy's own: the limits of one policy that wants it isolated are enough to let
    /// it in.
    fn refuses<'p>(&self, candidate: &Candidate<'p>, config: &Config) -> Option<(Limit<'p>, Option<&'p str>)> {
        let mut first = None;
        for policy in candidate.turn.policies() {
            let (limits, is_own) = config.limits_for(policy)?;
            let refused = self.check(candidate.pool, candidate.healthy, limits)?;
            first.get_or_insert((refused, is_own.then_some(policy)));
        }
        first
    }

    /// What refuses a node of that pool, and its use without those that go first.
    fn check<'p>(&self, pool: &'p str, healthy: bool, limits: &Limits) -> Option<Limit<'p>> {
        let of_pool = self.pools.get(pool).or_else(|| self.muster.pools.get(pool)).copied().unwrap_or_default();
        let (first, of_fleet) = (self.first.len(), self.fleet);
        let most = limits.fleet.of(of_fleet.nodes);
        if of_fleet.isolated + first >= most {
            return Some(Limit::Fleet { isolated: of_fleet.isolated, most });
        }
        let first_of_pool = self.first.iter().filter(|(p, _)| *p == pool);
        let most = limits.pool.of(of_pool.nodes);
        if of_pool.isolated + first_of_pool.clone().count() >= most {
            return Some(Limit::Pool { pool, isolated: of_pool.isolated, most });
        }
        let least = limits.min_healthy.of(of_pool.nodes);
        let falls = 1 + first_of_pool.filter(|(_, healthy)| *healthy).count();
        // One that is of no use anyway takes nothing away.
        if healthy && of_pool.healthy < least + falls {
            let (healthy, nodes) = (of_pool.healthy, of_pool.nodes);
            return Some(Limit::Floor { pool, healthy, nodes, least, percent: limits.min_healthy });
        }
        let window = self.new_isolations(limits.new);
        (window.begun + first >= window.most).then_some(Limit::New { window, within: limits.new.within })
    }
}
