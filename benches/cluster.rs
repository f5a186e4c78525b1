//! The service against a real API server on etcd (`KUBEBUILDER_ASSETS`), beside the bare calls that no service could do
//! without. Both sides run in turn, and the ratios are of neighbours: the machine is shared and its speed changes.
//!
//! `GPU_QUARANTINE_BENCH_LARGE=1` measures memory with 15,000 nodes as well, which takes minutes and 7 GB for the API server.

#![allow(clippy::expect_used, clippy::panic, missing_docs, reason = "a benchmark that cannot set itself up should stop")]

#[path = "support/alerts.rs"]
mod alerts;
#[allow(dead_code, reason = "tests use more of it")]
#[path = "../tests/support/kubernetes/harness.rs"]
mod harness;
#[allow(dead_code, reason = "tests use more of it")]
#[path = "../tests/support/kubernetes/process.rs"]
mod process;
#[path = "support/service.rs"]
mod service;
#[path = "support/table.rs"]
mod table;

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use alerts::node_name;
use futures::{StreamExt, stream};
use harness::ApiServer;
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use service::{PROGRAM, Service};
use table::{Table, median};

/// Nodes that the service writes, and as many that are written without it.
const OURS: Range<usize> = 0..500;
const BARE: Range<usize> = 500..1000;
const LARGE: usize = 15_000;
/// How many single isolations are timed.
const SINGLE: usize = 400;
/// How often 500 nodes are isolated each way.
const ROUNDS: usize = 5;
/// The best concurrency for bare patches; more only adds latency.
const BEST: usize = 8;
/// How many bodies are sent side by side.
const SENDERS: usize = 16;
const RECORD: &str = "gpu-quarantine.dev/record";

/// The value below which `percent` of the durations lie, in milliseconds.
fn percentile(durations: &[Duration], percent: usize) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let at = (sorted.len() * percent / 100).min(sorted.len() - 1);
    sorted[at].as_secs_f64() * 1000.0
}

struct Bench {
    nodes: Api<Node>,
    service: Service,
    /// A record as the service writes it, for bare patches of the same size.
    record: String,
}

async fn create(nodes: &Api<Node>, range: Range<usize>) {
    let work = range.map(|n| async move {
        let node: Node = serde_json::from_value(alerts::node(n)).expect("a node");
        nodes.create(&PostParams::default(), &node).await.expect("the node can be created");
    });
    stream::iter(work).buffer_unordered(SENDERS).collect::<Vec<()>>().await;
}

fn body(range: Range<usize>) -> Bytes {
    alerts::body(&range.map(|n| alerts::alert("GpuLost", n, 0)).collect::<Vec<_>>()).into()
}

/// Until the service has taken in what was written behind its back.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

impl Bench {
    async fn merge(&self, n: usize, patch: &Value) -> Duration {
        let begin = Instant::now();
        self.nodes.patch(&node_name(n), &PatchParams::default(), &Patch::Merge(patch)).await.expect("the patch is good");
        begin.elapsed()
    }

    /// What the service would write, of the same size, in a way that does not concern it.
    async fn bare(&self, n: usize, turn: usize) -> Duration {
        let taint = json!({ "key": "bench.example.com/isolated", "value": turn.to_string(), "effect": "NoSchedule" });
        let record = json!({ "bench.example.com/record": format!("{turn}{}", self.record) });
        self.merge(n, &json!({ "metadata": { "annotations": record }, "spec": { "taints": [taint] } })).await
    }

    async fn all_bare(&self, turn: usize) -> Duration {
        let begin = Instant::now();
        stream::iter(BARE.map(|n| self.bare(n, turn))).buffer_unordered(BEST).collect::<Vec<_>>().await;
        begin.elapsed()
    }

    async fn post_each(&self, outcome: &str) -> Duration {
        let bodies: Vec<Bytes> = OURS.map(|n| body(n..n + 1)).collect();
        let begin = Instant::now();
        let posts = bodies.into_iter().map(|body| self.service.post(body, 1, outcome));
        stream::iter(posts).buffer_unordered(SENDERS).collect::<Vec<_>>().await;
        begin.elapsed()
    }

    /// Our nodes as if nothing had been.
    async fn reset(&self) {
        let patch = json!({ "metadata": { "annotations": { RECORD: null } }, "spec": { "taints": null } });
        stream::iter(OURS.map(|n| self.merge(n, &patch))).buffer_unordered(BEST).collect::<Vec<_>>().await;
        settle().await;
    }

    async fn single(&self, table: &mut Table) {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for i in 0..SINGLE {
            let (there, here) = (BARE.start + i, OURS.start + i);
            if i % 2 == 0 {
                bare.push(self.bare(there, 0).await);
            }
            ours.push(self.service.post(body(here..here + 1), 1, "recorded").await);
            if i % 2 == 1 {
                bare.push(self.bare(there, 0).await);
            }
        }
        let both = |percent| (percentile(&bare, percent), percentile(&ours, percent));
        let ((bare50, ours50), (bare99, ours99)) = (both(50), both(99));
        table.tell("b  bare merge PATCH, p50 / p99", format!("{bare50:.1} / {bare99:.1} ms"));
        table.tell("b  POST to 200, node tainted, p50 / p99", format!("{ours50:.1} / {ours99:.1} ms"));
        table.bound("b  p50 against bare", ours50 / bare50, "x", 1.5);
        table.bound("b  p99 against bare", ours99 / bare99, "x", 2.5);
        self.reset().await;
    }

