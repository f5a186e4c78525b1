//! What people found when they released nodes, and what isolating them cost: by alert, so that a rule which cries wolf is seen.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError, atomic::AtomicU64},
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::quarantine::Judgement;

/// So many alert names have series of their own; alert names come from outside, and each costs memory here and in Prometheus.
const MAX_NAMES: usize = 100;
/// The name that all others share.
const OTHER: &str = "other";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByVerdict {
    alertname: String,
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByAlert {
    alertname: String,
}

/// Verdicts, and hours withheld.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    given: Family<ByVerdict, Counter>,
    hours: Family<ByAlert, Counter<f64, AtomicU64>>,
    names: Mutex<BTreeSet<String>>,
}

impl Verdicts {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("verdicts", "What people found when they released a node by command, by alert", self.given.clone());
        registry.register(
            "withheld_gpu_hours",
            "Hours from isolation to release times the GPUs of the node, by the alert that isolated it; nodes whose GPUs are \
             unknown do not count",
            self.hours.clone(),
        );
    }

    /// Make the series of an alert, so that its first verdict is an increase.
    pub(super) fn expect(&self, alert: &str) {
        let name = self.name(alert);
        drop(self.hours.get_or_create(&ByAlert { alertname: name.clone() }));
        for judgement in Judgement::ALL {
            drop(self.given.get_or_create(&ByVerdict { alertname: name.clone(), verdict: judgement.as_str() }));
        }
    }

    pub(super) fn found(&self, alert: &str, judgement: Judgement) {
        let alertname = self.name(alert);
        self.given.get_or_create(&ByVerdict { alertname, verdict: judgement.as_str() }).inc();
    }

    pub(super) fn withheld(&self, alert: &str, gpu_hours: f64) {
        self.hours.get_or_create(&ByAlert { alertname: self.name(alert) }).inc_by(gpu_hours);
    }

    fn name(&self, alert: &str) -> String {
        // Whole names only are ever inserted, so a poisoned lock still holds a good set.
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(alert) || (names.len() < MAX_NAMES && names.insert(alert.to_owned())) {
            alert.to_owned()
        } else {
            OTHER.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn what_is_beyond_a_hundred_names_is_counted_together() {
        let (verdicts, mut registry) = (Verdicts::default(), Registry::default());
        verdicts.register(&mut registry);
        for i in 0..150 {
            verdicts.found(&format!("Alert{i}"), Judgement::FalseAlarm);
            verdicts.withheld(&format!("Alert{i}"), 0.5);
        }
        verdicts.found("Alert7", Judgement::FalseAlarm);
        let mut shown = String::new();
        text::encode(&mut shown, &registry).unwrap();
        let count = |of: &str| shown.lines().filter(|l| l.starts_with(of)).count();
        assert_eq!((count("verdicts_total{"), count("withheld_gpu_hours_total{")), (101, 101), "{shown}");
        for line in [
            r#"verdicts_total{alertname="Alert7",verdict="false-alarm"} 2"#,
            r#"verdicts_total{alertname="other",verdict="false-alarm"} 50"#,
            r#"withheld_gpu_hours_total{alertname="other"} 25.0"#,
        ] {
            assert!(shown.contains(line), "{line} is missing:\n{shown}");
        }
    }
}
