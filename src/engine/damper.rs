//! Writes of status alone are damped: once per node and 5 s. What is put off is kept here and folded in with whatever is heard
//! next, or when the time is over.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    alert::Alert,
    locate::{Gpu, NodeName},
    policy::Action,
    quarantine::{Heard, Rule},
};

/// How long after a write the next one of status alone waits.
const APART: SignedDuration = SignedDuration::from_secs(5);
/// Nodes written longer ago are forgotten when the map grows past this.
const PRUNE_AT: usize = 1024;

/// Something heard whose write was put off.
#[derive(Debug, Clone)]
pub(super) struct PutOff {
    alert: Alert,
    gpu: Option<Gpu>,
    rule: Option<(String, Action)>,
}

impl PutOff {
    fn of(heard: &Heard<'_>) -> Self {
        Self { alert: heard.alert.clone(), gpu: heard.gpu.clone(), rule: heard.rule.map(|r| (r.policy.to_owned(), r.action)) }
    }

    /// As it was heard.
    pub(super) fn heard(&self) -> Heard<'_> {
        let rule = self.rule.as_ref().map(|(policy, action)| Rule { policy, action: *action });
        Heard { alert: &self.alert, gpu: self.gpu.clone(), rule, muted: None }
    }
}

#[derive(Debug, Default)]
struct Entry {
    wrote: Option<Timestamp>,
    put_off: Vec<PutOff>,
}

/// When nodes were written, and what waits.
#[derive(Debug, Default)]
pub(super) struct Damper {
    nodes: HashMap<NodeName, Entry>,
}

impl Damper {
    /// What waits for this node and is not overtaken by `heard`.
    pub(super) fn take(&mut self, name: &NodeName, heard: &[Heard<'_>]) -> Vec<PutOff> {
        let Some(entry) = self.nodes.get_mut(name) else { return Vec::new() };
        let mut put_off = std::mem::take(&mut entry.put_off);
        put_off.retain(|p| heard.iter().all(|h| h.alert.fingerprint != p.alert.fingerprint));
        put_off
    }

    /// It could not be written after all.
    pub(super) fn put_back(&mut self, name: &NodeName, put_off: Vec<PutOff>) {
        if !put_off.is_empty() {
            self.nodes.entry(name.clone()).or_default().put_off = put_off;
        }
    }

    /// Put the write of `heard` off, if the last one was too recent; until when.
    pub(super) fn put_off(&mut self, name: &NodeName, heard: &[Heard<'_>], now: Timestamp) -> Option<Timestamp> {
        let entry = self.nodes.get_mut(name)?;
        let until = entry.wrote? + APART;
        if heard.is_empty() || now >= until {
            return None;
        }
        entry.put_off = heard.iter().map(PutOff::of).collect();
        Some(until)
    }

    /// The nodes for which something waits. None of it is put off again.
    pub(super) fn no_longer(&mut self) -> Vec<NodeName> {
        self.nodes.retain(|_, e| !e.put_off.is_empty());
        self.nodes.values_mut().for_each(|e| e.wrote = None);
        self.nodes.keys().cloned().collect()
    }

    /// The node was written.
    pub(super) fn wrote(&mut self, name: &NodeName, now: Timestamp) {
        if self.nodes.len() > PRUNE_AT {
            self.nodes.retain(|_, e| !e.put_off.is_empty() || e.wrote.is_some_and(|at| now < at + APART));
        }
        self.nodes.entry(name.clone()).or_default().wrote = Some(now);
    }
}
