//! P10 by command: `nodes hold`, `ignore` and `release` straight against the API server, with the service running and without it.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    harness::ApiServer,
    nodes::{Nodes, RECORD, TAINT, added, assert_agrees, node, others_taints, record, tainted, version},
    process::{eventually, free_port, unique},
    service::{Alert, Service, config},
};

const FOREIGN: &str = "other.dev/maintenance";
const HOLD: &str = "gpu-quarantine.dev/hold";

/// The commands, with a configuration for one node.
struct Cli {
    dir: TempDir,
    kubeconfig: PathBuf,
}

impl Cli {
    fn new(server: &ApiServer, scope: &str) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::write(dir.path().join("config.yaml"), config(scope, "2s", false)).expect("the directory is writable");
        Self { dir, kubeconfig: server.kubeconfig() }
    }

    /// The exit code, standard output and standard error.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_gpu-quarantine"))
            .arg("nodes")
            .args(args)
            .arg("--config.file")
            .arg(self.dir.path().join("config.yaml"))
            .args(if args.contains(&"--cluster") { None } else { Some("--kubeconfig") })
            .args(if args.contains(&"--cluster") { None } else { Some(&self.kubeconfig) })
            .env_remove("KUBECONFIG")
            .env("USER", "alice")
            .stdin(Stdio::null())
            .output()
            .expect("the program runs");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    fn well(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {out}{err}");
        out
    }

    fn fails(&self, code: i32, args: &[&str]) -> String {
        let (ended, out, err) = self.run(args);
        assert_eq!((ended, out.as_str()), (code, ""), "{args:?}: {err}");
        err
    }
}

/// A node with 8 GPUs and a taint of somebody else.
async fn fresh(server: &ApiServer, stem: &str) -> (Nodes, String, Cli) {
    let nodes = Nodes::of(server.client().await);
    let name = unique(stem);
    let mut node = node(&name, &name);
    node["metadata"]["labels"]["nvidia.com/gpu.count"] = "8".into();
    node["spec"]["taints"] = json!([{"key": FOREIGN, "effect": "NoSchedule"}]);
    nodes.create(node).await;
    let cli = Cli::new(server, &name);
    (nodes, name, cli)
}

async fn isolated(server: &ApiServer, stem: &str) -> (Service, Nodes, String, Cli, Alert) {
    let (nodes, name, cli) = fresh(server, stem).await;
    let service = Service::start(server.kubeconfig(), &config(&name, "2s", false), &[]).await;
    let alert = Alert::on(&name);
    assert_eq!(service.outcome(&alert.firing()).await, "recorded");
    (service, nodes, name, cli, alert)
}

