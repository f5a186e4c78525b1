//! The facts of a Node.

use serde_json::Value;

use super::{FactsError, Object, TEXT, ip};
use crate::locate::{NodeFacts, NodeName, Taint};

/// The facts of a Node. Of its annotations only those below `domain` are kept: the others may be large, and are not ours.
///
/// # Errors
/// If name, uid or resourceVersion is missing or malformed, a label or annotation is not a string, a taint is malformed, or
/// `spec.unschedulable` is not a boolean.
pub fn node_facts(raw: &Value, domain: &str) -> Result<NodeFacts, FactsError> {
    let object = Object::new("Node", raw);
    let name = object.required("metadata.name")?;
    let name = NodeName::parse(name).map_err(|_| {
        object.error("metadata.name", object.at("metadata.name"), "an RFC 1123 subdomain, as Kubernetes demands of names")
    })?;
    let ours = |key: &str| key.strip_prefix(domain).is_some_and(|rest| rest.starts_with('/'));
    let mut annotations = object.texts("metadata.annotations")?;
    annotations.retain(|key, _| ours(key));
    // Looked at only so that a `spec` of another shape is not taken for one without taints.
    object.map("spec")?;
    let optional = |field: &str| object.at(field).and_then(Value::as_str).filter(|t| !t.is_empty()).map(str::to_owned);
    Ok(NodeFacts {
        name,
        uid: object.required("metadata.uid")?.to_owned(),
        resource_version: object.required("metadata.resourceVersion")?.to_owned(),
        created: optional("metadata.creationTimestamp").and_then(|t| t.parse().ok()),
        labels: object.texts("metadata.labels")?,
        annotations,
        taints: object.taints()?,
        taints_manager: object.manager_of("f:spec", "f:taints"),
        unschedulable: object.boolean("spec.unschedulable")?,
        ready: ready(&object),
        provider_id: optional("spec.providerID"),
        system_uuid: optional("status.nodeInfo.systemUUID"),
        boot_id: optional("status.nodeInfo.bootID"),
        internal_ips: object
            .list("status.addresses")
            .filter(|a| a.get("type").and_then(Value::as_str) == Some("InternalIP"))
            .filter_map(|a| ip(a.get("address")?))
            .collect(),
        gpus: gpus(&object),
        whole_gpus: whole_gpus(&object),
    })
}

/// `Unknown` is a node whose kubelet was not heard of for long, and not ready either.
fn ready(object: &Object<'_>) -> bool {
    let text = |condition: &Value, key: &str| condition.get(key).and_then(Value::as_str).map(str::to_owned);
    let told = object.list("status.conditions").find(|c| text(c, "type").as_deref() == Some("Ready"));
    told.is_none_or(|condition| text(condition, "status").as_deref() == Some("True"))
}

/// With the MIG strategy `single` both numbers count slices, and say nothing about GPUs. With time slicing the capacity counts shares;
/// the label does not (<https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery>).
fn gpus(object: &Object<'_>) -> Option<u32> {
    if mig_strategy(object) == Some("single") {
        return None;
    }
    gpu_label(object).or_else(|| gpu_capacity(object))
}

fn whole_gpus(object: &Object<'_>) -> Option<u32> {
    let capacity = gpu_capacity(object).filter(|n| *n > 0)?;
    let slices = matches!(mig_strategy(object), Some("single" | "mixed"));
    (!slices && gpu_label(object).is_none_or(|label| label == capacity)).then_some(capacity)
}

fn label<'a>(object: &Object<'a>, name: &str) -> Option<&'a str> {
    object.at("metadata.labels")?.get(name)?.as_str()
}

fn mig_strategy<'a>(object: &Object<'a>) -> Option<&'a str> {
    label(object, "nvidia.com/mig.strategy")
}

fn gpu_label(object: &Object<'_>) -> Option<u32> {
    label(object, "nvidia.com/gpu.count")?.parse().ok()
}

