//! What becomes of asking a pod to leave.

use std::time::Duration;

/// What became of asking a pod to leave, or of deleting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionAnswer {
    /// It terminates, with its own grace. Also said of one that does so already.
    Accepted,
    /// There is no such pod (404).
    Gone,
    /// There is another pod of that name (409 for its UID).
    AnotherPod,
    /// A disruption budget forbids it now (429 with the cause `DisruptionBudget`).
    Blocked {
        /// The name of the budget, as far as the server tells.
        budget: Option<String>,
        /// What the server said.
        message: String,
    },
    /// More than one budget matches the pod, which no eviction can pass (500 with a plain message).
    ManyBudgets {
        /// What the server said.
        message: String,
    },
    /// The API server has no room for it (429 without that cause: priority and fairness).
    Throttled {
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The server forbids it (401, 403), with what to do.
    Forbidden {
        /// What the server said.
        message: String,
    },
    /// The server does not take it for another reason, a retry will not help.
    Refused {
        /// What the server said.
        message: String,
    },
    /// No answer, or one that says nothing: it may have been done. To be read.
    Unknown {
        /// What was seen.
        message: String,
    },
}

impl EvictionAnswer {
    /// Every word of [`EvictionAnswer::as_str`].
    pub const ALL: [&str; 9] =
        ["accepted", "gone", "another_pod", "blocked", "many_budgets", "throttled", "forbidden", "refused", "unknown"];

    /// In one word, for a metric label.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Gone => "gone",
            Self::AnotherPod => "another_pod",
            Self::Blocked { .. } => "blocked",
            Self::ManyBudgets { .. } => "many_budgets",
            Self::Throttled { .. } => "throttled",
            Self::Forbidden { .. } => "forbidden",
            Self::Refused { .. } => "refused",
            Self::Unknown { .. } => "unknown",
        }
    }
}
