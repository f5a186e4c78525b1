//! The answers in `fixtures/alertmanager-api` are those of Alertmanager 0.33.1, whose configuration was left out.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::alert::ALERTNAME;

const GROUPS: &[u8] = include_bytes!("../../../fixtures/alertmanager-api/groups.json");
const SILENCES: &[u8] = include_bytes!("../../../fixtures/alertmanager-api/silences.json");
const STATUS: &[u8] = include_bytes!("../../../fixtures/alertmanager-api/status.json");
const RECEIVERS: &[u8] = include_bytes!("../../../fixtures/alertmanager-api/receivers.json");

fn alert(node: &str) -> Value {
    json!({
        "labels": { "alertname": "GpuLost", "node": node }, "annotations": {}, "receivers": [{ "name": "gpu" }],
        "startsAt": "2026-03-01T12:00:00.123456Z", "endsAt": "2026-03-01T12:04:00Z", "updatedAt": "2026-03-01T12:00:00Z",
        "generatorURL": "", "new": 1, "status": { "state": "active", "silencedBy": [], "inhibitedBy": [], "mutedBy": [] },
    })
}

fn group(alerts: &[Value]) -> Value {
    json!({ "labels": {}, "receiver": { "name": "gpu" }, "routeLabels": {}, "alerts": alerts })
}

fn parsed(groups: &[Value]) -> Listing {
    parse_groups(Value::from(groups.to_vec()).to_string().as_bytes(), "gpu").unwrap()
}

#[test]
fn a_real_answer_is_read_with_what_mutes_each_alert() {
    let listing = parse_groups(GROUPS, "gpu.quarantine").unwrap();
    assert!(listing.has_group && listing.invalid.is_empty());
    let mut shown: Vec<String> = listing
        .alerts
        .iter()
        .map(|Listed { alert, suppression }| {
            let by = suppression.as_ref().map(|s| [s.silenced_by.len(), s.inhibited_by.len(), s.muted_by.len()]);
            format!("{} {} {by:?}", alert.name, alert.labels.get("node").unwrap_or_default())
        })
        .collect();
    shown.sort();
    let want = [
        "GpuThermalSlowdown gpu-node-07 Some([0, 1, 0])",
        "GpuXidGpuLost gpu-node-07 None",
        "GpuXidGpuLost gpu-node-08 Some([1, 0, 0])",
        "GpuXidGpuLost gpu-node-09 Some([0, 0, 1])",
        // In two groups, and once here.
        "GpuXidNvlink gpu-node-10 None",
    ];
    assert_eq!(shown, want);
    for Listed { alert, .. } in &listing.alerts {
        assert_eq!((alert.status, alert.ends_at), (Status::Firing, None), "endsAt is a lease");
        assert_eq!(alert.fingerprint, Fingerprint::of(&alert.labels));
    }
}

#[test]
fn only_groups_of_exactly_our_receiver_count() {
    for other in ["gpu", "gpu_quarantine", "gpu\\.quarantine", "GPU.quarantine", ""] {
        assert_eq!(parse_groups(GROUPS, other).unwrap(), Listing::default(), "{other}");
    }
    assert_eq!(parse_groups(GROUPS, "other").unwrap().alerts.len(), 1);
    assert_eq!(parse_groups(b"[]", "gpu").unwrap(), Listing::default());
}

#[test]
fn an_alert_in_two_groups_is_muted_only_if_it_is_in_both() {
    let mut muted = alert("a");
    muted["status"] = json!({ "state": "suppressed", "mutedBy": ["night"] });
    let of = |groups: &[Value]| {
        let listing = parsed(groups);
        assert_eq!(listing.alerts.len(), 1);
        listing.alerts[0].suppression.clone().map(|s| s.muted_by)
    };
    assert_eq!(of(&[group(&[muted.clone()]), group(&[alert("a")])]), None);
    assert_eq!(of(&[group(&[alert("a")]), group(&[muted.clone()])]), None);
    assert_eq!(of(&[group(&[muted.clone()]), group(&[muted])]), Some(vec!["night".to_owned()]));
}

#[test]
fn a_state_that_is_not_known_mutes_nothing() {
    for state in [json!("active"), json!("unprocessed"), json!("new"), json!(3), Value::Null] {
        let mut alert = alert("a");
        alert["status"] = json!({ "state": state, "silencedBy": ["x"] });
        assert_eq!(parsed(&[group(&[alert])]).alerts[0].suppression, None, "{state}");
    }
}

#[test]
fn lists_that_are_missing_or_odd_do_not_lose_the_suppression() {
    let mut alert = alert("a");
    alert["status"] = json!({ "state": "suppressed", "silencedBy": null, "inhibitedBy": ["x", 3], "mutedBy": "x" });
    let want = Suppression { inhibited_by: vec!["x".to_owned()], ..Suppression::default() };
    assert_eq!(parsed(&[group(&[alert])]).alerts[0].suppression, Some(want));
}

