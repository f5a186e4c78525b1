use rstest::rstest;
use serde_json::{Value, json};

use crate::quarantine::eviction::gang::tests::{found, words};

const STS: &str = "apps/v1 StatefulSet chat";
const LWS: &str = "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet chat";
const LABELS: [(&str, &str); 2] = [(super::NAME, "chat"), (super::GROUP, "1")];

#[rstest]
#[case::default(json!({}), "whole")]
#[case::on_restart(json!({ "restartPolicy": "RecreateGroupOnPodRestart" }), "whole")]
#[case::after_start(json!({ "restartPolicy": "RecreateGroupAfterStart" }), "whole")]
#[case::none(json!({ "restartPolicy": "None" }), "each")]
#[case::none_as_it_was_called(json!({ "restartPolicy": "Default" }), "each")]
fn a_group_is_created_anew_unless_its_policy_is_none(#[case] template: Value, #[case] expected: &str) {
    let gang = found(&LABELS, &[(STS, json!({})), (LWS, json!({ "spec": { "leaderWorkerTemplate": template } }))], None);
    assert_eq!((words(&gang).as_str(), gang.key.as_str(), gang.unread), (expected, "LeaderWorkerSet team-a/chat/1", false));
    assert_eq!(gang.members.as_deref(), Some("leaderworkerset.sigs.k8s.io/name=chat,leaderworkerset.sigs.k8s.io/group-index=1"));
}

#[test]
fn a_set_that_was_not_read_has_the_default_and_says_so() {
    let gang = found(&LABELS, &[], Some(STS));
    assert_eq!((words(&gang).as_str(), gang.unread), ("whole", true));
}

#[test]
fn a_pod_without_a_group_is_lost_alone() {
    let gang = found(&[], &[(STS, json!({})), (LWS, json!({}))], None);
    assert_eq!((words(&gang).as_str(), gang.key.as_str(), gang.members), ("each", "LeaderWorkerSet team-a/chat", None));
}
