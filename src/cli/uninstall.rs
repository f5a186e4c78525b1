//! `uninstall`: pause the service, and give back everything that it put on nodes. Directly against the API server, so that it works
//! when the service is down.

use std::io::{Write, stderr, stdin};

use super::{
    Failure, Place, load_config,
    nodes::{change_if_there, taint_text},
    pause, printable, runtime,
};
use crate::{
    cluster::{
        LedgerError,
        kubernetes::{self, DirectLedger, DirectNodes},
    },
    engine::{Clock, SystemClock},
    locate::{NodeFacts, NodeName},
    policy::Config,
    quarantine::{Belongings, Leaving, Pause, Unknown},
};

/// How often the ledger is read again when others write it as well.
const TRIES: u32 = 16;

/// Give back everything that the service put on nodes, and begin nothing new from now on.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Who you are; it is written into the pause.
    #[arg(long = "as", value_name = "NAME", env = "USER", hide_env_values = true, default_value = "somebody")]
    who: String,
    /// Why; it is written into the pause.
    #[arg(long, value_name = "TEXT", default_value = "uninstall")]
    reason: String,
    /// Remove taints as well that have a key of ours and that no record speaks of.
    #[arg(long)]
    orphans: bool,
    /// Remove the words of people as well: the annotations hold and ignore.
    #[arg(long)]
    words: bool,
    /// Delete the ledger at the end, and the pause with it. Only once the service is stopped.
    #[arg(long)]
    ledger: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let config = load_config(&args.place.config)?;
    runtime()?.block_on(uninstall(args, &config))
}

async fn uninstall(args: &Args, config: &Config) -> Result<(), Failure> {
    let failed = |e: kubernetes::ConnectError| Failure::unreachable(e.to_string());
    let client = kubernetes::config(args.place.kubeconfig.as_deref(), args.place.context.as_deref()).await.map_err(failed)?;
    let nodes = DirectNodes::new(client.clone(), &config.domain).map_err(failed)?;
    let ledger = DirectLedger::new(client, config.ledger.clone()).map_err(failed)?;
    let leaving = Leaving { orphans: args.orphans, words: args.words };
    let mut left = Vec::new();
    let (by, at, reason) = (args.who.clone(), SystemClock.now(), args.reason.clone());
    let word = Pause { by, at, reason, releases: false, other: Unknown::new() };
    match pause::store(&ledger, config, Some(word)).await {
        Ok(()) => say(&format!(
            "Paused in ConfigMap {}: a service that runs begins nothing new, within {}.",
            config.ledger,
            pause::HEARD
        )),
        Err(why) => left.push(format!("the service is not paused: {why}")),
    }
    let found = look(&nodes, config, leaving, &mut left).await?;
    let takes = list(&found, leaving);
    if takes > 0 {
        if !args.yes && !agreed(takes) {
            return Err(Failure::finding("nothing was given back; the pause stands, end it with: gpu-quarantine resume"));
        }
        for (node, _) in found.iter().filter(|(_, belongings)| belongings.patch.is_some()) {
            if let Err(why) = give_back(&nodes, &node.name, config, leaving).await {
                left.push(format!("node {}: {why}", node.name));
            }
        }
        // A service that still runs records what fires, paused or not.
        let again = look(&nodes, config, leaving, &mut Vec::new()).await?;
        let again: Vec<&str> = again.iter().filter(|(_, b)| b.patch.is_some()).map(|(node, _)| node.name.as_str()).collect();
        if !again.is_empty() {
            left.push(format!(
                "{} bear something of ours again: is the service still running? Stop it, and run this once more",
                again.join(", ")
            ));
        }
    }
    for (node, belongings) in &found {
        if let Some(why) = &belongings.stays {
            left.push(format!("node {}: {why}", node.name));
        }
    }
    if args.ledger && left.is_empty() {
        if let Err(why) = delete(&ledger).await {
            left.push(format!("the ledger: {why}"));
        } else {
            say(&format!("Deleted ConfigMap {}.", config.ledger));
        }
    }
    if left.is_empty() {
        say("Nothing of ours is left on any node.");
        return Ok(());
    }
    Err(Failure::finding(left.iter().map(|line| format!("left: {}", printable(line))).collect::<Vec<_>>().join("\n")))
}

/// The nodes that bear something of ours.
async fn look(
    nodes: &DirectNodes,
    config: &Config,
    leaving: Leaving,
    left: &mut Vec<String>,
) -> Result<Vec<(NodeFacts, Belongings)>, Failure> {
    let (all, unreadable) = nodes.list().await.map_err(Failure::unreachable)?;
    left.extend(unreadable);
    let with = |node: NodeFacts| {
        let belongings = Belongings::on(&node, config, leaving);
        (node, belongings)
    };
    Ok(all.into_iter().map(with).filter(|(_, belongings)| !belongings.is_empty()).collect())
}

/// Say what stands where, and give the number of nodes from which something is taken.
fn list(found: &[(NodeFacts, Belongings)], leaving: Leaving) -> usize {
    for (node, has) in found {
        let mut parts: Vec<String> = has.taint.iter().map(|t| format!("taint {}", taint_text(t))).collect();
        parts.extend(has.cordon.then(|| "our cordon".to_owned()));
        parts.extend(has.annotations.iter().map(|name| format!("annotation {name}")));
        parts.extend(has.labels.iter().map(|name| format!("label {name}")));
        if leaving.words {
            parts.extend(has.words.iter().map(|word| format!("annotation {word}")));
        } else if !has.words.is_empty() && !parts.is_empty() {
            parts.push(format!("(stays, a person's word: {})", has.words.join(", ")));
        }
        if !parts.is_empty() {
            say(&format!("{}: {}", node.name, parts.join(", ")));
        }
    }
    for (node, has) in found.iter().filter(|(_, has)| !has.orphans.is_empty()) {
        let taints: Vec<String> = has.orphans.iter().map(taint_text).collect();
        let fate = if leaving.orphans { "removed as well" } else { "stays; --orphans removes it" };
        say(&format!("{}: orphan {}, which no record speaks of ({fate})", node.name, taints.join(", ")));
    }
    found.iter().filter(|(_, has)| has.patch.is_some()).count()
}

fn agreed(takes: usize) -> bool {
    eprint!("Take it back from {takes} node{}? [y/N] ", if takes == 1 { "" } else { "s" });
    let mut answer = String::new();
    // Without an answer it is no.
    let asked = stderr().flush().is_ok() && stdin().read_line(&mut answer).is_ok();
    asked && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Take everything back from one node.
async fn give_back(nodes: &DirectNodes, name: &NodeName, config: &Config, leaving: Leaving) -> Result<(), String> {
    let decide = |node: &NodeFacts| {
        let belongings = Belongings::on(node, config, leaving);
        match belongings.stays {
            Some(why) => Err(Failure::finding(why)),
            None => Ok(belongings.patch.map(|patch| (patch, ()))),
        }
    };
    change_if_there(nodes, name, decide).await.map(drop).map_err(|failure| failure.message)
}

async fn delete(store: &DirectLedger) -> Result<(), String> {
    for _ in 0..TRIES {
        let Some(stored) = store.read().await.map_err(|e| e.to_string())? else { return Ok(()) };
        match store.delete(&stored.version).await {
            Ok(()) => return Ok(()),
            Err(LedgerError::Conflict) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(LedgerError::Conflict.to_string())
}

fn say(line: &str) {
    println!("{}", printable(line));
}
