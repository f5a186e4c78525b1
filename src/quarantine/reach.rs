//! How far a fault reaches: whom an eviction may concern.

use serde::{Deserialize, Serialize};

use super::claim::Claim;
use crate::{alert::Alert, locate::PodName};

/// The longest fault class kept, in characters.
const MAX_FAULT: usize = 64;
/// Pods that one claim names as users of its GPU.
pub(super) const MAX_WORKLOADS: usize = 8;

/// How far a fault reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuScope {
    /// The GPU, and who uses it.
    Gpu,
    /// The node as a whole.
    Node,
}

impl GpuScope {
    /// From an alert's label. A value that we do not know says nothing.
    fn of(alert: &Alert) -> Option<Self> {
        match alert.labels.get("gpu_scope") {
            Some("gpu") => Some(Self::Gpu),
            Some("node") => Some(Self::Node),
            _ => None,
        }
    }
}

/// The pod that an alert may mean as the user of its GPU. Whose `pod` and `namespace` are depends on `honorLabels` of the scrape: the
/// exporter's own by default, and the workload's are `exported_pod` and `exported_namespace` then. An exporter uses no GPU of Kubernetes',
/// so that it is never taken for one.
fn workload(alert: &Alert) -> Option<PodName> {
    let names = [("exported_namespace", "exported_pod"), ("namespace", "pod"), ("pod_namespace", "pod_name")];
    let (namespace, pod) =
        names.into_iter().find_map(|(namespace, pod)| Some((alert.labels.get(namespace)?, alert.labels.get(pod)?)))?;
    PodName::new(namespace, pod).ok()
}

impl Claim {
    /// How far the fault reaches, by this alert. Whether anything changed.
    pub(super) fn note_reach(&mut self, alert: &Alert) -> bool {
        let was = (self.scope, self.fault.is_some(), self.workloads.len());
        self.scope = self.scope.max(GpuScope::of(alert));
        if self.fault.is_none() {
            self.fault = alert.labels.get("fault").map(|text| text.chars().take(MAX_FAULT).collect());
        }
        if let Some(pod) = workload(alert).filter(|pod| !self.workloads.contains(pod) && self.workloads.len() < MAX_WORKLOADS) {
            self.workloads.push(pod);
        }
        was != (self.scope, self.fault.is_some(), self.workloads.len())
    }
}
