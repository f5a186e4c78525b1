//! Whatever stands in the annotation of a node, nothing panics, and nothing is removed that a readable record of ours does not
//! claim.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are not seen as tests")]

use gpu_quarantine::{
    alert::{Alert, Fingerprint, Labels, Status},
    locate::{Gpu, NodeFacts, NodeName, Taint},
    policy::{Action, Config, load},
    quarantine::{
        Context, Decision, Heard, Known, MAX_BYTES, Muster, NodeState, NodeView, Outcome, Room, Rule, Stored, Told, decide, read,
    },
};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

#[path = "support/mutate.rs"]
mod mutate;

use mutate::Mutator;

static EMPTY: Muster = Muster::new();

/// How many damaged records are read and decided on, times `GPU_QUARANTINE_SOAK`.
const MUTATIONS: u64 = 20_000;
const RECORD: &str = "gpu-quarantine.dev/record";
const CORRUPT: &str = "gpu-quarantine.dev/record-corrupt";
const KEY: &str = "gpu-quarantine.dev/isolated";
const FORMER: &str = "old.example/broken";

/// Several claims, a past, and fields of a newer writer everywhere.
fn record() -> Value {
    json!({
        "v": 1, "owner": "prod-a", "newer": {"a": [1, 2.5, null]},
        "node": {"uid": "u-1", "providerID": "metal://7", "systemUUID": "s-1", "bootID": "b-1", "rack": "r7"},
        "added": {
            "taint": {"key": KEY, "value": "gpu-lost", "effect": "NoSchedule"},
            "cordon": true, "at": "2026-03-01T12:00:02Z", "why": "x",
        },
        "before": {"unschedulable": false, "labels": {}},
        "claims": [
            {
                "alert": "GpuLost", "gpu": "GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab", "policy": "gpu-lost", "action": "isolate",
                "state": "firing", "since": "2026-03-01T12:00:02Z", "recovery": ["reboot"], "summary": "XID 79 on gpu-07", "urgency": 3,
                "members": [
                    {"fp": "17ca147fb85cd638", "startsAt": "2026-03-01T11:59:40Z", "peer": "am-1"},
                    {"fp": "17ca147fb85cd639", "startsAt": "2026-03-01T11:50:00Z", "endsAt": "2026-03-01T11:58:00Z"},
                ],
            },
            {
                "alert": "GpuXidError", "gpu": "index:3", "policy": "xid", "action": "evict", "state": "cleared",
                "since": "2026-03-01T11:00:00Z", "cleared": "2026-03-01T12:00:30Z",
                "members": [{"fp": "27ca147fb85cd638", "startsAt": "2026-03-01T10:59:40Z", "ended": true}],
            },
            {
                "alert": "GpuFell", "policy": "gone", "action": "isolate", "state": "released", "since": "2026-03-01T10:00:00Z",
                "members": [{"fp": "37ca147fb85cd638", "startsAt": "2026-03-01T09:59:40Z"}],
            },
        ],
        "history": [
            {"alert": "GpuLost", "gpu": "00000000:1B:00.0", "from": "2026-02-01T00:00:00Z", "to": "2026-02-02T00:00:00Z", "by": "resolved"},
            {"alert": "GpuLost", "from": "2026-02-03T00:00:00Z", "to": "2026-02-04T00:00:00Z", "by": "hand", "who": "kim"},
        ],
    })
}

fn config() -> Config {
    let text =
        format!("instance: prod-a\nisolation: {{former_keys: [{FORMER}]}}\nrelease: {{after: 10m, require: [resolved]}}\n");
    load("config.yaml", &text).unwrap()
}

fn taint(key: &str, value: &str) -> Taint {
    Taint { key: key.to_owned(), value: Some(value.to_owned()), effect: "NoSchedule".to_owned(), other: [].into() }
}

fn node(record: &str) -> NodeFacts {
    NodeFacts {
        name: NodeName::parse("gpu-07").unwrap(),
        uid: "u-1".to_owned(),
        resource_version: "41".to_owned(),
        created: Some("2025-01-01T00:00:00Z".parse().unwrap()),
        labels: [("nvidia.com/gpu.present".to_owned(), "true".to_owned())].into(),
        annotations: [(RECORD.to_owned(), record.to_owned())].into(),
        taints: vec![taint("dedicated", "gpu"), taint(KEY, "gpu-lost"), taint("other", "x")],
        taints_manager: None,
        unschedulable: true,
        ready: true,
        provider_id: None,
        system_uuid: None,
        boot_id: Some("b-1".to_owned()),
        internal_ips: Vec::new(),
        gpus: None,
        whole_gpus: None,
    }
}

