//! What a pull found, to its nodes: it heals what the webhook lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{AlertResult, Engine, Plan, lock};
use crate::{
    alert::{Alert, Fingerprint, Pull},
    locate::NodeName,
    quarantine::{Heard, Outcome, Told, Verdict, nothing_begun},
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
    /// One per alert that was listed, in their order; none for those that a webhook told more of since.
    pub results: Vec<AlertResult>,
    /// Nodes that could not be read or written; the next pull tries them again.
    pub failed: usize,
}

/// The last pull that was taken, in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastPull {
    /// When its first request was sent.
    pub begun: Timestamp,
    /// Whether what it does not list is over.
    pub complete: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// How many alerts it listed.
    pub alerts: usize,
    /// How many nodes could not be read or written.
    pub failed_nodes: usize,
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

        self.note_vetoes(&nodes);
        let mut work = Vec::with_capacity(nodes.len());
        for (number, (name, heard)) in nodes.iter().enumerate() {
            work.push(self.work(number, name, heard.clone(), told));
        }
        let mut came = Pulled { results: Vec::with_capacity(plans.len()), failed: 0 };
        let mut verdicts: HashMap<Fingerprint, Verdict> = HashMap::new();
        for (heard, done) in nodes.values().zip(self.side_by_side(work).await) {
            came.failed += usize::from(done.failed);
            verdicts.extend(heard.iter().map(|h| h.alert.fingerprint).zip(done.verdicts));
        }
        // From now on nothing fires that no node knows of.
        *lock(&self.heard_all) |= pull.incomplete.is_none() && came.failed == 0;
        for (plan, _) in &planned {
            let verdict = verdicts.remove(&plan.alert.fingerprint).filter(|_| plan.passive.is_none());
            let (outcome, reason) = match (verdict, &plan.passive, &plan.target) {
                (Some(verdict), ..) => (verdict.outcome, verdict.reason),
                (None, Some((outcome, reason)), _) => (*outcome, reason.clone()),
                (None, None, Err(unmapped)) => (Outcome::Unmapped, unmapped.message.clone()),
                (None, None, Ok(_)) => (Outcome::Unchanged, "nothing to do".to_owned()),
            };
            let mut result = AlertResult::of(plan.alert, outcome, reason);
            result.node = plan.target.as_ref().ok().filter(|_| !plan.is_foreign()).map(|(node, _)| node.clone());
            result.policy = plan.policy.map(|p| p.name.clone());
            came.results.push(result);
        }
        self.admit_waiting().await;
        self.timers.notify_one();
        self.taken.send_replace(Some(LastPull {
            begun: pull.begun,
            complete: pull.incomplete.is_none(),
            incomplete: pull.incomplete.clone(),
            alerts: pull.alerts.len(),
            failed_nodes: came.failed,
        }));
        came
    }

    /// Say who vetoed on which node, each once. Of a node that has no record nothing else could tell.
    fn note_vetoes(&self, nodes: &BTreeMap<NodeName, Vec<Heard<'_>>>) {
        let veto = |heard: &Vec<Heard<'_>>| {
            let why = heard.iter().map(|h| h.muted.map(|why| (h, why))).collect::<Option<Vec<_>>>()?;
            let (heard, why) = why.first()?;
            let gpu = heard.gpu.as_ref().map(|gpu| format!(" on {gpu}")).unwrap_or_default();
            Some(nothing_begun(&format!("{}{gpu}", heard.alert.name), why))
        };
        let now: BTreeMap<NodeName, String> = nodes.iter().filter_map(|(name, h)| Some((name.clone(), veto(h)?))).collect();
        let mut vetoed = lock(&self.vetoed);
        for (node, why) in now.iter().filter(|(node, why)| vetoed.get(*node) != Some(*why)) {
            tracing::info!(%node, "Muted in Alertmanager: {why}.");
        }
        *vetoed = now;
    }
}
