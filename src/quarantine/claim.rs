//! Claims and their members: which alerts hold a node, and since when.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{guard::Severity, machine::MachineChange, reach::GpuScope, record::Unknown};
use crate::{
    alert::{Alert, Fingerprint, RecoveryQuery},
    locate::{Gpu, PodName},
    policy::Action,
};

/// What is kept of an annotation, in characters.
const MAX_NOTE: usize = 240;
/// Members that are over are kept for people, so many per claim.
const MAX_RESOLVED: usize = 8;
/// Queries that one claim can have. They are never shed, so the record must hold them.
const MAX_QUERIES: usize = 4;

/// A policy's hold on one node, keyed by alert name and GPU (or the node as a whole).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The alert name.
    pub alert: String,
    /// The GPU; absent for the node as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// The policy that made it, by name; it may be gone from the configuration since.
    pub policy: String,
    /// Other policies that its alerts matched: the release needs what all of them need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The strongest that any of them does.
    pub action: Action,
    /// Where it stands.
    pub state: ClaimState,
    /// When it first fired, on our clock.
    pub since: Timestamp,
    /// When its last member ended, on our clock; the hold-down runs from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<Timestamp>,
    /// What the alerts ask for before release, on top of their policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recovery: Vec<Recovery>,
    /// What its alerts say of how far the fault reaches (label `gpu_scope`); the furthest of several. Without it, as far as the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<GpuScope>,
    /// The fault class of its alerts (label `fault`); cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// What its alerts say of how grave it is (label `severity`); the gravest of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// The pods that its alerts name as users of the GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<PodName>,
    /// An alert of it had no label `recovery`: where evidence is required, a person decides.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlabelled: bool,
    /// Each returns a sample only when the fault is gone, and all must. A query is only ever added, so that no later post, forged or
    /// rendered by an edited rule, makes a release easier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<RecoveryQuery>,
    /// Why an alert's annotation `recovery_query` cannot be used: then only a person can tell. As a clause, cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven: Option<String>,
    /// What happened to the machine since the fault was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineChange>,
    /// The alerts behind it.
    #[serde(default)]
    pub members: Vec<Member>,
    /// It was recorded by a delivery that was answered with an error, and neither a delivery nor a pull has confirmed it since: its
    /// sender may never tell its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfirmed: bool,
    /// Why Alertmanager sends nothing of it while all that fires of it is silenced, inhibited or muted; cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muted: Option<String>,
    /// The alert's annotation `summary`, cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The alert's annotation `runbook_url`, cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runbook: Option<String>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimState {
    /// A member fires.
    Firing,
    /// All members are over.
    Cleared,
    /// Given up because the node was released by hand; it does not count again until it was seen cleared for the hold-down.
    Released,
}

/// What an alert's label `recovery` asks for. `auto` asks for nothing beyond the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// The node must have rebooted.
    Reboot,
    /// The GPU or the machine must have been replaced.
    Replace,
    /// A person must say so.
    Manual,
}

impl Recovery {
    /// From an alert's label; a value that we do not know is for a person to judge.
    #[must_use]
    pub fn of(alert: &Alert) -> Option<Self> {
        match alert.labels.get("recovery") {
            None | Some("auto") => None,
            Some("reboot") => Some(Self::Reboot),
            Some("replace") => Some(Self::Replace),
            Some(_) => Some(Self::Manual),
        }
    }

    /// The word of the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::Replace => "replace",
            Self::Manual => "manual",
        }
    }
}

/// One alert of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its fingerprint.
    pub fp: Fingerprint,
    /// The latest `startsAt` seen.
    #[serde(rename = "startsAt")]
    pub starts_at: Timestamp,
    /// When it ended, as its sender says.
    #[serde(default, rename = "endsAt", skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// It ended, and its sender did not say when.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// It is silenced, inhibited or muted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub muted: bool,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

impl Member {
    /// Whether it fires.
    #[must_use]
    pub fn fires(&self) -> bool {
        self.ends_at.is_none() && !self.ended
    }
}

/// A past hold on the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Episode {
    /// The alert name.
    pub alert: String,
    /// The GPU; absent for the node as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// First firing, on our clock.
    pub from: Timestamp,
    /// Release, on our clock.
    pub to: Timestamp,
    /// What ended it: `resolved`, `evidence`, `hand`.
    pub by: String,
    /// Who released the node by command, as they named themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// What they found, a word of [`super::Judgement`]. A text, since a word that we do not know must not spoil a record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Why they released it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The name of the document with the evidence, if pods were evicted for it. The document may be gone by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

impl Claim {
    /// A claim without members.
    pub(super) fn new(alert: &Alert, gpu: Option<Gpu>, policy: &str, action: Action, now: Timestamp) -> Self {
        Self {
            alert: alert.name.clone(),
            gpu,
            policy: policy.to_owned(),
            also: Vec::new(),
            action,
            state: ClaimState::Firing,
            since: now,
            cleared: None,
            recovery: Vec::new(),
            scope: None,
            fault: None,
            severity: None,
            workloads: Vec::new(),
            unlabelled: false,
            queries: Vec::new(),
            unproven: None,
            machine: None,
            members: Vec::new(),
            unconfirmed: false,
            muted: None,
            summary: note(alert, "summary"),
            runbook: note(alert, "runbook_url"),
            other: Unknown::new(),
        }
    }

    /// Whether any member fires.
    #[must_use]
    pub fn fires(&self) -> bool {
        self.members.iter().any(Member::fires)
    }

    /// Whether all that fires of it is silenced, inhibited or muted.
    #[must_use]
    pub fn is_muted(&self) -> bool {
        self.fires() && self.members.iter().all(|m| !m.fires() || m.muted)
    }

