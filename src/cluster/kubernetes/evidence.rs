//! Evidence as `ConfigMap`s of our namespace, one per episode. Only those that bear our label are ever written over or deleted.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;

use super::{CallError, ConnectError, FIELD_MANAGER, KubeCluster, LIST_TIMEOUT, connect, direct::bounded, workloads::failed};
use crate::{
    cluster::{EvidenceDocument, PodsError, Retention},
    locate::NodeName,
    policy::LedgerPlace,
};

/// The key of the document.
const KEY: &str = "evidence.json";
/// The label by which ours are known, below our domain.
const LABEL: &str = "evidence";
/// The label with the node's name, where that is short enough for one.
const NODE: &str = "node";
/// The annotation with the time at which it was taken.
const TAKEN_AT: &str = "taken-at";
/// The longest value of a label.
const MAX_LABEL: usize = 63;
/// How long one call may take: a document may have most of a megabyte.
const TIMEOUT: std::time::Duration = super::ledger::TIMEOUT;
/// Names are listed in pages.
const PAGE: u32 = 500;
/// More pages than this are not read at once.
const MAX_PAGES: usize = 10;
/// So many are deleted at once at most; the next ones go when the next document is kept.
const MAX_DELETED: usize = 20;
const ALLOW: &str = "get, list, create, patch and delete on configmaps there";

impl KubeCluster {
    fn label(&self, name: &str) -> String {
        label(&self.domain, name)
    }

    fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        is_ours(metadata, &self.domain)
    }

    fn evidence(&self, place: &LedgerPlace) -> Api<ConfigMap> {
        api(&self.client, place)
    }

    pub(super) async fn keep_document(
        &self,
        place: &LedgerPlace,
        document: &EvidenceDocument,
        retention: Retention,
    ) -> Result<(), PodsError> {
        self.write_document(place, document).await?;
        // It is kept; what is too many waits for the next one.
        if let Err(error) = self.prune(place, document, retention).await {
            tracing::warn!(%error, "Old evidence could not be deleted.");
        }
        Ok(())
    }

    async fn write_document(&self, place: &LedgerPlace, document: &EvidenceDocument) -> Result<(), PodsError> {
        let name = &document.name;
        let doing = format!("keep evidence in ConfigMap {}/{name}", place.namespace);
        check(name, &doing)?;
        let mut labels = BTreeMap::from([
            ("app.kubernetes.io/managed-by".to_owned(), FIELD_MANAGER.to_owned()),
            (self.label(LABEL), "true".to_owned()),
        ]);
        if document.node.as_str().len() <= MAX_LABEL {
            labels.insert(self.label(NODE), document.node.to_string());
        }
        let annotations = BTreeMap::from([(self.label(TAKEN_AT), document.at.to_string())]);
        let data = BTreeMap::from([(KEY.to_owned(), document.json.clone())]);
        let (api, failed) = (self.evidence(place), |e: CallError| failed(&doing, &e, ALLOW));
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            labels: Some(labels.clone()),
            annotations: Some(annotations.clone()),
            ..ObjectMeta::default()
        };
        let map = ConfigMap { metadata, data: Some(data.clone()), ..ConfigMap::default() };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        match self.call("create", TIMEOUT, api.create(&params, &map)).await {
            Ok(_) => return Ok(()),
            // It is there already.
            Err(CallError::Status(409, _)) => {}
            Err(error) => return Err(failed(error)),
        }
        let there = self.call("get", TIMEOUT, api.get_metadata(name)).await.map_err(failed)?;
        if !self.is_ours(&there.metadata) {
            return Err(PodsError(format!("cannot {doing}: there is one of that name that is not ours")));
        }
        let version = there.metadata.resource_version;
        let metadata = json!({ "resourceVersion": version, "labels": labels, "annotations": annotations });
        let patch = json!({ "metadata": metadata, "data": data });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let call = async { api.patch(name, &params, &Patch::Merge(&patch)).await };
        self.call("patch", TIMEOUT, call).await.map(drop).map_err(failed)
    }

    async fn prune(&self, place: &LedgerPlace, kept: &EvidenceDocument, retention: Retention) -> Result<(), PodsError> {
        let doing = format!("delete old evidence in namespace {}", place.namespace);
        let failed = |e: CallError| failed(&doing, &e, ALLOW);
        let api = self.evidence(place);
        let mut params = ListParams::default().labels(&format!("{}=true", self.label(LABEL))).limit(PAGE);
        let mut others: Vec<(Timestamp, ObjectMeta)> = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.call("list", LIST_TIMEOUT, api.list_metadata(&params)).await.map_err(failed)?;
            let found = page.items.into_iter().map(|item| item.metadata);
            let found = found.filter(|m| self.is_ours(m) && m.name.as_ref() != Some(&kept.name));
            others.extend(found.map(|m| (self.taken_at(&m), m)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        others.sort_by_key(|(at, _)| *at);
        let oldest = kept.at.checked_sub(retention.age).unwrap_or(Timestamp::MIN);
        // One place is that of the document that was just kept.
        let surplus = others.len().saturating_sub(retention.count.saturating_sub(1));
        let old = others.iter().enumerate().filter(|(rank, (at, _))| *rank < surplus || *at < oldest);
        for (_, (_, metadata)) in old.take(MAX_DELETED) {
            let (Some(name), Some(uid)) = (&metadata.name, &metadata.uid) else { continue };
            let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version: None });
            let params = DeleteParams { preconditions, ..DeleteParams::default() };
            let call = async { api.delete(name, &params).await.map(drop) };
            match self.call("delete", TIMEOUT, call).await {
                // Gone, or made anew, by another replica.
                Ok(()) | Err(CallError::Status(404 | 409, _)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// When it was taken; one that does not say so is as old as its object.
    fn taken_at(&self, metadata: &ObjectMeta) -> Timestamp {
        let said = metadata.annotations.as_ref().and_then(|a| a.get(&self.label(TAKEN_AT)));
        let said = said.and_then(|text| text.parse().ok());
        said.or_else(|| metadata.creation_timestamp.as_ref().map(|time| time.0)).unwrap_or(Timestamp::MIN)
    }

    pub(super) async fn read_document(&self, place: &LedgerPlace, name: &str) -> Result<Option<String>, PodsError> {
        let doing = reading(place, name)?;
        let api = self.evidence(place);
        let read = self.call("get", TIMEOUT, api.get_opt(name)).await;
        read.map(|map| text_of(map, &self.domain)).map_err(|e| failed(&doing, &e, ALLOW))
    }
}

/// The documents behind an API server, for commands.
pub struct DirectEvidence {
    client: Client,
    place: LedgerPlace,
    domain: String,
}

impl std::fmt::Debug for DirectEvidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectEvidence").field("place", &self.place).field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl DirectEvidence {
    /// The documents in the namespace of `place` behind `config`; `domain` is the prefix of our labels.
    ///
    /// # Errors
    ///
    /// If no client can be made of the configuration.
    pub fn new(config: kube::Config, place: LedgerPlace, domain: &str) -> Result<Self, ConnectError> {
        let (client, _) = connect::clients(config)?;
        Ok(Self { client, place, domain: domain.to_owned() })
    }

    /// A document that was kept; `None` if there is none of that name.
    ///
    /// # Errors
    ///
    /// If the API server cannot be asked, or the name is none.
    pub async fn read(&self, name: &str) -> Result<Option<String>, PodsError> {
        let doing = reading(&self.place, name)?;
        let read = bounded(TIMEOUT, api(&self.client, &self.place).get_opt(name)).await;
        read.map(|map| text_of(map, &self.domain)).map_err(|e| failed(&doing, &e, "get on configmaps there"))
    }
}

fn api(client: &Client, place: &LedgerPlace) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), &place.namespace)
}

fn label(domain: &str, name: &str) -> String {
    format!("{domain}/{name}")
}

fn is_ours(metadata: &ObjectMeta, domain: &str) -> bool {
    metadata.labels.as_ref().and_then(|labels| labels.get(&label(domain, LABEL))).is_some_and(|value| value == "true")
}

fn text_of(map: Option<ConfigMap>, domain: &str) -> Option<String> {
    map.filter(|map| is_ours(&map.metadata, domain))?.data?.remove(KEY)
}

/// What is done, for errors, if that is the name of a document.
fn reading(place: &LedgerPlace, name: &str) -> Result<String, PodsError> {
    let doing = format!("read evidence in ConfigMap {}/{name}", place.namespace);
    check(name, &doing).map(|()| doing)
}

/// kube-rs does not escape names in paths. A `ConfigMap` is named by the rule for nodes.
fn check(name: &str, doing: &str) -> Result<(), PodsError> {
    NodeName::parse(name).map(drop).map_err(|_| PodsError(format!("cannot {doing}: that is no name of a ConfigMap")))
}
