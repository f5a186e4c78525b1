//! Nodes and Pods as they are read from the API server: only the fields that facts are made of. What is not named here is
//! skipped while parsing and never takes memory.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A Node without what we do not need.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct NodeObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct NodeSpec {
    #[serde(default)]
    taints: Option<Value>,
    #[serde(default)]
    unschedulable: Option<bool>,
    #[serde(default, rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct NodeStatus {
    #[serde(default)]
    addresses: Option<Value>,
    #[serde(default, rename = "nodeInfo")]
    node_info: Option<NodeInfo>,
    #[serde(default)]
    capacity: Option<Capacity>,
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

/// Without its times, which change with every heartbeat.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Condition {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    status: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Capacity {
    #[serde(default, rename = "nvidia.com/gpu")]
    gpus: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct NodeInfo {
    #[serde(default, rename = "systemUUID")]
    system_uuid: String,
    #[serde(default, rename = "bootID")]
    boot_id: String,
}

/// A Pod without what we do not need.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct PodObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PodSpec {
    #[serde(default, rename = "nodeName")]
    node_name: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct PodStatus {
    #[serde(default, rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(default, rename = "podIPs")]
    pod_ips: Option<Value>,
}

macro_rules! core_resource {
    ($type:ty, $scope:ty, $kind:literal, $plural:literal) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                "".into()
            }
            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

core_resource!(NodeObject, k8s_openapi::ClusterResourceScope, "Node", "nodes");
core_resource!(PodObject, k8s_openapi::NamespaceResourceScope, "Pod", "pods");