fn gpu_capacity(object: &Object<'_>) -> Option<u32> {
    object.at("status.capacity")?.get("nvidia.com/gpu")?.as_str()?.parse().ok()
}

impl<'a> Object<'a> {
    /// The field manager that owns a field, by `metadata.managedFields`; the latest of several.
    fn manager_of(&self, parent: &str, field: &str) -> Option<String> {
        let text = |entry: &'a Value, key: &str| entry.get(key).and_then(Value::as_str);
        self.list("metadata.managedFields")
            .filter(|entry| entry.get("fieldsV1").and_then(|f| f.get(parent)).and_then(|f| f.get(field)).is_some())
            .max_by_key(|entry| text(entry, "time"))
            .and_then(|entry| text(entry, "manager"))
            .map(str::to_owned)
    }

    fn taints(&self) -> Result<Vec<Taint>, FactsError> {
        let Some(value) = self.at("spec.taints") else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| self.error("spec.taints", Some(value), "a list"))?;
        list.iter().enumerate().map(|(index, taint)| self.taint(index, taint)).collect()
    }

    fn taint(&self, index: usize, value: &Value) -> Result<Taint, FactsError> {
        let path = format!("spec.taints[{index}]");
        let mut fields = value.as_object().cloned().ok_or_else(|| self.error(path.clone(), Some(value), "a map"))?;
        let mut text = |key: &str| match fields.remove(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.error(format!("{path}.{key}"), Some(&other), TEXT)),
        };
        let (key, value, effect) = (text("key")?, text("value")?, text("effect")?);
        Ok(Taint {
            key: key
                .filter(|key| !key.is_empty())
                .ok_or_else(|| self.error(format!("{path}.key"), None, "the key of a taint"))?,
            value,
            effect: effect.unwrap_or_default(),
            other: fields.into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const DOMAIN: &str = "gpu-quarantine.dev";

    fn node() -> Value {
        json!({
            "metadata": {
                "name": "gpu-07", "uid": "u-1", "resourceVersion": "41", "creationTimestamp": "2026-03-01T08:00:00Z",
                "labels": {"zone": "a"},
                "annotations": {
                    "gpu-quarantine.dev/record": "{}", "gpu-quarantine.dev.evil/x": "1", "gpu-quarantine.dev": "2", "other/y": "3",
                },
            },
            "spec": {
                "unschedulable": true, "providerID": "metal://7",
                "taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-03-01T08:00:00Z"}, {"key": "b", "value": null}],
            },
            "status": {
                "addresses": [
                    {"type": "Hostname", "address": "10.0.0.9"}, {"type": "InternalIP", "address": "10.0.0.7"},
                    {"type": "InternalIP", "address": "fd00::7"}, {"type": "InternalIP", "address": "no address"}, 5,
                ],
                "nodeInfo": {"systemUUID": "s", "bootID": "b"},
            },
        })
    }

    #[test]
    fn a_node_is_reduced_to_its_facts() {
        let facts = node_facts(&node(), DOMAIN).unwrap();
        assert_eq!(facts.name.as_str(), "gpu-07");
        assert_eq!(facts.created, Some("2026-03-01T08:00:00Z".parse().unwrap()));
        assert_eq!(facts.annotations.keys().collect::<Vec<_>>(), ["gpu-quarantine.dev/record"], "only what is below the domain");
        assert_eq!(facts.internal_ips, ["10.0.0.7".parse::<IpAddr>().unwrap(), "fd00::7".parse().unwrap()]);
        assert_eq!((facts.system_uuid.as_deref(), facts.boot_id.as_deref()), (Some("s"), Some("b")));
        assert_eq!(
            serde_json::to_value(&facts.taints[0]).unwrap(),
            node()["spec"]["taints"][0],
            "a taint is written back with all its fields"
        );
        assert_eq!((facts.taints[1].value.as_deref(), facts.taints[1].effect.as_str()), (None, ""));
    }

    #[test]
    fn absent_and_null_fields_are_empty() {
        let identity = json!({"name": "n", "uid": "u", "resourceVersion": "1"});
        let bare = node_facts(&json!({"metadata": identity}), DOMAIN).unwrap();
        let mut nulls = json!({"metadata": identity, "spec": {"taints": null, "unschedulable": null}, "status": null});
        nulls["metadata"]["labels"] = Value::Null;
        nulls["metadata"]["annotations"] = Value::Null;
        assert_eq!(node_facts(&nulls, DOMAIN).unwrap(), bare);
        assert!(bare.labels.is_empty() && bare.taints.is_empty() && !bare.unschedulable && bare.internal_ips.is_empty());
    }

    #[rstest]
    #[case::labelled(&[("nvidia.com/gpu.count", "8")], "8", Some(8), Some(8))]
    #[case::only_the_capacity(&[], "8", Some(8), Some(8))]
    #[case::shares(&[("nvidia.com/gpu.count", "8")], "80", Some(8), None)]
    #[case::one_is_not_allocated(&[("nvidia.com/gpu.count", "8")], "7", Some(8), None)]
    #[case::slices(&[("nvidia.com/gpu.count", "8"), ("nvidia.com/mig.strategy", "single")], "56", None, None)]
    #[case::some_are_sliced(&[("nvidia.com/gpu.count", "8"), ("nvidia.com/mig.strategy", "mixed")], "8", Some(8), None)]
    #[case::none(&[], "0", Some(0), None)]
    fn gpus_are_counted_and_told_from_shares_and_slices(
        #[case] labels: &[(&str, &str)],
        #[case] capacity: &str,
        #[case] gpus: Option<u32>,
        #[case] whole: Option<u32>,
    ) {
        let mut raw = node();
        for (key, value) in labels {
            raw["metadata"]["labels"][*key] = json!(value);
        }
        raw["status"]["capacity"] = json!({ "nvidia.com/gpu": capacity });
        let facts = node_facts(&raw, DOMAIN).unwrap();
        assert_eq!((facts.gpus, facts.whole_gpus), (gpus, whole));
    }

    #[rstest]
    #[case("/metadata/name", json!("Gpu_7"), r#"Node Gpu_7: metadata.name is "Gpu_7"; expected an RFC 1123"#)]
    #[case("/metadata/name", json!(7), "Node without a name: metadata.name is the number 7; expected a string (in YAML")]
    #[case("/metadata/uid", json!(null), "Node gpu-07: metadata.uid is absent; expected a string that is not empty")]
    #[case("/metadata/resourceVersion", json!(""), r#"Node gpu-07: metadata.resourceVersion is ""; expected"#)]
    #[case("/metadata/labels", json!({"a": true}), r#"Node gpu-07: metadata.labels["a"] is the boolean true; expected a string"#)]
    #[case("/metadata/annotations", json!([]), "Node gpu-07: metadata.annotations is a list; expected a map")]
    #[case("/spec", json!("x"), r#"Node gpu-07: spec is "x"; expected a map"#)]
    #[case("/spec/taints", json!({}), "Node gpu-07: spec.taints is a map; expected a list")]
    #[case("/spec/taints/1", json!("k=v"), r#"Node gpu-07: spec.taints[1] is "k=v"; expected a map"#)]
    #[case("/spec/taints/1", json!({"value": "v"}), "Node gpu-07: spec.taints[1].key is absent; expected the key of a taint")]
    #[case("/spec/taints/0", json!({"key": "k", "value": 1}), "Node gpu-07: spec.taints[0].value is the number 1; expected a string")]
    #[case("/spec/taints/0", json!(null), "Node gpu-07: spec.taints[0] is null; expected a map")]
    #[case("/spec/unschedulable", json!("yes"), r#"Node gpu-07: spec.unschedulable is "yes"; expected true or false"#)]
    fn an_error_names_object_field_and_expectation(#[case] at: &str, #[case] value: Value, #[case] message: &str) {
        let mut raw = node();
        *raw.pointer_mut(at).unwrap() = value;
        let error = node_facts(&raw, DOMAIN).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}
