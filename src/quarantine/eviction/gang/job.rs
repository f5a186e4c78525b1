//! Jobs of Kubernetes, plain and indexed.
//!
//! An evicted pod counts as failed and is replaced, until more have failed than the limits allow: `status.failed` above
//! `backoffLimit`, or the failures of an index above `backoffLimitPerIndex`
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-backoff-failure-policy>,
//! <https://github.com/kubernetes/kubernetes/blob/v1.33.0/pkg/controller/job/job_controller.go>).

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::{
    Framework, Gang, Loss,
    chain::Link,
    pod_failure::{Verdict, verdict},
    selector,
};
use crate::locate::PodFacts;

/// The label that names the Job, from Kubernetes 1.27 on.
pub(super) const NAME: &str = "batch.kubernetes.io/job-name";

/// What becomes of a Job when one of its pods is evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// The pod is replaced; so many may be, this one included, if anything counts them.
    Goes { spare: Option<u64> },
    /// It fails.
    Fails(Failure),
}

/// How a Job fails, as its condition `Failed` will say, and why for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// `reason` of the condition.
    pub reason: &'static str,
    /// `message` of the condition.
    pub message: String,
    /// A clause.
    pub why: String,
}

/// The group of a pod of a Job.
pub(super) fn gang(pod: &PodFacts, link: &Link<'_>) -> Gang {
    let (loss, spare) = match fate(link.raw.unwrap_or(&Value::Null), pod) {
        Fate::Goes { spare } => (Loss::Each, spare),
        Fate::Fails(failure) => (Loss::Fails(failure.why), None),
    };
    Gang {
        spare,
        members: selector(pod, &[NAME]).or_else(|| selector(pod, &["job-name"])),
        unread: link.raw.is_none(),
        ..Gang::new(pod, Framework::Job, "Job", &link.owner.name, loss)
    }
}

/// What becomes of a Job, or of one from a template, when this pod of it is evicted. Of one that says nothing, the default.
pub(super) fn fate(job: &Value, pod: &PodFacts) -> Fate {
    let (spec, status) = (&job["spec"], &job["status"]);
    let fails = |reason, message: String, why: String| Fate::Fails(Failure { reason, message, why });
    match verdict(spec) {
        Verdict::Ignored => return Fate::Goes { spare: None },
        Verdict::FailsJob { rule } => {
            let message = format!("Pod {} has condition DisruptionTarget matching FailJob rule at index {rule}", pod.name);
            let why = format!("rule {rule} of its podFailurePolicy fails it when a pod is evicted");
            return fails("PodFailurePolicy", message, why);
        }
        Verdict::FailsIndex => {
            return failed_index(spec, status, "its podFailurePolicy fails the index of an evicted pod".to_owned());
        }
        Verdict::Counted => {}
    }
    let per_index = spec["backoffLimitPerIndex"].as_u64();
    if let Some(limit) = per_index {
        let failures = pod.annotations.get("batch.kubernetes.io/job-index-failure-count");
        if failures.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) >= limit {
            return failed_index(spec, status, format!("backoffLimitPerIndex {limit} is used up for the index of the pod"));
        }
    }
    let Some(limit) = spec["backoffLimit"].as_u64().or(per_index.is_none().then_some(6)) else {
        return Fate::Goes { spare: None };
    };
    let uncounted = status["uncountedTerminatedPods"]["failed"].as_array().map_or(0, Vec::len);
    let failed = status["failed"].as_u64().unwrap_or(0).saturating_add(u64::try_from(uncounted).unwrap_or(u64::MAX));
    match limit.saturating_sub(failed) {
        0 => {
            let message = "Job has reached the specified backoff limit".to_owned();
            fails(
                "BackoffLimitExceeded",
                message,
                format!("its backoffLimit is {limit}, and {failed} of its pods failed already"),
            )
        }
        spare => Fate::Goes { spare: Some(spare) },
    }
}

/// A Job fails with its first failed index, if not at once then when the other indexes are done.
fn failed_index(spec: &Value, status: &Value, why: String) -> Fate {
    let failed = count_indexes(status["failedIndexes"].as_str().unwrap_or_default());
    let (reason, message) = match spec["maxFailedIndexes"].as_u64() {
        Some(most) if failed >= most => {
            ("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes")
        }
        _ => ("FailedIndexes", "Job has failed indexes"),
    };
    Fate::Fails(Failure { reason, message: message.to_owned(), why })
}

/// How many indexes a list as `1,3-5,7` has.
fn count_indexes(text: &str) -> u64 {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        Some(last.saturating_sub(first).saturating_add(1))
    };
    text.split(',').filter_map(count).fold(0, u64::saturating_add)
}
