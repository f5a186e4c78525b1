//! In which order groups go.

use std::{cmp::Ordering, collections::BTreeMap};

use super::plan::Chosen;
use crate::policy::OrderBy;

/// The chosen pods by their groups, in that order. Pods of one group keep theirs.
pub(super) fn in_order<'a>(chosen: Vec<Chosen<'a>>, order: &[OrderBy]) -> Vec<Vec<Chosen<'a>>> {
    let mut groups: BTreeMap<&str, Vec<Chosen<'a>>> = BTreeMap::new();
    for pod in chosen {
        groups.entry(&pod.resident.gang.key).or_default().push(pod);
    }
    let mut groups: Vec<Vec<Chosen<'a>>> = groups.into_values().collect();
    groups.sort_by(|a, b| order.iter().map(|by| compare(*by, a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal));
    groups
}

fn compare(by: OrderBy, a: &[Chosen<'_>], b: &[Chosen<'_>]) -> Ordering {
    match by {
        OrderBy::Priority => priority(a).cmp(&priority(b)),
        OrderBy::Batch => is_batch(b).cmp(&is_batch(a)),
    }
}

/// That of its most important pod.
fn priority(group: &[Chosen<'_>]) -> Option<i32> {
    group.iter().map(|c| c.resident.pod.priority).max()
}

fn is_batch(group: &[Chosen<'_>]) -> bool {
    group.first().is_some_and(|c| c.resident.gang.framework.is_batch())
}
