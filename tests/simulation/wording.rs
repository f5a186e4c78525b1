//! How alerts are written: their labels, and the query that is to prove their end.

use gpu_quarantine::{
    alert::{Alert, Fingerprint, Labels, Status},
    sources::ActiveAlert,
};

use serde_json::json;

use crate::{
    alertmanager::{Snapshot, Stored},
    harness::{Sent, sent},
    process::moment,
    sequence::{ALERTS, Forged, KINDS, Query, Recovery, Rule, generation_of, kind_of, node_of},
};

/// The rules as they are now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wording {
    pub(crate) recovery: [(Recovery, Query); KINDS],
    /// That of the GPU's alerts, and that of the node's.
    pub(crate) rules: [Rule; 2],
}

/// What a query reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Whether the fault of this alert is there.
    Truth(usize),
    /// Whether this alert's series shows it.
    Series(usize),
    /// Nothing that has to do with it.
    Nothing,
}

/// The recording rule that true queries read.
pub(crate) const RECORDED: &str = "gpu:works";

pub(crate) fn node_name(node: usize) -> String {
    format!("gpu-{node}")
}

/// The UUID of the GPU that alerts are about, of those that were there one after the other.
pub(crate) fn uuid(generation: usize) -> String {
    format!("GPU-5fd4f0a2-8a3e-5c1d-b7a1-{generation:012}")
}

/// The name of an alert, which makes its claim together with the GPU.
pub(crate) fn alertname(alert: usize) -> &'static str {
    if generation_of(alert).is_some() { "GpuLost" } else { "GpuNodeFailed" }
}

/// Of two rules or policies, which one an alert belongs to.
pub(crate) fn rule_of(alert: usize) -> usize {
    usize::from(generation_of(alert).is_none())
}

/// What is read by a query that was written here.
pub(crate) fn reads(query: &str) -> Reads {
    let alert = query.split('"').nth(1).and_then(|number| number.parse().ok());
    match alert {
        Some(alert) if query.starts_with(RECORDED) => Reads::Truth(alert),
        Some(alert) if query.starts_with("gpu_xid") => Reads::Series(alert),
        _ => Reads::Nothing,
    }
}

/// What somebody else writes as `recovery_query`.
pub(crate) fn forged(query: Forged) -> Option<&'static str> {
    match query {
        Forged::Constant => Some("vector(1)"),
        Forged::Always => Some("up"),
        Forged::Missing => None,
    }
}

impl Wording {
    /// The query of an alert as its rule renders it now.
    pub(crate) fn query(self, alert: usize) -> Option<String> {
        let query = match (self.recovery[kind_of(alert)].1, self.rules[rule_of(alert)]) {
            (Query::Missing, _) => return None,
            (_, Rule::Edited) => format!("up{{alert=\"{alert}\"}} == 1"),
            (Query::True, _) => format!("{RECORDED}{{alert=\"{alert}\"}} == 1"),
            (Query::Shallow, _) => format!("gpu_xid{{alert=\"{alert}\"}} == 0"),
        };
        Some(query)
    }

    /// Whether that query is a true one.
    pub(crate) fn is_true(self, alert: usize) -> bool {
        self.query(alert).is_some_and(|query| reads(&query) == Reads::Truth(alert))
    }

    /// An alert as a webhook carries it.
    pub(crate) fn on_the_wire(self, alert: usize, stored: Stored) -> Sent {
        let written = self.without_query(alert, stored.starts);
        match self.query(alert) {
            Some(query) => written.annotated("recovery_query", &query),
            None => written,
        }
    }

    /// The body, as Alertmanager writes it.
    pub(crate) fn body(self, peer: usize, snapshot: &Snapshot) -> Vec<u8> {
        let alert = |(alert, stored, fires): &(usize, Stored, bool)| {
            let sent = self.on_the_wire(*alert, *stored);
            if *fires { sent.json() } else { sent.over(&moment(stored.ends).to_string()).json() }
        };
        let node = node_name(snapshot.node);
        let body = json!({
            "receiver": "gpu-quarantine",
            "status": if snapshot.alerts.iter().any(|a| a.2) { "firing" } else { "resolved" },
            "alerts": snapshot.alerts.iter().map(alert).collect::<Vec<_>>(),
            "groupLabels": {"Hostname": node}, "commonLabels": {}, "commonAnnotations": {},
            "externalURL": format!("http://am-{peer}:9093"), "version": "4",
            "groupKey": format!("{{}}:{{Hostname=\"{node}\"}}"),
            "truncatedAlerts": snapshot.truncated,
        });
        body.to_string().into_bytes()
    }

    pub(crate) fn without_query(self, alert: usize, starts: i64) -> Sent {
        let node = node_name(node_of(alert));
        let uuid = uuid(generation_of(alert).unwrap_or_default());
        let mut labels = vec![("alertname", alertname(alert)), ("severity", "critical"), ("Hostname", node.as_str())];
        match kind_of(alert) {
            0 => labels.extend([("UUID", uuid.as_str()), ("gpu", "0"), ("link", "a")]),
            1 => labels.extend([("UUID", uuid.as_str()), ("gpu", "0"), ("link", "b")]),
            _ => {}
        }
        match self.recovery[kind_of(alert)].0 {
            Recovery::Auto => labels.push(("recovery", "auto")),
            Recovery::Reboot => labels.push(("recovery", "reboot")),
            Recovery::Replace => labels.push(("recovery", "replace")),
            Recovery::Manual => labels.push(("recovery", "manual")),
            Recovery::Missing => {}
        }
        sent(&labels).since(&moment(starts).to_string())
    }

    /// The fingerprints of all alerts.
    pub(crate) fn fingerprints(self) -> Vec<String> {
        (0..ALERTS).map(|a| self.without_query(a, 0).fingerprint()).collect()
    }

    fn labels(self, alert: usize) -> Labels {
        let json = self.without_query(alert, 0).json();
        let labels = json["labels"].as_object().expect("labels are an object");
        labels.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default())).collect()
    }

    /// An alert as a peer lists it.
    pub(crate) fn listed(self, alert: usize, stored: Stored) -> Alert {
        let labels = self.labels(alert);
        let query = self.query(alert);
        Alert {
            name: labels.get("alertname").unwrap_or_default().to_owned(),
            fingerprint: Fingerprint::of(&labels),
            labels,
            annotations: query.iter().map(|query| ("recovery_query", query.as_str())).collect(),
            status: Status::Firing,
            starts_at: moment(stored.starts),
            ends_at: None,
        }
    }

    /// An alert as the rules API shows it, which knows those with a `recovery_query`.
    pub(crate) fn rendered(self, alert: usize) -> Option<ActiveAlert> {
        Some(ActiveAlert { labels: self.labels(alert), recovery_query: self.query(alert)? })
    }
}
