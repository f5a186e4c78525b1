//! What is told of pods, each in a state that the real engine brought it to on the embedded cluster.

use std::{collections::BTreeMap, sync::Arc};

use futures::FutureExt as _;
use jiff::SignedDuration;
use rstest::rstest;

use super::*;
use crate::{
    alert::parse_body,
    cli::nodes::{list::Listing, show::story},
    cluster::{Cluster as _, snapshot::SnapshotCluster},
    engine::{Clock, Engine, VirtualClock},
    locate::{NodeFacts, NodeName, PodName},
    metrics::Metrics,
    policy,
    quarantine::{
        Hand, Known, Ledger, Paused,
        eviction::{Came, EvictionAnswer, note_came},
        release_by_hand,
    },
};

const CONFIG: &str = include_str!("../../../../fixtures/eviction/config.yaml");
const CLUSTER: &str = include_str!("../../../../fixtures/eviction/cluster.yaml");
const LOST: &str = include_str!("../../../../fixtures/eviction/01-gpu-lost.json");
const FLAGS: &str = " --config.file gpu-quarantine.yaml";

/// The cluster of the fixtures, a while after a GPU of `gpu-1` was lost.
struct World {
    engine: Engine,
    cluster: Arc<SnapshotCluster>,
    clock: Arc<VirtualClock>,
}

impl World {
    async fn of(body: &str) -> Self {
        let config = policy::load("config.yaml", CONFIG).unwrap();
        let cluster = Arc::new(SnapshotCluster::load("cluster.yaml", CLUSTER, &config.domain).unwrap());
        let clock = Arc::new(VirtualClock::at("2026-11-29T10:00:00Z".parse().unwrap()));
        let engine = Engine::new(
            Arc::clone(&cluster) as Arc<dyn crate::cluster::Cluster>,
            config,
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::new(Metrics::new()),
            Box::new(drop),
        )
        .one_at_a_time();
        engine.refresh().await;
        engine.deliver(parse_body(body.as_bytes()).unwrap()).await;
        Self { engine, cluster, clock }
    }

    async fn lost() -> Self {
        Self::of(LOST).await
    }

    async fn pass(self, seconds: i64) -> Self {
        let until = self.clock.now() + SignedDuration::from_secs(seconds);
        while let Some(next) = self.engine.next_eviction().filter(|next| *next <= until) {
            self.clock.advance_to(next);
            self.engine.run_evictions().await;
        }
        self.clock.advance_to(until);
        self
    }

    fn facts(&self) -> NodeFacts {
        let name = NodeName::parse("gpu-1").unwrap();
        self.cluster.get(&name).now_or_never().unwrap().unwrap().unwrap()
    }

    fn view(&self) -> NodeView {
        NodeView::of(&self.facts(), &self.engine.config(), self.clock.now())
    }

    fn story(&self) -> String {
        story(&self.facts(), &self.engine.config(), Known::default(), self.clock.now(), FLAGS)
    }

    /// The lines about one pod.
    fn about(&self, pod: &str) -> String {
        let story = self.story();
        let lines = story.lines().skip_while(|line| !line.starts_with(&format!("  {pod}: ")));
        let (first, rest) = (lines.clone().take(1), lines.skip(1).take_while(|line| line.starts_with("    ")));
        first.chain(rest).fold(String::new(), |text, line| text + line + "\n")
    }

    /// Such an answer came about a pod that was just asked again.
    fn answered(self, pod: &str, answer: EvictionAnswer) -> Self {
        let view = self.view();
        let uid = view.eviction.iter().flat_map(|e| &e.pods).find(|p| p.pod.to_string() == pod).unwrap().uid.clone();
        let (facts, config) = (self.facts(), self.engine.config());
        let patch = note_came(&facts, &config, &[(uid, Came::Answered(answer))], None, self.clock.now()).unwrap().unwrap();
        self.cluster.patch(&facts.name, &patch).now_or_never().unwrap().unwrap();
        self
    }
}

const CHAT: &str = "team-b/chat-5d9c-x2x4t";

#[tokio::test]
async fn the_story_tells_of_each_pod_and_what_can_be_done_about_it() {
    let world = World::lost().await.pass(40).await;
    insta::assert_snapshot!("story", world.story());
}

#[tokio::test]
async fn the_list_says_how_many_are_still_to_leave() {
    let row = |world: &World| {
        let (config, ledger) = (world.engine.config(), Ledger::new("default"));
        let text = Listing::of(&[world.facts()], &config, &ledger, &BTreeMap::new(), &Paused::default(), world.clock.now())
            .text(false, &[]);
        text.lines().nth(1).unwrap().split_once(" to end").unwrap().1.to_owned()
    };
    let world = World::lost().await.pass(0).await;
    assert_eq!(row(&world), "; 2 pods are to leave");
    let world = world.pass(20).await;
    assert_eq!(row(&world), "; 1 pod is to leave, 1 cannot yet");
    let world = world.pass(600).await;
    assert_eq!(row(&world), "", "what stays for good is told in the story");
}

