//! How a run must end.

use serde_json::Value;

use super::{Kept, World};
use crate::{
    machines::of,
    process::moment,
    promises::{HOLD_DOWN, Seen},
    sequence::{NODES, Recovery, node_of},
    source::{Listed, pull},
    wording::node_name,
};

/// How long a boot takes that a person was asked for.
const BOOTS_FOR: i64 = 60;
/// More steps than that are asked of nobody: a reboot, another machine, a word.
const MOST_STEPS: usize = 4;

impl World<'_> {
    /// P5: one complete pull, and what is on record is what fires; the hold-downs, and what is isolated is what fires.
    pub(super) fn end(&mut self) -> Kept {
        self.advance();
        self.machines.record(self.now, true);
        self.in_flight = None;
        let (pull, listed) = pull(self.now, &self.peers, |_| true, &self.mutes, self.wording);
        assert_eq!(pull.incomplete, None, "everything is mended");
        self.hand_over(self.now, pull, &listed)?;
        self.ends_as_it_should(&listed, false)?;
        self.rest()?;
        self.ends_as_it_should(&listed, true)?;
        for _ in 0..MOST_STEPS {
            let mut asked = false;
            for node in 0..NODES {
                asked |= self.do_as_asked(node, &listed)?;
            }
            if !asked {
                break;
            }
            self.rest()?;
        }
        for node in (0..NODES).filter(|n| self.is_well(*n, &listed)) {
            if self.is_isolated(node) {
                return Err(format!("P4: {} stays isolated, and all was done: {}", node_name(node), self.waiting_for(node)));
            }
        }
        Ok(())
    }

    fn rest(&mut self) -> Kept {
        for _ in 0..2 * HOLD_DOWN + 60 {
            self.advance();
            self.machines.record(self.now, true);
            self.service()?;
            self.prove()?;
        }
        Ok(())
    }

    fn is_isolated(&self, node: usize) -> bool {
        Seen::of(&self.cluster.raw(&node_name(node))).tainted
    }

    /// No fault is there, or the word of Alertmanager is all that counts, and none is told of.
    fn is_well(&self, node: usize, listed: &[Listed]) -> bool {
        let counts = |alert: &usize| self.proofs.needs_evidence(*alert);
        let present = of(node).filter(counts).any(|alert| self.machines.present(alert, self.now).is_some());
        !present && !listed.iter().any(|l| node_of(l.alert) == node)
    }

    fn waiting_for(&self, node: usize) -> String {
        self.process.as_ref().map(|process| process.view(&node_name(node)).waiting_for).unwrap_or_default()
    }

    /// With the fault gone and everything back, what stays isolated names what a person must do. Do it. Whether there was anything.
    fn do_as_asked(&mut self, node: usize, listed: &[Listed]) -> Result<bool, String> {
        if !self.is_well(node, listed) || !self.is_isolated(node) {
            return Ok(false);
        }
        let (name, asked) = (node_name(node), self.waiting_for(node));
        self.say(|| format!("{name} waits for {asked}"));
        let may_need = |what| self.proofs.may_need(node, what, &self.machines);
        match asked.strip_prefix("a person to ") {
            Some(step) if step.starts_with("reboot the machine") && may_need(Recovery::Reboot) => {
                self.reboot(node, false, BOOTS_FOR, false);
            }
            Some(step) if step.starts_with("replace the GPU or the machine") && may_need(Recovery::Replace) => {
                self.exchange(node, BOOTS_FOR);
            }
            // It was told of only after the GPU was replaced.
            None if asked.ends_with("a person must release the node") && self.machines.generation[node] > 0 => {
                self.take_taint(node);
            }
            Some(step) if step.starts_with("remove the taint") && self.proofs.may_need_a_word(node, self.meddled) => {
                self.take_taint(node);
            }
            _ => return Err(format!("P4: {name} stays isolated without a reason for a person, waiting for {asked}")),
        }
        self.look().map(|()| true)
    }

    fn ends_as_it_should(&self, listed: &[Listed], settled: bool) -> Kept {
        let nodes: Vec<Seen> = self.cluster.inner.nodes_json().iter().map(Seen::of).collect();
        let mut wanted = 0;
        let mut isolated = 0;
        for (number, node) in nodes.iter().enumerate() {
            let fires: Vec<_> = listed.iter().filter(|l| node_of(l.alert) == number).collect();
            let mut should: Vec<_> = fires
                .iter()
                .map(|l| (self.promises.fingerprints[l.alert].clone(), moment(l.stored.starts).to_string()))
                .collect();
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let mut is: Vec<_> =
                node.members().filter(|(_, fires)| *fires).map(|(m, _)| (text(&m["fp"]), text(&m["startsAt"]))).collect();
            should.sort();
            is.sort();
            let name = node_name(number);
            if should != is {
                return Err(format!("P5: on {name} fire {should:?}, and on record are {is:?}: {}", node.record));
            }
            let claims = node.record["claims"].as_array().cloned().unwrap_or_default();
            if claims.iter().any(|c| c["unconfirmed"] == true) {
                return Err(format!("P5: a complete pull confirmed nothing on {name}: {}", node.record));
            }
            isolated += usize::from(node.tainted);
            if self.promises.by_hand[number] {
                wanted += usize::from(node.tainted);
                continue;
            }
            // What stays isolated and does not fire has its reason, which is looked at below.
            wanted += usize::from(!should.is_empty() || node.tainted);
        }
        // A limit that is lowered releases nobody.
        let room = wanted.min(self.room)..=wanted.min(self.most_room);
        if settled && !room.contains(&isolated) {
            return Err(format!("P5: {isolated} nodes are isolated and {room:?} should be, of {wanted}"));
        }
        Ok(())
    }
}
