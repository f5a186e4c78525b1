//! What is promised where releases need more than the word of Alertmanager, held against the truth.
//!
//! - With the fault present nothing releases the node but a person: while the truth of a told alert is that its fault is there, and its
//!   true `recovery_query` was told or it asks for a repair that was not made, our taint stays. A fault that came back less than
//!   [`SEEN_WITHIN`] ago may not be known yet. A query that lies cannot be caught, and is no promise.
//! - What asks for a person, by policy, by label or for want of any proof, is released by nobody else.
//! - A release on evidence follows a whole hold-down in which the exporter showed every GPU and every query on record returned
//!   something, at every step that Prometheus knows of; what it does not know is left out of the count, and not before the machine
//!   last booted.
//! - A hold-down runs from the last boot, evidence or not.
//! - A process releases nothing before a complete pull was handed to it.
//! - With the fault gone and everything back, what stays isolated names the person's step, and that step helps: see `world/ending.rs`.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    harness::{BEGIN, at},
    machines::{GPUS, Machines, STEP, of},
    promises::{HOLD_DOWN, Seen},
    sequence::{ALERTS, NODES, Query, Recovery, Require, Sequence, generation_of, kind_of, node_of},
    wording::{Reads, alertname, node_name, reads, rule_of, uuid},
};

/// An answer counts for two rounds of 30 s, and its last step is up to 30 s older; a few seconds here and there.
const SEEN_WITHIN: i64 = 100;
/// A recording rule that fails leaves its last samples to be found for so long.
const STALE_FOR: i64 = 300;
/// A process asks for so long how Prometheus renders an alert that was posted.
const LOOKED_FOR: i64 = 600;

/// What was told of one alert since it stands on its node's record.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
struct Told {
    /// It stands there, or its claim does.
    stands: bool,
    /// Its true query was told.
    true_query: bool,
    /// Any query was told, be it forged.
    any_query: bool,
    /// The machine booted since it last began to fire.
    rebooted: bool,
    /// The machine was exchanged since then.
    exchanged: bool,
}

pub(crate) struct Proofs {
    require: [Require; 2],
    recovery: [(Recovery, Query); crate::sequence::KINDS],
    fingerprints: Vec<String>,
    told: Vec<Told>,
    /// Since when the process looks for how Prometheus renders an alert.
    looked_for: Vec<Option<i64>>,
    nodes: Vec<Seen>,
    /// The most GPUs that a node's record told of since it was last free.
    gpus: [u64; NODES],
    /// A complete pull was handed to this process.
    pub(crate) heard_all: bool,
}

type Kept = Result<(), String>;

fn second(time: &Value) -> Option<i64> {
    let time: Timestamp = time.as_str()?.parse().ok()?;
    Some(time.duration_since(at(BEGIN)).as_secs())
}

impl Proofs {
    pub(crate) fn new(sequence: &Sequence, fingerprints: Vec<String>, nodes: &[Value]) -> Self {
        Self {
            require: sequence.require,
            recovery: sequence.recovery,
            fingerprints,
            told: vec![Told::default(); ALERTS],
            looked_for: vec![None; ALERTS],
            nodes: nodes.iter().map(Seen::of).collect(),
            gpus: [0; NODES],
            heard_all: false,
        }
    }

    /// A query was sent with this alert, and perhaps taken.
    pub(crate) fn query_sent(&mut self, alert: usize) {
        self.told[alert].any_query = true;
    }

    /// Its true query was taken.
    pub(crate) fn true_query_told(&mut self, alert: usize) {
        self.told[alert].true_query |= self.told[alert].stands;
    }

    /// It was posted to this process and taken: how Prometheus renders it is asked for from now on.
    pub(crate) fn looked_for(&mut self, alert: usize, now: i64) {
        let since = &mut self.looked_for[alert];
        *since = since.filter(|since| now - since < LOOKED_FOR).or(Some(now));
    }

    /// The rules API showed this alert to the process. Whether its query must stand on record now.
    pub(crate) fn rendered(&mut self, alert: usize, now: i64) -> bool {
        self.looked_for[alert].take().is_some_and(|since| now - since < LOOKED_FOR - SEEN_WITHIN)
    }

    /// A new process knows nothing of what the old one heard.
    pub(crate) fn restarted(&mut self) {
        self.heard_all = false;
        self.looked_for = vec![None; ALERTS];
    }

