//! Nodes and alerts as large and as shaped as real ones.

use serde_json::{Map, Value, json};

/// Every node may be isolated, so that the guard refuses nothing.
pub(crate) const CONFIG: &str = "\
instance: bench
release: {require: [resolved]}
guard: {max_isolated: {count: 100000, percent: 100}, pools: {max_isolated: {count: 100000, percent: 100}, min_healthy: 0}, max_new_isolations: {count: 1000000}}
";

/// The name of the node with that number.
pub(crate) fn node_name(n: usize) -> String {
    format!("gpu-node-{n:05}.example.com")
}

/// A Node of about 20 kB as the API server stores it: 58 labels, 40 images, addresses, conditions.
pub(crate) fn node(n: usize) -> Value {
    let name = node_name(n);
    let mut labels = Map::new();
    labels.insert("nvidia.com/gpu.present".into(), "true".into());
    labels.insert("kubernetes.io/hostname".into(), name.clone().into());
    for i in 0..56 {
        let key = format!("feature.node.kubernetes.io/cpu-cpuid.FEATURE{i:02}");
        labels.insert(key, "true".into());
    }
    let image = |i: usize| {
        json!({ "sizeBytes": 1_000_000_000 + i, "names": [
            format!("registry.example.com/training/team-{i:02}/pytorch-nccl@sha256:{:064x}", n * 100 + i),
            format!("registry.example.com/training/team-{i:02}/pytorch-nccl:2.{i}-cuda12.4-ubuntu22.04"),
        ] })
    };
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "False", "reason": format!("Kubelet{kind}"), "message": "kubelet says that all is well",
                "lastHeartbeatTime": "2026-03-01T12:00:00Z", "lastTransitionTime": "2026-03-01T12:00:00Z" })
    };
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"].map(condition);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": labels, "annotations": {
            "node.alpha.kubernetes.io/ttl": "0",
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        } },
        "spec": { "providerID": format!("metal://rack-{}/{name}", n % 40) },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": format!("10.{}.{}.{}", 64 + n / 62_500, n / 250 % 250, n % 250 + 1) },
                { "type": "Hostname", "address": name },
            ],
            "capacity": { "cpu": "192", "memory": "2113000000Ki", "nvidia.com/gpu": "8", "pods": "110" },
            "allocatable": { "cpu": "190", "memory": "2100000000Ki", "nvidia.com/gpu": "8", "pods": "110" },
            "conditions": conditions,
            "images": (0..40).map(image).collect::<Vec<_>>(),
            "nodeInfo": {
                "machineID": format!("{n:032x}"), "systemUUID": format!("{n:08x}-0000-4000-8000-000000000000"),
                "bootID": format!("{n:08x}-1111-4111-8111-111111111111"), "kernelVersion": "5.15.0-122-generic",
                "osImage": "Ubuntu 22.04.5 LTS", "containerRuntimeVersion": "containerd://1.7.22", "kubeletVersion": "v1.33.1",
                "kubeProxyVersion": "v1.33.1", "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    })
}

/// A firing alert as a rule over a DCGM exporter's series makes it: about 684 bytes. It begins after any node was created, so
/// that it is about none that had the same name before.
pub(crate) fn alert(name: &str, node: usize, gpu: usize) -> Value {
    let host = node_name(node);
    json!({
        "status": "firing",
        "labels": {
            "DCGM_FI_DRIVER_VERSION": "550.90.07",
            "Hostname": host,
            "UUID": format!("GPU-{node:08x}-8a3e-5c1d-b7a1-{gpu:012x}"),
            "alertname": name,
            "cluster": "prod-a",
            "device": format!("nvidia{gpu}"),
            "gpu": gpu.to_string(),
            "instance": format!("10.12.{}.{}:9400", node / 250, node % 250 + 1),
            "job": "dcgm-exporter",
            "modelName": "NVIDIA H100 80GB HBM3",
            "pci_bus_id": format!("00000000:{:02X}:00.0", 16 + gpu),
            "remediation": "isolate",
            "severity": "critical",
        },
        "annotations": { "summary": format!("GPU {gpu} of {host} fell off the bus") },
        "startsAt": "2099-03-01T12:00:05.278Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prom.example:9090/graph?g0.expr=DCGM_FI_DEV_XID_ERRORS+%3D%3D+79&g0.tab=1",
        "fingerprint": format!("{:016x}", (node as u64) << 16 | (gpu as u64) << 8 | name.len() as u64),
    })
}

/// A webhook body with these alerts.
pub(crate) fn body(alerts: &[Value]) -> Vec<u8> {
    json!({
        "receiver": "gpu-quarantine", "status": "firing", "alerts": alerts, "groupLabels": { "cluster": "prod-a" },
        "commonLabels": { "cluster": "prod-a" }, "commonAnnotations": {}, "externalURL": "http://am.example:9093",
        "version": "4", "groupKey": "{}:{cluster=\"prod-a\"}", "truncatedAlerts": 0,
    })
    .to_string()
    .into_bytes()
}
