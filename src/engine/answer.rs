//! What the sender of a body is told: one result per alert, in the order of the body.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::steps::PodStep;
use crate::{
    alert::{Alert, Fingerprint, InvalidAlert},
    locate::NodeName,
    quarantine::{Effect, Outcome},
};

/// The result of one alert; the same shape in the webhook's answer and in replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AlertResult {
    /// The name of the alert, if it could be read.
    pub alertname: Option<String>,
    /// Its fingerprint, if it could be read.
    pub fingerprint: Option<Fingerprint>,
    /// What became of it.
    pub outcome: Outcome,
    /// The node it is about, if its labels name one.
    pub node: Option<NodeName>,
    /// The policy that matched, if any.
    pub policy: Option<String>,
    /// Why, in words.
    pub reason: String,
}

impl AlertResult {
    pub(super) fn of(alert: &Alert, outcome: Outcome, reason: impl Into<String>) -> Self {
        Self {
            alertname: Some(alert.name.clone()),
            fingerprint: Some(alert.fingerprint),
            outcome,
            node: None,
            policy: None,
            reason: reason.into(),
        }
    }

    pub(super) fn invalid(alert: &InvalidAlert) -> Self {
        Self {
            alertname: alert.name.clone(),
            fingerprint: alert.fingerprint,
            outcome: Outcome::Invalid,
            node: None,
            policy: None,
            reason: alert.reason.clone(),
        }
    }
}

/// The answer to one body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// One per alert.
    pub results: Vec<AlertResult>,
    /// How many alerts the sender cut off; it should not (`max_alerts: 0`).
    #[serde(rename = "truncatedAlerts", skip_serializing_if = "is_zero")]
    pub truncated: u64,
    /// What a person should know about this body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether something failed that a retry can cure: the answer is a 503 then.
    #[serde(skip)]
    pub retry: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if gives a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A change of a node's effective action, written or refused.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// When, on our clock.
    pub at: Timestamp,
    /// The node.
    pub node: NodeName,
    /// `isolate`, `evict`, `release`, `refuse` or `none`.
    pub action: &'static str,
    /// The policy behind it.
    pub policy: Option<String>,
    /// Why, in words.
    pub reason: String,
    /// The merge patch that was applied.
    pub patch: Option<Value>,
    /// What became of its pods, if something did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<PodStep>,
}

impl Step {
    pub(super) fn word(effect: &Effect) -> &'static str {
        match effect {
            Effect::Isolate => "isolate",
            Effect::Release => "release",
            Effect::Refuse => "refuse",
            Effect::Withdraw => "none",
        }
    }

    /// The word for an action that was only decided.
    pub(super) fn would(effect: &Effect) -> &'static str {
        match effect {
            Effect::Isolate => "would_isolate",
            Effect::Release => "would_release",
            Effect::Refuse => "would_refuse",
            Effect::Withdraw => "none",
        }
    }
}
