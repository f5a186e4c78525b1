//! What of ours stands on a node, and the patch that takes all of it back: for the day on which the service is removed.

use serde_json::{Map, Value, json};

use super::{
    decide::{EFFECT, RECORD},
    record::{Stored, read},
    release::is_our_key,
    scope::{Standing, standing, word},
};
use crate::{
    locate::{NodeFacts, Taint},
    policy::Config,
};

/// What a person wants taken back besides what is ours for certain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Taints with a key of ours that no record speaks of.
    pub orphans: bool,
    /// The words that people left: `hold` and `ignore`.
    pub words: bool,
}

/// What of ours stands on one node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Belongings {
    /// The taint that we added.
    pub taint: Option<Taint>,
    /// Whether the cordon is ours.
    pub cordon: bool,
    /// The names of annotations.
    pub annotations: Vec<String>,
    /// The names of labels.
    pub labels: Vec<String>,
    /// Taints with a key of ours that no record speaks of.
    pub orphans: Vec<Taint>,
    /// The people's words, each as `hold: reason`.
    pub words: Vec<String>,
    /// What cannot be taken back, and why.
    pub stays: Option<String>,
    /// The merge patch that takes it back; `None` if nothing is to be taken.
    pub patch: Option<Value>,
}

impl Belongings {
    /// Look at a node.
    #[must_use]
    pub fn on(node: &NodeFacts, config: &Config, leaving: Leaving) -> Self {
        let mut found = Self::default();
        let text = node.annotations.get(&config.annotation(RECORD)).map(String::as_str);
        if text.is_some_and(|text| is_anothers(text, config)) {
            return found;
        }
        let stored = read(text, node, &config.instance);
        // Another instance may share the domain, and have its nodes elsewhere.
        if let (Standing::OutOfScope(_), Stored::None) = (standing(node, config), &stored) {
            return found;
        }
        let mut foreign = None;
        match &stored {
            Stored::Untouchable(why) => found.stays = Some(why.clone()),
            Stored::Ours(record) => {
                foreign = record.before.as_ref().and_then(|b| b.taint.clone());
                let added = record.added.as_ref();
                found.cordon = added.is_some_and(|a| a.cordon) && node.unschedulable;
                let ours = added.and_then(|a| a.taint.as_ref());
                found.taint = ours.and_then(|ours| node.taints.iter().find(|t| is_same(t, ours))).cloned();
                if let Some(taint) = found.taint.as_ref().filter(|t| !is_our_key(&t.key, config)) {
                    let key = &taint.key;
                    found.stays =
                        Some(format!("its taint {key} is not ours by this configuration: add that to isolation.former_keys"));
                }
            }
            Stored::None | Stored::Unreadable(_) => {}
        }
        let orphan = |t: &&Taint| {
            t.effect == EFFECT && is_our_key(&t.key, config) && Some(*t) != found.taint.as_ref() && Some(*t) != foreign.as_ref()
        };
        if found.stays.is_none() {
            found.orphans = node.taints.iter().filter(orphan).cloned().collect();
        }
        if let Standing::Untouchable(why) = standing(node, config)
            && (!matches!(stored, Stored::None) || !found.orphans.is_empty())
        {
            found.stays = Some(why);
        }
        let present = |name: &str| Some(config.annotation(name)).filter(|name| node.annotations.contains_key(name));
        found.annotations = [RECORD, "record-corrupt"].into_iter().filter_map(present).collect();
        found.labels = Some(config.annotation("health")).filter(|name| node.labels.contains_key(name)).into_iter().collect();
        found.words = ["hold", "ignore"].into_iter().filter_map(|w| Some(format!("{w}: {}", word(node, config, w)?))).collect();
        if found.stays.is_none() {
            found.patch = found.take_back(node, config, leaving);
        }
        found
    }

    /// Whether there is anything of ours.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let certain = self.taint.is_none() && !self.cordon && self.annotations.is_empty() && self.labels.is_empty();
        certain && self.orphans.is_empty() && self.words.is_empty() && self.stays.is_none()
    }

    fn take_back(&self, node: &NodeFacts, config: &Config, leaving: Leaving) -> Option<Value> {
        let mut annotations: Map<String, Value> = self.annotations.iter().map(|name| (name.clone(), Value::Null)).collect();
        if leaving.words {
            let present =
                ["hold", "ignore"].map(|w| config.annotation(w)).into_iter().filter(|w| node.annotations.contains_key(w));
            annotations.extend(present.map(|name| (name, Value::Null)));
        }
        let labels: Map<String, Value> = self.labels.iter().map(|name| (name.clone(), Value::Null)).collect();
        let goes = |t: &Taint| self.taint.as_ref() == Some(t) || (leaving.orphans && self.orphans.contains(t));
        let mut patch = json!({ "metadata": { "resourceVersion": node.resource_version } });
        let mut anything = !annotations.is_empty() || !labels.is_empty() || self.cordon;
        if node.taints.iter().any(goes) {
            let rest: Vec<&Taint> = node.taints.iter().filter(|t| !goes(t)).collect();
            patch["spec"]["taints"] = json!(rest);
            anything = true;
        }
        if self.cordon {
            patch["spec"]["unschedulable"] = Value::Null;
        }
        for (field, names) in [("annotations", annotations), ("labels", labels)] {
            if !names.is_empty() {
                patch["metadata"][field] = names.into();
            }
        }
        anything.then_some(patch)
    }
}

/// Whether another instance wrote this record, in whatever version: then nothing on its node is ours.
fn is_anothers(record: &str, config: &Config) -> bool {
    let value: Option<Value> = serde_json::from_str(record).ok();
    value.as_ref().and_then(|v| v.get("owner")).and_then(Value::as_str).is_some_and(|owner| owner != config.instance)
}

/// The taint of the record; one whose value is another was written by somebody else.
fn is_same(a: &Taint, b: &Taint) -> bool {
    (&a.key, &a.effect, &a.value) == (&b.key, &b.effect, &b.value)
}
