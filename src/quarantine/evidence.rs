//! Evidence: what is to be asked about a node before its release, and what the answers show.
//!
//! Time is looked at in steps. At each step a claim is *good* (its fault was positively seen to be gone), *faulty*, or nobody knows.
//! Good time adds up over steps that follow each other; a faulty step starts it anew; one without data only pauses it.

mod judge;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    claim::{Claim, ClaimState, Episode},
    record::{Record, Stored, read},
    release::{hold_down, later, requires_evidence},
};
use crate::{
    alert::RecoveryQuery,
    locate::{Gpu, NodeFacts, NodeName},
    policy::Config,
};
pub use judge::judge;

/// The longest time looked back beyond the hold-down. Good time from before is not counted: the node only waits for longer.
const LOOK_BACK: SignedDuration = SignedDuration::from_hours(24);
/// Steps are at most so long, unless there would be too many of them.
const LONGEST_STEP: i64 = 30;
/// The most steps of one question. Prometheus refuses more than 11,000 points of a series
/// (<https://prometheus.io/docs/prometheus/latest/querying/api/#range-queries>).
const MOST_STEPS: i64 = 4_000;

/// What is to be asked about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The node.
    pub node: NodeName,
    /// Its `metadata.uid`: an answer about another node of that name shows nothing.
    pub uid: String,
    /// When it is asked, on our clock.
    pub at: Timestamp,
    /// How many GPUs there should be, as far as Kubernetes knows.
    pub gpus: Option<u32>,
    /// The steps.
    pub range: Range,
    /// The claims that need evidence, in the order of the record.
    pub claims: Vec<Asked>,
}

/// The claim that a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its alert name.
    pub alert: String,
    /// Its GPU; `None` for the node as a whole.
    pub gpu: Option<Gpu>,
    /// PromQL, each of which returns a sample only when the fault is gone. All of them must. Perhaps none: presence is asked for all the
    /// same.
    pub queries: Vec<RecoveryQuery>,
    /// Since when its evidence counts: what was before belongs to the fault.
    pub since: Timestamp,
    /// The machine was rebooted or exchanged since the fault.
    pub machine_changed: bool,
}

/// The multiples of `step` since 1970 from `from` to `to` inclusive, in whole seconds: what Thanos' query frontend asks for in any case
/// (`--query-range.align-range-with-step`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from: Timestamp,
    /// No step is later.
    pub to: Timestamp,
    /// The distance; at least a second.
    pub step: Duration,
}

/// The steps at which something was there: a sample that is a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series(BTreeSet<Timestamp>);

/// What a source answered about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAnswers {
    /// Every GPU of which there were fresh samples, and when; or why nobody knows.
    pub present: Result<Vec<PresentGpu>, String>,
    /// For each claim of the question, for each of its queries: when it returned something, or why nobody knows.
    pub claims: Vec<Vec<Result<Series, String>>>,
}

/// A GPU with fresh samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentGpu {
    /// All names that its series give it.
    pub names: Vec<Gpu>,
    /// At which steps.
    pub at: Series,
}

/// What was shown about a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The `metadata.uid` of the node.
    pub uid: String,
    /// When it was asked, on our clock.
    pub at: Timestamp,
    /// For each claim that was asked about.
    pub claims: Vec<ClaimShown>,
    /// No GPU is seen at all.
    pub no_exporter: bool,
}

/// What was shown about one claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimShown {
    /// Its alert name.
    pub alert: String,
    /// Its GPU.
    pub gpu: Option<Gpu>,
    /// Since when its evidence counted. If that moved meanwhile, what was shown is out of date.
    pub since: Timestamp,
    /// How many of its queries were asked. If there are more by now, what was shown is out of date.
    pub queries: usize,
    /// For how long the fault was positively seen to be gone, since it was last seen.
    pub lasted: Duration,
    /// How it is at the last step.
    pub now: Finding,
    /// The GPU is not there any more although as many are there as should be.
    pub replaced: bool,
}

/// How a claim is at one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Finding {
    /// The exporter is up, the GPUs are there, and every query says that the fault is gone.
    Gone,
    /// A query says that it is not, as a clause.
    Fault(String),
    /// Nobody knows, and why, as a clause.
    Nothing(String),
}

