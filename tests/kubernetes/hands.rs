//! P10: somebody takes our taint away.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    harness::ApiServer,
    nodes::{Nodes, TAINT, added, assert_agrees, node, others_taints, record, tainted, version},
    process::{eventually, unique},
    service::{Alert, Service, config},
};

const FOREIGN: &str = "other.dev/maintenance";

/// Take our taint away as `manager`, leaving the others.
async fn take_away(nodes: &Nodes, name: &str, manager: &str) {
    eventually("the taint is taken away", Duration::from_secs(5), async || {
        let node = nodes.get(name).await;
        let patch = json!({"metadata": {"resourceVersion": version(&node)}, "spec": {"taints": others_taints(&node)}});
        nodes.try_patch(manager, name, patch).await.map(drop)
    })
    .await;
}

/// Who owns the list of taints by managedFields.
fn owners(node: &Value) -> Vec<String> {
    let entries = node["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let owns = |e: &&Value| e["fieldsV1"]["f:spec"].get("f:taints").is_some();
    entries.iter().filter(owns).map(|e| e["manager"].as_str().unwrap().to_owned()).collect()
}

/// A service whose one node is isolated, with or without a foreign taint beside ours.
async fn isolated(server: &ApiServer, stem: &str, foreign: bool) -> (Service, Nodes, String, Alert) {
    let nodes = Nodes::of(server.client().await);
    let name = unique(stem);
    nodes.create(node(&name, &name)).await;
    if foreign {
        nodes.patch("operator", &name, json!({"spec": {"taints": [{"key": FOREIGN, "effect": "NoSchedule"}]}})).await;
    }
    let service = Service::start(server.kubeconfig(), &config(&name, "3s", false), &[]).await;
    let alert = Alert::on(&name);
    assert_eq!(service.outcome(&alert.firing()).await, "recorded");
    (service, nodes, name, alert)
}

async fn wait_given_up(service: &Service, nodes: &Nodes, name: &str) -> Value {
    eventually("the isolation is given up", Duration::from_secs(10), async || {
        let node = nodes.get(name).await;
        if added(&node) { Err(format!("{}\n{}", node["spec"], service.tail())) } else { Ok(node) }
    })
    .await
}

async fn wait_put_back(service: &Service, nodes: &Nodes, name: &str) -> Value {
    eventually("the taint is put back", Duration::from_secs(10), async || {
        let node = nodes.get(name).await;
        if tainted(&node) { Ok(node) } else { Err(format!("{}\n{}", node["spec"], service.tail())) }
    })
    .await
}

#[tokio::test]
async fn a_taint_removed_with_kubectl_is_a_release_by_hand_until_a_new_episode() {
    let Some(server) = ApiServer::shared().await else { return };
    let (service, nodes, name, alert) = isolated(server, "hand", true).await;
    take_away(&nodes, &name, "kubectl-taint").await;
    assert_eq!(owners(&nodes.get(&name).await), ["kubectl-taint"]);
    let given_up = wait_given_up(&service, &nodes, &name).await;
    assert_agrees(&given_up);
    assert_eq!(others_taints(&given_up)[0]["key"], FOREIGN);
    assert_eq!(record(&given_up).unwrap()["history"][0]["by"], "hand");

    for _ in 0..3 {
        assert_eq!(service.outcome(&alert.firing()).await, "unchanged", "it goes on firing and the node is left alone");
    }
    assert!(!tainted(&nodes.get(&name).await));

    // A resolve alone is no new episode: the hold-down comes first.
    assert_eq!(service.outcome(&alert.resolved()).await, "resolved");
    let early = Alert::on(&name);
    assert_eq!(service.outcome(&early.firing()).await, "unchanged", "it came back within the hold-down");
    assert!(!tainted(&nodes.get(&name).await));
    assert_eq!(service.outcome(&early.resolved()).await, "resolved");
    eventually("the claim is forgotten", Duration::from_secs(10), async || match &service.node(&name).await["claims"] {
        Value::Array(claims) if claims.is_empty() => Ok(()),
        claims => Err(claims.clone()),
    })
    .await;
    assert_eq!(service.outcome(&Alert::on(&name).firing()).await, "recorded");
    assert!(tainted(&nodes.get(&name).await));
}

#[tokio::test]
async fn a_taint_removed_by_a_controller_is_put_back_once_and_then_left_alone() {
    let Some(server) = ApiServer::shared().await else { return };
    let (service, nodes, name, alert) = isolated(server, "controller", true).await;
    take_away(&nodes, &name, "some-controller").await;
    let back = wait_put_back(&service, &nodes, &name).await;
    assert_eq!(record(&back).unwrap()["added"]["restored"], json!(true));
    assert_eq!(service.node(&name).await["state"], "isolated");
    take_away(&nodes, &name, "some-controller").await;
    let given_up = wait_given_up(&service, &nodes, &name).await;
    assert_agrees(&given_up);
    assert_eq!(service.outcome(&alert.firing()).await, "unchanged");
    assert!(!tainted(&nodes.get(&name).await));
}

/// Who empties an atomic list leaves no trace in managedFields: the owner loses the field, and nobody gains it. So a person who
/// removes our taint with kubectl, when it is the only one, cannot be told from a controller.
#[tokio::test]
async fn who_removes_the_only_taint_stays_unknown_so_it_is_put_back_once() {
    let Some(server) = ApiServer::shared().await else { return };
    let (service, nodes, name, alert) = isolated(server, "only", false).await;
    take_away(&nodes, &name, "kubectl-taint").await;
    let back = wait_put_back(&service, &nodes, &name).await;
    assert_eq!(record(&back).unwrap()["added"]["restored"], json!(true));
    take_away(&nodes, &name, "kubectl-taint").await;
    let given_up = wait_given_up(&service, &nodes, &name).await;
    assert_agrees(&given_up);
    assert_eq!(service.outcome(&alert.firing()).await, "unchanged");
    assert!(!tainted(&nodes.get(&name).await));
}

/// What the test above rests on, for each way in which the list can be emptied. A server that does better shows here.
#[tokio::test]
async fn managed_fields_do_not_name_who_emptied_the_list_of_taints() {
    use kube::api::{Patch, PatchParams};
    let Some(server) = ApiServer::shared().await else { return };
    let nodes = Nodes::of(server.client().await);
    let params = PatchParams { field_manager: Some("kubectl-taint".to_owned()), ..PatchParams::default() };
    let ways = [
        ("merge patch with []", Patch::Merge(json!({"spec": {"taints": []}}))),
        ("merge patch with null", Patch::Merge(json!({"spec": {"taints": null}}))),
        // This one is what `kubectl taint node NAME KEY-` sends.
        ("strategic merge patch with null", Patch::Strategic(json!({"spec": {"taints": null}}))),
        (
            "strategic merge patch with $patch: delete",
            Patch::Strategic(json!({"spec": {"taints": [{"$patch": "delete", "key": TAINT}]}})),
        ),
    ];
    for (way, patch) in ways {
        let name = unique("emptied");
        nodes.create(node(&name, "nobody")).await;
        nodes.patch("gpu-quarantine", &name, json!({"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}})).await;
        assert_eq!(owners(&nodes.get(&name).await), ["gpu-quarantine"]);
        match nodes.0.patch(&name, &params, &patch).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) => {
                eprintln!("{way}: refused, {}", status.message);
                continue;
            }
            Err(e) => panic!("{way}: {e}"),
        }
        let node = nodes.get(&name).await;
        eprintln!("{way}: taints {}, managedFields {}", node["spec"]["taints"], node["metadata"]["managedFields"]);
        assert_eq!((tainted(&node), owners(&node)), (false, Vec::new()), "{way}");
        let managers = node["metadata"]["managedFields"].as_array().unwrap();
        assert!(managers.iter().all(|e| e["manager"] != "kubectl-taint"), "{way}");
    }
}
