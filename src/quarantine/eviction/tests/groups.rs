//! Groups are one action, and their checkpoints come first.

use std::time::Duration;

use rstest::rstest;

use super::world::{NOBODY, World, at, blocked, pod};
use crate::{
    locate::NodeName,
    quarantine::eviction::{Act, Call, EvicteeState, EvictionAnswer, Framework, Loss, Resident, Restart},
};

fn in_jobset(name: &str) -> Resident {
    pod(name).of("JobSet team-a/llm", Framework::JobSet, Loss::Whole)
}

#[test]
fn of_a_group_that_restarts_as_a_whole_one_is_asked_and_the_others_if_it_does_not() {
    let mut world = World::new("").with(in_jobset("a")).with(in_jobset("b"));
    assert_eq!(world.step(&EvictionAnswer::Accepted), ["a"]);
    assert_eq!(world.state("b"), EvicteeState::Waiting);
    world.finalise();
    world.pass(59);
    assert_eq!(world.begin(), NOBODY);
    world.pass(60);
    assert_eq!(world.begin(), ["b"]);
    assert_eq!(world.record().restarts.len(), 1, "it is one restart");
}

#[test]
fn of_a_group_of_which_all_must_go_those_elsewhere_go_too_if_they_opted_in() {
    let member = |name: &str| pod(name).of("PyTorchJob team-a/llm", Framework::TrainingJob, Loss::All);
    let elsewhere = |name: &str| member(name).change(|p| p.node = NodeName::parse("gpu-2").ok());
    let mut world = World::new("").with(member("a")).with(pod("x"));
    world.elsewhere = vec![elsewhere("b"), elsewhere("c").change(|p| p.labels.clear())];
    assert_eq!(world.step(&EvictionAnswer::Accepted), ["x", "a", "b"]);
    assert_eq!(world.record().restarts.len(), 2);
}

/// Two ranks of one `PyTorchJob`, the second on another node.
fn two_ranks() -> World {
    let member = |name: &str| pod(name).of("PyTorchJob team-a/llm", Framework::TrainingJob, Loss::All);
    let mut world = World::new("").with(member("a"));
    world.elsewhere = vec![member("b").change(|p| p.node = NodeName::parse("gpu-2").ok())];
    world
}

#[test]
fn the_successors_of_those_elsewhere_are_left_however_long_the_first_terminates() {
    let mut world = two_ranks();
    assert_eq!(world.step(&EvictionAnswer::Accepted), ["a", "b"]);
    for number in 0..5 {
        world.pass(10);
        // The one here hangs; the one elsewhere is made again.
        let mut again = world.elsewhere[0].clone();
        (again.pod.uid, again.pod.deleted, again.pod.created) = (format!("uid of b{number}"), None, Some(world.now));
        world.elsewhere = vec![again];
        assert_eq!(world.begin(), NOBODY, "{number}");
    }
}

#[test]
fn the_successors_of_those_elsewhere_are_left_while_the_first_is_still_to_go() {
    let mut world = two_ranks();
    assert_eq!(world.begin(), ["a", "b"]);
    // The one here stands behind a budget; the one elsewhere left at once and is made again.
    let mut again = world.elsewhere[0].clone();
    (again.pod.uid, again.pod.created) = ("uid of b2".to_owned(), Some(at(61)));
    world.elsewhere = vec![again];
    world.pass(5);
    assert_eq!(world.begin(), ["a"]);
}

#[test]
fn those_elsewhere_follow_even_if_the_one_here_is_gone_first() {
    let mut world = two_ranks();
    assert_eq!(world.begin(), ["a", "b"]);
    // The process died after the first: it is gone, and the other is looked up by its name.
    world.here.clear();
    assert_eq!(world.begin(), ["b"]);
}

