//! Whatever is done to a webhook body or a cluster file, nothing panics, no alert is lost without a word, and only nodes of the
//! cluster are written.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are not seen as tests")]

use std::sync::{Arc, Mutex};

use gpu_quarantine::{
    alert::{BodyError, parse_body},
    cluster::snapshot::SnapshotCluster,
    engine::{Engine, VirtualClock},
    metrics::Metrics,
    policy::load,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

#[path = "support/mutate.rs"]
mod mutate;

use mutate::Mutator;

/// How many damaged bodies are parsed, delivered, and how many damaged cluster files loaded; each times `GPU_QUARANTINE_SOAK`.
const PARSED: u64 = 20_000;
const DELIVERED: u64 = 600;
const LOADED: u64 = 5_000;
const DOMAIN: &str = "gpu-quarantine.dev";

fn soak() -> u64 {
    std::env::var("GPU_QUARANTINE_SOAK").map_or(1, |v| v.parse().expect("GPU_QUARANTINE_SOAK is a whole number"))
}

/// The recorded bodies and those made by hand, in the order of their names.
fn bodies() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for directory in ["payloads", "traps"] {
        let directory = format!("{}/fixtures/{directory}", env!("CARGO_MANIFEST_DIR"));
        files.extend(std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|e| e == "json"));
    files.sort();
    assert!(files.len() > 20);
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// The elements of `alerts`, whatever they are.
fn elements(body: &[u8]) -> usize {
    #[derive(Deserialize)]
    struct Body {
        alerts: Vec<Box<RawValue>>,
    }
    serde_json::from_slice::<Body>(body).unwrap().alerts.len()
}

#[test]
fn a_damaged_body_is_refused_whole_or_every_alert_of_it_has_its_result() {
    let (bodies, mut counts) = (bodies(), [0_u64; 4]);
    for seed in 0..PARSED * soak() {
        let original = &bodies[usize::try_from(seed).unwrap() % bodies.len()];
        let damaged = Mutator::new(seed).mutate(original);
        match parse_body(&damaged) {
            Ok(delivery) => {
                assert_eq!(delivery.alerts.len(), elements(&damaged), "seed {seed}");
                for alert in &delivery.alerts {
                    match alert {
                        Ok(alert) => {
                            assert!(!alert.name.is_empty() && alert.labels.get("alertname") == Some(&alert.name), "seed {seed}");
                            counts[0] += 1;
                        }
                        Err(invalid) => {
                            assert!(!invalid.reason.is_empty() && invalid.reason.len() < 1000, "seed {seed}: {}", invalid.reason);
                            counts[1] += 1;
                        }
                    }
                }
            }
            Err(BodyError::NotJson(_)) => {
                assert!(serde_json::from_slice::<Value>(&damaged).is_err(), "seed {seed}: it is JSON");
                counts[2] += 1;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty(), "seed {seed}");
                counts[3] += 1;
            }
        }
    }
    assert!(counts.iter().all(|n| *n > PARSED / 200), "alerts read, alerts refused, no JSON, no webhook body: {counts:?}");
}

/// The control plane, a node without GPUs and two with them: the first four of the recorded cluster.
fn small_cluster() -> String {
    let whole = include_str!("../fixtures/clusters/prod-a.yaml");
    let item = "- apiVersion: v1\n";
    let (head, items) = whole.split_once(item).unwrap();
    let nodes: Vec<&str> = items.split(item).take(4).collect();
    assert!(nodes.iter().all(|n| n.starts_with("  kind: Node\n")));
    format!("{head}{item}{}kind: List\n", nodes.join(item))
}

