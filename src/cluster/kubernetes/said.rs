//! What Kubernetes Events say about an object, for the evidence.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use super::{
    KubeCluster, LIST_TIMEOUT,
    workloads::{failed, is_namespace},
};
use crate::{cluster::PodsError, locate::NodeName};

/// Servers take Events about objects without a namespace in these two only.
const OF_NODES: [&str; 2] = ["default", "kube-system"];
/// So many are read of a namespace at most. They come in the order of their names, hence all are read before the last ones are known.
const MAX_READ: u32 = 500;
/// What is kept of a note, in characters.
const MAX_NOTE: usize = 1024;

impl KubeCluster {
    pub(super) async fn read_events(
        &self,
        namespace: Option<&str>,
        name: &str,
        uid: &str,
        most: usize,
    ) -> Result<Vec<Value>, PodsError> {
        let doing = format!("list the Events about {name}");
        // Commas and equals signs have a meaning in selectors of fields; no name or UID has them.
        let is_uid = !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        if NodeName::parse(name).is_err() || !is_uid || !namespace.is_none_or(is_namespace) {
            return Err(PodsError(format!("cannot {doing}: that is no object with a name and a UID")));
        }
        // Kubelets give the name of their node in the place of its UID.
        let of = |uid: &str| format!("involvedObject.name={name},involvedObject.uid={uid}");
        let (namespaces, selectors) = match namespace {
            Some(namespace) => (vec![namespace], vec![of(uid)]),
            None => (OF_NODES.to_vec(), vec![of(uid), of(name)]),
        };
        let mut events = Vec::new();
        for namespace in namespaces {
            let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
            for selector in &selectors {
                let params = ListParams::default().fields(selector).limit(MAX_READ);
                let page = self.call("list", LIST_TIMEOUT, api.list(&params)).await;
                let page = page.map_err(|e| failed(&doing, &e, &format!("list on events in the namespace {namespace}")))?;
                events.extend(page.items);
            }
        }
        events.sort_by_key(at);
        let surplus = events.len().saturating_sub(most);
        Ok(events.into_iter().skip(surplus).map(|event| said(&event)).collect())
    }
}

/// When it was last said, by whichever of its times there is.
fn at(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|s| s.last_observed_time.as_ref()).map(|t| t.0);
    let first = || event.first_timestamp.as_ref().or(event.metadata.creation_timestamp.as_ref()).map(|t| t.0);
    series
        .or_else(|| event.last_timestamp.as_ref().map(|t| t.0))
        .or_else(|| event.event_time.as_ref().map(|t| t.0))
        .or_else(first)
}

fn said(event: &Event) -> Value {
    let count = event.series.as_ref().and_then(|s| s.count).or(event.count).unwrap_or(1);
    let note: String = event.message.as_deref().unwrap_or_default().chars().take(MAX_NOTE).collect();
    json!({ "at": at(event), "type": event.type_, "reason": event.reason, "note": note, "count": count })
}
