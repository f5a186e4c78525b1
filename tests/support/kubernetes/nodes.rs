//! Nodes as tests make and change them, under any field manager.

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};

/// The key of our taint.
pub(crate) const TAINT: &str = "gpu-quarantine.dev/isolated";
/// The annotation of our record.
pub(crate) const RECORD: &str = "gpu-quarantine.dev/record";

/// Nodes of one API server.
#[derive(Clone)]
pub(crate) struct Nodes(pub(crate) Api<DynamicObject>);

/// A small node in the scope of `scope` (see [`crate::service::config`]).
pub(crate) fn node(name: &str, scope: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"gq-test": scope, "kubernetes.io/hostname": name}},
        "spec": {"providerID": format!("metal://{name}")},
    })
}

/// A managed field manager's write: a merge patch.
fn managers(name: &str) -> Vec<(&'static str, Value)> {
    let features: Map<String, Value> =
        (0..55).map(|i| (format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE-NUMBER-{i:02}"), Value::from("true"))).collect();
    let images: Vec<Value> = (0..34)
        .map(|i| {
            let digest = format!("{i:02x}").repeat(32);
            json!({
                "names": [
                    format!("registry.example.com/ml-platform/training-image-{i}@sha256:{digest}"),
                    format!("registry.example.com/ml-platform/training-image-{i}:2026.11.{i}"),
                ],
                "sizeBytes": 4_000_000_000_u64 + i,
            })
        })
        .collect();
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": format!("Kubelet{kind}"), "message": format!("kubelet says {kind} {status}"),
            "lastHeartbeatTime": "2026-11-01T00:00:00Z", "lastTransitionTime": "2026-11-01T00:00:00Z",
        })
    };
    vec![
        (
            "nfd-master",
            json!({"metadata": {"labels": features, "annotations": {"nfd.node.kubernetes.io/master.version": "v0.17"}}}),
        ),
        (
            "gpu-feature-discovery",
            json!({"metadata": {"labels": {
                "nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            }}}),
        ),
        (
            "cni",
            json!({"metadata": {"annotations": {"projectcalico.org/IPv4Address": "10.0.0.7/24", "csi.volume.kubernetes.io/nodeid": "{}"}},
                   "spec": {"podCIDR": "10.244.7.0/24", "podCIDRs": ["10.244.7.0/24"]}}),
        ),
        ("operator", json!({"spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]}})),
        (
            "kubelet",
            json!({"status": {
                "images": images,
                "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}, {"type": "Hostname", "address": name}],
                "capacity": {"cpu": "128", "memory": "2113000000Ki", "pods": "110", "nvidia.com/gpu": "8"},
                "allocatable": {"cpu": "127", "memory": "2112000000Ki", "pods": "110", "nvidia.com/gpu": "8"},
                "conditions": [
                    condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False"),
                    condition("Ready", "True"),
                ],
            }}),
        ),
    ]
}

impl Nodes {
    /// Those that `client` reaches.
    pub(crate) fn of(client: Client) -> Self {
        Self(Api::all_with(client, &ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&())))
    }

    /// Create a node.
    pub(crate) async fn create(&self, node: Value) -> Value {
        let params = PostParams { field_manager: Some("kubelet".to_owned()), ..PostParams::default() };
        let object: DynamicObject = serde_json::from_value(node).expect("an object");
        json!(self.0.create(&params, &object).await.expect("a node"))
    }

    /// Create a node as large as in production, written by as many.
    pub(crate) async fn create_large(&self, name: &str, scope: &str) -> Value {
        self.create(node(name, scope)).await;
        for (manager, mut patch) in managers(name) {
            let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
            if patch.get("status").is_some() {
                let status = json!({"status": patch["status"].take()});
                self.0.patch_status(name, &params, &Patch::Merge(status)).await.expect("its status");
            } else {
                self.0.patch(name, &params, &Patch::Merge(patch)).await.expect("its fields");
            }
        }
        self.get(name).await
    }

    /// Read a node.
    pub(crate) async fn get(&self, name: &str) -> Value {
        json!(self.0.get(name).await.expect("the node is there"))
    }

    /// Write a merge patch as `manager`.
    pub(crate) async fn patch(&self, manager: &str, name: &str, patch: Value) -> Value {
        self.try_patch(manager, name, patch).await.expect("the patch is good")
    }

    /// Write a merge patch as `manager`, perhaps in vain.
    pub(crate) async fn try_patch(&self, manager: &str, name: &str, patch: Value) -> kube::Result<Value> {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        self.0.patch(name, &params, &Patch::Merge(patch)).await.map(|node| json!(node))
    }

    /// Write a merge patch of a node's status, as the kubelet does.
    pub(crate) async fn set_status(&self, name: &str, status: Value) {
        let params = PatchParams { field_manager: Some("kubelet".to_owned()), ..PatchParams::default() };
        self.0.patch_status(name, &params, &Patch::Merge(json!({"status": status}))).await.expect("the node is there");
    }

    /// Delete a node.
    pub(crate) async fn delete(&self, name: &str) {
        self.0.delete(name, &DeleteParams::default()).await.expect("the node is there");
    }
}

/// Its resourceVersion.
pub(crate) fn version(node: &Value) -> &str {
    node["metadata"]["resourceVersion"].as_str().expect("every object has one")
}

/// Its taints.
pub(crate) fn taints(node: &Value) -> Vec<Value> {
    node["spec"]["taints"].as_array().cloned().unwrap_or_default()
}

/// Its taints without ours.
pub(crate) fn others_taints(node: &Value) -> Vec<Value> {
    taints(node).into_iter().filter(|t| t["key"] != TAINT).collect()
}

/// Whether our taint stands on it.
pub(crate) fn tainted(node: &Value) -> bool {
    taints(node).iter().any(|t| t["key"] == TAINT)
}

/// Our record on it.
pub(crate) fn record(node: &Value) -> Option<Value> {
    node["metadata"]["annotations"][RECORD].as_str().map(|text| serde_json::from_str(text).expect("the record is JSON"))
}

/// Whether our record says that we isolated it. This must never disagree with the taint.
pub(crate) fn added(node: &Value) -> bool {
    record(node).is_some_and(|r| !r["added"].is_null())
}

/// Taint and record agree.
pub(crate) fn assert_agrees(node: &Value) {
    assert_eq!(tainted(node), added(node), "taint and record disagree: {}", json!([node["spec"], record(node)]));
}

/// All of a node that our writes may not change.
pub(crate) fn without_us(node: &Value) -> Value {
    let mut node = node.clone();
    let meta = node["metadata"].as_object_mut().expect("metadata");
    meta.remove("resourceVersion");
    meta.remove("managedFields");
    if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(RECORD);
        if annotations.is_empty() {
            meta.remove("annotations");
        }
    }
    node
}
