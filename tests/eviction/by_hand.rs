//! That this small world does what a cluster does: else the other tests would prove nothing.

use std::time::Duration;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;

use crate::{
    audit::Asked,
    nodes::taints,
    pods::{budget, uid},
    process::eventually,
    world::{PATIENCE, World},
};

#[tokio::test]
async fn budgets_count_what_the_test_kubelet_runs_and_the_audit_log_tells_what_was_evicted() {
    let Some(world) = World::of("hand", 2, 8).await else { return };
    for node in &world.names {
        eventually(&format!("{node} is ready"), Duration::from_secs(20), async || match taints(&world.nodes.get(node).await) {
            taints if taints.is_empty() => Ok(()),
            taints => Err(format!("{taints:?}")),
        })
        .await;
    }
    let first = world.pod_on("first", "served", &world.names[0]).await;
    world.pods.create(&budget("one-must-stay", ("app", "served"), 1)).await;
    let allowed = async |count: i32| {
        eventually(&format!("the budget allows {count}"), PATIENCE, async || {
            let budget = world.pods.api::<PodDisruptionBudget>().get("one-must-stay").await.expect("it is there");
            let status = budget.status.unwrap_or_default();
            let right = status.observed_generation.is_some() && status.disruptions_allowed == count;
            if right { Ok(()) } else { Err(json!(status).to_string()) }
        })
        .await;
    };
    allowed(0).await;
    let refused = world.pods.evict("first-0", &first).await.expect_err("the budget forbids it");
    let kube::Error::Api(refused) = refused else { panic!("{refused}") };
    assert_eq!(refused.code, 429, "{refused:?}");
    world.pod_on("second", "served", &world.names[1]).await;
    allowed(1).await;
    world.pods.evict("first-0", &first).await.expect("the budget allows it");
    eventually("the pod is gone after its grace", PATIENCE, async || match world.pods.get("first-0").await {
        Some(pod) if uid(&pod) == first => Err(pod.to_string()),
        _ => Ok(()),
    })
    .await;
    let asked = world.asked();
    let codes: Vec<u64> = asked.iter().filter(|asked| asked.eviction).map(|asked| asked.code).collect();
    assert_eq!(codes, [429, 201], "{asked:?}");
    assert_eq!(world.times_evicted("first-0"), 1);
    // What the kubelet deletes without grace is gone already.
    assert!(!asked.iter().any(Asked::deleted), "{asked:?}");
}
