//! Facts back to objects, for recordings: what `node_facts` and `exporter_pod` read again as the same facts.

use serde_json::{Value, json};

use crate::{
    locate::{ExporterPod, NodeFacts},
    policy::Selector,
};

/// The Node that has these facts and nothing else.
#[must_use]
pub fn node_json(node: &NodeFacts) -> Value {
    let addresses: Vec<Value> = node.internal_ips.iter().map(|ip| json!({ "type": "InternalIP", "address": ip })).collect();
    let managed_fields: Vec<Value> = node
        .taints_manager
        .iter()
        .map(|manager| json!({ "manager": manager, "fieldsV1": { "f:spec": { "f:taints": {} } } }))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name, "uid": node.uid, "resourceVersion": node.resource_version,
            "creationTimestamp": node.created, "labels": node.labels, "annotations": node.annotations,
            "managedFields": managed_fields,
        },
        "spec": { "taints": node.taints, "unschedulable": node.unschedulable.then_some(true), "providerID": node.provider_id },
        "status": {
            "addresses": addresses,
            "nodeInfo": { "systemUUID": node.system_uuid, "bootID": node.boot_id },
            "capacity": node.gpus.map(|n| json!({ "nvidia.com/gpu": n.to_string() })),
        },
    })
}

/// The Pod that has these facts, labelled such that the first of the selectors that can be met by labels alone matches it.
#[must_use]
pub fn pod_json(pod: &ExporterPod, selectors: &[Selector]) -> Value {
    let labels = selectors.iter().find_map(Selector::example).unwrap_or_default();
    let ips: Vec<Value> = pod.ips.iter().map(|ip| json!({ "ip": ip })).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": pod.name, "namespace": pod.namespace, "labels": labels },
        "spec": { "nodeName": pod.node },
        "status": { "podIPs": ips },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Cluster, exporter_pod, node_facts, snapshot::SnapshotCluster};

    #[tokio::test]
    async fn facts_become_objects_with_the_same_facts() {
        let text = include_str!("../../fixtures/clusters/prod-a.yaml");
        let cluster = SnapshotCluster::load("prod-a.yaml", text, "gpu-quarantine.dev").unwrap();
        let nodes: Vec<_> = cluster.inventory().read().unwrap().iter().cloned().collect();
        assert!(nodes.len() > 10);
        for mut node in nodes.into_iter().map(|n| (*n).clone()) {
            node.taints_manager = Some("kubectl-taint".to_owned());
            assert_eq!(node_facts(&node_json(&node), "gpu-quarantine.dev").unwrap(), node);
        }
        let selectors = [Selector::parse("!x,app in (nvidia-dcgm-exporter, other),tier").unwrap()];
        let pods = cluster.exporter_pods(&[Selector::parse("app=nvidia-dcgm-exporter").unwrap()]).await.unwrap();
        assert!(pods.len() > 10);
        for pod in pods {
            let json = pod_json(&pod, &selectors);
            assert_eq!(exporter_pod(&json).unwrap(), pod);
            assert!(selectors[0].matches(&serde_json::from_value(json["metadata"]["labels"].clone()).unwrap()));
        }
    }
}
