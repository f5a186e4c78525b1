//! Alerts that could not be recorded and that Alertmanager will not send again soon: firing ones whose labels name no node yet,
//! and whatever a node refuses to have written. They are tried again when nodes change and from time to time.

use std::collections::{HashMap, VecDeque};

use crate::alert::{Alert, Fingerprint};

/// How many are kept; the oldest goes first.
const CAPACITY: usize = 10_000;

/// The alerts that wait.
#[derive(Debug, Default)]
pub(super) struct Parked {
    alerts: HashMap<Fingerprint, Alert>,
    order: VecDeque<Fingerprint>,
}

impl Parked {
    /// Keep an alert. `false` if an older one had to go for it.
    pub(super) fn keep(&mut self, alert: Alert) -> bool {
        let fingerprint = alert.fingerprint;
        if self.alerts.insert(fingerprint, alert).is_none() {
            self.order.push_back(fingerprint);
        }
        // Taken ones leave their place in the order behind.
        while self.order.front().is_some_and(|f| !self.alerts.contains_key(f)) {
            self.order.pop_front();
        }
        if self.alerts.len() <= CAPACITY {
            return true;
        }
        if let Some(oldest) = self.order.pop_front() {
            self.alerts.remove(&oldest);
        }
        false
    }

    /// Forget an alert: it was recorded, or it is over.
    pub(super) fn forget(&mut self, fingerprint: Fingerprint) {
        if self.alerts.remove(&fingerprint).is_some() {
            self.order.retain(|f| *f != fingerprint);
        }
    }

    /// Forget those that no longer fire.
    pub(super) fn keep_only(&mut self, fires: impl Fn(Fingerprint) -> bool) {
        self.alerts.retain(|fp, _| fires(*fp));
        self.order.retain(|fp| self.alerts.contains_key(fp));
    }

    /// All of them, oldest first.
    pub(super) fn all(&self) -> Vec<Alert> {
        self.order.iter().filter_map(|f| self.alerts.get(f)).cloned().collect()
    }

    /// Whether it waits.
    pub(super) fn has(&self, fingerprint: Fingerprint) -> bool {
        self.alerts.contains_key(&fingerprint)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.alerts.len()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::alert::{Labels, Status};

    fn alert(n: usize) -> Alert {
        let labels: Labels = [("alertname", "A".to_owned()), ("n", n.to_string())].into_iter().collect();
        Alert {
            name: "A".to_owned(),
            fingerprint: Fingerprint::of(&labels),
            labels,
            annotations: Labels::default(),
            status: Status::Firing,
            starts_at: Timestamp::UNIX_EPOCH,
            ends_at: None,
        }
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut parked = Parked::default();
        for n in 0..CAPACITY {
            assert!(parked.keep(alert(n)));
        }
        assert!(parked.keep(alert(5)), "the same alert takes no second place");
        assert!(!parked.keep(alert(CAPACITY)));
        assert_eq!(parked.len(), CAPACITY);
        assert_eq!(parked.all()[0], alert(1));
        parked.forget(alert(1).fingerprint);
        assert_eq!(parked.all()[0], alert(2));
    }
}
