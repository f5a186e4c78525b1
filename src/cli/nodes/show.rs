//! `nodes show`: the whole story of one node, for somebody who never saw the tool.

use jiff::Timestamp;

use super::{Failure, LiveSources, Target, advice, eviction, evidence, json, list::since, taint_text, time};
use crate::{
    cli::{Output, printable},
    engine::{Clock, SystemClock},
    locate::{NodeFacts, Taint},
    policy::Config,
    quarantine::{
        Claim, ClaimState, Episode, Known, MachineEvent, NodeState, NodeView, Record, Stored,
        evidence::{Shown, question},
        read,
    },
};

/// Show one node.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sources: LiveSources,
    #[command(flatten)]
    target: Target,
    /// How the result is printed.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
    /// Print the evidence that was kept before pods were asked to leave it, of the present episode or else of the last: always JSON.
    #[arg(long)]
    evidence: bool,
}

pub(super) async fn run(args: &Args) -> Result<String, Failure> {
    let name = args.target.name()?;
    let opened = args.sources.open().await?;
    let node = opened.place.get(&name).await?;
    let (config, now, past) = (&opened.config, SystemClock.now(), opened.ledger.past_of(&node));
    if args.evidence {
        return eviction::document(&args.sources, &opened, &NodeView::of(&node, config, now)).await;
    }
    let shown = match question(&node, config, past, now) {
        // The others tell by which names monitoring may know this one.
        Some(_) => evidence::ask(&[&node], &opened.place.list().await?.0, config, &opened.ledger, now).await.remove(&name),
        None => None,
    };
    let known = Known { shown: shown.as_ref(), past, ..Known::default() };
    match args.output {
        Output::Json => json(&NodeView::knowing(&node, config, known, now)),
        Output::Text => Ok(story(&node, config, known, now, &args.sources.flags())),
    }
}

/// The story. `flags` are those by which another command reaches this cluster.
pub(super) fn story(node: &NodeFacts, config: &Config, known: Known<'_>, now: Timestamp, flags: &str) -> String {
    let view = NodeView::knowing(node, config, known, now);
    let text = node.annotations.get(&config.annotation("record")).map(String::as_str);
    let record = match read(text, node, &config.instance) {
        Stored::Ours(record) => Some(*record),
        _ => None,
    };
    let mut lines = vec![format!("Node {} is {}: {}.", view.name, view.state, meaning(&view)), String::new()];
    if let Some(at) = since(&view) {
        lines.push(field("since", &time(at)));
    }
    lines.push(field("waiting for", &view.waiting_for));
    lines.extend(view.flapping.as_ref().map(|often| field("flapping", &format!("its fault comes back: {often}"))));
    for word in ["hold", "ignore"] {
        let name = config.annotation(word);
        lines.extend(node.annotations.get(&name).map(|said| field(word, &format!("{said} (annotation {name})"))));
    }
    if !view.in_scope {
        lines.push(field("scope", "not ours: no alert isolates it"));
    }
    lines.extend([String::new(), "What keeps pods away from it".to_owned()]);
    lines.extend(standing(node, record.as_ref()));
    if !view.claims.is_empty() {
        lines.extend([String::new(), format!("Claims: the alerts that we know of on it ({})", view.claims.len())]);
        view.claims.iter().for_each(|claim| lines.extend(about(claim, known.shown)));
    }
    if record.as_ref().is_some_and(|r| r.overflow) {
        lines.push("  More alerts came than the record holds; nobody knows whether those are over.".to_owned());
    }
    let isolates = record.as_ref().and_then(|r| {
        r.added.as_ref().and_then(|added| added.taint.as_ref()).or_else(|| r.before.as_ref().and_then(|b| b.taint.as_ref()))
    });
    lines.extend(eviction::section(&view, isolates, config, now, flags));
    if !view.history.is_empty() {
        lines.extend([String::new(), format!("History: past faults, the latest first ({})", view.history.len())]);
        lines.extend(view.history.iter().rev().map(past));
    }
    lines.extend([String::new(), "What you can do".to_owned()]);
    for advice::Advice { what, command } in advice::advice(node, &view, record.as_ref(), config, flags) {
        lines.push(format!("  - {what}"));
        lines.extend(command.map(|command| format!("      {command}")));
    }
    lines.iter().map(|line| printable(line.trim_end()) + "\n").collect()
}

fn field(name: &str, value: &str) -> String {
    format!("  {name:12}  {value}")
}

/// The state, for somebody who does not know the word.
fn meaning(view: &NodeView) -> &'static str {
    match view.state {
        NodeState::Free if view.waiting_for.starts_with("a person") => {
            "nothing on record keeps pods away from it, and yet a taint with our key stands on it"
        }
        NodeState::Free if view.claims.is_empty() => "we keep nothing away from it",
        NodeState::Free => "we keep nothing away from it, though we know of an alert on it",
        NodeState::Pending => "a GPU fault fires on it, and the guard does not let another node be isolated now",
        NodeState::Isolated if view.evicts.is_some() => {
            "a GPU fault fires on it, so nothing new is scheduled there, and pods that opted in are asked to leave"
        }
        NodeState::Isolated => "a GPU fault fires on it, so nothing new is scheduled there; what runs there goes on",
        NodeState::Clearing => "its faults are over, and it stays isolated until what it waits for has come",
        NodeState::Suspect if view.unusable.is_some() => "nobody can tell how it is, so we change nothing",
        NodeState::Suspect => "its alerts ended, but nobody can tell whether the fault is gone, so it stays isolated",
        NodeState::Held => "it is isolated, and a person said that it stays so",
        NodeState::Ignored if view.isolated => "a person said that we do nothing to it; it was isolated then and stays so",
        NodeState::Ignored => "a person said that we do nothing to it, whatever fires",
    }
}