#[test]
fn a_bad_alert_or_group_is_reported_and_loses_no_other() {
    let without = |field: &str| {
        let mut alert = alert("b");
        alert.as_object_mut().unwrap().remove(field);
        alert
    };
    let mut number = alert("b");
    number["labels"]["gpu"] = 0.into();
    for (bad, want) in [
        (without("startsAt"), "the alert has no startsAt"),
        (without("labels"), "the alert has no label alertname"),
        (without("status"), "status is null, not an object"),
        (number, "label \"gpu\" is 0, not a text"),
        (json!(7), "an alert is an object, not 7"),
    ] {
        let listing = parsed(&[group(&[alert("a"), bad, alert("c")])]);
        assert_eq!(listing.alerts.len(), 2, "{want}");
        assert!(listing.invalid[0].reason.contains(want), "{:?}", listing.invalid);
    }
    for bad in [json!(7), json!({}), json!({ "receiver": "gpu" }), json!({ "receiver": { "name": "gpu" }, "alerts": {} })] {
        let listing = parsed(&[bad.clone(), group(&[alert("a")])]);
        assert_eq!((listing.alerts.len(), listing.invalid.len()), (1, 1), "{bad}");
    }
    let other = json!({ "receiver": { "name": "other" }, "alerts": [7] });
    assert!(parsed(&[other]).invalid.is_empty(), "it is not ours");
}

#[test]
fn times_are_cut_to_milliseconds_as_those_of_webhooks_are() {
    assert_eq!(parsed(&[group(&[alert("a")])]).alerts[0].alert.starts_at.to_string(), "2026-03-01T12:00:00.123Z");
}

#[test]
fn silences_receivers_and_status_are_read() {
    let silences = parse_silences(SILENCES).unwrap();
    assert_eq!(silences.len(), 1);
    let silence = &silences[0];
    let got = (silence.state.as_str(), silence.created_by.as_str(), silence.comment.as_str(), silence.ends_at.to_string());
    assert_eq!(got, ("active", "alice", "new riser", "2026-11-30T13:00:22Z".to_owned()));
    assert_eq!(parse_receivers(RECEIVERS).unwrap(), ["other", "gpu.quarantine", "gpuxquarantine"]);
    let status = parse_status(STATUS).unwrap();
    assert_eq!((status.cluster.as_str(), status.version.as_str()), ("disabled", "0.33.1"));
    assert!(status.started.is_some());
}

#[test]
fn a_silence_that_cannot_be_read_is_left_out() {
    let good = json!({ "id": "b", "status": {}, "endsAt": "2026-03-01T12:00:00Z" });
    let bad = [json!(3), json!({ "id": "a", "status": {}, "endsAt": "soon" }), json!({ "id": "a", "status": {} })];
    let body = Value::from([bad.as_slice(), &[good]].concat()).to_string();
    let silences = parse_silences(body.as_bytes()).unwrap();
    assert_eq!(silences.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn what_is_no_answer_of_the_api_is_refused_with_what_to_do() {
    for body in ["", "<html>", "{}", "null", "3", "[1"] {
        let error = parse_groups(body.as_bytes(), "gpu").unwrap_err().to_string();
        assert!(error.contains("check the URL and its path prefix"), "{error}");
        assert!(parse_silences(body.as_bytes()).is_err() && parse_receivers(body.as_bytes()).is_err());
        assert!(parse_status(body.as_bytes()).is_err(), "{body}");
    }
    let long = Value::from("x".repeat(10_000)).to_string();
    assert!(parse_groups(long.as_bytes(), "gpu").unwrap_err().to_string().len() < 400);
}

/// A real answer with some bytes replaced.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8).prop_map(|changes| {
        let mut body = GROUPS.to_vec();
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body
    })
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..64), damaged(), "[\\[\\]{}\",:a-z0-9]{0,40}".prop_map(String::into_bytes)]
}

proptest! {
    #[test]
    fn no_answer_panics_and_every_alert_is_sound(body in anything()) {
        drop((parse_silences(&body), parse_receivers(&body), parse_status(&body)));
        if let Ok(listing) = parse_groups(&body, "gpu.quarantine") {
            prop_assert!(listing.alerts.is_sorted_by(|a, b| a.alert.fingerprint < b.alert.fingerprint));
            for Listed { alert, .. } in &listing.alerts {
                prop_assert!(alert.status == Status::Firing && alert.ends_at.is_none());
                prop_assert_eq!(alert.labels.get(ALERTNAME), Some(alert.name.as_str()));
            }
        }
    }
}
