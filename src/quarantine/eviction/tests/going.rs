//! When and how they go.

use std::collections::BTreeSet;

use rstest::rstest;

use super::world::{NOBODY, World, at, blocked, claim, pod};
use crate::{
    locate::NodeName,
    quarantine::eviction::{EvicteeState, EvictionAnswer, Framework, Loss, MAX_PODS, Resident, still},
};

#[test]
fn nobody_is_asked_before_the_isolation_has_settled() {
    let mut world = World::new("").with(pod("p"));
    world.now = at(4);
    assert_eq!(world.begin(), NOBODY);
    assert_eq!(world.plan().next, Some(at(5)));
    world.now = at(5);
    assert_eq!(world.begin(), ["p"]);
    assert_eq!(world.state("p"), EvicteeState::Asking);
}

type Change = fn(&mut World);

fn edit_record(world: &mut World, path: &str, value: serde_json::Value) {
    let name = "gpu-quarantine.dev/record".to_owned();
    let mut record: serde_json::Value = serde_json::from_str(&world.node.annotations[&name]).unwrap();
    *record.pointer_mut(path).unwrap() = value;
    world.node.annotations.insert(name, record.to_string());
}

#[rstest]
#[case::the_taint_is_gone(|w: &mut World| w.node.taints.clear(), "the taint does not stand on the node")]
#[case::held(|w: &mut World| drop(w.node.annotations.insert("gpu-quarantine.dev/hold".into(), "mine".into())), "a person holds the node: mine")]
#[case::ignored(|w: &mut World| drop(w.node.annotations.insert("gpu-quarantine.dev/ignore".into(), "x".into())), "a person said that nothing is done to the node: x")]
#[case::released(|w: &mut World| edit_record(w, "/added", serde_json::Value::Null), "the node is not isolated")]
#[case::over(|w: &mut World| edit_record(w, "/claims/0/members/0/startsAt", serde_json::json!(at(0))), "")]
#[case::cleared(|w: &mut World| edit_record(w, "/claims/0/state", "cleared".into()), "no claim that evicts fires, or all are silenced")]
#[case::only_isolating(|w: &mut World| edit_record(w, "/claims/0/action", "isolate".into()), "no claim that evicts fires, or all are silenced")]
#[case::out_of_scope(|w: &mut World| w.node.labels.clear(), "the node is out of scope")]
#[case::another_node(|w: &mut World| w.node.uid = "uid-2".into(), "it has no record of ours")]
fn what_ends_an_eviction_puts_off_who_was_about_to_go(#[case] change: Change, #[case] why: &str) {
    let mut world = World::new("").with(pod("p"));
    world.step(&blocked("b"));
    world.pass(60);
    change(&mut world);
    let expect = if why.is_empty() { vec!["p"] } else { Vec::new() };
    assert_eq!(world.begin(), expect);
    if let Some(eviction) = world.record().eviction.filter(|_| !why.is_empty() && world.node.uid == "uid-1") {
        assert_eq!(eviction.pods[0].why.as_deref(), Some(format!("not now: {why}").as_str()));
    }
}

#[test]
fn a_silence_puts_it_off_as_well() {
    let mut claim = claim(None, "node");
    claim["members"][0]["muted"] = true.into();
    let mut world = World::with_claims("", &[claim]).with(pod("p"));
    assert_eq!(world.begin(), NOBODY);
    assert_eq!(world.plan().next, None, "a change of the record wakes it");
}

/// Just before it is asked, everything is looked at again.
#[rstest]
#[case::as_before(|_: &mut World, _: &mut Resident| {}, true)]
#[case::held(|w: &mut World, _: &mut Resident| drop(w.node.annotations.insert("gpu-quarantine.dev/hold".into(), "x".into())), false)]
#[case::opted_out(|_: &mut World, r: &mut Resident| r.pod.labels.clear(), false)]
#[case::finished(|_: &mut World, r: &mut Resident| r.pod.phase = crate::locate::PodPhase::Failed, false)]
#[case::moved(|_: &mut World, r: &mut Resident| r.pod.node = NodeName::parse("gpu-2").ok(), false)]
#[case::another(|_: &mut World, r: &mut Resident| r.pod.uid = "another".into(), false)]
fn one_that_changed_meanwhile_is_not_asked(#[case] change: fn(&mut World, &mut Resident), #[case] want: bool) {
    let mut world = World::new("").with(pod("p"));
    world.begin();
    let mut resident = world.here[0].clone();
    change(&mut world, &mut resident);
    assert_eq!(still(&world.node, &resident, &world.here, &world.config).is_ok(), want);
}

