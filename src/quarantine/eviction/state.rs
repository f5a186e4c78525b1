//! What stands on a node's record about its eviction, so that a restart goes on where the last process was.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{answer::EvictionAnswer, note::Came};
use crate::{
    locate::PodName,
    policy::Rate,
    quarantine::{guard::Window, record::Unknown, release::later},
};

/// The most pods on record at once. More are asked to leave as soon as others are gone.
pub const MAX_PODS: usize = 32;
/// What a pod takes besides its names, in bytes of JSON: keys, state, times to the nanosecond. Its `why` and `checkpoint` come on top, and
/// are shed if need be.
const FRAME: usize = 320;
/// Pods that stay or came back are told of; so many of them stand on record.
pub(super) const MAX_LEFT: usize = 12;
/// The most restarts of groups on record.
const MAX_RESTARTS: usize = 32;
/// What is kept of a sentence, in characters.
const MAX_WHY: usize = 140;
/// The first pause after a refusal; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How soon what nobody answered is read again.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// For so long a restart of a group counts.
pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);

/// The eviction of one node in one isolation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evicting {
    /// When its first pod was chosen, on our clock.
    pub since: Timestamp,
    /// The pods, in the order in which they go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Evictee>,
    /// The name of the document with the evidence, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

/// One pod that is asked to leave, or is left for a reason that people should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evictee {
    /// Namespace and name.
    pub pod: PodName,
    /// `metadata.uid`: only this very pod is meant.
    pub uid: String,
    /// The group that it belongs to.
    pub group: String,
    /// Where it stands.
    pub state: EvicteeState,
    /// Since when it stands there, on our clock.
    pub at: Timestamp,
    /// When it was first asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Timestamp>,
    /// Since when it has been asked without a pause in between: the deadline runs from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// How often it was asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tries: u32,
    /// Not before then again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// Why it stands there, as a clause; cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What was waited for, and what came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if gives a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvicteeState {
    /// It is to go, and something comes first.
    Waiting,
    /// It writes its checkpoint.
    Checkpoint,
    /// It is being asked to leave.
    Asking,
    /// It was asked, and something forbids it for now.
    Blocked,
    /// It terminates.
    Leaving,
    /// It is not there any more.
    Gone,
    /// It stays, for good.
    Left,
    /// It came back, or another in its place: its tolerations let it.
    Returned,
}

impl EvicteeState {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Waiting, Self::Checkpoint, Self::Asking, Self::Blocked, Self::Leaving, Self::Gone, Self::Left, Self::Returned];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Checkpoint => "checkpoint",
            Self::Asking => "asking",
            Self::Blocked => "blocked",
            Self::Leaving => "leaving",
            Self::Gone => "gone",
            Self::Left => "left",
            Self::Returned => "returned",
        }
    }

    /// Whether nothing more is done for it.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Gone | Self::Left | Self::Returned)
    }
}

/// A group that was restarted because one of its pods was evicted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// The group.
    pub group: String,
    /// When, on our clock.
    pub at: Timestamp,
    /// Whether it restarted as a whole, not only the pods that were evicted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

impl Restart {
    /// A restart of a group.
    #[must_use]
    pub fn of(group: &str, whole: bool, at: Timestamp) -> Self {
        Self { group: group.to_owned(), at, whole, other: Unknown::new() }
    }

    /// How many of these groups restarted as a whole of late, and how many may. One that is evicted from several nodes may count once
    /// for each.
    pub(in crate::quarantine) fn window<'a>(restarts: impl IntoIterator<Item = &'a Self>, rate: Rate, now: Timestamp) -> Window {
        let mut times: Vec<Timestamp> = restarts.into_iter().filter(|r| r.whole).map(|r| r.at).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        Window::of(times.into_iter(), 0, rate, now)
    }
}

/// Forget restarts that no longer count.
pub(in crate::quarantine) fn forget_restarts(restarts: &mut Vec<Restart>, now: Timestamp) {
    restarts.retain(|r| later(r.at, HOUR) > now);
}

