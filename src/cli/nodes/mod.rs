//! `nodes`: what stands on the nodes and why, and a person's hand on one of them. Straight against the API server, so that it works
//! when the service is down.

mod advice;
mod eviction;
mod evidence;
mod hands;
mod list;
mod release;
mod show;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::PoisonError, time::Duration};

use clap::Subcommand;
use serde_json::Value;

use super::{Failure, LiveSources, load_config, load_snapshot, printable, runtime};
use crate::{
    cluster::{
        Cluster, ClusterError,
        kubernetes::{self, ConnectError, DirectLedger, DirectNodes},
        snapshot::SnapshotCluster,
    },
    engine::{Clock, SystemClock},
    locate::{Gpu, NodeFacts, NodeName, Taint},
    policy::Config,
    quarantine::{Claim, GuardReport, Ledger, MAX_REASON, MAX_WHO, NodeView, Paused, StoredLedger},
};

/// How often a node is read and decided again if others write it meanwhile, as often as the service does.
const TRIES: u32 = 16;

/// What stands on the nodes and why; hold, release or ignore one.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The nodes that are not free, and what each waits for.
    List(list::Args),
    /// The whole story of one node, and what you can do.
    Show(show::Args),
    /// Keep an isolated node isolated, whatever its alerts do.
    Hold(hands::SayArgs),
    /// Take a hold back.
    Unhold(hands::UnsayArgs),
    /// Give a node back now, whatever it waits for.
    Release(release::Args),
    /// Have nothing done to a node: no isolation, no release.
    Ignore(hands::SayArgs),
    /// Take an ignore back.
    Unignore(hands::UnsayArgs),
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    use crate::quarantine::Word;
    let text = runtime()?.block_on(async {
        match &args.command {
            Command::List(args) => list::run(args).await,
            Command::Show(args) => show::run(args).await,
            Command::Hold(args) => hands::say(args, Word::Hold).await,
            Command::Unhold(args) => hands::unsay(args, Word::Hold).await,
            Command::Release(args) => release::run(args).await,
            Command::Ignore(args) => hands::say(args, Word::Ignore).await,
            Command::Unignore(args) => hands::unsay(args, Word::Ignore).await,
        }
    })?;
    print!("{text}");
    Ok(())
}

/// The guard over the nodes as they are now, and the configuration that says so.
pub(super) async fn guard(sources: &LiveSources) -> Result<(Config, GuardReport), Failure> {
    let opened = sources.open().await?;
    let nodes = opened.nodes().await?;
    let (config, now) = (opened.config, SystemClock.now());
    let views: Vec<NodeView> = nodes.iter().map(|node| NodeView::of(node, &config, now)).collect();
    let restarts: Vec<_> = views.iter().flat_map(|view| view.restarts.clone()).collect();
    let report = GuardReport::of(&list::muster(&views, now), &restarts, opened.paused.why, &config, now);
    Ok((config, report))
}

/// Which node.
#[derive(Debug, clap::Args)]
struct Target {
    /// The name of the node.
    #[arg(value_name = "NODE")]
    node: String,
}

impl Target {
    fn name(&self) -> Result<NodeName, Failure> {
        NodeName::parse(&self.node).map_err(|e| Failure::input(e.to_string()))
    }
}

/// Who acts.
#[derive(Debug, clap::Args)]
struct Person {
    /// Who you are, as it is written down.
    #[arg(long = "as", value_name = "NAME", env = "USER", hide_env_values = true)]
    who: Option<String>,
}

impl Person {
    fn name(&self) -> Result<&str, Failure> {
        let who = self.who.as_deref().map(str::trim).filter(|who| !who.is_empty());
        let who = who.ok_or_else(|| Failure::input("nobody can tell who you are: give --as NAME, which is written down"))?;
        bounded("--as", who, MAX_WHO)
    }
}

/// A text of a person that is kept whole or refused.
fn bounded<'a>(flag: &str, text: &'a str, most: usize) -> Result<&'a str, Failure> {
    match text.trim() {
        "" => Err(Failure::input(format!("{flag} is empty: write it in a few words"))),
        text if text.chars().count() > most => {
            Err(Failure::input(format!("{flag} has {} characters and {most} are kept: shorten it", text.chars().count())))
        }
        text if text.chars().any(char::is_control) => Err(Failure::input(format!("{flag} must be one line of plain text"))),
        text => Ok(text),
    }
}