/// Taints and cordon: what is ours, what stood there before us, what belongs to others.
fn standing(node: &NodeFacts, record: Option<&Record>) -> Vec<String> {
    let added = record.and_then(|r| r.added.as_ref());
    let before = record.and_then(|r| r.before.as_ref());
    let ours = added.and_then(|a| a.taint.as_ref());
    let is_ours = |t: &Taint| ours.is_some_and(|o| (&o.key, &o.effect, &o.value) == (&t.key, &t.effect, &t.value));
    let mut lines = Vec::new();
    if let Some(added) = added {
        match ours {
            Some(t) if node.taints.iter().any(is_ours) => {
                lines.push(field("our taint", &format!("{}, since {}", taint_text(t), time(added.at))));
            }
            Some(t) => lines.push(field("our taint", &format!("{}, WHICH SOMEBODY TOOK AWAY", taint_text(t)))),
            None => lines.push(field("our taint", "none: one that isolates as well stood there before us")),
        }
        if added.restored {
            lines.push(field("", "it was taken away once and put back; taken away again it counts as a release"));
        }
    }
    let cordon = match (node.unschedulable, added.is_some_and(|a| a.cordon), before.is_some_and(|b| b.unschedulable)) {
        (true, true, _) => "yes, ours",
        (true, false, true) => "yes, by somebody else before we isolated it; it stays when we release the node",
        (true, false, false) if added.is_some() => {
            "yes, by somebody else after we isolated it; it stays when we release the node"
        }
        (true, false, false) => "yes, by somebody else",
        (false, true, _) => "no: somebody lifted the one that we laid",
        (false, false, _) => "no",
    };
    lines.push(field("cordoned", cordon));
    let others = node.taints.iter().filter(|t| !is_ours(t));
    lines.extend(others.map(|taint| field("other taint", &taint_text(taint))));
    lines
}

fn about(claim: &Claim, shown: Option<&Shown>) -> Vec<String> {
    let state = match (claim.fires(), claim.state, claim.cleared) {
        (true, ClaimState::Released, _) => "fires on, and is left alone since a person released the node".to_owned(),
        (true, ..) => "FIRES".to_owned(),
        (false, ClaimState::Released, _) => {
            "over, after a person released the node; it counts again once its hold-down passed".to_owned()
        }
        (false, _, Some(at)) => format!("over since {}", time(at)),
        (false, _, None) => "over".to_owned(),
    };
    let mut lines = vec![format!("  {}: {state}", claim.subject())];
    let mut field = |name: &str, value: String| lines.push(format!("    {name:10}  {value}"));
    let also = if claim.also.is_empty() { String::new() } else { format!(", and {}", claim.also.join(", ")) };
    field("policy", format!("{} ({}){also}", claim.policy, claim.action));
    field("first", time(claim.since));
    let firing = claim.members.iter().filter(|m| m.fires()).count();
    field("alerts", format!("{firing} of {} fire", claim.members.len()));
    if claim.is_muted() {
        field("muted", claim.muted.clone().unwrap_or_else(|| "silenced, inhibited or muted in Alertmanager".to_owned()));
    }
    if claim.unconfirmed {
        field("note", "Alertmanager was told that we had failed to take it, so it may never tell its end".to_owned());
    }
    if !claim.recovery.is_empty() {
        let asked: Vec<&str> = claim.recovery.iter().map(|r| r.as_str()).collect();
        field("recovery", format!("asks for {} before the node comes back", asked.join(" and ")));
    }
    if let Some(machine) = &claim.machine {
        let event = match machine.event {
            MachineEvent::Rebooted => "it was rebooted",
            MachineEvent::Exchanged => "it is another machine",
        };
        field("machine", format!("{event} since the fault, noticed at {}", time(machine.at)));
    }
    shown.map(|shown| evidence::about(claim, shown)).into_iter().flatten().for_each(|(name, text)| field(name, text));
    if let Some(why) = &claim.unproven {
        field("no proof", why.clone());
    }
    if let Some(summary) = &claim.summary {
        field("summary", summary.clone());
    }
    if let Some(runbook) = &claim.runbook {
        field("runbook", runbook.clone());
    }
    lines
}

fn past(episode: &Episode) -> String {
    let gpu = episode.gpu.as_ref().map(|gpu| format!(" on {gpu}")).unwrap_or_default();
    let by = match (episode.by.as_str(), &episode.who) {
        ("hand", Some(who)) => format!("released by {who}"),
        ("hand", None) => "released by hand".to_owned(),
        ("resolved", _) => "released when it was over".to_owned(),
        ("evidence", _) => "released when it was seen to be gone".to_owned(),
        (by, _) => format!("released by {by}"),
    };
    let verdict = episode.verdict.as_ref().map(|verdict| format!(", {verdict}")).unwrap_or_default();
    let reason = episode.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let evidence = episode.evidence.as_ref().map(|name| format!(" (evidence: ConfigMap {name})")).unwrap_or_default();
    format!("  {} to {}  {}{gpu}, {by}{verdict}{reason}{evidence}", time(episode.from), time(episode.to), episode.alert)
}
