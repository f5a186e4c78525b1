//! The jobs of Kubeflow's training-operator, and `MPIJob`s.
//!
//! A pod that failed is created again under the same name, unless the `restartPolicy` of its replica type is `Never`: then the job
//! fails. `ExitCode` restarts from 128 on, and a pod that is terminated ends with 143 or 137
//! (<https://github.com/kubeflow/training-operator/blob/release-1.9/pkg/controller.v1/common/pod.go>,
//! <https://github.com/kubeflow/training-operator/blob/release-1.9/pkg/apis/kubeflow.org/v1/common_types.go>). The others do not
//! notice and wait for it in a rendezvous that it never joins (<https://github.com/kubeflow/trainer/issues/2000>), except where they
//! are elastic (<https://pytorch.org/docs/stable/elastic/run.html>).

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::{Framework, Gang, Loss, chain::Link, selector};
use crate::locate::PodFacts;

/// The label that names the job.
const NAME: &str = "training.kubeflow.org/job-name";
/// The label that says whose job it is: jobs of two kinds may have one name.
const OPERATOR: &str = "training.kubeflow.org/operator-name";
/// The label that names the replica type, in lower case.
const REPLICA_TYPE: &str = "training.kubeflow.org/replica-type";

/// A kind of the training-operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Training {
    PyTorch,
    TensorFlow,
    XgBoost,
    Paddle,
    Jax,
}

impl Training {
    /// The field of `spec` that has the replica types, and the `restartPolicy` that an absent one means.
    fn replicas(self) -> (&'static str, &'static str) {
        match self {
            Self::PyTorch => ("pytorchReplicaSpecs", "OnFailure"),
            Self::TensorFlow => ("tfReplicaSpecs", "Never"),
            Self::XgBoost => ("xgbReplicaSpecs", "Never"),
            Self::Paddle => ("paddleReplicaSpecs", "OnFailure"),
            Self::Jax => ("jaxReplicaSpecs", "Never"),
        }
    }
}

/// The group of a pod of the training-operator.
pub(super) fn gang(pod: &PodFacts, link: &Link<'_>, training: Training) -> Gang {
    let (policy, limit, is_elastic) = match link.raw {
        Some(job) => {
            let spec = &job["spec"];
            (restart_policy(spec, pod, training), spec["runPolicy"]["backoffLimit"].as_u64(), spec["elasticPolicy"].is_object())
        }
        // The pods get the policy of their replica type, or Never for ExitCode: then the worse is assumed.
        None => (pod.restart_policy.as_str(), None, false),
    };
    let loss = match (policy, limit) {
        ("Never", _) => Loss::Fails("a pod of it that fails is not started again (restartPolicy Never)".to_owned()),
        (_, Some(0)) => Loss::Fails("it allows no failure (backoffLimit 0)".to_owned()),
        _ if is_elastic => Loss::Each,
        _ => Loss::All,
    };
    Gang {
        members: selector(pod, &[NAME, OPERATOR]).or_else(|| selector(pod, &[NAME])),
        unread: link.raw.is_none(),
        ..Gang::new(pod, Framework::TrainingJob, &link.owner.kind, &link.owner.name, loss)
    }
}

fn restart_policy<'a>(spec: &'a Value, pod: &PodFacts, training: Training) -> &'a str {
    let (field, default) = training.replicas();
    let own = pod.labels.get(REPLICA_TYPE);
    let types = spec[field].as_object().into_iter().flatten();
    let replicas = types.into_iter().find(|(name, _)| own.is_some_and(|own| own.eq_ignore_ascii_case(name)));
    replicas.and_then(|(_, replicas)| replicas["restartPolicy"].as_str()).unwrap_or(default)
}

/// The group of a pod of an `MPIJob`. mpirun ends when it loses a rank; workers that count as evicted fail the job while the others
/// are left running (<https://github.com/kubeflow/mpi-operator/issues/647>). Which evictions count, and whether the launcher is tried
/// again, depends on operator and version: it is spared.
pub(super) fn mpi(pod: &PodFacts, link: &Link<'_>) -> Gang {
    let loss = Loss::Fails("an MPIJob does not survive the loss of a pod".to_owned());
    Gang {
        members: selector(pod, &[NAME, OPERATOR]).or_else(|| selector(pod, &[NAME])),
        ..Gang::new(pod, Framework::MpiJob, "MPIJob", &link.owner.name, loss)
    }
}
