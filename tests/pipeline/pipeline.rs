//! The whole: exporters, Prometheus, Alertmanager, a relay, the service, the API server.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    alertmanager::Alertmanager,
    exporter::{Edit, Exporter, Generation, uuid},
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

/// For how long is waited: the machines of CI have much to do.
const PATIENCE: Duration = Duration::from_secs(90);

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
    /// Whether a release needs evidence from the first Prometheus.
    pub(crate) evidence: bool,
    /// Files of rules that Prometheus does not get.
    pub(crate) without: &'static [&'static str],
    /// The hold-down: three times `group_interval`.
    pub(crate) after: Duration,
    /// More of the service's configuration.
    pub(crate) more: &'static str,
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
            evidence: false,
            without: &[],
            after: Duration::from_secs(6),
            more: "",
        }
    }
}

impl Plan {
    /// One of each, and the service pulls.
    pub(crate) fn pulling() -> Self {
        Self { pull: true, ..Self::default() }
    }

    /// One of each, and the service pulls, and asks for evidence. No alert tells that nobody sees: evidence must do alone.
    pub(crate) fn proving() -> Self {
        Self { evidence: true, without: &["blind.yaml"], after: Duration::from_secs(8), ..Self::pulling() }
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

/// The configuration of the service: what is pulled from and asked, if anything.
fn config(scope: &str, plan: &Plan, alertmanagers: &[Alertmanager], prometheuses: &[Prometheus]) -> String {
    let mut text = format!(
        "instance: {scope}\nscope: {{nodes: gq-test={scope}}}\nledger: {{namespace: kube-system, name: {scope}}}\nrelease: {{after: {}s, require: [{}]}}\n\
         guard: {{max_isolated: {{count: 100, percent: 100}}, pools: {{max_isolated: {{count: 100, percent: 100}}, min_healthy: 0}}, max_new_isolations: {{count: 1000}}}}\nevents: {{namespace: kube-system}}\n",
        plan.after.as_secs(),
        if plan.evidence { "evidence" } else { "resolved" },
    );
    if plan.pull {
        let urls: Vec<String> = alertmanagers.iter().map(|a| format!("{:?}", a.url())).collect();
        text += &format!(
            "sources:\n  alertmanagers: {{urls: [{}], receiver: gpu-quarantine, poll_interval: 2s, settle: 4s}}\n",
            urls.join(", ")
        );
    }
    if let Some(prometheus) = prometheuses.first().filter(|_| plan.evidence) {
        text += &format!("  prometheus: {{query_url: {:?}, poll_interval: 5s, timeout: 3s}}\n", prometheus.url());
    }
    text + plan.more
}

/// What the kubelet says of a machine.
fn machine(name: &str, gpus: usize) -> Value {
    json!({
        // One that a machine could have.
        "nodeInfo": {"systemUUID": uuid(name, 0).trim_start_matches("GPU-"), "bootID": unique("boot")},
        "capacity": {"nvidia.com/gpu": gpus.to_string()},
    })
}

/// What is scraped: nodes, and the addresses of their exporters.
fn targets(names: &[String], exporters: &[Exporter]) -> Vec<(String, String)> {
    names.iter().cloned().zip(exporters.iter().map(Exporter::address)).collect()
}

impl Pipeline {
    /// Start everything and wait until all see each other. `None` if a program is missing, which is said then.
    pub(crate) async fn start(plan: Plan) -> Option<Self> {
        let server = ApiServer::shared().await?;
        let nodes = Nodes::of(server.client().await);
        let scope = unique("pipe");
        let names: Vec<String> = (0..plan.nodes).map(|i| format!("{scope}-{i}")).collect();
        for name in &names {
            nodes.create(node(name, &scope)).await;
            nodes.set_status(name, machine(name, plan.gpus)).await;
        }
        Self::around(server, &scope, names, plan).await
    }

    /// The same on nodes of `scope` that are there.
    pub(crate) async fn around(server: &ApiServer, scope: &str, names: Vec<String>, plan: Plan) -> Option<Self> {
        static ROOM: Semaphore = Semaphore::const_new(2);
        let find = |name| required(in_path(name), MISSING);
        let (prometheus, alertmanager): (PathBuf, PathBuf) = (find("prometheus")?, find("alertmanager")?);
        let permit = ROOM.acquire().await.expect("it is never closed");
        let nodes = Nodes::of(server.client().await);
        let mut exporters = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let generation = if i % 2 == 0 { Generation::V4_8_3 } else { Generation::V4_5 };
            exporters.push(Exporter::start(name, generation, plan.gpus).await);
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
        let targets = targets(&names, &exporters);
        let told: Vec<String> = alertmanagers.iter().map(Alertmanager::address).collect();
        let address = service.address();
        let replicas = REPLICAS.into_iter().take(plan.prometheuses).map(|replica| {
            let wiring = Wiring { exporters: &targets, service: &address, alertmanagers: &told, replica, lost: None };
            Prometheus::prepare(&prometheus, plan.times, plan.without, &wiring)
        });
        let prometheuses: Vec<Prometheus> = replicas.collect();
        service.configure(&config(scope, &plan, &alertmanagers, &prometheuses));
        service.launch();
        let mut this = Self {
            nodes,
            names,
            exporters,
            prometheuses,
            alertmanagers,
            relay,
            service,
            after: plan.after,
            http: Http::new(),
            _permit: permit,
        };
        for one in &mut this.prometheuses {
            one.launch();
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
        let exporters = targets(&self.names, &self.exporters);
        let service = self.service.address();
        let wiring = Wiring { exporters: &exporters, service: &service, alertmanagers, replica: REPLICAS[replica], lost };
        self.prometheuses[replica].rewire(&wiring).await;
    }

    /// What to look at when something did not come.
    pub(crate) fn tail(&self) -> String {
        let bodies: Vec<String> = self.relay.passed().iter().map(Passed::brief).collect();
        let bodies = bodies[bodies.len().saturating_sub(12)..].join("\n");
        format!("{}\nlast bodies:\n{bodies}", self.service.tail())
    }

    /// Wait until a node is isolated with so many claims; the node.
    pub(crate) async fn wait_isolated(&self, name: &str, claims: usize) -> Value {
        eventually(&format!("{name} is isolated with {claims} claims"), PATIENCE, async || {
            let node = self.nodes.get(name).await;
            let found = record(&node).map_or(0, |r| r["claims"].as_array().map_or(0, Vec::len));
            if tainted(&node) && found == claims { Ok(node) } else { Err(format!("{:?}\n{}", record(&node), self.tail())) }
        })
        .await
    }

    /// Wait until a node is given back; the node.
    pub(crate) async fn wait_free(&self, name: &str) -> Value {
        eventually(&format!("{name} is free"), PATIENCE, async || {
            let node = self.nodes.get(name).await;
            if tainted(&node) { Err(format!("{:?}\n{}", record(&node), self.tail())) } else { Ok(node) }
        })
        .await
    }

    /// Wait until the service shows a node in this state, waiting for something that is said in these words.
    pub(crate) async fn wait_waiting(&self, name: &str, state: &str, words: &[&str]) {
        eventually(&format!("{name} is {state} and waits for {words:?}"), PATIENCE, async || {
            let node = self.service.node(name).await;
            let waits = node["waiting_for"].as_str().unwrap_or_default();
            let right = node["state"] == state && words.iter().all(|word| waits.contains(word));
            if right { Ok(()) } else { Err(format!("{}: {waits}\n{}", node["state"], self.tail())) }
        })
        .await;
    }

    /// It waits for that, and does so when the hold-down is over as well: see [`Self::wait_waiting`].
    pub(crate) async fn stays(&self, name: &str, state: &str, words: &[&str]) {
        self.wait_waiting(name, state, words).await;
        self.wait_settled().await;
        self.wait_waiting(name, state, words).await;
    }

    /// Wait until evidence has given a node back, which may not be before it was good for the hold-down since `good`.
    pub(crate) async fn wait_proven(&self, name: &str, good: Timestamp) {
        let free = self.wait_free(name).await;
        let history = record(&free).expect("a record")["history"].clone();
        for episode in history.as_array().expect("episodes") {
            assert_eq!(episode["by"], "evidence", "{history}");
            let to: Timestamp = episode["to"].as_str().expect("a time").parse().expect("a time");
            assert!(to >= good + self.after, "good since {good}: {history}");
        }
    }

    /// A node's machine is booted again.
    pub(crate) async fn reboot(&self, name: &str) {
        self.nodes.set_status(name, json!({"nodeInfo": {"bootID": unique("boot")}})).await;
    }

    /// A node is deleted and registers anew, on the same machine, with nothing of ours.
    pub(crate) async fn register_anew(&self, name: &str) {
        let former = self.nodes.get(name).await;
        self.nodes.delete(name).await;
        let scope = former["metadata"]["labels"]["gq-test"].as_str().expect("its scope");
        self.nodes.create(node(name, scope)).await;
        self.nodes.set_status(name, former["status"].clone()).await;
    }

    /// Wait until a body came with such an alert.
    pub(crate) async fn wait_passed(&self, alert: &str, node: &str, status: &str) {
        eventually(&format!("a body with {alert} of {node} {status}"), Duration::from_secs(90), async || {
            if self.relay.passed().iter().any(|p| p.tells(alert, node, status)) { Ok(()) } else { Err(self.tail()) }
        })
        .await;
    }
}
