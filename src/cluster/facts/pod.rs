//! The facts of a Pod, and of what controls it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde_json::{Map, Value};

use super::{FactsError, Object, ip};
use crate::locate::{ExporterPod, Gpu, NodeName, Owner, OwnerObject, PodFacts, PodName, PodPhase, Toleration};

#[cfg(test)]
mod tests;

/// All resources of NVIDIA's device plugin begin with it: whole GPUs, MIG slices, shares.
const VENDOR: &str = "nvidia.com/";
/// Where `NVSentinel`'s metadata collector keeps what the kubelet told it: `{"devices": {"nvidia.com/gpu": ["GPU-..."]}}`.
const DEVICES_ANNOTATION: &str = "dgxc.nvidia.com/devices";

/// The facts of a Pod; `None` if it is not bound to a node, or has no name.
#[must_use]
pub fn exporter_pod(raw: &Value) -> Option<ExporterPod> {
    let object = Object::new("Pod", raw);
    let text = |field| object.at(field).and_then(Value::as_str);
    let listed = object.list("status.podIPs").filter_map(|p| ip(p.get("ip")?));
    let mut ips: Vec<IpAddr> = Vec::new();
    // `podIP` repeats the first of `podIPs` (API reference, PodStatus); servers before dual stack fill only `podIP`.
    for ip in listed.chain(object.at("status.podIP").and_then(ip)) {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    Some(ExporterPod {
        namespace: text("metadata.namespace").unwrap_or("default").to_owned(),
        name: text("metadata.name")?.to_owned(),
        node: NodeName::parse(text("spec.nodeName")?).ok()?,
        ips,
    })
}

/// The facts of a Pod. Without a namespace it is in `default`, and without a phase `Pending`, as it is to the API server.
///
/// The devices of `ResourceClaim`s are not known from a Pod alone.
///
/// # Errors
/// If its name or UID is missing or malformed, a label or annotation is not a string, or what controls it, where it runs, its phase or
/// its deletion cannot be read: each of them decides whether it may be evicted.
pub fn pod_facts(raw: &Value) -> Result<PodFacts, FactsError> {
    let object = Object::new("Pod", raw);
    let (namespace, name) = (object.text("metadata.namespace")?.unwrap_or("default"), object.required("metadata.name")?);
    let name = PodName::new(namespace, name).map_err(|_| {
        let expected = "an RFC 1123 subdomain in a namespace that is an RFC 1123 label, as Kubernetes demands of names";
        object.error("metadata.name", object.at("metadata.name"), expected)
    })?;
    let node = object.text("spec.nodeName")?.filter(|node| !node.is_empty()).map(|node| {
        let expected = "an RFC 1123 subdomain, as Kubernetes demands of names";
        NodeName::parse(node).map_err(|_| object.error("spec.nodeName", object.at("spec.nodeName"), expected))
    });
    let annotations = object.texts("metadata.annotations")?;
    let text = |field: &str| object.at(field).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    let priority = object.at("spec.priority").and_then(Value::as_i64).and_then(|p| i32::try_from(p).ok());
    Ok(PodFacts {
        name,
        uid: object.required("metadata.uid")?.to_owned(),
        node: node.transpose()?,
        created: text("metadata.creationTimestamp").and_then(|t| t.parse().ok()),
        deleted: object.time("metadata.deletionTimestamp")?,
        labels: object.texts("metadata.labels")?,
        controller: object.controller()?,
        phase: match object.text("status.phase")? {
            None | Some("" | "Pending") => PodPhase::Pending,
            Some("Running") => PodPhase::Running,
            Some("Succeeded") => PodPhase::Succeeded,
            Some("Failed") => PodPhase::Failed,
            Some(_) => PodPhase::Unknown,
        },
        priority: priority.unwrap_or(0),
        grace_seconds: object.at("spec.terminationGracePeriodSeconds").and_then(Value::as_u64),
        restart_policy: text("spec.restartPolicy").unwrap_or_else(|| "Always".to_owned()),
        tolerations: object.list("spec.tolerations").map(toleration).collect(),
        gpus: containers(&object).map(gpus_asked).fold(0, u64::saturating_add),
        whole_gpus: containers(&object).map(whole_gpus_asked).max().unwrap_or(0),
        claims: claims(&object),
        devices: allocated(&object).or_else(|| annotated(&annotations)),
        host_network: object.at("spec.hostNetwork").and_then(Value::as_bool).unwrap_or(false),
        ip: object.at("status.podIP").or_else(|| object.list("status.podIPs").next()?.get("ip")).and_then(ip),
        images: images(&object),
        pod_group: text("spec.schedulingGroup.podGroupName"),
        annotations,
    })
}

/// An object that controls others.
///
/// # Errors
/// If its apiVersion, kind, name or UID is missing, or what controls it in turn cannot be read.
pub fn owner_object(raw: &Value) -> Result<OwnerObject, FactsError> {
    let object = Object::new(raw.get("kind").and_then(Value::as_str).unwrap_or("object"), raw);
    let text = |field| object.required(field).map(str::to_owned);
    let owner =
        Owner { api_version: text("apiVersion")?, kind: text("kind")?, name: text("metadata.name")?, uid: text("metadata.uid")? };
    Ok(OwnerObject { owner, controller: object.controller()?, raw: raw.clone() })
}

fn containers<'a>(object: &Object<'a>) -> impl Iterator<Item = &'a Value> {
    object.list("spec.containers").chain(object.list("spec.initContainers"))
}

