//! From an alert to the node it is about and the policy that acts for it.

use crate::{
    alert::{Alert, Status},
    locate::{ExporterPod, Gpu, Inventory, Link, NodeName, Unmapped, gpu_of, locate},
    policy::{Action, Config, Policy},
    quarantine::Outcome,
};

/// What is to be done with an alert, before its node is looked at.
#[derive(Debug, Clone)]
pub struct Plan<'a> {
    /// The alert.
    pub alert: &'a Alert,
    /// The policy that matches, if any.
    pub policy: Option<&'a Policy>,
    /// The outcome if no policy acts on nodes for it, and why.
    pub passive: Option<(Outcome, String)>,
    /// The node and the link that named it.
    pub target: Result<(NodeName, Link), Unmapped>,
    /// The GPU that the labels name.
    pub gpu: Option<Gpu>,
}

impl<'a> Plan<'a> {
    /// Plan for one alert. `pods` is `None` as long as the exporter pods have not been read.
    #[must_use]
    pub fn of(alert: &'a Alert, config: &'a Config, nodes: &Inventory, pods: Option<&[ExporterPod]>) -> Self {
        let (policy, passive) = match config.scope.alerts.iter().find(|m| !m.matches(&alert.labels)) {
            Some(unmet) => (None, Some((Outcome::OutOfScope, format!("the alert does not meet scope.alerts {unmet}")))),
            None => match config.policy_for(&alert.labels) {
                None => (None, Some((Outcome::Unmatched, "no policy matches".to_owned()))),
                Some(policy) => (Some(policy), passive(policy)),
            },
        };
        let target = locate(&alert.labels, &config.locate, nodes, pods).map(|l| (l.node, l.link));
        Self { alert, policy, passive, target, gpu: gpu_of(&alert.labels, &config.locate) }
    }

    /// Whether the alert is of another cluster: what its labels name must not be taken for a node of ours.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        matches!(self.passive, Some((Outcome::OutOfScope, _)))
    }

    /// Whether the answer depends on the exporter pods, which have not been read.
    #[must_use]
    pub fn needs_pods(&self) -> bool {
        // What nobody acts for is mapped as a courtesy only.
        (self.passive.is_none() || self.alert.status == Status::Resolved)
            && self.target.as_ref().is_err_and(|u| u.reason.needs_pods())
    }
}

fn passive(policy: &Policy) -> Option<(Outcome, String)> {
    match policy.action {
        Action::Observe => Some((Outcome::Observed, "its policy only observes".to_owned())),
        Action::Heartbeat => Some((Outcome::Heartbeat, "alerts arrive".to_owned())),
        Action::Freeze | Action::Isolate | Action::Evict => None,
    }
}
