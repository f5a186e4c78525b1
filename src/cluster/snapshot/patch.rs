//! What a JSON merge patch does to a Node, by the rules of the API server. Pure.

use serde_json::{Map, Value};

/// Why a patch is not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The node has another resourceVersion than the patch.
    Conflict,
    /// The patch can never be applied.
    Invalid(String),
}

/// What a client may set in `metadata`; the rest is the server's.
const METADATA: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];
/// What a client may change in `spec`: `ValidateNodeUpdate` compares everything else (kubernetes `pkg/apis/core/validation`).
const SPEC: [&str; 2] = ["taints", "unschedulable"];

/// The node after the patch, `None` if nothing changes; its resourceVersion is still the old one. The outcome is not yet
/// checked to be a valid node. Changes to `status` are dropped without a word, as by the real server.
///
/// The resourceVersion is compared before all else, as in the real server's `Store.Update`, so that a patch for a node that was
/// created anew is a conflict. A patch without one is refused: the real server would apply it over anybody's changes.
pub(super) fn apply(current: &Value, patch: &Value) -> Result<Option<Value>, Refusal> {
    let invalid = |message: &str| Err(Refusal::Invalid(message.to_owned()));
    match patch.pointer("/metadata/resourceVersion") {
        None | Some(Value::Null) => return invalid("metadata.resourceVersion: every patch must carry it"),
        version if version != current.pointer("/metadata/resourceVersion") => return Err(Refusal::Conflict),
        Some(_) => {}
    }
    for (path, field) in
        [("/apiVersion", "apiVersion"), ("/kind", "kind"), ("/metadata/name", "metadata.name"), ("/metadata/uid", "metadata.uid")]
    {
        let wanted = patch.pointer(path);
        if wanted.is_some() && wanted != current.pointer(path) {
            return invalid(&format!("{field}: field is immutable"));
        }
    }
    if patch.get("spec").is_some_and(|spec| !spec.is_object() && !spec.is_null()) {
        return invalid("spec: expected a map");
    }

    let mut next = into_map(current.clone());
    for (part, own) in [("metadata", METADATA.as_slice()), ("spec", SPEC.as_slice())] {
        let Some(change) = patch.get(part) else { continue };
        let before = next.get(part).cloned().unwrap_or_default();
        let mut merged = before.clone();
        merge(&mut merged, change);
        if part == "spec" && others(&merged) != others(&before) {
            return invalid("spec: node updates may only change labels, taints, or capacity");
        }
        let mut after = into_map(before);
        for key in own {
            after.remove(*key);
            after.extend(merged.get(*key).map(|value| ((*key).to_owned(), value.clone())));
        }
        if !after.is_empty() || next.contains_key(part) {
            next.insert(part.to_owned(), Value::Object(after));
        }
    }
    let mut next = Value::Object(next);
    settle(&mut next);
    Ok((next != *current).then_some(next))
}

/// What a spec holds besides what may be changed.
fn others(spec: &Value) -> Vec<(&String, &Value)> {
    spec.as_object().into_iter().flatten().filter(|(key, _)| !SPEC.contains(&key.as_str())).collect()
}

/// RFC 7396, section 2.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    let mut fields = into_map(target.take());
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.as_str()).or_insert(Value::Null), change);
        }
    }
    *target = Value::Object(fields);
}

