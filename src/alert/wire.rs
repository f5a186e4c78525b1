//! The webhook body: what Alertmanager 0.25 to 0.34, Grafana and vmalert's Alertmanager post.
//!
//! Fields are added without a new `version` (prometheus/alertmanager#3397), so unknown ones pass and `version` is reported,
//! not required. A body is refused only if it is not JSON or has no `alerts`; a bad alert is refused alone, because a
//! rejected body would block its whole group for ever (a 4xx is not retried, yet never counts as delivered).

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{ALERTNAME, Alert, Fingerprint, Labels, Status};

/// An alert name must fit into a record many times over.
const MAX_NAME: usize = 256;
/// What is shown of a foreign value in an error.
const SHOWN: usize = 64;

/// One body, parsed.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Alertmanager's receiver, as sent (escaped as a regular expression by Alertmanager).
    pub receiver: String,
    /// `"4"` from Alertmanager, `"1"` from Grafana; empty if absent.
    pub version: String,
    /// The group; not unique (prometheus/alertmanager#3817).
    pub group_key: String,
    /// When it was received, if it comes from a recording of ours.
    pub received_at: Option<Timestamp>,
    /// How many alerts `max_alerts` cut off: above 0 the body proves nothing about what it does not list.
    pub truncated: u64,
    /// In the order of the body.
    pub alerts: Vec<Result<Alert, InvalidAlert>>,
}

/// An alert that cannot be read; the others of its body are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidAlert {
    /// Its name, if that much could be read.
    pub name: Option<String>,
    /// Its fingerprint, if that much could be read.
    pub fingerprint: Option<Fingerprint>,
    /// What is wrong and what to do.
    pub reason: String,
}

/// A body that is not a webhook body.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// Not JSON at all.
    #[error("the body is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// JSON, but not an object with a list `alerts`.
    #[error(
        "the body is not that of an Alertmanager webhook: {0}; send the default body, without `payload` in the webhook_config"
    )]
    NotAWebhook(String),
}

/// A well-formed alert, read in one go.
#[derive(Deserialize)]
struct WellFormed<'a> {
    labels: Labels,
    #[serde(default)]
    annotations: Labels,
    #[serde(borrow)]
    status: &'a str,
    #[serde(borrow, rename = "startsAt")]
    starts_at: &'a str,
    #[serde(borrow, default, rename = "endsAt")]
    ends_at: Option<&'a str>,
    #[serde(borrow, default)]
    fingerprint: Option<&'a str>,
}

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(default)]
    receiver: Value,
    #[serde(default)]
    version: Value,
    #[serde(default, rename = "groupKey")]
    group_key: Value,
    #[serde(default, rename = "truncatedAlerts")]
    truncated: Value,
    #[serde(default, rename = "receivedAt")]
    received_at: Value,
    /// Split here, in the pass that reads the body, and read one by one afterwards.
    #[serde(borrow)]
    alerts: Option<Vec<&'a RawValue>>,
}

/// Parse a webhook body.
///
/// # Errors
///
/// If it is not JSON, or not an object with a list `alerts`. What is wrong with one alert is in its own place.
pub fn parse_body(body: &[u8]) -> Result<Delivery, BodyError> {
    let raw: RawBody<'_> = serde_json::from_slice(body).map_err(|e| match e.classify() {
        serde_json::error::Category::Data => BodyError::NotAWebhook(e.to_string()),
        _ => BodyError::NotJson(e),
    })?;
    let Some(alerts) = raw.alerts else {
        return Err(BodyError::NotAWebhook("it has no list `alerts`".to_owned()));
    };
    Ok(Delivery {
        receiver: text(raw.receiver),
        version: text(raw.version),
        group_key: text(raw.group_key),
        received_at: time(Some(&raw.received_at)).unwrap_or_default(),
        truncated: match raw.truncated {
            Value::Number(n) => n.as_u64().unwrap_or(0),
            Value::String(s) => s.parse().unwrap_or(0),
            _ => 0,
        },
        alerts: alerts.into_iter().map(|a| parse_alert(a.get())).collect(),
    })
}

