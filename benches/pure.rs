//! What costs processor time only: reading a body, deciding, rendering the metrics. Ratios are taken from runs of both sides
//! in turn, since a shared machine changes its speed between two benchmarks.

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark that cannot set itself up should stop")]

#[path = "support/alerts.rs"]
mod alerts;
#[path = "support/table.rs"]
mod table;

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::Criterion;
use gpu_quarantine::{
    alert::{Alert, parse_body},
    cluster::{node_facts, snapshot::SnapshotCluster},
    engine::{Engine, Plan, SystemClock},
    locate::{Inventory, NodeFacts, NodeName},
    metrics::Metrics,
    policy::{self, Config},
    quarantine::{Context, Decision, Heard, Known, Muster, Room, Rule, Told, decide},
};
use serde_json::{Value, json};
use table::{Table, median};

static EMPTY: Muster = Muster::new();

const NODES: usize = 250;
const GPUS: usize = 8;
const ROUNDS: usize = 60;

fn raw_node(n: usize) -> Value {
    let mut raw = alerts::node(n);
    raw["metadata"]["uid"] = format!("uid-{n}").into();
    raw["metadata"]["resourceVersion"] = "1".into();
    raw
}

fn facts(n: usize, config: &Config) -> NodeFacts {
    node_facts(&raw_node(n), &config.domain).unwrap()
}

fn heard<'a>(plan: &Plan<'a>) -> Heard<'a> {
    let rule = plan.policy.map(|p| Rule { policy: &p.name, action: p.action });
    Heard { alert: plan.alert, gpu: plan.gpu.clone(), rule, muted: None }
}

fn decide_now(node: &NodeFacts, heard: &[Heard<'_>], config: &Config) -> Decision {
    let now = "2026-03-01T12:00:10Z".parse().unwrap();
    decide(node, heard, &Context { config, room: Room::In(&EMPTY), now, told: Told::Pushed, known: Known::default() })
}

/// All that is done with a body between the wire and the writes.
fn parse_and_fold(body: &[u8], config: &Config, nodes: &Inventory) -> usize {
    let delivery = parse_body(body).unwrap();
    let mut by_node: BTreeMap<NodeName, Vec<Heard<'_>>> = BTreeMap::new();
    for alert in delivery.alerts.iter().flatten() {
        let plan = Plan::of(alert, config, nodes, None);
        let Ok((node, _)) = &plan.target else { continue };
        by_node.entry(node.clone()).or_default().push(heard(&plan));
    }
    let decided = by_node.iter().map(|(name, heard)| decide_now(nodes.get(name).unwrap(), heard, config));
    decided.filter(|d| d.patch.is_some()).count()
}

fn timed<T>(work: impl FnOnce() -> T) -> f64 {
    let begin = Instant::now();
    black_box(work());
    begin.elapsed().as_secs_f64()
}

/// The node after its decision was written.
fn written(node: &NodeFacts, decision: &Decision, config: &Config) -> NodeFacts {
    let patch = decision.patch.as_ref().unwrap();
    let mut node = node.clone();
    for (name, value) in patch["metadata"]["annotations"].as_object().unwrap() {
        node.annotations.insert(name.clone(), value.as_str().unwrap().to_owned());
    }
    let raw = json!({ "metadata": { "name": "n", "uid": "u", "resourceVersion": "2" }, "spec": patch["spec"] });
    node.taints = node_facts(&raw, &config.domain).unwrap().taints;
    node
}

fn body_of_a_fleet(criterion: &mut Criterion, table: &mut Table, config: &Config) {
    let all: Vec<Value> = (0..NODES).flat_map(|n| (0..GPUS).map(move |g| alerts::alert("GpuLost", n, g))).collect();
    let body = alerts::body(&all);
    let mut nodes = Inventory::default();
    (0..NODES).for_each(|n| nodes.insert(facts(n, config)));
    assert_eq!(parse_and_fold(&body, config, &nodes), NODES);

    table.tell("body of 2,000 alerts", format!("{} B/alert", body.len() / all.len()));
    let mut group = criterion.benchmark_group("body of 2,000 alerts");
    group.sample_size(20);
    group.bench_function("serde_json::Value", |b| b.iter(|| serde_json::from_slice::<Value>(&body).unwrap()));
    group.bench_function("parse", |b| b.iter(|| parse_body(&body).unwrap()));
    group.bench_function("parse and fold", |b| b.iter(|| parse_and_fold(&body, config, &nodes)));
    group.finish();

    let (mut bare, mut parse, mut fold) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(timed(|| serde_json::from_slice::<Value>(&body).unwrap()));
        parse.push(timed(|| parse_body(&body).unwrap()));
        fold.push(timed(|| parse_and_fold(&body, config, &nodes)));
    }
    let against = |times: &[f64]| median(&times.iter().zip(&bare).map(|(t, b)| t / b).collect::<Vec<_>>());
    table.tell("a  bare serde_json::Value", format!("{:.2} ms", median(&bare) * 1e3));
    table.tell("a  parse alone, against bare", format!("{:.2} x", against(&parse)));
    table.tell("a  parse and fold", format!("{:.2} ms", median(&fold) * 1e3));
    table.bound("a  parse and fold, against bare", against(&fold), "x", 2.0);
}

