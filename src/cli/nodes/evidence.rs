//! What Prometheus shows about nodes that wait for evidence, asked from here: the service may be down.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::time;
use crate::{
    cli::proving::Asker,
    locate::{Inventory, NodeFacts, NodeName, names_in_monitoring},
    metrics::Metrics,
    policy::Config,
    quarantine::{
        Claim, Ledger,
        evidence::{Finding, Shown, question},
    },
    sources::Evidence,
};

/// What is shown of each node that waits for evidence. Why nothing is shown stands there as well.
pub(super) async fn ask(
    nodes: &[&NodeFacts],
    all: &[NodeFacts],
    config: &Config,
    ledger: &Ledger,
    now: Timestamp,
) -> BTreeMap<NodeName, Shown> {
    let Some(settings) = config.prometheus.clone() else { return BTreeMap::new() };
    let mut inventory = Inventory::default();
    for node in all {
        inventory.insert(node.clone());
    }
    let questions: Vec<_> = nodes
        .iter()
        .filter_map(|node| Some((question(node, config, ledger.past_of(node), now)?, names_in_monitoring(node, &inventory))))
        .collect();
    if questions.is_empty() {
        return BTreeMap::new();
    }
    let evidence = Evidence::new(settings, config.locate.clone(), Arc::new(Metrics::new()));
    let asker = Asker::of(&evidence).await;
    let mut shown = BTreeMap::new();
    for (question, names) in questions {
        let of_node = asker.prove(&question, &names).await;
        shown.insert(question.node, of_node);
    }
    shown
}

/// What is shown about one claim, in lines of a name and a text.
pub(super) fn about(claim: &Claim, shown: &Shown) -> Vec<(&'static str, String)> {
    let Some(shown_of) = shown.claims.iter().find(|s| s.alert == claim.alert && s.gpu == claim.gpu) else { return Vec::new() };
    let lasted = humantime::format_duration(shown_of.lasted);
    let now = match &shown_of.now {
        Finding::Gone if shown_of.replaced => format!("another GPU is in its place, seen for {lasted}"),
        Finding::Gone => format!("the fault was seen to be gone for {lasted}"),
        Finding::Fault(why) => format!("the fault is still seen: {why}"),
        Finding::Nothing(why) => format!("nobody can tell: {why} (seen to be gone for {lasted} before)"),
    };
    let mut lines = vec![("evidence", format!("{now}, as of {}", time(shown.at)))];
    lines.extend(claim.queries.iter().map(|query| ("query", query.as_str().to_owned())));
    lines
}