fn text(value: Value) -> String {
    match value {
        Value::String(s) => s,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > SHOWN { text.chars().take(SHOWN).chain("...".chars()).collect() } else { text }
}

fn parse_alert(json: &str) -> Result<Alert, InvalidAlert> {
    match serde_json::from_str(json).ok().and_then(well_formed) {
        Some(alert) => Ok(alert),
        None => parse_leniently(json),
    }
}

/// The alert if nothing about it is out of the ordinary, as [`parse_leniently`] would give it.
fn well_formed(raw: WellFormed<'_>) -> Option<Alert> {
    let name = raw.labels.get(ALERTNAME).filter(|n| n.len() <= MAX_NAME)?.to_owned();
    let (status, ends_at) = match raw.status {
        "firing" => (Status::Firing, None),
        "resolved" => (Status::Resolved, raw.ends_at.map(timestamp).transpose().ok()?),
        _ => return None,
    };
    Some(Alert {
        name,
        status,
        starts_at: timestamp(raw.starts_at).ok()?,
        ends_at: ends_at.filter(|t| !is_go_zero(*t)),
        fingerprint: raw.fingerprint.and_then(|f| f.parse().ok()).unwrap_or_else(|| Fingerprint::of(&raw.labels)),
        labels: raw.labels,
        annotations: raw.annotations,
    })
}

fn parse_leniently(json: &str) -> Result<Alert, InvalidAlert> {
    read(json, |status| match status.as_str() {
        Some("firing") => Ok(Status::Firing),
        Some("resolved") => Ok(Status::Resolved),
        _ => Err(format!("status is {}, neither \"firing\" nor \"resolved\"", shown(status))),
    })
}

/// The alert if it can be read at all; else what is wrong with it, and as much of its identity as can be told.
pub(super) fn read(json: &str, status: impl FnOnce(&Value) -> Result<Status, String>) -> Result<Alert, InvalidAlert> {
    let mut invalid = InvalidAlert { name: None, fingerprint: None, reason: String::new() };
    let fail = |invalid: &mut InvalidAlert, reason: String| {
        invalid.reason = reason;
        invalid.clone()
    };
    let mut raw: Map<String, Value> = match serde_json::from_str(json) {
        Ok(Value::Object(map)) => map,
        Ok(other) => return Err(fail(&mut invalid, format!("an alert is an object, not {}", shown(&other)))),
        Err(e) => return Err(fail(&mut invalid, format!("the alert cannot be read: {e}"))),
    };
    invalid.fingerprint = raw.get("fingerprint").and_then(Value::as_str).and_then(|f| f.parse().ok());
    invalid.name =
        raw.get("labels").and_then(|l| l.get(ALERTNAME)).and_then(Value::as_str).map(|n| n.chars().take(SHOWN).collect());

    let labels = strings(raw.remove("labels"), "label").map_err(|r| fail(&mut invalid, r))?;
    let annotations = lenient(raw.remove("annotations"));
    let name = match labels.get(ALERTNAME) {
        None => return Err(fail(&mut invalid, "the alert has no label alertname".to_owned())),
        Some(n) if n.len() > MAX_NAME => {
            return Err(fail(&mut invalid, format!("the alert name is longer than {MAX_NAME} bytes: shorten the rule's name")));
        }
        Some(n) => n.to_owned(),
    };
    let status = status(raw.get("status").unwrap_or(&Value::Null)).map_err(|r| fail(&mut invalid, r))?;
    let starts_at = match time(raw.get("startsAt")) {
        Ok(Some(t)) => t,
        Ok(None) => return Err(fail(&mut invalid, "the alert has no startsAt".to_owned())),
        Err(got) => return Err(fail(&mut invalid, format!("startsAt is {got}, not an RFC 3339 time"))),
    };
    // The end of a firing alert is Go's zero time, or a lease: it says nothing yet.
    let ends_at = match (status, time(raw.get("endsAt"))) {
        (Status::Firing, _) => None,
        (Status::Resolved, Ok(t)) => t.filter(|t| !is_go_zero(*t)),
        (Status::Resolved, Err(got)) => {
            return Err(fail(&mut invalid, format!("endsAt is {got}, not an RFC 3339 time")));
        }
    };
    let fingerprint = invalid.fingerprint.unwrap_or_else(|| Fingerprint::of(&labels));
    Ok(Alert { name, labels, annotations, status, starts_at, ends_at, fingerprint })
}

fn is_go_zero(time: Timestamp) -> bool {
    // 0001-01-01T00:00:00Z
    time.as_second() == -62_135_596_800
}

/// Cut to milliseconds: Alertmanager's API shows no more, and both must compare equal.
fn timestamp(text: &str) -> Result<Timestamp, jiff::Error> {
    text.parse::<Timestamp>()?.round(TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Floor))
}

pub(super) fn time(value: Option<&Value>) -> Result<Option<Timestamp>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(s)) => match timestamp(s) {
            Ok(t) => Ok(Some(t)),
            Err(_) => Err(shown(&Value::String(s.clone()))),
        },
        Some(other) => Err(shown(other)),
    }
}

/// Labels are identity: one that is not a text was changed on the way, and guessing what it was could map it to the wrong GPU.
fn strings(value: Option<Value>, what: &str) -> Result<Labels, String> {
    match value {
        None | Some(Value::Null) => Ok(Labels::default()),
        Some(Value::Object(map)) => map
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(value) => Ok((name, value)),
                other => Err(format!(
                    "{what} {} is {}, not a text: a custom payload changes types, send the default body",
                    shown(&Value::String(name)),
                    shown(&other)
                )),
            })
            .collect(),
        Some(other) => Err(format!("{what}s are {}, not an object", shown(&other))),
    }
}

