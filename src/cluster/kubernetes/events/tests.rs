//! The writer against an API server that is not one: it notes what it is sent and answers as told.

use std::{collections::BTreeSet, sync::Mutex};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    engine::VirtualClock,
    locate::{NodeName, Taint},
    notice::{Reason, Subject},
    policy,
};

/// What the server was sent, how it answers to Events, and its DaemonSets (or the code of a refusal).
struct Server {
    events: Mutex<Vec<(String, Value)>>,
    code: u16,
    daemonsets: Result<Vec<Value>, u16>,
    lists: Mutex<usize>,
}

impl Server {
    fn answering(code: u16) -> Self {
        Self { events: Mutex::default(), code, daemonsets: Ok(Vec::new()), lists: Mutex::default() }
    }
}

fn status(code: u16) -> (StatusCode, Json<Value>) {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Forbidden", "message": "no",
    });
    (StatusCode::from_u16(code).unwrap(), Json(body))
}

struct World {
    server: Arc<Server>,
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    sink: NoticeSink,
    writer: EventWriter,
}

impl World {
    async fn new(server: Server) -> Self {
        let server = Arc::new(server);
        let create = async |State(server): State<Arc<Server>>, Path(namespace): Path<String>, Json(event): Json<Value>| {
            server.events.lock().unwrap().push((namespace, event.clone()));
            if server.code == 201 { (StatusCode::CREATED, Json(event)) } else { status(server.code) }
        };
        let list = async |State(server): State<Arc<Server>>| {
            *server.lists.lock().unwrap() += 1;
            match &server.daemonsets {
                Ok(items) => (
                    StatusCode::OK,
                    Json(json!({"kind": "DaemonSetList", "apiVersion": "apps/v1", "metadata": {}, "items": items})),
                ),
                Err(code) => status(*code),
            }
        };
        let router = Router::new()
            .route("/apis/events.k8s.io/v1/namespaces/{namespace}/events", post(create))
            .route("/apis/apps/v1/daemonsets", get(list))
            .with_state(Arc::clone(&server));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(axum::serve(listener, router).into_future());
        let config = policy::load("c", "instance: prod-a\nrelease: {require: [resolved]}\n").unwrap();
        let metrics = Arc::new(Metrics::new());
        let kube = kube::Config::new(url.parse().unwrap());
        let cluster = KubeCluster::new(kube, &config.domain, BTreeSet::new(), Arc::clone(&metrics)).unwrap();
        let clock = Arc::new(VirtualClock::at(at()));
        let (sink, writer) = EventWriter::start_with(Arc::new(cluster), clock, Arc::clone(&metrics), "pod-1");
        Self { server, config: Arc::new(config), metrics, sink, writer }
    }

    fn tell(&self, notice: Notice) {
        (self.sink)(notice, &self.config);
    }

    /// Write all that was told, and hand over what the server was sent.
    async fn finish(self) -> (Vec<(String, Value)>, Arc<Server>, Arc<Metrics>) {
        self.writer.finish(Duration::from_secs(20)).await;
        let events = self.server.events.lock().unwrap().clone();
        (events, self.server, self.metrics)
    }
}

fn at() -> Timestamp {
    "2026-03-01T12:00:02.345Z".parse().unwrap()
}

fn isolated(node: &str, taint: bool) -> Notice {
    Notice {
        at: at(),
        reason: Reason::Isolated,
        node: Some(Subject { name: NodeName::parse(node).unwrap(), uid: Some("8f0e".to_owned()) }),
        note: "Isolated by policy gpu-lost: GpuLost on GPU-1.".to_owned(),
        taint: taint.then(|| Taint {
            key: "gpu-quarantine.dev/isolated".to_owned(),
            value: Some("gpu-lost".to_owned()),
            effect: "NoSchedule".to_owned(),
            other: std::collections::BTreeMap::new(),
        }),
    }
}

fn daemonset(name: &str, label: &str, tolerations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "monitoring"},
        "spec": {"selector": {}, "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": label}},
            "spec": {"containers": [], "tolerations": tolerations},
        }},
    })
}

#[tokio::test]
async fn an_event_has_what_the_api_server_asks_for_and_kubectl_describe_looks_for() {
    let world = World::new(Server::answering(201)).await;
    world.tell(isolated("gpu-node-07", false));
    let (events, _, metrics) = world.finish().await;
    let (namespace, mut event) = events[0].clone();
    let name = event["metadata"]["name"].take();
    assert!(name.as_str().unwrap().starts_with("gpu-node-07.") && NodeName::parse(name.as_str().unwrap()).is_ok());
    assert_eq!(namespace, "default");
    assert_eq!(
        event,
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": null, "namespace": "default"},
            "eventTime": "2026-03-01T12:00:02.345000Z", "type": "Warning", "reason": "GpuNodeIsolated", "action": "Isolate",
            "note": "Isolated by policy gpu-lost: GpuLost on GPU-1.",
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": "gpu-node-07", "uid": "8f0e"},
            "reportingController": "gpu-quarantine.dev/gpu-quarantine", "reportingInstance": "prod-a-pod-1",
        })
    );
    assert_eq!((metrics.events_of(EventResult::Sent), metrics.events_of(EventResult::Failed)), (1, 0));
}

