//! A fault that comes back within days holds the node for longer, and then for a person.

use jiff::SignedDuration;

use crate::{
    create, delete,
    harness::{CONFIG, Sent, Service, lost},
};

const NODE: &str = "gpu-node-07";

fn at(service: &Service, alert: &Sent) -> (Sent, Sent) {
    let now = service.now();
    (
        alert.clone().since(&now.to_string()),
        alert.clone().since(&now.to_string()).over(&(now + SignedDuration::from_secs(1)).to_string()),
    )
}

/// A fault that begins and is over at once; how long the node was held afterwards, in minutes, up to two days.
async fn episode(service: &Service, alert: &Sent) -> Option<u64> {
    let (firing, over) = at(service, alert);
    service.outcomes(&[firing]).await;
    service.outcomes(&[over]).await;
    assert!(service.tainted(NODE));
    for minutes in 1..=2880 {
        service.pass("1m").await;
        if !service.tainted(NODE) {
            return Some(minutes);
        }
    }
    None
}

#[tokio::test]
async fn the_third_hold_down_is_doubled_and_the_fifth_waits_for_a_person() {
    let service = Service::start().await;
    for minutes in [10, 10, 20, 40] {
        assert_eq!(episode(&service, &lost(NODE, 0)).await, Some(minutes));
    }
    assert_eq!(episode(&service, &lost(NODE, 0)).await, None);
    let view = service.view(NODE).await;
    assert_eq!(view["state"], "clearing");
    let waits = view["waiting_for"].as_str().unwrap();
    assert!(
        waits.contains("a person") && waits.contains("it was released 4 times within 7 days before this fault began"),
        "{waits}"
    );
    service.pass("10d").await;
    assert!(service.tainted(NODE), "waiting makes nothing easier");
}

#[tokio::test]
async fn a_longer_hold_down_says_why() {
    let service = Service::start().await;
    for _ in 0..2 {
        episode(&service, &lost(NODE, 0)).await;
    }
    let (firing, over) = at(&service, &lost(NODE, 0));
    service.outcomes(&[firing]).await;
    service.outcomes(&[over]).await;
    let waits = service.view(NODE).await["waiting_for"].as_str().unwrap().to_owned();
    assert!(waits.ends_with("(longer than usual: it was released 2 times within 7 days before this fault began)"), "{waits}");
}

#[tokio::test]
async fn the_ledger_counts_when_the_node_was_created_anew() {
    let service = Service::start().await;
    for _ in 0..2 {
        episode(&service, &lost(NODE, 0)).await;
    }
    let raw = delete(&service, NODE).await;
    create(&service, raw).await;
    service.pass("20m").await;
    assert!(service.record(NODE).is_none(), "its history went with it");
    assert_eq!(episode(&service, &lost(NODE, 0)).await, Some(20));
}

#[tokio::test]
async fn another_gpu_and_what_is_long_ago_do_not_count_and_it_can_be_turned_off() {
    let service = Service::start().await;
    for gpu in 0..4 {
        assert_eq!(episode(&service, &lost(NODE, gpu)).await, Some(10));
    }
    service.pass("8d").await;
    assert_eq!(episode(&service, &lost(NODE, 0)).await, Some(10));
    let off = CONFIG.replace("require: [resolved]", "require: [resolved], flapping: {longer_after: 0, person_after: 0}");
    let service = Service::with(&off).await;
    for _ in 0..6 {
        assert_eq!(episode(&service, &lost(NODE, 0)).await, Some(10));
    }
}