fn alert(name: &str, status: Status) -> Alert {
    let labels: Labels = [("alertname", name), ("gpu", "1")].into_iter().collect();
    let starts_at: Timestamp = "2026-03-01T11:59:50Z".parse().unwrap();
    Alert {
        name: name.to_owned(),
        fingerprint: Fingerprint::of(&labels),
        labels,
        annotations: Labels::default(),
        status,
        starts_at,
        ends_at: (status == Status::Resolved).then_some(starts_at),
    }
}

/// Decide on it in the ways that there are: by a timer, a firing and a resolved alert, and a complete pull.
fn decide_all(node: &NodeFacts, config: &Config) -> Vec<(bool, usize, Decision)> {
    let fires = alert("GpuNew", Status::Firing);
    let known = Alert { fingerprint: "17ca147fb85cd638".parse().unwrap(), ..alert("GpuLost", Status::Resolved) };
    let rule = Rule { policy: "isolate", action: Action::Isolate };
    let firing = Heard { alert: &fires, gpu: Some(Gpu::Index(1)), rule: Some(rule), muted: None };
    let over = Heard { alert: &known, gpu: None, rule: Some(rule), muted: None };
    let muted = Heard { muted: Some("silenced by nobody"), ..firing.clone() };
    let (pushed, complete) = (Told::Pushed, Told::Complete { newer: &[] });
    let mut all = Vec::new();
    for (heard, told, now) in [
        (vec![], pushed, "2026-03-01T12:05:00Z"),
        (vec![firing.clone(), over], pushed, "2026-03-01T12:05:00Z"),
        (vec![firing], complete, "2026-03-01T12:05:00Z"),
        (vec![muted], Told::Pulled, "2026-03-01T12:05:00Z"),
        (vec![], complete, "9999-12-30T22:00:00Z"),
    ] {
        let now = now.parse().unwrap();
        let room = Room::In(&EMPTY);
        // One that is silenced begins nothing.
        let fires = heard.iter().any(|h| h.alert.status == Status::Firing && h.muted.is_none());
        all.push((fires, heard.len(), decide(node, &heard, &Context { config, room, now, told, known: Known::default() })));
        let view = NodeView::of(node, config, now);
        assert!(!view.waiting_for.is_empty());
        serde_json::to_string(&view).unwrap();
    }
    all
}

fn taints_after(node: &NodeFacts, decision: &Decision) -> Vec<Taint> {
    let taints = decision.patch.as_ref().and_then(|p| p.pointer("/spec/taints"));
    taints.map_or_else(|| node.taints.clone(), |t| serde_json::from_value(t.clone()).unwrap())
}

/// What must hold for any text; which of the four kinds it is.
fn check(text: &str, node: &NodeFacts, config: &Config) -> usize {
    let stored = read(Some(text), node, &config.instance);
    for (fires, heard, decision) in decide_all(node, config) {
        assert_eq!(decision.verdicts.len(), heard);
        let after = taints_after(node, &decision);
        for gone in node.taints.iter().filter(|t| !after.contains(t)) {
            assert!(matches!(stored, Stored::Ours(_)), "{gone:?} was removed without a record of ours");
            assert!([KEY, FORMER].contains(&gone.key.as_str()), "{gone:?} was never ours");
        }
        for new in after.iter().filter(|t| !node.taints.contains(t)) {
            assert_eq!((new.key.as_str(), new.effect.as_str()), (KEY, "NoSchedule"), "{new:?} is not ours");
        }
        let written = |name: &str| decision.patch.as_ref().and_then(|p| p["metadata"]["annotations"].get(name));
        assert!(written(RECORD).and_then(Value::as_str).is_none_or(|t| t.len() <= MAX_BYTES));
        if let Some(patch) = &decision.patch {
            assert_eq!(patch["metadata"]["resourceVersion"], "41");
        }
        match &stored {
            Stored::Untouchable(_) => {
                assert_eq!(decision.patch, None);
                assert!(decision.verdicts.iter().all(|v| v.outcome == Outcome::Failed));
            }
            Stored::Unreadable(_) => {
                assert_eq!(decision.patch.is_some(), fires, "it is replaced when there is something to record");
                assert_eq!(after, node.taints, "what stands on the node counts as foreign");
                assert_eq!(written(CORRUPT).and_then(Value::as_str), fires.then_some(text));
            }
            Stored::Ours(_) => assert_eq!(written(CORRUPT), None),
            Stored::None => panic!("there is an annotation"),
        }
    }
    match stored {
        Stored::Ours(_) => 0,
        Stored::Unreadable(_) => 1,
        _ => 2,
    }
}

