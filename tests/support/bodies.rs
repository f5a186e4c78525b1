//! Webhook bodies built from alerts, with the labels of a DCGM exporter and the fingerprints that Alertmanager would compute.

use gpu_quarantine::alert::{Fingerprint, Labels};
use serde_json::{Value, json};

/// One alert of a body.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    labels: Vec<(String, String)>,
    annotations: Value,
    starts: String,
    ends: Option<String>,
}

/// An alert with exactly these labels, firing.
pub(crate) fn sent(labels: &[(&str, &str)]) -> Sent {
    Sent {
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        annotations: json!({ "summary": "a test" }),
        starts: "2026-11-29T20:15:00Z".to_owned(),
        ends: None,
    }
}

/// `GpuLost` of a GPU, firing.
pub(crate) fn lost(node: &str, gpu: u32) -> Sent {
    let uuid = format!("GPU-5fd4f0a2-8a3e-5c1d-b7a1-{gpu:012}");
    let index = gpu.to_string();
    sent(&[("alertname", "GpuLost"), ("severity", "critical"), ("Hostname", node), ("UUID", &uuid), ("gpu", &index)])
}

impl Sent {
    /// With this label, in place of one of that name.
    pub(crate) fn label(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.labels.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.labels.retain(|(n, _)| n != name);
        self
    }

    pub(crate) fn named(self, alertname: &str) -> Self {
        self.label("alertname", alertname)
    }

    pub(crate) fn since(mut self, starts: &str) -> Self {
        starts.clone_into(&mut self.starts);
        self
    }

    pub(crate) fn annotated(mut self, name: &str, text: &str) -> Self {
        self.annotations[name] = json!(text);
        self
    }

    /// The same alert, over.
    pub(crate) fn over(&self, ends: &str) -> Self {
        Self { ends: Some(ends.to_owned()), ..self.clone() }
    }

    pub(crate) fn fingerprint(&self) -> String {
        let labels: Labels = self.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        Fingerprint::of(&labels).to_string()
    }

    pub(crate) fn json(&self) -> Value {
        let labels: serde_json::Map<String, Value> = self.labels.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        json!({
            "status": if self.ends.is_some() { "resolved" } else { "firing" },
            "labels": labels,
            "annotations": self.annotations,
            "startsAt": self.starts,
            "endsAt": self.ends.as_deref().unwrap_or("0001-01-01T00:00:00Z"),
            "generatorURL": "http://prom.gpu.example:9090/graph",
            "fingerprint": self.fingerprint(),
        })
    }
}

/// A body with these alerts.
pub(crate) fn body(alerts: &[Sent]) -> Vec<u8> {
    let firing = alerts.iter().any(|a| a.ends.is_none());
    let body = json!({
        "receiver": "gpu-quarantine",
        "status": if firing { "firing" } else { "resolved" },
        "alerts": alerts.iter().map(Sent::json).collect::<Vec<_>>(),
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {},
        "externalURL": "http://am.gpu.example:9093",
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
    });
    body.to_string().into_bytes()
}
