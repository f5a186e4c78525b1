//! Alertmanager: one or two peers. What is modelled, and where it stands in the source of version 0.33, is said at each place.

use std::collections::{BTreeMap, BTreeSet};

use crate::{prometheus::Report, sequence::node_of};

/// The route's timing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub(crate) group_wait: i64,
    pub(crate) group_interval: i64,
    pub(crate) repeat_interval: i64,
    pub(crate) max_alerts: Option<usize>,
}

/// `--cluster.peer-timeout`: peer n waits n times as long before it sends.
const PEER_TIMEOUT: i64 = 15;
/// The least time that a flush has (`notify.MinTimeout`).
const MIN_TIMEOUT: i64 = 10;

/// An alert as a peer holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) starts: i64,
    pub(crate) ends: i64,
    pub(crate) updated: i64,
}

/// What one flush sends. It is sent again as it is while it is retried.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) node: usize,
    /// Each alert and whether it fired when the flush began.
    pub(crate) alerts: Vec<(usize, Stored, bool)>,
    /// How many `max_alerts` cut off.
    pub(crate) truncated: usize,
    /// What stood in the group, to be deleted if it is over: muted ones too.
    whole: Vec<(usize, Stored, bool)>,
}

/// What became of a request, as Alertmanager counts it (`notify/util.go`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Accepted,
    /// A 5xx or a transport error.
    Retry,
}

#[derive(Debug, Clone)]
enum State {
    Idle,
    /// For the peers before it.
    Waiting {
        until: i64,
        deadline: i64,
        snapshot: Snapshot,
    },
    Sending {
        at: i64,
        pause: i64,
        deadline: i64,
        snapshot: Snapshot,
    },
}

#[derive(Debug, Clone)]
struct Group {
    alerts: BTreeMap<usize, Stored>,
    next: i64,
    flushed: bool,
    state: State,
}

/// An entry of the notification log (`nflog`): what was told last of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    firing: BTreeSet<usize>,
    resolved: BTreeSet<usize>,
    at: i64,
}

/// One peer.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    position: i64,
    pub(crate) up: bool,
    /// Since when it runs.
    pub(crate) started: i64,
    store: BTreeMap<usize, Stored>,
    groups: BTreeMap<usize, Group>,
    log: BTreeMap<usize, Entry>,
}

impl Peer {
    pub(crate) fn new(position: usize) -> Self {
        let position = i64::try_from(position).unwrap_or_default();
        Self { position, up: true, started: -3600, store: BTreeMap::new(), groups: BTreeMap::new(), log: BTreeMap::new() }
    }

    /// Alerts are never stored on disk; the log is, every 15 minutes and at a clean exit.
    pub(crate) fn goes_down(&mut self, keeps_log: bool) {
        self.up = false;
        self.store.clear();
        self.groups.clear();
        if !keeps_log {
            self.log.clear();
        }
    }

    pub(crate) fn comes_up(&mut self, now: i64) {
        self.up = true;
        self.started = now;
    }

    /// What it lists as firing: resolved alerts are never listed (`api/v2`).
    pub(crate) fn lists(&self, now: i64) -> impl Iterator<Item = (usize, Stored)> {
        self.store.iter().filter(move |(_, s)| self.up && s.ends > now).map(|(a, s)| (*a, *s))
    }

    /// Prometheus reports an alert (`provider/mem`, `dispatch`).
    pub(crate) fn hear(&mut self, report: Report, now: i64, route: &Route) {
        if !self.up {
            return;
        }
        let mut new = Stored { starts: report.starts, ends: report.ends, updated: now };
        if let Some(old) = self.store.get(&report.alert) {
            let overlaps = (new.ends > old.starts && new.ends < old.ends) || (new.starts > old.starts && new.starts < old.ends);
            if overlaps {
                // Alert.Merge: the earliest start; of two ends that both passed the later one, else the later lease.
                let over = new.ends <= now;
                new.starts = new.starts.min(old.starts);
                if old.ends > new.ends && (!over || old.ends <= now) {
                    new.ends = old.ends;
                }
            }
        }
        self.store.insert(report.alert, new);
        let group = self.groups.entry(node_of(report.alert)).or_insert_with(|| Group {
            alerts: BTreeMap::new(),
            next: now + route.group_wait,
            flushed: false,
            state: State::Idle,
        });
        group.alerts.insert(report.alert, new);
        // An alert that is older than group_wait waits no longer: after each restart of Alertmanager.
        if !group.flushed && new.starts + route.group_wait < now {
            group.next = now;
        }
    }

