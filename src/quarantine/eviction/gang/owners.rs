//! The kinds of controllers that are known.

use super::training::Training;
use crate::locate::Owner;

/// What a controller is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Job,
    JobSet,
    TrainJob,
    Training(Training),
    MpiJob,
    LeaderWorkerSet,
    RayCluster,
    RayJob,
    RayService,
    VolcanoJob,
    ReplicaSet,
    StatefulSet,
    Replicas,
}

/// One kind: the group of its API, its name, and its plural if it is worth reading.
struct Known(&'static str, &'static str, Option<&'static str>, Kind);

/// Of the top-most ones the names alone are needed, and these stand in the objects below them.
static KNOWN: [Known; 19] = [
    Known("batch", "Job", Some("jobs"), Kind::Job),
    Known("jobset.x-k8s.io", "JobSet", Some("jobsets"), Kind::JobSet),
    Known("trainer.kubeflow.org", "TrainJob", None, Kind::TrainJob),
    Known("kubeflow.org", "PyTorchJob", Some("pytorchjobs"), Kind::Training(Training::PyTorch)),
    Known("kubeflow.org", "TFJob", Some("tfjobs"), Kind::Training(Training::TensorFlow)),
    Known("kubeflow.org", "XGBoostJob", Some("xgboostjobs"), Kind::Training(Training::XgBoost)),
    Known("kubeflow.org", "PaddleJob", Some("paddlejobs"), Kind::Training(Training::Paddle)),
    Known("kubeflow.org", "JAXJob", Some("jaxjobs"), Kind::Training(Training::Jax)),
    Known("kubeflow.org", "MPIJob", None, Kind::MpiJob),
    Known("leaderworkerset.x-k8s.io", "LeaderWorkerSet", Some("leaderworkersets"), Kind::LeaderWorkerSet),
    Known("ray.io", "RayCluster", Some("rayclusters"), Kind::RayCluster),
    Known("ray.io", "RayJob", None, Kind::RayJob),
    Known("ray.io", "RayService", None, Kind::RayService),
    Known("batch.volcano.sh", "Job", Some("jobs"), Kind::VolcanoJob),
    Known("apps", "ReplicaSet", Some("replicasets"), Kind::ReplicaSet),
    Known("apps", "StatefulSet", Some("statefulsets"), Kind::StatefulSet),
    Known("apps", "Deployment", None, Kind::Replicas),
    Known("apps", "DaemonSet", None, Kind::Replicas),
    Known("", "ReplicationController", None, Kind::Replicas),
];

/// Its kind, if it is known. Versions of an API do not matter.
pub(super) fn kind(owner: &Owner) -> Option<Kind> {
    known(owner).map(|known| known.3)
}

/// Where to read a controller: group (empty for the core), version and plural of its kind. `None` if nothing here depends on what
/// it says, as for all that is not known. Up to five steps lead up from a pod: those of a `LeaderWorkerSet`, whose workers are
/// controlled by a `StatefulSet`, this by the pod that leads them, and that again by a `StatefulSet`.
#[must_use]
pub fn readable(owner: &Owner) -> Option<(&str, &str, &'static str)> {
    let (group, version) = split(&owner.api_version);
    let plural = match (group, owner.kind.as_str()) {
        ("", "Pod") => Some("pods"),
        _ => known(owner)?.2,
    };
    plural.map(|plural| (group, version, plural))
}

fn known(owner: &Owner) -> Option<&'static Known> {
    let (group, _) = split(&owner.api_version);
    KNOWN.iter().find(|known| known.0 == group && known.1 == owner.kind)
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
