//! Which taints a pod tolerates, by the rules of Kubernetes.

use super::Taint;

/// A toleration of a pod; what is absent is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toleration {
    /// The key; empty means every key, which only `Exists` may.
    pub key: String,
    /// `Exists` or `Equal`; empty means `Equal`.
    pub operator: String,
    /// The value, for `Equal`.
    pub value: String,
    /// The effect; empty means every effect.
    pub effect: String,
}

/// Whether any of the tolerations tolerates the taint
/// (<https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>, and `ToleratesTaint` of
/// <https://github.com/kubernetes/kubernetes/blob/v1.33.0/staging/src/k8s.io/api/core/v1/toleration.go>).
#[must_use]
pub fn tolerates<'a>(tolerations: impl IntoIterator<Item = &'a Toleration>, taint: &Taint) -> bool {
    tolerations.into_iter().any(|t| {
        (t.effect.is_empty() || t.effect == taint.effect)
            && (t.key.is_empty() || t.key == taint.key)
            && match t.operator.as_str() {
                "" | "Equal" => t.value == taint.value.as_deref().unwrap_or_default(),
                "Exists" => true,
                _ => false,
            }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing_at_all(("", "Exists", "", ""), true)]
    #[case::every_key_of_this_effect(("", "Exists", "", "NoSchedule"), true)]
    #[case::every_key_of_another_effect(("", "Exists", "", "NoExecute"), false)]
    #[case::the_key(("d/isolated", "Exists", "", "NoSchedule"), true)]
    #[case::the_key_and_every_effect(("d/isolated", "Exists", "", ""), true)]
    #[case::another_key(("nvidia.com/gpu", "Exists", "", ""), false)]
    #[case::the_value(("d/isolated", "Equal", "gpu-lost", "NoSchedule"), true)]
    #[case::equal_is_the_default(("d/isolated", "", "gpu-lost", ""), true)]
    #[case::another_value(("d/isolated", "Equal", "other", "NoSchedule"), false)]
    #[case::no_value(("d/isolated", "Equal", "", "NoSchedule"), false)]
    #[case::an_operator_of_a_newer_server(("d/isolated", "Gt", "gpu-lost", ""), false)]
    fn a_toleration_is_read_as_kubernetes_does(#[case] t: (&str, &str, &str, &str), #[case] want: bool) {
        let (key, operator, value, effect) = t;
        let toleration = Toleration { key: key.into(), operator: operator.into(), value: value.into(), effect: effect.into() };
        let taint = Taint {
            key: "d/isolated".into(),
            value: Some("gpu-lost".into()),
            effect: "NoSchedule".into(),
            other: BTreeMap::new(),
        };
        assert_eq!(tolerates([&toleration], &taint), want);
        assert!(!tolerates([], &taint), "no toleration tolerates nothing");
        assert_eq!(tolerates([&Toleration { key: "x".into(), ..Toleration::default() }, &toleration], &taint), want);
    }

    #[test]
    fn a_taint_without_a_value_equals_an_empty_one() {
        let taint = Taint { key: "k".into(), value: None, effect: "NoSchedule".into(), other: BTreeMap::new() };
        assert!(tolerates([&Toleration { key: "k".into(), ..Toleration::default() }], &taint));
    }
}