#[test]
fn damaged_bodies_get_one_result_per_alert_and_isolate_only_nodes_of_the_cluster() {
    let config = "scope: {nodes: nvidia.com/gpu.present=true}\nrelease: {after: 5m, require: [resolved]}\n\
         guard: {max_isolated: {count: 10}, pools: {max_isolated: {count: 10}, min_healthy: 0}, max_new_isolations: {count: 1000}}\npolicies: [{name: all, match: ['alertname!=\"\"'], action: isolate}]\n";
    let config = load("config.yaml", config).unwrap();
    let bodies = bodies();
    let cluster = Arc::new(SnapshotCluster::load("cluster.yaml", &small_cluster(), DOMAIN).unwrap());
    let names = |cluster: &SnapshotCluster| -> Vec<String> {
        cluster.nodes_json().iter().map(|n| n["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let (all, before) = (names(&cluster), cluster.nodes_json());
    assert_eq!(all, ["cp-1", "cpu-1", "gpu-node-03", "gpu-node-07"]);
    let steps = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let steps = Arc::clone(&steps);
        Box::new(move |step| steps.lock().unwrap().push(step))
    };
    let mut now: Timestamp = "2026-11-30T00:00:00Z".parse().unwrap();
    let clock = Arc::new(VirtualClock::at(now));
    let engine = Engine::new(cluster.clone(), config, clock.clone(), Arc::new(Metrics::new()), sink).one_at_a_time();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        engine.refresh().await;
        let mut delivered = 0;
        // Not all damage leaves a body that can be parsed.
        for seed in 0.. {
            if delivered == DELIVERED * soak() {
                break;
            }
            let original = &bodies[usize::try_from(seed).unwrap() % bodies.len()];
            // The others of the fleet are spoken of as well.
            let original = String::from_utf8_lossy(original).replace("gpu-node-12", "gpu-node-03");
            let damaged = Mutator::new(seed).mutate(original.as_bytes());
            let Ok(delivery) = parse_body(&damaged) else { continue };
            delivered += 1;
            let answer = engine.deliver(delivery).await;
            assert_eq!(answer.results.len(), elements(&damaged), "seed {seed}");
            assert!(!answer.retry, "seed {seed}: nothing here passes: {:?}", answer.results);
            now += SignedDuration::from_secs(if seed % 40 == 0 { 600 } else { 3 });
            clock.advance_to(now);
            engine.run_due().await;
            assert_eq!(names(&cluster), all);
        }
        // Everything ends.
        for body in &bodies {
            let body = String::from_utf8_lossy(body).replace("\"firing\"", "\"resolved\"");
            // One of those made by hand is no webhook body.
            if let Ok(delivery) = parse_body(body.as_bytes()) {
                engine.deliver(delivery).await;
            }
        }
    });
    let steps = steps.lock().unwrap();
    let isolated = |name: &str| steps.iter().filter(|s| s.action == "isolate" && s.node.as_str() == name).count();
    assert!(isolated("gpu-node-07") > 0 && isolated("gpu-node-03") > 0, "the bodies do isolate");
    assert!(steps.iter().any(|s| s.action == "release"), "and what is over is given back");
    for step in steps.iter() {
        assert!(["gpu-node-03", "gpu-node-07"].contains(&step.node.as_str()), "{step:?}");
    }
    for (was, is) in before.iter().zip(cluster.nodes_json()).take(2) {
        assert_eq!(*was, is, "nodes that are not ours stay as they are");
    }
}

#[test]
fn a_damaged_cluster_file_is_loaded_or_refused_with_a_reason() {
    let cluster = small_cluster();
    let mut counts = [0_u64; 2];
    for seed in 0..LOADED * soak() {
        // One node is enough for most, and quicker.
        let original = if seed % 20 == 0 { cluster.as_str() } else { ONE_NODE };
        let damaged = Mutator::new(seed).mutate(original.as_bytes());
        match SnapshotCluster::load("cluster.yaml", &String::from_utf8_lossy(&damaged), DOMAIN) {
            Ok(cluster) => {
                assert!(!cluster.nodes_json().is_empty(), "seed {seed}");
                counts[0] += 1;
            }
            Err(error) => {
                assert!(error.to_string().starts_with("cluster.yaml"), "seed {seed}: {error}");
                counts[1] += 1;
            }
        }
    }
    assert!(counts.iter().all(|n| *n > LOADED / 50), "loaded and refused: {counts:?}");
}

const ONE_NODE: &str = r#"apiVersion: v1
kind: Node
metadata:
  annotations:
    gpu-quarantine.dev/record: "{}"
  creationTimestamp: "2026-03-01T08:41:00Z"
  labels:
    nvidia.com/gpu.present: "true"
  name: gpu-node-07
  resourceVersion: "41200374"
  uid: deefdbbb-5204-456b-a42a-3bd3ed2f6488
spec:
  podCIDRs: [10.244.101.0/24]
  providerID: metal://dc-1a/gpu-node-07
  unschedulable: true
  taints:
  - {effect: NoSchedule, key: dedicated, value: gpu, timeAdded: "2026-03-01T08:41:00Z"}
status:
  addresses:
  - {address: 10.12.0.7, type: InternalIP}
  nodeInfo: {bootID: 4c7d5b4a-72e4-448c-aceb-a0e29df9d8af}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: dcgm-exporter-x, namespace: gpu-operator, labels: {app: nvidia-dcgm-exporter}}
  spec: {nodeName: gpu-node-07}
  status: {podIP: 10.244.7.5, podIPs: [{ip: 10.244.7.5}]}
"#;
