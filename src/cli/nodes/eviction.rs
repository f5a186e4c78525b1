//! The pods that are asked to leave a node, as people need to hear of them, and the document with the evidence.

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::Value;

use super::{Failure, LiveSources, Opened, Place, json, taint_text, time};
use crate::{
    cluster::{
        Workloads as _,
        kubernetes::{self, DirectEvidence},
    },
    locate::Taint,
    policy::Config,
    quarantine::{
        NodeView,
        eviction::{Evictee, EvicteeState, Evicting},
    },
};

/// The section of the story; empty if the node is none of those whose pods are to leave. `taint` is the one that isolates it.
pub(super) fn section(view: &NodeView, taint: Option<&Taint>, config: &Config, now: Timestamp, flags: &str) -> Vec<String> {
    let pods = view.eviction.as_ref().map_or(&[][..], |eviction| &eviction.pods);
    if pods.is_empty() && view.evicts.is_none() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), format!("Pods that are asked to leave ({})", pods.len())];
    if pods.is_empty() {
        let label = &config.eviction.pods;
        lines.push(format!("  none is on record: none there has opted in ({label}) and is concerned, or nobody has looked yet"));
    }
    lines.extend(pods.iter().flat_map(|pod| about(pod, taint, now)));
    for restart in &view.restarts {
        lines.push(field("restarts", &format!("{}, counted at {}", restart.group, time(restart.at))));
    }
    if let Some(name) = view.eviction.as_ref().and_then(|eviction| eviction.evidence.as_ref()) {
        lines.push(field("evidence", &format!("ConfigMap {}/{name}; to read it:", config.ledger.namespace)));
        lines.push(field("", &format!("gpu-quarantine nodes show {}{flags} --evidence", view.name)));
    }
    lines
}

fn field(name: &str, value: &str) -> String {
    format!("  {name:12}  {value}")
}

fn about(pod: &Evictee, taint: Option<&Taint>, now: Timestamp) -> Vec<String> {
    let mut lines = vec![format!("  {}: {}", pod.pod, words(pod))];
    let mut field = |name: &str, value: String| lines.push(format!("    {name:10}  {value}"));
    field("group", pod.group.clone());
    // Each refusal begins it anew; since when it is asked stands below.
    field(if pod.state == EvicteeState::Blocked { "refused" } else { "since" }, time(pod.at));
    if let Some(asked) = pod.asked {
        let often = match pod.tries {
            0 | 1 => "once".to_owned(),
            n => format!("{n} times"),
        };
        field("asked", format!("{}, {often}", time(asked)));
    }
    if let Some(next) = pod.next.filter(|next| *next > now && !pod.state.is_over()) {
        field("next", format!("not before {}", time(next)));
    }
    if let Some(why) = &pod.why {
        field("why", why.clone());
    }
    if let Some(checkpoint) = &pod.checkpoint {
        field("checkpoint", checkpoint.clone());
    }
    if let Some((what, command)) = advice(pod, taint) {
        field("do", what);
        if let Some(command) = command {
            field("", command);
        }
    }
    lines
}

/// Where it stands, for somebody who does not know the word.
fn words(pod: &Evictee) -> &'static str {
    match pod.state {
        EvicteeState::Waiting => "is to leave, and something comes first",
        EvicteeState::Checkpoint => "is to leave, and has time to write its checkpoint",
        EvicteeState::Asking => "is being asked to leave",
        EvicteeState::Blocked => "WAS ASKED TO LEAVE AND CANNOT YET",
        EvicteeState::Leaving => "terminates",
        EvicteeState::Gone => "is gone",
        EvicteeState::Left => "STAYS, and is not asked any more",
        EvicteeState::Returned => "CAME BACK, and is not asked again",
    }
}

