//! The pods of a real cluster. They are read when they are needed: all pods of a cluster would be too many to watch, and what is
//! evicted must be known from the source of truth.

#[cfg(test)]
pub(super) mod tests;

use futures::future::BoxFuture;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;

use super::{CALL_TIMEOUT, CallError, KubeCluster, LIST_TIMEOUT, POD_PAGE};
use crate::{
    cluster::{EvictionAnswer, EvidenceDocument, PodsError, Retention, Workloads, owner_object, pod_facts},
    locate::{NodeName, Owner, OwnerObject, PodFacts, PodName},
    policy::LedgerPlace,
    quarantine::eviction::readable,
};

/// A list of pods ends after so many pages, so that no answer keeps us for ever.
const MAX_PAGES: usize = 20;

/// A failed call, with what to allow if it was forbidden.
pub(super) fn failed(doing: &str, error: &CallError, allow: &str) -> PodsError {
    let advice = match error {
        CallError::Status(401 | 403, _) => format!("; allow {allow}"),
        _ => String::new(),
    };
    PodsError(format!("cannot {doing}: {error}{advice}"))
}

/// kube-rs does not escape names in paths.
pub(super) fn is_namespace(text: &str) -> bool {
    PodName::new(text, "any").is_ok()
}

/// How an owner is read; `None` for kinds that nobody looks at.
fn resource_of(owner: &Owner) -> Option<ApiResource> {
    let (group, version, plural) = readable(owner)?;
    let is_version = !version.is_empty() && version.bytes().all(|b| b.is_ascii_alphanumeric());
    is_version.then(|| ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        plural: plural.to_owned(),
    })
}

impl KubeCluster {
    /// Pods whole; of a namespace, or all.
    pub(super) fn pods(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// At most `most` objects, page by page. Without a resourceVersion the API server answers from its store, not from its cache.
    pub(super) async fn list_all(
        &self,
        api: &Api<DynamicObject>,
        mut params: ListParams,
        most: usize,
    ) -> Result<Vec<Value>, CallError> {
        let mut found = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.call("list", LIST_TIMEOUT, api.list(&params)).await?;
            found.extend(page.items.iter().filter_map(|object| serde_json::to_value(object).ok()));
            match page.metadata.continue_.filter(|token| !token.is_empty() && found.len() < most) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        found.truncate(most);
        Ok(found)
    }

    async fn list_pods(&self, namespace: Option<&str>, params: ListParams, most: usize) -> Result<Vec<PodFacts>, CallError> {
        let found = self.list_all(&self.pods(namespace), params, most).await?;
        let mut pods: Vec<PodFacts> = found.iter().filter_map(facts).collect();
        pods.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pods)
    }

    async fn read_pod(&self, name: &PodName) -> Result<Option<PodFacts>, PodsError> {
        let api = self.pods(Some(name.namespace()));
        let read = self.call("get", CALL_TIMEOUT, api.get_opt(name.name())).await;
        let Some(object) = read.map_err(|e| failed(&format!("read pod {name}"), &e, "get on pods"))? else { return Ok(None) };
        let unreadable = |problem: String| PodsError(format!("cannot read pod {name}: {problem}"));
        let raw = serde_json::to_value(&object).map_err(|e| unreadable(e.to_string()))?;
        let mut pod = [pod_facts(&raw).map_err(|e| unreadable(e.problem()))?];
        self.look_up_claims(&mut pod).await;
        let [pod] = pod;
        Ok(Some(pod))
    }

    async fn read_owner(&self, namespace: &str, owner: &Owner) -> Result<Option<OwnerObject>, PodsError> {
        let Some(resource) = resource_of(owner).filter(|_| is_namespace(namespace) && NodeName::parse(&owner.name).is_ok())
        else {
            return Ok(None);
        };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let doing = || format!("read {} {namespace}/{}", owner.kind, owner.name);
        let read = self.call("get", CALL_TIMEOUT, api.get_opt(&owner.name)).await;
        let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
        let allow = format!("get on {}{group}", resource.plural);
        let object = match read {
            Ok(Some(object)) => object,
            // Said as plain text if the kind itself is not there.
            Ok(None) | Err(CallError::Status(404, _)) => return Ok(None),
            Err(error) => return Err(failed(&doing(), &error, &allow)),
        };
        let unreadable = |problem: String| PodsError(format!("cannot {}: {problem}", doing()));
        let raw = serde_json::to_value(&object).map_err(|e| unreadable(e.to_string()))?;
        let object = owner_object(&raw).map_err(|e| unreadable(e.problem()))?;
        Ok(Some(object).filter(|object| object.owner.uid == owner.uid))
    }

