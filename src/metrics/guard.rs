//! The guard: what each limit counts and allows, and whether a person paused everything.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::quarantine::LimitUse;

/// Limits that are shown: pools are named by whoever labels nodes.
const MOST_LIMITS: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByLimit {
    limit: &'static str,
    policy: String,
    pool: String,
}

/// The gauges of the guard.
#[derive(Debug, Default)]
pub(super) struct Guard {
    paused: Gauge,
    value: Family<ByLimit, Gauge>,
    bound: Family<ByLimit, Gauge>,
}

impl Guard {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("paused", "Whether a person paused the service: nothing new is begun", self.paused.clone());
        registry.register("guard_limit_value", "What each limit of the guard counts, as it is now", self.value.clone());
        registry.register(
            "guard_limit_bound",
            "The most that each limit of the guard allows; of min_healthy the least",
            self.bound.clone(),
        );
    }

    /// It is like this now.
    pub(super) fn stand(&self, paused: bool, limits: Vec<LimitUse>) {
        self.paused.set(i64::from(paused));
        self.value.clear();
        self.bound.clear();
        for LimitUse { limit, policy, pool, value, bound, .. } in limits.into_iter().take(MOST_LIMITS) {
            let by = ByLimit { limit, policy: policy.unwrap_or_default(), pool: pool.unwrap_or_default() };
            self.value.get_or_create(&by).set(i64::try_from(value).unwrap_or(i64::MAX));
            self.bound.get_or_create(&by).set(i64::try_from(bound).unwrap_or(i64::MAX));
        }
    }
}
