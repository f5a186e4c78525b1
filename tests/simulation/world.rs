//! One run: everything that happens, second by second.

mod ending;
mod events;
mod proving;

use std::{mem, sync::Arc};

use gpu_quarantine::{
    alert::Pull,
    cluster::{Cluster as _, snapshot::SnapshotCluster},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    alertmanager::{Peer, Route, Sent, Snapshot},
    harness::Faulty,
    machines::Machines,
    process::{Process, moment},
    prometheus::Prometheus,
    promises::Promises,
    proofs::Proofs,
    sequence::{ALERTS, NODES, Require, Rule, Sequence, node_of},
    source::{Listed, Mute, pull, union},
    wording::{Wording, node_name, rule_of},
};
use events::Outages;
use proving::Round;

/// `poll_interval`, and the most that jitter adds.
const POLL: i64 = 60;
const JITTER: i64 = 6;
/// After the last event: the resolves that are told again, leases and peers that were just started.
const CALM: i64 = 1300;

pub(crate) struct World<'a> {
    sequence: &'a Sequence,
    verbose: bool,
    /// The guard's limit, and the highest that it was.
    room: usize,
    most_room: usize,
    route: Route,
    now: i64,
    machines: Machines,
    wording: Wording,
    /// Queries were forged or edited.
    meddled: bool,
    outages: Outages,
    prometheus: Prometheus,
    peers: Vec<Peer>,
    mutes: Vec<Mute>,
    cluster: Arc<Faulty>,
    changes: watch::Receiver<u64>,
    /// The same, for who looks whether promises are kept.
    written: watch::Receiver<u64>,
    process: Option<Process>,
    /// How long the service is down after it dies at a write.
    dies_for: i64,
    /// A write hung until then: what was answered late may be at work beside.
    hung: i64,
    next_pull: i64,
    /// Whether there are pulls.
    pulls: bool,
    in_flight: Option<(i64, Pull, Vec<Listed>)>,
    next_round: i64,
    round: Option<Round>,
    promises: Promises,
    proofs: Proofs,
}

type Kept = Result<(), String>;

fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": node_name(number), "uid": format!("u-{number}"), "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "2"}, "annotations": {"other.example/note": "keep"},
        },
        "spec": {"podCIDR": "10.0.7.0/24", "taints": [{"key": "other.example/busy", "value": "x", "effect": "NoSchedule"}]},
        "status": {"nodeInfo": {"bootID": "b-0", "systemUUID": "s-0"}},
    })
}

/// Play a sequence, or say which promise was broken.
pub(crate) fn play(sequence: &Sequence, verbose: bool) -> Kept {
    let mut world = World::new(sequence, verbose);
    let outcome = world.run();
    outcome.map_err(|broken| format!("{broken}\n(at second {}, {})", world.now, moment(world.now)))
}

impl<'a> World<'a> {
    fn new(sequence: &'a Sequence, verbose: bool) -> Self {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": (0..NODES).map(node).collect::<Vec<_>>()});
        let cluster = SnapshotCluster::load("nodes.json", &list.to_string(), "gpu-quarantine.dev").expect("the nodes are valid");
        let wording = Wording { recovery: sequence.recovery, rules: [Rule::Original; 2] };
        let promises = Promises::new(&cluster.nodes_json(), wording.fingerprints());
        let proofs = Proofs::new(sequence, wording.fingerprints(), &cluster.nodes_json());
        let cluster = Arc::new(Faulty::around(cluster));
        let (group_wait, group_interval, repeat_interval) = if sequence.slow_route { (30, 300, 14_400) } else { (10, 30, 900) };
        Self {
            sequence,
            verbose,
            room: sequence.room,
            most_room: sequence.room,
            route: Route { group_wait, group_interval, repeat_interval, max_alerts: sequence.max_alerts },
            now: 0,
            machines: Machines::new(),
            wording,
            meddled: false,
            outages: Outages::default(),
            prometheus: Prometheus::default(),
            peers: (0..sequence.peers).map(Peer::new).collect(),
            mutes: Vec::new(),
            changes: cluster.changes(),
            written: cluster.changes(),
            cluster,
            process: None,
            dies_for: 0,
            hung: -1000,
            next_pull: 0,
            pulls: true,
            in_flight: None,
            next_round: 0,
            round: None,
            promises,
            proofs,
        }
    }