fn reason(text: &str) -> Result<&str, Failure> {
    bounded("--reason", text, MAX_REASON)
}

/// Where the nodes are.
enum Place {
    Api(DirectNodes),
    File(SnapshotCluster),
}

/// The configuration and the nodes.
struct Opened {
    config: Config,
    place: Place,
    /// What is known of the machines; empty if there is none or it cannot be read, which is told.
    ledger: Ledger,
    /// What pauses the service, as far as the ledger says.
    paused: Paused,
}

impl Opened {
    /// All nodes. What cannot be read is told and left out.
    async fn nodes(&self) -> Result<Vec<NodeFacts>, Failure> {
        let (nodes, unreadable) = self.place.list().await?;
        for why in &unreadable {
            eprintln!("{}", printable(&format!("left out: {why}")));
        }
        Ok(nodes)
    }
}

impl LiveSources {
    /// Open for reading.
    async fn open(&self) -> Result<Opened, Failure> {
        let config = load_config(&self.config)?;
        let nothing = Ledger::new(&config.instance);
        if let Some(path) = &self.cluster {
            let place = Place::File(load_snapshot(path, &config.domain)?);
            return Ok(Opened { config, place, ledger: nothing, paused: Paused::default() });
        }
        let place = Place::Api(self.direct(&config.domain).await?);
        let (ledger, paused) = self.ledger(&config).await.unwrap_or_else(|why| {
            eprintln!("{}", printable(&format!("left out: what the ledger says of past faults and of a pause, {why}")));
            (nothing, Paused::default())
        });
        Ok(Opened { config, place, ledger, paused })
    }

    async fn ledger(&self, config: &Config) -> Result<(Ledger, Paused), String> {
        let client = kubernetes::config(self.kubeconfig.as_deref(), self.context.as_deref()).await.map_err(|e| e.to_string())?;
        let direct = DirectLedger::new(client, config.ledger.clone()).map_err(|e| e.to_string())?;
        let stored = direct.read().await.map_err(|e| e.to_string())?;
        let (text, annotations) = stored.map(|stored| (stored.text, stored.annotations)).unwrap_or_default();
        let ledger = match text.map(|text| Ledger::read(&text, &config.instance)) {
            None => Ledger::new(&config.instance),
            Some(StoredLedger::Ours(ledger)) => *ledger,
            Some(StoredLedger::Untouchable(why) | StoredLedger::Unreadable(why)) => return Err(why),
        };
        let name = config.annotation("pause");
        let annotation = annotations.get(&name).map(|why| (name.as_str(), why.as_str()));
        let paused = Paused::by(ledger.paused.as_ref(), annotation);
        Ok((ledger, paused))
    }

    /// Open for writing, which a file is not.
    async fn open_to_write(&self) -> Result<(Config, DirectNodes), Failure> {
        if let Some(path) = &self.cluster {
            return Err(Failure::input(format!(
                "{} is a file, which is only read: leave --cluster out to write to a real cluster, or edit the file",
                path.display()
            )));
        }
        let config = load_config(&self.config)?;
        let nodes = self.direct(&config.domain).await?;
        Ok((config, nodes))
    }

    async fn direct(&self, domain: &str) -> Result<DirectNodes, Failure> {
        let failed = |e: ConnectError| Failure::unreachable(e.to_string());
        let config = kubernetes::config(self.kubeconfig.as_deref(), self.context.as_deref()).await.map_err(failed)?;
        DirectNodes::new(config, domain).map_err(failed)
    }

    /// The flags by which another command reaches the same cluster.
    fn flags(&self) -> String {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|p| p.display().to_string());
        let given = [
            ("--config.file", Some(self.config.display().to_string())),
            ("--kubeconfig", path(&self.kubeconfig)),
            ("--context", self.context.clone()),
        ];
        given.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", quoted(&value?)))).collect()
    }
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '=' | '@' | '+' | ',');
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

