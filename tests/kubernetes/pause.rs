//! `pause`, `resume` and the annotation on the ledger, with a real API server and a service that runs.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    harness::ApiServer,
    ledger::{maps, stored, with_ledger},
    nodes::{Nodes, node, tainted},
    process::{eventually, unique},
    service::{Alert, Service},
    uninstall::run,
};

/// Longer than the service takes to hear of a pause, on a machine that is busy.
const HEARD: Duration = Duration::from_secs(45);

async fn wait_tainted(nodes: &Nodes, name: &str, service: &Service) {
    eventually("it is isolated", HEARD, async || if tainted(&nodes.get(name).await) { Ok(()) } else { Err(service.tail()) })
        .await;
}

async fn wait_paused(service: &Service, word: &str) {
    eventually("the service hears of it", HEARD, async || {
        let tail = service.tail();
        if tail.contains(word) { Ok(()) } else { Err(tail) }
    })
    .await;
}

#[tokio::test]
async fn a_service_that_runs_hears_of_a_pause_by_command_and_by_annotation_and_of_its_end() {
    let Some(server) = ApiServer::shared().await else { return };
    let (nodes, maps, scope) = (Nodes::of(server.client().await), maps(server).await, unique("pause"));
    let names = ["one", "two"].map(|n| format!("{scope}-{n}"));
    for name in &names {
        nodes.create(node(name, &scope)).await;
    }
    let config = with_ledger(&scope);
    let service = Service::start(server.kubeconfig(), &config, &[]).await;

    let (code, said) = run(server, "pause", &config, &["--reason", "a rollout"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("ConfigMap default/{scope}: paused by alice since ")), "{said}");
    let ledger = stored(&maps, &scope, |ledger| !ledger["paused"].is_null()).await;
    assert_eq!(ledger["paused"]["reason"], "a rollout");
    wait_paused(&service, "Nothing new is begun: paused by alice since").await;
    assert_eq!(service.outcome(&Alert::on(&names[0]).firing()).await, "pending");
    let (code, said) = run(server, "resume", &config, &[]);
    assert_eq!(code, 0, "{said}");
    wait_tainted(&nodes, &names[0], &service).await;

    let annotate = |value: Value| json!({"metadata": {"annotations": {"gpu-quarantine.dev/pause": value}}});
    maps.patch(&scope, &PatchParams::default(), &Patch::Merge(annotate(json!("a rule gone wild")))).await.expect("annotated");
    wait_paused(&service, "paused by the annotation gpu-quarantine.dev/pause of the ledger: a rule gone wild").await;
    assert_eq!(service.outcome(&Alert::on(&names[1]).firing()).await, "pending");
    let (code, said) = run(server, "resume", &config, &[]);
    assert_eq!(code, 0, "{said}");
    assert!(maps.get(&scope).await.unwrap().metadata.annotations.is_none(), "the word to go on takes it away");
    wait_tainted(&nodes, &names[1], &service).await;
    // Without anything to end.
    assert_eq!(run(server, "resume", &config, &[]), (code, said));
}

#[tokio::test]
async fn a_pause_outlives_the_process_and_its_end_over_http_takes_the_annotation_away() {
    let Some(server) = ApiServer::shared().await else { return };
    let (nodes, maps, scope) = (Nodes::of(server.client().await), maps(server).await, unique("outlives"));
    nodes.create(node(&scope, &scope)).await;
    let config = with_ledger(&scope);
    let (code, said) = run(server, "pause", &config, &["--reason", "before it runs", "--releases", "--as", "bob"]);
    assert_eq!(code, 0, "{said}");
    let annotation = json!({"metadata": {"annotations": {"gpu-quarantine.dev/pause": ""}}});
    maps.patch(&scope, &PatchParams::default(), &Patch::Merge(annotation)).await.expect("annotated");
    let mut service = Service::start(server.kubeconfig(), &config, &[]).await;
    assert_eq!(service.outcome(&Alert::on(&scope).firing()).await, "pending");
    service.kill9();
    service.restart().await;
    let waits = service.node(&scope).await["waiting_for"].clone();
    let waits = waits.as_str().unwrap_or_default();
    assert!(waits.starts_with("the end of the pause: paused by bob since ") && waits.contains(", releases as well"), "{waits}");
    assert!(waits.ends_with("paused by the annotation gpu-quarantine.dev/pause of the ledger: no reason is given"), "{waits}");
    let http = crate::service::Http::new();
    let answer = http.send("POST", &format!("http://{}/-/resume", service.address()), None).await;
    assert_eq!(answer, Ok((200, "the pause is over\n".to_owned())));
    wait_tainted(&nodes, &scope, &service).await;
    let map = maps.get(&scope).await.unwrap();
    assert!(map.metadata.annotations.is_none(), "{map:?}");
    stored(&maps, &scope, |ledger| ledger.get("paused").is_none()).await;
}
