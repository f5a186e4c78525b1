//! `uninstall` straight against the API server, with the service running and without it.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    harness::ApiServer,
    ledger::{direct, maps, stored, with_ledger},
    nodes::{Nodes, RECORD, TAINT, node, record, tainted, taints},
    process::{eventually, unique},
    service::{Alert, Service},
};

/// Run a command of ours as alice: its exit code and what it said.
pub(crate) fn run(server: &ApiServer, command: &str, config: &str, flags: &[&str]) -> (i32, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("config.yaml");
    fs::write(&file, config).expect("the directory is writable");
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-quarantine"))
        .arg(command)
        .arg("--config.file")
        .arg(&file)
        .arg("--kubeconfig")
        .arg(server.kubeconfig())
        .args(flags)
        .env("USER", "alice")
        .stdin(Stdio::null())
        .output()
        .expect("the program runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap_or(-1), text)
}

#[tokio::test]
async fn everything_of_ours_is_given_back_and_nothing_else_and_nothing_new_is_begun() {
    let Some(server) = ApiServer::shared().await else { return };
    let (nodes, maps, scope) = (Nodes::of(server.client().await), maps(server).await, unique("leave"));
    let names = ["isolated", "held", "orphan", "later"].map(|n| format!("{scope}-{n}"));
    for name in &names {
        nodes.create(node(name, &scope)).await;
    }
    let foreign = json!({"key": "other.dev/maintenance", "effect": "NoSchedule"});
    let orphan = json!({"key": TAINT, "value": "somebody", "effect": "NoSchedule"});
    nodes.patch("other", &names[0], json!({"spec": {"taints": [foreign]}})).await;
    nodes.patch("other", &names[1], json!({"metadata": {"annotations": {"gpu-quarantine.dev/hold": "a riser"}}})).await;
    nodes.patch("other", &names[2], json!({"spec": {"taints": [orphan]}})).await;
    let config = with_ledger(&scope);
    let service = Service::start(server.kubeconfig(), &config.replace("cordon: false", "cordon: true"), &[]).await;
    let later = Alert::on(&names[3]);
    for alert in [&Alert::on(&names[0]), &Alert::on(&names[1]), &later] {
        assert_eq!(service.outcome(&alert.firing()).await, "recorded");
    }
    let corrupt = json!({"metadata": {"annotations": {"gpu-quarantine.dev/record-corrupt": "{"}}});
    nodes.patch("other", &names[0], corrupt).await;

    // Without an answer nothing is taken, but the pause stands.
    let (code, said) = run(server, "uninstall", &config, &[]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("Take it back from 3 nodes? [y/N]") && said.contains("nothing was given back"), "{said}");
    assert!(tainted(&nodes.get(&names[0]).await));
    let paused = stored(&maps, &scope, |ledger| !ledger["paused"].is_null()).await;
    assert_eq!((&paused["paused"]["by"], &paused["paused"]["reason"]), (&json!("alice"), &json!("uninstall")));
    eventually("the service hears of it", Duration::from_secs(45), async || {
        let tail = service.tail();
        if tail.contains("Nothing new is begun: paused by alice since") { Ok(()) } else { Err(tail) }
    })
    .await;
    assert_eq!(service.outcome(&later.resolved()).await, "resolved");
    service.wait_state(&names[3], "free").await;
    assert_eq!(service.outcome(&later.firing()).await, "pending", "releases go on, and nothing new is begun");

    drop(service);
    let (code, said) = run(server, "uninstall", &config, &["--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("{}: orphan {TAINT}=somebody:NoSchedule", names[2])), "{said}");
    for name in [&names[0], &names[1], &names[3]] {
        let free = nodes.get(name).await;
        assert!(record(&free).is_none() && !tainted(&free), "{free}");
        assert!(free["spec"].get("unschedulable").is_none(), "our cordon went");
    }
    let given_back = nodes.get(&names[0]).await;
    assert!(taints(&given_back).contains(&foreign) && given_back["metadata"].get("annotations").is_none(), "{given_back}");
    assert_eq!(nodes.get(&names[1]).await["metadata"]["annotations"]["gpu-quarantine.dev/hold"], "a riser");
    assert!(taints(&nodes.get(&names[2]).await).contains(&orphan));

    // The rest on demand.
    let (code, said) = run(server, "uninstall", &config, &["--yes", "--orphans", "--words", "--ledger"]);
    assert_eq!(code, 0, "{said}");
    assert!(!tainted(&nodes.get(&names[2]).await));
    assert!(nodes.get(&names[1]).await["metadata"].get("annotations").is_none());
    assert_eq!(direct(server, &scope).await.read().await.unwrap(), None);
}

#[tokio::test]
async fn what_cannot_be_given_back_is_named_and_the_exit_code_says_so() {
    let Some(server) = ApiServer::shared().await else { return };
    let (nodes, scope) = (Nodes::of(server.client().await), unique("stays"));
    nodes.create(node(&scope, &scope)).await;
    let newer = json!({"v": 9, "owner": scope}).to_string();
    nodes.patch("other", &scope, json!({"metadata": {"annotations": {RECORD: newer}}})).await;
    let (code, said) = run(server, "uninstall", &with_ledger(&scope), &["--yes"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(&format!("left: node {scope}: the record has version 9")), "{said}");
    let (code, said) = run(server, "resume", &with_ledger(&scope), &[]);
    assert_eq!((code, said.contains("The pause is over.")), (0, true), "{said}");
    let stored: Value = serde_json::from_str(&direct(server, &scope).await.read().await.unwrap().unwrap().text.unwrap()).unwrap();
    assert!(stored.get("paused").is_none());
}
