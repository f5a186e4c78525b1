//! The whole: exporters, Prometheus, Alertmanager, a relay, the service, the API server.

use std::{path::PathBuf, time::Duration};

use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    alertmanager::Alertmanager,
    exporter::{Edit, Exporter, Generation},
    harness::ApiServer,
    nodes::{Nodes, node, record, tainted},
    process::{eventually, in_path, required, unique},
    prometheus::{Prometheus, Wiring},
    relay::Relay,
    service::Service,
    times::Times,
};

const MISSING: &str = "tests of the whole pipeline need `prometheus` and `alertmanager` in the PATH (Debian: prometheus, \
                       prometheus-alertmanager)";

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
    /// The hold-down.
    pub(crate) after: &'static str,
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
            after: "6s",
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
    _permit: SemaphorePermit<'static>,
}

/// The configuration of the service: what is pulled from, if anything.
fn config(scope: &str, plan: &Plan, alertmanagers: &[Alertmanager]) -> String {
    let mut text = format!(
        "instance: {scope}\nscope: {{nodes: gq-test={scope}}}\nrelease: {{after: {}, require: [resolved]}}\n\
         guard:\n  max_isolated: {{count: 100, percent: 100}}\n",
        plan.after
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
        let mut this = Self { nodes, names, exporters, prometheuses: Vec::new(), alertmanagers, relay, service, _permit: permit };
        for i in 0..plan.prometheuses {
            let mut one = this.with_wiring(i, &this.addresses(), |wiring| Prometheus::prepare(&prometheus, plan.times, wiring));
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

    /// Do something with the wiring of a Prometheus that tells these Alertmanagers.
    pub(crate) fn with_wiring<T>(&self, replica: usize, alertmanagers: &[String], f: impl FnOnce(&Wiring<'_>) -> T) -> T {
        let exporters: Vec<_> = self.names.iter().cloned().zip(self.exporters.iter().map(Exporter::address)).collect();
        let replica = ["a", "b"][replica];
        f(&Wiring { exporters: &exporters, service: &self.service.address(), alertmanagers, replica })
    }

    /// The name of the first node, which most tests are about.
    pub(crate) fn node(&self) -> &str {
        &self.names[0]
    }

    /// Change something about the first node's GPUs.
    pub(crate) fn edit(&self, edit: Edit) {
        self.exporters[0].edit(edit);
    }

    /// What to look at when something did not come.
    pub(crate) fn tail(&self) -> String {
        let bodies: Vec<String> = self.relay.passed().iter().map(|p| format!("{} {:?} {}", p.at, p.answered, p.body)).collect();
        let bodies = bodies[bodies.len().saturating_sub(6)..].join("\n");
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
