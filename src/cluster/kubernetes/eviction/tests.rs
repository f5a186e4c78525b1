use rstest::rstest;
use serde_json::{Value, json};

use super::*;

/// What the API server says, as its bodies were recorded or as its source has them.
fn status(code: u16, reason: &str, message: &str, details: &Value) -> Status {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details,
    });
    serde_json::from_value(body).unwrap()
}

fn budget(message: &str) -> Value {
    json!({"causes": [{"reason": "DisruptionBudget", "message": message}]})
}

const BLOCKED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

#[rstest]
#[case::needs(budget("The disruption budget q-pdb needs 1 healthy pods and has 1 currently"), Some("q-pdb"))]
#[case::stale(budget("The disruption budget q-pdb is still being processed by the server."), Some("q-pdb"))]
#[case::hostile(budget("The disruption budget ../../x needs"), None)]
#[case::silent(budget(""), None)]
fn a_budget_that_forbids_is_named(#[case] details: Value, #[case] name: Option<&str>) {
    let EvictionAnswer::Blocked { budget, message } = meaning(&status(429, "TooManyRequests", BLOCKED, &details), "x") else {
        panic!("it is blocked")
    };
    assert_eq!(budget.as_deref(), name);
    assert!(message.starts_with("HTTP 429: Cannot evict pod"), "{message}");
}

#[rstest]
#[case::plain(json!(null), None)]
#[case::at_once(json!({"retryAfterSeconds": 0}), None)]
#[case::later(json!({"retryAfterSeconds": 10}), Some(10))]
#[case::for_another_cause(json!({"retryAfterSeconds": 1, "causes": [{"reason": "Other", "message": "m"}]}), Some(1))]
fn a_429_without_a_budget_is_throttling(#[case] details: Value, #[case] seconds: Option<u64>) {
    let answer = meaning(&status(429, "TooManyRequests", "Too many requests, please try again later.", &details), "x");
    assert_eq!(answer, EvictionAnswer::Throttled { retry_after: seconds.map(Duration::from_secs) });
}

#[rstest]
#[case::gone(404, "NotFound", "pods \"p\" not found", json!({"kind": "pods", "name": "p"}), "Gone")]
#[case::namespace_gone(404, "NotFound", "namespaces \"n\" not found", json!({"kind": "namespaces", "name": "n"}), "Gone")]
#[case::proxy(404, "Failed to parse error data", "404 page not found", json!(null), "Refused { message: \"HTTP 404: 404 page not found\"")]
#[case::uid(409, "Conflict", "Operation cannot be fulfilled on pods \"p\": Precondition failed: UID in precondition: a, UID in object meta: b", json!(null), "AnotherPod")]
#[case::uid_in_newer_words(409, "Conflict", "Operation cannot be fulfilled on pods \"p\": the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted and then recreated", json!(null), "AnotherPod")]
#[case::written_meanwhile(409, "Conflict", "Operation cannot be fulfilled on pods \"p\": the object has been modified; please apply your changes", json!(null), "Unknown")]
#[case::two_budgets(500, "", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", json!(null), "ManyBudgets")]
#[case::role(403, "Forbidden", "pods \"p\" is forbidden: User \"u\" cannot create resource \"pods/eviction\" in API group \"\"", json!({"kind": "pods"}), "Forbidden")]
#[case::token(401, "Unauthorized", "Unauthorized", json!(null), "Forbidden")]
#[case::too_many_on_their_way(403, "Forbidden", "poddisruptionbudget \"b\" is forbidden: DisruptedPods map too big", json!({"kind": "poddisruptionbudget", "name": "b"}), "Blocked { budget: Some(\"b\")")]
#[case::namespace_ends(403, "Forbidden", "unable to create new content in namespace n because it is being terminated", json!({"causes": [{"reason": "NamespaceTerminating"}]}), "Refused")]
#[case::webhook(403, "Forbidden", "admission webhook \"w.example.com\" denied the request: no", json!(null), "Refused")]
#[case::invalid(400, "BadRequest", "name in URL does not match name in Eviction object", json!(null), "Refused")]
#[case::slow_request(408, "", "", json!(null), "Unknown")]
#[case::internal(500, "InternalError", "Internal error occurred", json!(null), "Unknown")]
#[case::timeout(504, "Timeout", "Timeout: couldn't update PodDisruptionBudget", json!({"retryAfterSeconds": 1}), "Unknown")]
#[case::unavailable(503, "ServiceUnavailable", "the server is shutting down", json!(null), "Unknown")]
#[case::without_a_code(0, "", "", json!(null), "Unknown")]
fn each_answer_has_its_meaning(
    #[case] code: u16,
    #[case] reason: &str,
    #[case] message: &str,
    #[case] details: Value,
    #[case] expected: &str,
) {
    let answer = format!("{:?}", meaning(&status(code, reason, message, &details), "create on pods/eviction"));
    assert!(answer.starts_with(expected), "{answer}");
    assert_eq!(answer.contains("; allow create on pods/eviction"), expected == "Forbidden", "{answer}");
}

#[test]
fn a_long_message_is_cut() {
    let EvictionAnswer::Refused { message } = meaning(&status(422, "Invalid", &"x".repeat(9_000), &json!(null)), "x") else {
        panic!("it is refused")
    };
    assert!(message.len() < 350, "{}", message.len());
}
