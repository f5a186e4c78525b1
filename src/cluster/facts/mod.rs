//! Objects as the API server gives them, reduced to facts. Lenient about what may be absent, strict about what our writes
//! rest on: name, uid, resourceVersion, and the taints, whose list is written back whole.

mod claims;
mod node;
mod pod;

use std::{collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use serde_json::{Map, Value};

pub(super) use claims::{CLAIM_DRIVER, Claimed, claimed_gpus};
pub use node::node_facts;
pub use pod::{exporter_pod, owner_object, pod_facts};

use crate::locate::Owner;

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
    kind: &'a str,
    raw: &'a Value,
}

impl<'a> Object<'a> {
    fn new(kind: &'a str, raw: &'a Value) -> Self {
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

    /// The entry of `metadata.ownerReferences` that controls it.
    fn controller(&self) -> Result<Option<Owner>, FactsError> {
        let references = self.list("metadata.ownerReferences").enumerate();
        let mut controllers = references.filter(|(_, r)| r.get("controller").and_then(Value::as_bool) == Some(true));
        let Some((index, reference)) = controllers.next() else { return Ok(None) };
        let text = |key: &str| match reference.get(key).and_then(Value::as_str) {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => {
                let field = format!("metadata.ownerReferences[{index}].{key}");
                Err(self.error(field, reference.get(key), "a string that is not empty"))
            }
        };
        Ok(Some(Owner { api_version: text("apiVersion")?, kind: text("kind")?, name: text("name")?, uid: text("uid")? }))
    }

    /// A time that, if it is there, must be one.
    fn time(&self, field: &str) -> Result<Option<Timestamp>, FactsError> {
        let Some(text) = self.text(field)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| self.error(field, self.at(field), "a time as in RFC 3339"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
            if let Err(error) = node_facts(&raw, "gpu-quarantine.dev") {
                prop_assert!(!error.to_string().is_empty());
            }
            drop(exporter_pod(&raw));
            drop(pod_facts(&raw));
            drop(owner_object(&raw));
            drop(claimed_gpus(&[&raw], &[&raw]));
        }
    }
}
