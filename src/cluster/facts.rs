//! Objects as the API server gives them, reduced to facts. Lenient about what may be absent, strict about what our writes
//! rest on: name, uid, resourceVersion, and the taints, whose list is written back whole.

use std::{collections::BTreeMap, net::IpAddr};

use serde_json::{Map, Value};

use crate::locate::{ExporterPod, NodeFacts, NodeName, Taint};

/// What a text must be. Only hand-written YAML gets this wrong (`value: 5`, `value: yes`), hence the advice.
const TEXT: &str = "a string (in YAML: put it in quotes)";

/// An object of the cluster that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {}", self.problem())]
pub struct FactsError {
    /// Kind and name as far as known, e.g. `Node gpu-node-07`.
    pub object: String,
    /// The path of the field, e.g. `spec.taints[2].key`.
    pub field: String,
    /// What stands there, e.g. `the number 5`.
    pub found: String,
    /// What should stand there.
    pub expected: String,
}

impl FactsError {
    /// The message without the object.
    #[must_use]
    pub fn problem(&self) -> String {
        format!("{} is {}; expected {}", self.field, self.found, self.expected)
    }
}

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
        provider_id: optional("spec.providerID"),
        system_uuid: optional("status.nodeInfo.systemUUID"),
        boot_id: optional("status.nodeInfo.bootID"),
        internal_ips: object
            .list("status.addresses")
            .filter(|a| a.get("type").and_then(Value::as_str) == Some("InternalIP"))
            .filter_map(|a| ip(a.get("address")?))
            .collect(),
        gpus: gpus(&object),
    })
}

/// With the MIG strategy `single` both numbers count slices, and say nothing about GPUs. With time slicing the capacity counts shares;
/// the label does not (<https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery>).
fn gpus(object: &Object<'_>) -> Option<u32> {
    let label = |name: &str| object.at("metadata.labels")?.get(name)?.as_str();
    if label("nvidia.com/mig.strategy") == Some("single") {
        return None;
    }
    let capacity = || object.at("status.capacity")?.get("nvidia.com/gpu")?.as_str();
    label("nvidia.com/gpu.count").or_else(capacity)?.parse().ok()
}

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

/// What a Pod is called and labelled, for those who look it up by either.
#[derive(Debug)]
pub(super) struct PodIdentity {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
}

/// The identity of a Pod. Errors if its name is missing, or one of its texts is not a string.
pub(super) fn pod_identity(raw: &Value) -> Result<PodIdentity, FactsError> {
    let object = Object::new("Pod", raw);
    Ok(PodIdentity {
        namespace: object.text("metadata.namespace")?.unwrap_or("default").to_owned(),
        name: object.required("metadata.name")?.to_owned(),
        labels: object.texts("metadata.labels")?,
    })
}

fn ip(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse().ok()
}

/// What stands in a field, in words that stay short whatever it is.
fn describe(value: Option<&Value>) -> String {
    match value {
        None => "absent".to_owned(),
        Some(Value::Null) => "null".to_owned(),
        Some(Value::Bool(b)) => format!("the boolean {b}"),
        Some(Value::Number(n)) => format!("the number {n}"),
        Some(Value::String(s)) => format!("{:?}", s.chars().take(64).collect::<String>()),
        Some(Value::Array(_)) => "a list".to_owned(),
        Some(Value::Object(_)) => "a map".to_owned(),
    }
}

/// An object being read; knows how to name itself in errors.
struct Object<'a> {
    kind: &'static str,
    raw: &'a Value,
}

impl<'a> Object<'a> {
    fn new(kind: &'static str, raw: &'a Value) -> Self {
        Self { kind, raw }
    }

    /// The value at a dotted path. `null` is the same as absent, as it is to the API server.
    fn at(&self, field: &str) -> Option<&'a Value> {
        field.split('.').try_fold(self.raw, |value, key| value.get(key)).filter(|v| !v.is_null())
    }

    fn error(&self, field: impl Into<String>, found: Option<&Value>, expected: impl Into<String>) -> FactsError {
        let name = self.at("metadata.name").and_then(Value::as_str);
        FactsError {
            object: match name {
                Some(name) => format!("{} {}", self.kind, name.chars().take(253).collect::<String>()),
                None => format!("{} without a name", self.kind),
            },
            field: field.into(),
            found: describe(found),
            expected: expected.into(),
        }
    }

    fn text(&self, field: &str) -> Result<Option<&'a str>, FactsError> {
        let Some(value) = self.at(field) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.error(field, Some(value), TEXT))
    }

    fn required(&self, field: &str) -> Result<&'a str, FactsError> {
        self.text(field)?
            .filter(|text| !text.is_empty())
            .ok_or_else(|| self.error(field, self.at(field), "a string that is not empty"))
    }

    fn boolean(&self, field: &str) -> Result<bool, FactsError> {
        let Some(value) = self.at(field) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.error(field, Some(value), "true or false"))
    }

    fn map(&self, field: &str) -> Result<Option<&'a Map<String, Value>>, FactsError> {
        let Some(value) = self.at(field) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| self.error(field, Some(value), "a map"))
    }

    fn texts(&self, field: &str) -> Result<BTreeMap<String, String>, FactsError> {
        let entries = self.map(field)?.into_iter().flatten();
        let entry = |(key, value): (&String, &Value)| match value {
            Value::String(text) => Ok((key.clone(), text.clone())),
            other => Err(self.error(format!("{field}[{key:?}]"), Some(other), TEXT)),
        };
        entries.map(entry).collect()
    }

    fn list(&self, field: &str) -> impl Iterator<Item = &'a Value> {
        self.at(field).and_then(Value::as_array).into_iter().flatten()
    }

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
    use proptest::prelude::*;
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

    #[test]
    fn an_exporter_pod_has_each_address_once() {
        let pod = json!({
            "metadata": {"namespace": "gpu-operator", "name": "dcgm-x"}, "spec": {"nodeName": "gpu-07"},
            "status": {"podIP": "10.244.7.5", "podIPs": [{"ip": "10.244.7.5"}, {"ip": "fd00::5"}, {}, 5]},
        });
        let facts = exporter_pod(&pod).unwrap();
        assert_eq!(facts.ips, ["10.244.7.5".parse::<IpAddr>().unwrap(), "fd00::5".parse().unwrap()]);
        assert_eq!((facts.namespace.as_str(), facts.name.as_str(), facts.node.as_str()), ("gpu-operator", "dcgm-x", "gpu-07"));
        assert_eq!(exporter_pod(&json!({"metadata": {"name": "waiting"}, "spec": {}})), None);
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let key = prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "name",
            "uid",
            "resourceVersion",
            "labels",
            "annotations",
            "taints",
            "key",
            "effect",
            "addresses",
            "podIPs",
            "nodeName",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-zé.]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_json_makes_it_panic(raw in json_value()) {
            if let Err(error) = node_facts(&raw, DOMAIN) {
                prop_assert!(!error.to_string().is_empty());
            }
            drop(exporter_pod(&raw));
        }
    }
}
