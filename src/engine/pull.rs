//! What a pull found, to its nodes: it heals what the webhook lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::{Engine, Plan, lock};
use crate::{
    alert::{Alert, Fingerprint, Pull},
    locate::NodeName,
    quarantine::{Heard, Outcome, Told},
};

/// How long it is remembered when an alert was last heard of by webhook. No pull takes as long.
const REMEMBERED: SignedDuration = SignedDuration::from_mins(10);
/// Alerts that were heard of longer ago are forgotten when there are more than these.
const PRUNE_AT: usize = 4096;

/// When each alert was last heard of by webhook: of these a pull that began before knows less than we do.
#[derive(Debug, Default)]
pub(super) struct Recent {
    heard: HashMap<Fingerprint, Timestamp>,
}

impl Recent {
    /// It was heard of at `now`.
    pub(super) fn note(&mut self, fingerprint: Fingerprint, now: Timestamp) {
        if self.heard.len() >= PRUNE_AT {
            self.heard.retain(|_, at| now.duration_since(*at) < REMEMBERED);
        }
        self.heard.insert(fingerprint, now);
    }

    /// What was heard of since.
    fn since(&self, begun: Timestamp) -> Vec<Fingerprint> {
        self.heard.iter().filter(|(_, at)| **at >= begun).map(|(fp, _)| *fp).collect()
    }
}

/// What a pull came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// How many alerts became what.
    pub outcomes: BTreeMap<Outcome, usize>,
    /// Nodes that could not be read or written; the next pull tries them again.
    pub failed: usize,
}

impl Engine {
    /// Take what a pull found. Whatever was heard by webhook since it began is newer, and stays as it is.
    pub async fn pull(&self, pull: &Pull) -> Pulled {
        let newer = lock(&self.recent).since(pull.begun);
        let told = if pull.incomplete.is_none() { Told::Complete { newer: &newer } } else { Told::Pulled };
        let listed: Vec<_> = pull.alerts.iter().filter(|p| !newer.contains(&p.alert.fingerprint)).collect();
        let alerts: Vec<&Alert> = listed.iter().map(|p| &p.alert).collect();
        let config = self.config();
        let (plans, _) = self.plan_with_pods(&alerts, &config).await;

        let mut nodes: BTreeMap<NodeName, Vec<Heard<'_>>> = BTreeMap::new();
        if pull.incomplete.is_none() {
            nodes.extend(lock(&self.fleet).with_claims().into_iter().map(|name| (name, Vec::new())));
        }
        let acts = |plan: &&(&Plan<'_>, Option<&str>)| plan.0.passive.is_none();
        let muted = listed.iter().map(|p| p.muted.as_deref());
        let planned: Vec<(&Plan<'_>, Option<&str>)> = plans.iter().zip(muted).collect();
        for (plan, muted) in planned.iter().filter(acts) {
            match &plan.target {
                Ok((node, _)) => {
                    nodes.entry(node.clone()).or_default().push(Heard { muted: *muted, ..super::deliver::heard(plan) });
                }
                // One that nobody would send need not be mapped.
                Err(_) if muted.is_some() || plan.needs_pods() || lock(&self.parked).has(plan.alert.fingerprint) => {}
                Err(_) => drop(self.without_node(plan, false)),
            }
        }
        // No policy acts for these any more, but they go on firing: their claims are not over.
        for (plan, _) in planned.iter().filter(|plan| !acts(plan) && !plan.0.is_foreign()) {
            if let Ok((node, _)) = &plan.target
                && let Some(heard) = nodes.get_mut(node)
            {
                heard.push(super::deliver::heard(plan));
            }
        }
        if pull.incomplete.is_none() {
            let fires: BTreeSet<Fingerprint> = pull.alerts.iter().map(|p| p.alert.fingerprint).collect();
            lock(&self.parked).keep_only(|fp| fires.contains(&fp) || newer.contains(&fp));
        }

        let mut work = Vec::with_capacity(nodes.len());
        for (number, (name, heard)) in nodes.iter().enumerate() {
            work.push(self.work(number, name, heard.clone(), told));
        }
        let mut came = Pulled { outcomes: BTreeMap::new(), failed: 0 };
        for done in self.side_by_side(work).await {
            came.failed += usize::from(done.failed);
            for verdict in done.verdicts {
                *came.outcomes.entry(verdict.outcome).or_default() += 1;
            }
        }
        self.admit_waiting().await;
        self.timers.notify_one();
        came
    }
}