impl Range {
    /// The steps after `since` until `now`, for a hold-down of `after`.
    fn of(since: Timestamp, now: Timestamp, after: Duration) -> Self {
        let after = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        let now = now.as_second();
        let since = since.as_second().max(now.saturating_sub(LOOK_BACK.as_secs().saturating_add(after)));
        // Twenty steps in a hold-down, as far as that makes sense.
        let step = (after / 20).clamp(1, LONGEST_STEP).max((now - since) / MOST_STEPS + 1);
        // What was at `since` belongs to the fault.
        let (from, to) = ((since.div_euclid(step) + 1) * step, now.div_euclid(step) * step);
        let time = |second| Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
        Self { from: time(from), to: time(to), step: Duration::from_secs(u64::try_from(step).unwrap_or(1)) }
    }

    /// All steps; the first is `from`, the last `to`.
    pub fn steps(&self) -> impl Iterator<Item = Timestamp> + use<> {
        let (from, to) = (self.from.as_second(), self.to.as_second());
        let step = i64::try_from(self.step.as_secs()).unwrap_or(i64::MAX).max(1);
        (0..).map(move |n| from + n * step).take_while(move |at| *at <= to).filter_map(|at| Timestamp::from_second(at).ok())
    }
}

impl Series {
    /// Whether something was there at that step.
    #[must_use]
    pub fn has(&self, at: Timestamp) -> bool {
        self.0.contains(&at)
    }

    /// The last step at which something was there.
    #[must_use]
    pub fn last(&self) -> Option<Timestamp> {
        self.0.last().copied()
    }

    /// Either of the two was there.
    pub fn join(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
}

impl FromIterator<Timestamp> for Series {
    fn from_iter<I: IntoIterator<Item = Timestamp>>(steps: I) -> Self {
        Self(steps.into_iter().collect())
    }
}

/// What is to be asked about a node now; `None` if its release needs no evidence, or waits for something else first.
#[must_use]
pub fn question(node: &NodeFacts, config: &Config, past: &[Episode], now: Timestamp) -> Option<Question> {
    let text = node.annotations.get(&config.annotation(super::decide::RECORD)).map(String::as_str);
    let Stored::Ours(record) = read(text, node, &config.instance) else { return None };
    record.added.as_ref()?;
    if record.claims.iter().any(|c| c.state == ClaimState::Firing) {
        return None;
    }
    let claims: Vec<Asked> = needing(&record, config)
        .filter_map(|c| {
            Some(Asked {
                alert: c.alert.clone(),
                gpu: c.gpu.clone(),
                queries: c.queries.clone(),
                since: c.evidence_since()?,
                machine_changed: c.machine.is_some(),
            })
        })
        .collect();
    let from = claims.iter().map(|c| c.since).min()?;
    let range = Range::of(from, now, hold_down(&record, config, past));
    let (node_name, uid, gpus) = (node.name.clone(), node.uid.clone(), record.gpus.max(node.gpus));
    // At first there is no step yet.
    (range.from <= range.to).then_some(Question { node: node_name, uid, at: now, gpus, range, claims })
}

/// The claims whose end must be shown.
pub(super) fn needing<'a>(record: &'a Record, config: &'a Config) -> impl Iterator<Item = &'a Claim> {
    record.claims.iter().filter(|c| c.state == ClaimState::Cleared && requires_evidence(c, config))
}

impl Shown {
    /// That no GPU is seen has this cause, as a clause.
    pub fn explain(&mut self, cause: &str) {
        for claim in self.claims.iter_mut().filter(|_| self.no_exporter) {
            if let Finding::Nothing(why) = &mut claim.now {
                *why = format!("{why}: {cause}");
            }
        }
    }

    /// What was shown of a claim, if it is about what the claim is now.
    pub(super) fn of(&self, claim: &Claim) -> Option<&ClaimShown> {
        let is_of = |s: &&ClaimShown| s.alert == claim.alert && s.gpu == claim.gpu && s.queries == claim.queries.len();
        self.claims.iter().filter(is_of).find(|s| Some(s.since) == claim.evidence_since())
    }

    /// Whether it is too old to count.
    pub(super) fn is_stale(&self, valid_for: Duration, now: Timestamp) -> bool {
        later(self.at, valid_for) < now
    }
}
