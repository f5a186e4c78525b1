//! The GPUs of pods that have them by `ResourceClaim`s. Best effort: what cannot be read leaves a pod's devices unknown.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;

use super::{CALL_TIMEOUT, CallError, KubeCluster};
use crate::{
    cluster::facts::{CLAIM_DRIVER, Claimed, claimed_gpus},
    locate::{NodeName, PodFacts, PodName},
};

/// How long all look-ups for one node may take together.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many claims are read at a time.
const AT_ONCE: usize = 8;
/// A driver publishes at most 128 devices in a slice, and no node has as many GPUs with all their slices.
const MAX_SLICES: usize = 64;
const GROUP: &str = "resource.k8s.io";
/// The versions that we can read, the best first (1.34, 1.33, 1.32).
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];

/// What was read: claims by namespace and name, where there are any, and the slices of a node.
struct Read {
    claims: BTreeMap<PodName, Value>,
    slices: Vec<Value>,
}

impl KubeCluster {
    /// Fill in the devices of pods of one node that have claims.
    pub(super) async fn look_up_claims(&self, pods: &mut [PodFacts]) {
        let Some(node) = pods.iter().find(|pod| !pod.claims.is_empty()).and_then(|pod| pod.node.clone()) else {
            return;
        };
        // A claim is named as a pod is. What is not a name is the claim of nobody.
        let names = |pod: &PodFacts| -> Option<Vec<PodName>> {
            pod.claims.iter().map(|claim| PodName::new(pod.name.namespace(), claim).ok()).collect()
        };
        let wanted: BTreeSet<PodName> = pods.iter().filter_map(names).flatten().collect();
        let read = match tokio::time::timeout(TIMEOUT, self.read_claims(&node, wanted)).await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => {
                tracing::debug!(%node, %error, "The claims of pods could not be read, so their devices are not known.");
                None
            }
            Err(_) => {
                tracing::debug!(%node, "The claims of pods could not be read in time, so their devices are not known.");
                None
            }
        };
        let slices: Vec<&Value> = read.iter().flat_map(|read| &read.slices).collect();
        for pod in pods.iter_mut().filter(|pod| !pod.claims.is_empty()) {
            let claims = read.as_ref().zip(names(pod)).and_then(|(read, names)| {
                let found: Option<Vec<&Value>> = names.iter().map(|name| read.claims.get(name)).collect();
                found
            });
            let found = claims.map_or(Claimed::Unknown, |claims| claimed_gpus(&claims, &slices));
            pod.devices = found.beside(pod.devices.take(), pod.gpus);
        }
    }

    /// `None` if the server knows no claims.
    async fn read_claims(&self, node: &NodeName, wanted: BTreeSet<PodName>) -> Result<Option<Read>, CallError> {
        let Some(version) = self.claims_version().await? else { return Ok(None) };
        let slices: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &resource(version, "ResourceSlice", "resourceslices"));
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node},spec.driver={CLAIM_DRIVER}")).limit(64);
        let slices = self.list_all(&slices, of_node, MAX_SLICES).await?;
        let claim = resource(version, "ResourceClaim", "resourceclaims");
        let read = async |name: PodName| {
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), name.namespace(), &claim);
            let read = self.call("get", CALL_TIMEOUT, api.get_opt(name.name())).await;
            (name, read)
        };
        let mut claims = BTreeMap::new();
        let mut reads = std::pin::pin!(futures::stream::iter(wanted).map(read).buffer_unordered(AT_ONCE));
        while let Some((name, read)) = reads.next().await {
            if let Some(claim) = read?.and_then(|claim| serde_json::to_value(claim).ok()) {
                claims.insert(name, claim);
            }
        }
        Ok(Some(Read { claims, slices }))
    }

    /// The version of claims that the server offers and we can read.
    async fn claims_version(&self) -> Result<Option<&'static str>, CallError> {
        let call = async {
            let request = http::Request::get(format!("/apis/{GROUP}")).body(Vec::new()).map_err(kube::Error::HttpError)?;
            self.client.request::<APIGroup>(request).await
        };
        match self.call("get", CALL_TIMEOUT, call).await {
            Ok(group) => Ok(VERSIONS.into_iter().find(|version| group.versions.iter().any(|v| v.version == **version))),
            Err(CallError::Status(404, _)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn resource(version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: version.to_owned(),
        api_version: format!("{GROUP}/{version}"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}
