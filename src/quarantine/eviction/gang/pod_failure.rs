//! What the `podFailurePolicy` of a Job makes of an evicted pod.
//!
//! The rules are tried in their order and the first that matches is applied
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy>). An evicted pod has the condition
//! `DisruptionTarget`; which exit code it ends with nobody knows before.

use serde_json::Value;

/// The exit codes of a container that did not catch SIGTERM, or was killed after its grace.
const KILLED: [i64; 2] = [143, 137];

/// What becomes of the failure of an evicted pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is not counted.
    Ignored,
    /// It counts towards the limits.
    Counted,
    /// The index of the pod fails.
    FailsIndex,
    /// The Job fails by the rule at this place.
    FailsJob { rule: usize },
}

/// The verdict on an evicted pod of a Job with this `spec`.
pub(super) fn verdict(spec: &Value) -> Verdict {
    for (rule, it) in spec["podFailurePolicy"]["rules"].as_array().into_iter().flatten().enumerate() {
        let action = it["action"].as_str().unwrap_or_default();
        let by_code = it["onExitCodes"].is_object();
        if !(if by_code { may_match(&it["onExitCodes"]) } else { is_disruption(&it["onPodConditions"]) }) {
            continue;
        }
        match action {
            "FailJob" => return Verdict::FailsJob { rule },
            "FailIndex" => return Verdict::FailsIndex,
            "Count" => return Verdict::Counted,
            // That the container ends with this very code is a hope, not a promise; a later rule may fail the Job.
            "Ignore" if !by_code => return Verdict::Ignored,
            _ => {}
        }
    }
    Verdict::Counted
}

/// Whether one of the codes that an eviction brings about matches. The requirement may be on another container of the pod: better
/// spared than failed.
fn may_match(requirement: &Value) -> bool {
    let named = |code: i64| requirement["values"].as_array().is_some_and(|v| v.iter().any(|v| v.as_i64() == Some(code)));
    match requirement["operator"].as_str() {
        Some("In") => KILLED.into_iter().any(named),
        Some("NotIn") => !KILLED.into_iter().all(named),
        _ => false,
    }
}

fn is_disruption(patterns: &Value) -> bool {
    patterns
        .as_array()
        .into_iter()
        .flatten()
        .any(|it| it["type"] == "DisruptionTarget" && it["status"].as_str().unwrap_or("True") == "True")
}