impl Place {
    /// All nodes, and of those that cannot be read, why.
    async fn list(&self) -> Result<(Vec<NodeFacts>, Vec<String>), Failure> {
        match self {
            Self::Api(nodes) => nodes.list().await.map_err(Failure::unreachable),
            Self::File(cluster) => {
                let nodes = cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
                Ok((nodes.iter().map(|node| NodeFacts::clone(node)).collect(), Vec::new()))
            }
        }
    }

    async fn get(&self, name: &NodeName) -> Result<NodeFacts, Failure> {
        let node = match self {
            Self::Api(nodes) => nodes.get(name).await,
            Self::File(cluster) => cluster.get(name).await,
        };
        there(name, node)
    }
}

fn there(name: &NodeName, node: Result<Option<NodeFacts>, ClusterError>) -> Result<NodeFacts, Failure> {
    node.map_err(|e| failed(&e))?.ok_or_else(|| missing(name))
}

fn missing(name: &NodeName) -> Failure {
    Failure::input(format!("there is no node {name}: `gpu-quarantine nodes list --all` names those in scope"))
}

/// A call that failed, with the exit code that says how.
fn failed(error: &ClusterError) -> Failure {
    match error {
        ClusterError::Timeout { .. } | ClusterError::Unavailable { .. } => Failure::unreachable(error.to_string()),
        _ => Failure::finding(error.to_string()),
    }
}

/// What a change of one node came to.
pub(super) struct Changed<T> {
    /// The node afterwards.
    node: NodeFacts,
    /// What was decided; `None` if there was nothing to do.
    done: Option<T>,
}

/// Read, decide and write one node, and again if somebody else wrote meanwhile. A write that nobody answered is looked for on the
/// node before it is tried again.
async fn change<T>(
    nodes: &DirectNodes,
    name: &NodeName,
    decide: impl FnMut(&NodeFacts) -> Result<Option<(Value, T)>, Failure>,
) -> Result<Changed<T>, Failure> {
    change_if_there(nodes, name, decide).await?.ok_or_else(|| missing(name))
}

/// The same; `None` if there is no such node any more.
pub(super) async fn change_if_there<T>(
    nodes: &DirectNodes,
    name: &NodeName,
    mut decide: impl FnMut(&NodeFacts) -> Result<Option<(Value, T)>, Failure>,
) -> Result<Option<Changed<T>>, Failure> {
    let mut unanswered: Option<T> = None;
    let mut last = ClusterError::Conflict { node: name.clone() };
    for attempt in 0..TRIES {
        let Some(node) = nodes.get(name).await.map_err(|e| failed(&e))? else { return Ok(None) };
        let Some((patch, done)) = decide(&node)? else {
            return Ok(Some(Changed { node, done: unanswered }));
        };
        match nodes.patch(name, &patch).await {
            Ok(node) => return Ok(Some(Changed { node, done: Some(done) })),
            Err(error @ ClusterError::Conflict { .. }) => last = error,
            Err(error @ (ClusterError::Timeout { .. } | ClusterError::Unavailable { .. })) if unanswered.is_none() => {
                last = error;
                unanswered = Some(done);
            }
            Err(error) => return Err(failed(&error)),
        }
        tokio::time::sleep(Duration::from_millis(10 << attempt.min(4))).await;
    }
    Err(failed(&last))
}

pub(super) fn taint_text(taint: &Taint) -> String {
    match taint.value.as_deref().filter(|value| !value.is_empty()) {
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
        None => format!("{}:{}", taint.key, taint.effect),
    }
}

/// The first group tells the GPUs of one node apart.
fn short_uuid(uuid: &str) -> &str {
    uuid.get(..12).unwrap_or(uuid)
}

/// What a claim is about, short enough for a table.
fn short_subject(claim: &Claim) -> String {
    match &claim.gpu {
        Some(Gpu::Uuid(uuid)) => format!("{} on {}", claim.alert, short_uuid(uuid)),
        _ => claim.subject(),
    }
}

/// A time to the second.
fn time(at: jiff::Timestamp) -> String {
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}

pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Failure::input(format!("cannot write JSON: {e}")))?;
    Ok(text + "\n")
}