    /// What it is about, for a sentence: `GpuLost on GPU-5fd4...`.
    #[must_use]
    pub fn subject(&self) -> String {
        match &self.gpu {
            Some(gpu) => format!("{} on {gpu}", self.alert),
            None => self.alert.clone(),
        }
    }

    /// The policies behind it, by name.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.policy).chain(&self.also).map(String::as_str)
    }

    /// One of its alerts matched this policy. Whether anything changed.
    pub(super) fn matched(&mut self, policy: &str, action: Action) -> bool {
        let known = self.policies().any(|p| p == policy);
        if action > self.action {
            self.action = action;
            let before = std::mem::replace(&mut self.policy, policy.to_owned());
            self.also.retain(|p| p != policy);
            if before != policy {
                self.also.push(before);
            }
            return true;
        }
        if !known {
            self.also.push(policy.to_owned());
        }
        !known
    }

    pub(super) fn has_notes(&self) -> bool {
        self.summary.is_some() || self.runbook.is_some() || self.muted.is_some()
    }

    pub(super) fn has_resolved(&self) -> bool {
        self.members.iter().any(|m| !m.fires())
    }

    /// Fold a firing alert in.
    ///
    /// A firing always counts: the same (fingerprint, startsAt) can fire again after its resolve. `startsAt` only grows, so
    /// that the order of deliveries does not matter.
    /// Whether anything changed.
    pub(super) fn fire(&mut self, alert: &Alert, exact: bool, muted: Option<&str>) -> bool {
        let mut changed = false;
        if let Some(asked) = Recovery::of(alert)
            && let Err(at) = self.recovery.binary_search(&asked)
        {
            self.recovery.insert(at, asked);
            changed = true;
        }
        changed |= self.note_recovery(alert);
        changed |= self.note_reach(alert);
        let severity = self.severity.max(Severity::of(alert));
        changed |= severity != self.severity;
        self.severity = severity;
        let Some(member) = self.members.iter_mut().find(|m| m.fp == alert.fingerprint) else {
            self.members.push(Member {
                fp: alert.fingerprint,
                starts_at: alert.starts_at,
                ends_at: None,
                ended: false,
                muted: false,
                other: Unknown::new(),
            });
            self.machine = None;
            return true;
        };
        let was = (member.starts_at, member.fires(), member.muted);
        member.starts_at = if exact { alert.starts_at } else { member.starts_at.max(alert.starts_at) };
        member.ends_at = None;
        member.ended = false;
        member.muted = muted.is_some();
        let again = (member.starts_at, true) != (was.0, was.1);
        changed |= (member.starts_at, true, member.muted) != was;
        if again {
            // The fault was seen after whatever happened to the machine.
            changed |= self.machine.take().is_some();
        }
        // Of several reasons the last heard is shown; who was told none any more is dropped when the claim is settled.
        let why = muted.map(|text| text.chars().take(MAX_NOTE).collect());
        if why.is_some() && self.muted != why {
            self.muted = why;
            changed = true;
        }
        changed
    }

    /// How the end of the fault can be shown, by this alert. Whether anything changed.
    fn note_recovery(&mut self, alert: &Alert) -> bool {
        let mut changed = false;
        if alert.labels.get("recovery").is_none() && !self.unlabelled {
            (self.unlabelled, changed) = (true, true);
        }
        if let Some(text) = alert.annotations.get("recovery_query") {
            changed |= self.add_query(text);
        }
        changed
    }

    /// Whether anything changed.
    pub(super) fn add_query(&mut self, text: &str) -> bool {
        if self.queries.iter().any(|q| q.as_str() == text.trim()) {
            return false;
        }
        let unproven = match RecoveryQuery::parse(text) {
            Ok(query) if self.queries.len() < MAX_QUERIES => {
                self.queries.push(query);
                return true;
            }
            Ok(_) => format!("its alerts have more than {MAX_QUERIES} different recovery queries"),
            Err(why) => why,
        };
        let first = self.unproven.is_none();
        if first {
            self.unproven = Some(unproven.chars().take(MAX_NOTE).collect());
        }
        first
    }

    /// Since when evidence for its end counts; `None` while it fires.
    pub(super) fn evidence_since(&self) -> Option<Timestamp> {
        let cleared = self.cleared.filter(|_| self.state == ClaimState::Cleared)?;
        Some(self.machine.as_ref().map_or(cleared, |machine| cleared.max(machine.at)))
    }

    /// The delivery that told it was answered so, or a pull confirms it. Whether anything changed.
    pub(super) fn answered(&mut self, confirmed: Option<bool>) -> bool {
        let was = self.unconfirmed;
        self.unconfirmed = confirmed.map_or(was, |confirmed| !confirmed);
        self.unconfirmed != was
    }

    /// Fold a resolved alert in: it counts if its `startsAt` is not older than its member's (P5).
    /// Whether it ended its member.
    pub(super) fn resolve(&mut self, alert: &Alert) -> bool {
        let Some(member) = self.members.iter_mut().find(|m| m.fp == alert.fingerprint) else { return false };
        if !member.fires() || alert.starts_at < member.starts_at {
            return false;
        }
        member.starts_at = alert.starts_at;
        member.ends_at = alert.ends_at;
        member.ended = alert.ends_at.is_none();
        let over: Vec<Fingerprint> = self.members.iter().filter(|m| !m.fires()).map(|m| m.fp).collect();
        if let Some(oldest) = over.len().checked_sub(MAX_RESOLVED).filter(|n| *n > 0).and_then(|_| over.first()) {
            self.members.retain(|m| m.fp != *oldest);
        }
        true
    }
}

fn note(alert: &Alert, name: &str) -> Option<String> {
    alert.annotations.get(name).map(|text| text.chars().take(MAX_NOTE).collect())
}
