//! What is written about an eviction: the record alone, in one patch with the resourceVersion that it was read at.

use jiff::Timestamp;
use serde_json::Value;

use super::{Evicting, EvictionAnswer, Restart, state::note_restart};
use crate::{
    locate::NodeFacts,
    policy::Config,
    quarantine::{
        decide::{Next, RECORD},
        record::{Record, Stored, read},
    },
};

/// What became of one thing that was to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Came {
    /// The pod was asked to leave, or deleted.
    Answered(EvictionAnswer),
    /// It was not asked, since something changed meanwhile.
    Withheld(String),
    /// It would be asked, and the service only observes.
    Observed,
}

/// The patch that puts a plan on record, with the groups that are restarted by it.
///
/// # Errors
///
/// In words, if the record cannot be made to fit.
pub fn note_plan(
    node: &NodeFacts,
    config: &Config,
    evicting: &Evicting,
    restarted: &[Restart],
    now: Timestamp,
) -> Result<Option<Value>, String> {
    let patch = write(node, config, |record| {
        record.eviction = Some(evicting.clone());
        for restart in restarted {
            note_restart(&mut record.restarts, restart, now);
        }
    })?;
    // What does not stand there must not be done.
    let text = patch.as_ref().and_then(|p| p.pointer("/metadata/annotations")?.get(config.annotation(RECORD))?.as_str());
    match text.map(|text| read(Some(text), node, &config.instance)) {
        Some(Stored::Ours(record)) if record.eviction.is_none() => {
            Err("the record of the node has no room for the pods beside its claims".to_owned())
        }
        _ => Ok(patch),
    }
}

/// The patch that puts on record what became of it, and where its evidence is; `None` if nobody needs it any more.
///
/// # Errors
///
/// In words, if the record cannot be made to fit.
pub fn note_came(
    node: &NodeFacts,
    config: &Config,
    came: &[(String, Came)],
    evidence: Option<&str>,
    now: Timestamp,
) -> Result<Option<Value>, String> {
    write(node, config, |record| {
        let Some(evicting) = &mut record.eviction else { return };
        if let Some(name) = evidence {
            evicting.evidence = Some(name.to_owned());
        }
        for (uid, came) in came {
            match came {
                Came::Answered(answer) => evicting.answered(uid, answer, now),
                Came::Withheld(why) => evicting.withheld(uid, why, now),
                Came::Observed => evicting.observed(uid, now),
            }
        }
    })
}

fn write(node: &NodeFacts, config: &Config, change: impl FnOnce(&mut Record)) -> Result<Option<Value>, String> {
    let text = node.annotations.get(&config.annotation(RECORD)).map(String::as_str);
    let Stored::Ours(old) = read(text, node, &config.instance) else { return Ok(None) };
    let mut next = Next::of(node, (*old).clone());
    change(&mut next.record);
    next.patch(node, Some(&old), None, config).map_err(str::to_owned)
}
