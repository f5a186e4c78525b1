//! The whole: exporters, Prometheus, Alertmanager, a relay, the service, the API server.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    alertmanager::Alertmanager,
    exporter::{Edit, Exporter, Generation},
    harness::ApiServer,
    nodes::{Nodes, node, record, tainted},
    process::{eventually, in_path, required, unique},
    prometheus::{Prometheus, Wiring},
    relay::{Passed, Relay},
    service::{Http, Service},
    times::Times,
};

const MISSING: &str = "tests of the whole pipeline need `prometheus` and `alertmanager` in the PATH (Debian: prometheus, \
                       prometheus-alertmanager)";

/// The names of replicas of Prometheus.
const REPLICAS: [&str; 2] = ["a", "b"];

/// A fault that is over when its field is well again: no person is needed for the release.
pub(crate) const FAULT: Edit = Edit::RowRemapPending { gpu: 0 };
/// Its alert.
pub(crate) const ALERT: &str = "GpuRowRemapPending";

/// How many of everything; `Plan::default()` is one of each.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) gpus: usize,
    pub(crate) prometheuses: usize,
    pub(crate) alertmanagers: usize,
    pub(crate) times: Times,
    /// Replaced in Alertmanager's configuration, which must have it.
    pub(crate) route: Vec<(&'static str, String)>,
    /// Whether the service pulls.
    pub(crate) pull: bool,
    /// The hold-down: three times `group_interval`.
    pub(crate) after: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            nodes: 1,
            gpus: 2,
            prometheuses: 1,
            alertmanagers: 1,
            times: Times::Compressed,
            route: Vec::new(),
            pull: false,
            after: Duration::from_secs(6),
        }
    }
}

impl Plan {
    /// One of each, and the service pulls.
    pub(crate) fn pulling() -> Self {
        Self { pull: true, ..Self::default() }
    }

    /// Replace something in Alertmanager's configuration.
    pub(crate) fn route(mut self, from: &'static str, to: impl Into<String>) -> Self {
        self.route.push((from, to.into()));
        self
    }
}

/// All of it, running. At most two at once.
pub(crate) struct Pipeline {
    pub(crate) nodes: Nodes,
    pub(crate) names: Vec<String>,
    pub(crate) exporters: Vec<Exporter>,
    pub(crate) prometheuses: Vec<Prometheus>,
    pub(crate) alertmanagers: Vec<Alertmanager>,
    pub(crate) relay: Relay,
    pub(crate) service: Service,
    after: Duration,
    http: Http,
    _permit: SemaphorePermit<'static>,
}

/// The configuration of the service: what is pulled from, if anything.
fn config(scope: &str, plan: &Plan, alertmanagers: &[Alertmanager]) -> String {
    let mut text = format!(
        "instance: {scope}\nscope: {{nodes: gq-test={scope}}}\nrelease: {{after: {}s, require: [resolved]}}\n\
         guard: {{max_isolated: {{count: 100, percent: 100}}}}\nevents: {{namespace: kube-system}}\n",
        plan.after.as_secs()
    );
    if plan.pull {
        let urls: Vec<String> = alertmanagers.iter().map(|a| format!("{:?}", a.url())).collect();
        text += &format!(
            "sources:\n  alertmanagers: {{urls: [{}], receiver: gpu-quarantine, poll_interval: 2s, settle: 4s}}\n",
            urls.join(", ")
        );
    }
    text
}

impl Pipeline {
    /// Start everything and wait until all see each other. `None` if a program is missing, which is said then.
    pub(crate) async fn start(plan: Plan) -> Option<Self> {
        static ROOM: Semaphore = Semaphore::const_new(2);
        let find = |name| required(in_path(name), MISSING);
        let (prometheus, alertmanager): (PathBuf, PathBuf) = (find("prometheus")?, find("alertmanager")?);
        let server = ApiServer::shared().await?;
        let permit = ROOM.acquire().await.expect("it is never closed");
        let nodes = Nodes::of(server.client().await);
        let scope = unique("pipe");
        let mut names = Vec::new();
        let mut exporters = Vec::new();
        for i in 0..plan.nodes {
            let name = format!("{scope}-{i}");
            nodes.create(node(&name, &scope)).await;
            let generation = if i % 2 == 0 { Generation::V4_8_3 } else { Generation::V4_5 };
            exporters.push(Exporter::start(&name, generation, plan.gpus).await);
            names.push(name);
        }
        // The service needs the addresses of Alertmanager, and Alertmanager that of the relay.
        let mut service = Service::prepare(&server.kubeconfig(), "", &[]);
        let relay = Relay::to(service.webhook()).await;
        let mut route = plan.times.route();
        let url = ("http://127.0.0.1:9876/api/v1/alerts", relay.webhook());
        for (from, to) in [&url].into_iter().chain(&plan.route) {
            assert!(route.contains(from), "{from} is not in\n{route}");
            route = route.replace(from, to);
        }
        let alertmanagers = Alertmanager::prepare(&alertmanager, &route, plan.alertmanagers);
        service.configure(&config(&scope, &plan, &alertmanagers));
        service.launch();
        let mut this = Self {
            nodes,
            names,
            exporters,
            prometheuses: Vec::new(),
            alertmanagers,
            relay,
            service,
            after: plan.after,
            http: Http::new(),
            _permit: permit,
        };
        for replica in REPLICAS.into_iter().take(plan.prometheuses) {
            let (exporters, alertmanagers, service) = (this.targets(), this.addresses(), this.service.address());
            let wiring = Wiring { exporters: &exporters, service: &service, alertmanagers: &alertmanagers, replica, lost: None };
            let mut one = Prometheus::prepare(&prometheus, plan.times, &wiring);
            one.launch();
            this.prometheuses.push(one);
        }
        for one in &mut this.alertmanagers {
            one.launch();
        }
        this.service.wait_ready().await;
        for one in &this.alertmanagers {
            one.wait_ready().await;
            if plan.alertmanagers > 1 {
                one.wait_peers(plan.alertmanagers).await;
            }
        }
        for one in &this.prometheuses {
            one.wait_ready(plan.nodes).await;
        }
        Some(this)
    }