fn by_us(node: &Value) -> bool {
    let managers = node["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    managers.iter().any(|m| m["manager"] == "gpu-quarantine-cli")
}

async fn wait_free(service: &Service, nodes: &Nodes, name: &str) -> Value {
    eventually("the node is given back", Duration::from_secs(20), async || {
        let node = nodes.get(name).await;
        if tainted(&node) || added(&node) { Err(format!("{}\n{}", node["spec"], service.tail())) } else { Ok(node) }
    })
    .await
}

#[tokio::test]
async fn a_hold_and_an_ignore_by_command_are_obeyed_and_taken_back() {
    let Some(server) = ApiServer::shared().await else { return };
    let (service, nodes, name, cli, alert) = isolated(server, "cli-hold").await;
    let said = cli.well(&["hold", &name, "--reason", "waits for a riser"]);
    assert!(said.contains("is held: waits for a riser (alice)") && said.contains("stays isolated"), "{said}");
    let held = nodes.get(&name).await;
    assert_eq!(held["metadata"]["annotations"][HOLD], "waits for a riser (alice)");
    assert!(by_us(&held));
    service.wait_state(&name, "held").await;
    let again = cli.well(&["hold", &name, "--reason", "waits for a riser"]);
    assert!(again.contains("was held already"), "{again}");
    let other = cli.well(&["hold", &name, "--reason", "no", "--as", "bob"]);
    assert!(other.contains("is held: no (bob)") && other.contains("Before, it said: waits for a riser (alice)"), "{other}");
    assert_eq!(service.outcome(&alert.resolved()).await, "held");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(tainted(&nodes.get(&name).await), "the hold-down is over and the hold is not");

    cli.well(&["ignore", &name, "--reason", "burn-in"]);
    service.wait_state(&name, "ignored").await;
    let refused = cli.fails(1, &["release", &name, "--yes"]);
    assert!(refused.contains("unignore it first"), "{refused}");
    cli.well(&["unignore", &name]);
    let said = cli.well(&["unhold", &name]);
    assert!(said.contains("is no longer held. It said: no (bob)"), "{said}");
    wait_free(&service, &nodes, &name).await;
    assert!(cli.well(&["unhold", &name]).contains("was not held"));
    let free = cli.well(&["hold", &name, "--reason", "later"]);
    assert!(free.contains("only blocks a later release"), "{free}");
}

#[tokio::test]
async fn a_release_by_command_while_the_fault_fires_is_not_undone_and_its_verdict_is_counted() {
    let Some(server) = ApiServer::shared().await else { return };
    let (service, nodes, name, cli, alert) = isolated(server, "cli-release").await;
    let asked = cli.fails(2, &["release", &name]);
    assert!(asked.contains(&format!("removes the taint {TAINT}=gpu-lost:NoSchedule")), "{asked}");
    assert!(asked.contains("which STILL FIRES") && asked.contains("give --yes"), "{asked}");
    assert!(tainted(&nodes.get(&name).await), "nobody agreed");

    let (code, out, err) = cli.run(&["release", &name, "--yes", "--verdict", "false-alarm", "--reason", "bad rule"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("was released by alice") && err.contains("STILL FIRES"), "{out}{err}");
    let free = nodes.get(&name).await;
    assert_agrees(&free);
    assert!(!tainted(&free) && by_us(&free));
    assert_eq!(others_taints(&free)[0]["key"], FOREIGN);
    let episode = record(&free).unwrap()["history"][0].clone();
    assert_eq!(
        json!([episode["by"], episode["who"], episode["verdict"], episode["reason"]]),
        json!(["hand", "alice", "false-alarm", "bad rule"])
    );
    for _ in 0..3 {
        assert_eq!(service.outcome(&alert.firing()).await, "unchanged");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(!tainted(&nodes.get(&name).await), "the service does not take it for a foreign removal");
    let metrics = eventually("the verdict is counted", Duration::from_secs(10), async || {
        let metrics = service.metrics().await;
        let line = "gpu_quarantine_verdicts_total{alertname=\"GpuLost\",verdict=\"false-alarm\"} 1";
        if metrics.contains(line) { Ok(metrics) } else { Err(metrics) }
    })
    .await;
    let hours = metrics.lines().find_map(|l| l.strip_prefix("gpu_quarantine_withheld_gpu_hours_total{alertname=\"GpuLost\"} "));
    assert!(hours.unwrap().parse::<f64>().unwrap() > 0.0, "{metrics}");
    let story = cli.well(&["show", &name]);
    assert!(story.contains("released by alice, false-alarm: bad rule"), "{story}");
}

#[tokio::test]
async fn a_release_works_while_the_service_is_down_and_is_known_to_it_afterwards() {
    let Some(server) = ApiServer::shared().await else { return };
    let (mut service, nodes, name, cli, alert) = isolated(server, "cli-down").await;
    service.stop().await;
    let listed: Value = serde_json::from_str(&cli.well(&["list", "--output", "json"])).unwrap();
    // Other tests have nodes there as well.
    let ours: Vec<&Value> = listed["nodes"].as_array().unwrap().iter().filter(|n| n["name"] == *name).collect();
    assert_eq!(ours[0]["state"], "isolated", "{listed}");
    let shown = cli.well(&["release", &name, "--yes", "--verdict", "repaired", "--output", "json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["state"], &shown["history"][0]["verdict"]), (&json!("free"), &json!("repaired")));
    service.restart().await;
    assert_eq!(service.node(&name).await, shown, "one shape everywhere");
    assert_eq!(service.outcome(&alert.firing()).await, "unchanged");
    assert!(!tainted(&nodes.get(&name).await));
    let metrics = service.metrics().await;
    assert!(!metrics.contains("verdict=\"repaired\"} 1"), "what was there at the start is not counted: {metrics}");
    assert!(cli.well(&["release", &name, "--yes"]).contains("nothing of ours to take back"));
}

#[tokio::test]
async fn an_orphan_is_adopted_and_what_is_not_ours_is_refused() {
    let Some(server) = ApiServer::shared().await else { return };
    let (nodes, name, cli) = fresh(server, "cli-orphan").await;
    let both = json!([{"key": FOREIGN, "effect": "NoSchedule"}, {"key": TAINT, "value": "x", "effect": "NoSchedule"}]);
    nodes.patch("somebody", &name, json!({"spec": {"taints": both}})).await;
    let listed = cli.well(&["list"]);
    assert!(listed.contains(&name) && listed.contains("without a record of ours"), "{listed}");
    let (code, out, err) = cli.run(&["release", &name, "--yes"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("no record says who put it there") && out.contains("The taint was removed"), "{out}{err}");
    let free = nodes.get(&name).await;
    assert_eq!((tainted(&free), others_taints(&free).len(), record(&free)), (false, 1, None));

    nodes
        .patch("somebody", &name, json!({"metadata": {"annotations": {RECORD: json!({"v": 1, "owner": "b"}).to_string()}}}))
        .await;
    for args in [&["release", &name, "--yes"] as &[&str], &["hold", &name, "--reason", "x"], &["ignore", &name, "--reason", "x"]]
    {
        let refused = cli.fails(1, args);
        assert!(refused.contains("belongs to instance \"b\""), "{refused}");
    }
    assert!(cli.fails(2, &["show", "no-such-node"]).contains("there is no node no-such-node"));
    assert!(cli.fails(2, &["hold", "a/status", "--reason", "x"]).contains("is not a node name"));
    assert!(cli.fails(2, &["hold", &name, "--reason", " "]).contains("--reason is empty"));
    assert!(cli.fails(2, &["release", &name, "--yes", "--cluster", "nodes.yaml"]).contains("is a file, which is only read"));
    let nobody = Cli { dir: tempfile::tempdir().unwrap(), kubeconfig: server.kubeconfig_by(free_port()) };
    fs::write(nobody.dir.path().join("config.yaml"), config(&name, "2s", false)).unwrap();
    assert!(nobody.fails(3, &["list"]).contains("the nodes cannot be listed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_decide_again_when_somebody_else_writes_the_node_meanwhile() {
    let Some(server) = ApiServer::shared().await else { return };
    let (service, nodes, name, cli, _) = isolated(server, "cli-race").await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (nodes, name, stop) = (nodes.clone(), name.clone(), Arc::clone(&stop));
        async move {
            let mut written = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let node = nodes.get(&name).await;
                let patch =
                    json!({"metadata": {"resourceVersion": version(&node), "annotations": {"other.dev/n": written.to_string()}}});
                written += u32::from(nodes.try_patch("other", &name, patch).await.is_ok());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            written
        }
    });
    for round in 0..5 {
        cli.well(&["hold", &name, "--reason", &format!("round {round}")]);
        cli.well(&["unhold", &name]);
    }
    cli.well(&["hold", &name, "--reason", "last"]);
    let (code, _, err) = cli.run(&["release", &name, "--yes"]);
    assert_eq!(code, 0, "{err}");
    stop.store(true, Ordering::Relaxed);
    let written = writer.await.unwrap();
    let free = wait_free(&service, &nodes, &name).await;
    assert_agrees(&free);
    assert_eq!(free["metadata"]["annotations"]["other.dev/n"], (written - 1).to_string(), "no write of the other was lost");
    assert_eq!(free["metadata"]["annotations"].get(HOLD), None);
}
