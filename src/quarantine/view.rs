//! The node as people and programs see it: one shape everywhere.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use super::{
    claim::{Claim, ClaimState, Episode},
    decide::{EFFECT, RECORD, is_pending},
    eviction::{Evicting, Restart, about, allows},
    evidence::needing,
    guard::{Turn, is_healthy, pool_of},
    hand::orphan,
    record::{Record, Stored, read},
    recurrence::flaps,
    release::{Known, Wait, due, forgotten_at, waits_for},
    scope::{Standing, standing, word},
};
use crate::{
    locate::{NodeFacts, NodeName, Taint},
    policy::Config,
};

/// The state of a node, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Nothing of ours stands on it.
    Free,
    /// Something wants it isolated and the guard refuses.
    Pending,
    /// Isolated, and a fault fires.
    Isolated,
    /// Isolated, every fault is over, and the release waits.
    Clearing,
    /// Nobody can tell how it is; nothing is changed.
    Suspect,
    /// Isolated, and a person wants it to stay so.
    Held,
    /// A person wants nothing done to it.
    Ignored,
}

impl NodeState {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Free, Self::Pending, Self::Isolated, Self::Clearing, Self::Suspect, Self::Held, Self::Ignored];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Pending => "pending",
            Self::Isolated => "isolated",
            Self::Clearing => "clearing",
            Self::Suspect => "suspect",
            Self::Held => "held",
            Self::Ignored => "ignored",
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct NodeView {
    /// `metadata.name`.
    pub name: NodeName,
    /// `metadata.uid`.
    pub uid: String,
    /// Whether our isolation is in force.
    pub isolated: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `spec.taints`, everybody's.
    pub taints: Vec<Taint>,
    /// In one word.
    pub state: NodeState,
    /// What it waits for, as a sentence; `nothing` if it waits for nothing.
    pub waiting_for: String,
    /// The claims on it.
    pub claims: Vec<Claim>,
    /// Past episodes.
    pub history: Vec<Episode>,
    /// How its pods are asked to leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Evicting>,
    /// What its pods are asked to leave for: changes when that does; `None` if none is to go.
    #[serde(skip)]
    pub evicts: Option<String>,
    /// The groups that were restarted from it within the last hour.
    #[serde(skip)]
    pub restarts: Vec<Restart>,
    /// Since when our isolation has been in force.
    #[serde(skip)]
    pub isolated_at: Option<Timestamp>,
    /// What it waits for the guard for, and its place in the queue.
    #[serde(skip)]
    pub turn: Option<Turn>,
    /// The pool that the guard counts it in; empty without a label.
    #[serde(skip)]
    pub pool: String,
    /// Whether pods can use it, as far as others than we tell.
    #[serde(skip)]
    pub healthy: bool,
    /// When it must be decided again though nothing was heard.
    #[serde(skip)]
    pub due: Option<Timestamp>,
    /// Why nobody can tell whether its fault is gone although the hold-down is over, or what still shows it.
    #[serde(skip)]
    pub unproven: Option<String>,
    /// Why the record cannot be used, if so.
    #[serde(skip)]
    pub unusable: Option<String>,
    /// Who keeps it, if it would be released now but for a person's word.
    #[serde(skip)]
    pub held_back: Option<String>,
    /// How often it was released of late, as a clause, if it flaps.
    #[serde(skip)]
    pub flapping: Option<String>,
    /// More alerts came than its record holds.
    #[serde(skip)]
    pub overflow: bool,
    /// The most GPUs that were counted while a claim stands on it.
    #[serde(skip)]
    pub gpus: Option<u32>,
    /// Who silenced all that fires on it, or what inhibits or mutes it.
    #[serde(skip)]
    pub muted: Option<String>,
    /// The UID of the Node from which its machine brought claims.
    #[serde(skip)]
    pub former: Option<String>,
    /// Whether the guard counts it among the nodes in scope.
    #[serde(skip)]
    pub in_scope: bool,
}

impl NodeView {
    /// Look at a node, knowing nothing else.
    #[must_use]
    pub fn of(node: &NodeFacts, config: &Config, now: Timestamp) -> Self {
        Self::knowing(node, config, Known::default(), now)
    }

