//! What no real API server can be brought to say at will.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json, Router,
    http::{StatusCode, Uri},
    response::IntoResponse,
};
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::metrics::Metrics;

/// A cluster behind a server that answers by path and query; what it does not know is not found.
pub(in crate::cluster::kubernetes) async fn behind(
    answer: impl Fn(&Uri) -> Option<(u16, Value)> + Clone + Send + Sync + 'static,
) -> KubeCluster {
    let not_found = || json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "not found"});
    let serve = async move |uri: Uri| {
        let (code, body) = answer(&uri).unwrap_or_else(|| (404, not_found()));
        (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, Router::new().fallback(serve)).into_future());
    let config = kube::Config::new(url.parse().unwrap());
    KubeCluster::new(config, "gpu-quarantine.dev", BTreeSet::new(), Arc::new(Metrics::new())).unwrap()
}

fn pod(text: &str) -> PodName {
    text.to_owned().try_into().unwrap()
}

fn owner(api_version: &str, kind: &str, name: &str) -> Owner {
    let text = str::to_owned;
    Owner { api_version: text(api_version), kind: text(kind), name: text(name), uid: text("u") }
}

#[rstest]
#[case("batch/v1", "Job", Some("jobs"))]
#[case("apps/v1", "ReplicaSet", Some("replicasets"))]
#[case("jobset.x-k8s.io/v1alpha2", "JobSet", Some("jobsets"))]
#[case("kubeflow.org/v1", "PyTorchJob", Some("pytorchjobs"))]
#[case("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", Some("leaderworkersets"))]
#[case("v1", "Pod", Some("pods"))]
#[case("apps/v1", "Job", None)]
#[case("v1", "ReplicationController", None)]
#[case("batch/v1/../v2", "Job", None)]
#[case("batch/", "Job", None)]
fn an_owner_is_read_by_group_and_kind(#[case] api_version: &str, #[case] kind: &str, #[case] plural: Option<&str>) {
    assert_eq!(resource_of(&owner(api_version, kind, "n")).map(|r| r.plural).as_deref(), plural);
}

#[tokio::test]
async fn throttling_is_told_from_a_budget_and_a_refusal_under_a_200_is_one() {
    let failure = |code: u16, message: &str, details: Value| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "details": details});
    let cluster = behind(move |uri| match uri.path().split('/').nth(6)? {
        "throttled" => Some((429, failure(429, "too many requests", json!({"retryAfterSeconds": 7})))),
        "two" => Some((201, failure(500, "This pod has more than one PodDisruptionBudget, which ...", json!({})))),
        "odd" => Some((201, json!([]))),
        "fine" => Some((201, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))),
        _ => None,
    })
    .await;
    let answer = async |name: &str| cluster.evict(&pod(&format!("ml/{name}")), "u").await;
    let retry_after = Some(std::time::Duration::from_secs(7));
    assert_eq!(answer("throttled").await, EvictionAnswer::Throttled { retry_after });
    assert!(matches!(answer("two").await, EvictionAnswer::ManyBudgets { .. }));
    assert!(matches!(answer("odd").await, EvictionAnswer::Unknown { .. }), "it may have been done");
    assert_eq!(answer("fine").await, EvictionAnswer::Accepted);
    assert_eq!(answer("gone").await, EvictionAnswer::Gone);
}

#[tokio::test]
async fn no_server_means_that_nobody_knows() {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let cluster = KubeCluster::new(config, "d", BTreeSet::new(), Arc::new(Metrics::new())).unwrap();
    assert!(matches!(cluster.evict(&pod("ml/p"), "u").await, EvictionAnswer::Unknown { .. }));
    let error = cluster.pods_on(&NodeName::parse("gpu-07").unwrap()).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot list the pods of node gpu-07: "), "{error}");
}

#[tokio::test]
async fn a_name_that_is_none_never_reaches_the_server() {
    let cluster = behind(|uri| panic!("asked for {uri}")).await;
    assert_eq!(cluster.owner("ml", &owner("batch/v1", "Job", "a/status")).await, Ok(None));
    assert_eq!(cluster.owner("ml/x", &owner("batch/v1", "Job", "a")).await, Ok(None));
    assert!(cluster.pods_of("ml/x", "a=b", 5).await.is_err());
    assert!(cluster.events_about(Some("ml"), "p?x=1", "u", 5).await.is_err());
    assert!(cluster.events_about(Some("ml"), "p", "u,involvedObject.kind=Pod", 5).await.is_err());
    let place = LedgerPlace { namespace: "ns".to_owned(), name: "ledger".to_owned() };
    assert!(cluster.read_evidence(&place, "a/b").await.is_err());
}

#[tokio::test]
async fn pods_are_read_page_by_page_and_one_that_cannot_be_read_is_left_out() {
    let item = |name: &str| json!({"metadata": {"namespace": "ml", "name": name, "uid": "u"}});
    let cluster = behind(move |uri| {
        let query = uri.query().unwrap_or_default();
        let last = query.contains("continue=more");
        let items = if last { json!([item("a")]) } else { json!([item("b"), {"metadata": {"name": "no-uid"}}]) };
        let token = if last { Value::Null } else { json!("more") };
        Some((200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": token}, "items": items})))
    })
    .await;
    let names = |pods: Vec<PodFacts>| pods.into_iter().map(|p| p.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(cluster.pods_on(&NodeName::parse("gpu-07").unwrap()).await.unwrap()), ["ml/a", "ml/b"]);
    assert_eq!(names(cluster.pods_of("ml", "a=b", 1).await.unwrap()), ["ml/b"]);
}
