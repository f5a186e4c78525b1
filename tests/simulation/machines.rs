//! What is true of the machines, what their exporters show of it, and what Prometheus could answer about both.

use gpu_quarantine::{
    locate::Gpu,
    quarantine::evidence::{NodeAnswers, PresentGpu, Question, Series},
};

use crate::{
    harness::{BEGIN, at},
    sequence::{ALERTS, FAULTS, GENERATIONS, NODES, generation_of, node_of},
    wording::{RECORDED, Reads, node_name, reads, uuid},
};

/// Questions ask for every 30th second, the twentieth part of the hold-down.
pub(crate) const STEP: i64 = 30;
/// GPUs of each node.
pub(crate) const GPUS: usize = 2;
/// How long Prometheus goes on with the last sample of a rule that fails.
const LOOKS_BACK: i64 = 300;

/// What Prometheus can know of one moment.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    /// Prometheus had samples at all.
    pub(crate) scraped: bool,
    /// The UUIDs that each node's exporter shows.
    pub(crate) gpus: [Vec<String>; NODES],
    /// Which faults are not there, by the rule that reads the truth.
    pub(crate) works: [bool; ALERTS],
    /// Which faults are not shown.
    pub(crate) clean: [bool; ALERTS],
}

/// The machines.
#[derive(Debug)]
pub(crate) struct Machines {
    /// Since when each fault has been there.
    since: [Option<i64>; ALERTS],
    /// What the exporter no longer shows although it is there.
    forgotten: [bool; ALERTS],
    /// How often the GPU was replaced.
    pub(crate) generation: [usize; NODES],
    pub(crate) boots: [usize; NODES],
    pub(crate) machine: [usize; NODES],
    /// When a machine last booted or was exchanged.
    pub(crate) changed: [i64; NODES],
    /// Until when exporters show nothing.
    pub(crate) dark: [i64; NODES],
    pub(crate) unseen: [[i64; GPUS]; NODES],
    pub(crate) misnamed: [i64; NODES],
    /// Since when and until when the recording rule fails.
    rule_fails: (i64, i64),
    /// Each [`STEP`] since the beginning.
    history: Vec<Moment>,
}

impl Machines {
    pub(crate) fn new() -> Self {
        let mut machines = Self {
            since: [None; ALERTS],
            forgotten: [false; ALERTS],
            generation: [0; NODES],
            boots: [0; NODES],
            machine: [0; NODES],
            changed: [-100_000; NODES],
            dark: [0; NODES],
            unseen: [[0; GPUS]; NODES],
            misnamed: [0; NODES],
            rule_fails: (-1, -1),
            history: Vec::new(),
        };
        machines.record(0, true);
        machines
    }

    /// The alert that tells of this fault, which is another one after the GPU was replaced.
    pub(crate) fn alert(&self, fault: usize) -> usize {
        match generation_of(fault) {
            Some(_) => fault + FAULTS * self.generation[node_of(fault)],
            None => fault,
        }
    }

    pub(crate) fn breaks(&mut self, alert: usize, now: i64) {
        self.since[alert].get_or_insert(now);
        self.forgotten[alert] = false;
    }

    /// It is there, and its alert does not show it.
    pub(crate) fn breaks_unseen(&mut self, alert: usize, now: i64) {
        self.since[alert].get_or_insert(now);
        self.forgotten[alert] = true;
    }

    pub(crate) fn is_repaired(&mut self, alert: usize) {
        self.since[alert] = None;
        self.forgotten[alert] = false;
    }

    pub(crate) fn all_is_repaired(&mut self) {
        (0..ALERTS).for_each(|alert| self.is_repaired(alert));
    }

    /// For how long a fault has been there without a break.
    pub(crate) fn present(&self, alert: usize, now: i64) -> Option<i64> {
        self.since[alert].map(|since| now - since)
    }

    /// Whether the alert's own series shows the fault.
    pub(crate) fn shows(&self, alert: usize, now: i64) -> bool {
        self.since[alert].is_some() && !self.forgotten[alert] && now >= self.dark[node_of(alert)]
    }

    pub(crate) fn goes_dark(&mut self, node: usize, until: i64, forgets: bool) {
        self.dark[node] = self.dark[node].max(until);
        for alert in of(node).filter(|a| forgets && self.since[*a].is_some()) {
            self.forgotten[alert] = true;
        }
    }

    /// The machine boots: what is still there is shown again.
    pub(crate) fn boots(&mut self, node: usize, cures: bool, now: i64, secs: i64) {
        self.boots[node] += 1;
        self.changed[node] = now;
        self.misnamed[node] = 0;
        for alert in of(node) {
            self.forgotten[alert] = false;
            if cures {
                self.since[alert] = None;
            }
        }
        self.goes_dark(node, now + secs, false);
    }

    pub(crate) fn gets_new_gpu(&mut self, node: usize) {
        if self.generation[node] + 1 < GENERATIONS {
            self.generation[node] += 1;
        }
        of(node).filter(|a| generation_of(*a).is_some()).for_each(|alert| self.is_repaired(alert));
    }