    /// Look at a node.
    #[must_use]
    pub fn knowing(node: &NodeFacts, config: &Config, known: Known<'_>, now: Timestamp) -> Self {
        let text = node.annotations.get(&config.annotation(RECORD)).map(String::as_str);
        let standing = standing(node, config);
        let mut view = Self {
            name: node.name.clone(),
            uid: node.uid.clone(),
            isolated: false,
            unschedulable: node.unschedulable,
            taints: node.taints.clone(),
            state: NodeState::Free,
            waiting_for: "nothing".to_owned(),
            claims: Vec::new(),
            history: Vec::new(),
            eviction: None,
            evicts: None,
            restarts: Vec::new(),
            isolated_at: None,
            turn: None,
            pool: pool_of(node, config).to_owned(),
            healthy: is_healthy(node),
            due: None,
            unproven: None,
            unusable: None,
            former: None,
            held_back: None,
            flapping: None,
            overflow: false,
            gpus: None,
            muted: None,
            in_scope: standing == Standing::InScope,
        };
        match read(text, node, &config.instance) {
            Stored::Ours(record) => view.with_record(node, *record, config, known, now, &standing),
            Stored::None => view.with_orphan(node, config),
            Stored::Unreadable(why) => {
                view.unusable = Some(why.clone());
                view.state = NodeState::Suspect;
                view.waiting_for = format!("a person or the next alert: the record cannot be used, {why}");
            }
            Stored::Untouchable(why) => {
                view.isolated = node.taints.iter().any(|t| t.key == config.isolation.taint_key && t.effect == EFFECT);
                view.unusable = Some(why.clone());
                view.state = NodeState::Suspect;
                view.waiting_for = format!("a person: {why}");
            }
        }
        if let Some(reason) = word(node, config, "ignore") {
            view.state = NodeState::Ignored;
            view.waiting_for = format!("a person to remove the annotation {}: {reason}", config.annotation("ignore"));
            view.held_back = None;
            view.unproven = None;
            view.due = None;
            view.turn = None;
        }
        if let Standing::Untouchable(_) = standing {
            view.held_back = None;
            view.unproven = None;
            view.due = None;
            view.turn = None;
        }
        view
    }

    /// Whether a record of ours says anything about it.
    #[must_use]
    pub fn has_record(&self) -> bool {
        !self.claims.is_empty() || !self.history.is_empty()
    }

    /// Our taint without a record of it is an orphan: shown, never removed by itself.
    fn with_orphan(&mut self, node: &NodeFacts, config: &Config) {
        if let Some(taint) = orphan(node, config) {
            self.waiting_for = format!("a person: the taint {} stands here without a record of ours", taint.key);
        }
    }

    fn with_record(
        &mut self,
        node: &NodeFacts,
        record: Record,
        config: &Config,
        known: Known<'_>,
        now: Timestamp,
        standing: &Standing,
    ) {
        self.isolated = record.added.is_some();
        self.isolated_at = record.added.as_ref().map(|a| a.at);
        if is_pending(&record) && self.in_scope {
            self.state = NodeState::Pending;
            self.turn = Turn::of(&record, config);
            self.waiting_for = match known.paused {
                Some(pause) => format!("the end of the pause: {pause}"),
                None => "room under the limits of the guard".to_owned(),
            };
        } else if record.added.is_some() {
            let wait = waits_for(node, &record, config, known, now);
            self.state = match wait {
                Some(Wait::Firing) if record.claims.iter().any(|c| c.fires() && c.action.isolates()) => NodeState::Isolated,
                Some(Wait::Blind(_)) => NodeState::Suspect,
                _ => NodeState::Clearing,
            };
            if let Some(reason) = word(node, config, "hold") {
                self.state = NodeState::Held;
                self.waiting_for = format!("a person to remove the annotation {}: {reason}", config.annotation("hold"));
            } else {
                self.waiting_for = sentence(wait.as_ref(), &record, config, known.past);
            }
            self.due = match wait {
                Some(Wait::HoldDown(until)) => Some(until),
                None => Some(now),
                Some(Wait::Firing) => None,
                // Nothing changes then, but a person is told that it waits for nobody else.
                Some(_) => due(&record, config, known.past).filter(|at| now < *at),
            };
            let tell = |what: fn(&Wait) -> bool| {
                (wait.as_ref().is_some_and(what) && self.due.is_none()).then(|| self.waiting_for.clone())
            };
            (self.held_back, self.unproven) = (tell(Wait::is_for_a_person), tell(Wait::is_for_evidence));
        } else if is_pending(&record)
            && let Standing::OutOfScope(why) | Standing::Untouchable(why) = standing
        {
            self.waiting_for = format!("nothing: it is not isolated although a fault fires, since {why}");
        } else if let Some(muted) = record.claims.iter().find(|c| c.action.isolates() && c.state == ClaimState::Firing) {
            let why = all_muted(&record).unwrap_or_default();
            self.waiting_for = nothing_begun(&muted.subject(), &why);
        } else if let Some(freeze) = record.claims.iter().find(|c| c.state == ClaimState::Firing) {
            self.waiting_for = format!("{} to end before any release", freeze.subject());
        } else if let Some(left) = record.claims.iter().find(|c| c.state == ClaimState::Released && c.fires()) {
            self.waiting_for =
                format!("nothing: {} was released by hand and is left alone until it was seen to end", left.subject());
        } else if record.added.is_none() {
            self.with_orphan(node, config);
        }
        let forgotten = record.claims.iter().filter_map(|c| forgotten_at(c, config)).min();
        self.due = [self.due, forgotten].into_iter().flatten().min();
        self.muted = all_muted(&record);
        self.former = record.former.as_ref().and_then(|f| f.get("uid")?.as_str()).map(str::to_owned);
        self.flapping = flaps(&record, known.past, config);
        (self.overflow, self.gpus) = (record.overflow, record.gpus);
        self.evicts = allows(node, &record, config).ok().map(|()| about(&record));
        (self.eviction, self.restarts) = (record.eviction, record.restarts);
        self.claims = record.claims;
        self.history = record.history;
    }
}

