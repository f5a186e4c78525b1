//! `JobSet`s, and the `TrainJob`s that run as one.
//!
//! What an eviction does is decided twice: by the Job of the pod, whether it replaces the pod or fails; and if it fails, by the
//! `failurePolicy` of the `JobSet`: without one it fails with its first Job, else the first rule that matches decides, and without a
//! matching rule all Jobs are created again (<https://jobset.sigs.k8s.io/docs/tasks/failure_policy/>,
//! <https://github.com/kubernetes-sigs/jobset/blob/main/api/jobset/v1alpha2/jobset_types.go>).

#[cfg(test)]
mod tests;

use regex::RegexBuilder;
use serde_json::Value;

use super::{
    Framework, Gang, Loss,
    chain::Chain,
    job::{self, Failure, Fate},
    owners::Kind,
    selector,
};
use crate::locate::PodFacts;

/// The label that names the `JobSet`.
pub(super) const NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// The label that names the entry of `spec.replicatedJobs`.
const REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";
/// The largest compiled pattern of a rule, in bytes; the messages that it is tried on are short.
const PATTERN_SIZE_LIMIT: usize = 1 << 20;

/// The group of a pod that belongs to a `JobSet`.
pub(super) fn gang(pod: &PodFacts, chain: &Chain<'_>) -> Gang {
    let jobset = chain.of(Kind::JobSet);
    let read = jobset.and_then(|link| link.raw);
    let job_link = chain.of(Kind::Job);
    let job = job_link.and_then(|link| link.raw).or_else(|| read.and_then(|jobset| template(jobset, pod)));
    let policy = read.map_or(&Value::Null, |jobset| &jobset["spec"]["failurePolicy"]);

    let name = jobset.map(|link| link.owner.name.as_str()).or_else(|| pod.labels.get(NAME).map(String::as_str));
    let (framework, kind, name) = match chain.of(Kind::TrainJob) {
        Some(train) => (Framework::TrainJob, "TrainJob", train.owner.name.as_str()),
        None => (Framework::JobSet, "JobSet", name.unwrap_or_default()),
    };
    let decided = match job::fate(job.unwrap_or(&Value::Null), pod) {
        Fate::Goes { spare } if policy["restartStrategy"] == "InPlaceRestart" => in_place(policy, read, spare),
        Fate::Goes { spare } => Decided { loss: Loss::Each, spare, alone: false },
        Fate::Fails(failure) => failed(policy, read.unwrap_or(&Value::Null), pod, &failure),
    };
    let mut gang = Gang {
        spare: decided.spare,
        members: selector(pod, &[NAME]),
        unread: read.is_none() || job.is_none(),
        ..Gang::new(pod, framework, kind, name, decided.loss)
    };
    if decided.alone
        && let Some(link) = job_link
    {
        gang.key = format!("{}/{}", gang.key, link.owner.name);
        gang.members = selector(pod, &[job::NAME]);
    }
    gang
}

struct Decided {
    loss: Loss,
    spare: Option<u64>,
    /// Whether the Job of the pod is the group, and not all Jobs.
    alone: bool,
}

/// What the Job of the pod was made from, if it could not be read itself.
fn template<'a>(jobset: &'a Value, pod: &PodFacts) -> Option<&'a Value> {
    let name = pod.labels.get(REPLICATED_JOB)?;
    jobset["spec"]["replicatedJobs"].as_array()?.iter().find(|it| it["name"] == name.as_str()).map(|it| &it["template"])
}

/// The pods that are not lost start anew where they are, which does not move them; each new attempt counts.
fn in_place(policy: &Value, jobset: Option<&Value>, spare: Option<u64>) -> Decided {
    let most = policy["maxRestarts"].as_u64().unwrap_or(0);
    let attempts = jobset.and_then(|it| it["status"]["currentInPlaceRestartAttempt"].as_u64()).unwrap_or(0);
    match most.saturating_sub(attempts) {
        0 => Decided { loss: Loss::Fails(used_up(most)), spare: None, alone: false },
        left => Decided { loss: Loss::Each, spare: Some(spare.map_or(left, |spare| spare.min(left))), alone: false },
    }
}

/// What the `JobSet` does about a Job that fails.
fn failed(policy: &Value, jobset: &Value, pod: &PodFacts, failure: &Failure) -> Decided {
    let fails = |why: String| Decided { loss: Loss::Fails(why), spare: None, alone: false };
    if !policy.is_object() {
        return fails(format!("its Job fails ({}), and it has no failurePolicy", failure.why));
    }
    let rules = policy["rules"].as_array().map_or(&[][..], Vec::as_slice);
    let rule = rules.iter().find(|rule| matches(rule, pod, failure));
    let action = rule.map_or("RestartJobSet", |rule| rule["action"].as_str().unwrap_or_default());
    let most = policy["maxRestarts"].as_u64().unwrap_or(0);
    let left = most.saturating_sub(restarts(&jobset["status"], rules.is_empty()));
    match action {
        "RestartJobSet" | "RestartJob" if left == 0 => fails(used_up(most)),
        "RestartJobSet" => Decided { loss: Loss::Whole, spare: Some(left), alone: false },
        "RestartJobSetAndIgnoreMaxRestarts" => Decided { loss: Loss::Whole, spare: None, alone: false },
        "RestartJob" => Decided { loss: Loss::Whole, spare: Some(left), alone: true },
        "RestartJobAndIgnoreMaxRestarts" => Decided { loss: Loss::Whole, spare: None, alone: true },
        "FailJobSet" => fails(format!("its Job fails ({}), and a rule of its failurePolicy says FailJobSet", failure.why)),
        other => {
            fails(format!("its Job fails ({}), and what its failurePolicy says then is not known here: {other}", failure.why))
        }
    }
}

fn used_up(most: u64) -> String {
    format!("no restart is left of the {most} that its failurePolicy allows")
}

/// How many restarts count towards `maxRestarts`. Before 0.6 there were no rules, and all of them did.
fn restarts(status: &Value, no_rules: bool) -> u64 {
    let whole = status["restartsCountTowardsMax"].as_u64();
    let whole = whole.or_else(|| status["restarts"].as_u64().filter(|_| no_rules)).unwrap_or(0);
    let jobs = status["replicatedJobsStatus"].as_array().into_iter().flatten();
    let alone = jobs.filter_map(|it| it["jobRestartsCountTowardsMax"].as_array()).flatten().filter_map(Value::as_u64);
    alone.fold(whole, u64::saturating_add)
}

/// Whether a rule is about such a failure. A list that is empty or absent asks for nothing.
fn matches(rule: &Value, pod: &PodFacts, failure: &Failure) -> bool {
    let any = |list: &Value, holds: &dyn Fn(&str) -> bool| {
        let list = list.as_array().map_or(&[][..], Vec::as_slice);
        list.is_empty() || list.iter().filter_map(Value::as_str).any(holds)
    };
    any(&rule["onJobFailureReasons"], &|reason| reason == failure.reason)
        && any(&rule["targetReplicatedJobs"], &|name| pod.labels.get(REPLICATED_JOB).is_some_and(|it| it == name))
        && any(&rule["onJobFailureMessagePatterns"], &|pattern| {
            let pattern = RegexBuilder::new(pattern).size_limit(PATTERN_SIZE_LIMIT).build();
            pattern.is_ok_and(|pattern| pattern.is_match(&failure.message))
        })
}
