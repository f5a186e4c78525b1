//! What happens, how long it lasts, and how it ends.

use serde_json::{Value, json};

use super::{Kept, World};
use crate::{
    harness::{self, Fault, TAINT},
    process::moment,
    promises::{HOLD, IGNORE},
    sequence::{ALERTS, Api, Event, Forged, NODES, Rest, Rule, Why},
    source::Mute,
    wording::{forged, node_name},
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
    pub(super) ignored: [i64; NODES],
    /// Kubernetes tells of one GPU.
    pub(super) one_gpu: [i64; NODES],
    pub(super) errors: i64,
    pub(super) query_errors: i64,
    pub(super) late: i64,
    pub(super) late_by: i64,
}

impl World<'_> {
    pub(super) fn happen(&mut self, event: &Event) -> Kept {
        let now = self.now;
        let until = |old: &mut i64, secs: i64| *old = (*old).max(now + secs);
        let o = &mut self.outages;
        match *event {
            Event::Fault(fault) => self.machines.breaks(self.machines.alert(fault), now),
            Event::Repair(fault) => self.machines.is_repaired(self.machines.alert(fault)),
            Event::Hidden(fault) => self.machines.breaks_unseen(self.machines.alert(fault), now),
            Event::Gap { alert, secs } => until(&mut o.gaps[self.machines.alert(alert)], secs),
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
                let alert = self.machines.alert(alert);
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
            Event::TakeTaint { node } => self.take_taint(node),
            Event::Ignore { node, secs } => {
                until(&mut o.ignored[node], secs);
                self.cluster.edit(&node_name(node), |n| n["metadata"]["annotations"][IGNORE] = json!("a test bed"));
            }
            Event::ExporterDown { node, secs, forgets } => self.machines.goes_dark(node, now + secs, forgets),
            Event::Unseen { node, gpu, secs } => until(&mut self.machines.unseen[node][gpu], secs),
            // After a boot nobody could tell it from another GPU.
            Event::Misnamed { node, .. } if self.proofs.has_booted(node) => {}
            Event::Misnamed { node, secs } => until(&mut self.machines.misnamed[node], secs),
            Event::OneGpu { node, secs } => {
                until(&mut o.one_gpu[node], secs);
                self.change(node, |n| n["metadata"]["labels"]["nvidia.com/gpu.count"] = json!("1"));
            }
            Event::Errors { all: true, secs } => until(&mut o.errors, secs),
            Event::Errors { all: false, secs } => until(&mut o.query_errors, secs),
            Event::Late { by, secs } => {
                until(&mut o.late, secs);
                o.late_by = by;
            }
            Event::RuleFails { secs } => self.machines.rule_fails(now, now + secs),
            Event::Rule { gpu, is } => {
                self.wording.rules[usize::from(!gpu)] = is;
                self.meddled |= is == Rule::Edited;
            }
            Event::Reboot { node, cures, secs } => self.reboot(node, cures, secs, false),
            Event::NewGpu { node, secs } => {
                self.machines.gets_new_gpu(node);
                self.reboot(node, false, secs, false);
            }
            Event::NewMachine { node, secs } => self.exchange(node, secs),
            Event::Forge { alert, query, over } => return self.forge(self.machines.alert(alert), query, over),
        }
        self.look()
    }

    /// Somebody else changes a node.
    fn change(&mut self, node: usize, edit: impl FnOnce(&mut Value)) {
        self.cluster.edit(&node_name(node), edit);
        self.promises.changed(node, &self.cluster.raw(&node_name(node)));
    }

    pub(super) fn take_taint(&mut self, node: usize) {
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
        self.proofs.taken_away(node, &self.cluster.raw(&name));
    }

    /// The machine boots, and perhaps it is another one.
    pub(super) fn reboot(&mut self, node: usize, cures: bool, secs: i64, exchanged: bool) {
        self.machines.boots(node, cures, self.now, secs);
        self.machines.machine[node] += usize::from(exchanged);
        self.proofs.machine_changes(node, exchanged);
        let (boot, machine) = (self.machines.boots[node], self.machines.machine[node]);
        self.change(node, |n| {
            n["status"]["nodeInfo"] = json!({"bootID": format!("b-{boot}"), "systemUUID": format!("s-{machine}")});
        });
    }

    /// Another machine, with other GPUs, in the place of the old one.
    pub(super) fn exchange(&mut self, node: usize, secs: i64) {
        self.machines.gets_new_gpu(node);
        self.reboot(node, true, secs, true);
    }

    /// A post that no Alertmanager sent.
    fn forge(&mut self, alert: usize, query: Forged, over: bool) -> Kept {
        let now = self.now;
        let Some(process) = self.process.as_ref().filter(|_| now >= self.outages.webhooks) else { return Ok(()) };
        self.meddled = true;
        let mut sent = self.wording.without_query(alert, now);
        if let Some(query) = forged(query) {
            sent = sent.annotated("recovery_query", query);
            self.proofs.query_sent(alert);
        }
        let sent = if over { sent.over(&moment(now).to_string()) } else { sent };
        self.promises.posted(now, &[(alert, !over)]);
        if let Some((200, answer)) = process.post(harness::body(&[sent]))
            && !self.cluster.is_dead()
        {
            let certain = now - self.hung > 60;
            self.promises.accepted(now, &[(alert, !over)], &answer, &self.cluster.inner.nodes_json(), certain)?;
            self.taken(&[(alert, !over)], certain)?;
        }
        self.look()?;
        self.bury();
        Ok(())
    }

    /// All outages end; faults stay as they are.
    pub(super) fn mend(&mut self) {
        self.say(|| "* everything is mended but the faults".to_owned());
        let over = |times: [i64; NODES]| times.map(|until| until.min(self.now));
        let o = &self.outages;
        let (held, ignored, one_gpu) = (over(o.held), over(o.ignored), over(o.one_gpu));
        self.outages = Outages { held, ignored, one_gpu, ..Outages::default() };
        self.machines.mend(self.now);
        if self.sequence.repaired {
            self.machines.all_is_repaired();
        }
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
        for number in 0..NODES {
            let name = node_name(number);
            for (until, key) in [(&mut self.outages.held[number], HOLD), (&mut self.outages.ignored[number], IGNORE)] {
                if *until > 0 && now >= *until {
                    *until = 0;
                    self.cluster.edit(&name, |n| {
                        n["metadata"]["annotations"].as_object_mut().and_then(|a| a.remove(key));
                    });
                }
            }
            let until = &mut self.outages.one_gpu[number];
            if *until > 0 && now >= *until {
                *until = 0;
                self.change(number, |n| n["metadata"]["labels"]["nvidia.com/gpu.count"] = json!("2"));
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