    /// Let a second pass. Groups flush by themselves, each in its own order.
    pub(crate) fn tick(
        &mut self,
        now: i64,
        route: &Route,
        muted: impl Fn(usize) -> bool,
        mut send: impl FnMut(&Snapshot) -> Sent,
    ) {
        if !self.up {
            return;
        }
        let nodes: Vec<usize> = self.groups.keys().copied().collect();
        for node in nodes {
            let Some(group) = self.groups.get_mut(&node) else { continue };
            if matches!(group.state, State::Idle) && now >= group.next {
                group.next = now + route.group_interval;
                group.flushed = true;
                let whole: Vec<_> = group.alerts.iter().map(|(a, s)| (*a, *s, s.ends > now)).collect();
                // Muted alerts are taken out before the log is asked, resolved ones too.
                let alerts: Vec<_> = whole.iter().filter(|(a, ..)| !muted(*a)).copied().collect();
                let snapshot = Snapshot { node, alerts, truncated: 0, whole };
                let wait = self.position * PEER_TIMEOUT;
                let deadline = now + route.group_interval.max(MIN_TIMEOUT) + wait;
                group.state = State::Waiting { until: now + wait, deadline, snapshot };
            }
            if let State::Waiting { until, deadline, snapshot } = &group.state
                && now >= *until
            {
                let (deadline, snapshot) = (*deadline, snapshot.clone());
                if needs_update(self.log.get(&node), &snapshot, now, route) {
                    group.state = State::Sending { at: now, pause: 1, deadline, snapshot };
                } else {
                    finish(group, &snapshot);
                }
            }
            if let State::Sending { at, pause, deadline, snapshot } = &mut group.state {
                if now >= *deadline {
                    // The log is as it was: the next flush sends what the group is then.
                    group.state = State::Idle;
                } else if now >= *at {
                    let mut cut = snapshot.clone();
                    // max_alerts cuts after the sort by label, and the log counts all as told (`set_notifies_stage.go`).
                    let most = route.max_alerts.unwrap_or(usize::MAX);
                    cut.truncated = cut.alerts.len().saturating_sub(most);
                    cut.alerts.truncate(most);
                    match send(&cut) {
                        Sent::Accepted => {
                            let of = |fires: bool| snapshot.alerts.iter().filter(|a| a.2 == fires).map(|a| a.0).collect();
                            self.log.insert(node, Entry { firing: of(true), resolved: of(false), at: now });
                            let snapshot = snapshot.clone();
                            finish(group, &snapshot);
                        }
                        Sent::Retry => {
                            *at = now + *pause;
                            *pause = (*pause * 3 / 2 + 1).min(60);
                        }
                    }
                }
            }
            if group.alerts.is_empty() && matches!(group.state, State::Idle) {
                self.groups.remove(&node);
            }
        }
    }

    /// Gossip: of each entry the latest counts.
    pub(crate) fn log_from(&mut self, other: &Self) {
        for (node, entry) in &other.log {
            if self.log.get(node).is_none_or(|ours| ours.at < entry.at) {
                self.log.insert(*node, entry.clone());
            }
        }
    }

    /// Entries live twice `repeat_interval`, at most `--data.retention` (120 h).
    pub(crate) fn forget(&mut self, now: i64, route: &Route) {
        self.log.retain(|_, entry| now - entry.at < (2 * route.repeat_interval).min(432_000));
    }
}

/// After a successful flush what is over leaves the group, unless it changed meanwhile.
fn finish(group: &mut Group, snapshot: &Snapshot) {
    for (alert, stored, fires) in &snapshot.whole {
        if !fires && group.alerts.get(alert) == Some(stored) {
            group.alerts.remove(alert);
        }
    }
    group.state = State::Idle;
}

/// `DedupStage.needsUpdate`.
fn needs_update(entry: Option<&Entry>, snapshot: &Snapshot, now: i64, route: &Route) -> bool {
    if snapshot.alerts.is_empty() {
        return false;
    }
    let mut firing = snapshot.alerts.iter().filter(|a| a.2);
    let any_firing = firing.clone().next().is_some();
    let Some(entry) = entry else { return any_firing };
    if firing.any(|a| !entry.firing.contains(&a.0)) {
        return true;
    }
    if !any_firing {
        return !entry.firing.is_empty();
    }
    let new_resolve = snapshot.alerts.iter().any(|a| !a.2 && !entry.resolved.contains(&a.0));
    new_resolve || entry.at < now - route.repeat_interval
}
