//! What people are told: on a real cluster as Kubernetes Events, on the embedded one as lines of the log.
//!
//! Pure, as the decision is: notices are made of a change of a node, an unmapped alert or a node that waits, and which of them
//! are sent is decided on a time that is given.

mod build;
mod evict;
mod limit;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;

use jiff::Timestamp;

pub use build::{
    Change, exporter_not_tolerating, of_change, released_by_command, silenced, unmapped, unproven, unusable_record,
    waits_for_person, write_failed,
};
pub use evict::{Evicted, of_eviction, summary};
pub use limit::{Admission, Limiter};
pub use text::MAX_NOTE;

use crate::locate::{NodeName, Taint};

/// Why people are told something: the `reason` of an Event. Nothing here depends on what an alert says, since Events are grouped
/// by it (KEP-383).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A node was isolated.
    Isolated,
    /// A node was given back.
    Released,
    /// Somebody took our taint away, which counts as a release by hand (P10).
    ReleasedByHand,
    /// A node could be given back, but for a person's word.
    ReleaseHeld,
    /// A node could be given back, but nobody can tell whether its fault is gone, or it is still seen.
    ReleaseUnproven,
    /// All that fires on a node is silenced, inhibited or muted.
    Silenced,
    /// Our taint was taken away, not by a person, and was put back once (P10).
    Restored,
    /// The guard refuses to isolate a node for now.
    Refused,
    /// A node that the guard refused need not be isolated any more.
    Withdrawn,
    /// The labels of an alert lead to no node.
    Unmapped,
    /// A node could not be read or written.
    WriteFailed,
    /// The record of a node cannot be used.
    RecordUnreadable,
    /// A DCGM exporter would not come back on an isolated node.
    ExporterNotTolerating,
    /// Pods of an isolated node were asked to leave.
    PodsEvicted,
    /// A pod of an isolated node cannot leave yet.
    EvictionBlocked,
    /// A pod of an isolated node stays there, or came back.
    PodsLeft,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Isolated,
        Self::Released,
        Self::ReleasedByHand,
        Self::ReleaseHeld,
        Self::ReleaseUnproven,
        Self::Silenced,
        Self::Restored,
        Self::Refused,
        Self::Withdrawn,
        Self::Unmapped,
        Self::WriteFailed,
        Self::RecordUnreadable,
        Self::ExporterNotTolerating,
        Self::PodsEvicted,
        Self::EvictionBlocked,
        Self::PodsLeft,
    ];

    /// The word of an Event's `reason`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Isolated => "GpuNodeIsolated",
            Self::Released => "GpuNodeReleased",
            Self::ReleasedByHand => "GpuNodeReleasedByHand",
            Self::ReleaseHeld => "GpuNodeReleaseHeld",
            Self::ReleaseUnproven => "GpuNodeReleaseUnproven",
            Self::Silenced => "GpuAlertsSilenced",
            Self::Restored => "GpuIsolationRestored",
            Self::Refused => "GpuGuardRefused",
            Self::Withdrawn => "GpuIsolationWithdrawn",
            Self::Unmapped => "GpuAlertUnmapped",
            Self::WriteFailed => "GpuNodeWriteFailed",
            Self::RecordUnreadable => "GpuRecordUnreadable",
            Self::ExporterNotTolerating => "GpuExporterNotTolerating",
            Self::PodsEvicted => "GpuPodsEvicted",
            Self::EvictionBlocked => "GpuPodEvictionBlocked",
            Self::PodsLeft => "GpuPodsLeft",
        }
    }

    /// The word of an Event's `action`: what was done or tried.
    #[must_use]
    pub fn action(self) -> &'static str {
        match self {
            Self::Isolated | Self::Restored | Self::Withdrawn | Self::ExporterNotTolerating => "Isolate",
            Self::Released | Self::ReleasedByHand | Self::ReleaseHeld | Self::ReleaseUnproven | Self::Silenced => "Release",
            Self::PodsEvicted | Self::EvictionBlocked | Self::PodsLeft => "Evict",
            Self::Refused => "Refuse",
            Self::Unmapped => "Map",
            Self::WriteFailed | Self::RecordUnreadable => "Write",
        }
    }

    /// Whether somebody should look: the `type` of an Event is `Warning` then, else `Normal`.
    #[must_use]
    pub fn is_warning(self) -> bool {
        !matches!(self, Self::Released | Self::ReleasedByHand | Self::ReleaseHeld | Self::Silenced | Self::Withdrawn)
    }

    /// Whether one cause can bring a great many of them at once. They never use up the room of the others.
    fn comes_in_masses(self) -> bool {
        matches!(self, Self::Refused | Self::Withdrawn | Self::Unmapped)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A node that people are told about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Its name.
    pub name: NodeName,
    /// Its UID, if it is known.
    pub uid: Option<String>,
}

/// One thing that people are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// When it happened, on our clock.
    pub at: Timestamp,
    /// Why.
    pub reason: Reason,
    /// The node; `None` if there is none.
    pub node: Option<Subject>,
    /// Who, why, which GPU, which alert, runbook, what next: at most [`MAX_NOTE`] bytes, the important part first.
    pub note: String,
    /// The taint that stands on the node from now on, so that it can be seen who does not tolerate it.
    pub taint: Option<Taint>,
}
