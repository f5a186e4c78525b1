//! `nodes list`: which nodes are not free, since when, by what, and what each waits for.

use std::collections::BTreeMap;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde::Serialize;

use super::{Failure, LiveSources, eviction, evidence, json, short_subject, short_uuid, time};
use crate::{
    cli::table::table,
    cli::{Output, printable},
    engine::{Clock, SystemClock},
    locate::{Gpu, NodeFacts, NodeName},
    policy::Config,
    quarantine::{Claim, ClaimState, Known, Ledger, Muster, NodeState, NodeView, Paused, evidence::Shown},
};

/// List nodes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sources: LiveSources,
    /// Free nodes as well.
    #[arg(long)]
    all: bool,
    /// Only nodes in these states, separated by commas.
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',', value_parser = states())]
    states: Vec<NodeState>,
    /// How the result is printed.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

fn states() -> impl TypedValueParser<Value = NodeState> {
    let known = PossibleValuesParser::new(NodeState::ALL.map(NodeState::as_str));
    // What is none of them does not come here.
    known.map(|word| NodeState::ALL.into_iter().find(|s| s.as_str() == word).unwrap_or(NodeState::Free))
}

#[derive(Serialize)]
struct Nodes<'a> {
    nodes: Vec<&'a NodeView>,
}

pub(super) async fn run(args: &Args) -> Result<String, Failure> {
    let opened = args.sources.open().await?;
    let nodes = opened.nodes().await?;
    let (config, now) = (&opened.config, SystemClock.now());
    let shown = evidence::ask(&nodes.iter().collect::<Vec<_>>(), &nodes, config, &opened.ledger, now).await;
    let listing = Listing::of(&nodes, config, &opened.ledger, &shown, &opened.paused, now);
    match args.output {
        Output::Json => json(&Nodes { nodes: listing.chosen(args.all, &args.states) }),
        Output::Text => Ok(listing.text(args.all, &args.states)),
    }
}

/// These nodes as the guard counts them.
pub(super) fn muster(views: &[NodeView], now: Timestamp) -> Muster {
    let mut muster = Muster::new();
    for view in views {
        muster.see(view, now);
    }
    muster
}

/// The nodes that are ours or bear our record, those that are not free first.
pub(super) struct Listing<'a> {
    config: &'a Config,
    views: Vec<NodeView>,
    in_cluster: usize,
}

impl<'a> Listing<'a> {
    pub(super) fn of(
        nodes: &[NodeFacts],
        config: &'a Config,
        ledger: &Ledger,
        shown: &BTreeMap<NodeName, Shown>,
        paused: &Paused,
        now: Timestamp,
    ) -> Self {
        let views = nodes.iter().map(|node| {
            let known = Known {
                shown: shown.get(&node.name),
                past: ledger.past_of(node),
                paused: paused.why.as_deref(),
                ..Known::default()
            };
            NodeView::knowing(node, config, known, now)
        });
        let mut views: Vec<NodeView> = views.collect();
        if paused.why.is_none() {
            let muster = muster(&views, now);
            for view in &mut views {
                muster.explain(view, config, now);
            }
        }
        views.retain(|v| v.in_scope || !is_quiet(v) || v.has_record());
        views.sort_by_cached_key(|v| (rank(v), v.name.clone()));
        Self { config, views, in_cluster: nodes.len() }
    }

    fn chosen(&self, all: bool, states: &[NodeState]) -> Vec<&NodeView> {
        let wanted = |v: &&NodeView| if states.is_empty() { all || !is_quiet(v) } else { states.contains(&v.state) };
        self.views.iter().filter(wanted).collect()
    }

    pub(super) fn text(&self, all: bool, states: &[NodeState]) -> String {
        let chosen = self.chosen(all, states);
        let mut lines = Vec::new();
        if !chosen.is_empty() {
            lines.extend(table(["NODE", "STATE", "SINCE", "FAULT", "WAITING FOR"], chosen.iter().map(|v| row(v))));
            lines.push(String::new());
        }
        lines.extend(self.summary(chosen.len(), all, states));
        lines.iter().map(|line| printable(line.trim_end()) + "\n").collect()
    }

