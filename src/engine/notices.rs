//! What people are told. The engine only hands it over: whether, where and how often it is shown is decided there, and nothing
//! here waits for it or fails by it.

use std::sync::{Arc, PoisonError};

use jiff::Timestamp;

use super::Engine;
use crate::{
    alert::{Alert, Status},
    cluster::ClusterError,
    engine::AlertResult,
    locate::{NodeFacts, NodeName},
    notice::{self, Change, Notice, Reason},
    policy::Config,
    quarantine::{NodeView, Outcome},
};

/// Where people are told of what happened, with the configuration that it happened under. It must return at once.
pub type NoticeSink = Box<dyn Fn(Notice, &Arc<Config>) + Send + Sync>;

impl Engine {
    /// Tell people as well.
    #[must_use]
    pub fn with_notices(mut self, sink: NoticeSink) -> Self {
        self.notices = Some(sink);
        self
    }

    pub(super) fn tell(&self, notice: Notice, config: &Arc<Config>) {
        if let Some(sink) = &self.notices {
            sink(notice, config);
        }
    }

    pub(super) fn tell_change(&self, change: &Change<'_>, config: &Arc<Config>) {
        if self.notices.is_none() {
            return;
        }
        // A record that could not be used was replaced by this very change.
        if let Some(notice) = notice::unusable_record(change.before, config, change.at) {
            self.tell(notice, config);
        }
        self.tell(notice::of_change(change, config), config);
    }

    pub(super) fn tell_unmapped(&self, alerts: &[&Alert], results: &[AlertResult]) {
        if self.notices.is_none() {
            return;
        }
        let (config, now) = (self.config(), self.clock.now());
        let unmapped =
            |(alert, result): &(&&Alert, &AlertResult)| result.outcome == Outcome::Unmapped && alert.status == Status::Firing;
        for (alert, result) in alerts.iter().zip(results).filter(unmapped) {
            self.tell(notice::unmapped(alert, result.policy.as_deref(), &result.reason, now), &config);
        }
    }

    pub(super) fn tell_write_failed(&self, name: &NodeName, error: &ClusterError) {
        if self.notices.is_none() {
            return;
        }
        let uid = {
            let inventory = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            inventory.get(name).map(|node| node.uid.clone())
        };
        let notice = notice::write_failed(name, uid, &error.to_string(), error.is_passing(), self.clock.now());
        self.tell(notice, &self.config());
    }
}

/// The notice of a state that lasts.
pub(super) fn lasting(reason: Reason, node: &NodeFacts, view: &NodeView, config: &Config, now: Timestamp) -> Option<Notice> {
    match reason {
        Reason::RecordUnreadable => notice::unusable_record(node, config, now),
        Reason::ReleaseHeld => notice::waits_for_person(view, now),
        Reason::ReleaseUnproven => notice::unproven(view, now),
        Reason::Silenced => notice::silenced(view, now),
        _ => None,
    }
}