#[rstest]
#[case::accepted(EvictionAnswer::Accepted, EvicteeState::Leaving, "")]
#[case::gone(EvictionAnswer::Gone, EvicteeState::Gone, "")]
#[case::another(EvictionAnswer::AnotherPod, EvicteeState::Gone, "another pod has its name now")]
#[case::budget(blocked("chat"), EvicteeState::Blocked, "the PodDisruptionBudget chat allows no disruption now")]
#[case::two(EvictionAnswer::ManyBudgets { message: "m".into() }, EvicteeState::Blocked, "more than one PodDisruptionBudget matches it, so nobody can evict it: m")]
#[case::throttled(EvictionAnswer::Throttled { retry_after: None }, EvicteeState::Blocked, "the API server has no room for it now (priority and fairness)")]
#[case::forbidden(EvictionAnswer::Forbidden { message: "m".into() }, EvicteeState::Blocked, "the API server forbids it: m")]
#[case::refused(EvictionAnswer::Refused { message: "m".into() }, EvicteeState::Blocked, "the API server refuses it: m")]
#[case::unknown(EvictionAnswer::Unknown { message: "m".into() }, EvicteeState::Asking, "nobody knows whether it was asked: m")]
fn each_answer_is_its_own_verdict(#[case] answer: EvictionAnswer, #[case] state: EvicteeState, #[case] why: &str) {
    let mut world = World::new("").with(pod("p"));
    assert_eq!(world.step(&answer), ["p"]);
    assert_eq!((world.state("p"), world.why("p").as_str()), (state, why));
    assert_eq!(world.begin(), NOBODY, "not at once again");
}

#[test]
fn a_budget_that_refuses_is_asked_again_ever_more_rarely_and_at_the_deadline_no_more() {
    let mut world = World::new("").with(pod("p"));
    let mut asked = Vec::new();
    for second in 60..60 + 700 {
        world.now = at(second);
        if !world.step(&blocked("chat")).is_empty() {
            asked.push(second - 60);
        }
    }
    assert_eq!(asked, [0, 5, 15, 35, 75, 135, 195, 255, 315, 375, 435, 495, 555]);
    assert_eq!(world.state("p"), EvicteeState::Left);
    assert_eq!(world.why("p"), "not gone within 10m: the PodDisruptionBudget chat allows no disruption now");
}

#[test]
fn only_a_policy_that_says_so_deletes_at_the_deadline() {
    let mut world = World::new("on_deadline: delete").with(pod("p"));
    world.step(&blocked("chat"));
    world.pass(599);
    assert_eq!(world.step(&blocked("chat")), ["p"]);
    world.pass(60);
    assert_eq!(world.step(&EvictionAnswer::Accepted), ["delete p"]);
    assert_eq!(world.state("p"), EvicteeState::Leaving);
}

#[test]
fn a_process_that_died_after_the_intent_asks_only_who_still_stands_there() {
    let mut world = World::new("").with(pod("p")).with(pod("q")).with(pod("r"));
    assert_eq!(world.begin(), ["p", "q", "r"]);
    // The first was asked, the second is gone already, of the third nothing came.
    world.here[0].pod.deleted = Some(at(61));
    world.here.remove(1);
    assert_eq!(world.begin(), ["r"]);
    assert_eq!((world.state("p"), world.state("q")), (EvicteeState::Leaving, EvicteeState::Gone));
}