    /// The addresses of all Alertmanagers.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.alertmanagers.iter().map(Alertmanager::address).collect()
    }

    /// The name of the first node, which most tests are about.
    pub(crate) fn node(&self) -> &str {
        &self.names[0]
    }

    /// Change something about the first node's GPUs.
    pub(crate) fn edit(&self, edit: Edit) {
        self.exporters[0].edit(edit);
    }

    /// The hold-down.
    pub(crate) fn hold_down(&self) -> Duration {
        self.after
    }

    /// Let the service pull now, and wait until it did.
    pub(crate) async fn pull(&self) {
        let answer = self.http.send("POST", &format!("http://{}/api/v1/pull", self.service.address()), None).await;
        assert!(matches!(answer, Ok((200, _))), "{answer:?}\n{}", self.tail());
    }

    /// Let it pull again and again for so long.
    pub(crate) async fn pulls_for(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.pull().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Make Prometheus forget what is over. It tells that for 15 minutes; a person who ends a silence seldom comes so soon.
    pub(crate) async fn forget_ends(&mut self) {
        for one in &mut self.prometheuses {
            one.kill9();
            one.launch();
            one.wait_ready(self.names.len()).await;
        }
    }

    /// Wait for longer than the hold-down: whatever may be given back is.
    pub(crate) async fn wait_settled(&self) {
        let end = Instant::now() + self.after + Duration::from_secs(2);
        eventually(
            "the hold-down has passed",
            self.after * 3,
            async || if Instant::now() > end { Ok(()) } else { Err("not yet") },
        )
        .await;
    }

    /// Give a Prometheus these Alertmanagers, and let it lose a field.
    pub(crate) async fn rewire(&self, replica: usize, alertmanagers: &[String], lost: Option<&str>) {
        let exporters = self.targets();
        let service = self.service.address();
        let wiring = Wiring { exporters: &exporters, service: &service, alertmanagers, replica: REPLICAS[replica], lost };
        self.prometheuses[replica].rewire(&wiring).await;
    }

    fn targets(&self) -> Vec<(String, String)> {
        self.names.iter().cloned().zip(self.exporters.iter().map(Exporter::address)).collect()
    }

    /// What to look at when something did not come.
    pub(crate) fn tail(&self) -> String {
        let bodies: Vec<String> = self.relay.passed().iter().map(Passed::brief).collect();
        let bodies = bodies[bodies.len().saturating_sub(12)..].join("\n");
        format!("{}\nlast bodies:\n{bodies}", self.service.tail())
    }

    /// Wait until a node is isolated with so many claims; the node.
    pub(crate) async fn wait_isolated(&self, name: &str, claims: usize) -> Value {
        eventually(&format!("{name} is isolated with {claims} claims"), Duration::from_secs(30), async || {
            let node = self.nodes.get(name).await;
            let found = record(&node).map_or(0, |r| r["claims"].as_array().map_or(0, Vec::len));
            if tainted(&node) && found == claims { Ok(node) } else { Err(format!("{:?}\n{}", record(&node), self.tail())) }
        })
        .await
    }

    /// Wait until a node is given back; the node.
    pub(crate) async fn wait_free(&self, name: &str) -> Value {
        eventually(&format!("{name} is free"), Duration::from_secs(40), async || {
            let node = self.nodes.get(name).await;
            if tainted(&node) { Err(format!("{:?}\n{}", record(&node), self.tail())) } else { Ok(node) }
        })
        .await
    }

    /// Wait until a body came with such an alert.
    pub(crate) async fn wait_passed(&self, alert: &str, node: &str, status: &str) {
        eventually(&format!("a body with {alert} of {node} {status}"), Duration::from_secs(30), async || {
            if self.relay.passed().iter().any(|p| p.tells(alert, node, status)) { Ok(()) } else { Err(self.tail()) }
        })
        .await;
    }
}