#[rstest]
#[case::two_budgets(
    EvictionAnswer::ManyBudgets { message: "HTTP 500: This pod has more than one PodDisruptionBudget".to_owned() },
    &["CANNOT YET", "Let only one PodDisruptionBudget match the pod", "kubectl -n team-b get poddisruptionbudgets"],
)]
#[case::a_budget_without_a_name(
    EvictionAnswer::Blocked { budget: None, message: "HTTP 429: Cannot evict pod".to_owned() },
    &["CANNOT YET", "once enough other pods", "kubectl -n team-b get poddisruptionbudgets"],
)]
#[case::forbidden(
    EvictionAnswer::Forbidden { message: "HTTP 403: forbidden; allow create on pods/eviction".to_owned() },
    &["CANNOT YET", "allow create on pods/eviction", "Give the service the right that is named there"],
)]
#[case::refused(
    EvictionAnswer::Refused { message: "HTTP 422: no".to_owned() },
    &["CANNOT YET", "HTTP 422: no", "See to what is named there", "kubectl -n team-b delete pod chat-5d9c-x2x4t"],
)]
#[tokio::test]
async fn each_refusal_comes_with_what_a_person_can_do(#[case] answer: EvictionAnswer, #[case] expected: &[&str]) {
    let text = World::lost().await.pass(20).await.answered(CHAT, answer).about(CHAT);
    for part in expected {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[tokio::test]
async fn what_needs_nobody_comes_without_advice() {
    let throttled = EvictionAnswer::Throttled { retry_after: None };
    let text = World::lost().await.pass(20).await.answered(CHAT, throttled).about(CHAT);
    assert!(text.contains("CANNOT YET") && text.contains("next") && !text.contains("    do "), "{text}");
    let text = World::lost().await.pass(20).await.about("team-a/llm-0");
    assert!(text.starts_with("  team-a/llm-0: is gone\n") && !text.contains("    do "), "{text}");
}

#[tokio::test]
async fn after_the_deadline_the_reason_and_the_way_past_it_are_told() {
    let text = World::lost().await.pass(600).await.about(CHAT);
    assert!(text.contains("STAYS") && text.contains("not gone within 5m: the PodDisruptionBudget chat"), "{text}");
    assert!(text.contains("kubectl -n team-b delete pod chat-5d9c-x2x4t"), "{text}");
}

#[tokio::test]
async fn where_nobody_knows_who_uses_the_gpu_it_is_said_what_would_tell() {
    let world = World::of(&LOST.replace(r#""gpu_scope": "node""#, r#""gpu_scope": "gpu""#)).await.pass(20).await;
    let text = world.about("team-a/llm-0");
    for part in ["nobody knows which pod uses the GPU", "exported_pod", "ResourceHealthStatus", "eviction.unknown_gpu: node"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[tokio::test]
async fn a_pod_that_came_back_comes_with_the_toleration_to_take_away() {
    let world = World::lost().await;
    let chat = PodName::try_from(CHAT.to_owned()).unwrap();
    let returned = |pod: &mut Value| {
        pod["metadata"]["creationTimestamp"] = "2026-11-29T10:00:05Z".into();
        pod["spec"]["tolerations"] = serde_json::json!([{"operator": "Exists"}]);
    };
    world.cluster.edit_pod(&chat, returned).unwrap();
    let text = world.pass(20).await.about(CHAT);
    let taint = "gpu-quarantine.dev/isolated=gpu-lost:NoSchedule off ReplicaSet team-b/chat-5d9c";
    for part in ["CAME BACK", taint, "operator Exists, no key"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[tokio::test]
async fn a_node_from_which_nobody_is_to_go_yet_says_so() {
    let world = World::lost().await;
    let story = world.story();
    assert!(story.contains("Pods that are asked to leave (0)\n  none is on record: none there has opted in"), "{story}");
    let isolated_only = World::of(&LOST.replace("GpuXidGpuLost", "GpuOther")).await;
    assert!(!isolated_only.story().contains("Pods that are asked to leave"));
}

#[tokio::test]
async fn the_evidence_is_that_of_the_present_episode_or_else_of_the_last_one() {
    let world = World::lost().await.pass(20).await;
    let name = "gpu-quarantine-evidence-gpu-1-1795946400";
    assert_eq!(document_of(&world.view()), Some(name));
    assert!(world.story().contains(&format!("ConfigMap gpu-quarantine/{name}; to read it:")), "{}", world.story());

    let hand = Hand { who: "alice", judgement: None, reason: None };
    let config = world.engine.config();
    let release = release_by_hand(&world.facts(), &config, &hand, world.clock.now()).unwrap().unwrap();
    world.cluster.patch(&world.facts().name, &release.patch).await.unwrap();
    let view = world.view();
    assert!(view.eviction.is_none());
    assert_eq!(document_of(&view), Some(name));
    assert!(world.story().contains(&format!("released by alice (evidence: ConfigMap {name})")), "{}", world.story());
}
