//! What a person says about a node by command: a release, a hold, that nothing is done to it. Pure, as the decision is: the same
//! give-back as of a taint that a person took away, so that P10 holds for both.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    claim::{Claim, ClaimState, Episode},
    decide::{Context, EFFECT, Next, RECORD, Told, is_pending},
    guard::Room,
    machine::note_machine,
    record::{Stored, read},
    release::{Known, is_our_key},
    scope::{Standing, standing, word},
};
use crate::{
    locate::{NodeFacts, Taint},
    policy::Config,
};

/// What is kept of the name that a person gives, in characters.
pub const MAX_WHO: usize = 64;
/// What is kept of the reason that a person gives, in characters.
pub const MAX_REASON: usize = 200;

/// What a person found when they looked at the fault; it is counted per alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Judgement {
    /// The fault was real and is repaired.
    Repaired,
    /// The fault was real and the hardware was replaced.
    Replaced,
    /// There was no fault: the alert was wrong.
    FalseAlarm,
}

impl Judgement {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Repaired, Self::Replaced, Self::FalseAlarm];

    /// The word of the command line, the record and the metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Repaired => "repaired",
            Self::Replaced => "replaced",
            Self::FalseAlarm => "false-alarm",
        }
    }

    /// The judgement of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|j| j.as_str() == word)
    }
}

/// Who acts, and what they say about it.
#[derive(Debug, Clone, Copy)]
pub struct Hand<'a> {
    /// Their name, as they give it.
    pub who: &'a str,
    /// What they found.
    pub judgement: Option<Judgement>,
    /// Why they do it.
    pub reason: Option<&'a str>,
}

/// Why a command does nothing to a node: a sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

/// What the node is to us, which says what its release means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releases {
    /// It is isolated by us.
    Isolated,
    /// It waits for the guard: its claims are given up.
    Pending,
    /// Our taint stands on it and no record says why.
    Orphan,
}

/// What a release by hand does to a node. Two that are equal do the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// What the node is.
    pub releases: Releases,
    /// The taint that is removed.
    pub taint: Option<Taint>,
    /// A taint that isolates as well, is not ours and stays.
    pub stays: Option<Taint>,
    /// Whether our cordon is lifted.
    pub uncordons: bool,
    /// The hold that ends with it, in its words.
    pub hold: Option<String>,
    /// The claims that are given up, as they stand.
    pub claims: Vec<Claim>,
    /// Claims that freeze the node and go on firing: they stay.
    pub freezes: Vec<Claim>,
}

/// A release by hand, ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct HandRelease {
    /// What it does.
    pub offer: Offer,
    /// The one merge patch that does it.
    pub patch: Value,
}

/// What releasing a node by hand does; `None` if there is nothing to release.
///
/// # Errors
///
/// If the node must not be touched, or a person must do something else first.
pub fn release_by_hand(
    node: &NodeFacts,
    config: &Config,
    hand: &Hand<'_>,
    now: Timestamp,
) -> Result<Option<HandRelease>, Refusal> {
    let stored = touchable(node, config)?;
    if let Some(reason) = word(node, config, "ignore") {
        return Err(Refusal(format!("nothing is done to this node as long as it is ignored ({reason}): unignore it first")));
    }
    let old = match stored {
        Stored::Ours(record) => *record,
        Stored::None | Stored::Unreadable(_) | Stored::Untouchable(_) => return Ok(adopt(node, config)),
    };
    let pending = is_pending(&old);
    if old.added.is_none() && !pending {
        return Ok(adopt(node, config));
    }
    if let Some(taint) = old.added.as_ref().and_then(|a| a.taint.as_ref())
        && !is_our_key(&taint.key, config)
    {
        return Err(Refusal(format!(
            "its record says that we added the taint {}, which is not ours by this configuration: add it to \
             isolation.former_keys",
            taint.key
        )));
    }
    let nobody = Room::Closed("a person releases the node");
    let ctx = Context { config, room: nobody, now, told: Told::Pushed, known: Known::default() };
    let mut next = Next::of(node, old.clone());
    note_machine(&mut next.record, node, now);
    next.forget(&ctx);
    next.settle_claims(&ctx);
    let goes_on = |c: &&Claim| c.state == ClaimState::Firing && !c.action.isolates();
    let freezes = next.record.claims.iter().filter(goes_on).cloned().collect();
    let claims = next.record.claims.iter().filter(|c| c.state != ClaimState::Released && !goes_on(c)).cloned().collect();
    let past = next.record.history.len();
    if pending {
        next.give_up(now);
    } else {
        next.give_back_by_hand(node, &ctx, String::new());
    }
    for episode in next.record.history.iter_mut().skip(past) {
        hand.sign(episode);
    }
    // What every decision does with a node on which nothing of ours stands: else the next one would write again.
    next.record.claims.retain(|c| c.state != ClaimState::Cleared);
    next.forget(&ctx);
    next.count_gpus(node, &ctx);
    let removed = |t: &&Taint| !next.taints.contains(t);
    let foreign = |t: &&Taint| t.key == config.isolation.taint_key && t.effect == EFFECT;
    let hold = word(node, config, "hold");
    let offer = Offer {
        releases: if pending { Releases::Pending } else { Releases::Isolated },
        taint: node.taints.iter().find(removed).cloned(),
        stays: next.taints.iter().find(foreign).cloned(),
        uncordons: node.unschedulable && !next.unschedulable,
        hold: hold.clone(),
        claims,
        freezes,
    };
    let patch = next.patch(node, Some(&old), None, config).map_err(|why| Refusal(why.to_owned()))?;
    let mut patch = patch.unwrap_or_else(|| json!({ "metadata": { "resourceVersion": node.resource_version } }));
    if hold.is_some() {
        patch["metadata"]["annotations"][config.annotation("hold")] = Value::Null;
    }
    Ok(Some(HandRelease { offer, patch }))
}

