//! Pods of one test, in a namespace of their own, and what makes them.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Event, Namespace, Pod},
    apimachinery::pkg::apis::meta::v1::Status,
};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::process::eventually;

/// The label by which a pod opts in.
pub(crate) const OPTED_IN: &str = "gpu-quarantine.dev/evict";

/// For how long is waited: the machines of CI have much to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pods of one namespace.
#[derive(Clone)]
pub(crate) struct Pods {
    client: Client,
    pub(crate) namespace: String,
}

/// A template of pods that are scheduled to the nodes of `scope` only. `labels` is an object.
pub(crate) fn template(scope: &str, labels: &Value, gpus: u64) -> Value {
    let mut resources = json!({"requests": {"cpu": "10m", "memory": "16Mi"}});
    if gpus > 0 {
        resources["limits"] = json!({"nvidia.com/gpu": gpus.to_string()});
    }
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "nodeSelector": {"gq-test": scope}, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "registry.example.com/training:1", "resources": resources}],
        },
    })
}

/// A Job that keeps `count` pods running until so many have ended well.
pub(crate) fn job(name: &str, count: u64, template: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": count, "completions": count, "backoffLimit": 100, "template": template},
    })
}

/// A `DaemonSet`: one pod on each node.
pub(crate) fn daemon_set(name: &str, template: &Value) -> Value {
    let mut template = template.clone();
    template["spec"]["restartPolicy"] = json!("Always");
    template["metadata"]["labels"]["daemon"] = json!(name);
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"daemon": name}}, "template": template},
    })
}

/// A pod of nobody's, bound to a node.
pub(crate) fn bare(name: &str, node: &str, template: &Value) -> Value {
    let mut pod = template.clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["nodeName"] = json!(node);
    pod
}

/// A disruption budget for the pods with a label: how many of them must stay.
pub(crate) fn budget(name: &str, label: (&str, &str), min_available: u64) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {label.0: label.1}}},
    })
}

/// What is told of a pod: UIDs and names are texts.
pub(crate) fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().expect("every object has one")
}

/// Its name.
pub(crate) fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().expect("every object has one")
}

/// The node that it is bound to; empty if to none.
pub(crate) fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// Whether it runs and was not told to leave.
pub(crate) fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
}

impl Pods {
    /// A new namespace.
    pub(crate) async fn in_namespace(client: Client, namespace: &str) -> Self {
        let this = Self { client, namespace: namespace.to_owned() };
        let all = Api::all_with(this.client.clone(), &ApiResource::erase::<Namespace>(&()));
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        all.create(&PostParams::default(), &object).await.expect("a namespace");
        this
    }

    /// Objects of a kind, in this namespace.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn raw(&self, object: &Value) -> Api<DynamicObject> {
        let kind = object["kind"].as_str().expect("a kind");
        let version = object["apiVersion"].as_str().expect("a version");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Create an object of any kind.
    pub(crate) async fn create(&self, object: &Value) -> Value {
        let typed: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        json!(self.raw(object).create(&PostParams::default(), &typed).await.expect("an object that can be created"))
    }

    /// Change an object of any kind: what is given of it is merged into it.
    pub(crate) async fn merge(&self, object: &Value) {
        let patch = Patch::Merge(object.clone());
        self.raw(object).patch(name(object), &PatchParams::default(), &patch).await.expect("the patch is good");
    }

    /// Delete an object of any kind.
    pub(crate) async fn delete(&self, object: &Value) {
        self.raw(object).delete(name(object), &DeleteParams::default()).await.expect("it is there");
    }

    /// Delete a pod without grace.
    pub(crate) async fn delete_at_once(&self, pod: &str) {
        let params = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.api::<Pod>().delete(pod, &params).await.expect("the pod is there");
    }

    /// All pods that a selector matches.
    pub(crate) async fn list(&self, selector: &str) -> Vec<Value> {
        let list = self.api::<Pod>().list(&ListParams::default().labels(selector)).await.expect("a list");
        list.items.into_iter().map(|pod| json!(pod)).collect()
    }

    /// One pod, if there is one of that name.
    pub(crate) async fn get(&self, pod: &str) -> Option<Value> {
        self.api::<Pod>().get_opt(pod).await.expect("an answer").map(|pod| json!(pod))
    }

    /// Events about objects of this namespace.
    pub(crate) async fn events(&self) -> Vec<Value> {
        let list = self.api::<Event>().list(&ListParams::default()).await.expect("a list");
        list.items.into_iter().map(|event| json!(event)).collect()
    }

    /// Wait until so many pods that a selector matches run; those pods.
    pub(crate) async fn wait_running(&self, selector: &str, count: usize) -> Vec<Value> {
        eventually(&format!("{count} pods {selector} run"), PATIENCE, async || {
            let pods = self.list(selector).await;
            let running: Vec<Value> = pods.iter().filter(|pod| runs(pod)).cloned().collect();
            if running.len() == count { Ok(running) } else { Err(brief(&pods)) }
        })
        .await
    }

    /// Ask a pod to leave, as the service does.
    pub(crate) async fn evict(&self, pod: &str, uid: &str) -> kube::Result<Status> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        self.api::<Pod>().create_subresource("eviction", pod, &PostParams::default(), &eviction).await
    }
}

/// Pods in a few words each.
pub(crate) fn brief(pods: &[Value]) -> String {
    let one = |pod: &Value| {
        let leaving = if pod["metadata"]["deletionTimestamp"].is_null() { "" } else { ", leaving" };
        let message = pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
        format!("{} on {:?} {}{leaving} {message}", name(pod), node_of(pod), pod["status"]["phase"])
    };
    pods.iter().map(one).collect::<Vec<_>>().join("; ")
}