/// Count a restart of a group, and forget those that no longer count.
pub(super) fn note_restart(restarts: &mut Vec<Restart>, restart: &Restart, now: Timestamp) {
    forget_restarts(restarts, now);
    if restarts.len() >= MAX_RESTARTS {
        // One that only lost pods goes first: those of whole groups are what the guard counts.
        restarts.remove(restarts.iter().position(|r| !r.whole).unwrap_or(0));
    }
    restarts.push(restart.clone());
}

impl Evicting {
    /// Nothing chosen yet.
    pub(super) fn begun(now: Timestamp) -> Self {
        Self { since: now, pods: Vec::new(), evidence: None, other: Unknown::new() }
    }

    /// Whether one more pod fits into so many bytes, without what can be shed.
    pub(super) fn has_room_for(&self, pod: &Evictee, room: usize) -> bool {
        // Names of Kubernetes need no escapes; a group may be named by a label, which needs none either.
        let length = |p: &Evictee| FRAME + p.pod.namespace().len() + p.pod.name().len() + p.uid.len() + p.group.len();
        self.pods.len() < MAX_PODS && self.pods.iter().map(length).sum::<usize>() + length(pod) <= room
    }

    /// Give up what people can do without: of pods that are over first, then of all. Whether there was anything.
    pub(in crate::quarantine) fn shed_texts(&mut self) -> bool {
        let has = |p: &Evictee| p.why.is_some() || p.checkpoint.as_ref().is_some_and(|c| !c.is_empty());
        let over = self.pods.iter().any(|p| p.state.is_over() && has(p));
        let mut shed = false;
        for pod in self.pods.iter_mut().filter(|p| has(p) && (!over || p.state.is_over())) {
            pod.why = None;
            // That it waited for its checkpoint must not be forgotten: it would wait again.
            pod.checkpoint = pod.checkpoint.take().filter(|_| !pod.state.is_over()).map(|_| String::new());
            shed = true;
        }
        shed
    }

    /// The pod of that UID.
    #[must_use]
    pub fn of(&self, uid: &str) -> Option<&Evictee> {
        self.pods.iter().find(|p| p.uid == uid)
    }

    /// What was answered about the pod of that UID.
    pub(super) fn answered(&mut self, uid: &str, answer: &EvictionAnswer, now: Timestamp) {
        if let Some(pod) = self.pods.iter_mut().find(|p| p.uid == uid && !p.state.is_over()) {
            pod.take(answer, now);
        }
    }

    /// Whether what came of a pod is only what is known already.
    #[must_use]
    pub fn repeats(&self, uid: &str, came: &Came, now: Timestamp) -> bool {
        let Some(before) = self.of(uid) else { return false };
        match came {
            Came::Answered(answer) => {
                let mut after = before.clone();
                after.take(answer, now);
                matches!(after.state, EvicteeState::Blocked | EvicteeState::Asking) && before.why == after.why
            }
            Came::Withheld(why) => before.why.as_deref() == Some(cut(why).as_str()),
            Came::Observed => false,
        }
    }

    /// The pod would be asked, and the service only observes.
    pub(super) fn observed(&mut self, uid: &str, now: Timestamp) {
        if let Some(pod) = self.pods.iter_mut().find(|p| p.uid == uid && !p.state.is_over()) {
            pod.move_to(EvicteeState::Left, Some("the service only observes"), now);
        }
    }

    /// Not now: the pod is as it was before it was to be asked.
    pub(super) fn withheld(&mut self, uid: &str, why: &str, now: Timestamp) {
        if let Some(pod) = self.pods.iter_mut().find(|p| p.uid == uid && p.state == EvicteeState::Asking) {
            pod.put_off(why, now);
            pod.next = Some(later(now, pod.pause().max(READ_AGAIN)));
        }
    }
}

