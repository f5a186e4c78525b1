//! What Alertmanager's API v2 (0.25 to 0.34) answers: the groups of alerts, silences, receivers and the status of a peer.
//!
//! As in the webhook body, unknown fields pass and a bad alert is reported alone.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};

use super::{
    Alert, Fingerprint, InvalidAlert, Status,
    wire::{read, shown, time},
};

/// What is shown of an error.
const SHOWN: usize = 200;

/// The alerts that one peer lists for a receiver. Alertmanager never lists one that has resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Whether there was a group of the receiver at all, with alerts in it or not.
    pub has_group: bool,
    /// Each once, in the order of their fingerprints.
    pub alerts: Vec<Listed>,
    /// Those that cannot be read: what is not in `alerts` is not proven absent then.
    pub invalid: Vec<InvalidAlert>,
}

/// An alert as the API lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The alert; it fires. The `endsAt` of the API is a lease and is left out.
    pub alert: Alert,
    /// Why nothing is sent of it, if nothing is.
    pub suppression: Option<Suppression>,
}

/// Why Alertmanager sends nothing of an alert.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Suppression {
    /// The ids of silences.
    #[serde(deserialize_with = "texts")]
    pub silenced_by: Vec<String>,
    /// The fingerprints of alerts.
    #[serde(deserialize_with = "texts")]
    pub inhibited_by: Vec<String>,
    /// The names of time intervals.
    #[serde(deserialize_with = "texts")]
    pub muted_by: Vec<String>,
}

/// A silence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// Its id.
    pub id: String,
    /// `active`, `pending` or `expired`.
    pub state: String,
    /// Who made it.
    pub created_by: String,
    /// Why.
    pub comment: String,
    /// When it ends.
    pub ends_at: Timestamp,
}

/// How a peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// When it started, on its clock.
    pub started: Option<Timestamp>,
    /// `ready`, `settling` or `disabled`; empty if it does not say.
    pub cluster: String,
    /// Its version.
    pub version: String,
}

/// An answer that is not what the API gives.
#[derive(Debug, thiserror::Error)]
#[error("the answer is not that of Alertmanager's API v2: {0}; check the URL and its path prefix")]
pub struct AnswerError(String);

impl From<serde_json::Error> for AnswerError {
    fn from(error: serde_json::Error) -> Self {
        // It may quote a text of any length.
        Self(error.to_string().chars().take(SHOWN).collect())
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, AnswerError> {
    Ok(serde_json::from_slice(body)?)
}

/// A list of texts; what is none of it is left out.
fn texts<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Array(items) => {
            items.into_iter().filter_map(|item| if let Value::String(text) = item { Some(text) } else { None }).collect()
        }
        _ => Vec::new(),
    })
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Parse the answer of `GET /api/v2/alerts/groups`, as far as it is about `receiver`.
///
/// # Errors
///
/// If it is not a list. What is wrong with one group or alert is in its own place.
pub fn parse_groups(body: &[u8], receiver: &str) -> Result<Listing, AnswerError> {
    #[derive(Deserialize)]
    struct Group<'a> {
        receiver: Receiver,
        #[serde(borrow, default)]
        alerts: Option<Vec<&'a RawValue>>,
    }
    #[derive(Deserialize)]
    struct Receiver {
        name: String,
    }

    let groups: Vec<&RawValue> = serde_json::from_slice(body)?;
    let mut listing = Listing::default();
    let mut alerts: BTreeMap<Fingerprint, Listed> = BTreeMap::new();
    for group in groups {
        let group: Group<'_> = match serde_json::from_str(group.get()) {
            Ok(group) => group,
            // It may be ours.
            Err(e) => {
                let reason = format!("a group of alerts cannot be read: {}", AnswerError::from(e).0);
                listing.invalid.push(InvalidAlert { name: None, fingerprint: None, reason });
                continue;
            }
        };
        // Exactly: the query that selected it is a regular expression, and the name is not escaped here, other than in webhooks.
        if group.receiver.name != receiver {
            continue;
        }
        listing.has_group = true;
        for alert in group.alerts.unwrap_or_default() {
            match listed(alert.get()) {
                Ok(alert) => add(&mut alerts, alert),
                Err(invalid) => listing.invalid.push(invalid),
            }
        }
    }
    listing.alerts = alerts.into_values().collect();
    Ok(listing)
}

/// The receivers of all groups of such an answer.
///
/// # Errors
///
/// If it is not a list.
pub fn receivers_of(body: &[u8]) -> Result<BTreeSet<String>, AnswerError> {
    let groups: Vec<Value> = parse(body)?;
    let name = |group: &Value| group.pointer("/receiver/name").and_then(Value::as_str).map(str::to_owned);
    Ok(groups.iter().filter_map(name).collect())
}

/// One alert can be in several groups of a receiver (`continue: true`). If any of them is not muted, it is sent from there.
fn add(alerts: &mut BTreeMap<Fingerprint, Listed>, listed: Listed) {
    match alerts.entry(listed.alert.fingerprint) {
        Entry::Vacant(slot) => {
            slot.insert(listed);
        }
        Entry::Occupied(mut slot) if listed.suppression.is_none() => slot.get_mut().suppression = None,
        Entry::Occupied(_) => {}
    }
}

fn listed(json: &str) -> Result<Listed, InvalidAlert> {
    let mut suppression = None;
    let alert = read(json, |status| {
        // A state that we do not know mutes nothing: an alert that is listed fires.
        if status.get("state").and_then(Value::as_str) == Some("suppressed") {
            suppression = Suppression::deserialize(status).ok();
        }
        if status.is_object() {
            Ok(Status::Firing)
        } else {
            Err(format!("status is {}, not an object with a state", shown(status)))
        }
    })?;
    Ok(Listed { alert, suppression })
}

/// Parse the answer of `GET /api/v2/silences`. A silence that cannot be read is left out.
///
/// # Errors
///
/// If it is not a list.
pub fn parse_silences(body: &[u8]) -> Result<Vec<Silence>, AnswerError> {
    let silences: Vec<Value> = parse(body)?;
    Ok(silences
        .iter()
        .filter_map(|silence| {
            Some(Silence {
                id: silence.get("id")?.as_str()?.to_owned(),
                state: text(silence.get("status")?, "state"),
                created_by: text(silence, "createdBy"),
                comment: text(silence, "comment"),
                ends_at: time(silence.get("endsAt")).ok()??,
            })
        })
        .collect())
}

/// Parse the answer of `GET /api/v2/receivers`: their names.
///
/// # Errors
///
/// If it is not a list.
pub fn parse_receivers(body: &[u8]) -> Result<Vec<String>, AnswerError> {
    let receivers: Vec<Value> = parse(body)?;
    Ok(receivers.iter().map(|receiver| text(receiver, "name")).collect())
}

/// Parse the answer of `GET /api/v2/status`. What it does not say is left out.
///
/// # Errors
///
/// If it is not an object with a `cluster`.
pub fn parse_status(body: &[u8]) -> Result<PeerStatus, AnswerError> {
    let status: Value = parse(body)?;
    let cluster = status.get("cluster").ok_or_else(|| AnswerError("it has no `cluster`".to_owned()))?;
    Ok(PeerStatus {
        started: time(status.get("uptime")).unwrap_or_default(),
        cluster: text(cluster, "status"),
        version: status.get("versionInfo").map(|v| text(v, "version")).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