    fn config(&self) -> String {
        let [gpu, node] = self.sequence.require.map(|require| match require {
            Require::Resolved => "resolved",
            Require::Evidence => "evidence",
            Require::EvidenceAndPerson => "evidence, manual",
        });
        format!(
            "scope: {{nodes: nvidia.com/gpu.present=true}}
release: {{after: 10m, require: [resolved]}}
sources:
  alertmanagers: {{urls: ['http://alertmanager.gpu.example'], receiver: gpu-quarantine}}
  prometheus: {{query_url: 'http://prometheus.gpu.example'}}
policies:
  - {{name: gpu-lost, match: ['alertname=\"GpuLost\"'], action: isolate, release: {{require: [{gpu}]}}}}
  - {{name: node-failed, match: ['alertname=\"GpuNodeFailed\"'], action: isolate, release: {{require: [{node}]}}}}
guard: {{max_isolated: {{count: {}, percent: 0}}, pools: {{max_isolated: {{count: 100, percent: 100}}, min_healthy: 0}}, max_new_isolations: {{count: 1000}}}}
",
            self.room
        )
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:>6} {}", self.now, what());
        }
    }

    fn run(&mut self) -> Kept {
        for (wait, event) in &self.sequence.events {
            for _ in 0..*wait {
                self.second()?;
            }
            self.say(|| format!("* {event:?}"));
            self.happen(event)?;
        }
        self.mend();
        for _ in 0..CALM {
            self.second()?;
        }
        self.end()
    }

    fn kill(&mut self, secs: i64) {
        self.say(|| format!("the service dies for {secs} s"));
        self.process = None;
        self.in_flight = None;
        self.round = None;
        self.cluster.revive();
        self.outages.service = self.outages.service.max(self.now + secs);
    }

    /// The process is dead if it met the write at which it dies.
    fn bury(&mut self) {
        if self.cluster.is_dead() {
            self.kill(self.dies_for);
        }
    }

    fn look(&mut self) -> Kept {
        if !self.written.has_changed().unwrap_or_default() {
            return Ok(());
        }
        self.written.mark_unchanged();
        let nodes = self.cluster.inner.nodes_json();
        self.proofs.look(self.now, &nodes, &self.machines)?;
        self.promises.look(self.now, &nodes)
    }

    fn advance(&mut self) {
        self.now += 1;
        if let Some(process) = &self.process {
            process.is_now(self.now);
        }
    }

    fn second(&mut self) -> Kept {
        self.advance();
        self.outages_end();
        self.report();
        self.notify()?;
        self.service()?;
        self.pull()?;
        self.prove()?;
        let listed = self.listed();
        let hangs = self.process.as_ref().is_none_or(Process::hangs) || !self.pulls;
        self.promises.never_free(self.now, !hangs && self.cluster.is_calm(), &listed)
    }

    fn report(&mut self) {
        let now = self.now;
        let up = now >= self.outages.prometheus;
        self.machines.record(now, up);
        let (machines, gaps, rules) = (&self.machines, self.outages.gaps, self.wording.rules);
        let fires = |a: usize| machines.shows(a, now) && now >= gaps[a] && rules[rule_of(a)] != Rule::Deleted;
        let reports = self.prometheus.tick(now, up, fires, ALERTS);
        for report in reports {
            for (peer, until) in self.peers.iter_mut().zip(self.outages.unreported) {
                if now >= until {
                    peer.hear(report, now, &self.route);
                }
            }
        }
    }

    /// Alertmanager's flushes.
    fn notify(&mut self) -> Kept {
        let (now, route, mutes) = (self.now, self.route, self.mutes.clone());
        let mut peers = mem::take(&mut self.peers);
        let mut kept = Ok(());
        for (number, peer) in peers.iter_mut().enumerate() {
            peer.forget(now, &route);
            let silent = |alert: usize| mutes.iter().any(|m| m.mutes(alert, number, now));
            peer.tick(now, &route, silent, |snapshot| match self.deliver(number, snapshot) {
                Ok(sent) => sent,
                Err(broken) => {
                    kept = Err(broken);
                    Sent::Retry
                }
            });
        }
        self.peers = peers;
        kept
    }

    fn deliver(&mut self, peer: usize, snapshot: &Snapshot) -> Result<Sent, String> {
        let now = self.now;
        let Some(process) = self.process.as_ref().filter(|_| now >= self.outages.webhooks) else { return Ok(Sent::Retry) };
        let alerts: Vec<(usize, bool)> = snapshot.alerts.iter().map(|(a, _, fires)| (*a, *fires)).collect();
        self.promises.posted(now, &alerts);
        for (alert, _) in alerts.iter().filter(|(alert, _)| self.wording.query(*alert).is_some()) {
            self.proofs.query_sent(*alert);
        }
        let answer = process.post(self.wording.body(peer, snapshot));
        self.say(|| format!("am-{peer} sends {alerts:?} (truncated {}): {}", snapshot.truncated, shown(answer.as_ref())));
        let dead = self.cluster.is_dead();
        let sent = match answer {
            Some((200, answer)) if !dead => {
                let certain = now - self.hung > 60;
                self.promises.accepted(now, &alerts, &answer, &self.cluster.inner.nodes_json(), certain)?;
                self.taken(&alerts, certain)?;
                self.queries_told(alerts.iter().filter(|(_, fires)| *fires && certain).map(|(alert, _)| *alert))?;
                if snapshot.truncated > 0 {
                    self.next_pull = now;
                }
                if now < self.outages.answers { Sent::Retry } else { Sent::Accepted }
            }
            Some((200 | 503, _)) | None => Sent::Retry,
            Some((status, answer)) => return Err(format!("P1: {status} {answer}")),
        };
        self.look()?;
        self.bury();
        Ok(sent)
    }

    /// A body was taken.
    fn taken(&mut self, alerts: &[(usize, bool)], certain: bool) -> Kept {
        for (alert, _) in alerts.iter().filter(|(a, fires)| *fires && certain && !self.promises.is_ignored(node_of(*a))) {
            self.proofs.looked_for(*alert, self.now);
        }
        self.proofs.look(self.now, &self.cluster.inner.nodes_json(), &self.machines)
    }

    /// These alerts were taken as they are worded now.
    fn queries_told(&mut self, alerts: impl Iterator<Item = usize>) -> Kept {
        self.proofs.look(self.now, &self.cluster.inner.nodes_json(), &self.machines)?;
        for alert in alerts.filter(|a| self.wording.is_true(*a) && !self.promises.is_ignored(node_of(*a))) {
            self.proofs.true_query_told(alert);
        }
        Ok(())
    }

    /// Timers, and the process's start.
    fn service(&mut self) -> Kept {
        if self.process.is_none() && self.now >= self.outages.service {
            self.process = Process::start(Arc::clone(&self.cluster), &self.config(), self.now);
            self.promises.restarted();
            self.proofs.restarted();
            self.next_round = self.now;
            self.next_pull = self.now;
            self.say(|| "the service starts".to_owned());
        }
        let changed = self.changes.has_changed().unwrap_or_default();
        self.changes.mark_unchanged();
        if let Some(process) = &mut self.process {
            process.tick(self.now, changed);
        }
        self.after_work()
    }

    fn after_work(&mut self) -> Kept {
        if let Some(process) = &self.process {
            for step in process.steps() {
                self.say(|| format!("{} {}: {}", step.action, step.node, step.reason));
            }
        }
        self.look()?;
        self.bury();
        Ok(())
    }

    fn reached(&self, peer: usize) -> bool {
        self.now >= self.outages.unpulled[peer]
    }

    fn listed(&self) -> Vec<Listed> {
        union(self.now, &self.peers, |p| self.reached(p), &self.mutes)
    }

    fn pull(&mut self) -> Kept {
        if self.process.is_none() || !self.pulls {
            return Ok(());
        }
        if self.in_flight.is_none() && self.now >= self.next_pull {
            let (pull, listed) = pull(self.now, &self.peers, |p| self.reached(p), &self.mutes, self.wording);
            // When a silence ends, what it kept back is decided at once.
            let ends = listed.iter().flat_map(|l| self.mutes.iter().filter(|m| m.mutes(l.alert, 0, self.now)));
            let ends = ends.map(|m| m.until).min().unwrap_or(i64::MAX);
            self.next_pull = ends.min(self.now + POLL + self.now % (JITTER + 1));
            self.in_flight = Some((self.now, pull, listed));
        }
        if self.in_flight.as_ref().is_some_and(|(begun, ..)| self.now >= begun + self.sequence.pull_takes)
            && let Some((begun, pull, listed)) = self.in_flight.take()
        {
            self.hand_over(begun, pull, &listed)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, begun: i64, pull: Pull, listed: &[Listed]) -> Kept {
        let complete = pull.incomplete.is_none();
        let why = pull.incomplete.clone();
        let Some(process) = &mut self.process else { return Ok(()) };
        self.proofs.heard_all |= complete;
        for told in listed.iter().filter(|l| self.wording.query(l.alert).is_some()) {
            self.proofs.query_sent(told.alert);
        }
        let came = process.pull(pull);
        let dead = self.cluster.is_dead();
        let taken = !dead && came.as_ref().is_some_and(|came| came.failed == 0);
        let certain = self.now - self.hung > 60;
        if certain {
            self.promises.proves_no_more(self.now, begun, listed, complete, &self.cluster.inner.nodes_json())?;
        }
        let news = listed.iter().map(|l| l.alert).filter(|alert| self.promises.is_news(*alert, begun));
        let news: Vec<_> = news.filter(|_| taken && certain).collect();
        self.queries_told(news.into_iter())?;
        self.promises.pulled(self.now, begun, listed, complete, taken);
        let shown: Vec<_> = listed.iter().map(|l| (l.alert, l.muted.is_some())).collect();
        self.say(|| format!("pull of {begun} lists {shown:?}, incomplete: {why:?}: {came:?}"));
        self.after_work()
    }
}

fn shown(answer: Option<&(u16, Value)>) -> String {
    let Some((status, answer)) = answer else { return "no answer".to_owned() };
    let results = answer["results"].as_array().into_iter().flatten();
    let outcomes: Vec<_> = results.map(|r| r["outcome"].as_str().unwrap_or_default()).collect();
    format!("{status} {outcomes:?}")
}