impl Evictee {
    pub(super) fn new(pod: PodName, uid: &str, group: &str, now: Timestamp) -> Self {
        Self {
            pod,
            uid: uid.to_owned(),
            group: group.to_owned(),
            state: EvicteeState::Waiting,
            at: now,
            asked: None,
            from: None,
            tries: 0,
            next: None,
            why: None,
            checkpoint: None,
            other: Unknown::new(),
        }
    }

    /// Whether it was asked to leave, and is not known to be gone.
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.asked.is_some() && !self.state.is_over()
    }

    pub(super) fn move_to(&mut self, state: EvicteeState, why: Option<&str>, now: Timestamp) {
        if self.state != state {
            self.at = now;
        }
        self.state = state;
        self.why = why.map(cut);
        if state.is_over() || state == EvicteeState::Leaving {
            self.next = None;
        }
    }

    /// Not now. Whatever time it has begins anew when it may be asked again.
    pub(super) fn put_off(&mut self, why: &str, now: Timestamp) {
        self.move_to(EvicteeState::Waiting, Some(why), now);
        self.from = None;
        self.next = None;
    }

    /// How long to wait after so many tries.
    fn pause(&self) -> Duration {
        FIRST_PAUSE.saturating_mul(1 << self.tries.saturating_sub(1).min(4)).min(LONGEST_PAUSE)
    }

    /// Whether it has been asked for so long in vain, the last time just now: a process that was away asks once more first.
    pub(super) fn is_past(&self, deadline: Duration, now: Timestamp) -> bool {
        let lately = self.next.is_some_and(|next| later(next, LONGEST_PAUSE) >= now);
        let in_vain = matches!(self.state, EvicteeState::Blocked | EvicteeState::Asking);
        lately && in_vain && self.from.is_some_and(|from| later(from, deadline) <= now)
    }

    fn take(&mut self, answer: &EvictionAnswer, now: Timestamp) {
        let blocked = |pod: &mut Self, why: &str, pause: Duration| {
            pod.move_to(EvicteeState::Blocked, Some(why), now);
            pod.next = Some(later(now, pause));
        };
        let pause = self.pause();
        match answer {
            EvictionAnswer::Accepted => self.move_to(EvicteeState::Leaving, None, now),
            EvictionAnswer::Gone => self.move_to(EvicteeState::Gone, None, now),
            EvictionAnswer::AnotherPod => self.move_to(EvicteeState::Gone, Some("another pod has its name now"), now),
            EvictionAnswer::Blocked { budget, message } => {
                let why = match budget {
                    Some(budget) => format!("the PodDisruptionBudget {budget} allows no disruption now"),
                    None => format!("a PodDisruptionBudget allows no disruption now: {message}"),
                };
                blocked(self, &why, pause);
            }
            EvictionAnswer::ManyBudgets { message } => {
                let why = format!("more than one PodDisruptionBudget matches it, so nobody can evict it: {message}");
                blocked(self, &why, pause);
            }
            EvictionAnswer::Throttled { retry_after } => {
                let why = "the API server has no room for it now (priority and fairness)";
                blocked(self, why, retry_after.unwrap_or(pause).clamp(READ_AGAIN, LONGEST_PAUSE));
            }
            EvictionAnswer::Forbidden { message } => {
                blocked(self, &format!("the API server forbids it: {message}"), LONGEST_PAUSE);
            }
            // An admission webhook may say no for a while.
            EvictionAnswer::Refused { message } => {
                blocked(self, &format!("the API server refuses it: {message}"), LONGEST_PAUSE);
            }
            EvictionAnswer::Unknown { message } => {
                self.why = Some(cut(&format!("nobody knows whether it was asked: {message}")));
                self.next = Some(later(now, if self.tries > 1 { pause } else { READ_AGAIN }));
            }
        }
    }
}

pub(super) fn cut(text: &str) -> String {
    text.chars().take(MAX_WHY).collect()
}