/// Take our taint off a node whose record says nothing of it: a person answers for it.
fn adopt(node: &NodeFacts, config: &Config) -> Option<HandRelease> {
    let orphan = orphan(node, config)?;
    let taints: Vec<&Taint> = node.taints.iter().filter(|t| *t != orphan).collect();
    let offer = Offer {
        releases: Releases::Orphan,
        taint: Some(orphan.clone()),
        stays: None,
        uncordons: false,
        hold: None,
        claims: Vec::new(),
        freezes: Vec::new(),
    };
    let mut patch = json!({ "metadata": { "resourceVersion": node.resource_version }, "spec": { "taints": taints } });
    // An unreadable text would make the node look broken for ever; it is kept, as every decision keeps it.
    let name = config.annotation(RECORD);
    if let Some(text) = node.annotations.get(&name)
        && matches!(read(Some(text), node, &config.instance), Stored::Unreadable(_))
    {
        let kept = [(name, Value::Null), (config.annotation("record-corrupt"), Value::from(text.as_str()))];
        patch["metadata"]["annotations"] = Map::from_iter(kept).into();
    }
    Some(HandRelease { offer, patch })
}

/// The taint of ours, or of a former key of ours, that stands on a node without anything on record that says so.
pub(super) fn orphan<'a>(node: &'a NodeFacts, config: &Config) -> Option<&'a Taint> {
    let ours = |t: &&Taint| t.effect == EFFECT && is_our_key(&t.key, config);
    let current = |t: &&Taint| t.key == config.isolation.taint_key;
    node.taints.iter().filter(ours).find(current).or_else(|| node.taints.iter().find(ours))
}

/// A word that a person leaves on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It stays isolated.
    Hold,
    /// Nothing is done to it.
    Ignore,
}

impl Word {
    /// The name of its annotation, below our domain.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Ignore => "ignore",
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text of a word: the reason and who gave it.
#[must_use]
pub fn signed(hand: &Hand<'_>) -> String {
    let (reason, who) = (cut(hand.reason.unwrap_or_default(), MAX_REASON), cut(hand.who, MAX_WHO));
    format!("{reason} ({who})").trim_start().to_owned()
}

/// The patch that leaves a word on a node, or with `None` takes it away; `None` if the node says that already.
///
/// # Errors
///
/// If the node must not be touched.
pub fn say(node: &NodeFacts, config: &Config, word: Word, text: Option<&str>) -> Result<Option<Value>, Refusal> {
    let name = config.annotation(word.as_str());
    let was = node.annotations.get(&name).map(String::as_str);
    if was == text {
        return Ok(None);
    }
    touchable(node, config)?;
    let version = &node.resource_version;
    Ok(Some(json!({ "metadata": { "resourceVersion": version, "annotations": { name: text } } })))
}

/// What is on record, if a person may have this node written by us (P7).
fn touchable(node: &NodeFacts, config: &Config) -> Result<Stored, Refusal> {
    let text = node.annotations.get(&config.annotation(RECORD)).map(String::as_str);
    let stored = read(text, node, &config.instance);
    match (standing(node, config), &stored) {
        (Standing::Untouchable(why), _) => Err(Refusal(why)),
        (_, Stored::Untouchable(why)) => Err(Refusal(why.clone())),
        (Standing::OutOfScope(why), Stored::None | Stored::Unreadable(_)) => {
            Err(Refusal(format!("{why} and no record of ours stands on it, so we never write it: use kubectl")))
        }
        _ => Ok(stored),
    }
}

impl Next {
    /// Give up what waits for the guard: nothing of ours stands on the node.
    fn give_up(&mut self, now: Timestamp) {
        self.end_episodes("hand", now);
        self.record.overflow = false;
        for claim in self.record.claims.iter_mut().filter(|c| c.action.isolates()) {
            claim.state = ClaimState::Released;
        }
    }
}

impl Hand<'_> {
    fn sign(&self, episode: &mut Episode) {
        episode.who = Some(cut(self.who, MAX_WHO));
        episode.verdict = self.judgement.map(|j| j.as_str().to_owned());
        episode.reason = self.reason.map(|reason| cut(reason, MAX_REASON));
    }
}

fn cut(text: &str, most: usize) -> String {
    text.trim().chars().take(most).collect()
}
