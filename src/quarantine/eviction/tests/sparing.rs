//! Who is never asked, and for whom it depends on the GPU.

use rstest::rstest;

use super::world::{GPU, OTHER_GPU, World, at, claim, pod};
use crate::{
    locate::{Owner, PodPhase, Toleration},
    policy::Config,
    quarantine::eviction::{EvicteeState, EvictionAnswer, Resident},
};

/// Why the plan leaves a pod.
fn left(world: &World, name: &str) -> &'static str {
    let plan = world.plan();
    let found = plan.left.iter().find(|(pod, _)| pod.name() == name);
    found.map_or("goes", |(_, spared)| spared.reason)
}

fn kind(kind: &str) -> impl FnOnce(&mut crate::locate::PodFacts) {
    let owner = Owner { api_version: "apps/v1".to_owned(), kind: kind.to_owned(), name: "x".to_owned(), uid: "x".to_owned() };
    move |pod| pod.controller = Some(owner)
}

#[rstest]
#[case::opted_in(pod("p"), "goes")]
#[case::not_opted_in(pod("p").change(|p| p.labels.clear()), "not_opted_in")]
#[case::opted_out(pod("p").change(|p| drop(p.labels.insert("gpu-quarantine.dev/evict".into(), "false".into()))), "not_opted_in")]
#[case::of_a_daemonset(pod("p").change(kind("DaemonSet")), "daemonset")]
#[case::mirror(pod("p").change(|p| drop(p.annotations.insert("kubernetes.io/config.mirror".into(), "x".into()))), "mirror")]
#[case::succeeded(pod("p").change(|p| p.phase = PodPhase::Succeeded), "finished")]
#[case::failed(pod("p").change(|p| p.phase = PodPhase::Failed), "finished")]
#[case::without_a_gpu(pod("p").change(|p| p.gpus = 0), "no_gpu")]
#[case::of_another_node_agent(pod("p").change(kind("ReplicaSet")), "goes")]
fn what_a_pod_is_decides_before_anything_else(#[case] resident: Resident, #[case] want: &str) {
    assert_eq!(left(&World::new("").with(resident), "p"), want);
}

#[rstest]
#[case::a_protected_one("protect: ['team=x']", "protected")]
#[case::another_namespace("namespaces: [team-b]", "namespace")]
#[case::its_namespace("namespaces: [team-a]", "goes")]
#[case::a_namespace_that_is_never("never_namespaces: [team-a]", "namespace")]
#[case::another_owner("owners: [JobSet]", "owner")]
#[case::its_owner("owners: [JobSet, Job]", "goes")]
#[case::another_label("pods: 'fleet/evict'", "not_opted_in")]
#[case::its_label("pods: 'team in (x, y)'", "goes")]
fn the_configuration_narrows_who_goes(#[case] eviction: &str, #[case] want: &str) {
    let resident = pod("p").change(|p| drop(p.labels.insert("team".into(), "x".into())));
    assert_eq!(left(&World::new(eviction).with(resident), "p"), want);
}

#[test]
fn our_own_namespace_is_never_touched() {
    let resident = pod("p").change(|p| p.name = crate::locate::PodName::new("gpu-quarantine", "p").unwrap());
    assert_eq!(left(&World::new("").with(resident), "p"), "own");
}

#[test]
fn a_terminating_pod_is_not_asked_again() {
    let mut world = World::new("").with(pod("p").change(|p| p.deleted = Some(at(30))));
    assert_eq!(world.begin(), Vec::<String>::new());
}

fn uses(gpus: &'static [&'static str]) -> Resident {
    pod("p").using(gpus)
}

/// A claim on the GPU whose alert names pods.
fn labelled(pods: &[&str]) -> serde_json::Value {
    let mut claim = claim(Some(GPU), "gpu");
    claim["workloads"] = serde_json::json!(pods);
    claim
}

#[rstest]
#[case::it_uses_the_gpu(uses(&[GPU]), &[], "goes")]
#[case::it_uses_another(uses(&[OTHER_GPU]), &[], "other_gpu")]
#[case::it_uses_none_of_those_it_may(uses(&[]), &[], "other_gpu")]
#[case::nobody_knows(pod("p"), &[], "unknown_gpu")]
#[case::the_alert_names_it(pod("p"), &["team-a/p"], "goes")]
#[case::the_alert_names_another(pod("p"), &["team-a/q"], "unknown_gpu")]
#[case::the_kubelet_knows_better_than_the_alert(uses(&[OTHER_GPU]), &["team-a/p"], "other_gpu")]
#[case::it_has_all_gpus_of_the_node(pod("p").change(|p| p.whole_gpus = 8), &[], "goes")]
#[case::it_has_all_but_one(pod("p").change(|p| p.whole_gpus = 7), &[], "unknown_gpu")]
#[case::the_alert_names_only_the_exporter(pod("p"), &["gpu-operator/dcgm-exporter-x"], "unknown_gpu")]
fn a_fault_of_one_gpu_is_about_who_uses_it(#[case] resident: Resident, #[case] named: &[&str], #[case] want: &str) {
    let world = World::with_claims("", &[labelled(named)]).with(resident);
    assert_eq!(left(&world, "p"), want);
}

#[test]
fn what_only_some_pods_tell_is_not_known_of_the_others() {
    let claims = [labelled(&[])];
    let world = World::with_claims("", &claims).with(uses(&[OTHER_GPU])).with(pod("q"));
    assert_eq!((left(&world, "p"), left(&world, "q")), ("unknown_gpu", "unknown_gpu"));
    let world = World::with_claims("", &claims).with(uses(&[GPU])).with(pod("q"));
    assert_eq!((left(&world, "p"), left(&world, "q")), ("goes", "other_gpu"), "the GPU has one user, and it is known");
}