#[test]
fn a_finished_member_does_not_starve_its_group() {
    let mut world = World::new("").with(in_jobset("a")).with(in_jobset("b"));
    for _ in 0..14 {
        world.step(&blocked("x"));
        world.pass(60);
    }
    assert_eq!(world.state("a"), EvicteeState::Left);
    assert_eq!(world.step(&EvictionAnswer::Accepted), ["b"]);
}

#[test]
fn a_pause_begins_nothing_and_ends_nothing() {
    let mut world = World::new("").with(pod("p"));
    world.paused = Some("by ann: migration".to_owned());
    assert_eq!(world.begin(), NOBODY);
    assert_eq!(world.why("p"), "nothing new is begun: by ann: migration");
    world.paused = None;
    assert_eq!(world.step(&blocked("x")), ["p"]);
    world.paused = Some("by ann: migration".to_owned());
    world.pass(10);
    assert_eq!(world.begin(), ["p"]);
}

#[test]
fn time_in_which_nobody_may_ask_does_not_count_towards_the_deadline() {
    let hold = "gpu-quarantine.dev/hold".to_owned();
    let mut world = World::new("on_deadline: delete").with(pod("p"));
    world.step(&blocked("chat"));
    world.node.annotations.insert(hold.clone(), "mine".into());
    world.pass(10);
    assert_eq!(world.begin(), NOBODY);
    world.pass(3600);
    world.node.annotations.remove(&hold);
    assert_eq!(world.step(&blocked("chat")), ["p"], "asked, not deleted");
    // Nobody was here: the pod is asked once more before anything else.
    world.pass(3600);
    assert_eq!(world.step(&blocked("chat")), ["p"]);
    world.pass(60);
    assert_eq!(world.begin(), ["delete p"]);
}

#[test]
fn a_pod_that_does_not_end_is_told_of_once_and_looked_at_more_rarely() {
    let mut world = World::new("").with(pod("p"));
    world.step(&EvictionAnswer::Accepted);
    world.pass(10);
    assert_eq!(world.plan().next, Some(world.now + jiff::SignedDuration::from_secs(2)));
    world.pass(60);
    let plan = world.plan();
    assert_eq!((plan.news.len(), plan.next), (1, Some(world.now + jiff::SignedDuration::from_secs(30))));
    world.begin();
    assert!(world.why("p").starts_with("it should have ended at"), "{}", world.why("p"));
    assert!(world.plan().record.is_none() && world.plan().news.is_empty());
}

#[test]
fn what_terminates_on_other_nodes_counts_against_what_a_group_bears() {
    let mut resident = pod("a").of("Job team-a/many", Framework::Job, Loss::Each);
    resident.gang.spare = Some(1);
    let mut world = World::new("").with(resident);
    world.going.insert("Job team-a/many".to_owned(), 1);
    assert_eq!(world.begin(), NOBODY);
    world.going.clear();
    assert_eq!(world.begin(), ["a"]);
}

#[test]
fn a_group_that_restarts_because_of_another_node_is_left_to_it() {
    let mut world = World::new("").with(in_jobset("a"));
    let restart = Restart::of("JobSet team-a/llm", true, at(50));
    world.restarts = vec![restart];
    assert_eq!(world.begin(), NOBODY);
    world.now = at(110);
    assert_eq!(world.begin(), ["a"]);
}

#[test]
fn all_ranks_write_their_checkpoints_before_the_first_is_asked() {
    let mut world = World::new("checkpoint: 2m").with(in_jobset("a")).with(in_jobset("b").annotated("checkpoint", "8080/save"));
    assert_eq!(world.begin(), ["call b"]);
    world.pass(5);
    world.called.insert("uid of b".to_owned(), "HTTP 200".to_owned());
    assert_eq!(world.begin(), ["a"]);
}