/// Why Alertmanager sends nothing of all that fires; `None` if it sends something, or nothing fires.
fn all_muted(record: &Record) -> Option<String> {
    let mut firing = record.claims.iter().filter(|c| c.state == ClaimState::Firing).peekable();
    let first = firing.peek()?.muted.clone();
    // The text may have been shed for want of room.
    firing.all(Claim::is_muted).then(|| first.unwrap_or_else(|| "silenced, inhibited or muted".to_owned()))
}

/// What a node waits for on which nothing is begun.
pub(crate) fn nothing_begun(subject: &str, why: &str) -> String {
    format!("nothing: {subject} is {why}, so nothing is begun for it")
}

fn sentence(wait: Option<&Wait>, record: &Record, config: &Config, past: &[Episode]) -> String {
    match wait {
        None => "its release, which is due".to_owned(),
        Some(Wait::Firing) => {
            let mut firing = record.claims.iter().filter(|c| c.state == ClaimState::Firing);
            let first = firing.next().map(Claim::subject).unwrap_or_default();
            let more = match firing.count() {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            // Who vetoed is told, as long as nothing else holds the node.
            let muted = all_muted(record).map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{first}{more} to end{muted}")
        }
        Some(Wait::Held(reason)) => format!("a person: {reason}"),
        Some(Wait::ForeignKey(key)) => {
            format!("a person: the recorded taint {key} is not ours by this configuration, add it to isolation.former_keys")
        }
        Some(Wait::Overflow) => "a person: more alerts came than the record holds".to_owned(),
        Some(Wait::Person(asks)) => {
            let added = record.added.as_ref().and_then(|a| a.taint.as_ref());
            let taint = added.or_else(|| record.before.as_ref().and_then(|b| b.taint.as_ref()));
            let key = taint.map_or(&config.isolation.taint_key, |t| &t.key);
            format!("a person to remove the taint {key}: {asks}")
        }
        Some(Wait::Repair(asks)) => format!("a person to {asks}"),
        Some(Wait::Blind(why)) => format!("somebody to see whether the fault is gone: {why}"),
        Some(Wait::Fault(why)) => format!("the fault to be gone: {why}"),
        Some(Wait::HoldDown(until)) => {
            let shown = needing(record, config).next().map(|_| " and the fault is shown to be gone").unwrap_or_default();
            let at = if shown.is_empty() { "at" } else { "after" };
            let longer = flaps(record, past, config).filter(|_| config.flapping.longer_after > 0);
            let longer = longer.map(|why| format!(" (longer than usual: it was {why})")).unwrap_or_default();
            format!("the hold-down: released {at} {until} if nothing fires again{shown}{longer}")
        }
        Some(Wait::Paused(why)) => format!("the end of the pause: {why}"),
        Some(Wait::Unheard(why)) => format!("word of what fires: {why}"),
        Some(Wait::Proving { subject, lasted, needs }) => {
            let [lasted, needs] = [lasted, needs].map(|d| humantime::format_duration(Duration::from_secs(d.as_secs())));
            format!("evidence: {subject} was seen to be gone for {lasted} of {needs}")
        }
    }
}