/// How much of NVIDIA's resources a container asks for. Requests of extended resources are their limits, where both are given.
fn gpus_asked(container: &Value) -> u64 {
    let given = |kind: &str| container.pointer(kind).and_then(Value::as_object).into_iter().flatten();
    let ours = given("/resources/requests").chain(given("/resources/limits")).filter(|(name, _)| name.starts_with(VENDOR));
    // The limit comes last, and stays.
    let asked: BTreeMap<&String, &Value> = ours.collect();
    asked.into_values().map(amount).fold(0, u64::saturating_add)
}

/// Init containers and containers take turns with the same GPUs, and containers side by side would ask for too many: the most that one of
/// them asks for is what the pod has at least.
fn whole_gpus_asked(container: &Value) -> u64 {
    let given = |kind: &str| container.pointer(kind).and_then(|given| given.get("nvidia.com/gpu"));
    given("/resources/limits").or_else(|| given("/resources/requests")).map_or(0, amount)
}

/// Extended resources are whole numbers. One in another spelling (`1k`) is still one or more.
fn amount(quantity: &Value) -> u64 {
    match quantity {
        Value::String(text) => text.parse().unwrap_or(1),
        other => other.as_u64().unwrap_or(1),
    }
}

/// A claim is named in the spec, or made from a template and named in the status; one that stands for an extended resource is named
/// only there (KEP-5004).
fn claims(object: &Object<'_>) -> Vec<String> {
    let named = |entry: &Value| entry.get("resourceClaimName").and_then(Value::as_str).map(str::to_owned);
    let listed = object.list("status.resourceClaimStatuses").chain(object.list("spec.resourceClaims")).filter_map(named);
    let extended = object.at("status.extendedResourceClaimStatus").and_then(named);
    listed.chain(extended).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The GPU of a device plugin's id: its UUID, and for a share of it `UUID::replica`. A MIG device's own UUID says nothing of its GPU.
fn device(id: &str) -> Option<Gpu> {
    Gpu::parse(id.split_once("::").map_or(id, |(uuid, _)| uuid)).ok()
}

/// The GPUs by `allocatedResourcesStatus` (KEP-4680). `None` if a container that asks for some has none there, or one that we cannot
/// name: what is not listed must not pass for unused.
fn allocated(object: &Object<'_>) -> Option<Vec<Gpu>> {
    let (mut gpus, mut told) = (BTreeSet::new(), BTreeSet::new());
    let of = |value: &'_ Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    for status in object.list("status.containerStatuses").chain(object.list("status.initContainerStatuses")) {
        let resources = status.get("allocatedResourcesStatus").and_then(Value::as_array).into_iter().flatten();
        for resource in resources.filter(|r| of(r, "name").starts_with(VENDOR)) {
            for health in resource.get("resources").and_then(Value::as_array).into_iter().flatten() {
                gpus.insert(device(&of(health, "resourceID"))?);
                told.insert(of(status, "name"));
            }
        }
    }
    let complete = object.list("spec.containers").filter(|c| gpus_asked(c) > 0).all(|c| told.contains(&of(c, "name")));
    (complete && !told.is_empty()).then(|| gpus.into_iter().collect())
}

fn annotated(annotations: &BTreeMap<String, String>) -> Option<Vec<Gpu>> {
    let read: Value = serde_json::from_str(annotations.get(DEVICES_ANNOTATION)?).ok()?;
    let resources: &Map<String, Value> = read.get("devices")?.as_object()?;
    let ids = resources.iter().filter(|(name, _)| name.starts_with(VENDOR)).filter_map(|(_, ids)| ids.as_array()).flatten();
    let gpus: BTreeSet<Gpu> = ids.map(|id| device(id.as_str()?)).collect::<Option<_>>()?;
    (!gpus.is_empty()).then(|| gpus.into_iter().collect())
}

fn images(object: &Object<'_>) -> Vec<String> {
    let mut images: Vec<String> = Vec::new();
    for image in containers(object).filter_map(|c| c.get("image")?.as_str()) {
        if !images.iter().any(|known| known == image) {
            images.push(image.to_owned());
        }
    }
    images
}

fn toleration(raw: &Value) -> Toleration {
    let text = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Toleration { key: text("key"), operator: text("operator"), value: text("value"), effect: text("effect") }
}
