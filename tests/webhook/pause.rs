//! A person pauses the service, and lets it go on.

use std::sync::Arc;

use gpu_quarantine::{
    cluster::Cluster,
    engine::{Engine, VirtualClock},
    metrics::Metrics,
    quarantine::{Pause, PauseWord, Unknown},
};
use serde_json::{Value, json};

use crate::harness::{BEGIN, CONFIG, Service, at, body, bytes, config, lost, prod_a};

const NODE: &str = "gpu-node-07";
const OTHER: &str = "gpu-node-12";
const OVER: &str = "2026-11-29T20:17:00Z";

async fn say(service: &Service, path: &str, body: &str) -> (u16, String) {
    let response = service.send("POST", path, body.to_owned()).await;
    let status = response.status().as_u16();
    (status, String::from_utf8(bytes(response).await.to_vec()).unwrap())
}

/// The pause in the ledger.
async fn stored(service: &Service) -> Value {
    let stored = service.cluster.inner.read_ledger(&config(CONFIG).ledger).await.unwrap();
    let text = stored.and_then(|stored| stored.text).unwrap_or_else(|| "{}".to_owned());
    serde_json::from_str::<Value>(&text).unwrap()["paused"].clone()
}

#[tokio::test]
async fn a_pause_begins_nothing_new_and_its_end_lets_in_who_waits() {
    let service = Service::start().await;
    assert_eq!(service.outcomes(&[lost(OTHER, 0)]).await, ["recorded"]);
    let (status, told) = say(&service, "/-/pause", r#"{"by": "ann", "reason": "a rollout"}"#).await;
    assert_eq!((status, told.as_str()), (200, "paused by ann since 2026-11-29T20:16:00Z: a rollout\n"));
    assert_eq!(stored(&service).await, json!({"by": "ann", "at": "2026-11-29T20:16:00Z", "reason": "a rollout"}));
    assert!((service.metric("gpu_quarantine_paused").await - 1.0).abs() < f64::EPSILON);
    assert_eq!(service.outcomes(&[lost(NODE, 0)]).await, ["pending"]);
    service.outcomes(&[lost(OTHER, 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(!service.tainted(OTHER), "releases go on");
    assert!(!service.tainted(NODE));
    let (status, told) = say(&service, "/-/resume", "").await;
    assert_eq!((status, told.as_str()), (200, "the pause is over\n"));
    assert!(service.tainted(NODE));
    assert_eq!(stored(&service).await, Value::Null);
    assert!(service.metric("gpu_quarantine_paused").await.abs() < f64::EPSILON);
}

#[tokio::test]
async fn a_pause_that_cannot_be_stored_holds_at_once_and_is_stored_when_that_can_be_done() {
    let service = Service::start().await;
    service.cluster.fail_ledger(true);
    let (status, told) = say(&service, "/-/pause", "").await;
    assert_eq!(status, 500);
    assert_eq!(
        told,
        "paused by somebody over HTTP since 2026-11-29T20:16:00Z: no reason is given; it holds in this process, and could not be \
         stored: as the test says. Other replicas do not hear of it, and a restart forgets it, until it is\n"
    );
    assert_eq!(service.outcomes(&[lost(NODE, 0)]).await, ["pending"]);
    service.engine.sync_ledger().await;
    assert!(service.engine.paused().why.is_some() && service.engine.ledger_has_news());
    service.cluster.fail_ledger(false);
    service.engine.sync_ledger().await;
    assert_eq!(stored(&service).await["by"], "somebody over HTTP");
    assert!(!service.engine.ledger_has_news());
    let other = service.another().await;
    other.engine.sync_ledger().await;
    assert!(other.engine.paused().why.is_some(), "the other replica hears of it");
    // So is its end, over whatever another writer wrote meanwhile.
    service.cluster.fail_ledger(true);
    assert_eq!(say(&service, "/-/resume", "").await.0, 500);
    assert!(service.tainted(NODE), "it holds at once");
    service.cluster.fail_ledger(false);
    service.engine.sync_ledger().await;
    assert_eq!(stored(&service).await, Value::Null);
    other.engine.sync_ledger().await;
    assert!(other.engine.paused().why.is_none());
}

#[tokio::test]
async fn a_pause_of_releases_keeps_nodes_until_its_end() {
    let service = Service::start().await;
    service.outcomes(&[lost(NODE, 0)]).await;
    let (status, _) = say(&service, "/-/pause", r#"{"by": "ann", "reason": "no change today", "releases": true}"#).await;
    assert_eq!(status, 200);
    let answer = service.post(body(&[lost(NODE, 0).over(OVER)])).await.1;
    assert_eq!(answer["results"][0]["outcome"], "resolved");
    service.pass("1h").await;
    assert!(service.tainted(NODE));
    assert_eq!(
        service.view(NODE).await["waiting_for"],
        "the end of the pause: paused by ann since 2026-11-29T20:16:00Z, releases as well: no change today"
    );
    // A milder pause lets it go, without an end.
    let (status, _) = say(&service, "/-/pause", r#"{"by": "ann", "reason": "releases are fine"}"#).await;
    assert_eq!(status, 200);
    assert!(!service.tainted(NODE));
    assert_eq!(service.outcomes(&[lost(OTHER, 0)]).await, ["pending"]);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_pauses_nothing_and_says_why() {
    let service = Service::start().await;
    for body in ["{", "[]", r#"{"why": "a typo"}"#, r#"{"releases": "yes"}"#] {
        let (status, told) = say(&service, "/-/pause", body).await;
        assert_eq!(status, 400, "{body}");
        assert!(told.starts_with("nothing was paused, the body cannot be read: ") && told.contains("line 1"), "{told}");
    }
    assert!(service.engine.paused().why.is_none());
    assert_eq!(service.outcomes(&[lost(NODE, 0)]).await, ["recorded"]);
}

#[tokio::test]
async fn a_service_that_only_observes_heeds_a_pause_and_says_that_it_stores_none() {
    let cluster = Arc::new(prod_a());
    let engine = Engine::new(
        Arc::clone(&cluster) as Arc<dyn Cluster>,
        config(CONFIG),
        Arc::new(VirtualClock::at(at(BEGIN))),
        Arc::new(Metrics::new()),
        Box::new(drop),
    )
    .observing();
    let by = "ann".to_owned();
    let word = Pause { by, at: at(BEGIN), reason: "a rollout".to_owned(), releases: false, other: Unknown::new() };
    let told = engine.say_pause(PauseWord::Pause(word)).await.unwrap_err();
    assert_eq!(told.why, "this service only observes and writes nothing");
    engine.sync_ledger().await;
    assert!(engine.paused().why.is_some(), "it holds all the same");
    assert_eq!(cluster.read_ledger(&config(CONFIG).ledger).await.unwrap(), None);
    engine.say_pause(PauseWord::Resume).await.unwrap_err();
    assert!(engine.paused().why.is_none());
}