#[test]
fn a_group_that_would_fail_for_good_is_left_and_its_other_pods_go() {
    let head = pod("head").of("RayCluster team-a/r", Framework::RayCluster, Loss::Fails("its head is lost".into()));
    let worker = pod("worker").of("RayCluster team-a/r", Framework::RayCluster, Loss::Each);
    let mut world = World::new("").with(head).with(worker);
    assert_eq!(world.begin(), ["worker"]);
    assert_eq!(world.state("head"), EvicteeState::Left);
    assert_eq!(world.why("head"), "RayCluster team-a/r would fail for good: its head is lost");
    assert!(world.plan().news.is_empty(), "it is told once");
}

#[test]
fn a_group_loses_no_more_pods_than_it_bears() {
    let member = |name: &str| {
        let mut resident = pod(name).of("Job team-a/many", Framework::Job, Loss::Each);
        resident.gang.spare = Some(2);
        resident
    };
    let mut world = World::new("").with(member("a")).with(member("b")).with(member("c"));
    assert_eq!(world.step(&EvictionAnswer::Accepted), ["a", "b"]);
    assert_eq!(world.why("c"), "Job team-a/many bears no more losses now and would fail for good");
    assert_eq!(world.begin(), NOBODY, "what terminates is not counted by its framework yet");
}

#[test]
fn a_group_is_restarted_only_so_often_within_an_hour() {
    let mut world = World::new("max_restarts_per_hour: 2").with(pod("p"));
    let restart = |second| Restart::of("Job team-a/p", false, at(second));
    world.restarts = vec![restart(-3000), restart(-60)];
    assert_eq!(world.plan().acts, []);
    assert_eq!(world.plan().next, Some(at(90)), "looked at again as usual");
    world.now = at(600);
    let plan = world.plan();
    assert_eq!(plan.acts.len(), 1, "the older one is an hour ago: {plan:?}");
}

#[test]
fn lower_priority_goes_first_and_batch_before_inference() {
    let serving = |name: &str, priority| {
        pod(name).of(&format!("Deployment team-a/{name}"), Framework::Replicas, Loss::Each).change(|p| p.priority = priority)
    };
    let batch = |name: &str, priority| pod(name).change(|p| p.priority = priority);
    let all = || [serving("s-low", 0), serving("s-high", 10), batch("b-low", 0), batch("b-high", 10)];
    let order = |text: &str| all().into_iter().fold(World::new(text), World::with).begin();
    assert_eq!(order(""), ["b-low", "s-low", "b-high", "s-high"]);
    assert_eq!(order("order: [batch, priority]"), ["b-low", "b-high", "s-low", "s-high"]);
    assert_eq!(order("order: []"), ["s-high", "s-low", "b-high", "b-low"], "by the names of the groups");
}

#[test]
fn a_pod_that_asks_to_be_called_is_called_once_and_goes_when_it_answered() {
    let mut world = World::new("checkpoint: 2m").with(pod("p").annotated("checkpoint", "8080/save"));
    let plan = world.plan();
    let call = Call { port: 8080, path: "/save".to_owned() };
    let [Act::Checkpoint { call: asked, within, .. }] = &plan.acts[..] else { panic!("{plan:?}") };
    assert_eq!((asked, *within), (&call, Duration::from_secs(120)));
    assert_eq!(world.begin(), ["call p"]);
    assert_eq!(world.state("p"), EvicteeState::Checkpoint);
    world.pass(30);
    world.called.insert("uid of p".to_owned(), "HTTP 200 after 28s from POST http://10.0.0.1:8080/save".to_owned());
    assert_eq!(world.begin(), ["p"]);
    assert_eq!(world.of("p").checkpoint.unwrap(), "HTTP 200 after 28s from POST http://10.0.0.1:8080/save");
}