    /// Whether the GPU of that alert is gone for good.
    pub(crate) fn is_replaced(&self, alert: usize) -> bool {
        generation_of(alert).is_some_and(|generation| generation < self.generation[node_of(alert)])
    }

    pub(crate) fn rule_fails(&mut self, now: i64, until: i64) {
        if now >= self.rule_fails.1 {
            self.rule_fails = (now, until);
        }
        self.rule_fails.1 = self.rule_fails.1.max(until);
    }

    /// Whether the recording rule failed in the last so many seconds.
    pub(crate) fn rule_failed_within(&self, now: i64, secs: i64) -> bool {
        now - secs < self.rule_fails.1
    }

    pub(crate) fn mend(&mut self, now: i64) {
        (self.dark, self.unseen, self.misnamed) = ([0; NODES], [[0; GPUS]; NODES], [0; NODES]);
        self.rule_fails.1 = self.rule_fails.1.min(now);
    }

    fn gpus(&self, node: usize, now: i64) -> Vec<String> {
        if now < self.dark[node] {
            return Vec::new();
        }
        let name = |gpu: usize| match gpu {
            0 if now < self.misnamed[node] => uuid(900),
            0 => uuid(self.generation[node]),
            // The others go with the machine.
            _ => uuid(500 + self.machine[node]),
        };
        (0..GPUS).filter(|gpu| now >= self.unseen[node][*gpu]).map(name).collect()
    }

    /// Once per second.
    pub(crate) fn record(&mut self, now: i64, scraped: bool) {
        if now % STEP != 0 {
            return;
        }
        let up = |alert: usize| scraped && now >= self.dark[node_of(alert)];
        let (begun, ends) = self.rule_fails;
        let mut works = [false; ALERTS];
        let mut clean = [false; ALERTS];
        for alert in 0..ALERTS {
            let there = !self.is_replaced(alert);
            works[alert] = there && up(alert) && self.since[alert].is_none();
            clean[alert] = there && up(alert) && !self.shows(alert, now);
            if now >= begun && now < ends {
                // What was there goes on for a while, and then nothing is.
                let before = self.history.get(usize::try_from(begun.div_euclid(STEP)).unwrap_or_default());
                works[alert] = now - begun < LOOKS_BACK && before.is_some_and(|b| b.works[alert]);
            }
        }
        let gpus = std::array::from_fn(|node| if scraped { self.gpus(node, now) } else { Vec::new() });
        assert_eq!(self.history.len(), usize::try_from(now / STEP).unwrap_or_default(), "a step was left out");
        self.history.push(Moment { scraped, gpus, works, clean });
    }

    /// What was at a step of a question; `None` before the beginning.
    pub(crate) fn at_step(&self, second: i64) -> Option<&Moment> {
        assert_eq!(second % STEP, 0, "another step than the world records");
        self.history.get(usize::try_from(second / STEP).ok()?)
    }

    /// What Prometheus answers at `now`.
    pub(crate) fn answer(&self, question: &Question, now: i64, answers: bool, queries: bool) -> NodeAnswers {
        let Some(node) = (0..NODES).find(|n| node_name(*n) == question.node.as_str()) else { panic!("{question:?}") };
        if !answers {
            return NodeAnswers { present: Err("Prometheus does not answer".to_owned()), claims: Vec::new() };
        }
        let steps: Vec<_> = question
            .range
            .steps()
            .filter_map(|at_| Some((at_, self.at_step(at_.duration_since(at(BEGIN)).as_secs())?)))
            .collect();
        let when = |so: &dyn Fn(&Moment) -> bool| -> Series { steps.iter().filter(|(_, m)| so(m)).map(|(at, _)| *at).collect() };
        let mut names: Vec<&String> = steps.iter().flat_map(|(_, m)| &m.gpus[node]).collect();
        names.sort();
        names.dedup();
        let present = names.into_iter().map(|name| PresentGpu {
            names: vec![Gpu::parse(name).expect("a UUID")],
            at: when(&|m| m.gpus[node].contains(name)),
        });
        let fails = now >= self.rule_fails.0 && now < self.rule_fails.1;
        let answer = |query: &str| match reads(query) {
            _ if !queries => Err("execution: the query timed out".to_owned()),
            _ if fails && query.starts_with(RECORDED) => Err(format!("the rule {RECORDED} fails")),
            Reads::Truth(alert) => Ok(when(&|m| m.works[alert])),
            Reads::Series(alert) => Ok(when(&|m| m.clean[alert])),
            Reads::Nothing => Ok(when(&|m| m.scraped)),
        };
        let claims = question.claims.iter().map(|c| c.queries.iter().map(|q| answer(q.as_str())).collect());
        NodeAnswers { present: Ok(present.collect()), claims: claims.collect() }
    }
}

/// All alerts of a node.
pub(crate) fn of(node: usize) -> impl Iterator<Item = usize> {
    (0..ALERTS).filter(move |alert| node_of(*alert) == node)
}
