//! What the API server demands of a Node's labels, annotations and taints, so that a patch it would answer with 422 fails here as
//! well. The rules are those of kubernetes `apimachinery/pkg/util/validation` and `pkg/apis/core/validation`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::locate::{NodeFacts, NodeName};

/// `TotalAnnotationSizeLimitB`: keys and values of all annotations of an object.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Check a node whose facts could be read. The error is the field and what is wrong with it.
pub(super) fn check(raw: &Value, facts: &NodeFacts) -> Result<(), String> {
    for (key, value) in &facts.labels {
        if !is_qualified_name(key) {
            return Err(format!("metadata.labels: {key:?} is not a qualified name"));
        }
        if !is_label_value(value) {
            return Err(format!("metadata.labels[{key:?}]: {value:?} is not the value of a label"));
        }
    }
    // All annotations count, not only those that the facts keep.
    let annotations = || raw.pointer("/metadata/annotations").and_then(Value::as_object).into_iter().flatten();
    // The server lowers the case first, so `Example.com/Key` is an annotation though it is no label.
    if let Some((key, _)) = annotations().find(|(key, _)| !is_qualified_name(&key.to_lowercase())) {
        return Err(format!("metadata.annotations: {key:?} is not a qualified name"));
    }
    let size: usize = annotations().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_MAX {
        return Err(format!("metadata.annotations: {size} bytes are too long: must have at most {ANNOTATIONS_MAX} bytes"));
    }
    let mut seen = BTreeSet::new();
    for (index, taint) in facts.taints.iter().enumerate() {
        let at = |field: &str, problem: &str| Err(format!("spec.taints[{index}]{field}: {problem}"));
        if !is_qualified_name(&taint.key) {
            return at(".key", &format!("{:?} is not a qualified name", taint.key));
        }
        let value = taint.value.as_deref().unwrap_or_default();
        if !is_label_value(value) {
            return at(".value", &format!("{value:?} is not the value of a label"));
        }
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&taint.effect.as_str()) {
            return at(".effect", &format!("{:?} is none of NoSchedule, PreferNoSchedule and NoExecute", taint.effect));
        }
        if !seen.insert((&taint.key, &taint.effect)) {
            return at("", "taints must be unique by key and effect pair");
        }
    }
    Ok(())
}

/// `name` or `prefix/name`: the prefix an RFC 1123 subdomain, the name like the value of a label but not empty.
fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(|p| NodeName::parse(p).is_ok()) && !name.is_empty() && is_label_value(name)
}

/// At most 63 of letters, digits, `-`, `_` and `.`, with a letter or digit at both ends; or empty.
fn is_label_value(text: &str) -> bool {
    let inner = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    let ends = [text.as_bytes().first(), text.as_bytes().last()];
    text.len() <= 63 && text.as_bytes().iter().all(inner) && ends.into_iter().flatten().all(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::cluster::node_facts;

    #[rstest]
    #[case(json!({"a": "", "x.example/A_b": "v-1"}), json!({"Example.com/K": "any \u{e9}"}), json!([]), "")]
    #[case(json!({"a/b/c": "v"}), json!({}), json!([]), r#"metadata.labels: "a/b/c""#)]
    #[case(json!({"a": "-v"}), json!({}), json!([]), r#"metadata.labels["a"]: "-v""#)]
    #[case(json!({}), json!({"": "v"}), json!([]), r#"metadata.annotations: "" is"#)]
    #[case(json!({}), json!({"a": "v".repeat(ANNOTATIONS_MAX - 1)}), json!([]), "")]
    #[case(json!({}), json!({"a": "v".repeat(ANNOTATIONS_MAX)}), json!([]), "metadata.annotations: 262145 bytes are too long")]
    #[case(json!({}), json!({}), json!([{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoExecute"}]), "")]
    #[case(json!({}), json!({}), json!([{"key": "k", "effect": "NoSchedule"}, {"key": "k", "value": "v", "effect": "NoSchedule"}]),
        "spec.taints[1]: taints must be unique")]
    #[case(json!({}), json!({}), json!([{"key": "k y", "effect": "NoSchedule"}]), "spec.taints[0].key:")]
    #[case(json!({}), json!({}), json!([{"key": "k", "value": "v/w", "effect": "NoSchedule"}]), "spec.taints[0].value:")]
    #[case(json!({}), json!({}), json!([{"key": "k"}]), r#"spec.taints[0].effect: "" is none of"#)]
    #[case(json!({}), json!({}), json!([{"key": "k".repeat(64), "effect": "NoSchedule"}]), "spec.taints[0].key:")]
    fn the_rules_of_the_api_server(
        #[case] labels: Value,
        #[case] annotations: Value,
        #[case] taints: Value,
        #[case] message: &str,
    ) {
        let metadata = json!({"name": "n", "uid": "u", "resourceVersion": "1", "labels": labels, "annotations": annotations});
        let raw = json!({"metadata": metadata, "spec": {"taints": taints}});
        let error = check(&raw, &node_facts(&raw, "d").unwrap()).err().unwrap_or_default();
        assert!(error.starts_with(message) && error.is_empty() == message.is_empty(), "{error}");
    }
}
