//! The evidence of one episode: what would be gone once its pods are. Bounded in time, and never in the way of the eviction.

use std::{sync::PoisonError, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::look::Seen;
use crate::{
    cluster::{EvidenceDocument, Retention, Workloads},
    engine::Engine,
    locate::{NodeFacts, OwnerObject, names_in_monitoring},
    policy::Config,
    quarantine::eviction::{Act, Plan, Resident},
};

/// How long it may be gathered.
const AT_MOST: Duration = Duration::from_millis(3_500);
/// How long keeping it may take after that: an eviction waits at most for both.
const KEEP_AT_MOST: Duration = Duration::from_millis(1_500);
/// Events of one object that are kept.
const EVENTS: usize = 50;
/// A `ConfigMap` holds 1 MiB in all.
const MAX_BYTES: usize = 900 * 1024;
/// The part of a node's name that stands in the name of its documents.
const MAX_NAME: usize = 180;

impl Engine {
    /// Keep the evidence, unless it is on record already. The name of the document.
    pub(super) async fn keep_evidence(
        &self,
        workloads: &dyn Workloads,
        node: &NodeFacts,
        seen: &Seen,
        plan: &Plan,
        config: &Config,
    ) -> Option<String> {
        let on_record = plan.record.as_ref().and_then(|e| e.evidence.as_ref());
        // Tried once: what is slow or forbidden must not hold up each pod that follows.
        let tried = plan.record.as_ref().is_some_and(|e| e.pods.iter().any(|p| p.tries > 1));
        if on_record.is_some() || tried || config.eviction.evidence_count == 0 {
            return None;
        }
        let at = self.clock.now();
        let view = self.view(node, &self.config(), at);
        let begun = view.isolated_at.unwrap_or(at);
        let name: String = node.name.as_str().chars().take(MAX_NAME).collect();
        let name = format!("gpu-quarantine-evidence-{}-{}", name.trim_end_matches(['-', '.']), begun.as_second());
        let until = Instant::now() + AT_MOST;
        let json = self.document(workloads, node, seen, plan, until).await;
        let document = EvidenceDocument { name: name.clone(), node: node.name.clone(), at, json };
        let retention = Retention { count: config.eviction.evidence_count, age: config.eviction.evidence_age };
        let kept = timeout(KEEP_AT_MOST, workloads.keep_evidence(&config.ledger, &document, retention)).await;
        match kept {
            Ok(Ok(())) => Some(name),
            Ok(Err(error)) => {
                tracing::warn!(node = %node.name, %error, "The evidence of an eviction cannot be kept; the eviction goes on.");
                None
            }
            Err(_) => {
                tracing::warn!(node = %node.name, "The evidence of an eviction was not kept in {KEEP_AT_MOST:?}; the eviction goes on.");
                None
            }
        }
    }

    async fn document(&self, workloads: &dyn Workloads, node: &NodeFacts, seen: &Seen, plan: &Plan, until: Instant) -> String {
        let mut missing: Vec<String> = Vec::new();
        let now = self.clock.now();
        let view = self.view(node, &self.config(), now);
        let mut about_node = json!({
            "name": node.name, "uid": node.uid, "providerID": node.provider_id, "systemUUID": node.system_uuid, "bootID": node.boot_id,
            "gpus": node.gpus,
        });
        match timeout_at(until, workloads.node_raw(&node.name)).await {
            Ok(Ok(Some(raw))) => {
                about_node["nodeInfo"] = raw.pointer("/status/nodeInfo").cloned().unwrap_or_default();
                about_node["conditions"] = raw.pointer("/status/conditions").cloned().unwrap_or_default();
                about_node["labels"] = driver_labels(&raw);
            }
            other => missing.push(lack("the Node", other.map(|r| r.map(drop)))),
        }
        let going: Vec<&Resident> = {
            let uids: Vec<&String> = plan
                .acts
                .iter()
                .map(|act| match act {
                    Act::Checkpoint { uid, .. } | Act::Evict { uid, .. } | Act::Delete { uid, .. } => uid,
                })
                .collect();
            seen.here.iter().chain(&seen.elsewhere).filter(|r| uids.contains(&&r.pod.uid)).collect()
        };
        let mut events = match timeout_at(until, workloads.events_about(None, node.name.as_str(), &node.uid, EVENTS)).await {
            Ok(Ok(events)) => json!({ "node": events }),
            other => {
                missing.push(lack("the Events of the node", other.map(|r| r.map(drop))));
                json!({})
            }
        };
        for resident in &going {
            let pod = &resident.pod;
            let read = workloads.events_about(Some(pod.name.namespace()), pod.name.name(), &pod.uid, EVENTS);
            match timeout_at(until, read).await {
                Ok(Ok(of_pod)) if of_pod.is_empty() => {}
                Ok(Ok(of_pod)) => events[pod.name.to_string()] = of_pod.into(),
                other => missing.push(lack(&format!("the Events of pod {}", pod.name), other.map(|r| r.map(drop)))),
            }
        }
        let names = {
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            names_in_monitoring(node, &nodes)
        };
        let series = match &self.aids {
            Some(aids) => match timeout_at(until, aids.last_values(self.config(), names)).await {
                Ok(Ok(series)) => series,
                Ok(Err(why)) => {
                    missing.push(format!("the last values: {why}"));
                    Vec::new()
                }
                Err(_) => {
                    missing.push("the last values: no time was left".to_owned());
                    Vec::new()
                }
            },
            None => Vec::new(),
        };
        let pods: Vec<Value> = going.iter().map(|r| about_pod(r, seen.chains.get(&r.pod.uid))).collect();
        let mut document = json!({
            "v": 1, "at": now, "isolatedAt": view.isolated_at, "node": about_node, "claims": view.claims, "pods": pods,
            "events": events, "series": series, "missing": missing,
        });
        let text = document.to_string();
        if text.len() <= MAX_BYTES {
            return text;
        }
        // The rest is small: claims are bounded by the record, and pods by what is on record at once.
        document["events"] = json!({});
        document["series"] = json!([]);
        document["missing"] = json!(["Events and series: together they were too long"]);
        document.to_string()
    }
}

/// Who it is, of what it is made and what runs it.
fn about_pod(resident: &Resident, chain: Option<&Vec<OwnerObject>>) -> Value {
    let pod = &resident.pod;
    let nearest = pod.controller.iter();
    let above = chain.into_iter().flatten().filter_map(|o| o.controller.as_ref());
    let owners: Vec<Value> = nearest.chain(above).map(|o| json!({ "kind": o.kind, "name": o.name, "uid": o.uid })).collect();
    json!({
        "namespace": pod.name.namespace(), "name": pod.name.name(), "uid": pod.uid, "created": pod.created, "group": resident.gang.key,
        "framework": resident.gang.framework.as_str(), "assumed": resident.gang.unread, "pinned": resident.gang.pinned,
        "owners": owners, "images": pod.images, "gpus": pod.gpus, "devices": pod.devices, "node": pod.node,
    })
}

/// What GPU feature discovery says of driver and GPUs.
fn driver_labels(raw: &Value) -> Value {
    let labels = raw.pointer("/metadata/labels").and_then(Value::as_object);
    let nvidia = labels.into_iter().flatten().filter(|(key, _)| key.starts_with("nvidia.com/"));
    Value::Object(nvidia.map(|(key, value)| (key.clone(), value.clone())).collect())
}

fn lack(what: &str, came: Result<Result<(), crate::cluster::PodsError>, tokio::time::error::Elapsed>) -> String {
    match came {
        Ok(Ok(())) => format!("{what}: not there"),
        Ok(Err(error)) => format!("{what}: {error}"),
        Err(_) => format!("{what}: no time was left"),
    }
}
