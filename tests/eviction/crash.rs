//! P9: the service is killed at random moments while twenty pods are evicted.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use crate::{
    audit::Asked,
    nodes::tainted,
    pods::{bare, name, node_of, runs, template, uid},
    process::{Random, eventually, soak},
    service::{Alert, Http, Service, post},
    world::{AT_ONCE, World},
};

const PODS: usize = 20;
const WORKERS: &str = "app=worker";
/// In microseconds: about as long as it takes to evict all of them, also after a start.
const KILLED_WITHIN: [u64; 2] = [700_000, 1_500_000];

/// The workers, once all of them run on one node; for a controller has many pods to make.
async fn wait_all_on(world: &World, node: &str, tail: impl Fn() -> String) -> Vec<Value> {
    eventually(&format!("all pods run on {node}"), Duration::from_secs(90), async || {
        let pods = world.pods.list(WORKERS).await;
        let running: Vec<Value> = pods.iter().filter(|pod| runs(pod) && node_of(pod) == node).cloned().collect();
        if running.len() == PODS && pods.len() == PODS {
            return Ok(running);
        }
        Err(format!("{}\n{}", crate::pods::brief(&pods), tail()))
    })
    .await
}

/// The names of pods; no controller gives one twice.
fn names(pods: &[Value]) -> BTreeSet<String> {
    pods.iter().map(|pod| name(pod).to_owned()).collect()
}

/// Kill the service after a while, and start it again. How many of these pods had been evicted by then.
async fn kill(world: &World, service: &mut Service, within: Duration, pods: &BTreeSet<String>) -> usize {
    tokio::time::sleep(within).await;
    service.kill9();
    let evicted = world.asked().iter().filter(|asked| asked.evicted() && pods.contains(&asked.pod)).count();
    service.launch();
    evicted
}

#[tokio::test]
async fn a_service_killed_at_any_moment_of_an_eviction_evicts_no_pod_twice_and_forgets_none() {
    let Some(world) = World::of("crash", 2, 32).await else { return };
    let rounds = (5 * soak()).min(50);
    let seed_of_kills = 4711;
    let mut random = Random(seed_of_kills);
    for node in &world.names {
        // Others that opted out.
        let out = bare(&format!("out-{node}"), node, &template(&world.scope, &json!({"app": "out"}), 1));
        world.pods.create(&out).await;
    }
    let others: BTreeSet<String> = world.pods.wait_running("app=out", 2).await.iter().map(|pod| uid(pod).to_owned()).collect();
    // All begin on the first node, and go to and fro.
    world.nodes.patch("test", &world.names[1], json!({"spec": {"unschedulable": true}})).await;
    let mut template = world.opted_in(json!({"app": "worker"}));
    template["spec"]["restartPolicy"] = json!("Always");
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "workers"},
        "spec": {"replicas": PODS, "selector": {"matchLabels": {"app": "worker"}}, "template": template},
    });
    world.pods.create(&set).await;
    let mut pods = wait_all_on(&world, &world.names[0], String::new).await;
    world.nodes.patch("test", &world.names[1], json!({"spec": {"unschedulable": null}})).await;
    let mut service = world.service(AT_ONCE).await;
    let (mut kills, mut unheard) = (Vec::new(), 0);
    for round in 0..rounds {
        let round_to_node = usize::try_from(round).expect("a few") % 2;
        let (node, other) = (&world.names[round_to_node], &world.names[1 - round_to_node]);
        let what = format!("round {round}, seed {seed_of_kills}");
        let leaving = names(&pods);
        let alert = Alert::on(node);
        let (webhook, body) = (service.webhook(), alert.firing());
        let posting = tokio::spawn(async move { post(&Http::new(), &webhook, &body).await });
        let after = Duration::from_micros(random.below(KILLED_WITHIN[0]));
        kills.push(kill(&world, &mut service, after, &leaving).await);
        let taken = matches!(posting.await.expect("it does not panic"), Ok((200, _)));
        for _ in 0..random.below(3) {
            // Once more, perhaps while it starts.
            let after = Duration::from_micros(random.below(KILLED_WITHIN[1]));
            kills.push(kill(&world, &mut service, after, &leaving).await);
        }
        service.restart().await;
        if !taken {
            // Whoever was not told 200 comes again; what was taken is on record, and needs nobody.
            service.insist(&alert.firing()).await;
        }
        pods = wait_all_on(&world, other, || format!("{what}\n{}", service.tail())).await;
        assert!(tainted(&world.nodes.get(node).await), "{what}");
        let asked = world.asked();
        for pod in &leaving {
            let about: Vec<&Asked> = asked.iter().filter(|asked| asked.eviction && asked.pod == *pod).collect();
            // Whoever is killed while it asks has its request cut off; it may have been done all the same.
            let cut_off = about.iter().filter(|asked| asked.code >= 500).count();
            let taken = about.iter().filter(|asked| asked.evicted()).count();
            assert!(taken == 1 || taken == 0 && cut_off > 0, "{what}: {pod}: {about:?}\n{}", service.tail());
            unheard += usize::from(taken == 0);
        }
        let asked_about: BTreeSet<&str> = asked.iter().filter(|asked| asked.eviction).map(|asked| asked.pod.as_str()).collect();
        assert!(names(&pods).iter().all(|pod| !asked_about.contains(pod.as_str())), "{what}: a pod elsewhere was evicted");
        assert!(!asked.iter().any(Asked::deleted), "{what}: {asked:?}");
        service.insist(&alert.resolved()).await;
        service.wait_state(node, "free").await;
    }
    let still: BTreeSet<String> =
        world.pods.list("app=out").await.iter().filter(|pod| runs(pod)).map(|p| uid(p).to_owned()).collect();
    assert_eq!(still, others, "{:?}", world.pods.list("app=out").await.iter().map(name).collect::<Vec<_>>());
    let within = kills.iter().filter(|evicted| (1..PODS).contains(*evicted)).count();
    eprintln!(
        "{} kills in {rounds} evictions, {within} between the first pod and the last; {unheard} pods went by a request that was cut off",
        kills.len()
    );
    assert!(within > 0 || rounds < 10, "no kill hit an eviction: {kills:?}");
}
