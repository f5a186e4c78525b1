//! The service without a socket: an engine on an embedded cluster and a clock that only moves when told to, behind the real
//! router.

#![allow(dead_code, unused_imports, reason = "each test program uses a part of it")]

mod bodies;
mod evictions;
mod faulty;

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, StatusCode},
    response::Response,
};
use gpu_quarantine::{
    cluster::{Cluster as _, snapshot::SnapshotCluster},
    engine::{Clock, Engine, ReloadRefused, Step, VirtualClock},
    locate::NodeName,
    metrics::Metrics,
    policy::{self, Config},
    quarantine::{Hand, Judgement, release_by_hand},
    server::App,
};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tower::ServiceExt;

pub(crate) use bodies::{Sent, body, lost, sent};
pub(crate) use evictions::Meets;
pub(crate) use faulty::{Fault, Faulty};

/// The key of our taint, unless a test configures another.
pub(crate) const TAINT: &str = "gpu-quarantine.dev/isolated";
/// The annotation with our record.
pub(crate) const RECORD: &str = "gpu-quarantine.dev/record";
/// Where every clock begins: a moment after the alerts of `fixtures/traps`.
pub(crate) const BEGIN: &str = "2026-11-29T20:16:00Z";

/// One policy per action.
pub(crate) const CONFIG: &str = "
scope: {nodes: nvidia.com/gpu.present=true}
release: {after: 10m, require: [resolved]}
policies:
  - {name: watch, match: ['remediation=\"observe\"'], action: observe}
  - {name: blind, match: ['remediation=\"freeze\"'], action: freeze}
  - {name: alive, match: ['alertname=\"Watchdog\"'], action: heartbeat}
  - {name: gpu-lost, match: ['severity=\"critical\"'], action: isolate}
";

