//! What isolations came to, counted once each: the verdicts that people gave by command, and the GPU-hours withheld. Seen on the
//! nodes, since a release may be written by anybody. What was there when a node is first seen was counted before, or never will be.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    locate::{Gpu, NodeFacts, NodeName},
    metrics::Metrics,
    quarantine::{Episode, Judgement, NodeView},
};

/// More than a record keeps, so that one seen late is not counted again.
const REMEMBERED: usize = 64;

/// Which episode, of one node.
type Key = (String, Option<Gpu>, Timestamp, Timestamp);

#[derive(Debug)]
struct Known {
    uid: String,
    /// Episodes that were counted, oldest first.
    counted: Vec<Key>,
    /// Since when it has been isolated, by which alert, and how many GPUs it has.
    isolated: Option<(Timestamp, String, Option<u32>)>,
}

/// What was counted.
#[derive(Debug, Default)]
pub(super) struct Tally(BTreeMap<NodeName, Known>);

impl Tally {
    /// Take a node as it is now. The first episode that a person ended by command and that was not seen before, if there is one.
    pub(super) fn see<'a>(&mut self, node: &NodeFacts, view: &'a NodeView, metrics: &Metrics) -> Option<&'a Episode> {
        let known = self.0.get(&node.name).filter(|known| known.uid == node.uid);
        if known.is_none() && view.history.is_empty() && view.isolated_at.is_none() {
            self.0.remove(&node.name);
            return None;
        }
        let first = known.is_none();
        if first {
            self.0.insert(node.name.clone(), Known { uid: node.uid.clone(), counted: Vec::new(), isolated: None });
        }
        let known = self.0.get_mut(&node.name)?;
        let mut by_command = None;
        let mut released: Option<Timestamp> = None;
        for episode in &view.history {
            let key = key(episode);
            if known.counted.contains(&key) {
                continue;
            }
            known.counted.push(key);
            if first {
                continue;
            }
            released = released.max(Some(episode.to));
            by_command = by_command.or(Some(episode).filter(|e| e.who.is_some()));
            if let Some(judgement) = episode.verdict.as_deref().and_then(Judgement::parse) {
                metrics.found(&episode.alert, judgement);
            }
        }
        let over = known.counted.len().saturating_sub(REMEMBERED);
        known.counted.drain(..over);
        // Without a new episode nobody released it: its record was lost, or cannot be read just now.
        if let (Some(to), Some((from, alert, gpus))) = (released, &known.isolated)
            && view.isolated_at != Some(*from)
        {
            if let Some(gpus) = gpus {
                let hours = to.duration_since(*from).as_secs_f64().max(0.0) / 3600.0;
                metrics.withheld(alert, hours * f64::from(*gpus));
            }
            known.isolated = None;
        }
        let Some(at) = view.isolated_at else { return by_command };
        if known.isolated.as_ref().is_none_or(|(from, ..)| *from != at) {
            let isolating = view.claims.iter().filter(|c| c.action.isolates()).min_by_key(|c| c.since);
            if let Some(claim) = isolating {
                metrics.expect_verdict(&claim.alert);
                known.isolated = Some((at, claim.alert.clone(), node.gpus));
            }
        }
        by_command
    }

    /// Forget a node that is gone.
    pub(super) fn forget(&mut self, name: &NodeName) {
        self.0.remove(name);
    }
}

fn key(episode: &Episode) -> Key {
    (episode.alert.clone(), episode.gpu.clone(), episode.from, episode.to)
}
