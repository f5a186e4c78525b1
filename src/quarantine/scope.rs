//! Which nodes we may write (P7), and what people said about them.

use crate::{locate::NodeFacts, policy::Config};

/// Labels by which control-plane nodes are known; the second is of Kubernetes before 1.24.
pub const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// How a node stands to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It may be isolated.
    InScope,
    /// It must not be isolated, and why. One that bears our record is still given back.
    OutOfScope(String),
    /// It is never written, and why.
    Untouchable(String),
}

/// How a node stands to us, from its labels and taints.
#[must_use]
pub fn standing(node: &NodeFacts, config: &Config) -> Standing {
    if let Some(key) =
        CONTROL_PLANE.iter().find(|key| node.labels.contains_key(**key) || node.taints.iter().any(|t| t.key == **key))
    {
        return Standing::Untouchable(format!("a control-plane node ({key}) is never touched"));
    }
    if let Some(never) = config.scope.never.iter().find(|s| s.matches(&node.labels)) {
        return Standing::OutOfScope(format!("the node matches scope.never {never}"));
    }
    if !config.scope.nodes.matches(&node.labels) {
        return Standing::OutOfScope(format!("the node does not match scope.nodes {}", config.scope.nodes));
    }
    Standing::InScope
}

/// A person's word on a node: the value of an annotation, cut for showing.
pub(super) fn word(node: &NodeFacts, config: &Config, name: &str) -> Option<String> {
    node.annotations.get(&config.annotation(name)).map(|v| v.chars().take(200).collect())
}