    fn summary(&self, shown: usize, all: bool, states: &[NodeState]) -> Vec<String> {
        let in_scope = self.views.iter().filter(|v| v.in_scope).count();
        let total = self.in_cluster;
        if in_scope == 0 {
            let scope = &self.config.scope.nodes;
            return vec![
                format!(
                    "No node is in scope: of the {total} in the cluster none matches scope.nodes {scope}, or all are excluded."
                ),
                "Compare with `kubectl get nodes --show-labels`, and check that this is the right cluster.".to_owned(),
            ];
        }
        let mut counts: BTreeMap<NodeState, usize> = BTreeMap::new();
        for view in &self.views {
            *counts.entry(view.state).or_default() += 1;
        }
        let counted: Vec<String> = counts.iter().map(|(state, n)| format!("{n} {state}")).collect();
        let (isolated, room) = (self.views.iter().filter(|v| v.isolated).count(), self.config.guard.limits.fleet.of(in_scope));
        let mut lines = vec![format!(
            "{}: {}. guard.max_isolated lets {room} be isolated, {isolated} are.",
            nodes(self.views.len()),
            counted.join(", ")
        )];
        lines.push(match (shown, states.is_empty(), all) {
            (0, true, _) => "Nothing is isolated and nothing waits. --all lists the free nodes as well.".to_owned(),
            (0, false, _) => "None is in the state that --state asks for.".to_owned(),
            (_, true, false) => {
                "`gpu-quarantine nodes show NODE` tells the whole story of one; --all lists the free ones too.".to_owned()
            }
            _ => "`gpu-quarantine nodes show NODE` tells the whole story of one.".to_owned(),
        });
        lines
    }
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

/// Whether there is nothing to tell of it.
fn is_quiet(view: &NodeView) -> bool {
    view.state == NodeState::Free && view.waiting_for == "nothing"
}

/// What a person should look at first comes first; what is not ours, of another instance for one, comes last.
fn rank(view: &NodeView) -> usize {
    match view.state {
        _ if !view.in_scope => 8,
        NodeState::Suspect => 0,
        NodeState::Isolated => 1,
        NodeState::Pending => 2,
        NodeState::Clearing => 3,
        NodeState::Held => 4,
        NodeState::Ignored => 5,
        NodeState::Free if !is_quiet(view) => 6,
        NodeState::Free => 7,
    }
}

fn row(view: &NodeView) -> [String; 5] {
    let waiting = match &view.waiting_for {
        nothing if is_quiet(view) && view.unschedulable => format!("{nothing} (cordoned by somebody else)"),
        waiting => waiting.clone(),
    };
    // The story of the node has them whole.
    let uuids = view.claims.iter().filter_map(|c| match &c.gpu {
        Some(Gpu::Uuid(uuid)) => Some(uuid.as_str()),
        _ => None,
    });
    let waiting = uuids.fold(waiting, |waiting, uuid| waiting.replace(uuid, short_uuid(uuid)));
    let waiting = eviction::still_to_leave(view).into_iter().fold(waiting, |waiting, pods| format!("{waiting}; {pods}"));
    let since = since(view).map_or_else(|| "-".to_owned(), time);
    [view.name.to_string(), view.state.to_string(), since, fault(view), waiting]
}

/// Since when it has been in our hands.
pub(super) fn since(view: &NodeView) -> Option<Timestamp> {
    let oldest = view.claims.iter().filter(|c| c.state != ClaimState::Released).map(|c| c.since).min();
    view.isolated_at.or(view.turn.as_ref().map(|turn| turn.rank.since)).or(oldest)
}

/// The claim that speaks for the node, and how many more there are.
fn fault(view: &NodeView) -> String {
    let rank = |c: &&Claim| (c.state != ClaimState::Firing, !c.action.isolates(), c.since);
    let Some(first) = view.claims.iter().min_by_key(rank) else { return "-".to_owned() };
    match view.claims.len() {
        1 => short_subject(first),
        n => format!("{} and {} more", short_subject(first), n - 1),
    }
}
