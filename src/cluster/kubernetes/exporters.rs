//! The DaemonSets of the DCGM exporters, and whether they tolerate our taint.
//!
//! `NoSchedule` leaves a running exporter where it is; but one that restarts on an isolated node does not come back unless its
//! DaemonSet tolerates the taint, and its silence then looks like recovery.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1 as core};
use kube::{Api, api::ListParams};

use super::{CallError, KubeCluster, LIST_TIMEOUT};
use crate::{
    locate::{Taint, Toleration, tolerates},
    policy::Selector,
};

/// DaemonSets change seldom, and many nodes may be isolated in a row.
const KEPT_FOR: SignedDuration = SignedDuration::from_mins(10);
const PAGE: u32 = 100;
/// No cluster has as many DaemonSets; what is beyond is not looked at.
const MAX_PAGES: usize = 50;

/// A DaemonSet whose pods are exporters.
#[derive(Debug, Clone)]
struct Exporter {
    /// `namespace/name`.
    name: String,
    tolerations: Vec<Toleration>,
}

/// What was read last, for which selectors.
#[derive(Debug, Default)]
pub(super) struct Exporters {
    read: Option<(Timestamp, Vec<Selector>, Vec<Exporter>)>,
    complained: bool,
}

impl Exporters {
    /// The exporters' DaemonSets that do not tolerate `taint`; none if they cannot be read, which is logged once.
    pub(super) async fn not_tolerating(
        &mut self,
        cluster: &KubeCluster,
        selectors: &[Selector],
        taint: &Taint,
        now: Timestamp,
    ) -> Vec<String> {
        let fresh = |(at, of, _): &(Timestamp, Vec<Selector>, Vec<Exporter>)| {
            of == selectors && *at <= now && now.duration_since(*at) < KEPT_FOR
        };
        if !self.read.as_ref().is_some_and(fresh) {
            // What cannot be read is not asked for again at once either.
            let found = match cluster.exporters(selectors).await {
                Ok(found) => {
                    self.complained = false;
                    found
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.complained, true) {
                        tracing::warn!(
                            %error,
                            "The DaemonSets could not be listed, so nobody is told if the DCGM exporter does not tolerate the \
                             taint. Allow `list` on daemonsets.apps."
                        );
                    }
                    Vec::new()
                }
            };
            self.read = Some((now, selectors.to_vec(), found));
        }
        let known = self.read.iter().flat_map(|(_, _, found)| found);
        known.filter(|e| !tolerates(&e.tolerations, taint)).map(|e| e.name.clone()).collect()
    }
}

impl KubeCluster {
    /// The DaemonSets whose pods any of the selectors matches. The API server selects by a DaemonSet's own labels, which need
    /// not be those of its pods, hence all are read.
    async fn exporters(&self, selectors: &[Selector]) -> Result<Vec<Exporter>, CallError> {
        let api: Api<DaemonSet> = Api::all(self.client.clone());
        let mut params = ListParams::default().limit(PAGE);
        let mut found = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.call("list", LIST_TIMEOUT, api.list(&params)).await?;
            found.extend(page.items.into_iter().filter_map(|set| exporter(set, selectors)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        Ok(found)
    }
}

fn exporter(set: DaemonSet, selectors: &[Selector]) -> Option<Exporter> {
    let template = set.spec?.template;
    let labels = template.metadata.and_then(|m| m.labels).unwrap_or_default();
    if !selectors.iter().any(|s| s.matches(&labels)) {
        return None;
    }
    let name = format!("{}/{}", set.metadata.namespace.unwrap_or_default(), set.metadata.name.unwrap_or_default());
    let tolerations = template.spec.and_then(|s| s.tolerations).unwrap_or_default();
    Some(Exporter { name, tolerations: tolerations.into_iter().map(toleration).collect() })
}

fn toleration(t: core::Toleration) -> Toleration {
    Toleration {
        key: t.key.unwrap_or_default(),
        operator: t.operator.unwrap_or_default(),
        value: t.value.unwrap_or_default(),
        effect: t.effect.unwrap_or_default(),
    }
}