#[tokio::test]
async fn what_has_no_node_regards_the_namespace_and_repetitions_are_not_sent() {
    let world = World::new(Server::answering(201)).await;
    let unmapped = Notice { node: None, reason: Reason::Unmapped, ..isolated("a", false) };
    world.tell(unmapped.clone());
    world.tell(unmapped);
    let (events, _, metrics) = world.finish().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].1["regarding"], json!({"apiVersion": "v1", "kind": "Namespace", "name": "default"}));
    assert_eq!(metrics.events_of(EventResult::Repeated), 1);
}

#[tokio::test]
async fn a_refusal_is_counted_blocks_nobody_and_is_no_reason_not_to_try_again() {
    let world = World::new(Server::answering(403)).await;
    world.tell(isolated("a", false));
    world.tell(isolated("a", false));
    world.tell(isolated("b", false));
    let (events, _, metrics) = world.finish().await;
    assert_eq!(events.len(), 3);
    assert_eq!((metrics.events_of(EventResult::Sent), metrics.events_of(EventResult::Failed)), (0, 3));
}

#[tokio::test]
async fn what_does_not_fit_into_the_queue_is_counted_and_never_waited_for() {
    let world = World::new(Server::answering(201)).await;
    // The writer has no chance to run before the first await.
    for n in 0..QUEUE + 44 {
        world.tell(isolated(&format!("n{n}"), false));
    }
    assert_eq!(world.metrics.events_of(EventResult::Dropped), 44);
    let (events, _, metrics) = world.finish().await;
    assert_eq!(events.len(), 25, "the limit holds besides");
    assert_eq!(metrics.events_of(EventResult::Dropped), 44 + u64::try_from(QUEUE).unwrap() - 25);
}

#[tokio::test]
async fn nothing_is_written_when_events_are_turned_off() {
    let mut world = World::new(Server::answering(201)).await;
    Arc::make_mut(&mut world.config).events.enabled = false;
    world.tell(isolated("a", false));
    assert!(world.finish().await.0.is_empty());
}

#[tokio::test]
async fn an_exporter_that_does_not_tolerate_the_taint_is_told_of_and_the_list_is_kept() {
    let ours = json!([{"key": "gpu-quarantine.dev/isolated", "operator": "Exists"}]);
    let gpu = json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]);
    let daemonsets = vec![
        daemonset("node-exporter", "node-exporter", &gpu),
        daemonset("tolerant", "dcgm-exporter", &ours),
        daemonset("dcgm", "dcgm-exporter", &gpu),
    ];
    let world = World::new(Server { daemonsets: Ok(daemonsets), ..Server::answering(201) }).await;
    world.tell(isolated("a", true));
    world.tell(isolated("b", true));
    let (events, server, _) = world.finish().await;
    let reasons: Vec<_> = events.iter().map(|(_, e)| (e["regarding"]["name"].clone(), e["reason"].clone())).collect();
    let (one, two) = (json!("GpuNodeIsolated"), json!("GpuExporterNotTolerating"));
    assert_eq!(reasons, [("a".into(), one.clone()), ("a".into(), two.clone()), ("b".into(), one), ("b".into(), two)]);
    let note = events[1].1["note"].as_str().unwrap();
    assert!(note.starts_with("DaemonSet monitoring/dcgm does not tolerate gpu-quarantine.dev/isolated"), "{note}");
    assert_eq!(*server.lists.lock().unwrap(), 1);
}

#[tokio::test]
async fn daemonsets_that_may_not_be_listed_keep_no_event_from_being_written() {
    let world = World::new(Server { daemonsets: Err(403), ..Server::answering(201) }).await;
    world.tell(isolated("a", true));
    world.tell(isolated("b", true));
    let (events, server, metrics) = world.finish().await;
    assert_eq!((events.len(), *server.lists.lock().unwrap()), (2, 1));
    assert_eq!(metrics.events_of(EventResult::Failed), 0);
}

#[test]
fn names_and_instances_keep_within_the_bounds_of_the_api_server() {
    let long = format!("{}.{}", "a".repeat(199), "b".repeat(53));
    let notice = isolated(&long, false);
    let name = event_name(&long, &notice, "i", 7);
    assert!(NodeName::parse(&name).is_ok(), "{name}");
    assert_ne!(name, event_name(&long, &notice, "i", 8));
    assert_ne!(name, event_name(&long, &notice, "j", 7));
    assert_eq!(reporting_instance(&"i".repeat(63), &"h".repeat(253)).len(), MAX_INSTANCE);
}

#[test]
fn a_refusal_comes_with_what_to_set() {
    let config = policy::load("c", "release: {require: [resolved]}\n").unwrap();
    let advice = |code| advice(&CallError::Status(code, String::new()), &config);
    assert!(advice(403).contains("Allow `create` on events.events.k8s.io in the namespace default"));
    assert!(advice(404).contains("set events.namespace"));
    assert!(advice(422).contains("kube-system"));
    assert_eq!(advice(500), "");
}