#[test]
fn more_pods_than_the_record_holds_go_one_after_the_other() {
    let mut world = World::new("max_restarts_per_hour: 1000");
    let name = |number: usize| format!("a-training-run-with-a-rather-long-name-worker-{number:02}");
    let all: BTreeSet<String> = (0..MAX_PODS + 8).map(name).collect();
    world.here = all.iter().map(|name| pod(name)).collect();
    let mut asked = world.step(&blocked("a-budget-whose-name-is-as-long-as-it-may-well-be-somewhere"));
    assert!((16..=MAX_PODS).contains(&asked.len()), "{}", asked.len());
    assert_eq!(world.record().eviction.unwrap().pods.len(), asked.len(), "all that were asked stand on record");
    assert!(world.node.annotations["gpu-quarantine.dev/record"].len() <= crate::quarantine::MAX_BYTES);
    for _ in 0..20 {
        world.pass(60);
        asked.extend(world.step(&EvictionAnswer::Accepted));
        world.finalise();
    }
    assert_eq!(asked.into_iter().collect::<BTreeSet<_>>(), all);
    assert!(world.here.is_empty());
}

#[test]
fn pods_that_stay_take_no_room_from_those_that_are_to_go() {
    let mut world = World::new("max_restarts_per_hour: 1000");
    for number in 0..MAX_PODS {
        let fails = Loss::Fails("nothing creates it again".into());
        world.here.push(pod(&format!("bare{number:02}")).of(&format!("Pod team-a/bare{number:02}"), Framework::None, fails));
    }
    world.here.push(pod("z-last"));
    assert_eq!(world.begin(), ["z-last"]);
}

#[test]
fn long_answers_take_nobody_off_the_record() {
    let mut world = World::new("max_restarts_per_hour: 1000");
    // As many as stand on record at once, with names and answers as long as they come, beside claims that leave little room.
    let long = "x".repeat(60);
    world.here = (0..MAX_PODS).map(|n| pod(&format!("p{n:02}-{long}")).annotated("checkpoint", "none")).collect();
    let mut claims = world.record().claims;
    while world.record_with(&claims).len() < 9 * 1024 {
        let mut more = claims[0].clone();
        more.alert = format!("{long}{}", claims.len());
        claims.push(more);
    }
    world.set_claims(&claims);
    let asked = world.step(&EvictionAnswer::Refused { message: "\"\u{1f980}\n".repeat(100) });
    assert!(asked.len() >= 4, "{asked:?}");
    let pods = world.record().eviction.expect("it stands on record").pods;
    let tried: Vec<_> = pods.iter().filter(|p| p.state == EvicteeState::Blocked && p.tries == 1 && p.next.is_some()).collect();
    assert_eq!(tried.len(), asked.len(), "what came of each is known");
    assert_eq!(world.begin(), NOBODY, "none is asked again at once");
}

#[test]
fn one_of_whom_nobody_answers_is_left_at_the_deadline_and_never_deleted() {
    let mut world = World::new("on_deadline: delete").with(pod("p"));
    let unknown = EvictionAnswer::Unknown { message: "HTTP 500: failed calling webhook".to_owned() };
    for _ in 0..15 {
        let asked = world.step(&unknown);
        assert!(asked.iter().all(|name| name == "p"), "{asked:?}");
        world.pass(60);
    }
    assert_eq!(world.state("p"), EvicteeState::Left);
    assert_eq!(world.why("p"), "not gone within 10m: nobody knows whether it was asked: HTTP 500: failed calling webhook");
}

#[test]
fn one_that_was_asked_and_is_gone_did_not_go_by_itself_though_the_eviction_was_put_off() {
    let mut world = World::new("").with(pod("p")).with(pod("q"));
    world.step(&blocked("x"));
    world.node.annotations.insert("gpu-quarantine.dev/hold".into(), "mine".into());
    world.here.retain(|r| r.pod.name.name() != "p");
    world.begin();
    assert_eq!((world.state("p"), world.why("p").as_str()), (EvicteeState::Gone, ""));
    assert_eq!(world.why("q"), "not now: a person holds the node: mine");
}
