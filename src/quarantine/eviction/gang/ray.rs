//! Clusters of Ray, alone or of a `RayJob` or `RayService`.
//!
//! A worker is created again and its tasks are tried again. The head has the state of the cluster, which is lost with it unless the
//! fault tolerance of the GCS keeps it elsewhere (<https://docs.ray.io/en/latest/cluster/kubernetes/user-guides/kuberay-gcs-ft.html>).

#[cfg(test)]
mod tests;

use super::{
    Framework, Gang, Loss,
    chain::{Chain, Link},
    job,
    owners::Kind,
    selector,
};
use crate::locate::PodFacts;

/// The label that names the cluster.
const CLUSTER: &str = "ray.io/cluster";
/// On the cluster, and on its pods in turn: `true` if the state of the GCS is kept elsewhere.
const FAULT_TOLERANT: &str = "ray.io/ft-enabled";

/// The group of a pod of Ray, of which `top` is the top-most controller that is known.
pub(super) fn gang(pod: &PodFacts, chain: &Chain<'_>, top: &Link<'_>) -> Gang {
    let Some(cluster) = chain.of(Kind::RayCluster) else {
        // The Job that hands a RayJob in to its cluster.
        let submitter = chain.of(Kind::Job).map(|link| job::gang(pod, &link));
        let loss = submitter.as_ref().map_or(Loss::Each, |gang| gang.loss.clone());
        let named = named(pod, &top.owner.kind, &top.owner.name, loss);
        return Gang { spare: submitter.as_ref().and_then(|s| s.spare), unread: submitter.is_some_and(|s| s.unread), ..named };
    };
    let is_head = pod.labels.get("ray.io/node-type").is_some_and(|v| v == "head");
    let loss = if is_head && !is_fault_tolerant(pod, &cluster) {
        Loss::Fails("the head has the state of the cluster, and no fault tolerance of the GCS keeps it elsewhere".to_owned())
    } else {
        Loss::Each
    };
    // Above a cluster that could not be read, its labels may still name what it was created for.
    let origin = || {
        let (kind, name) = (pod.labels.get("ray.io/originated-from-crd")?, pod.labels.get("ray.io/originated-from-cr-name")?);
        matches!(kind.as_str(), "RayJob" | "RayService").then_some((kind.as_str(), name.as_str()))
    };
    let own = (top.owner.kind.as_str(), top.owner.name.as_str());
    let (kind, name) = if cluster.raw.is_none() { origin().unwrap_or(own) } else { own };
    Gang {
        members: selector(pod, &[CLUSTER]),
        unread: is_head && cluster.raw.is_none() && loss != Loss::Each,
        ..named(pod, kind, name, loss)
    }
}

fn named(pod: &PodFacts, kind: &str, name: &str, loss: Loss) -> Gang {
    let framework = match kind {
        "RayJob" => Framework::RayJob,
        "RayService" => Framework::RayService,
        _ => Framework::RayCluster,
    };
    Gang::new(pod, framework, kind, name, loss)
}

/// As `IsGCSFaultToleranceEnabled` has it
/// (<https://github.com/ray-project/kuberay/blob/master/ray-operator/controllers/ray/utils/util.go>); its answer is also an
/// annotation of each pod.
fn is_fault_tolerant(pod: &PodFacts, cluster: &Link<'_>) -> bool {
    let is_true = |text: Option<&str>| text.is_some_and(|text| text.eq_ignore_ascii_case("true"));
    is_true(pod.annotations.get(FAULT_TOLERANT).map(String::as_str))
        || cluster.raw.is_some_and(|cluster| {
            is_true(cluster["metadata"]["annotations"][FAULT_TOLERANT].as_str())
                || cluster["spec"]["gcsFaultToleranceOptions"].is_object()
        })
}