/// Annotations are for people: what is not a text is shown as JSON rather than losing the alert.
fn lenient(value: Option<Value>) -> Labels {
    match value {
        Some(Value::Object(map)) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(name, value)| (name, text(value))).collect()
        }
        _ => Labels::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(alert: &Value) -> Result<Alert, InvalidAlert> {
        let body = serde_json::json!({ "version": "4", "alerts": [alert] }).to_string();
        parse_body(body.as_bytes()).unwrap().alerts.remove(0)
    }

    fn good() -> Value {
        serde_json::json!({
            "status": "firing", "labels": { "alertname": "GpuLost", "node": "gpu-node-07" }, "annotations": {},
            "startsAt": "2026-03-01T12:00:00.123456789+02:00", "endsAt": "0001-01-01T00:00:00Z",
            "fingerprint": "17ca147fb85cd638",
        })
    }

    #[test]
    fn an_alert_read_in_one_go_is_the_one_that_is_read_leniently() {
        let (mut quick, mut all) = (0, 0);
        for dir in ["fixtures/payloads", "fixtures/traps", "fixtures/incident"] {
            for file in
                std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).filter(|f| f.extension().is_some_and(|e| e == "json"))
            {
                let body: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
                for alert in body["alerts"].as_array().into_iter().flatten().map(Value::to_string) {
                    all += 1;
                    if let Some(read) = serde_json::from_str(&alert).ok().and_then(well_formed) {
                        quick += 1;
                        assert_eq!(parse_leniently(&alert), Ok(read));
                    }
                }
            }
        }
        assert!(quick > all / 2 && quick < all, "{quick} of {all}");
    }

    #[test]
    fn a_firing_alert_has_no_end_whatever_its_sender_wrote_there() {
        for ends in ["0001-01-01T00:00:00Z", "2026-03-01T12:04:00Z", "nonsense"] {
            let mut alert = good();
            alert["endsAt"] = ends.into();
            assert_eq!(one(&alert).unwrap().ends_at, None);
        }
    }

    #[test]
    fn times_with_an_offset_and_nine_digits_are_understood_and_cut_to_milliseconds() {
        assert_eq!(one(&good()).unwrap().starts_at.to_string(), "2026-03-01T10:00:00.123Z");
    }

    #[test]
    fn an_alert_without_a_fingerprint_gets_the_one_of_its_labels() {
        let mut alert = good();
        alert.as_object_mut().unwrap().remove("fingerprint");
        let alert = one(&alert).unwrap();
        assert_eq!(alert.fingerprint, Fingerprint::of(&alert.labels));
    }

    #[test]
    fn a_bad_alert_is_refused_alone_and_says_what_is_wrong() {
        let cases: [(&str, Value, &str); 7] = [
            ("startsAt", "yesterday".into(), "startsAt is \"yesterday\", not an RFC 3339 time"),
            ("startsAt", Value::Null, "the alert has no startsAt"),
            ("status", "burning".into(), "status is \"burning\", neither \"firing\" nor \"resolved\""),
            ("labels", serde_json::json!({ "alertname": "GpuLost", "gpu": 0 }), "label \"gpu\" is 0, not a text"),
            ("labels", serde_json::json!({ "node": "a" }), "the alert has no label alertname"),
            ("labels", serde_json::json!({ "alertname": "x".repeat(257) }), "longer than 256 bytes"),
            ("labels", "none".into(), "labels are \"none\", not an object"),
        ];
        for (field, value, want) in cases {
            let mut alert = good();
            alert[field] = value;
            let invalid = one(&alert).unwrap_err();
            assert!(invalid.reason.contains(want), "{}", invalid.reason);
            assert_eq!(invalid.fingerprint.unwrap().to_string(), "17ca147fb85cd638");
        }
        assert_eq!(one(&Value::from(3)).unwrap_err().reason, "an alert is an object, not 3");
    }

    #[test]
    fn annotations_that_are_no_texts_do_not_lose_the_alert() {
        let mut alert = good();
        alert["annotations"] = serde_json::json!({ "summary": "XID 79", "count": 3, "none": null });
        let annotations = one(&alert).unwrap().annotations;
        assert_eq!(annotations.iter().collect::<Vec<_>>(), [("count", "3"), ("summary", "XID 79")]);
    }

    #[test]
    fn only_what_is_no_json_or_no_webhook_body_is_refused_whole() {
        for body in ["", "{", "[1", "\u{0}"] {
            assert!(matches!(parse_body(body.as_bytes()), Err(BodyError::NotJson(_))), "{body:?}");
        }
        for body in ["[]", "3", "{}", r#"{"alerts": {}}"#, r#"{"alerts": null}"#, r#"{"kind": "GpuAlert", "firing": []}"#] {
            assert!(matches!(parse_body(body.as_bytes()), Err(BodyError::NotAWebhook(_))), "{body:?}");
        }
        assert!(parse_body(br#"{"alerts": [], "version": 7, "truncatedAlerts": -1, "new": {}}"#).unwrap().alerts.is_empty());
    }
}
