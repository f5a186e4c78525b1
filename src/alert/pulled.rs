//! What a pull finds: the alerts that fire by Alertmanager's own view, the union over its peers.

use jiff::Timestamp;

use super::Alert;

/// One pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    /// When the first request was sent, on our clock. What was heard after that is newer than the pull.
    pub begun: Timestamp,
    /// Every alert that any peer lists for our receiver, once, in the order of their fingerprints.
    pub alerts: Vec<Pulled>,
    /// Why it proves nothing about what it does not list; `None` if it is complete.
    pub incomplete: Option<String>,
    /// When the first of the silences ends, if any alert is silenced: what it says changes then.
    pub changes_at: Option<Timestamp>,
}

/// An alert that fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The alert; its status is firing.
    pub alert: Alert,
    /// Why Alertmanager sends nothing of it, as a clause, if so: `silenced by alice until 2026-03-01T12:00:00Z: "new riser"`,
    /// `inhibited by ...`, `muted by the time interval ...`.
    pub muted: Option<String>,
}