#[test]
fn whatever_is_done_to_a_record_it_is_ours_untouchable_or_kept_aside() {
    let soak = std::env::var("GPU_QUARANTINE_SOAK").map_or(1, |v| v.parse().expect("GPU_QUARANTINE_SOAK is a whole number"));
    let (config, mut node, mut counts) = (config(), node(""), [0_u64; 3]);
    let (compact, lines) = (record().to_string(), serde_json::to_string_pretty(&record()).unwrap());
    for seed in 0..MUTATIONS * soak {
        // Damage to whole lines more often leaves JSON.
        let original = if seed % 3 == 0 { &compact } else { &lines };
        let damaged = Mutator::new(seed).mutate(original.as_bytes());
        let text = String::from_utf8_lossy(&damaged).into_owned();
        node.annotations.insert(RECORD.to_owned(), text.clone());
        counts[check(&text, &node, &config)] += 1;
    }
    assert!(counts[0] > MUTATIONS / 50 && counts[1] > MUTATIONS / 50, "ours, unreadable, untouchable: {counts:?}");
}

/// Every value of the record in turn is replaced by every kind of JSON.
#[test]
fn every_field_may_hold_anything() {
    fn paths(value: &Value, at: &str, all: &mut Vec<String>) {
        all.push(at.to_owned());
        match value {
            Value::Object(map) => map.iter().for_each(|(k, v)| paths(v, &format!("{at}/{}", k.replace('/', "~1")), all)),
            Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| paths(v, &format!("{at}/{i}"), all)),
            _ => {}
        }
    }
    let (config, mut node, mut all) = (config(), node(""), Vec::new());
    paths(&record(), "", &mut all);
    assert!(all.len() > 80);
    let long = "9".repeat(5000);
    for path in all {
        for other in [
            Value::Null,
            json!(true),
            json!(-1),
            json!(u64::MAX),
            json!(1e300),
            json!(""),
            json!("9999-12-30T22:00:00.999999999Z"),
            json!("-009999-01-02T01:59:59Z"),
            json!("released"),
            json!("index:0"),
            json!(long),
            json!([]),
            json!({}),
            json!([[{"a": null}]]),
        ] {
            let mut changed = record();
            *changed.pointer_mut(&path).unwrap() = other;
            let text = changed.to_string();
            node.annotations.insert(RECORD.to_owned(), text.clone());
            check(&text, &node, &config);
        }
    }
}

fn with(path: &str, value: Value) -> String {
    let mut changed = record();
    *changed.pointer_mut(path).unwrap() = value;
    changed.to_string()
}

