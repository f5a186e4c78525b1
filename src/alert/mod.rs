//! Alerts as Alertmanager describes them: the wire format, labels, fingerprints and matchers.

mod fingerprint;
mod groups;
mod labels;
mod matcher;
mod pulled;
mod recovery_query;
mod wire;

use std::fmt;

use jiff::Timestamp;

pub use fingerprint::{Fingerprint, FingerprintError};
pub use groups::{
    AnswerError, Listed, Listing, PeerStatus, Silence, Suppression, parse_groups, parse_receivers, parse_silences, parse_status,
    receivers_of,
};
pub use labels::Labels;
pub use matcher::{Matcher, MatcherError, Op};
pub use pulled::{Pull, Pulled};
pub use recovery_query::{RecoveryQuery, reads};
pub use wire::{BodyError, Delivery, InvalidAlert, parse_body};

/// The name of the label that holds the name of the rule.
pub const ALERTNAME: &str = "alertname";

/// Whether an alert fires or is over, as its sender sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// The condition holds.
    Firing,
    /// The sender no longer reports it. This does not mean that anything was repaired.
    Resolved,
}

impl Status {
    /// The word that Alertmanager uses on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One alert, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// The label `alertname`; never empty.
    pub name: String,
    /// All labels, `alertname` included.
    pub labels: Labels,
    /// The annotations as they were last received; they may change while the alert stays the same.
    pub annotations: Labels,
    /// Firing or resolved.
    pub status: Status,
    /// When it began to fire, after the rule's `for`. Not the id of an episode: the same
    /// (fingerprint, `starts_at`) can fire again after its resolve.
    pub starts_at: Timestamp,
    /// When it ended; `None` while it fires (the wire has Go's zero time then).
    pub ends_at: Option<Timestamp>,
    /// Identity of the label set.
    pub fingerprint: Fingerprint,
}