#[rstest]
#[case::nothing_comes(None, 120, "none came within 2m")]
#[case::an_older_one(Some(-5), 120, "none came within 2m")]
#[case::a_newer_one(Some(30), 0, "written at 2026-03-01T12:00:30Z")]
fn a_checkpoint_that_the_workload_writes_by_itself_is_waited_for(
    #[case] written: Option<i64>,
    #[case] after: i64,
    #[case] came: &str,
) {
    let text = written.map_or("soon".to_owned(), |second| at(second).to_string());
    let mut world = World::new("checkpoint: 2m").with(pod("p").annotated("checkpointed-at", &text));
    if after > 0 {
        assert_eq!(world.begin(), NOBODY);
        world.pass(after - 1);
        assert_eq!(world.begin(), NOBODY);
        world.pass(1);
    }
    assert_eq!(world.begin(), ["p"]);
    assert_eq!(world.of("p").checkpoint.unwrap(), came);
}

#[rstest]
#[case::no_progress_is_possible(
    "no_progress: [memory-uncontained]",
    "8080/save",
    "not waited for: no progress is possible with memory-uncontained"
)]
#[case::the_policy_gives_none("checkpoint: 0s", "8080/save", "not waited for: the policy gives no time")]
#[case::malformed("", "http://x", "not asked for: the annotation \"http://x\" is not <port>/<path>")]
fn no_time_is_lost_where_no_checkpoint_can_come(#[case] eviction: &str, #[case] annotation: &str, #[case] came: &str) {
    let mut world = World::new(eviction).with(pod("p").annotated("checkpoint", annotation));
    assert_eq!(world.begin(), ["p"]);
    assert_eq!(world.of("p").checkpoint.unwrap(), came);
}

#[test]
fn only_so_many_groups_restart_as_a_whole_within_the_window_and_single_pods_go_on() {
    let whole = |name: &str| pod(name).of(&format!("JobSet team-a/{name}"), Framework::JobSet, Loss::Whole);
    let mut world = World::new("").with(whole("a")).with(whole("b")).with(whole("c")).with(pod("single"));
    let before = |second| Restart::of("JobSet team-b/elsewhere", true, at(second));
    // Five may be within ten minutes, and four were; one that lost a single pod does not count.
    let other_nodes = [before(-500), before(-400), before(-30), before(-20), Restart::of("Job team-b/x", false, at(0))];
    let all = |world: &World| other_nodes.iter().cloned().chain(world.record().restarts).collect();
    world.restarts = all(&world);
    assert_eq!(world.step(&EvictionAnswer::Accepted), ["single", "a"]);
    let why = format!("guard.max_evicted_gangs: 5 groups were restarted as a whole within 10m: not before {}", at(100));
    assert_eq!([world.why("b"), world.why("c")], [why.as_str(), why.as_str()]);
    assert_eq!(world.state("b"), EvicteeState::Waiting);
    let restarted: Vec<(String, bool)> = world.record().restarts.into_iter().map(|r| (r.group, r.whole)).collect();
    assert_eq!(restarted, [("Job team-a/single".to_owned(), false), ("JobSet team-a/a".to_owned(), true)]);
    world.finalise();
    world.now = at(99);
    world.restarts = all(&world);
    assert_eq!(world.plan().acts, []);
    assert_eq!(world.plan().next, Some(at(100)), "it is looked at when there is room");
    world.now = at(100);
    assert_eq!(world.begin(), ["b"]);
}

#[test]
fn a_group_of_which_any_pod_restarts_it_as_a_whole_is_one_that_does() {
    let part = |name: &str, loss| pod(name).of("JobSet team-a/llm", Framework::JobSet, loss);
    let mut world = World::new("").with(part("a", Loss::Each)).with(part("b", Loss::Whole));
    let before = |second| Restart::of("JobSet team-b/elsewhere", true, at(second));
    world.restarts = (1..=5).map(|n| before(-n)).collect();
    assert_eq!(world.begin(), NOBODY);
    assert!(world.why("a").starts_with("guard.max_evicted_gangs: 5 groups"), "{}", world.why("a"));
    world.restarts.clear();
    world.begin();
    assert!(world.record().restarts[0].whole);
}