#[rstest]
#[case::empty("")]
#[case::not_json("{")]
#[case::two_values("{}{}")]
#[case::a_list("[]")]
#[case::null("null")]
#[case::nothing_in_it("{}")]
#[case::version_zero(with("/v", json!(0)))]
#[case::version_is_a_text(with("/v", json!("1")))]
#[case::no_owner(with("/owner", Value::Null))]
#[case::no_identity(with("/node", json!({})))]
#[case::another_node_of_the_same_name(with("/node/uid", json!("u-0")))]
#[case::claims_are_no_list(with("/claims", json!({})))]
#[case::a_claim_of_an_unknown_action(with("/claims/0/action", json!("explode")))]
#[case::a_claim_in_an_unknown_state(with("/claims/0/state", json!("maybe")))]
#[case::a_fingerprint_that_is_none(with("/claims/0/members/0/fp", json!("+7ca147fb85cd638")))]
#[case::a_gpu_that_is_none(with("/claims/0/gpu", json!("index:-1")))]
#[case::a_time_that_is_none(with("/added/at", json!("yesterday")))]
#[case::one_byte_too_long(with("/newer", json!("x".repeat(MAX_BYTES - with("/newer", json!("")).len() + 1))))]
#[case::nested_too_deep(format!("{}{}", "[".repeat(8000), "]".repeat(8000)))]
fn what_cannot_be_read_is_kept_aside_and_the_node_starts_afresh(#[case] text: impl Into<String>) {
    let (text, config) = (text.into(), config());
    let node = node(&text);
    assert_eq!(check(&text, &node, &config), 1, "unreadable");
    let view = NodeView::of(&node, &config, "2026-03-01T12:05:00Z".parse().unwrap());
    assert_eq!((view.state, view.isolated), (NodeState::Suspect, false));

    let (_, _, decision) = decide_all(&node, &config).remove(1);
    let patch = decision.patch.unwrap();
    let fresh: Value = serde_json::from_str(patch["metadata"]["annotations"][RECORD].as_str().unwrap()).unwrap();
    assert_eq!(fresh["node"]["uid"], "u-1");
    assert_eq!(fresh["claims"].as_array().unwrap().len(), 1, "nothing of the old one is taken over");
    assert_eq!(fresh["before"]["taint"]["key"], KEY, "the taint that stands there is remembered as foreign");
    assert_eq!((&fresh["added"]["taint"], &fresh["added"]["cordon"]), (&Value::Null, &json!(false)));
}

#[rstest]
#[case::of_another_instance(with("/owner", json!("prod-b")))]
#[case::of_an_instance_without_a_name(with("/owner", json!("")))]
#[case::of_a_newer_version(with("/v", json!(2)))]
#[case::of_a_newer_version_in_another_shape(json!({"v": 7, "all": "new"}).to_string())]
#[case::of_the_newest_version(with("/v", json!(u64::MAX)))]
#[case::of_another_instance_about_another_node(with("/owner", json!("prod-b")).replace("u-1", "u-0"))]
fn what_is_not_ours_is_never_overwritten(#[case] text: String) {
    let (node, config) = (node(&text), config());
    assert_eq!(check(&text, &node, &config), 2, "untouchable");
    let view = NodeView::of(&node, &config, "2026-03-01T12:05:00Z".parse().unwrap());
    assert_eq!(view.state, NodeState::Suspect);
    assert!(view.waiting_for.starts_with("a person: "), "{}", view.waiting_for);
}

#[rstest]
#[case::as_it_is(record().to_string())]
#[case::as_long_as_it_may_be(with("/newer", json!("x".repeat(MAX_BYTES - with("/newer", json!("")).len()))))]
#[case::spread_over_lines(serde_json::to_string_pretty(&record()).unwrap())]
fn what_a_newer_writer_added_is_kept(#[case] text: String) {
    let (node, config) = (node(&text), config());
    assert_eq!(check(&text, &node, &config), 0, "ours");
    let was: Value = serde_json::from_str(&text).unwrap();
    let over = Alert { fingerprint: "17ca147fb85cd638".parse().unwrap(), ..alert("GpuLost", Status::Resolved) };
    let heard = [Heard { alert: &over, gpu: None, rule: None, muted: None }];
    let (room, now) = (Room::In(&EMPTY), "2026-03-01T12:05:00Z".parse().unwrap());
    let decision = decide(&node, &heard, &Context { config: &config, room, now, told: Told::Pushed, known: Known::default() });
    assert_eq!(decision.verdicts[0].outcome, Outcome::Resolved);
    let patch = decision.patch.unwrap();
    let now: Value = serde_json::from_str(patch["metadata"]["annotations"][RECORD].as_str().unwrap()).unwrap();
    for path in ["/newer", "/node/rack", "/added/why", "/before/labels", "/claims/0/urgency"] {
        assert_eq!(now.pointer(path), was.pointer(path), "{path}");
    }
}

#[test]
fn a_node_created_at_the_end_of_time_is_decided_on() {
    let (config, mut node) = (config(), node("{"));
    node.created = Some(Timestamp::MAX);
    let (_, _, decision) = decide_all(&node, &config).remove(1);
    assert_eq!(decision.verdicts[0].outcome, Outcome::Stale);
}
