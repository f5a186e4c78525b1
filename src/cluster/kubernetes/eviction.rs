//! Asking a pod to leave, and what the API server's answers mean.

#[cfg(test)]
mod tests;

use std::{future::Future, time::Duration};

use k8s_openapi::{
    api::policy::v1::Eviction,
    apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions},
};
use kube::{
    api::{DeleteParams, PostParams},
    core::Status,
};

use super::KubeCluster;
use crate::{
    cluster::EvictionAnswer,
    locate::{NodeName, PodName},
};

/// The API server retries within an eviction while its budget is being written by others, hence longer than other calls.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What is kept of a message.
const MAX_MESSAGE: usize = 300;
/// The cause by which a budget's refusal is told from throttling, both of which are 429.
const BUDGET: &str = "DisruptionBudget";

impl KubeCluster {
    /// `kube::Api::evict` would send the precondition under a name that the server does not know.
    pub(super) async fn ask_to_leave(&self, pod: &PodName, uid: &str) -> EvictionAnswer {
        let metadata = ObjectMeta {
            name: Some(pod.name().to_owned()),
            namespace: Some(pod.namespace().to_owned()),
            ..ObjectMeta::default()
        };
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        // Without a grace period in it, the pod's own counts.
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        let eviction = Eviction { metadata, delete_options: Some(options) };
        let (api, params) = (self.pods(Some(pod.namespace())), PostParams::default());
        let call = async { api.create_subresource("eviction", pod.name(), &params, &eviction).await.map(Some) };
        self.answered("evict", call, "create on pods/eviction").await
    }

    pub(super) async fn delete_pod(&self, pod: &PodName, uid: &str) -> EvictionAnswer {
        let preconditions = Some(kube::api::Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let (api, params) = (self.pods(Some(pod.namespace())), DeleteParams { preconditions, ..DeleteParams::default() });
        let call = async { Ok(api.delete(pod.name(), &params).await?.right()) };
        self.answered("delete", call, "delete on pods").await
    }

    async fn answered(
        &self,
        verb: &'static str,
        call: impl Future<Output = kube::Result<Option<Status>>> + Send,
        allow: &str,
    ) -> EvictionAnswer {
        let mut said = None;
        let call = async {
            let answer = match call.await {
                // What says no, or nothing, under a 2xx.
                Ok(Some(status)) if !status.is_success() => Err(kube::Error::Api(Box::new(status))),
                other => other.map(drop),
            };
            if let Err(kube::Error::Api(status)) = &answer {
                said = Some(status.clone());
            }
            answer
        };
        let answer = self.call(verb, TIMEOUT, call).await;
        match (answer, said) {
            (Ok(()), _) => EvictionAnswer::Accepted,
            (Err(_), Some(status)) => meaning(&status, allow),
            (Err(error), None) => EvictionAnswer::Unknown { message: error.to_string() },
        }
    }
}

/// What a failure means for the pod; `allow` is the permission that the call needs.
fn meaning(status: &Status, allow: &str) -> EvictionAnswer {
    let code = status.code;
    let message = format!("HTTP {code}: {}", cut(&status.message));
    let details = status.details.as_ref();
    let cause = |reason: &str| details.and_then(|d| d.causes.iter().find(|c| c.reason == reason));
    match code {
        // A proxy's 404 says nothing about the pod.
        404 if status.reason == "NotFound" => EvictionAnswer::Gone,
        // Somebody wrote the pod or its budget meanwhile, which is not about its UID.
        409 if status.message.contains("the object has been modified") => EvictionAnswer::Unknown { message },
        409 => EvictionAnswer::AnotherPod,
        429 => match cause(BUDGET) {
            Some(cause) => EvictionAnswer::Blocked {
                budget: budget_in(&cause.message).or_else(|| budget_in(&status.message)),
                message: format!("{message} {}", cut(&cause.message)).trim_end().to_owned(),
            },
            None => EvictionAnswer::Throttled {
                retry_after: details
                    .map(|d| d.retry_after_seconds)
                    .filter(|seconds| *seconds > 0)
                    .map(|seconds| Duration::from_secs(seconds.into())),
            },
        },
        // The budget itself is at fault: more pods are on their way out than it can note, or it allows fewer than none.
        403 if details.is_some_and(|d| d.kind.starts_with("poddisruptionbudget")) => {
            let budget = details.map(|d| d.name.clone()).filter(|name| !name.is_empty());
            EvictionAnswer::Blocked { budget, message }
        }
        // Neither of the two is cured by a permission.
        403 if cause("NamespaceTerminating").is_some() || status.message.starts_with("admission webhook") => {
            EvictionAnswer::Refused { message }
        }
        401 | 403 => EvictionAnswer::Forbidden { message: format!("{message}; allow {allow}") },
        500 if status.message.contains("more than one PodDisruptionBudget") => EvictionAnswer::ManyBudgets { message },
        // A request that took too long on its way.
        408 => EvictionAnswer::Unknown { message },
        400..500 => EvictionAnswer::Refused { message },
        _ => EvictionAnswer::Unknown { message },
    }
}

/// The name in `The disruption budget NAME needs 1 healthy pods and has 1 currently`, which all versions begin so.
fn budget_in(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("disruption budget ")?;
    let name = rest.split_whitespace().next()?;
    NodeName::parse(name).ok().map(|name| name.to_string())
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).collect()
}
