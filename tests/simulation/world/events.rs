//! What happens, how long it lasts, and how it ends.

use serde_json::json;

use super::{Kept, World};
use crate::{
    harness::{Fault, TAINT},
    promises::HOLD,
    sequence::{ALERTS, Api, Event, NODES, Rest, Why},
    source::{Mute, node_name},
};

/// Until when each thing is out of order.
#[derive(Debug, Default)]
pub(super) struct Outages {
    pub(super) gaps: [i64; ALERTS],
    pub(super) prometheus: i64,
    pub(super) unreported: [i64; 2],
    pub(super) peer_down: [i64; 2],
    pub(super) unpulled: [i64; 2],
    pub(super) apart: i64,
    pub(super) webhooks: i64,
    pub(super) answers: i64,
    pub(super) service: i64,
    pub(super) hang: i64,
    pub(super) behind: i64,
    pub(super) held: [i64; NODES],
}

impl World<'_> {
    pub(super) fn happen(&mut self, event: &Event) -> Kept {
        let now = self.now;
        let until = |old: &mut i64, secs: i64| *old = (*old).max(now + secs);
        let o = &mut self.outages;
        match *event {
            Event::Fault(alert) => self.faults[alert] = true,
            Event::Repair(alert) => self.faults[alert] = false,
            Event::Gap { alert, secs } => until(&mut o.gaps[alert], secs),
            Event::PrometheusDown { secs } => until(&mut o.prometheus, secs),
            Event::Unreported { peer, secs } => until(&mut o.unreported[peer], secs),
            Event::PeerDown { peer, secs, keeps_log } => {
                if let Some(down) = self.peers.get_mut(peer) {
                    down.goes_down(keeps_log);
                    until(&mut o.peer_down[peer], secs);
                }
            }
            Event::Unpulled { peer, secs } => until(&mut o.unpulled[peer], secs),
            Event::Apart { secs } => until(&mut o.apart, secs),
            Event::Mute { alert, whole_node, why, secs } => {
                // A silence is created at one peer and told to the others.
                let both = now >= o.apart || why != Why::Silenced;
                self.mutes.push(Mute { alert, whole_node, why, until: now + secs, known_to: [true, both] });
            }
            Event::WebhooksLost { secs } => until(&mut o.webhooks, secs),
            Event::AnswersLost { secs } => until(&mut o.answers, secs),
            Event::Kill { secs } => self.kill(secs),
            Event::KillAtWrite { skip, applied, secs } => {
                self.cluster.die_at(skip, applied);
                self.dies_for = secs;
            }
            Event::Hang { secs } => {
                until(&mut o.hang, secs);
                self.cluster.pause();
            }
            Event::Writes(ref faults) => self.cluster.fail_next(&faults.iter().copied().map(fault).collect::<Vec<_>>()),
            Event::Reads(ref faults) => {
                let reads = faults.iter().copied().filter(|f| *f != Api::Conflict).map(fault);
                self.cluster.fail_next_reads(&reads.collect::<Vec<_>>());
            }
            Event::Behind { secs } => {
                until(&mut o.behind, secs);
                self.cluster.fall_behind(true);
            }
            Event::Hold { node, secs } => {
                until(&mut o.held[node], secs);
                self.cluster.edit(&node_name(node), |n| n["metadata"]["annotations"][HOLD] = json!("an investigation"));
            }
            Event::Room(room) => {
                self.room = room;
                self.most_room = self.most_room.max(room);
                if let Some(process) = &self.process {
                    process.reload(&self.config());
                }
                return self.after_work();
            }
            Event::TakeTaint { node } => {
                let name = node_name(node);
                self.cluster.edit(&name, |n| {
                    if let Some(taints) = n["spec"]["taints"].as_array_mut() {
                        taints.retain(|t| t["key"] != TAINT);
                    }
                    let fields = json!({"f:spec": {"f:taints": {}}});
                    n["metadata"]["managedFields"] =
                        json!([{"manager": "kubectl-taint", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}]);
                });
                self.promises.taken_away(node, &self.cluster.raw(&name));
            }
        }
        self.look()
    }

    /// All outages end; faults stay as they are.
    pub(super) fn mend(&mut self) {
        self.say(|| "* everything is mended but the faults".to_owned());
        let held = self.outages.held;
        self.outages = Outages::default();
        self.outages.held = held.map(|until| if until > self.now { self.now } else { until });
        self.mutes.clear();
        for peer in &mut self.peers {
            if !peer.up {
                peer.comes_up(self.now);
            }
        }
        if matches!(self.sequence.rest, Rest::Pull | Rest::Nothing) {
            self.outages.webhooks = i64::MAX;
        }
        self.cluster.heal();
        self.pulls = matches!(self.sequence.rest, Rest::Pull | Rest::PushAndPull);
    }

    pub(super) fn outages_end(&mut self) {
        let now = self.now;
        for (peer, until) in self.peers.iter_mut().zip(self.outages.peer_down) {
            if !peer.up && now >= until {
                peer.comes_up(now);
            }
        }
        if now >= self.outages.apart {
            if let [a, b] = &mut self.peers[..]
                && a.up
                && b.up
            {
                a.log_from(b);
                b.log_from(a);
            }
            self.mutes.iter_mut().for_each(|m| m.known_to = [true; 2]);
        }
        self.mutes.retain(|m| now < m.until);
        if now == self.outages.hang || self.outages.hang == 0 {
            self.cluster.go_on();
        }
        if now < self.outages.hang {
            self.hung = now;
        }
        if now == self.outages.behind {
            self.cluster.fall_behind(false);
        }
        for (number, until) in self.outages.held.iter_mut().enumerate().filter(|(_, until)| **until > 0) {
            if now >= *until {
                *until = 0;
                self.cluster.edit(&node_name(number), |n| {
                    n["metadata"]["annotations"].as_object_mut().and_then(|a| a.remove(HOLD));
                });
            }
        }
    }
}

fn fault(api: Api) -> Fault {
    match api {
        Api::Conflict => Fault::Conflict,
        Api::TimeoutBefore => Fault::TimeoutBefore,
        Api::TimeoutAfter => Fault::TimeoutAfter,
        Api::Unavailable => Fault::Unavailable,
    }
}
