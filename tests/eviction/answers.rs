//! What evictions ask for on the wire, and answers that say nothing about the pod.

use crate::{
    gateway::{Fate, Gateway},
    service::{Alert, Service},
    world::{AT_ONCE, World},
};

/// A node with a pod, and a service that reaches the API server through a gateway.
async fn start(stem: &str, fates: &[Fate]) -> Option<(World, Gateway, Service, String)> {
    let world = World::of(stem, 1, 8).await?;
    let pod = world.pod_on("pod", "any", &world.names[0]).await;
    let gateway = Gateway::to(world.server.api.client().await).await;
    gateway.fates(fates);
    let service = Service::start(gateway.kubeconfig(), &world.config(AT_ONCE), &[]).await;
    Some((world, gateway, service, pod))
}

/// Every eviction that came named the pod by its UID, and left it the grace that it has.
fn assert_narrow(gateway: &Gateway, times: usize, uid: &str) {
    let evictions = gateway.evictions();
    assert_eq!(evictions.len(), times, "{evictions:?}");
    for eviction in evictions {
        assert_eq!(eviction["apiVersion"], "policy/v1", "{eviction}");
        assert_eq!(eviction["metadata"]["name"], "pod-0", "{eviction}");
        assert_eq!(eviction["deleteOptions"]["preconditions"]["uid"], uid, "{eviction}");
        assert!(eviction["deleteOptions"].get("gracePeriodSeconds").is_none(), "{eviction}");
    }
}

#[tokio::test]
async fn an_api_server_with_too_much_to_do_is_asked_again_when_it_says() {
    let Some((world, gateway, service, pod)) = start("throttled", &[Fate::Throttled(3); 2]).await else { return };
    let node = &world.names[0];
    service.insist(&Alert::on(node).firing()).await;
    world.wait_stands(&service, node, &pod, "blocked", &["priority and fairness"]).await;
    world.wait_stands(&service, node, &pod, "gone", &[]).await;
    assert_narrow(&gateway, 3, &pod);
    assert_eq!(world.times_evicted("pod-0"), 1);
}

#[tokio::test]
async fn an_eviction_whose_answer_was_lost_is_read_about_and_not_asked_again() {
    let Some((world, gateway, service, pod)) = start("unanswered", &[Fate::Unanswered]).await else { return };
    let node = &world.names[0];
    service.insist(&Alert::on(node).firing()).await;
    world.wait_stands(&service, node, &pod, "gone", &[]).await;
    assert_narrow(&gateway, 1, &pod);
    assert_eq!(world.times_evicted("pod-0"), 1);
}
