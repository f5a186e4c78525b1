//! What became of one alert.

use serde::Serialize;

/// The outcome of one alert; the words of the webhook's answer, of replay and of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Its claim is new or changed, and the node isolated by it.
    Recorded,
    /// Nothing new.
    Unchanged,
    /// On record; the guard refuses to isolate now.
    Pending,
    /// Its member cleared.
    Resolved,
    /// Its policy only observes.
    Observed,
    /// It blocks the release of its node.
    Frozen,
    /// It proves that alerts arrive.
    Heartbeat,
    /// Its member cleared, and a person holds the node.
    Held,
    /// A person said that nothing is done to this node.
    Ignored,
    /// It is silenced, inhibited or muted in Alertmanager: nothing is begun for it, and nothing ended.
    Silenced,
    /// Its node would be isolated, and this mode writes nothing.
    WouldIsolate,
    /// No policy matches.
    Unmatched,
    /// The alert or its node is not ours.
    OutOfScope,
    /// Its labels name no node for certain.
    Unmapped,
    /// It is older than its node, which was created only just now: it speaks of the machine before.
    Stale,
    /// It cannot be read.
    Invalid,
    /// It could not be recorded.
    Failed,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Recorded,
        Self::Unchanged,
        Self::Pending,
        Self::Resolved,
        Self::Observed,
        Self::Frozen,
        Self::Heartbeat,
        Self::Held,
        Self::Ignored,
        Self::Silenced,
        Self::WouldIsolate,
        Self::Unmatched,
        Self::OutOfScope,
        Self::Unmapped,
        Self::Stale,
        Self::Invalid,
        Self::Failed,
    ];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Unchanged => "unchanged",
            Self::Pending => "pending",
            Self::Resolved => "resolved",
            Self::Observed => "observed",
            Self::Frozen => "frozen",
            Self::Heartbeat => "heartbeat",
            Self::Held => "held",
            Self::Ignored => "ignored",
            Self::Silenced => "silenced",
            Self::WouldIsolate => "would_isolate",
            Self::Unmatched => "unmatched",
            Self::OutOfScope => "out_of_scope",
            Self::Unmapped => "unmapped",
            Self::Stale => "stale",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
        }
    }
}

/// The outcome of one alert and why, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// Why, as a sentence without a full stop.
    pub reason: String,
}

impl Verdict {
    pub(super) fn new(outcome: Outcome, reason: impl Into<String>) -> Self {
        Self { outcome, reason: reason.into() }
    }
}