/// What a person can do about it, and the command, if there is one. The reason is a text on record, and nothing else tells.
fn advice(pod: &Evictee, taint: Option<&Taint>) -> Option<(String, Option<String>)> {
    let why = pod.why.as_deref().unwrap_or_default();
    let (namespace, name) = (pod.pod.namespace(), pod.pod.name());
    let budgets = || format!("kubectl -n {namespace} get poddisruptionbudgets");
    let delete = || format!("kubectl -n {namespace} delete pod {name}");
    match pod.state {
        EvicteeState::Blocked if why.starts_with("more than one PodDisruptionBudget") => {
            let what = "Let only one PodDisruptionBudget match the pod: with two of them nobody can evict it.";
            Some((what.to_owned(), Some(budgets())))
        }
        EvicteeState::Blocked if why.contains("PodDisruptionBudget") => {
            let named =
                why.strip_prefix("the PodDisruptionBudget ").and_then(|rest| rest.strip_suffix(" allows no disruption now"));
            let command = named.map(|budget| format!("kubectl -n {namespace} describe poddisruptionbudget {budget}"));
            let what = "It goes once enough other pods of its PodDisruptionBudget are ready, or the budget is changed.";
            Some((what.to_owned(), Some(command.unwrap_or_else(budgets))))
        }
        EvicteeState::Blocked if why.starts_with("the API server forbids it") => {
            Some(("Give the service the right that is named there (docs/operations.md, Rights).".to_owned(), None))
        }
        EvicteeState::Left if why.contains(" would fail for good") => {
            let what = format!("Ask the owner of {}: it is lost for good with this pod. If it may be:", pod.group);
            Some((what, Some(delete())))
        }
        EvicteeState::Blocked if why.starts_with("the API server refuses it") => {
            let what =
                "See to what is named there, an admission webhook perhaps. To delete it by hand, past every PodDisruptionBudget:";
            Some((what.to_owned(), Some(delete())))
        }
        EvicteeState::Left if why.starts_with("not gone within") => {
            let what = "See to what is named there. To delete it by hand, past every PodDisruptionBudget:";
            Some((what.to_owned(), Some(delete())))
        }
        EvicteeState::Leaving if why.starts_with("it should have ended") => {
            let what =
                "Look whether the node and its kubelet answer. If the machine is known to be off, delete the pod with --force.";
            Some((what.to_owned(), None))
        }
        EvicteeState::Waiting if why.starts_with("nobody knows what its group bears") => {
            Some(("Give the service the right that is named there, or see to the API server.".to_owned(), None))
        }
        EvicteeState::Waiting if why.starts_with("nobody knows which pod uses") => {
            let what = "Let somebody tell which pod uses which GPU: the alert (labels exported_namespace and exported_pod), or the \
                        kubelet (feature gate ResourceHealthStatus); or set eviction.unknown_gpu: node, which takes all that opted in.";
            Some((what.to_owned(), None))
        }
        EvicteeState::Waiting if why.contains(" within an hour: not before ") => {
            Some(("Wait, or raise eviction.max_restarts_per_hour and reload.".to_owned(), None))
        }
        EvicteeState::Returned => {
            let taint = taint.map_or_else(|| "our taint".to_owned(), taint_text);
            let what = format!(
                "Take the toleration of {taint} off {}: one that names it, or one of everything (operator Exists, no key). Without \
                 one, its controller puts pods on this node by itself (nodeName).",
                pod.group
            );
            Some((what, None))
        }
        _ => None,
    }
}

/// How many pods are still to leave, for a list of nodes; `None` if none is.
pub(super) fn still_to_leave(view: &NodeView) -> Option<String> {
    let to_leave: Vec<&Evictee> = view.eviction.iter().flat_map(|e| &e.pods).filter(|p| !p.state.is_over()).collect();
    let blocked = to_leave.iter().filter(|p| p.state == EvicteeState::Blocked).count();
    let pods = match to_leave.len() {
        0 => return None,
        1 => "1 pod is to leave".to_owned(),
        n => format!("{n} pods are to leave"),
    };
    Some(if blocked == 0 { pods } else { format!("{pods}, {blocked} cannot yet") })
}

/// The name of the document of the present episode, or else of the last one that has one.
fn document_of(view: &NodeView) -> Option<&str> {
    let present = view.eviction.as_ref().and_then(|Evicting { evidence, .. }| evidence.as_deref());
    present.or_else(|| view.history.iter().rev().find_map(|episode| episode.evidence.as_deref()))
}

/// The document with the evidence, as JSON.
pub(super) async fn document(sources: &LiveSources, opened: &Opened, view: &NodeView) -> Result<String, Failure> {
    let node = &view.name;
    let name = document_of(view).ok_or_else(|| {
        Failure::finding(format!("node {node} has no evidence on record: it is kept when the first pod is asked to leave"))
    })?;
    let (place, domain) = (&opened.config.ledger, &opened.config.domain);
    let read = match &opened.place {
        Place::File(cluster) => cluster.read_evidence(place, name).await,
        Place::Api(_) => {
            let failed = |e: kubernetes::ConnectError| Failure::unreachable(e.to_string());
            let client = kubernetes::config(sources.kubeconfig.as_deref(), sources.context.as_deref()).await.map_err(failed)?;
            DirectEvidence::new(client, place.clone(), domain).map_err(failed)?.read(name).await
        }
    };
    let text = read.map_err(|e| Failure::unreachable(e.to_string()))?.ok_or_else(|| {
        let why = "it was deleted, or is older or more than eviction.evidence keeps";
        Failure::finding(format!("the evidence of node {node}, ConfigMap {}/{name}, is not there: {why}", place.namespace))
    })?;
    let document: Value = serde_json::from_str(&text)
        .map_err(|e| Failure::finding(format!("the evidence in ConfigMap {}/{name} is not JSON: {e}", place.namespace)))?;
    json(&document)
}
