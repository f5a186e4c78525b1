//! What the API server wrote down about pods that were asked to leave or deleted.

use std::{fs, path::Path};

use serde_json::Value;

/// One request to evict or to delete a pod, and what was answered.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The pod's name.
    pub(crate) pod: String,
    /// The UID that a deletion was bound to, if to any. Of evictions old API servers do not tell it.
    pub(crate) uid: Option<String>,
    /// Whether it was an eviction.
    pub(crate) eviction: bool,
    /// The grace period that was asked for; `None` for the pod's own.
    pub(crate) grace: Option<u64>,
    /// Whether it asked only what would be.
    pub(crate) dry_run: bool,
    /// The HTTP status of the answer; 0 if there was none.
    pub(crate) code: u64,
    /// Whether a controller of Kubernetes sent it.
    pub(crate) by_controller: bool,
    /// When it came.
    pub(crate) at: String,
}

impl Asked {
    /// A pod was made to leave by it.
    pub(crate) fn evicted(&self) -> bool {
        self.eviction && !self.dry_run && (200..300).contains(&self.code)
    }

    /// A pod was deleted by it, and not by those who do that every day: controllers, and kubelets, which delete without grace what has
    /// ended.
    pub(crate) fn deleted(&self) -> bool {
        !self.eviction && !self.by_controller && self.grace != Some(0) && (200..300).contains(&self.code)
    }
}

/// All requests about pods of a namespace so far, in the order of their answers.
pub(crate) fn asked(log: &Path, namespace: &str) -> Vec<Asked> {
    let text = fs::read_to_string(log).expect("the audit log is there");
    // What comes after the last line break is still being written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let events = whole.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event of the audit log"));
    events.filter(|event| event["objectRef"]["namespace"] == namespace).map(|event| read(&event)).collect()
}

fn read(event: &Value) -> Asked {
    let eviction = event["objectRef"]["subresource"] == "eviction";
    let body = &event["requestObject"];
    let options = if eviction { &body["deleteOptions"] } else { body };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Asked {
        pod: text(&event["objectRef"]["name"]),
        uid: options["preconditions"]["uid"].as_str().map(str::to_owned),
        eviction,
        grace: options["gracePeriodSeconds"].as_u64(),
        dry_run: options["dryRun"].is_array() || text(&event["requestURI"]).contains("dryRun="),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        by_controller: text(&event["userAgent"]).starts_with("kube-controller-manager"),
        at: text(&event["requestReceivedTimestamp"]),
    }
}