    async fn read_node(&self, node: &NodeName) -> Result<Option<Value>, PodsError> {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let read = self.call("get", CALL_TIMEOUT, api.get_opt(node.as_str())).await;
        let object = read.map_err(|e| failed(&format!("read node {node}"), &e, "get on nodes"))?;
        Ok(object.and_then(|object| serde_json::to_value(object).ok()))
    }
}

/// A pod that cannot be read is logged and left out, as a node is: the API server has none.
fn facts(raw: &Value) -> Option<PodFacts> {
    pod_facts(raw).inspect_err(|error| tracing::error!(%error, "A pod cannot be read and is left out.")).ok()
}

impl Workloads for KubeCluster {
    fn pods_on<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Vec<PodFacts>, PodsError>> {
        Box::pin(async move {
            let params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(POD_PAGE);
            let listed = self.list_pods(None, params, usize::MAX).await;
            let mut pods = listed.map_err(|e| failed(&format!("list the pods of node {node}"), &e, "list on pods"))?;
            self.look_up_claims(&mut pods).await;
            Ok(pods)
        })
    }

    fn pod<'a>(&'a self, name: &'a PodName) -> BoxFuture<'a, Result<Option<PodFacts>, PodsError>> {
        Box::pin(self.read_pod(name))
    }

    fn pods_of<'a>(
        &'a self,
        namespace: &'a str,
        selector: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<PodFacts>, PodsError>> {
        Box::pin(async move {
            let doing = || format!("list the pods {selector} of namespace {namespace}");
            if !is_namespace(namespace) {
                return Err(PodsError(format!("cannot {}: that is no name of a namespace", doing())));
            }
            let page = u32::try_from(most).unwrap_or(POD_PAGE).clamp(1, POD_PAGE);
            let params = ListParams::default().labels(selector).limit(page);
            let listed = self.list_pods(Some(namespace), params, most).await;
            let mut pods = listed.map_err(|e| failed(&doing(), &e, "list on pods"))?;
            // They run on many nodes, and nobody asks for the devices of those elsewhere.
            pods.iter_mut().filter(|pod| !pod.claims.is_empty()).for_each(|pod| pod.devices = None);
            Ok(pods)
        })
    }

    fn owner<'a>(&'a self, namespace: &'a str, owner: &'a Owner) -> BoxFuture<'a, Result<Option<OwnerObject>, PodsError>> {
        Box::pin(self.read_owner(namespace, owner))
    }

    fn evict<'a>(&'a self, pod: &'a PodName, uid: &'a str) -> BoxFuture<'a, EvictionAnswer> {
        Box::pin(self.ask_to_leave(pod, uid))
    }

    fn delete<'a>(&'a self, pod: &'a PodName, uid: &'a str) -> BoxFuture<'a, EvictionAnswer> {
        Box::pin(self.delete_pod(pod, uid))
    }

    fn node_raw<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<Value>, PodsError>> {
        Box::pin(self.read_node(node))
    }

    fn events_about<'a>(
        &'a self,
        namespace: Option<&'a str>,
        name: &'a str,
        uid: &'a str,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Value>, PodsError>> {
        Box::pin(self.read_events(namespace, name, uid, most))
    }

    fn keep_evidence<'a>(
        &'a self,
        place: &'a LedgerPlace,
        document: &'a EvidenceDocument,
        retention: Retention,
    ) -> BoxFuture<'a, Result<(), PodsError>> {
        Box::pin(self.keep_document(place, document, retention))
    }

    fn read_evidence<'a>(&'a self, place: &'a LedgerPlace, name: &'a str) -> BoxFuture<'a, Result<Option<String>, PodsError>> {
        Box::pin(self.read_document(place, name))
    }
}
