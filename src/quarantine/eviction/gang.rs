//! The group that a pod belongs to, and what its framework does when one of them is lost.
//!
//! A group is named by the top-most controller that is known here: of `Pod -> Job -> JobSet -> TrainJob` by the `TrainJob`. What
//! controls a pod is always known by name; where more could not be read, which RBAC may forbid, the labels that the frameworks put
//! on their pods help, and then the framework's default is assumed ([`Gang::unread`]).

mod chain;
mod job;
mod jobset;
mod lws;
mod owners;
mod pod_failure;
mod ray;
#[cfg(test)]
pub(super) mod tests;
mod training;
mod volcano;

use self::{
    chain::Chain,
    owners::{Kind, kind},
};
use super::state::cut;
use crate::locate::{OwnerObject, PodFacts};

pub use owners::readable;

/// What runs a group of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Framework {
    /// Nothing: a bare pod.
    None,
    /// Nothing that creates pods: bare pods that are scheduled as one, by Kueue or by Kubernetes itself.
    PodGroup,
    /// A Job of Kubernetes.
    Job,
    /// A `JobSet`.
    JobSet,
    /// A `TrainJob` of Kubeflow Trainer 2, which runs as a `JobSet`.
    TrainJob,
    /// A job of Kubeflow's training-operator, e.g. a `PyTorchJob`.
    TrainingJob,
    /// An `MPIJob`, of the mpi-operator or the training-operator.
    MpiJob,
    /// A group of a `LeaderWorkerSet`.
    LeaderWorkerSet,
    /// A `RayCluster` that stands alone.
    RayCluster,
    /// A `RayJob`, with its cluster.
    RayJob,
    /// A `RayService`, with its clusters.
    RayService,
    /// A Job of Volcano.
    VolcanoJob,
    /// What keeps replicas that do not need each other: Deployment, `StatefulSet`, DaemonSet and whatever stands above them.
    Replicas,
    /// A controller that is not known here.
    Other,
}

impl Framework {
    /// The name for configuration, metrics and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PodGroup => "pod_group",
            Self::Job => "job",
            Self::JobSet => "jobset",
            Self::TrainJob => "trainjob",
            Self::TrainingJob => "training_job",
            Self::MpiJob => "mpijob",
            Self::LeaderWorkerSet => "leaderworkerset",
            Self::RayCluster => "raycluster",
            Self::RayJob => "rayjob",
            Self::RayService => "rayservice",
            Self::VolcanoJob => "volcano_job",
            Self::Replicas => "replicas",
            Self::Other => "other",
        }
    }

    /// Whether it runs work that ends, rather than serving somebody who waits. What is not known may serve.
    #[must_use]
    pub fn is_batch(self) -> bool {
        match self {
            Self::None
            | Self::PodGroup
            | Self::Job
            | Self::JobSet
            | Self::TrainJob
            | Self::TrainingJob
            | Self::MpiJob
            | Self::RayCluster
            | Self::RayJob
            | Self::VolcanoJob => true,
            Self::LeaderWorkerSet | Self::RayService | Self::Replicas | Self::Other => false,
        }
    }
}

/// What becomes of a group when one of its pods is evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The pod alone is replaced: each on the node must be evicted.
    Each,
    /// The framework restarts the whole group: one gone is enough.
    Whole,
    /// The others hang until they go, too: all must be evicted, wherever they run.
    All,
    /// The group fails for good, and why, as a clause: it must not be touched.
    Fails(String),
}

/// A group of pods that live and die together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gang {
    /// Its name for people and records: kind, namespace and name, e.g. `JobSet team-a/llm`; of a part of it, with `/` and the part.
    /// The same group restarted has the same name.
    pub key: String,
    /// What runs it.
    pub framework: Framework,
    /// What becomes of it when this pod is lost. Pods of one group may differ: the head of a Ray cluster and its workers.
    pub loss: Loss,
    /// How many more losses of that kind it bears before it fails for good, counting from what was read: of single pods for
    /// [`Loss::Each`], of the whole for [`Loss::Whole`]. At least 1; `None` if nothing counts them.
    pub spare: Option<u64>,
    /// A label selector that matches all of its pods in its namespace; `None` if there is none.
    pub members: Option<String>,
    /// What says more could not be read, and [`Self::loss`] is what the framework does by default.
    pub unread: bool,
    /// Kueue has chosen its nodes by topology: a new pod waits until Kueue has swapped the node, which it does for one node that is
    /// tainted, and for a second one it evicts the whole (<https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/>).
    pub pinned: bool,
}

