//! The ledger as a `ConfigMap`: one key, guarded by the resourceVersion.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;

use super::{CallError, ConnectError, FIELD_MANAGER, connect, direct::bounded};
use crate::{
    cluster::{LedgerError, LedgerWrite, StoredText},
    policy::LedgerPlace,
};

/// How long a call about the ledger may take: it may have half a megabyte.
pub(super) const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
/// The key of the ledger itself.
const KEY: &str = "ledger.json";
/// The key under which a text is kept that could not be used.
const UNREADABLE: &str = "unreadable";
/// What is kept of such a text, in bytes: the `ConfigMap` holds 1 MiB in all.
const MAX_UNREADABLE: usize = 256 * 1024;

fn api(client: &Client, place: &LedgerPlace) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), &place.namespace)
}

/// Read it; `None` if there is no such `ConfigMap`.
pub(super) async fn read(client: &Client, place: &LedgerPlace) -> kube::Result<Option<StoredText>> {
    let found = api(client, place).get_opt(&place.name).await?;
    Ok(found.map(|mut map| StoredText {
        version: map.metadata.resource_version.unwrap_or_default(),
        text: map.data.as_mut().and_then(|data| data.remove(KEY)),
        annotations: map.metadata.annotations.unwrap_or_default(),
    }))
}

/// Write it over the version that was read.
pub(super) async fn write(client: &Client, place: &LedgerPlace, write: LedgerWrite<'_>) -> kube::Result<()> {
    let mut data = BTreeMap::from([(KEY.to_owned(), write.text.to_owned())]);
    if let Some(text) = write.unreadable {
        let fits = text.char_indices().take_while(|(at, c)| at + c.len_utf8() <= MAX_UNREADABLE);
        data.insert(UNREADABLE.to_owned(), fits.map(|(_, c)| c).collect());
    }
    let api = api(client, place);
    if let Some(version) = write.over {
        let mut patch = json!({ "metadata": { "resourceVersion": version }, "data": data });
        if let Some(annotation) = write.without {
            patch["metadata"]["annotations"] = json!({ annotation: null });
        }
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        api.patch(&place.name, &params, &Patch::Merge(patch)).await?;
    } else {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let metadata = ObjectMeta { name: Some(place.name.clone()), ..ObjectMeta::default() };
        api.create(&params, &ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }).await?;
    }
    Ok(())
}

/// Why a call failed, for whoever asked for it.
pub(super) fn failed(error: CallError, verb: &str, place: &LedgerPlace, over: Option<&str>) -> LedgerError {
    match error {
        // Gone since it was read; or there by now.
        CallError::Status(404, _) if over.is_some() => LedgerError::Conflict,
        CallError::Status(409, _) => LedgerError::Conflict,
        CallError::Status(404, message) => LedgerError::Failed(format!(
            "cannot {verb} ConfigMap {place}: HTTP 404: {message}; create the namespace, or set ledger.namespace to one that is there"
        )),
        CallError::Status(403, message) => LedgerError::Failed(format!(
            "cannot {verb} ConfigMap {place}: HTTP 403: {message}; allow get, create and patch on configmaps there"
        )),
        other => LedgerError::Failed(format!("cannot {verb} ConfigMap {place}: {other}")),
    }
}

/// The ledger behind an API server, for commands.
pub struct DirectLedger {
    client: Client,
    place: LedgerPlace,
}

impl std::fmt::Debug for DirectLedger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectLedger").field("place", &self.place).finish_non_exhaustive()
    }
}

impl DirectLedger {
    /// The ledger at `place` behind `config`.
    ///
    /// # Errors
    ///
    /// If no client can be made of the configuration.
    pub fn new(config: kube::Config, place: LedgerPlace) -> Result<Self, ConnectError> {
        let (client, _) = connect::clients(config)?;
        Ok(Self { client, place })
    }

    /// Read it; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Failed`].
    pub async fn read(&self) -> Result<Option<StoredText>, LedgerError> {
        bounded(TIMEOUT, read(&self.client, &self.place)).await.map_err(|e| failed(e, "read", &self.place, None))
    }

    /// Write it over the version that was read.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Conflict`] if it has another version, or is gone, or there by now.
    pub async fn write(&self, text: LedgerWrite<'_>) -> Result<(), LedgerError> {
        let call = bounded(TIMEOUT, write(&self.client, &self.place, text)).await;
        call.map_err(|e| failed(e, "write", &self.place, text.over))
    }

    /// Delete it in the version that was read.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Conflict`] if it has another version or is gone.
    pub async fn delete(&self, version: &str) -> Result<(), LedgerError> {
        let api = api(&self.client, &self.place);
        let preconditions = Some(Preconditions { resource_version: Some(version.to_owned()), uid: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let call = async { api.delete(&self.place.name, &params).await.map(drop) };
        bounded(TIMEOUT, call).await.map_err(|e| failed(e, "delete", &self.place, Some(version)))
    }
}
