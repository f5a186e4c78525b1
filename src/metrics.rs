//! What is counted, and how it is shown: the Prometheus text format at `/metrics`. Node names are labels of one gauge only.

mod evictions;
mod guard;
mod labels;
#[cfg(test)]
mod tests;
mod verdicts;

use std::{
    sync::atomic::{AtomicI64, AtomicU64},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::text,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::Registry,
};

use evictions::Evictions;
use guard::Guard;
use labels::{ByAction, ByCall, ByCode, ByNode, ByNodeAlone, ByOutcome, ByReason, ByResult, ByState, call_seconds};
pub(crate) use labels::{EventResult, LedgerResult, PullResult};
use verdicts::Verdicts;

use crate::{
    cluster::ClusterError,
    engine::{Busy, Census},
    locate::UnmappedReason,
    policy::Config,
    quarantine::{Judgement, Outcome},
    sources::PeerStates,
};

/// All metrics, registered under `gpu_quarantine_`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<ByCode, Counter>,
    alerts_received: Counter,
    alerts: Family<ByOutcome, Counter>,
    truncated: Counter,
    unmapped: Family<ByReason, Counter>,
    parked: Gauge,
    parked_dropped: Counter,
    actions: Family<ByAction, Counter>,
    evictions: Evictions,
    write_failures: Family<ByReason, Counter>,
    nodes: Family<ByState, Gauge>,
    records_unusable: Gauge,
    guard: Guard,
    events: Family<ByResult, Counter>,
    ledger_writes: Family<ByResult, Counter>,
    heartbeat: Gauge<f64, AtomicU64>,
    pulls: Family<ByResult, Counter>,
    pull_configured: Gauge,
    pull_complete: Gauge<f64, AtomicU64>,
    pull_duration: Histogram,
    peers: Family<ByState, Gauge>,
    evidence_queries: Family<ByResult, Counter>,
    evidence_answered: Gauge<f64, AtomicU64>,
    claims: Family<ByState, Gauge>,
    node_state: Family<ByNode, Gauge>,
    node_isolated: Family<ByNodeAlone, Gauge<f64, AtomicU64>>,
    isolation_delay: Histogram,
    verdicts: Verdicts,
    decision: Histogram,
    kubernetes: Family<ByCall, Histogram, fn() -> Histogram>,
    reload_successful: Gauge<i64, AtomicI64>,
    reload_time: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All of them, at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("gpu_quarantine");
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The program that runs", build);
        let m = Self {
            requests: Family::default(),
            alerts_received: Counter::default(),
            alerts: Family::default(),
            truncated: Counter::default(),
            unmapped: Family::default(),
            parked: Gauge::default(),
            parked_dropped: Counter::default(),
            actions: Family::default(),
            evictions: Evictions::default(),
            write_failures: Family::default(),
            nodes: Family::default(),
            records_unusable: Gauge::default(),
            guard: Guard::default(),
            events: Family::default(),
            ledger_writes: Family::default(),
            heartbeat: Gauge::default(),
            pulls: Family::default(),
            pull_configured: Gauge::default(),
            pull_complete: Gauge::default(),
            pull_duration: Histogram::new(exponential_buckets(0.005, 2.0, 14)),
            peers: Family::default(),
            evidence_queries: Family::default(),
            evidence_answered: Gauge::default(),
            claims: Family::default(),
            node_state: Family::default(),
            node_isolated: Family::default(),
            verdicts: Verdicts::default(),
            isolation_delay: Histogram::new(exponential_buckets(1.0, 2.0, 13)),
            decision: Histogram::new(exponential_buckets(0.000_01, 4.0, 8)),
            kubernetes: Family::new_with_constructor(call_seconds),
            reload_successful: Gauge::default(),
            reload_time: Gauge::default(),
            registry: Registry::default(),
        };
        m.register(&mut registry);
        m.begin_series();
        Self { registry, ..m }
    }

    fn register(&self, registry: &mut Registry) {
        let m = self;
        // Counters are registered without `_total`, which the encoder adds.
        registry.register("webhook_requests", "Webhook requests by the code they were answered with", m.requests.clone());
        registry.register("alerts_received", "Alerts received, invalid ones included", m.alerts_received.clone());
        registry.register("alerts", "Alerts by what became of them", m.alerts.clone());
        registry.register("alerts_truncated", "Alerts that the sender cut off by max_alerts", m.truncated.clone());
        registry.register("alerts_unmapped", "Firing alerts whose labels name no node, by reason", m.unmapped.clone());
        registry.register("alerts_parked", "Alerts kept in memory to be tried again", m.parked.clone());
        registry.register("alerts_parked_dropped", "Parked alerts forgotten for want of room", m.parked_dropped.clone());
        registry.register("actions", "Changes of a node's effective action", m.actions.clone());
        m.evictions.register(registry);
        registry.register("node_write_failures", "Nodes that could not be read or written, by reason", m.write_failures.clone());
        registry.register("nodes", "Nodes by state", m.nodes.clone());
        registry.register("claims", "Claims on record, by state", m.claims.clone());
        registry.register("records_unusable", "Nodes whose record cannot be used", m.records_unusable.clone());
        m.guard.register(registry);
        registry.register("node_state_info", "Nodes that are not free, at most 500 of them", m.node_state.clone());
        registry.register(
            "node_isolated_timestamp_seconds",
            "Since when nodes have been isolated by us, at most 500 of them",
            m.node_isolated.clone(),
        );
        registry.register(
            "isolation_delay_seconds",
            "From an alert's startsAt to the isolation of its node, across two clocks",
            m.isolation_delay.clone(),
        );
        registry.register("decision_duration_seconds", "The time that one decision takes", m.decision.clone());
        registry.register("events", "Kubernetes Events by what became of them", m.events.clone());
        registry.register(
            "kubernetes_request_duration_seconds",
            "Calls to the API server, by verb and outcome",
            m.kubernetes.clone(),
        );
        registry.register("ledger_writes", "Writes of the ledger, by what they came to", m.ledger_writes.clone());
        registry.register("heartbeat_timestamp_seconds", "When a heartbeat alert last arrived", m.heartbeat.clone());
        registry.register("pulls", "Pulls from Alertmanager, by what they came to", m.pulls.clone());
        registry.register(
            "pull_configured",
            "Whether sources.alertmanagers is configured; without it webhooks are all that is known",
            m.pull_configured.clone(),
        );
        registry.register(
            "pull_last_complete_timestamp_seconds",
            "When the last complete pull from Alertmanager began",
            m.pull_complete.clone(),
        );
        registry.register("pull_duration_seconds", "The time that one pull from Alertmanager takes", m.pull_duration.clone());
        registry.register("alertmanager_peers", "Alertmanagers at the last pull, by state", m.peers.clone());
        registry.register("evidence_queries", "Questions to Prometheus, by result", m.evidence_queries.clone());
        registry.register(
            "evidence_last_success_timestamp_seconds",
            "When all questions about a node were last answered",
            m.evidence_answered.clone(),
        );
        registry.register(
            "config_last_reload_successful",
            "Whether the last load of the configuration succeeded",
            m.reload_successful.clone(),
        );
        registry.register(
            "config_last_reload_success_timestamp_seconds",
            "When the configuration was last loaded",
            m.reload_time.clone(),
        );
        m.verdicts.register(registry);
    }

    /// Series exist from the start, so that an increase from nothing is seen.
    fn begin_series(&self) {
        for outcome in Outcome::ALL {
            drop(self.alerts.get_or_create(&ByOutcome { outcome: outcome.as_str() }));
        }
        for reason in UnmappedReason::ALL {
            drop(self.unmapped.get_or_create(&ByReason { reason: reason.as_str() }));
        }
        for reason in ClusterError::REASONS {
            drop(self.write_failures.get_or_create(&ByReason { reason }));
        }
        for verb in ["get", "list", "patch"] {
            drop(self.kubernetes.get_or_create(&ByCall { verb, outcome: "ok" }));
        }
        for code in [200, 400, 413, 503] {
            drop(self.requests.get_or_create(&ByCode { code }));
        }
        for result in EventResult::ALL {
            drop(self.events.get_or_create(&ByResult { result: result.as_str() }));
        }
        for result in LedgerResult::ALL {
            drop(self.ledger_writes.get_or_create(&ByResult { result: result.as_str() }));
        }
        for result in PullResult::ALL {
            drop(self.pulls.get_or_create(&ByResult { result: result.as_str() }));
        }
        self.peers(PeerStates::default());
        for result in ["ok", "failed"] {
            drop(self.evidence_queries.get_or_create(&ByResult { result }));
        }
    }

    /// Make the series of every policy, so that their first action is an increase.
    pub fn expect_policies(&self, config: &Config) {
        for policy in config.policies.iter().filter(|p| p.action.isolates()) {
            for action in ["isolate", "release", "refuse"] {
                drop(self.actions.get_or_create(&ByAction { action, policy: policy.name.clone() }));
            }
        }
    }

    pub(crate) fn answered(&self, code: u16) {
        self.requests.get_or_create(&ByCode { code }).inc();
    }

    pub(crate) fn delivered(&self, alerts: usize, truncated: u64) {
        self.alerts_received.inc_by(alerts as u64);
        self.truncated.inc_by(truncated);
    }

    pub(crate) fn outcome(&self, outcome: Outcome) {
        self.alerts.get_or_create(&ByOutcome { outcome: outcome.as_str() }).inc();
    }

    pub(crate) fn unmapped(&self, reason: UnmappedReason) {
        self.unmapped.get_or_create(&ByReason { reason: reason.as_str() }).inc();
    }

    pub(crate) fn parked_dropped(&self) {
        self.parked_dropped.inc();
    }

    pub(crate) fn action(&self, action: &'static str, policy: &str) {
        self.actions.get_or_create(&ByAction { action, policy: policy.to_owned() }).inc();
    }

    pub(crate) fn evicted(&self, answer: &'static str) {
        self.evictions.answered(answer);
    }

    pub(crate) fn write_failed(&self, reason: &'static str) {
        self.write_failures.get_or_create(&ByReason { reason }).inc();
    }

    pub(crate) fn isolated_after(&self, seconds: f64) {
        self.isolation_delay.observe(seconds);
    }

    /// Make the series of an alert that isolated a node.
    pub(crate) fn expect_verdict(&self, alert: &str) {
        self.verdicts.expect(alert);
    }

    /// A person released a node and said what they had found.
    pub(crate) fn found(&self, alert: &str, judgement: Judgement) {
        self.verdicts.found(alert, judgement);
    }

    /// A node was given back that had been isolated by that alert.
    pub(crate) fn withheld(&self, alert: &str, gpu_hours: f64) {
        self.verdicts.withheld(alert, gpu_hours);
    }

    pub(crate) fn decided_in(&self, took: Duration) {
        self.decision.observe(took.as_secs_f64());
    }

    pub(crate) fn kubernetes_call(&self, verb: &'static str, outcome: &'static str, took: Duration) {
        self.kubernetes.get_or_create(&ByCall { verb, outcome }).observe(took.as_secs_f64());
    }

    pub(crate) fn event(&self, result: EventResult) {
        self.events.get_or_create(&ByResult { result: result.as_str() }).inc();
    }

    pub(crate) fn ledger(&self, result: LedgerResult) {
        self.ledger_writes.get_or_create(&ByResult { result: result.as_str() }).inc();
    }

    #[cfg(test)]
    pub(crate) fn events_of(&self, result: EventResult) -> u64 {
        self.events.get_or_create(&ByResult { result: result.as_str() }).get()
    }

    pub(crate) fn heartbeat(&self, at: Timestamp) {
        self.heartbeat.set(seconds(at));
    }

    pub(crate) fn pulled(&self, result: PullResult, begun: Timestamp, took: Duration, peers: PeerStates) {
        self.pulls.get_or_create(&ByResult { result: result.as_str() }).inc();
        if result == PullResult::Complete {
            self.pull_complete.set(seconds(begun));
        }
        self.pull_duration.observe(took.as_secs_f64());
        self.peers(peers);
    }

    #[cfg(test)]
    pub(crate) fn pulls_of(&self, result: PullResult) -> u64 {
        self.pulls.get_or_create(&ByResult { result: result.as_str() }).get()
    }

    /// A question to Prometheus was answered, or was not.
    pub(crate) fn evidence_query(&self, answered: bool) {
        let result = if answered { "ok" } else { "failed" };
        self.evidence_queries.get_or_create(&ByResult { result }).inc();
    }

    #[cfg(test)]
    pub(crate) fn evidence_queries_of(&self, result: &'static str) -> u64 {
        self.evidence_queries.get_or_create(&ByResult { result }).get()
    }

    /// All questions about a node were answered.
    pub(crate) fn evidence_answered(&self, at: Timestamp) {
        self.evidence_answered.set(seconds(at));
    }

    fn peers(&self, PeerStates { answered, failed, settling }: PeerStates) {
        for (state, count) in [("answered", answered), ("failed", failed), ("settling", settling)] {
            self.peers.get_or_create(&ByState { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Whether there is anybody to ask.
    pub(crate) fn pull_configured(&self, configured: bool) {
        self.pull_configured.set(i64::from(configured));
    }

    /// The configuration was loaded, or could not be.
    pub fn reloaded(&self, at: Option<Timestamp>) {
        self.reload_successful.set(i64::from(at.is_some()));
        if let Some(at) = at {
            self.reload_time.set(seconds(at));
        }
    }

    /// The text of `/metrics`. Gauges are set from the state as it is now.
    #[must_use]
    pub fn render(&self, engine: &crate::engine::Engine) -> String {
        let Census { states, claims, pods, busy, parked, unusable, paused, limits } = engine.census();
        self.guard.stand(paused, limits);
        self.evictions.stand(&pods);
        self.records_unusable.set(i64::try_from(unusable).unwrap_or(i64::MAX));
        for (state, count) in claims {
            self.claims.get_or_create(&ByState { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        // The two metrics with node names, and only of nodes that somebody asks about.
        self.node_state.clear();
        self.node_isolated.clear();
        for Busy { node, state, isolated_at } in busy {
            self.node_state.get_or_create(&ByNode { node: node.to_string(), state: state.as_str() }).set(1);
            if let Some(at) = isolated_at {
                self.node_isolated.get_or_create(&ByNodeAlone { node: node.to_string() }).set(seconds(at));
            }
        }
        for (state, count) in states {
            self.nodes.get_or_create(&ByState { state: state.as_str() }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.parked.set(i64::try_from(parked).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing into a String does not fail.
        if text::encode(&mut text, &self.registry).is_err() {
            tracing::error!("The metrics could not be rendered.");
        }
        text
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact in a double for the next 285,000 years")]
fn seconds(at: Timestamp) -> f64 {
    at.as_millisecond() as f64 / 1000.0
}
