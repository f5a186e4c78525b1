//! Jobs of Volcano.
//!
//! A pod that is deleted is the event `PodEvicted`. The first policy of its task that names the event, or else of the job, says what
//! is done; without one the pod is created again
//! (<https://github.com/volcano-sh/volcano/blob/master/pkg/controllers/job/job_controller_util.go>,
//! <https://github.com/volcano-sh/apis/blob/master/pkg/apis/bus/v1alpha1/actions.go>).

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::{Framework, Gang, Loss, chain::Link, selector};
use crate::locate::PodFacts;

/// The group of a pod of a Job of Volcano.
pub(super) fn gang(pod: &PodFacts, link: &Link<'_>) -> Gang {
    let (loss, spare) = link.raw.map_or((Loss::Each, None), |job| loss(job, pod));
    Gang {
        spare,
        members: selector(pod, &["volcano.sh/job-name"]),
        unread: link.raw.is_none(),
        // Not `Job`, which is another one of Kubernetes.
        ..Gang::new(pod, Framework::VolcanoJob, "VolcanoJob", &link.owner.name, loss)
    }
}

fn loss(job: &Value, pod: &PodFacts) -> (Loss, Option<u64>) {
    let spec = &job["spec"];
    let own = pod.labels.get("volcano.sh/task-spec");
    let task = spec["tasks"].as_array().into_iter().flatten().find(|task| own.is_some_and(|own| task["name"] == own.as_str()));
    let action = task.and_then(|task| action(&task["policies"])).or_else(|| action(&spec["policies"]));
    match action {
        Some("RestartJob") => {
            // It fails when it comes to start again and has done so as often as it may.
            let most = spec["maxRetry"].as_u64().filter(|n| *n > 0).unwrap_or(3);
            let spare = most.saturating_sub(job["status"]["retryCount"].as_u64().unwrap_or(0)).saturating_sub(1);
            match spare {
                0 => (Loss::Fails(format!("its policy restarts it, and no retry is left (maxRetry {most})")), None),
                spare => (Loss::Whole, Some(spare)),
            }
        }
        Some(action @ ("AbortJob" | "TerminateJob" | "CompleteJob")) => {
            (Loss::Fails(format!("its policy for PodEvicted is {action}")), None)
        }
        // RestartTask, RestartPod and the like concern the pod, or what runs beside it.
        _ => (Loss::Each, None),
    }
}

fn action(policies: &Value) -> Option<&str> {
    let is_named = |event: &Value| event == "PodEvicted" || event == "*";
    let names =
        |policy: &&Value| is_named(&policy["event"]) || policy["events"].as_array().is_some_and(|v| v.iter().any(is_named));
    policies.as_array()?.iter().find(names)?["action"].as_str()
}