impl Gang {
    fn new(pod: &PodFacts, framework: Framework, kind: &str, name: &str, loss: Loss) -> Self {
        Self {
            key: format!("{kind} {}/{name}", pod.name.namespace()),
            framework,
            loss,
            spare: None,
            members: None,
            unread: false,
            pinned: pod.labels.get("kueue.x-k8s.io/tas").is_some_and(|v| v == "true"),
        }
    }
}

/// The group of a pod. `chain` is what controls it, the nearest first, as far as it could be read. `group_label` is a label of pods
/// whose value names their group, whatever runs it; what becomes of it stays what was recognised.
#[must_use]
pub fn gang(pod: &PodFacts, chain: &[OwnerObject], group_label: Option<&str>) -> Gang {
    let mut gang = recognise(pod, &Chain::new(pod, chain));
    // The scheduling group is a name that says more where nothing else ties the pods together. It creates none of them
    // (https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/4671-gang-scheduling).
    if let Some(group) = &pod.pod_group
        && matches!(gang.framework, Framework::None | Framework::Replicas | Framework::Other)
    {
        gang.key = format!("PodGroup {}/{group}", pod.name.namespace());
        if gang.framework == Framework::None {
            gang.framework = Framework::PodGroup;
        }
    }
    if let Some(label) = group_label
        && let Some(group) = pod.labels.get(label).filter(|v| !v.is_empty())
    {
        gang.key = format!("Group {}/{group}", pod.name.namespace());
        gang.members = selector(pod, &[label]);
    }
    // It stands on record, and is compared with what stands there.
    gang.key = cut(&gang.key);
    gang
}

fn recognise(pod: &PodFacts, chain: &Chain<'_>) -> Gang {
    let Some(top) = chain.top() else {
        return bare(pod);
    };
    let known = chain.links().iter().rev().find_map(|link| kind(link.owner).map(|kind| (link, kind)));
    let Some((link, kind)) = known else {
        return Gang::new(pod, Framework::Other, &top.owner.kind, &top.owner.name, Loss::Each);
    };
    // A label counts only where the controller that would stand above could not be seen.
    let by_label = |label: &str| top.raw.is_none() && pod.labels.contains_key(label);
    match kind {
        Kind::Job if link.raw.is_none() && by_label(jobset::NAME) => jobset::gang(pod, chain),
        Kind::Job => job::gang(pod, link),
        Kind::JobSet | Kind::TrainJob => jobset::gang(pod, chain),
        Kind::Training(training) => training::gang(pod, link, training),
        Kind::MpiJob => training::mpi(pod, link),
        Kind::StatefulSet if matches!(top.owner.kind.as_str(), "StatefulSet" | "Pod") && by_label(lws::NAME) => {
            lws::gang(pod, chain)
        }
        Kind::LeaderWorkerSet => lws::gang(pod, chain),
        Kind::RayCluster | Kind::RayJob | Kind::RayService => ray::gang(pod, chain, link),
        Kind::VolcanoJob => volcano::gang(pod, link),
        Kind::ReplicaSet if link.raw.is_none() => deployment(pod, &link.owner.name),
        // Whatever stands above them, known or not, rolls them out: its name stays.
        Kind::ReplicaSet | Kind::StatefulSet | Kind::Replicas => {
            Gang::new(pod, Framework::Replicas, &top.owner.kind, &top.owner.name, Loss::Each)
        }
    }
}

/// A pod that nothing controls. Kueue ties such pods to groups by a label (<https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/>).
fn bare(pod: &PodFacts) -> Gang {
    const KUEUE: &str = "kueue.x-k8s.io/pod-group-name";
    let loss = Loss::Fails("nothing creates it again".to_owned());
    match pod.labels.get(KUEUE) {
        Some(group) => Gang { members: selector(pod, &[KUEUE]), ..Gang::new(pod, Framework::PodGroup, "PodGroup", group, loss) },
        None => Gang::new(pod, Framework::None, "Pod", pod.name.name(), loss),
    }
}

/// A `ReplicaSet` whose controller could not be read. That of a Deployment is named by it and the hash of its template
/// (<https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#pod-template-hash-label>).
fn deployment(pod: &PodFacts, replica_set: &str) -> Gang {
    let hash = pod.labels.get("pod-template-hash");
    let name = hash.and_then(|hash| replica_set.strip_suffix(hash.as_str())?.strip_suffix('-'));
    let (kind, name) = name.map_or(("ReplicaSet", replica_set), |name| ("Deployment", name));
    Gang::new(pod, Framework::Replicas, kind, name, Loss::Each)
}

/// The selector of all pods that have the same values of these labels; `None` if the pod lacks one.
fn selector(pod: &PodFacts, labels: &[&str]) -> Option<String> {
    let terms: Option<Vec<String>> =
        labels.iter().map(|label| pod.labels.get(*label).map(|value| format!("{label}={value}"))).collect();
    terms.map(|terms| terms.join(","))
}