/// The fields of a map; none of anything else.
fn into_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Leave out what the API server leaves out of its answers: empty labels, annotations and taints, and `unschedulable: false`
/// (all `omitempty`). Otherwise `[]` for absent taints would count as a change.
pub(super) fn settle(node: &mut Value) {
    let empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    for (part, own) in [("metadata", METADATA.as_slice()), ("spec", SPEC.as_slice())] {
        let Some(Value::Object(fields)) = node.get_mut(part) else { continue };
        for key in own {
            if fields.get(*key).is_some_and(empty) {
                fields.remove(*key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// RFC 7396, appendix A.
    #[rstest]
    #[case(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}))]
    #[case(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}))]
    #[case(json!({"a": "b"}), json!({"a": null}), json!({}))]
    #[case(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}))]
    #[case(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}))]
    #[case(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}))]
    #[case(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}))]
    #[case(json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]}))]
    #[case(json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"]))]
    #[case(json!({"a": "b"}), json!(["c"]), json!(["c"]))]
    #[case(json!({"a": "foo"}), json!(null), json!(null))]
    #[case(json!({"a": "foo"}), json!("bar"), json!("bar"))]
    #[case(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}))]
    #[case(json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"}))]
    #[case(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}))]
    fn the_examples_of_the_rfc(#[case] mut target: Value, #[case] patch: Value, #[case] result: Value) {
        merge(&mut target, &patch);
        assert_eq!(target, result);
    }

    fn node() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "5", "labels": {"a": "1"}, "annotations": {"x/y": "1"}},
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "t", "effect": "NoSchedule"}], "unschedulable": true},
            "status": {"phase": "p"},
        })
    }

    fn versioned(mut patch: Value) -> Value {
        merge(&mut patch, &json!({"metadata": {"resourceVersion": "5"}}));
        patch
    }

    #[rstest]
    #[case::annotation_deleted(json!({"metadata": {"annotations": {"x/y": null}}}), "/metadata/annotations", None)]
    #[case::annotations_deleted(json!({"metadata": {"annotations": null}}), "/metadata/annotations", None)]
    #[case::annotation_added(json!({"metadata": {"annotations": {"z": "2"}}}), "/metadata/annotations",
        Some(json!({"x/y": "1", "z": "2"})))]
    #[case::taints_null(json!({"spec": {"taints": null}}), "/spec/taints", None)]
    #[case::taints_empty(json!({"spec": {"taints": []}}), "/spec/taints", None)]
    #[case::uncordon_null(json!({"spec": {"unschedulable": null}}), "/spec/unschedulable", None)]
    #[case::uncordon_false(json!({"spec": {"unschedulable": false}}), "/spec/unschedulable", None)]
    #[case::the_list_is_replaced(json!({"spec": {"taints": [{"key": "o"}]}}), "/spec/taints", Some(json!([{"key": "o"}])))]
    fn what_a_patch_changes(#[case] patch: Value, #[case] at: &str, #[case] then: Option<Value>) {
        let next = apply(&node(), &versioned(patch)).unwrap().unwrap();
        assert_eq!(next.pointer(at), then.as_ref());
        assert_eq!(next["spec"]["podCIDR"], "10.0.0.0/24");
    }

    #[rstest]
    #[case::only_the_version(json!({}))]
    #[case::the_same_again(json!({"metadata": {"uid": "u", "name": "n", "labels": {"a": "1"}}, "spec": {"unschedulable": true}}))]
    #[case::deleting_what_is_not_there(json!({"metadata": {"annotations": {"no": null}}}))]
    #[case::status_is_ignored(json!({"status": {"phase": "q"}, "more": 1}))]
    #[case::server_fields_are_ignored(json!({"metadata": {"creationTimestamp": null, "generation": 9}}))]
    #[case::spec_as_it_is(json!({"spec": {"podCIDR": "10.0.0.0/24"}}))]
    fn what_changes_nothing(#[case] patch: Value) {
        assert_eq!(apply(&node(), &versioned(patch)), Ok(None));
    }

    #[rstest]
    #[case(json!({"metadata": {"uid": "other"}}), "metadata.uid: field is immutable")]
    #[case(json!({"metadata": {"uid": null}}), "metadata.uid: field is immutable")]
    #[case(json!({"metadata": {"name": "m"}}), "metadata.name: field is immutable")]
    #[case(json!({"kind": "Pod"}), "kind: field is immutable")]
    #[case(json!({"spec": {"podCIDR": null}}), "spec: node updates may only change")]
    #[case(json!({"spec": null}), "spec: node updates may only change")]
    #[case(json!({"spec": 5}), "spec: expected a map")]
    fn what_is_refused(#[case] patch: Value, #[case] message: &str) {
        let Err(Refusal::Invalid(error)) = apply(&node(), &versioned(patch)) else { panic!("must be refused") };
        assert!(error.starts_with(message), "{error}");
    }

    #[rstest]
    #[case(json!({"metadata": {"resourceVersion": "4", "uid": "other"}}), Some(Refusal::Conflict))]
    #[case(json!({"metadata": {"resourceVersion": 5}}), Some(Refusal::Conflict))]
    #[case(json!({"metadata": {"resourceVersion": null}}), None)]
    #[case(json!({"spec": {"taints": null}}), None)]
    #[case(json!({"metadata": null}), None)]
    #[case(json!([1]), None)]
    fn a_patch_without_the_current_version_is_never_applied(#[case] patch: Value, #[case] refusal: Option<Refusal>) {
        let error = apply(&node(), &patch).unwrap_err();
        match refusal {
            Some(refusal) => assert_eq!(error, refusal),
            None => assert!(matches!(error, Refusal::Invalid(m) if m.starts_with("metadata.resourceVersion"))),
        }
    }

    #[test]
    fn a_node_without_a_spec_gets_one() {
        let mut bare = node();
        merge(&mut bare, &json!({"spec": null}));
        let next = apply(&bare, &versioned(json!({"spec": {"unschedulable": true}}))).unwrap().unwrap();
        assert_eq!(next["spec"], json!({"unschedulable": true}));
    }

    proptest! {
        #[test]
        fn applying_a_patch_twice_changes_nothing_more(
            annotations in prop::collection::btree_map("[a-c]", prop::option::of("[a-c]"), 0..4),
            keys in prop::collection::vec("[a-c]", 0..3), cordon in prop::option::of(any::<bool>()),
        ) {
            let taints: Vec<_> = keys.iter().map(|k| json!({"key": k, "effect": "NoSchedule"})).collect();
            let patch = versioned(json!({"metadata": {"annotations": annotations}, "spec": {"taints": taints, "unschedulable": cordon}}));
            let once = apply(&node(), &patch).unwrap().unwrap_or_else(node);
            prop_assert_eq!(apply(&once, &patch), Ok(None));
        }
    }
}
