//! Claims whose alerts match several policies, and nodes that stand in the way.

use crate::harness::{CONFIG, Fault, Service, lost, name};

const OVER: &str = "2026-11-29T20:17:00Z";

#[tokio::test]
async fn a_claim_of_two_policies_needs_what_both_need_whichever_came_first() {
    let config = CONFIG.replace(
        "  - {name: gpu-lost,",
        "  - {name: soft, match: ['severity=\"warning\"'], action: isolate, release: {after: 1m, require: [resolved]}}\n  \
           - {name: gpu-lost,",
    );
    let (soft, hard) = (lost("gpu-node-07", 0).label("severity", "warning"), lost("gpu-node-07", 0));
    for order in [[&soft, &hard], [&hard, &soft]] {
        let service = Service::with(&config).await;
        for alert in order {
            assert_eq!(service.outcomes(std::slice::from_ref(alert)).await, ["recorded"]);
        }
        service.outcomes(&[soft.over(OVER), hard.over(OVER)]).await;
        service.pass("9m59s").await;
        assert!(service.tainted("gpu-node-07"), "one minute would have been enough for the softer of the two");
        service.pass("1s").await;
        assert!(!service.tainted("gpu-node-07"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_written_holds_up_nobody_behind_it_in_the_queue() {
    let service = Service::start().await;
    let nodes = ["gpu-node-20", "gpu-node-03", "gpu-node-31", "gpu-node-07", "gpu-node-12"];
    for node in nodes {
        service.outcomes(&[lost(node, 0)]).await;
        service.pass("10s").await;
    }
    service.cluster.fail_node("gpu-node-07", Some(Fault::Refused));
    service.outcomes(&[lost("gpu-node-20", 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(!service.tainted("gpu-node-20") && !service.tainted("gpu-node-07"));
    service.outcomes(&[lost("gpu-node-03", 0)]).await;
    assert!(service.tainted("gpu-node-12"), "the next in the queue takes the slot");
}

#[tokio::test]
async fn a_taint_taken_away_from_a_node_that_is_no_longer_ours_is_not_put_back() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    let never = CONFIG.replace("gpu.present=true}", "gpu.present=true, never: ['kubernetes.io/hostname=gpu-node-07']}");
    service.reload(&never).await.unwrap();
    assert!(service.tainted("gpu-node-07"), "what we added stays until it is released");
    let taken = |node: &mut serde_json::Value| drop(node["spec"].as_object_mut().unwrap().remove("taints"));
    service.cluster.edit("gpu-node-07", taken);
    service.engine.refresh().await;
    assert!(!service.tainted("gpu-node-07"));
    assert_eq!(service.actions("gpu-node-07"), ["isolate", "release"]);
}

#[tokio::test]
async fn a_node_that_waits_and_is_no_longer_ours_is_not_said_to_be_well() {
    let service = Service::with(&(CONFIG.to_owned() + "guard: {max_isolated: {count: 0, percent: 0}}\n")).await;
    let two = [lost("gpu-node-07", 0), lost("gpu-node-07", 1)];
    assert_eq!(service.outcomes(&two).await, ["pending", "pending"]);
    let never = CONFIG.replace("gpu.present=true}", "gpu.present=true, never: ['kubernetes.io/hostname=gpu-node-07']}");
    service.reload(&never).await.unwrap();
    assert_eq!(service.outcomes(&[two[0].clone()]).await, ["out_of_scope"]);
    assert_eq!(service.outcomes(&[two[0].over(OVER)]).await, ["resolved"]);
    assert_eq!(service.actions("gpu-node-07"), ["refuse"], "the other fault goes on");
    let waits = service.view("gpu-node-07").await["waiting_for"].to_string();
    assert!(waits.contains("scope.never") && !waits.contains("release"), "{waits}");
    service.outcomes(&[two[1].over(OVER)]).await;
    assert_eq!(service.actions("gpu-node-07"), ["refuse", "none"]);
}

#[tokio::test]
async fn a_resolve_for_a_node_that_went_away_meanwhile_is_no_news() {
    let service = Service::start().await;
    service.outcomes(&[lost("gpu-node-07", 0)]).await;
    service.cluster.before_next(|cluster| cluster.delete(&name("gpu-node-07")).unwrap());
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0).over(OVER)]).await, ["unchanged"]);
}
