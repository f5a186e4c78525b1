//! What the sender is told when the cluster fails, and what becomes of its alerts (P1, trap 12).

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::Request};
use tower::ServiceExt;

use crate::harness::{Fault, Service, body, lost, outcomes};

fn results(answer: &serde_json::Value) -> Vec<&str> {
    answer["results"].as_array().unwrap().iter().map(|r| r["outcome"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_retry_can_cure_is_a_503_that_names_the_alert_and_the_retry_cures_it() {
    for (fault, times) in [(Fault::Unavailable, 2), (Fault::TimeoutBefore, 2), (Fault::Conflict, 16), (Fault::NotFound, 16)] {
        let service = Service::start().await;
        service.cluster.fail_next(&vec![fault; times]);
        let alerts = body(&[lost("gpu-node-07", 0)]);
        let (status, answer) = service.post(alerts.clone()).await;
        assert_eq!((status, results(&answer)), (503, vec!["failed"]), "{fault:?}: {answer}");
        assert!(!service.tainted("gpu-node-07"));
        assert_eq!(outcomes(&service.post(alerts).await), ["recorded"], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_is_a_503_as_well() {
    for fault in [Fault::Unavailable, Fault::TimeoutBefore] {
        let service = Service::start().await;
        let alerts = body(&[lost("gpu-node-07", 0)]);
        assert_eq!(outcomes(&service.post(alerts.clone()).await), ["recorded"]);
        service.cluster.fail_next_reads(&[fault]);
        let (status, answer) = service.post(alerts.clone()).await;
        assert_eq!((status, results(&answer)), (503, vec!["failed"]), "nothing to write, and that needs a fresh read");
        assert_eq!(outcomes(&service.post(alerts).await), ["unchanged"]);
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_read_and_decided_again_within_one_delivery() {
    let service = Service::start().await;
    service.cluster.fail_next(&[Fault::Conflict; 15]);
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    assert_eq!((service.cluster.patches(), service.cluster.written()), (16, 1));
}

#[tokio::test(start_paused = true)]
async fn the_other_nodes_of_a_body_are_recorded_whatever_becomes_of_one() {
    for (fault, status) in [(Fault::Unavailable, 503), (Fault::Refused, 200), (Fault::TimeoutBefore, 503)] {
        let service = Service::start().await;
        service.cluster.fail_node("gpu-node-12", Some(fault));
        let alerts = [lost("gpu-node-07", 0), lost("gpu-node-12", 0), lost("gpu-node-20", 0)];
        let (got, answer) = service.post(body(&alerts)).await;
        assert_eq!((got, results(&answer)), (status, vec!["recorded", "failed", "recorded"]), "{fault:?}");
        assert!(service.tainted("gpu-node-07") && service.tainted("gpu-node-20") && !service.tainted("gpu-node-12"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_is_tried_again_by_ourselves_until_it_no_longer_does() {
    let service = Service::start().await;
    service.cluster.fail_node("gpu-node-12", Some(Fault::Refused));
    assert_eq!(service.outcomes(&[lost("gpu-node-12", 0), lost("gpu-node-07", 0)]).await, ["failed", "recorded"]);
    service.engine.retry_parked().await;
    assert!(!service.tainted("gpu-node-12"));
    assert!((service.metric("gpu_quarantine_alerts_parked").await - 1.0).abs() < f64::EPSILON);
    // A failure of another kind in between does not make us forget: the sender has its 200 and will not come again.
    service.cluster.fail_node("gpu-node-12", Some(Fault::Unavailable));
    service.engine.retry_parked().await;
    assert!((service.metric("gpu_quarantine_alerts_parked").await - 1.0).abs() < f64::EPSILON);
    service.cluster.fail_node("gpu-node-12", None);
    service.engine.retry_parked().await;
    assert!(service.tainted("gpu-node-12"));
    assert!(service.metric("gpu_quarantine_alerts_parked").await.abs() < f64::EPSILON);
    assert_eq!(service.outcomes(&[lost("gpu-node-12", 0)]).await, ["unchanged"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_alert_that_is_over_is_not_tried_again() {
    let service = Service::start().await;
    service.cluster.fail_node("gpu-node-12", Some(Fault::Refused));
    assert_eq!(service.outcomes(&[lost("gpu-node-12", 0)]).await, ["failed"]);
    assert_eq!(service.outcomes(&[lost("gpu-node-12", 0).over("2026-11-29T20:15:30Z")]).await, ["unchanged"]);
    service.cluster.fail_node("gpu-node-12", None);
    service.engine.retry_parked().await;
    assert!(!service.tainted("gpu-node-12"));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_took_effect_without_an_answer_is_recorded_and_not_written_again() {
    let service = Service::start().await;
    service.cluster.fail_next(&[Fault::TimeoutAfter]);
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    assert_eq!((service.cluster.patches(), service.cluster.written()), (1, 1));
    assert_eq!(service.actions("gpu-node-07"), ["isolate"], "and it is told and counted");
    let isolated = service.metric("gpu_quarantine_actions_total{action=\"isolate\",policy=\"gpu-lost\"}").await;
    assert!((isolated - 1.0).abs() < f64::EPSILON);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_got_lost_without_an_answer_is_written_again() {
    let service = Service::start().await;
    service.cluster.fail_next(&[Fault::TimeoutBefore]);
    assert_eq!(service.outcomes(&[lost("gpu-node-07", 0)]).await, ["recorded"]);
    assert_eq!((service.cluster.patches(), service.cluster.written()), (2, 1));
    assert_eq!(service.actions("gpu-node-07"), ["isolate"]);
}

#[tokio::test(start_paused = true)]
async fn exporter_pods_that_cannot_be_listed_are_a_503_only_if_an_alert_needs_them() {
    let service = Service::start().await;
    service.cluster.fail_pods(true);
    let by_pod = lost("gpu-node-07", 0).without("Hostname").label("namespace", "gpu-operator");
    let by_pod = by_pod.label("pod", "nvidia-dcgm-exporter-ldbdt");
    let (status, answer) = service.post(body(&[by_pod.clone(), lost("gpu-node-07", 0)])).await;
    assert_eq!((status, results(&answer)), (503, vec!["failed", "recorded"]));
    assert_eq!(service.outcomes(&[lost("gpu-node-20", 0)]).await, ["recorded"]);
    service.cluster.fail_pods(false);
    assert_eq!(service.outcomes(&[by_pod, lost("gpu-node-07", 0)]).await, ["recorded", "unchanged"]);
    assert!(service.tainted("gpu-node-12"));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_a_503_within_the_deadline_and_the_work_goes_on() {
    let service = Service::start().await;
    service.cluster.pause();
    let alerts = body(&[lost("gpu-node-07", 0)]);
    let begin = tokio::time::Instant::now();
    let (status, answer) = service.post(alerts.clone()).await;
    assert_eq!(status, 503, "{answer}");
    assert!(begin.elapsed() <= Duration::from_secs(9), "Alertmanager gives up after 10 s: {:?}", begin.elapsed());
    assert!(!service.tainted("gpu-node-07"));
    service.cluster.go_on();
    service.app.drained().await;
    assert!(service.tainted("gpu-node-07"));
    assert_eq!(service.cluster.written(), 2, "the isolation, and that its sender was told of a failure");
    assert_eq!(outcomes(&service.post(alerts).await), ["unchanged"], "the retry finds it done");
    assert_eq!(service.cluster.written(), 3, "it was confirmed");
}

#[tokio::test(start_paused = true)]
async fn trap_12_a_client_that_hangs_up_does_not_stop_the_work() {
    let service = Service::start().await;
    service.cluster.pause();
    let alerts = body(&[lost("gpu-node-07", 0), lost("gpu-node-12", 0)]);
    let request = Request::post("/api/v1/alerts").body(Body::from(alerts)).unwrap();
    tokio::select! {
        answer = service.router().oneshot(request) => panic!("it should hang: {answer:?}"),
        () = service.cluster.arrived(2) => {}
    }
    // The request's future is dropped by now, which is what axum does when the client is gone.
    service.cluster.go_on();
    service.app.drained().await;
    assert!(service.tainted("gpu-node-07") && service.tainted("gpu-node-12"));
    let claim = &service.record("gpu-node-07").unwrap()["claims"][0];
    assert_eq!(claim["alert"], "GpuLost");
    assert_eq!(claim["unconfirmed"], true, "nobody was told that it is recorded");
}

#[tokio::test(start_paused = true)]
async fn too_many_deliveries_at_once_are_told_to_come_again() {
    let service = Service::start().await;
    service.cluster.pause();
    let post = || {
        let request = Request::post("/api/v1/alerts").body(Body::from(body(&[lost("gpu-node-07", 0)]))).unwrap();
        tokio::spawn(service.router().oneshot(request))
    };
    let many: Vec<_> = (0..256).map(|_| post()).collect();
    // All are polled before a task that is spawned after them.
    let one_more = post().await.unwrap().unwrap();
    assert_eq!(one_more.status(), 503);
    service.cluster.go_on();
    for answer in many {
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(outcomes(&service.post(body(&[lost("gpu-node-07", 0)])).await), ["unchanged"]);
}

#[tokio::test(start_paused = true)]
async fn two_deliveries_for_one_node_at_once_lose_no_claim() {
    let service = Arc::new(Service::start().await);
    service.cluster.pause();
    let both: Vec<_> = [0, 3]
        .map(|gpu| {
            let service = Arc::clone(&service);
            tokio::spawn(async move { service.outcomes(&[lost("gpu-node-07", gpu)]).await })
        })
        .into();
    service.cluster.arrived(1).await;
    service.cluster.go_on();
    for one in both {
        assert_eq!(one.await.unwrap(), ["recorded"]);
    }
    assert_eq!(service.record("gpu-node-07").unwrap()["claims"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_replicas_that_write_one_node_at_once_lose_no_claim() {
    let first = Arc::new(Service::start().await);
    let second = Arc::new(first.another().await);
    first.cluster.pause();
    let both = [(Arc::clone(&first), 0), (second, 3)]
        .map(|(service, gpu)| tokio::spawn(async move { service.outcomes(&[lost("gpu-node-07", gpu)]).await }));
    first.cluster.arrived(2).await;
    first.cluster.go_on();
    for one in both {
        assert_eq!(one.await.unwrap(), ["recorded"]);
    }
    let record = first.record("gpu-node-07").unwrap();
    assert_eq!(record["claims"].as_array().unwrap().len(), 2, "{record}");
    assert_eq!(first.taints("gpu-node-07"), [crate::harness::TAINT]);
    assert_eq!((first.cluster.patches(), first.cluster.written()), (3, 2), "one conflict");
}