#[test]
fn an_unknown_user_means_the_whole_node_only_if_the_policy_says_so() {
    let mut world = World::with_claims("", &[labelled(&[])]).with(pod("p"));
    assert_eq!(world.begin(), Vec::<String>::new());
    assert_eq!(world.state("p"), EvicteeState::Waiting);
    assert_eq!(world.why("p"), format!("nobody knows which pod uses the GPU of GpuLost on {GPU}"));
    let again = world.plan();
    assert!(again.record.is_none() && again.news.is_empty(), "it is told once: {again:?}");
    let text = "release: {require: [resolved]}\npolicies:\n- {name: gpu-lost, match: ['a=\"b\"'], action: evict, eviction: {unknown_gpu: node}}\n";
    world.config = Config { eviction: world.config.eviction.clone(), ..crate::policy::load("x", text).unwrap() };
    assert_eq!(world.begin(), ["p"]);
}

#[test]
fn a_finished_pod_uses_no_gpu_any_more() {
    let finished = pod("yesterday").change(|p| (p.phase, p.whole_gpus) = (PodPhase::Succeeded, 8));
    let world = World::with_claims("", &[labelled(&[])]).with(finished).with(pod("p").change(|p| p.whole_gpus = 8));
    assert_eq!(left(&world, "p"), "goes");
}

#[test]
fn where_a_gpu_was_lost_to_kubernetes_nobody_has_them_all() {
    let mut world = World::with_claims("", &[labelled(&[])]).with(pod("p").change(|p| p.whole_gpus = 7)).with(pod("q"));
    world.node.whole_gpus = Some(7);
    assert_eq!((left(&world, "p"), left(&world, "q")), ("unknown_gpu", "unknown_gpu"));
}

#[test]
fn a_younger_pod_of_that_name_is_another_one() {
    let young = pod("p").change(|p| p.created = Some(at(10)));
    assert_eq!(left(&World::with_claims("", &[labelled(&["team-a/p"])]).with(young), "p"), "unknown_gpu");
}

#[test]
fn a_fault_of_a_gpu_that_nobody_can_name_is_not_one_of_the_node() {
    let claim = claim(None, "gpu");
    assert_eq!(left(&World::with_claims("", &[claim]).with(pod("p")), "p"), "unknown_gpu");
}

#[test]
fn a_pod_whose_controller_cannot_be_read_waits_until_it_can() {
    let mut world = World::new("").with(pod("p"));
    world.here[0].unread = Some("cannot read Job team-a/p: HTTP 500".to_owned());
    assert_eq!(world.begin(), Vec::<String>::new());
    assert_eq!(world.why("p"), "nobody knows what its group bears: cannot read Job team-a/p: HTTP 500");
    world.here[0].unread = None;
    assert_eq!(world.begin(), ["p"]);
}

#[test]
fn several_claims_ask_for_the_union() {
    let mut other = claim(Some(OTHER_GPU), "gpu");
    other["members"][0]["fp"] = "17ca147fb85cd639".into();
    let mut world =
        World::with_claims("", &[claim(Some(GPU), "gpu"), other]).with(uses(&[GPU])).with(pod("q").using(&[OTHER_GPU]));
    world.here.push(pod("r").using(&["GPU-5fd4f0a2-8a3e-5c1d-b7a1-000000000002"]));
    assert_eq!(world.begin(), ["p", "q"]);
}

#[rstest]
#[case::without_the_label_the_gpu_counts(None, "other_gpu")]
#[case::the_node_as_a_whole(Some("node"), "goes")]
fn the_scope_of_the_alert_decides_how_far_it_reaches(#[case] scope: Option<&str>, #[case] want: &str) {
    let mut claim = claim(Some(GPU), "gpu");
    claim["scope"] = serde_json::json!(scope);
    assert_eq!(left(&World::with_claims("", &[claim]).with(uses(&[OTHER_GPU])), "p"), want);
}

fn came_at(second: i64) -> Resident {
    pod("p").change(|p| p.created = Some(at(second)))
}

fn tolerant(resident: Resident) -> Resident {
    resident.change(|p| {
        p.tolerations = vec![Toleration { operator: "Exists".into(), ..Toleration::default() }];
    })
}

#[rstest]
#[case::it_was_here_before(tolerant(came_at(-10)), "goes")]
#[case::it_came_past_the_taint(tolerant(came_at(10)), "returned")]
#[case::it_was_bound_in_the_same_moment(came_at(1), "goes")]
fn who_comes_past_the_taint_is_reported_and_left(#[case] resident: Resident, #[case] want: &str) {
    let mut world = World::new("").with(resident);
    assert_eq!(left(&world, "p"), want);
    assert_eq!(world.begin().is_empty(), want == "returned");
    if want == "returned" {
        assert_eq!(world.state("p"), EvicteeState::Returned);
        assert!(world.plan().record.is_none(), "it is told once");
    }
}

#[test]
fn who_takes_the_place_of_one_that_was_evicted_is_not_chased() {
    let mut world = World::new("").with(pod("p"));
    assert_eq!(world.step(&EvictionAnswer::Accepted), ["p"]);
    world.finalise();
    world.pass(30);
    let successor =
        pod("p2").of("Job team-a/p", crate::quarantine::eviction::Framework::Job, crate::quarantine::eviction::Loss::Each);
    world.here.push(successor.change(|p| p.created = Some(at(70))));
    assert_eq!(world.begin(), Vec::<String>::new());
    assert_eq!((world.state("p"), world.state("p2")), (EvicteeState::Gone, EvicteeState::Returned));
}
