//! `demo`: the whole service on the embedded cluster, driven over HTTP by a recorded incident.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;

use super::{Failure, runtime, serve};
use crate::{cluster::snapshot::SnapshotCluster, engine::Step, metrics::Metrics, policy};

const CONFIG: &str = include_str!("../../fixtures/incident/config.yaml");
const CLUSTER: &str = include_str!("../../fixtures/clusters/prod-a.yaml");
const NODE: &str = "gpu-node-07";
/// The hold-down of the demo is 3 s; a machine that needs ten times that is not well.
const PATIENCE: Duration = Duration::from_secs(30);

/// The recorded bodies, and what a person would say while they arrive.
const INCIDENT: [(&str, &str); 6] = [
    ("GPU 0 of gpu-node-07 falls off the bus", include_str!("../../fixtures/incident/01-first-gpu-lost.json")),
    ("GPU 3 of the same node follows", include_str!("../../fixtures/incident/02-second-gpu-lost.json")),
    ("a user's program fails on GPU 5 (XID 31)", include_str!("../../fixtures/incident/03-user-bug.json")),
    (
        "the other Alertmanager peer delivers the same again",
        include_str!("../../fixtures/incident/04-duplicate-from-the-other-peer.json"),
    ),
    ("GPU 0 is well again, GPU 3 is not", include_str!("../../fixtures/incident/05-first-gpu-back.json")),
    ("GPU 3 is well again", include_str!("../../fixtures/incident/06-second-gpu-back.json")),
];

/// Run a recorded incident.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> Result<(), Failure> {
    runtime()?.block_on(demo())
}

async fn demo() -> Result<(), Failure> {
    let config = policy::load("fixtures/incident/config.yaml", CONFIG).map_err(|e| Failure::input(e.to_string()))?;
    let cluster = SnapshotCluster::load("fixtures/clusters/prod-a.yaml", CLUSTER, &config.domain)
        .map_err(|e| Failure::input(e.to_string()))?;
    let steps = Arc::new(Mutex::new(Vec::<Step>::new()));
    let sink = Arc::clone(&steps);
    let app = serve::assemble(
        config,
        Arc::new(cluster),
        Arc::new(Metrics::new()),
        Box::new(move |step| sink.lock().unwrap_or_else(PoisonError::into_inner).push(step)),
        serve::Options::default(),
    );
    let engine = Arc::clone(&app.engine);
    engine.refresh().await;
    let cannot = |what: &str, e: &dyn std::fmt::Display| Failure::unreachable(format!("cannot {what}: {e}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|e| cannot("listen on loopback", &e))?;
    let base = format!("http://{}", listener.local_addr().map_err(|e| cannot("tell the address", &e))?);
    let server = tokio::spawn(axum::serve(listener, Arc::new(app).router()).into_future());
    let ticks = tokio::spawn(serve::tick(engine));

    let show = Show { begin: Instant::now(), base, http: Client::builder(TokioExecutor::new()).build_http() };
    println!("The service runs at {} on an embedded cluster of 16 GPU nodes.", show.base);
    println!("Its hold-down is 3 s. Six recorded webhook bodies are posted to it.\n");
    let result = show.incident(&steps).await;
    server.abort();
    ticks.abort();
    result
}

struct Show {
    begin: Instant,
    base: String,
    http: Client<HttpConnector, Full<axum::body::Bytes>>,
}

impl Show {
    async fn incident(&self, steps: &Mutex<Vec<Step>>) -> Result<(), Failure> {
        for (what, body) in INCIDENT {
            self.line(what);
            let (status, answer) = self.call(Method::POST, "/api/v1/alerts", body).await?;
            if status != StatusCode::OK {
                return Err(Failure::finding(format!("the webhook answered {status}: {answer}")));
            }
            for result in answer["results"].as_array().into_iter().flatten() {
                let text = |name: &str| result[name].as_str().unwrap_or("-").to_owned();
                let gpu = text("alertname");
                println!("          {gpu:<20} {:<10} {}", text("outcome"), text("reason"));
            }
            self.node(steps).await?;
        }
        self.line("now the hold-down runs: nothing may fire for 3 s");
        let deadline = Instant::now() + PATIENCE;
        while self.state().await?["state"] != "free" {
            if Instant::now() > deadline {
                return Err(Failure::finding(format!("{NODE} was not released within {PATIENCE:?}")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let node = self.node(steps).await?;
        let left = node["taints"].as_array().map_or(0, Vec::len);
        if left > 0 || node["unschedulable"] == true {
            return Err(Failure::finding(format!("something was left behind on {NODE}: {node}")));
        }
        println!("\n{NODE} is back in service. What the service remembers of it:");
        for episode in node["history"].as_array().into_iter().flatten() {
            let text = |name: &str| episode[name].as_str().unwrap_or("-");
            let time = |name: &str| text(name).parse::<Timestamp>().map_or_else(|_| "-".to_owned(), |at| format!("{at:.3}"));
            println!("  {} on {} from {} to {}, ended by {}", text("alert"), text("gpu"), time("from"), time("to"), text("by"));
        }
        Ok(())
    }

    fn line(&self, what: &str) {
        println!("{:>7.3}s  {what}", self.begin.elapsed().as_secs_f64());
    }

    /// Print what changed on the node and where it stands.
    async fn node(&self, steps: &Mutex<Vec<Step>>) -> Result<Value, Failure> {
        let new: Vec<Step> = std::mem::take(&mut *steps.lock().unwrap_or_else(PoisonError::into_inner));
        for step in new {
            let policy = step.policy.map(|p| format!(" by policy {p}")).unwrap_or_default();
            self.line(&format!("{} {}{policy}: {}", step.action.to_uppercase(), step.node, step.reason));
        }
        let node = self.state().await?;
        let text = |name: &str| node[name].as_str().unwrap_or("-").to_owned();
        println!("          {NODE} is {}, waiting for {}", text("state"), text("waiting_for"));
        Ok(node)
    }

    async fn state(&self) -> Result<Value, Failure> {
        let (_, answer) = self.call(Method::GET, "/api/v1/nodes", "").await?;
        let nodes = answer["nodes"].as_array().cloned().unwrap_or_default();
        let node = nodes.into_iter().find(|n| n["name"] == NODE);
        node.ok_or_else(|| Failure::finding(format!("{NODE} is not in the list of nodes")))
    }

    async fn call(&self, method: Method, path: &str, body: &'static str) -> Result<(StatusCode, Value), Failure> {
        let failed = |e: &dyn std::fmt::Display| Failure::unreachable(format!("{path} on the demo's own service: {e}"));
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|e| failed(&e))?;
        let response = self.http.request(request).await.map_err(|e| failed(&e))?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|e| failed(&e))?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes).map_err(|e| failed(&e))?))
    }
}
