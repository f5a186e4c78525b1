//! The order in which nodes wait for room.

use std::{cmp::Reverse, collections::BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    alert::Alert,
    policy::Config,
    quarantine::{
        claim::{Claim, ClaimState},
        decide::wanted,
        record::Record,
    },
};

/// What an alert's label `severity` says, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Look at it some day.
    Info,
    /// Look at it.
    Warning,
    /// Look at it now.
    Critical,
}

impl Severity {
    /// From an alert's label; a word that we do not know stands behind all that we know.
    #[must_use]
    pub fn of(alert: &Alert) -> Option<Self> {
        match alert.labels.get("severity")? {
            "info" => Some(Self::Info),
            "warning" => Some(Self::Warning),
            "critical" => Some(Self::Critical),
            _ => None,
        }
    }
}

/// The place of a node in the queue: the heavier policy first, then the graver fault, then who has waited longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Of the heaviest policy that wants it isolated.
    pub weight: Reverse<i32>,
    /// Of the gravest alert that wants it isolated.
    pub severity: Reverse<Option<Severity>>,
    /// When the oldest claim that wants it isolated began, on our clock.
    pub since: Timestamp,
}

/// What wants a node isolated, and its place in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Its place.
    pub rank: Rank,
    /// The policy that does most.
    pub policy: String,
    /// Other policies that want it isolated. It is let in as soon as the limits of one of them allow it.
    pub also: Vec<String>,
}

impl Turn {
    /// The policies, the one that does most first.
    pub(super) fn policies(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.policy).chain(&self.also).map(String::as_str)
    }

    /// Of a node with this record; `None` if nothing wants it isolated.
    pub(in crate::quarantine) fn of(record: &Record, config: &Config) -> Option<Self> {
        let policy = wanted(record)?.policy.clone();
        let claims = || record.claims.iter().filter(|c| c.state != ClaimState::Released && c.action.isolates() && !c.is_muted());
        let policies: BTreeSet<&str> = claims().flat_map(Claim::policies).filter(|p| config.isolates(p)).collect();
        let rank = Rank {
            weight: Reverse(policies.iter().map(|p| config.weight_of(p)).max().unwrap_or_default()),
            severity: Reverse(claims().filter_map(|c| c.severity).max()),
            since: claims().map(|c| c.since).min()?,
        };
        let also = policies.into_iter().filter(|p| *p != policy).map(str::to_owned).collect();
        Some(Self { rank, policy, also })
    }

    /// Of a claim by itself.
    pub(in crate::quarantine) fn of_claim(claim: &Claim, config: &Config) -> Self {
        let weight = claim.policies().map(|p| config.weight_of(p)).max().unwrap_or_default();
        let rank = Rank { weight: Reverse(weight), severity: Reverse(claim.severity), since: claim.since };
        Self { rank, policy: claim.policy.clone(), also: Vec::new() }
    }
}
