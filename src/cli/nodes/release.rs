//! `nodes release`: say what will be removed, ask, and give the node back.

use std::io::{self, IsTerminal, Write, stderr, stdin};

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::{Failure, LiveSources, Person, Target, change, json, reason, taint_text, time};
use crate::{
    cli::{Output, printable},
    engine::{Clock, SystemClock},
    locate::NodeName,
    quarantine::{Claim, ClaimState, Hand, Judgement, NodeView, Offer, Releases, release_by_hand},
};

/// Release a node.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sources: LiveSources,
    #[command(flatten)]
    target: Target,
    /// What you found; it is counted per alert, so that rules which cry wolf can be told.
    #[arg(long, value_name = "VERDICT", value_parser = judgements())]
    verdict: Option<Judgement>,
    /// Why, in a few words; it is kept in the node's history.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    person: Person,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// How the result is printed; `json` is the node afterwards.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

fn judgements() -> impl TypedValueParser<Value = Judgement> {
    let known = PossibleValuesParser::new(Judgement::ALL.map(Judgement::as_str));
    // What is none of them does not come here.
    known.map(|word| Judgement::parse(&word).unwrap_or(Judgement::Repaired))
}

pub(super) async fn run(args: &Args) -> Result<String, Failure> {
    let name = args.target.name()?;
    let reason = args.reason.as_deref().map(reason).transpose()?;
    let hand = Hand { who: args.person.name()?, judgement: args.verdict, reason };
    let (config, nodes) = args.sources.open_to_write().await?;
    let mut agreed: Option<Offer> = None;
    let changed = change(&nodes, &name, |node| {
        let release = release_by_hand(node, &config, &hand, SystemClock.now());
        let release = release.map_err(|e| Failure::finding(format!("node {name} is not released: {e}")))?;
        let Some(release) = release else { return Ok(None) };
        // Whoever agreed to something else is asked again.
        if agreed.as_ref() != Some(&release.offer) {
            if agreed.is_some() {
                say("The node changed meanwhile.");
            }
            for line in announced(&name, &release.offer) {
                say(&line);
            }
            if !args.yes {
                ask(&name)?;
            }
            agreed = Some(release.offer.clone());
        }
        Ok(Some((release.patch, release.offer)))
    })
    .await?;
    if args.output == Output::Json {
        return json(&NodeView::of(&changed.node, &config, SystemClock.now()));
    }
    let Some(offer) = changed.done else {
        let view = NodeView::of(&changed.node, &config, SystemClock.now());
        let text =
            format!("There is nothing of ours to take back: node {name} is {}, waiting for {}.", view.state, view.waiting_for);
        return Ok(printable(&text) + "\n");
    };
    Ok(told(&name, &offer, &hand).iter().map(|line| printable(line) + "\n").collect())
}

/// To the person, beside the result.
fn say(line: &str) {
    eprintln!("{}", printable(line));
}

/// Ask whether to go on; anything but yes ends it.
fn ask(name: &NodeName) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::input("nothing was released: there is no terminal to ask on; give --yes if this is what you want"));
    }
    let unasked = |e: io::Error| Failure::input(format!("nothing was released: cannot ask: {e}"));
    eprint!("Release {name}? [y/N] ");
    stderr().flush().map_err(unasked)?;
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(unasked)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::finding("nothing was released")),
    }
}

/// Exactly what will be done.
pub(super) fn announced(name: &NodeName, offer: &Offer) -> Vec<String> {
    let mut lines = vec![match offer.releases {
        Releases::Isolated => format!("Releasing node {name} does this:"),
        Releases::Pending => format!("Node {name} is not isolated; it waits for the guard. Releasing it does this:"),
        Releases::Orphan => {
            format!("Node {name} bears our taint, and no record says who put it there or why. Releasing it does this:")
        }
    }];
    lines.extend(offer.taint.as_ref().map(|taint| format!("  - removes the taint {}", taint_text(taint))));
    if offer.uncordons {
        lines.push("  - lifts the cordon that we laid".to_owned());
    }
    lines.extend(offer.hold.as_ref().map(|hold| format!("  - takes back the hold: {hold}")));
    let firing = offer.claims.iter().filter(|c| c.fires()).count();
    if !offer.claims.is_empty() {
        let of = match (firing, offer.claims.len()) {
            (0, 1) => "which is over".to_owned(),
            (1, 1) => "which STILL FIRES".to_owned(),
            (0, _) => "none of which fires".to_owned(),
            (1, _) => "1 of which STILL FIRES".to_owned(),
            (n, _) => format!("{n} of which STILL FIRE"),
        };
        let claims = if offer.claims.len() == 1 { "claim" } else { "claims" };
        lines.push(format!("  - gives up {} {claims}, {of}:", offer.claims.len()));
        lines.extend(offer.claims.iter().map(claim));
    }
    if let Some(taint) = &offer.stays {
        lines.push(format!("The taint {} was not added by us and stays: pods stay away.", taint_text(taint)));
    }
    lines.extend(
        offer.freezes.iter().map(|c| format!("{} goes on firing and stays on record; it isolates nothing.", c.subject())),
    );
    lines
}

fn claim(claim: &Claim) -> String {
    let state = match (claim.fires(), claim.state, claim.cleared) {
        (true, ..) if claim.is_muted() => {
            format!("FIRES since {}, {}", time(claim.since), claim.muted.as_deref().unwrap_or("muted"))
        }
        (true, ..) => format!("FIRES since {}", time(claim.since)),
        (false, ClaimState::Firing, _) | (false, _, None) => "over".to_owned(),
        (false, _, Some(at)) => format!("over since {}", time(at)),
    };
    format!("      {} (policy {}): {state}", claim.subject(), claim.policy)
}

fn told(name: &NodeName, offer: &Offer, hand: &Hand<'_>) -> Vec<String> {
    let who = hand.who;
    let mut lines = vec![match offer.releases {
        Releases::Isolated => format!("Node {name} was released by {who}."),
        Releases::Pending => format!("The claims on node {name} were given up by {who}; it no longer waits for the guard."),
        Releases::Orphan => format!("The taint was removed from node {name}."),
    }];
    if offer.claims.iter().any(Claim::fires) {
        lines.push(
            "What fires on is left alone until it was seen to end and its hold-down passed. Another alert, or one of another GPU, \
             isolates the node again."
                .to_owned(),
        );
    }
    if hand.judgement.is_some() && offer.claims.is_empty() {
        lines.push("The verdict was not kept: there was no claim that it could be about.".to_owned());
    }
    lines
}
