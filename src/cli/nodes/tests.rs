//! What the commands show of nodes in every state, each made by real decisions on the embedded cluster.

use std::{collections::BTreeMap, time::Duration};

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{list::Listing, release::announced, show::story};
use crate::{
    alert::{Alert, Fingerprint, Labels, Status},
    cluster::{Cluster as _, snapshot::SnapshotCluster},
    locate::{NodeFacts, NodeName, gpu_of},
    policy::{Config, load},
    quarantine::{
        Context, Hand, Heard, Judgement, Known, Ledger, Muster, NodeState, Paused, Room, Rule, Told, Word, decide,
        evidence::{ClaimShown, Finding, Shown, question},
        release_by_hand, say,
    },
};

const FLAGS: &str = " --config.file gpu-quarantine.yaml";
static EMPTY: Muster = Muster::new();
const ROOM: Room<'static> = Room::In(&EMPTY);
const NO_ROOM: Room<'static> = Room::Closed("guard.max_isolated: 3 of 3 nodes are isolated, number 1 in the queue");
const HAND: Hand<'_> = Hand { who: "alice", judgement: Some(Judgement::FalseAlarm), reason: Some("the rule is wrong") };

fn at(seconds: i64) -> Timestamp {
    "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// The default policies, behind one that requires evidence.
fn config() -> Config {
    let text = r#"
release: {after: 10m, require: [resolved]}
sources: {prometheus: {query_url: "http://prometheus.monitoring:9090"}}
policies:
- {name: proven, match: ['recovery=~".+"'], action: isolate, release: {require: [resolved, evidence]}}
- {name: isolate, match: ['remediation=~"isolate|evict"'], action: isolate}
- {name: freeze, match: ['remediation="freeze"'], action: freeze}
- {name: observe, match: ['remediation="observe"'], action: observe}
"#;
    load("config.yaml", text).unwrap()
}

/// A fault whose end must be shown.
fn memory(over: Option<i64>) -> Alert {
    let mut alert = alert("GpuRowRemapPending", 3, "isolate", over);
    alert.labels.insert("recovery", "reboot");
    alert.annotations.insert("recovery_query", r#"gpu:row_remap_pending:max{node="gpu-12"} == 0"#);
    alert
}

/// One alert about a GPU.
fn alert(name: &str, gpu: u8, remediation: &str, over: Option<i64>) -> Alert {
    let uuid = format!("GPU-{gpu:08x}-8a3e-5c1d-b7a1-000000000000");
    let labels: Labels = [("alertname", name), ("UUID", &uuid), ("remediation", remediation)].into_iter().collect();
    Alert {
        name: name.to_owned(),
        fingerprint: Fingerprint::of(&labels),
        labels,
        annotations: [("summary", "XID 79 on gpu-07"), ("runbook_url", "https://runbooks.example.com/gpu/xid-79")]
            .into_iter()
            .collect(),
        status: if over.is_some() { Status::Resolved } else { Status::Firing },
        starts_at: at(-30),
        ends_at: over.map(at),
    }
}

fn lost(over: Option<i64>) -> Alert {
    alert("GpuLost", 7, "isolate", over)
}

/// A node and what happened to it.
struct Story {
    cluster: SnapshotCluster,
    name: NodeName,
    config: Config,
    now: Timestamp,
    /// What Prometheus shows of it.
    shown: Option<Shown>,
}

impl Story {
    fn of(name: &str) -> Self {
        Self::with(name, &json!({}))
    }

    fn with(name: &str, spec: &Value) -> Self {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "spec": spec,
            "metadata": {"name": name, "uid": "u-1", "resourceVersion": "41", "labels": {"nvidia.com/gpu.present": "true"}},
            "status": {"nodeInfo": {"bootID": "b-1"}},
        });
        let cluster = SnapshotCluster::load("node.json", &node.to_string(), "gpu-quarantine.dev").unwrap();
        Self { cluster, name: NodeName::parse(name).unwrap(), config: config(), now: at(0), shown: None }
    }

    fn facts(&self) -> NodeFacts {
        self.cluster.get(&self.name).now_or_never().unwrap().unwrap().unwrap()
    }

    fn write(&self, patch: &Value) {
        self.cluster.patch(&self.name, patch).now_or_never().unwrap().unwrap();
    }

    fn hear(self, seconds: i64, alerts: &[Alert], muted: Option<&str>, room: Room<'static>) -> Self {
        let story = Self { now: at(seconds), ..self };
        let rule = |a: &Alert| story.config.policy_for(&a.labels).map(|p| (p.name.clone(), p.action));
        let rules: Vec<_> = alerts.iter().map(rule).collect();
        let heard: Vec<Heard<'_>> = alerts
            .iter()
            .zip(&rules)
            .map(|(alert, rule)| Heard {
                alert,
                gpu: gpu_of(&alert.labels, &story.config.locate),
                rule: rule.as_ref().map(|(policy, action)| Rule { policy, action: *action }),
                muted,
            })
            .collect();
        let ctx = Context { config: &story.config, room, now: story.now, told: Told::Pushed, known: Known::default() };
        if let Some(patch) = decide(&story.facts(), &heard, &ctx).patch {
            story.write(&patch);
        }
        story
    }

    /// A fault of its memory ended after a minute, and a reboot followed if so. That is what is shown of it after ten more.
    fn ended(self, reboot: bool, lasted: u64, now: Finding) -> Self {
        let mut story = self.hear(0, &[memory(None)], None, ROOM).hear(60, &[memory(Some(55))], None, ROOM);
        if reboot {
            story.cluster.edit(&story.name, |node| node["status"]["nodeInfo"]["bootID"] = "b-2".into()).unwrap();
            story = story.hear(90, &[], None, ROOM);
        }
        story.now = at(720);
        let asked = question(&story.facts(), &story.config, &[], story.now).unwrap().claims.remove(0);
        let claim = ClaimShown {
            alert: asked.alert,
            gpu: asked.gpu,
            since: asked.since,
            queries: asked.queries.len(),
            lasted: Duration::from_secs(lasted),
            now,
            replaced: false,
        };
        story.shown = Some(Shown { uid: story.facts().uid, at: at(705), claims: vec![claim], no_exporter: false });
        story
    }

    /// A fault that came back so often, each time after a release.
    fn often(self, times: i64) -> Self {
        let mut story = self;
        for n in 0..times {
            let begin = (n - times) * 3600;
            story = story.hear(begin, &[lost(None)], None, ROOM).hear(begin + 60, &[lost(Some(55))], None, ROOM);
            let hand = Hand { judgement: None, ..HAND };
            let release = release_by_hand(&story.facts(), &story.config, &hand, at(begin + 700)).unwrap().unwrap();
            story.write(&release.patch);
            story = story.hear(begin + 1800, &[], None, ROOM);
        }
        story.fires().hear(60, &[lost(Some(55))], None, ROOM)
    }

    fn fires(self) -> Self {
        self.hear(0, &[lost(None)], None, ROOM)
    }

    fn says(self, word: Word, text: &str) -> Self {
        self.write(&say(&self.facts(), &self.config, word, Some(text)).unwrap().unwrap());
        self
    }

    fn released(self, seconds: i64) -> Self {
        let story = Self { now: at(seconds), ..self };
        let release = release_by_hand(&story.facts(), &story.config, &HAND, story.now).unwrap().unwrap();
        story.write(&release.patch);
        story
    }

    fn story(&self) -> String {
        let known = Known { shown: self.shown.as_ref(), ..Known::default() };
        story(&self.facts(), &self.config, known, self.now, FLAGS)
    }

    fn announced(&self) -> String {
        let release = release_by_hand(&self.facts(), &self.config, &HAND, self.now).unwrap().unwrap();
        announced(&self.name, &release.offer).join("\n")
    }
}

