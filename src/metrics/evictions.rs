//! What was answered to evictions, and where the pods of isolated nodes stand.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::labels::{ByAnswer, ByState};
use crate::quarantine::eviction::{EvicteeState, EvictionAnswer};

/// Answers and pods.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    answers: Family<ByAnswer, Counter>,
    pods: Family<ByState, Gauge>,
}

impl Evictions {
    /// With every answer, so that an increase from nothing is seen.
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Pods that were asked to leave or deleted, by what was answered";
        registry.register("evictions", help, self.answers.clone());
        registry.register("evicted_pods", "Pods on record of nodes that are isolated now, by state", self.pods.clone());
        for answer in EvictionAnswer::ALL {
            drop(self.answers.get_or_create(&ByAnswer { answer }));
        }
    }

    /// A pod was asked to leave, or deleted.
    pub(super) fn answered(&self, answer: &'static str) {
        self.answers.get_or_create(&ByAnswer { answer }).inc();
    }

    /// So many pods stand in each state.
    pub(super) fn stand(&self, pods: &[(EvicteeState, usize)]) {
        for (state, count) in pods {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            self.pods.get_or_create(&ByState { state: state.as_str() }).set(count);
        }
    }
}