    /// The machine boots, or is exchanged as well.
    pub(crate) fn machine_changes(&mut self, node: usize, exchanged: bool) {
        for alert in of(node) {
            self.told[alert].rebooted = true;
            self.told[alert].exchanged |= exchanged;
        }
    }

    /// Whether the machine booted since an alert of the node began to fire.
    pub(crate) fn has_booted(&self, node: usize) -> bool {
        of(node).any(|alert| self.told[alert].stands && self.told[alert].rebooted)
    }

    /// A person released the node.
    pub(crate) fn taken_away(&mut self, node: usize, raw: &Value) {
        of(node).for_each(|alert| self.told[alert] = Told::default());
        self.nodes[node] = Seen::of(raw);
    }

    pub(crate) fn needs_evidence(&self, alert: usize) -> bool {
        self.require[rule_of(alert)] != Require::Resolved
    }

    /// After each thing that happens.
    pub(crate) fn look(&mut self, now: i64, nodes: &[Value], machines: &Machines) -> Kept {
        for (number, raw) in nodes.iter().enumerate() {
            if self.nodes[number].version == raw["metadata"]["resourceVersion"] {
                continue;
            }
            let is = Seen::of(raw);
            if self.nodes[number].tainted && !is.tainted {
                self.released(number, now, machines)?;
            }
            self.gpus[number] =
                if is.tainted { self.gpus[number].max(is.record["gpus"].as_u64().unwrap_or_default()) } else { 0 };
            for alert in of(number) {
                self.note(alert, &is);
            }
            self.nodes[number] = is;
        }
        Ok(())
    }

    fn note(&mut self, alert: usize, is: &Seen) {
        let fingerprint = &self.fingerprints[alert];
        let began = |seen: &Seen| {
            let (member, fires) = seen.members().find(|(m, _)| m["fp"] == *fingerprint)?;
            fires.then(|| member["startsAt"].clone())
        };
        let (before, after) = (began(&self.nodes[node_of(alert)]), began(is));
        let told = &mut self.told[alert];
        if after.is_some() {
            told.stands = true;
            if before != after {
                (told.rebooted, told.exchanged) = (false, false);
            }
        }
        let gpu = generation_of(alert).map(uuid);
        let claims = is.record["claims"].as_array().into_iter().flatten();
        let mut claims = claims.filter(|c| c["alert"] == alertname(alert) && c["gpu"].as_str() == gpu.as_deref());
        if !is.tainted && claims.next().is_none() {
            *told = Told { any_query: told.any_query, ..Told::default() };
        }
    }

    /// Our taint went, and no person took it.
    fn released(&self, node: usize, now: i64, machines: &Machines) -> Kept {
        let was = &self.nodes[node];
        let name = node_name(node);
        if !self.heard_all {
            return Err(format!("P4: {name} was released before the first complete pull of this process"));
        }
        if now - machines.changed[node] < HOLD_DOWN {
            return Err(format!("P4: {name} was released at {now}, and booted at {}", machines.changed[node]));
        }
        let counts = |a: &usize| self.told[*a].stands && !was.is_released(*a);
        for alert in of(node).filter(counts) {
            if let Some(why) = self.forbids(alert, now, machines) {
                return Err(format!("P4: {name} was released at {now}, but of alert {alert} {why}: {}", was.record));
            }
        }
        let claims = was.record["claims"].as_array().into_iter().flatten();
        for claim in claims.filter(|c| c["state"] == "cleared") {
            let Some(alert) = of(node).find(|a| alertname(*a) == claim["alert"]) else { continue };
            if self.needs_evidence(alert) {
                self.proven(node, claim, now, machines)
                    .map_err(|why| format!("P4: {name} was released at {now}, but {why}: {}", was.record))?;
            }
        }
        Ok(())
    }

