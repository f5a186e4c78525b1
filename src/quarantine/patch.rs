//! The one merge patch that a decision writes.

use serde_json::{Map, Value, json};

use super::{
    decide::{Next, RECORD},
    record::Record,
};
use crate::{locate::NodeFacts, policy::Config};

impl Next {
    /// The merge patch from the node as it is to the node as it shall be. Errors if the record cannot be made to fit.
    pub(super) fn patch(
        &self,
        node: &NodeFacts,
        old: Option<&Record>,
        unreadable: Option<String>,
        config: &Config,
    ) -> Result<Option<Value>, &'static str> {
        let mut annotations = Map::new();
        let name = config.annotation(RECORD);
        if self.record.is_blank() {
            if old.is_some() {
                annotations.insert(name.clone(), Value::Null);
            }
        } else {
            let Some((record, text)) = self.record.clone().fit() else {
                return Err("the record would be longer than 16 KiB: remove what other programs added to it");
            };
            if old != Some(&record) {
                annotations.insert(name.clone(), text.into());
            }
        }
        let mut spec = Map::new();
        if self.taints != node.taints {
            spec.insert("taints".to_owned(), json!(self.taints));
        }
        if self.unschedulable != node.unschedulable {
            let cordon = if self.unschedulable { Value::Bool(true) } else { Value::Null };
            spec.insert("unschedulable".to_owned(), cordon);
        }
        if annotations.is_empty() && spec.is_empty() {
            return Ok(None);
        }
        if let Some(text) = unreadable {
            annotations.insert(config.annotation("record-corrupt"), text.into());
        }
        let mut patch = json!({ "metadata": { "resourceVersion": node.resource_version } });
        if !annotations.is_empty() {
            patch["metadata"]["annotations"] = annotations.into();
        }
        if !spec.is_empty() {
            patch["spec"] = spec.into();
        }
        Ok(Some(patch))
    }
}
