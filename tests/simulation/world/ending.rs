//! How a run must end.

use serde_json::Value;

use super::{Kept, World};
use crate::{
    process::moment,
    promises::{HOLD_DOWN, Seen},
    sequence::node_of,
    source::{Listed, node_name, pull},
};

impl World<'_> {
    /// P5: one complete pull, and what is on record is what fires; the hold-downs, and what is isolated is what fires.
    pub(super) fn end(&mut self) -> Kept {
        self.advance();
        self.in_flight = None;
        let (pull, listed) = pull(self.now, &self.peers, |_| true, &self.mutes);
        assert_eq!(pull.incomplete, None, "everything is mended");
        self.hand_over(self.now, pull, &listed)?;
        self.ends_as_it_should(&listed, false)?;
        for _ in 0..2 * HOLD_DOWN + 60 {
            self.advance();
            self.service()?;
        }
        self.ends_as_it_should(&listed, true)
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
            wanted += usize::from(!should.is_empty());
            if settled && should.is_empty() && node.tainted {
                return Err(format!("P5: {name} stays isolated, and nothing fires: {}", node.record));
            }
        }
        // A limit that is lowered releases nobody.
        let room = wanted.min(self.room)..=wanted.min(self.most_room);
        if settled && !room.contains(&isolated) {
            return Err(format!("P5: {isolated} nodes are isolated and {room:?} should be, of {wanted}"));
        }
        Ok(())
    }
}
