use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::{
    locate::NodeName,
    notice::MAX_NOTE,
    quarantine::eviction::{EvicteeState, EvictionAnswer, SPARED},
};

fn node() -> NodeFacts {
    let raw = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1", "uid": "u-1", "resourceVersion": "1"}});
    crate::cluster::node_facts(&raw, "gpu-quarantine.dev").unwrap()
}

type Pod<'a> = (String, &'static str, &'a str);

fn pod<'a>(name: &str, outcome: &'static str, why: &'a str) -> Pod<'a> {
    (name.to_owned(), outcome, why)
}

fn told(pods: &[Pod<'_>], evidence: Option<&str>) -> (Notice, String) {
    let node = node();
    let subject = Some("GpuLost on GPU-1");
    let evicted = Evicted { at: Timestamp::UNIX_EPOCH, node: &node, policy: Some("evict"), subject, pods, evidence };
    (of_eviction(&evicted), summary(&evicted))
}

#[test]
fn a_notice_says_by_whom_for_what_how_many_where_the_evidence_is_which_pods_and_why() {
    let pods = [
        pod("a/llm-0", "accepted", ""),
        pod("a/llm-1", "accepted", ""),
        pod("b/chat-0", "blocked", "PodDisruptionBudget chat"),
        pod("c/sim-0", "left", "JobSet c/sim would fail for good"),
        pod("d/notebook-0", "not_opted_in", "it has not opted in"),
    ];
    let (notice, summary) = told(&pods, Some("gpu-quarantine-evidence-gpu-1-1772366402"));
    assert_eq!(summary, "2 asked to leave, 1 cannot leave yet, 1 left, 1 spared");
    assert_eq!(
        notice.note,
        "Pods of this node, by policy evict: GpuLost on GPU-1: 2 asked to leave, 1 cannot leave yet, 1 left, 1 spared. Evidence: \
         ConfigMap gpu-quarantine-evidence-gpu-1-1772366402. a/llm-0, a/llm-1 asked to leave. b/chat-0 cannot leave yet \
         (PodDisruptionBudget chat). c/sim-0 left (JobSet c/sim would fail for good)."
    );
    assert_eq!((notice.reason, notice.node.unwrap().name), (Reason::EvictionBlocked, NodeName::parse("gpu-1").unwrap()));
}

#[test]
fn four_pods_of_a_kind_are_named_and_the_others_counted() {
    let pods: Vec<Pod<'_>> = (0..7).map(|n| pod(&format!("a/p-{n}"), "gone", "")).collect();
    let (notice, _) = told(&pods, None);
    assert!(notice.note.ends_with("7 gone. a/p-0, a/p-1, a/p-2, a/p-3 and 3 more gone."), "{}", notice.note);
    assert!(!notice.note.contains("Evidence"), "{}", notice.note);
}

/// What one outcome alone is told as. That somebody cannot leave counts before that somebody stays, and that before all else.
#[rstest]
#[case(Reason::EvictionBlocked, &["blocked", "many_budgets", "throttled", "forbidden", "refused", "unknown", "unknown_gpu", "unread"])]
#[case(Reason::PodsLeft, &["left", "returned"])]
#[case(Reason::PodsEvicted, &["accepted", "leaving", "gone", "another_pod", "waiting", "withheld", "checkpoint", "would_evict"])]
fn each_outcome_has_its_reason_and_its_words(#[case] reason: Reason, #[case] outcomes: &[&'static str]) {
    for outcome in outcomes {
        let (notice, summary) = told(&[pod("a/b", outcome, "why")], None);
        assert_eq!(notice.reason, reason, "{outcome}");
        assert!(!summary.contains("spared") && notice.note.ends_with("(why)."), "{outcome}: {}", notice.note);
        let (with_gone, _) = told(&[pod("a/b", outcome, "why"), pod("a/c", "gone", ""), pod("a/d", "own", "")], None);
        assert_eq!(with_gone.reason, reason, "{outcome}");
    }
    let (both, _) = told(&[pod("a/b", "left", ""), pod("a/c", "blocked", "")], None);
    assert_eq!(both.reason, Reason::EvictionBlocked);
}

#[test]
fn no_outcome_is_forgotten_and_who_was_never_to_go_is_only_counted() {
    // A pod is told of once it was answered, not while it is being asked.
    let states = EvicteeState::ALL.map(EvicteeState::as_str).into_iter().filter(|word| *word != "asking");
    for outcome in states.chain(EvictionAnswer::ALL).chain(["withheld", "would_evict", "unknown_gpu", "unread"]) {
        let (_, summary) = told(&[pod("a/b", outcome, "")], None);
        assert!(!summary.contains("spared"), "{outcome}");
    }
    for outcome in SPARED.into_iter().filter(|word| !matches!(*word, "unknown_gpu" | "unread" | "returned")) {
        let (notice, summary) = told(&[pod("a/b", "accepted", ""), pod("a/c", outcome, "why")], None);
        assert_eq!(summary, "1 asked to leave, 1 spared", "{outcome}");
        assert!(!notice.note.contains("a/c"), "{}", notice.note);
    }
}

proptest! {
    #[test]
    fn no_text_makes_a_note_too_long_or_hides_the_numbers_and_the_evidence(
        pods in prop::collection::vec(("\\PC{0,300}", 0_usize..8, "\\PC{0,300}"), 1..40),
        policy in "\\PC{0,63}",
        subject in "\\PC{0,2000}",
    ) {
        const OUTCOMES: [&str; 8] = ["accepted", "blocked", "left", "gone", "returned", "waiting", "checkpoint", "own"];
        let pods: Vec<Pod<'_>> = pods.iter().map(|(name, at, why)| pod(name, OUTCOMES[*at], why)).collect();
        let (node, evidence) = (node(), format!("gpu-quarantine-evidence-{}-1772366402", "n".repeat(180)));
        let evicted = Evicted {
            at: Timestamp::UNIX_EPOCH,
            node: &node,
            policy: Some(&policy),
            subject: Some(&subject),
            pods: &pods,
            evidence: Some(&evidence),
        };
        let note = of_eviction(&evicted).note;
        prop_assert!(note.len() <= MAX_NOTE, "{}", note.len());
        prop_assert!(note.contains(&summary(&evicted)) && note.contains(&evidence), "{}", note);
    }
}