fn orphan() -> Value {
    json!({"taints": [{"key": "gpu-quarantine.dev/isolated", "value": "gpu-lost", "effect": "NoSchedule"}]})
}

fn all() -> Vec<(&'static str, Story)> {
    let silenced = "silenced by bob until 2026-03-02T00:00:00Z: replacing the riser";
    vec![
        ("free", Story::of("gpu-01")),
        ("pending", Story::of("gpu-02").hear(0, &[lost(None)], None, NO_ROOM)),
        (
            "isolated",
            Story::with("gpu-03", &json!({"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}))
                .fires()
                .hear(5, &[alert("GpuXid", 2, "isolate", None)], None, ROOM),
        ),
        ("clearing", Story::of("gpu-04").fires().hear(60, &[lost(Some(55))], None, ROOM)),
        ("held", Story::of("gpu-05").fires().says(Word::Hold, "waits for a new riser (alice)")),
        ("silenced", Story::of("gpu-06").fires().hear(90, &[lost(None)], Some(silenced), ROOM)),
        ("ignored", Story::of("gpu-07").fires().says(Word::Ignore, "burn-in until Friday (alice)")),
        (
            "suspect",
            Story::of("gpu-12").ended(
                true,
                240,
                Finding::Nothing("the exporter has shown no GPU since 2026-03-01T12:05:00Z".to_owned()),
            ),
        ),
        ("still faulty", Story::of("gpu-13").ended(true, 0, Finding::Fault("its recovery_query returns nothing".to_owned()))),
        ("proving", Story::of("gpu-14").ended(true, 570, Finding::Gone)),
        ("waiting for a reboot", Story::of("gpu-15").ended(false, 600, Finding::Gone)),
        ("flapping", Story::of("gpu-16").often(4)),
        ("orphaned", Story::with("gpu-08", &orphan())),
        ("cordoned", Story::with("gpu-09", &json!({"unschedulable": true}))),
        ("cordoned and isolated", Story::with("gpu-10", &json!({"unschedulable": true})).fires()),
        ("released by hand", Story::of("gpu-11").fires().released(120)),
    ]
}

#[test]
fn each_node_is_listed_with_what_it_waits_for_and_those_that_are_not_free_first() {
    let config = config();
    let stories = all();
    let mut nodes: Vec<NodeFacts> = stories.iter().map(|(_, story)| story.facts()).collect();
    let shown = stories.iter().filter_map(|(_, story)| Some((story.name.clone(), story.shown.clone()?))).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let listing = Listing::of(&nodes, &config, &Ledger::new("default"), &shown, &Paused::default(), at(720));
    insta::assert_snapshot!("list", listing.text(false, &[]));
    insta::assert_snapshot!("list_all", listing.text(true, &[]));
    insta::assert_snapshot!("list_state", listing.text(false, &[NodeState::Held, NodeState::Ignored]));
}

#[test]
fn a_list_of_nothing_says_what_that_means() {
    let config = config();
    let free = [Story::of("gpu-01").facts()];
    insta::assert_snapshot!(Listing::of(&free, &config, &Ledger::new("default"), &BTreeMap::new(), &Paused::default(), at(0)).text(false, &[]), @r"
    1 node: 1 free. guard.max_isolated lets 3 be isolated, 0 are.
    Nothing is isolated and nothing waits. --all lists the free nodes as well.
    ");
    insta::assert_snapshot!(Listing::of(&free, &config, &Ledger::new("default"), &BTreeMap::new(), &Paused::default(), at(0)).text(false, &[NodeState::Held]), @r"
    1 node: 1 free. guard.max_isolated lets 3 be isolated, 0 are.
    None is in the state that --state asks for.
    ");
    insta::assert_snapshot!(Listing::of(&[], &config, &Ledger::new("default"), &BTreeMap::new(), &Paused::default(), at(0)).text(true, &[]), @r"
    No node is in scope: of the 0 in the cluster none matches scope.nodes nvidia.com/gpu.present=true, or all are excluded.
    Compare with `kubectl get nodes --show-labels`, and check that this is the right cluster.
    ");
}

#[test]
fn the_story_of_a_node_is_told_in_every_state() {
    for (state, story) in all() {
        insta::assert_snapshot!(format!("show_{}", state.replace(' ', "_")), story.story());
    }
}

#[test]
fn a_release_says_beforehand_what_it_removes_and_what_still_fires() {
    let shown: Vec<String> = all()
        .iter()
        .filter(|(state, _)| ["pending", "isolated", "clearing", "held", "silenced", "orphaned"].contains(state))
        .map(|(state, story)| format!("{state}\n{}\n", story.announced()))
        .collect();
    insta::assert_snapshot!("announced", shown.join("\n"));
}

#[test]
fn what_an_alert_carries_does_not_steer_a_terminal() {
    let mut alert = lost(None);
    alert.annotations = [("summary", "\u{1b}[2Jgone\nand gone")].into_iter().collect();
    let story = Story::of("gpu-01").hear(0, &[alert], None, ROOM);
    let text = story.story();
    assert!(text.contains("\u{fffd}[2Jgone\u{fffd}and gone"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}