pub(crate) fn config(text: &str) -> Config {
    policy::load("test.yaml", text).unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn name(node: &str) -> NodeName {
    NodeName::parse(node).unwrap()
}

pub(crate) fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// A file of `fixtures/`.
pub(crate) fn fixture(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(file);
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The cluster of `fixtures/clusters/prod-a.yaml`.
pub(crate) fn prod_a() -> SnapshotCluster {
    let text = String::from_utf8(fixture("clusters/prod-a.yaml")).unwrap();
    SnapshotCluster::load("prod-a.yaml", &text, "gpu-quarantine.dev").unwrap()
}

/// The running service.
pub(crate) struct Service {
    pub(crate) cluster: Arc<Faulty>,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) app: Arc<App>,
    pub(crate) steps: Arc<Mutex<Vec<Step>>>,
}

impl Service {
    /// On prod-a, with [`CONFIG`].
    pub(crate) async fn start() -> Self {
        Self::with(CONFIG).await
    }

    /// On prod-a, with this configuration.
    pub(crate) async fn with(text: &str) -> Self {
        Self::on(Arc::new(Faulty::around(prod_a())), text, at(BEGIN)).await
    }

    /// On this cluster, as it is, from this moment on.
    pub(crate) async fn on(cluster: Arc<Faulty>, text: &str, begin: Timestamp) -> Self {
        Self::assemble(cluster, text, begin, |_| ()).await
    }

    /// On prod-a, with other limits.
    pub(crate) async fn limited(limits: impl FnOnce(&mut App)) -> Self {
        Self::assemble(Arc::new(Faulty::around(prod_a())), CONFIG, at(BEGIN), limits).await
    }

    async fn assemble(cluster: Arc<Faulty>, text: &str, begin: Timestamp, limits: impl FnOnce(&mut App)) -> Self {
        let (clock, metrics) = (Arc::new(VirtualClock::at(begin)), Arc::new(Metrics::new()));
        let steps = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&steps);
        let config = config(text);
        metrics.expect_policies(&config);
        let engine = Engine::new(
            Arc::clone(&cluster) as Arc<_>,
            config,
            Arc::clone(&clock) as Arc<dyn Clock>,
            Arc::clone(&metrics),
            Box::new(move |step| sink.lock().unwrap().push(step)),
        );
        let engine = Arc::new(engine.after_a_pull());
        engine.refresh().await;
        let mut app = App::new(Arc::clone(&engine), metrics, Box::new(|| Box::pin(async { Ok(()) })));
        limits(&mut app);
        Self { cluster, clock, engine, app: Arc::new(app), steps }
    }

    /// The process dies and another one starts, on the same cluster and at the same moment.
    pub(crate) async fn restart(self, text: &str) -> Self {
        let (cluster, now) = (Arc::clone(&self.cluster), self.clock.now());
        drop(self);
        Self::on(cluster, text, now).await
    }

    /// One more replica.
    pub(crate) async fn another(&self) -> Self {
        Self::on(Arc::clone(&self.cluster), CONFIG, self.clock.now()).await
    }

    pub(crate) fn router(&self) -> Router {
        Arc::clone(&self.app).router()
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> Response {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        self.router().oneshot(request).await.unwrap()
    }

    /// Deliver a body: the status and the answer.
    pub(crate) async fn post(&self, body: impl Into<Body>) -> (u16, Value) {
        read(self.send("POST", "/api/v1/alerts", body).await).await
    }

    /// Deliver alerts, expect a 200, and give the outcomes.
    pub(crate) async fn outcomes(&self, alerts: &[Sent]) -> Vec<String> {
        outcomes(&self.post(body(alerts)).await)
    }

    /// Deliver a file of `fixtures/`, expect a 200, and give the outcomes.
    pub(crate) async fn recorded(&self, file: &str) -> Vec<String> {
        outcomes(&self.post(fixture(file)).await)
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let response = self.send("GET", path, Body::empty()).await;
        let status = response.status().as_u16();
        (status, String::from_utf8(bytes(response).await.to_vec()).unwrap())
    }

    /// The sample of `/metrics` with exactly this name and these labels, as written there.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let value = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
    }

    /// A node as `/api/v1/nodes` shows it.
    pub(crate) async fn view(&self, node: &str) -> Value {
        let (status, text) = self.get("/api/v1/nodes").await;
        assert_eq!(status, 200, "{text}");
        let all: Value = serde_json::from_str(&text).unwrap();
        let found = all["nodes"].as_array().unwrap().iter().find(|n| n["name"] == node);
        found.unwrap_or_else(|| panic!("{node} is not in {all}")).clone()
    }

    /// The state of a node, in a word.
    pub(crate) async fn state(&self, node: &str) -> String {
        self.view(node).await["state"].as_str().unwrap().to_owned()
    }

    /// The record of a node, from the cluster itself.
    pub(crate) fn record(&self, node: &str) -> Option<Value> {
        let raw = self.cluster.raw(node);
        raw["metadata"]["annotations"][RECORD].as_str().map(|text| serde_json::from_str(text).unwrap())
    }

    /// The keys of a node's taints, from the cluster itself.
    pub(crate) fn taints(&self, node: &str) -> Vec<String> {
        let raw = self.cluster.raw(node);
        let taints = raw["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.iter().map(|t| t["key"].as_str().unwrap().to_owned()).collect()
    }

    /// Whether our taint stands on a node, in the cluster itself.
    pub(crate) fn tainted(&self, node: &str) -> bool {
        self.taints(node).iter().any(|key| key == TAINT)
    }

    /// What the clock says.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Let time pass; what becomes due is done when it is due.
    pub(crate) async fn pass(&self, time: &str) {
        let by = SignedDuration::try_from(humantime::parse_duration(time).unwrap()).unwrap();
        let until = self.clock.now() + by;
        loop {
            let (due, eviction) = (self.engine.next_due(), self.engine.next_eviction());
            let Some(next) = [due, eviction].into_iter().flatten().min().filter(|next| *next <= until) else { break };
            self.clock.advance_to(next);
            if due == Some(next) {
                self.engine.run_due().await;
            } else {
                self.engine.run_evictions().await;
            }
        }
        self.clock.advance_to(until);
    }

    pub(crate) async fn reload(&self, text: &str) -> Result<(), ReloadRefused> {
        self.engine.reload(config(text)).await
    }

    /// What `nodes release` writes, beside the service.
    pub(crate) async fn release_by_hand(&self, node: &str, judgement: Option<Judgement>) {
        let node = self.cluster.get(&name(node)).await.unwrap().unwrap();
        let hand = Hand { who: "alice", judgement, reason: None };
        let release = release_by_hand(&node, &self.engine.config(), &hand, self.clock.now()).unwrap().unwrap();
        self.cluster.patch(&node.name, &release.patch).await.unwrap();
        self.engine.refresh().await;
    }

    /// The actions on a node so far, in order.
    pub(crate) fn actions(&self, node: &str) -> Vec<&'static str> {
        self.steps.lock().unwrap().iter().filter(|s| s.node.as_str() == node).map(|s| s.action).collect()
    }
}

/// The body of a response.
pub(crate) async fn bytes(response: Response) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// The status and the JSON of a response.
pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status();
    assert!(!status.is_redirection(), "a redirect loses the body: {status}");
    let body = bytes(response).await;
    let json = serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&body)));
    (status.as_u16(), json)
}

/// The outcomes of a 200, in order.
pub(crate) fn outcomes((status, answer): &(u16, Value)) -> Vec<String> {
    assert_eq!(*status, StatusCode::OK.as_u16(), "{answer}");
    let results = answer["results"].as_array().unwrap();
    results.iter().map(|r| r["outcome"].as_str().unwrap().to_owned()).collect()
}