    async fn many(&self, table: &mut Table) {
        let whole = body(OURS);
        let (mut bare, mut one, mut each) = (Vec::new(), Vec::new(), Vec::new());
        let (mut again, mut each_again, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        let (mut written_again, mut read_again) = (0, 0);
        let calls = async || (self.service.calls("patch").await, self.service.calls("get").await);
        for round in 0..ROUNDS {
            let mut turn = async |turn: usize| {
                let took = self.all_bare(turn).await.as_secs_f64();
                bare.push(took);
                took
            };
            let beside = turn(1000 + round).await;
            let used = self.service.cpu();
            one.push(self.service.post(whole.clone(), OURS.len(), "recorded").await.as_secs_f64() / beside);
            cpu.push(self.service.cpu() - used);
            let before = calls().await;
            again.push(self.service.post(whole.clone(), OURS.len(), "unchanged").await.as_secs_f64() * 1e3);
            let between = calls().await;
            self.reset().await;
            let beside = turn(2000 + round).await;
            each.push(self.post_each("recorded").await.as_secs_f64() / beside);
            let before_each = calls().await;
            each_again.push(self.post_each("unchanged").await.as_secs_f64() * 1e3);
            let after = calls().await;
            written_again += between.0 - before.0 + after.0 - before_each.0;
            read_again += between.1 - before.1 + after.1 - before_each.1;
            self.reset().await;
        }
        table.tell("c  500 bare PATCHes, 8 side by side", format!("{:.0} ms", median(&bare) * 1e3));
        table.bound("c  500 nodes in one body, against bare", median(&one), "x", 1.3);
        table.bound("c  500 bodies of one node, against bare", median(&each), "x", 1.5);
        table.tell("c  the service's processor time for the one body", format!("{:.0} ms", median(&cpu)));
        let written = u32::try_from(written_again).expect("not that many");
        table.bound("c  writes by all the repeats", f64::from(written), "", 0.0);
        let repeats = ROUNDS * OURS.len() * 2;
        table.tell("c  reads by all the repeats", format!("{read_again} of {repeats}"));
        table.tell("c  the one body again", format!("{:.0} ms", median(&again)));
        table.tell("c  the 500 bodies again", format!("{:.0} ms", median(&each_again)));
    }
}

/// Memory some seconds after the first list.
async fn memory(service: &Service, table: &mut Table, nodes: &str, at_most: f64) {
    tokio::time::sleep(Duration::from_secs(5)).await;
    table.bound(&format!("d  resident with {nodes} nodes"), service.memory("VmRSS"), "MB", at_most);
    table.tell(&format!("d  its highest with {nodes} nodes"), format!("{:.1} MB", service.memory("VmHWM")));
}

async fn run(table: &mut Table) -> Option<()> {
    let server = ApiServer::start().await?;
    let nodes: Api<Node> = Api::all(server.client().await);
    println!("Creating 1,000 nodes.");
    create(&nodes, OURS.start..BARE.end).await;
    let size = nodes.get(&node_name(0)).await.map(|n| serde_json::to_vec(&n).unwrap_or_default().len()).expect("a node");
    table.tell("   a node", format!("{size} B"));

    let (service, _) = Service::start(&server.kubeconfig()).await;
    memory(&service, table, "1,000", 40.0).await;
    let mut bench = Bench { nodes: nodes.clone(), service, record: String::new() };
    bench.service.post(body(OURS), OURS.len(), "recorded").await;
    let first = nodes.get(&node_name(0)).await.expect("a node");
    bench.record = first.metadata.annotations.and_then(|mut a| a.remove(RECORD)).expect("a record");
    table.tell("   a record", format!("{} B", bench.record.len()));
    bench.all_bare(0).await;
    bench.reset().await;

    bench.single(table).await;
    bench.many(table).await;
    table.bound("d  resident after all that", bench.service.memory("VmRSS"), "MB", 40.0);
    drop(bench);

    if std::env::var_os("GPU_QUARANTINE_BENCH_LARGE").is_some_and(|v| v == "1") {
        println!("Creating {} more nodes.", LARGE - BARE.end);
        create(&nodes, BARE.end..LARGE).await;
        let (service, took) = Service::start(&server.kubeconfig()).await;
        table.tell("d  start to ready with 15,000 nodes", format!("{:.1} s", took.as_secs_f64()));
        memory(&service, table, "15,000", 120.0).await;
    } else {
        println!("15,000 nodes are left out; GPU_QUARANTINE_BENCH_LARGE=1 measures them (minutes, and 7 GB of memory).");
    }
    Some(())
}

fn main() {
    // `cargo test --benches` runs this as well.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let mut table = Table::default();
    let size = std::fs::metadata(PROGRAM).expect("the program was built").len();
    table.bound("e  the program, stripped", f64::from(u32::try_from(size).expect("not that large")) / 1e6, "MB", 15.0);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if runtime.block_on(run(&mut table)).is_none() {
        println!("\nNOT MEASURED: everything that needs an API server.");
    }
    table.print("a real API server");
}
