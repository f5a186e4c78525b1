//! One isolated node, its record, and the pods on it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    locate::{Gpu, NodeFacts, NodeName, PodFacts, PodName, Taint},
    policy::{self, Config},
    quarantine::{
        Claim,
        eviction::{
            Act, Came, Evictee, EvicteeState, EvictionAnswer, Framework, Gang, Look, Loss, Plan, Resident, Restart, gang,
            note_came, note_plan, plan,
        },
        record::Record,
    },
};

pub(super) const GPU: &str = "GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000000";
pub(super) const OTHER_GPU: &str = "GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000001";

/// A second after the isolation.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_772_366_400).unwrap() + SignedDuration::from_secs(second)
}

/// No pod.
pub(super) const NOBODY: [&str; 0] = [];

/// A budget refuses.
pub(super) fn blocked(budget: &str) -> EvictionAnswer {
    EvictionAnswer::Blocked { budget: Some(budget.to_owned()), message: "no".to_owned() }
}

/// A configuration with these lines below `eviction` and one policy that evicts.
pub(super) fn config(eviction: &str) -> Config {
    let text = format!(
        "release: {{require: [resolved]}}\neviction: {{settle: 5s, deadline: 10m, unknown_gpu: refuse, {eviction}}}\npolicies:\n\
         - {{name: gpu-lost, match: ['alertname=\"GpuLost\"'], action: evict}}\n"
    );
    policy::load("test.yaml", &text).unwrap_or_else(|e| panic!("{e}"))
}

/// A claim that fires and whose policy evicts.
pub(super) fn claim(gpu: Option<&str>, scope: &str) -> Value {
    json!({
        "alert": "GpuLost", "gpu": gpu, "policy": "gpu-lost", "action": "evict", "state": "firing", "since": at(0), "scope": scope,
        "fault": "memory-uncontained", "members": [{ "fp": "17ca147fb85cd638", "startsAt": at(0) }],
    })
}

/// The node, its pods, and a clock.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) config: Config,
    pub(super) node: NodeFacts,
    pub(super) here: Vec<Resident>,
    pub(super) elsewhere: Vec<Resident>,
    pub(super) restarts: Vec<Restart>,
    pub(super) called: BTreeMap<String, String>,
    pub(super) going: BTreeMap<String, u64>,
    pub(super) paused: Option<String>,
    pub(super) now: Timestamp,
}

impl World {
    /// A node that was isolated at second 0, with a claim on the node as a whole, a minute later.
    pub(super) fn new(eviction: &str) -> Self {
        Self::with_claims(eviction, &[claim(None, "node")])
    }

    pub(super) fn with_claims(eviction: &str, claims: &[Value]) -> Self {
        let taint = Taint {
            key: "gpu-quarantine.dev/isolated".to_owned(),
            value: Some("gpu-lost".to_owned()),
            effect: "NoSchedule".to_owned(),
            other: BTreeMap::new(),
        };
        let record = json!({
            "v": 1, "owner": "default", "node": { "uid": "uid-1" }, "claims": claims,
            "added": { "taint": taint, "cordon": false, "at": at(0) }, "before": { "unschedulable": false },
        });
        let node = NodeFacts {
            uid: "uid-1".to_owned(),
            resource_version: "7".to_owned(),
            labels: BTreeMap::from([("nvidia.com/gpu.present".to_owned(), "true".to_owned())]),
            annotations: BTreeMap::from([("gpu-quarantine.dev/record".to_owned(), record.to_string())]),
            taints: vec![taint],
            gpus: Some(8),
            whole_gpus: Some(8),
            ..NodeFacts::bare("gpu-1")
        };
        Self {
            config: config(eviction),
            node,
            here: Vec::new(),
            elsewhere: Vec::new(),
            restarts: Vec::new(),
            called: BTreeMap::new(),
            going: BTreeMap::new(),
            paused: None,
            now: at(60),
        }
    }

    pub(super) fn with(mut self, pod: Resident) -> Self {
        self.here.push(pod);
        self
    }

    pub(super) fn record(&self) -> Record {
        serde_json::from_str(&self.node.annotations["gpu-quarantine.dev/record"]).unwrap()
    }

    /// The text of the record with these claims.
    pub(super) fn record_with(&self, claims: &[Claim]) -> String {
        Record { claims: claims.to_vec(), ..self.record() }.to_text()
    }

    pub(super) fn set_claims(&mut self, claims: &[Claim]) {
        let text = self.record_with(claims);
        self.node.annotations.insert("gpu-quarantine.dev/record".to_owned(), text);
    }

