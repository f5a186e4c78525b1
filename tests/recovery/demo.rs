//! The story: from a training run that hangs to one that goes on, and to a node that is given back.

use std::{
    collections::BTreeSet,
    env,
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    controllers::Controlled,
    exporter::Edit,
    kubelet::{Kubelet, Runs, register},
    nodes::{Nodes, record, tainted},
    pipeline::{Pipeline, Plan},
    pods::{OPTED_IN, Pods, bare, job, name, node_of, runs, template, uid},
    process::{eventually, unique},
    service::now,
    story::{Story, end},
    watcher::Watcher,
    worker::{self, POD, Progress, RANKS, SHARED, progress, state_after},
};

const NODES: usize = 6;
/// For how long is waited: the machines of CI have much to do.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long nothing may happen until the training counts as hanging.
const HANGS: Duration = Duration::from_secs(2);
/// The alert of XID 79.
const ALERT: &str = "GpuXidGpuLost";
const WORKERS: &str = "app=training";

/// The program of the pods, started by the test kubelet. Alone it does nothing.
#[test]
#[ignore = "the program of the workers, which the test kubelet starts"]
fn worker_main() {
    worker::main();
}

/// Pods of the training: this test program, as a worker.
fn workers(scope: &str, shared: &Path) -> Value {
    let mut template = template(scope, &json!({"app": "training", OPTED_IN: "true"}), 1);
    let container = &mut template["spec"]["containers"][0];
    let program = env::current_exe().expect("the test program");
    container["command"] = json!([program, "--exact", "demo::worker_main", "--ignored", "--nocapture"]);
    container["env"] = json!([
        {"name": SHARED, "value": shared},
        {"name": POD, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]);
    template
}

/// The training as it is looked at from outside.
struct Training {
    dir: TempDir,
    pods: Pods,
    kubelet: Kubelet,
}

impl Training {
    fn shared(&self) -> &Path {
        self.dir.path()
    }

    /// What all ranks did last.
    fn progress(&self) -> Vec<Progress> {
        progress(self.shared())
    }

    /// Wait until all ranks, in one group that is newer than `than`, are past a step; what they did last. What stands there of a group
    /// that hangs is past its last checkpoint already.
    async fn wait_past(&self, step: u64, than: u64) -> Vec<Progress> {
        eventually(&format!("all ranks are past step {step} in a group newer than {than}"), PATIENCE, async || {
            let all = self.progress();
            let groups: BTreeSet<u64> = all.iter().map(|rank| rank.group).collect();
            let right = all.len() == usize::try_from(RANKS).unwrap()
                && groups.len() == 1
                && all.iter().all(|r| r.step > step && r.group > than);
            if right { Ok(all) } else { Err(self.tail(&all).await) }
        })
        .await
    }

    /// Wait until no rank has done anything for a while; what they did last.
    async fn wait_hanging(&self) -> Vec<Progress> {
        let (mut last, mut since) = (self.progress(), Instant::now());
        eventually("all ranks hang", PATIENCE, async || {
            let all = self.progress();
            if all != last {
                (last, since) = (all, Instant::now());
            }
            if since.elapsed() > HANGS { Ok(last.clone()) } else { Err(format!("{last:?}")) }
        })
        .await
    }

    async fn tail(&self, all: &[Progress]) -> String {
        let pods = self.pods.list(WORKERS).await;
        let tails: Vec<String> = pods.iter().filter(|pod| runs(pod)).map(|pod| self.kubelet.tail(uid(pod))).collect();
        format!("{all:?}\n{}\n{}", crate::pods::brief(&pods), tails.join("\n"))
    }
}

/// Whether Kubernetes finds a pod ready.
fn ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// That a training is where it would be had nothing ever gone wrong.
fn assert_right(all: &[Progress]) {
    for rank in all {
        assert_eq!(rank.state, state_after(rank.step), "the state after step {} is wrong: {rank:?}", rank.step);
    }
}

/// The document with the evidence of a node's eviction.
async fn evidence(client: &Client, nodes: &Nodes, node: &str) -> Value {
    let name = eventually("the record names the evidence", PATIENCE, async || {
        let record = record(&nodes.get(node).await).unwrap_or_default();
        record["eviction"]["evidence"].as_str().map(str::to_owned).ok_or_else(|| record.to_string())
    })
    .await;
    let map = Api::<ConfigMap>::namespaced(client.clone(), "kube-system").get(&name).await.expect("the document is there");
    serde_json::from_str(&map.data.expect("data")["evidence.json"]).expect("it is JSON")
}

#[tokio::test]
async fn a_training_run_whose_gpu_is_lost_goes_on_elsewhere_and_the_node_returns_when_it_is_repaired() {
    let Some(server) = Controlled::shared().await else { return };
    let client = server.api.client().await;
    let (nodes, scope) = (Nodes::of(client.clone()), unique("train"));
    let names: Vec<String> = (0..NODES).map(|i| format!("{scope}-{i}")).collect();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let kubelet = Kubelet::start(&client, &names, Runs::Processes(dir.path().to_owned()));
    for name in &names {
        register(&nodes, name, &scope, 1).await;
    }
    // The rules do not name the pod that uses the GPU; each of these nodes has one.
    let more = "eviction: {settle: 100ms, unknown_gpu: node}\n";
    let plan = Plan { nodes: NODES, gpus: 1, more, ..Plan::proving() };
    let Some(pipe) = Pipeline::around(&server.api, &scope, names.clone(), plan).await else { return };
    let pods = Pods::in_namespace(client.clone(), &scope).await;
    let training = Training { dir, pods, kubelet };
    let pods = &training.pods;

    let story = Story::begin("A training run of four workers on six nodes with one GPU each. One GPU falls off the bus.");
    pods.create(&job("training", RANKS, &workers(&scope, training.shared()))).await;
    let before = pods.wait_running(WORKERS, 4).await;
    let victim = &before[0];
    let node = node_of(victim).to_owned();
    // Beside the victim, another pod that never heard of us.
    let mut other = bare("other", &node, &template(&scope, &json!({"app": "other"}), 0));
    other["spec"]["containers"][0]["command"] = json!(["sleep", "100000"]);
    let other = pods.create(&other).await;
    let all = training.wait_past(25, 0).await;
    assert_right(&all);
    story.step(format!(
        "four workers train: step {}, last checkpoint {}",
        all[0].step,
        worker::last_checkpoint(training.shared())
    ));

    training.kubelet.signal(uid(victim), "STOP");
    story.step(format!("{} on {node} stops, as one does whose GPU is gone", name(victim)));
    let hanging = training.wait_hanging().await;
    let stalled = hanging.iter().map(|rank| rank.step).max().expect("ranks");
    let checkpoint = worker::last_checkpoint(training.shared());
    let hung = hanging.iter().map(|rank| rank.group).max().expect("ranks");
    let seen = pods.wait_running(WORKERS, 4).await;
    assert!(seen.iter().all(ready), "{seen:?}");
    assert_eq!(seen.iter().map(uid).collect::<BTreeSet<_>>(), before.iter().map(uid).collect());
    assert!(!tainted(&nodes.get(&node).await));
    story.step(format!("all four hang after step {stalled}; Kubernetes says: 4 pods Running and Ready, the node Ready"));

    let index = names.iter().position(|name| *name == node).expect("one of ours");
    pipe.exporters[index].edit(Edit::Xid { gpu: 0, code: 79 });
    story.zero();
    story.step(format!("the exporter of {node} shows XID 79. Times count from here; nobody helps from here on"));
    pipe.wait_isolated(&node, 1).await;
    let watcher = Watcher::of(&nodes, &node).await;
    story.step(format!("{node} is isolated by {ALERT}"));
    eventually("the pod is evicted", PATIENCE, async || match pods.get(name(victim)).await {
        Some(pod) if runs(&pod) => Err(format!("{pod}\n{}", pipe.tail())),
        _ => Ok(()),
    })
    .await;
    story.step(format!("{} is evicted", name(victim)));
    let document = evidence(&client, &nodes, &node).await;
    assert_eq!(document["node"]["uid"], nodes.get(&node).await["metadata"]["uid"]);
    assert_eq!((&document["pods"][0]["uid"], &document["pods"][0]["owners"][0]["kind"]), (&json!(uid(victim)), &json!("Job")));
    assert_eq!(document["claims"][0]["alert"], ALERT);
    let series = document["series"].as_array().expect("a list");
    let xid = |s: &&Value| s["metric"]["__name__"] == "DCGM_FI_DEV_XID_ERRORS" && s["value"][1] == "79";
    assert!(series.iter().any(|s| xid(&s)) && document["missing"] == json!([]), "{document}");
    story.step(format!("what is gone with it was kept before: {} series, among them XID 79", series.len()));
    let after = pods.wait_running(WORKERS, 4).await;
    let came: Vec<&Value> = after.iter().filter(|pod| before.iter().all(|old| uid(old) != uid(pod))).collect();
    let [came] = came[..] else { panic!("one pod came: {after:?}") };
    assert_ne!(node_of(came), node, "the pod came back to the node of which it was evicted");
    story.step(format!("the Job's controller made {}, the scheduler put it on {}", name(came), node_of(came)));
    let resumed = training.wait_past(checkpoint, hung).await;
    for rank in &resumed {
        assert_eq!(rank.resumed, checkpoint, "every rank goes on from the last checkpoint of all: {resumed:?}");
    }
    assert!(resumed.iter().any(|rank| rank.pod == name(came)), "{resumed:?}");
    story.step(format!("all four ranks go on from checkpoint {checkpoint}"));
    let past = training.wait_past(stalled, hung).await;
    assert_right(&past);
    story.step(format!("they pass step {stalled}, where they hung, with the state of a run that never hung"));
    assert_eq!(pods.get("other").await.map(|pod| (uid(&pod).to_owned(), runs(&pod))), Some((uid(&other).to_owned(), true)));
    story.step(format!("the pod of others on {node} was not touched"));

    watcher.never_free();
    let rebooted = now();
    pipe.exporters[index].edit(Edit::Clear);
    pipe.reboot(&node).await;
    story.step(format!("{node} is repaired: a new boot, and its exporter shows no XID"));
    pipe.wait_proven(&node, rebooted).await;
    story.step(format!("{node} is given back on evidence"));

    std::fs::write(training.shared().join("stop"), "").expect("the directory is writable");
    eventually("the Job is complete", PATIENCE, async || {
        let job = json!(pods.api::<Job>().get("training").await.expect("the Job is there"));
        if job["status"]["succeeded"] == json!(RANKS) { Ok(()) } else { Err(job["status"].to_string()) }
    })
    .await;
    let all = training.progress();
    assert_right(&all);
    story.step(format!("the training ends well after step {}", all[0].step));
    end("PASS");
}
