//! What outlives a Node object: the ledger, machines that come back, faults that come back, the pause.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "recurrence/flapping.rs"]
mod flapping;
#[path = "support/harness.rs"]
mod harness;
#[path = "recurrence/health.rs"]
mod health;
#[path = "recurrence/ledger.rs"]
mod ledger;
#[path = "recurrence/pure.rs"]
mod pure;
#[path = "recurrence/returns.rs"]
mod returns;

use harness::{RECORD, Service, TAINT, name};
use serde_json::{Value, json};

/// The node is deleted, and what is needed to create it again.
async fn delete(service: &Service, node: &str) -> Value {
    let mut raw = service.cluster.raw(node);
    service.cluster.inner.delete(&name(node)).unwrap();
    service.engine.refresh().await;
    let metadata = raw["metadata"].as_object_mut().unwrap();
    metadata.remove("uid");
    metadata.remove("resourceVersion");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(RECORD);
    }
    if let Some(taints) = raw["spec"]["taints"].as_array_mut() {
        taints.retain(|t| t["key"] != TAINT);
    }
    raw
}

/// It registers anew.
async fn create(service: &Service, mut raw: Value) {
    raw["metadata"]["creationTimestamp"] = json!(service.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    service.cluster.inner.create(raw).unwrap();
    service.engine.refresh().await;
}