fn one_decision(criterion: &mut Criterion, table: &mut Table, config: &Config) {
    let node = facts(0, config);
    let alerts: Vec<Alert> = {
        let names = ["GpuLost", "GpuEccUncorrectable"];
        let all: Vec<Value> = names.iter().flat_map(|name| (0..GPUS).map(move |g| alerts::alert(name, 0, g))).collect();
        parse_body(&alerts::body(&all)).unwrap().alerts.into_iter().flatten().collect()
    };
    let mut nodes = Inventory::default();
    nodes.insert(node.clone());
    let heard: Vec<Heard<'_>> = alerts.iter().map(|a| heard(&Plan::of(a, config, &nodes, None))).collect();
    let (one, all) = (&heard[..1], &heard[..]);
    let isolated = written(&node, &decide_now(&node, one, config), config);
    let full = written(&node, &decide_now(&node, all, config), config);
    assert!(decide_now(&isolated, one, config).patch.is_none() && decide_now(&full, all, config).patch.is_none());

    let cases = [
        ("fresh isolate, 1 alert", &node, one),
        ("repeat, 1 alert", &isolated, one),
        ("fresh isolate, 16 alerts", &node, all),
        ("repeat of 1 alert on a node with 16 claims", &full, one),
        ("repeat of 16 alerts on a node with 16 claims", &full, all),
    ];
    let mut group = criterion.benchmark_group("one decision");
    for (name, node, heard) in cases {
        group.bench_function(name, |b| b.iter(|| decide_now(node, heard, config)));
        let times: Vec<f64> = (0..ROUNDS).map(|_| timed(|| decide_now(node, heard, config))).collect();
        table.tell(&format!("a  decision: {name}"), format!("{:.1} us", median(&times) * 1e6));
    }
    group.finish();
}

fn metrics_of_a_fleet(criterion: &mut Criterion, table: &mut Table, config: &Config) {
    const FLEET: usize = 1000;
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": (0..FLEET).map(raw_node).collect::<Vec<_>>() });
    let cluster = SnapshotCluster::load("fleet", &list.to_string(), &config.domain).unwrap();
    let metrics = Arc::new(Metrics::new());
    metrics.expect_policies(config);
    let engine = Engine::new(Arc::new(cluster), config.clone(), Arc::new(SystemClock), Arc::clone(&metrics), Box::new(drop));
    let all: Vec<Value> = (0..FLEET).map(|n| alerts::alert("GpuLost", n, 0)).collect();
    let answer = tokio::runtime::Runtime::new().unwrap().block_on(async {
        engine.refresh().await;
        engine.deliver(parse_body(&alerts::body(&all)).unwrap()).await
    });
    assert!(!answer.retry);
    assert_eq!(engine.views().iter().filter(|v| v.isolated).count(), FLEET);
    criterion.bench_function("metrics, 1,000 nodes isolated", |b| b.iter(|| metrics.render(&engine)));
    let times: Vec<f64> = (0..ROUNDS).map(|_| timed(|| metrics.render(&engine))).collect();
    table.tell("f  GET /metrics with 1,000 nodes isolated, rendering", format!("{:.1} us", median(&times) * 1e6));
    table.tell("f  its size", format!("{} B", metrics.render(&engine).len()));
}

fn main() {
    let config = policy::load("bench", alerts::CONFIG).unwrap();
    let mut criterion =
        Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3)).configure_from_args();
    let mut table = Table::default();
    body_of_a_fleet(&mut criterion, &mut table, &config);
    one_decision(&mut criterion, &mut table, &config);
    metrics_of_a_fleet(&mut criterion, &mut table, &config);
    criterion.final_summary();
    table.print("processor time");
}
