//! The labels of metrics and their words.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::histogram::{Histogram, exponential_buckets},
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByOutcome {
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByReason {
    pub(super) reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByAction {
    pub(super) action: &'static str,
    pub(super) policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByAnswer {
    pub(super) answer: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByCode {
    pub(super) code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByState {
    pub(super) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByResult {
    pub(super) result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByCall {
    pub(super) verb: &'static str,
    pub(super) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByNode {
    pub(super) node: String,
    pub(super) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ByNodeAlone {
    pub(super) node: String,
}

/// From 1 ms to 8 s: a call is given up after 3 to 5 s.
pub(super) fn call_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 14))
}

/// What became of a Kubernetes Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventResult {
    /// The API server took it.
    Sent,
    /// It did not.
    Failed,
    /// There were too many.
    Dropped,
    /// The same was sent a short while ago.
    Repeated,
}

impl EventResult {
    pub(super) const ALL: [Self; 4] = [Self::Sent, Self::Failed, Self::Dropped, Self::Repeated];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
            Self::Repeated => "repeated",
        }
    }
}

/// What a write of the ledger came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerResult {
    /// It was written.
    Ok,
    /// Somebody else wrote meanwhile.
    Conflict,
    /// It could not be read or written.
    Failed,
    /// What stood there could not be used, and was kept beside the new one.
    Unreadable,
}

impl LedgerResult {
    pub(super) const ALL: [Self; 4] = [Self::Ok, Self::Conflict, Self::Failed, Self::Unreadable];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What a pull from Alertmanager came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullResult {
    /// What it does not list does not fire.
    Complete,
    /// It proves nothing about what it does not list.
    Incomplete,
    /// Nobody answered.
    Failed,
}

impl PullResult {
    pub(super) const ALL: [Self; 3] = [Self::Complete, Self::Incomplete, Self::Failed];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
        }
    }
}
