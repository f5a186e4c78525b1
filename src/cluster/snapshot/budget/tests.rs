use rstest::rstest;
use serde_json::json;

use super::*;

fn pod(name: &str, status: &Value) -> Pod {
    let metadata = json!({"namespace": "ml", "name": name, "uid": name, "labels": {"app": "train", "rank": name}});
    Pod::read(json!({"metadata": metadata, "spec": {"nodeName": "n"}, "status": status})).unwrap()
}

fn running(name: &str) -> Pod {
    pod(name, &json!({"phase": "Running"}))
}

fn unready(name: &str) -> Pod {
    pod(name, &json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}))
}

fn budget(spec: Value, pods: &[Pod]) -> Budget {
    let mut spec = spec;
    spec["selector"] = spec.get("selector").cloned().unwrap_or_else(|| json!({"matchLabels": {"app": "train"}}));
    let mut budget = Budget::read(&json!({"metadata": {"namespace": "ml", "name": "b"}, "spec": spec})).unwrap();
    budget.expect(pods.iter());
    budget
}

#[rstest]
#[case::count(json!({"minAvailable": 3}), true)]
#[case::all(json!({"minAvailable": 4}), false)]
#[case::more_than_there_are(json!({"minAvailable": 9}), false)]
#[case::percent(json!({"minAvailable": "75%"}), true)]
#[case::percent_rounded_up(json!({"minAvailable": "76%"}), false)]
#[case::one_may_be_missing(json!({"maxUnavailable": 1}), true)]
#[case::none_may(json!({"maxUnavailable": 0}), false)]
#[case::a_percent_may(json!({"maxUnavailable": "1%"}), true)]
#[case::no_percent_may(json!({"maxUnavailable": "0%"}), false)]
#[case::no_limit_expects_nothing(json!({}), false)]
#[case::null_is_absent(json!({"minAvailable": null, "maxUnavailable": 4}), true)]
fn a_pod_goes_if_enough_healthy_ones_are_left(#[case] spec: Value, #[case] goes: bool) {
    let pods = ["a", "b", "c", "d"].map(running);
    let budgets = [budget(spec, &pods)];
    let answer = check(&pods[0], &budgets, pods.iter());
    assert_eq!(answer.is_ok(), goes, "{answer:?}");
    if let Err(EvictionAnswer::Blocked { budget, message }) = answer {
        assert_eq!(budget.as_deref(), Some("b"));
        assert!(message.contains("The disruption budget b needs") && message.contains("and has 4 currently"), "{message}");
    }
}

#[test]
fn one_that_left_is_missed_until_another_comes() {
    let mut pods: Vec<Pod> = ["a", "b", "c", "d"].map(running).into();
    let budgets = [budget(json!({"maxUnavailable": 1}), &pods)];
    assert!(check(&pods[0], &budgets, pods.iter()).is_ok());
    pods.remove(0);
    assert!(check(&pods[0], &budgets, pods.iter()).is_err());
    pods.push(unready("e"));
    assert!(check(&pods[0], &budgets, pods.iter()).is_err(), "it is not ready yet");
    pods.push(running("f"));
    assert!(check(&pods[0], &budgets, pods.iter()).is_ok());
}

#[rstest]
#[case::pending(pod("a", &json!({"phase": "Pending"})), true)]
#[case::without_a_phase(pod("a", &json!({})), true)]
#[case::succeeded(pod("a", &json!({"phase": "Succeeded"})), true)]
#[case::failed(pod("a", &json!({"phase": "Failed"})), true)]
#[case::running(running("a"), false)]
#[case::unready(unready("a"), false)]
fn a_pod_that_does_not_run_needs_no_budget(#[case] one: Pod, #[case] goes: bool) {
    let pods = [one, running("b")];
    let budgets = [budget(json!({"maxUnavailable": 0}), &pods), budget(json!({"minAvailable": 9}), &pods)];
    assert_eq!(check(&pods[0], &budgets[..1], pods.iter()).is_ok(), goes);
    assert_eq!(check(&pods[0], &budgets, pods.iter()).is_ok(), goes);
}

#[rstest]
#[case::the_others_are_enough(json!({"minAvailable": 1}), true)]
#[case::they_are_not(json!({"minAvailable": 2}), false)]
#[case::always(json!({"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}), true)]
#[case::nothing_is_wanted(json!({"minAvailable": 0}), true)]
fn a_pod_that_is_not_ready_disrupts_nobody(#[case] spec: Value, #[case] goes: bool) {
    let pods = [unready("a"), running("b")];
    let budgets = [budget(spec, &pods)];
    assert_eq!(check(&pods[0], &budgets, pods.iter()).is_ok(), goes);
}

#[test]
fn two_budgets_are_too_many() {
    let pods = [running("a")];
    let budgets = [budget(json!({"minAvailable": 0}), &pods), budget(json!({"minAvailable": 0}), &pods)];
    assert!(matches!(check(&pods[0], &budgets, pods.iter()), Err(EvictionAnswer::ManyBudgets { .. })));
}

#[rstest]
#[case::label(json!({"matchLabels": {"app": "train"}}), true)]
#[case::another(json!({"matchLabels": {"app": "train", "rank": "b"}}), false)]
#[case::in_a_set(json!({"matchExpressions": [{"key": "rank", "operator": "In", "values": ["a", "b"]}]}), true)]
#[case::not_in_a_set(json!({"matchExpressions": [{"key": "rank", "operator": "NotIn", "values": ["a", "b"]}]}), false)]
#[case::not_in_a_set_without_it(json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}), true)]
#[case::exists(json!({"matchLabels": {"app": "train"}, "matchExpressions": [{"key": "rank", "operator": "Exists"}]}), true)]
#[case::does_not_exist(json!({"matchExpressions": [{"key": "rank", "operator": "DoesNotExist"}]}), false)]
#[case::everything(json!({}), true)]
#[case::nothing(json!(null), false)]
fn a_budget_is_about_what_it_selects(#[case] selector: Value, #[case] about: bool) {
    let budget = budget(json!({"selector": selector}), &[]);
    assert_eq!(budget.is_about(&running("a").facts), about);
    let elsewhere =
        Pod::read(json!({"metadata": {"namespace": "web", "name": "a", "uid": "u", "labels": {"app": "train"}}})).unwrap();
    assert!(!budget.is_about(&elsewhere.facts));
}

#[rstest]
#[case(json!({"minAvailable": 1, "maxUnavailable": 1}), "spec: minAvailable and maxUnavailable cannot be both set")]
#[case(json!({"minAvailable": -1}), "spec.minAvailable is -1; expected")]
#[case(json!({"maxUnavailable": "5"}), "spec.maxUnavailable is \"5\"; expected")]
#[case(json!({"selector": "app=x"}), "spec.selector is not a map")]
#[case(json!({"selector": {"matchLabels": {"a": 1}}}), "spec.selector.matchLabels[\"a\"] is not a string")]
#[case(json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}), "spec.selector.matchExpressions: \"Like\" is none")]
#[case(json!({"selector": {"matchLabels": {"a b": "c"}}}), "spec.selector: ")]
fn what_the_api_server_would_not_take_is_not_taken(#[case] spec: Value, #[case] message: &str) {
    let error = Budget::read(&json!({"metadata": {"name": "b"}, "spec": spec})).unwrap_err();
    assert!(error.starts_with(message), "{error}");
    assert!(Budget::read(&json!({"spec": {}})).unwrap_err().starts_with("metadata.name"));
}
