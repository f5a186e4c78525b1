//! A training Job loses a node.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    nodes::{added, tainted},
    pods::{OPTED_IN, bare, daemon_set, job, name, node_of, runs, template, uid},
    process::eventually,
    service::Alert,
    story::{Story, end},
    world::{PATIENCE, World},
};

/// Names and UIDs of pods that run.
fn identities(pods: &[Value]) -> BTreeMap<String, String> {
    pods.iter().filter(|pod| runs(pod)).map(|pod| (name(pod).to_owned(), uid(pod).to_owned())).collect()
}

#[tokio::test]
async fn the_pod_of_a_job_moves_to_a_healthy_node_and_nothing_else_is_touched() {
    let Some(world) = World::of("job", 6, 3).await else { return };
    let scope = &world.scope;
    let story = Story::begin("A Job of four pods on six nodes; a GPU of one node falls off the bus. Times count from the alert.");
    // Bystanders on every node: a DaemonSet's, some that opted out, some that never heard of us. One GPU is left for the Job.
    world.pods.create(&daemon_set("exporter", &template(scope, &json!({"kind": "daemon", OPTED_IN: "true"}), 0))).await;
    for node in &world.names {
        let out = bare(&format!("out-{node}"), node, &template(scope, &json!({"kind": "out", OPTED_IN: "false"}), 1));
        world.pods.create(&out).await;
        let unlabelled = bare(&format!("other-{node}"), node, &template(scope, &json!({"kind": "other"}), 1));
        world.pods.create(&unlabelled).await;
    }
    let bystanders = "kind in (daemon, out, other)";
    let before = identities(&world.pods.wait_running(bystanders, 18).await);
    world.pods.create(&job("training", 4, &world.opted_in(json!({"kind": "worker"})))).await;
    let workers = world.pods.wait_running("kind=worker", 4).await;
    let service = world.service("settle: 100ms, unknown_gpu: node").await;
    let lost = &workers[0];
    let node = node_of(lost).to_owned();
    story.zero();
    let alert = Alert::on(&node);
    service.insist(&alert.firing()).await;
    story.step(format!("the webhook is answered: {node} is on record"));
    let isolated = world.nodes.get(&node).await;
    assert!(tainted(&isolated) && added(&isolated), "{isolated}");
    story.step(format!("{node} is isolated"));
    world.wait_leaves(&service, name(lost), uid(lost)).await;
    story.step(format!("{} is evicted from it", name(lost)));
    let (old, came) = eventually("the Job has four pods again", PATIENCE, async || {
        let pods = world.pods.list("kind=worker").await;
        let old = identities(&workers);
        let came: Vec<Value> = pods.iter().filter(|pod| runs(pod) && !old.contains_key(name(pod))).cloned().collect();
        if let [came] = &came[..] { Ok((old, came.clone())) } else { Err(crate::pods::brief(&pods)) }
    })
    .await;
    assert_ne!(node_of(&came), node);
    assert!(!tainted(&world.nodes.get(node_of(&came)).await));
    story.step(format!("the Job's controller made {}, which runs on {}", name(&came), node_of(&came)));
    let new = identities(&world.pods.wait_running("kind=worker", 4).await);
    let stayed = new.iter().filter(|(name, uid)| old.get(*name) == Some(uid)).count();
    assert_eq!(stayed, 3, "{old:?} became {new:?}");
    assert_eq!(identities(&world.pods.list(bystanders).await), before);
    world.wait_stands(&service, &node, uid(lost), "gone", &[]).await;
    story.step(format!("the record says that {} is gone", name(lost)));
    service.insist(&alert.resolved()).await;
    service.wait_state(&node, "free").await;
    story.step(format!("the alert ended, its hold-down is over: {node} is given back"));
    assert_eq!(identities(&world.pods.list(bystanders).await), before);
    assert_eq!(identities(&world.pods.list("kind=worker").await), new);
    assert_eq!(world.asked().iter().filter(|asked| asked.evicted()).count(), 1, "{:?}", world.asked());
    end("PASS: one pod moved, and the other 21 are the same");
}
