//! The health of machines as labels of their nodes, for schedulers that would rather use a stable node.

use std::{collections::HashMap, sync::PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{Engine, lock};
use crate::{
    locate::NodeName,
    quarantine::{Standing, health, standing},
};

/// A node's label is written at most once in so long.
const REST: SignedDuration = SignedDuration::from_hours(1);
/// Labels written in one round: a fleet that gets its first ones must not keep the API server from anything else.
const PER_ROUND: usize = 50;

/// When each node's label was last written, as long as that matters.
#[derive(Debug, Default)]
pub(super) struct Labelled(HashMap<NodeName, Timestamp>);

impl Engine {
    /// Write the labels that are out of date, or take them away if none are wanted. One that cannot be written now is written in a
    /// later round.
    pub async fn label_health(&self) {
        let (config, now) = (self.config(), self.clock.now());
        if self.shadow.is_some() || !self.ready() || self.paused().why.is_some() {
            return;
        }
        let label = config.annotation("health");
        let wanted: Vec<(NodeName, String, Option<String>)> = {
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            let mut labelled = lock(&self.labelled);
            labelled.0.retain(|_, at| now.duration_since(*at) < REST);
            let ignored = config.annotation("ignore");
            let ours =
                nodes.iter().filter(|n| standing(n, &config) == Standing::InScope && !n.annotations.contains_key(&ignored));
            let differs = ours.filter_map(|node| {
                let is = config.health_label.then(|| health(&self.past_of(node), now).to_string());
                let stale = node.labels.get(&label) != is.as_ref() && !labelled.0.contains_key(&node.name);
                stale.then(|| (node.name.clone(), node.resource_version.clone(), is))
            });
            differs.take(PER_ROUND).collect()
        };
        for (name, version, health) in wanted {
            let labels = Map::from_iter([(label.clone(), health.map_or(Value::Null, Value::from))]);
            let patch = json!({ "metadata": { "resourceVersion": version, "labels": labels } });
            match self.cluster.patch(&name, &patch).await {
                Ok(_) => drop(lock(&self.labelled).0.insert(name, now)),
                Err(error) => tracing::debug!(%error, "A health label was not written; a later round tries again."),
            }
        }
    }
}
