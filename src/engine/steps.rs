//! What is told of evictions: a step for programs, a notice for people.

use std::sync::Arc;

use serde::Serialize;

use super::{Engine, Step};
use crate::{
    locate::{NodeFacts, PodName},
    notice,
    policy::Config,
    quarantine::eviction::{Came, Evictee, EvictionAnswer, Plan},
};

/// What became of one pod of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodStep {
    /// Namespace and name.
    pub pod: PodName,
    /// In one word: where it stands, or what was answered.
    pub outcome: &'static str,
    /// Why, as a clause; empty if there is nothing to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl PodStep {
    /// A pod whose state changed by a plan. That nobody knows whether it is to go is another thing than waiting, and people are
    /// needed for it.
    pub(super) fn of(pod: &Evictee, plan: &Plan) -> Self {
        let spared = plan.left.iter().find(|(name, spared)| *name == pod.pod && spared.is_puzzling());
        let outcome = spared.map_or(pod.state.as_str(), |(_, spared)| spared.reason);
        Self { pod: pod.pod.clone(), outcome, reason: pod.why.clone().unwrap_or_default() }
    }

    /// A pod that was asked, or deleted.
    pub(super) fn after(pod: &PodName, came: &Came, deleted: bool) -> Self {
        let (outcome, reason) = match came {
            Came::Answered(answer) => {
                let done = deleted && *answer == EvictionAnswer::Accepted;
                (answer.as_str(), if done { "deleted at its deadline".to_owned() } else { said(answer) })
            }
            Came::Withheld(why) => ("withheld", why.clone()),
            Came::Observed => ("would_evict", "the service only observes".to_owned()),
        };
        Self { pod: pod.clone(), outcome, reason }
    }
}

fn said(answer: &EvictionAnswer) -> String {
    match answer {
        EvictionAnswer::Accepted | EvictionAnswer::Gone => String::new(),
        EvictionAnswer::AnotherPod => "another pod has its name now".to_owned(),
        EvictionAnswer::Blocked { budget: Some(budget), .. } => format!("PodDisruptionBudget {budget}"),
        EvictionAnswer::Throttled { .. } => "the API server has no room for it now".to_owned(),
        EvictionAnswer::Blocked { message, .. }
        | EvictionAnswer::ManyBudgets { message }
        | EvictionAnswer::Forbidden { message }
        | EvictionAnswer::Refused { message }
        | EvictionAnswer::Unknown { message } => message.clone(),
    }
}

impl Engine {
    /// Tell what was done to the pods of a node, if anything was.
    pub(super) fn tell_evicted(
        &self,
        node: &NodeFacts,
        plan: &Plan,
        mut pods: Vec<PodStep>,
        all_left: bool,
        evidence: Option<&str>,
        config: &Arc<Config>,
    ) {
        if plan.begins && (all_left || !pods.is_empty()) {
            pods.extend(plan.left.iter().filter(|(_, spared)| spared.is_worth_telling()).map(|(pod, spared)| PodStep {
                pod: pod.clone(),
                outcome: spared.reason,
                reason: spared.why.clone(),
            }));
        }
        if pods.is_empty() {
            return;
        }
        let (policy, subject) = plan.by.clone().unzip();
        let at = self.clock.now();
        let action = if self.shadow.is_some() { "would_evict" } else { "evict" };
        let told = notice::Evicted {
            at,
            node,
            policy: policy.as_deref(),
            subject: subject.as_deref(),
            pods: &pods.iter().map(|p| (p.pod.to_string(), p.outcome, p.reason.as_str())).collect::<Vec<_>>(),
            evidence,
        };
        self.tell(notice::of_eviction(&told), config);
        let reason = notice::summary(&told);
        (self.sink)(Step { at, node: node.name.clone(), action, policy, reason, patch: None, pods });
    }
}
