//! One body: from its alerts to their nodes and back to one result per alert.

use std::{
    collections::BTreeMap,
    sync::{
        PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    Engine, Plan,
    answer::{AlertResult, Answer},
    lock,
};
use crate::{
    alert::{Alert, Delivery, Status},
    locate::{ExporterPod, NodeName},
    policy::{Config, Policy},
    quarantine::{Heard, Outcome, Rule, Told},
};

impl Engine {
    /// Take one body. The outcome of every alert stands in the answer; nothing of it is lost if nobody waits for the answer.
    pub async fn deliver(&self, delivery: Delivery) -> Answer {
        self.deliver_unless_late(delivery, &AtomicBool::new(false)).await
    }

    /// The same, if it may be that its sender is answered with an error before the work is done. `late` says so then.
    pub async fn deliver_unless_late(&self, delivery: Delivery, late: &AtomicBool) -> Answer {
        let mut warnings = self.note_clusters(&delivery);
        self.metrics.delivered(delivery.alerts.len(), delivery.truncated);
        if delivery.truncated > 0 {
            let text = format!(
                "{} alerts were cut off by max_alerts and are unknown here: set max_alerts: 0 in the webhook_config",
                delivery.truncated
            );
            tracing::warn!(truncated = delivery.truncated, receiver = %delivery.receiver, "{text}.");
            warnings.push(text);
            self.want_pull();
        }
        let alerts: Vec<&Alert> = delivery.alerts.iter().filter_map(|a| a.as_ref().ok()).collect();
        {
            let (mut recent, now) = (lock(&self.recent), self.clock.now());
            for alert in &alerts {
                recent.note(alert.fingerprint, now);
            }
        }
        let (taken, retry) = self.take(&alerts, Some(late)).await;
        self.tell_unmapped(&alerts, &taken);
        let mut taken = taken.into_iter();
        let results: Vec<AlertResult> = delivery
            .alerts
            .iter()
            .filter_map(|alert| match alert {
                Ok(_) => taken.next(),
                Err(invalid) => Some(AlertResult::invalid(invalid)),
            })
            .collect();
        for result in &results {
            self.metrics.outcome(result.outcome);
        }
        self.admit_waiting().await;
        self.timers.notify_one();
        Answer { results, truncated: delivery.truncated, warnings, retry }
    }

    /// Take alerts of a delivery, which may be `late`, or again because they were parked; whether any of them failed in a way that the
    /// sender's retry can cure.
    pub(super) async fn take(&self, alerts: &[&Alert], late: Option<&AtomicBool>) -> (Vec<AlertResult>, bool) {
        let again = late.is_none();
        let config = self.config();
        let (plans, no_pods) = self.plan_with_pods(alerts, &config).await;
        let mut results: Vec<Option<AlertResult>> = vec![None; alerts.len()];
        let mut by_node: Vec<(NodeName, Vec<usize>)> = Vec::new();
        let mut places: BTreeMap<NodeName, usize> = BTreeMap::new();
        let mut retry = false;
        for (i, plan) in plans.iter().enumerate() {
            match &plan.target {
                // Its resolve came meanwhile.
                _ if again && !lock(&self.parked).has(plan.alert.fingerprint) => {}
                Ok((node, _)) if plan.passive.is_none() || plan.alert.status == Status::Resolved => {
                    let place = *places.entry(node.clone()).or_insert_with(|| {
                        by_node.push((node.clone(), Vec::new()));
                        by_node.len() - 1
                    });
                    by_node[place].1.push(i);
                }
                _ if plan.needs_pods() => {
                    let why = no_pods.as_deref().unwrap_or("they were not read");
                    let reason = format!("the exporter pods are needed to find its node and could not be listed: {why}");
                    results[i] = Some(AlertResult::of(plan.alert, Outcome::Failed, reason));
                    retry = true;
                }
                _ => results[i] = Some(self.without_node(plan, again)),
            }
        }
        let mut work = Vec::with_capacity(by_node.len());
        for (number, (node, at)) in by_node.iter().enumerate() {
            work.push(self.work(number, node, at.iter().map(|i| heard(&plans[*i])).collect(), Told::Pushed));
        }
        let done = self.side_by_side(work).await;
        for ((node, at), done) in by_node.iter().zip(done) {
            retry |= done.retry;
            for (i, verdict) in at.iter().zip(done.verdicts) {
                let plan = &plans[*i];
                // A resolve that ended nothing says what its policy would have said.
                let (outcome, reason) = match &plan.passive {
                    Some((outcome, reason)) if verdict.outcome == Outcome::Unchanged => (*outcome, reason.clone()),
                    _ => (verdict.outcome, verdict.reason),
                };
                let (outcome, reason) = match outcome {
                    Outcome::Recorded | Outcome::Unchanged if self.shadow.is_some() && isolates(plan) => {
                        (Outcome::WouldIsolate, "the node would be isolated, and this mode writes nothing".to_owned())
                    }
                    _ => (outcome, reason),
                };
                let mut result = AlertResult::of(plan.alert, outcome, reason);
                result.node = Some(node.clone()).filter(|_| !(plan.is_foreign() && outcome == Outcome::OutOfScope));
                result.policy = plan.policy.map(|p| p.name.clone());
                match outcome {
                    Outcome::Failed if !done.retry => {
                        if !again && !done.failed {
                            tracing::error!(
                                alert = %plan.alert.name, node = %node, reason = %result.reason,
                                "An alert cannot be recorded on its node. It is kept and tried again."
                            );
                        }
                        self.park(plan.alert, again);
                    }
                    // One that we try again ourselves stays parked: its sender was told 200 and does not come again. Nor is one
                    // forgotten that waited for its node and is too old for it now: it may be live in ten minutes.
                    Outcome::Failed | Outcome::Stale => {}
                    // The node went away meanwhile; it may come back.
                    Outcome::Unmapped if plan.alert.status == Status::Firing => self.park(plan.alert, again),
                    _ => lock(&self.parked).forget(plan.alert.fingerprint),
                }
                results[*i] = Some(result);
            }
        }
        if let Some(late) = late {
            let told = if retry || late.load(Ordering::Acquire) { Told::Refused } else { Told::Accepted };
            self.note_the_answer(&by_node, &plans, told).await;
        }
        (results.into_iter().flatten().collect(), retry)
    }

    /// A sender that is answered with an error may never tell the end of what was recorded all the same: that is written down, and
    /// taken back when it was told with success.
    async fn note_the_answer(&self, by_node: &[(NodeName, Vec<usize>)], plans: &[Plan<'_>], told: Told<'_>) {
        let concerned = |name: &NodeName| match told {
            Told::Refused => lock(&self.fleet).has_firing_claims(name),
            _ => lock(&self.fleet).is_unconfirmed(name),
        };
        let mut work = Vec::new();
        for (number, (name, at)) in by_node.iter().enumerate().filter(|(_, (name, _))| concerned(name)) {
            work.push(self.work(number, name, at.iter().map(|i| heard(&plans[*i])).collect(), told));
        }
        // Where it cannot be written it is not: the next delivery or pull sees to it.
        drop(self.side_by_side(work).await);
    }

    /// Plan for each alert, with the exporter pods where they matter; else why they could not be had.
    pub(super) async fn plan_with_pods<'a>(&self, alerts: &[&'a Alert], config: &'a Config) -> (Vec<Plan<'a>>, Option<String>) {
        let plans = self.plan(alerts, config, None);
        if !plans.iter().any(Plan::needs_pods) {
            return (plans, None);
        }
        match self.cluster.exporter_pods(&config.locate.exporter_pods).await {
            Ok(pods) => (self.plan(alerts, config, Some(&pods)), None),
            Err(e) => (plans, Some(e)),
        }
    }

    fn plan<'a>(&self, alerts: &[&'a Alert], config: &'a Config, pods: Option<&[ExporterPod]>) -> Vec<Plan<'a>> {
        let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
        alerts.iter().map(|alert| Plan::of(alert, config, &nodes, pods)).collect()
    }

    /// The result of an alert that no policy acts for, or whose labels name no node.
    pub(super) fn without_node(&self, plan: &Plan<'_>, again: bool) -> AlertResult {
        let alert = plan.alert;
        let mut result = match (&plan.passive, &plan.target, alert.status) {
            (Some((outcome, reason)), _, _) => {
                if *outcome == Outcome::Heartbeat && alert.status == Status::Firing {
                    self.metrics.heartbeat(self.clock.now());
                }
                AlertResult::of(alert, *outcome, reason.clone())
            }
            (None, Err(unmapped), Status::Firing) if again => AlertResult::of(alert, Outcome::Unmapped, unmapped.message.clone()),
            (None, Err(unmapped), Status::Firing) => {
                self.metrics.unmapped(unmapped.reason);
                tracing::warn!(
                    alert = %alert.name, fingerprint = %alert.fingerprint, reason = unmapped.reason.as_str(),
                    "An alert could not be mapped to a node: {}.", unmapped.message
                );
                self.park(alert, again);
                AlertResult::of(alert, Outcome::Unmapped, unmapped.message.clone())
            }
            (None, Err(unmapped), Status::Resolved) => {
                lock(&self.parked).forget(alert.fingerprint);
                let reason = format!("it is over, and no node is known for it: {}", unmapped.message);
                AlertResult::of(alert, Outcome::Unchanged, reason)
            }
            // Those go to their node's worker.
            (None, Ok(_), _) => AlertResult::of(alert, Outcome::Unchanged, "nothing to do"),
        };
        result.node = plan.target.as_ref().ok().filter(|_| !plan.is_foreign()).map(|(node, _)| node.clone());
        result.policy = plan.policy.map(|p| p.name.clone());
        result
    }

    /// Keep an alert for later. One that is tried `again` is kept already, unless its resolve came meanwhile.
    fn park(&self, alert: &Alert, again: bool) {
        if !again && !lock(&self.parked).keep(alert.clone()) {
            self.metrics.parked_dropped();
            tracing::error!("Too many alerts wait to be mapped; the oldest was forgotten. Fix the labels of the rules.");
        }
    }

    /// Two different `cluster` labels without `scope.alerts`: node names of another cluster could be taken for ours.
    fn note_clusters(&self, delivery: &Delivery) -> Vec<String> {
        if !self.config.load().scope.alerts.is_empty() {
            return Vec::new();
        }
        let mut seen = lock(&self.clusters_seen);
        let before = seen.len();
        for alert in delivery.alerts.iter().flatten() {
            if seen.len() < 2
                && let Some(cluster) = alert.labels.get("cluster")
                && !seen.contains(cluster)
            {
                seen.insert(cluster.chars().take(64).collect());
            }
        }
        if seen.len() < 2 {
            return Vec::new();
        }
        let names: Vec<String> = seen.iter().map(|c| format!("{c:?}")).collect();
        let text = format!("alerts of several clusters arrive ({}): set scope.alerts to this one", names.join(", "));
        if before < 2 {
            tracing::warn!("{text}.");
        }
        vec![text]
    }
}

fn isolates(plan: &Plan<'_>) -> bool {
    plan.alert.status == Status::Firing && plan.policy.is_some_and(|p| p.action.isolates())
}

pub(super) fn heard<'a>(plan: &Plan<'a>) -> Heard<'a> {
    let acts = |p: &'a Policy| Rule { policy: &p.name, action: p.action };
    Heard {
        alert: plan.alert,
        gpu: plan.gpu.clone(),
        rule: plan.policy.filter(|_| plan.passive.is_none()).map(acts),
        muted: None,
    }
}