    pub(super) fn look(&self) -> Look<'_> {
        Look {
            here: &self.here,
            elsewhere: &self.elsewhere,
            restarts: &self.restarts,
            going: &self.going,
            paused: self.paused.as_deref(),
            called: &self.called,
            config: &self.config,
            now: self.now,
        }
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.node, &self.look())
    }

    fn write(&mut self, patch: Option<Value>) {
        let Some(patch) = patch else { return };
        let text = patch["metadata"]["annotations"]["gpu-quarantine.dev/record"].as_str().unwrap();
        self.node.annotations.insert("gpu-quarantine.dev/record".to_owned(), text.to_owned());
    }

    /// Plan, and put the plan on record, as the engine does before it acts. Who is asked to leave now.
    pub(super) fn begin(&mut self) -> Vec<String> {
        let plan = self.plan();
        if let Some(evicting) = &plan.record {
            let patch = note_plan(&self.node, &self.config, evicting, &plan.restarted, self.now).unwrap();
            self.write(patch);
        }
        self.restarts = self.record().restarts;
        let name = |act: &Act| match act {
            Act::Evict { pod, .. } => pod.name().to_owned(),
            Act::Delete { pod, .. } => format!("delete {}", pod.name()),
            Act::Checkpoint { pod, .. } => format!("call {}", pod.name()),
        };
        plan.acts.iter().map(name).collect()
    }

    /// Plan, act, and put the same answer to every pod on record. One that is accepted terminates. Who was asked.
    pub(super) fn step(&mut self, answer: &EvictionAnswer) -> Vec<String> {
        let asked = self.begin();
        let uids: Vec<String> = asked.iter().map(|name| format!("uid of {}", name.trim_start_matches("delete "))).collect();
        let came: Vec<(String, Came)> = uids.iter().map(|uid| (uid.clone(), Came::Answered(answer.clone()))).collect();
        let patch = note_came(&self.node, &self.config, &came, None, self.now).unwrap();
        self.write(patch);
        if *answer == EvictionAnswer::Accepted {
            let now = self.now;
            self.here.iter_mut().chain(&mut self.elsewhere).filter(|r| uids.contains(&r.pod.uid)).for_each(|r| {
                r.pod.deleted = Some(now);
            });
        }
        if *answer == EvictionAnswer::Gone {
            self.here.retain(|r| !uids.contains(&r.pod.uid));
            self.elsewhere.retain(|r| !uids.contains(&r.pod.uid));
        }
        asked
    }

    /// Let time pass.
    pub(super) fn pass(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self
    }

    /// Those that terminate are gone.
    pub(super) fn finalise(&mut self) {
        self.here.retain(|r| r.pod.deleted.is_none());
        self.elsewhere.retain(|r| r.pod.deleted.is_none());
    }

    /// What stands on record about a pod.
    pub(super) fn of(&self, name: &str) -> Evictee {
        let record = self.record();
        let pods = record.eviction.map(|e| e.pods).unwrap_or_default();
        pods.iter().find(|p| p.pod.name() == name).unwrap_or_else(|| panic!("{name} is not on record: {pods:?}")).clone()
    }

    pub(super) fn state(&self, name: &str) -> EvicteeState {
        self.of(name).state
    }

    pub(super) fn why(&self, name: &str) -> String {
        self.of(name).why.unwrap_or_default()
    }
}

/// A pod on the node that opted in and uses a GPU, of a Job of its own.
pub(super) fn pod(name: &str) -> Resident {
    let controller = format!("batch/v1 Job {name}");
    let pod = PodFacts {
        name: PodName::new("team-a", name).unwrap(),
        uid: format!("uid of {name}"),
        node: Some(NodeName::parse("gpu-1").unwrap()),
        created: Some(at(-3600)),
        ..gang::tests::pod(Some(&controller), &[("gpu-quarantine.dev/evict", "true")])
    };
    Resident {
        pod,
        gang: gang_of(&format!("Job team-a/{name}"), Framework::Job, Loss::Each),
        kinds: vec!["Job".to_owned()],
        unread: None,
    }
}

pub(super) fn gang_of(key: &str, framework: Framework, loss: Loss) -> Gang {
    Gang { key: key.to_owned(), framework, loss, spare: None, members: None, unread: false, pinned: false }
}

impl Resident {
    /// In this group.
    pub(super) fn of(mut self, key: &str, framework: Framework, loss: Loss) -> Self {
        self.gang = gang_of(key, framework, loss);
        self
    }

    pub(super) fn change(mut self, change: impl FnOnce(&mut PodFacts)) -> Self {
        change(&mut self.pod);
        self
    }

    pub(super) fn annotated(self, name: &str, value: &str) -> Self {
        self.change(|pod| drop(pod.annotations.insert(format!("gpu-quarantine.dev/{name}"), value.to_owned())))
    }

    pub(super) fn using(self, gpus: &[&str]) -> Self {
        self.change(|pod| pod.devices = Some(gpus.iter().map(|gpu| Gpu::parse(gpu).unwrap()).collect()))
    }
}
