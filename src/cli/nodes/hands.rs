//! `nodes hold`, `unhold`, `ignore` and `unignore`: a person's word on a node, as an annotation.

use super::{Changed, Failure, LiveSources, Person, Target, change, json, reason};
use crate::{
    cli::{Output, printable},
    engine::{Clock, SystemClock},
    locate::NodeFacts,
    policy::Config,
    quarantine::{Hand, NodeState, NodeView, Word, say as words, signed},
};

/// Leave a word on a node.
#[derive(Debug, clap::Args)]
pub(super) struct SayArgs {
    #[command(flatten)]
    sources: LiveSources,
    #[command(flatten)]
    target: Target,
    /// Why, in a few words: it is shown wherever the node is.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    person: Person,
    /// How the result is printed; `json` is the node afterwards.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

/// Take a word back.
#[derive(Debug, clap::Args)]
pub(super) struct UnsayArgs {
    #[command(flatten)]
    sources: LiveSources,
    #[command(flatten)]
    target: Target,
    /// How the result is printed; `json` is the node afterwards.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

pub(super) async fn say(args: &SayArgs, word: Word) -> Result<String, Failure> {
    let hand = Hand { who: args.person.name()?, judgement: None, reason: Some(reason(&args.reason)?) };
    write(&args.sources, &args.target, word, Some(&signed(&hand)), args.output).await
}

pub(super) async fn unsay(args: &UnsayArgs, word: Word) -> Result<String, Failure> {
    write(&args.sources, &args.target, word, None, args.output).await
}

async fn write(
    sources: &LiveSources,
    target: &Target,
    word: Word,
    text: Option<&str>,
    output: Output,
) -> Result<String, Failure> {
    let name = target.name()?;
    let (config, nodes) = sources.open_to_write().await?;
    let annotation = config.annotation(word.as_str());
    let refused = |e: &dyn std::fmt::Display| Failure::finding(format!("node {name} is left as it is: {e}"));
    let changed = change(&nodes, &name, |node| {
        let patch = words(node, &config, word, text).map_err(|e| refused(&e))?;
        Ok(patch.map(|patch| (patch, node.annotations.get(&annotation).cloned())))
    })
    .await?;
    if output == Output::Json {
        return json(&NodeView::of(&changed.node, &config, SystemClock.now()));
    }
    let lines = told(&changed, &config, word, text);
    Ok(lines.iter().map(|line| printable(line) + "\n").collect())
}

fn told(changed: &Changed<Option<String>>, config: &Config, word: Word, text: Option<&str>) -> Vec<String> {
    let Changed { node, done } = changed;
    let name = &node.name;
    let state = match word {
        Word::Hold => "held",
        Word::Ignore => "ignored",
    };
    let first = match (done, text) {
        (None, Some(text)) => format!("Node {name} was {state} already: {text}"),
        (None, None) => format!("Node {name} was not {state}."),
        (Some(None), Some(text)) => format!("Node {name} is {state}: {text}"),
        (Some(Some(was)), Some(text)) => format!("Node {name} is {state}: {text}. Before, it said: {was}"),
        (Some(was), None) => format!("Node {name} is no longer {state}. It said: {}", was.as_deref().unwrap_or_default()),
    };
    let view = NodeView::of(node, config, SystemClock.now());
    std::iter::once(first).chain(consequence(node, &view, config, word, text.is_some())).collect()
}

/// What it means, as the node stands.
fn consequence(node: &NodeFacts, view: &NodeView, config: &Config, word: Word, said: bool) -> Option<String> {
    let ignored = node.annotations.get(&config.annotation(Word::Ignore.as_str()));
    Some(match (word, said) {
        (Word::Hold, _) if ignored.is_some() => "It is ignored as well, so nothing is done to it either way.".to_owned(),
        (Word::Hold, true) if view.isolated => "It stays isolated until somebody takes this back or releases it.".to_owned(),
        (Word::Hold, true) => {
            "It is not isolated: a hold isolates nothing and stops no isolation; it only blocks a later release. To keep pods \
             away now, use `kubectl cordon`."
                .to_owned()
        }
        (Word::Ignore, true) if view.isolated => {
            "It is isolated and stays so: what stands on it is neither added to nor taken back, and it counts for the guard."
                .to_owned()
        }
        (Word::Ignore, true) => "No alert isolates it, and none is written down, until this is taken back.".to_owned(),
        (_, false) if view.state == NodeState::Free => return None,
        (_, false) => format!("It is {} and waits for {}.", view.state, view.waiting_for),
    })
}
