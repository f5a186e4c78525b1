//! The health of machines as labels of their nodes.

use serde_json::{Value, json};

use crate::harness::{CONFIG, Fault, Service, lost};

const NODE: &str = "gpu-node-07";
const OVER: &str = "2026-11-29T20:17:00Z";
const LABEL: &str = "gpu-quarantine.dev/health";

fn label(service: &Service, node: &str) -> Value {
    service.cluster.raw(node)["metadata"]["labels"][LABEL].clone()
}

#[tokio::test]
async fn each_node_in_scope_has_it_and_it_is_written_once_an_hour_and_taken_away_when_switched_off() {
    let on = format!("{CONFIG}health_label: true\n");
    let service = Service::with(&on).await;
    service.cluster.fail_node(NODE, Some(Fault::Conflict));
    service.engine.label_health().await;
    assert_eq!((label(&service, NODE), label(&service, "gpu-node-12")), (Value::Null, json!("100")));
    assert_eq!(label(&service, "cpu-1"), Value::Null, "not in scope");
    service.cluster.fail_node(NODE, None);
    service.engine.label_health().await;
    assert_eq!(label(&service, NODE), "100");
    service.outcomes(&[lost(NODE, 0)]).await;
    service.outcomes(&[lost(NODE, 0).over(OVER)]).await;
    service.pass("10m").await;
    assert!(!service.tainted(NODE));
    let writes = service.cluster.written();
    service.engine.label_health().await;
    assert_eq!((label(&service, NODE), service.cluster.written()), (json!("100"), writes), "the hour is not over");
    service.pass("50m").await;
    service.engine.label_health().await;
    assert_eq!(label(&service, NODE), "80");
    service.reload(CONFIG).await.unwrap();
    service.pass("1h").await;
    service.engine.label_health().await;
    assert_eq!((label(&service, NODE), label(&service, "gpu-node-12")), (Value::Null, Value::Null));
    let writes = service.cluster.written();
    service.engine.label_health().await;
    assert_eq!(service.cluster.written(), writes);
}
