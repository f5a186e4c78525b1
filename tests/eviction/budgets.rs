//! P8: budgets are obeyed, named, and passed by nobody unless the policy says so.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    audit::Asked,
    nodes::record,
    pods::{OPTED_IN, budget, name, node_of, uid},
    service::Alert,
    world::{AT_ONCE, World},
};

const SHORT: &str = "settle: 0s, deadline: 7s, unknown_gpu: node, max_restarts_per_hour: 1000";

fn time(value: &Value) -> Timestamp {
    value.as_str().expect("a time").parse().expect("a time")
}

#[tokio::test]
async fn a_budget_that_never_allows_is_named_and_its_pod_left_while_others_go() {
    let Some(world) = World::of("never", 1, 8).await else { return };
    let node = &world.names[0];
    world.pods.create(&budget("all-must-stay", ("app", "kept"), 1)).await;
    let kept = world.pod_on("kept", "kept", node).await;
    let free = world.pod_on("free", "free", node).await;
    let service = world.service(SHORT).await;
    service.insist(&Alert::on(node).firing()).await;
    world.wait_stands(&service, node, &kept, "blocked", &["all-must-stay"]).await;
    world.wait_stands(&service, node, &free, "gone", &[]).await;
    let left = world.wait_stands(&service, node, &kept, "left", &["all-must-stay"]).await;
    assert!(left["tries"].as_u64() >= Some(2), "{left}");
    world.stays(&service, "kept-0", &kept).await;
    assert_eq!(world.times_evicted("free-0"), 1);
    assert!(!world.asked().iter().any(Asked::deleted), "{:?}", world.asked());
    let shown = service.node(node).await;
    assert!(shown.to_string().contains("all-must-stay"), "a person must see what keeps the pod: {shown}");
}

#[tokio::test]
async fn what_a_budget_keeps_past_the_deadline_is_deleted_with_its_grace_if_the_policy_says_so() {
    let Some(world) = World::of("delete", 1, 8).await else { return };
    let node = &world.names[0];
    world.pods.create(&budget("all-must-stay", ("app", "kept"), 1)).await;
    let kept = world.pod_on("kept", "kept", node).await;
    let service = world.service(&format!("{SHORT}, on_deadline: delete")).await;
    service.insist(&Alert::on(node).firing()).await;
    let blocked = world.wait_stands(&service, node, &kept, "blocked", &["all-must-stay"]).await;
    let first = time(&blocked["asked"]);
    world.wait_leaves(&service, "kept-0", &kept).await;
    world.wait_stands(&service, node, &kept, "gone", &[]).await;
    assert_eq!(world.times_evicted("kept-0"), 0);
    let asked = world.asked();
    let deletions: Vec<_> = asked.iter().filter(|asked| asked.deleted()).collect();
    let [deletion] = deletions[..] else { panic!("one deletion: {asked:?}") };
    assert_eq!((deletion.uid.as_deref(), deletion.grace), (Some(kept.as_str()), None), "{deletion:?}");
    let at: Timestamp = deletion.at.parse().expect("a time");
    assert!(at >= first + Duration::from_secs(7), "asked first at {first}, deleted at {at}");
}

#[tokio::test]
async fn a_pod_whose_budget_allows_later_goes_then() {
    let Some(world) = World::of("later", 2, 8).await else { return };
    let (node, other) = (&world.names[0], &world.names[1]);
    world.pods.create(&budget("one-must-stay", ("app", "served"), 1)).await;
    let first = world.pod_on("first", "served", node).await;
    let service = world.service(AT_ONCE).await;
    service.insist(&Alert::on(node).firing()).await;
    world.wait_stands(&service, node, &first, "blocked", &["one-must-stay"]).await;
    world.pod_on("second", "served", other).await;
    world.wait_stands(&service, node, &first, "gone", &[]).await;
    assert_eq!(world.times_evicted("first-0"), 1);
}

#[tokio::test]
async fn two_budgets_that_nobody_can_pass_are_told_apart_from_one_that_forbids() {
    let Some(world) = World::of("two", 1, 8).await else { return };
    let node = &world.names[0];
    let second = budget("second", ("app", "kept"), 0);
    world.pods.create(&budget("first", ("app", "kept"), 0)).await;
    world.pods.create(&second).await;
    let kept = world.pod_on("kept", "kept", node).await;
    let service = world.service(AT_ONCE).await;
    service.insist(&Alert::on(node).firing()).await;
    world.wait_stands(&service, node, &kept, "blocked", &["more than one PodDisruptionBudget"]).await;
    assert_eq!(world.times_evicted("kept-0"), 0);
    world.pods.delete(&second).await;
    world.wait_stands(&service, node, &kept, "gone", &[]).await;
    assert_eq!(world.times_evicted("kept-0"), 1);
}

#[tokio::test]
async fn another_pod_of_the_same_name_is_not_the_one_that_was_meant() {
    let Some(world) = World::of("again", 1, 8).await else { return };
    let node = &world.names[0];
    let kept = budget("all-must-stay", ("app", "kept"), 1);
    world.pods.create(&kept).await;
    let first = world.pod_on("same", "kept", node).await;
    let service = world.service(AT_ONCE).await;
    service.insist(&Alert::on(node).firing()).await;
    world.wait_stands(&service, node, &first, "blocked", &["all-must-stay"]).await;
    // The next one opts out and runs past the taint, so that only its name could make it go. No budget keeps it.
    let mut next = world.set_of_one("same", "other", node);
    next["spec"]["template"]["metadata"]["labels"][OPTED_IN] = json!("false");
    next["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    world.pods.merge(&next).await;
    world.pods.delete_at_once("same-0").await;
    world.pods.delete(&kept).await;
    world.wait_stands(&service, node, &first, "gone", &[]).await;
    let second = world.pods.wait_running("app=other", 1).await.remove(0);
    assert_eq!((name(&second), node_of(&second)), ("same-0", node.as_str()));
    world.stays(&service, "same-0", uid(&second)).await;
}

#[tokio::test]
async fn a_restart_goes_on_with_what_a_budget_kept_although_nobody_posts_again() {
    let Some(world) = World::of("goes-on", 1, 8).await else { return };
    let node = &world.names[0];
    let kept = budget("all-must-stay", ("app", "kept"), 1);
    world.pods.create(&kept).await;
    let pod = world.pod_on("pod", "kept", node).await;
    let mut service = world.service(AT_ONCE).await;
    service.insist(&Alert::on(node).firing()).await;
    let before = world.wait_stands(&service, node, &pod, "blocked", &["all-must-stay"]).await;
    service.kill9();
    world.pods.delete(&kept).await;
    service.restart().await;
    world.wait_stands(&service, node, &pod, "gone", &[]).await;
    assert_eq!(world.times_evicted("pod-0"), 1);
    let record = record(&world.nodes.get(node).await).expect("a record");
    assert_eq!(record["eviction"]["pods"][0]["asked"], before["asked"], "the deadline runs from the first time");
}
