//! P2: other writers on the same node, all the time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Map, Value, json};

use crate::{
    harness::ApiServer,
    nodes::{Nodes, assert_agrees, node, others_taints, tainted, taints, version},
    process::{Random, eventually, soak, unique},
    service::{Alert, Service, config},
};

/// What the other writer has put on the node.
#[derive(Debug, Default, Clone)]
struct Theirs {
    taints: BTreeMap<String, Value>,
    labels: BTreeMap<String, Value>,
    annotations: BTreeMap<String, Value>,
    cordon: bool,
}

impl Theirs {
    /// Do one random thing more.
    fn change(&mut self, random: &mut Random) {
        let key = format!("other.dev/k{}", random.below(4));
        let value = random.below(1000).to_string();
        match random.below(7) {
            0 | 1 => {
                let effect = ["NoSchedule", "PreferNoSchedule"][usize::from(random.below(2) == 0)];
                self.taints.insert(key.clone(), json!({"key": key, "value": value, "effect": effect}));
            }
            2 => drop(self.taints.remove(&key)),
            3 => drop(self.labels.insert(key, value.into())),
            4 => drop(self.labels.remove(&key)),
            5 => drop(self.annotations.insert(key, value.into())),
            _ => self.cordon = !self.cordon,
        }
    }

    /// The patch that makes `node` so, keeping what is not theirs.
    fn patch(&self, node: &Value) -> Value {
        let taints: Vec<Value> =
            taints(node).into_iter().filter(|t| !is_theirs(t["key"].as_str())).chain(self.taints.values().cloned()).collect();
        // What is no longer wanted is set to null, which deletes it.
        let wanted = |field: &str, wanted: &BTreeMap<String, Value>| {
            let old = theirs_in(node, field).into_keys().map(|k| (k, Value::Null));
            old.chain(wanted.clone()).collect::<Map<String, Value>>()
        };
        json!({
            "metadata": {
                "resourceVersion": version(node),
                "labels": wanted("labels", &self.labels), "annotations": wanted("annotations", &self.annotations),
            },
            "spec": {"taints": taints, "unschedulable": self.cordon.then_some(true)},
        })
    }

    fn assert_all_there(&self, node: &Value) {
        let there: BTreeMap<String, Value> =
            others_taints(node).into_iter().map(|t| (t["key"].as_str().unwrap().to_owned(), t)).collect();
        assert_eq!(there, self.taints);
        assert_eq!(theirs_in(node, "labels"), self.labels);
        assert_eq!(theirs_in(node, "annotations"), self.annotations);
        assert_eq!(node["spec"]["unschedulable"] == json!(true), self.cordon);
    }
}

fn is_theirs(key: Option<&str>) -> bool {
    key.is_some_and(|key| key.starts_with("other.dev/"))
}

fn theirs_in(node: &Value, field: &str) -> BTreeMap<String, Value> {
    let entries = node["metadata"][field].as_object().cloned().unwrap_or_default();
    entries.into_iter().filter(|(key, _)| is_theirs(Some(key))).collect()
}

/// Write without a pause until told to stop; what came of it, and how often somebody else was first.
async fn write(nodes: Nodes, name: String, seed: u64, stop: Arc<AtomicBool>) -> (Theirs, u64, u64) {
    let (mut random, mut theirs) = (Random(seed), Theirs::default());
    let (mut written, mut conflicts) = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        let mut next = theirs.clone();
        next.change(&mut random);
        loop {
            let node = nodes.get(&name).await;
            theirs.assert_all_there(&node);
            assert_agrees(&node);
            match nodes.try_patch("some-controller", &name, next.patch(&node)).await {
                Ok(node) => {
                    next.assert_all_there(&node);
                    break;
                }
                Err(kube::Error::Api(status)) if status.code == 409 => conflicts += 1,
                Err(e) => panic!("{e}"),
            }
        }
        theirs = next;
        written += 1;
        // Twenty of these would leave nobody else a chance, and one writer as fast as that is no controller.
        tokio::time::sleep(Duration::from_millis(random.below(8))).await;
    }
    (theirs, written, conflicts)
}

#[tokio::test]
async fn a_writer_of_taints_labels_and_cordons_loses_nothing_and_takes_nothing_of_ours() {
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let name = unique("others");
    nodes.create(node(&name, &name)).await;
    let service = Service::start(server.kubeconfig(), &config(&name, "0s", false), &[]).await;
    service.wait_state(&name, "free").await;
    let stop = Arc::new(AtomicBool::new(false));
    let seed = 20_261_130;
    let writer = tokio::spawn(write(nodes.clone(), name.clone(), seed, Arc::clone(&stop)));
    let rounds = (30 * soak()).min(1000);
    for round in 0..rounds {
        let alert = Alert::on(&name);
        let outcome = service.outcome(&alert.firing()).await;
        assert!(["recorded", "unchanged"].contains(&outcome.as_str()), "round {round}: {outcome}");
        let isolated = nodes.get(&name).await;
        assert!(tainted(&isolated), "round {round}, seed {seed}: {isolated}");
        assert_eq!(service.outcome(&alert.resolved()).await, "resolved", "round {round}");
        eventually("the node is released", Duration::from_secs(20), async || {
            let node = nodes.get(&name).await;
            if tainted(&node) { Err(format!("{node}\n{}", service.tail())) } else { Ok(()) }
        })
        .await;
        assert!(!writer.is_finished(), "the other writer failed: {:?}", writer.await);
    }
    stop.store(true, Ordering::SeqCst);
    let (theirs, written, conflicts) = writer.await.unwrap();
    theirs.assert_all_there(&nodes.get(&name).await);
    eprintln!("{rounds} rounds, {written} writes of the other, who met {conflicts} conflicts");
    assert!(written >= rounds / 4, "the other writer hardly wrote: {written}");
}