    /// Why nobody but a person may release the node, if so.
    fn forbids(&self, alert: usize, now: i64, machines: &Machines) -> Option<String> {
        let told = &self.told[alert];
        let recovery = self.recovery[kind_of(alert)].0;
        if self.require[rule_of(alert)] == Require::EvidenceAndPerson || recovery == Recovery::Manual {
            return Some("a person decides".to_owned());
        }
        if machines.is_replaced(alert) {
            return None;
        }
        match recovery {
            Recovery::Reboot if !told.rebooted => return Some("a reboot is asked for".to_owned()),
            Recovery::Replace if !told.exchanged => return Some("another machine is asked for".to_owned()),
            _ => {}
        }
        if !self.needs_evidence(alert) {
            return None;
        }
        let of_claim =
            || of(node_of(alert)).filter(|a| alertname(*a) == alertname(alert) && generation_of(*a) == generation_of(alert));
        let repairs = |a: usize| matches!(self.recovery[kind_of(a)].0, Recovery::Reboot | Recovery::Replace);
        if recovery == Recovery::Missing {
            return Some("nothing can prove the end".to_owned());
        }
        if !of_claim().any(|a| self.told[a].any_query || (self.told[a].stands && repairs(a))) {
            return Some("no query was ever told".to_owned());
        }
        let long = SEEN_WITHIN + if machines.rule_failed_within(now, SEEN_WITHIN) { STALE_FOR } else { 0 };
        let present = machines.present(alert, now).filter(|present| *present > long && told.true_query);
        present.map(|secs| format!("the fault has been there for {secs} s"))
    }

    /// Whether Prometheus knew of a whole hold-down without the fault.
    fn proven(&self, node: usize, claim: &Value, now: i64, machines: &Machines) -> Kept {
        let cleared = second(&claim["cleared"]).ok_or("a claim without its end")?;
        let since = cleared.max(machines.changed[node]);
        let queries = claim["queries"].as_array().into_iter().flatten();
        let queries: Vec<Reads> = queries.filter_map(Value::as_str).map(reads).collect();
        let replaced = generation_of(of(node).find(|a| claim["alert"] == alertname(*a)).unwrap_or_default())
            .is_some_and(|_| claim["gpu"] != uuid(machines.generation[node]).as_str());
        let (mut good, mut was_good, mut longest) = (0, false, 0);
        let mut step = (since.div_euclid(STEP) + 1) * STEP;
        while let Some(moment) = machines.at_step(step).filter(|_| step <= now) {
            let gpus = &moment.gpus[node];
            let all = gpus.len() >= usize::try_from(self.gpus[node]).unwrap_or(GPUS);
            let there = claim["gpu"].as_str().is_none_or(|gpu| gpus.iter().any(|g| g == gpu));
            let blind = gpus.is_empty() || !all || !(there || replaced);
            let returns = |read: &Reads| match read {
                Reads::Truth(alert) => moment.works[*alert],
                Reads::Series(alert) => moment.clean[*alert],
                Reads::Nothing => moment.scraped,
            };
            let gone = !blind && (!there || queries.iter().all(returns));
            match (blind, gone) {
                (false, true) if was_good => good += STEP,
                (false, false) => good = 0,
                (true, _) | (false, true) => {}
            }
            was_good = gone;
            if now - step <= SEEN_WITHIN {
                longest = longest.max(good);
            }
            step += STEP;
        }
        if longest < HOLD_DOWN {
            return Err(format!("since {since} its end was seen for {longest} s of {HOLD_DOWN}"));
        }
        Ok(())
    }

    /// Whether a person's word may be waited for: something on the node asks for it, or lacks every proof. `meddled` if queries
    /// were forged or edited.
    pub(crate) fn may_need_a_word(&self, node: usize, meddled: bool) -> bool {
        let lacks = |alert: usize| {
            let (recovery, query) = self.recovery[kind_of(alert)];
            self.require[rule_of(alert)] == Require::EvidenceAndPerson
                || recovery == Recovery::Manual
                || (self.needs_evidence(alert) && (recovery == Recovery::Missing || query == Query::Missing || meddled))
        };
        of(node).any(|alert| self.told[alert].stands && lacks(alert))
    }

    /// Whether a repair of that kind may be waited for. One that was made before another alert of the claim began does not count.
    pub(crate) fn may_need(&self, node: usize, what: Recovery, machines: &Machines) -> bool {
        let made = |alert: usize| if what == Recovery::Reboot { self.told[alert].rebooted } else { self.told[alert].exchanged };
        let same = |a: &usize, b: usize| alertname(*a) == alertname(b) && generation_of(*a) == generation_of(b);
        let standing = || of(node).filter(|alert| self.told[*alert].stands);
        standing().filter(|alert| self.recovery[kind_of(*alert)].0 == what).any(|alert| {
            let missing = standing().filter(|other| same(other, alert)).any(|other| !made(other));
            missing && !(machines.is_replaced(alert) && self.needs_evidence(alert))
        })
    }
}
