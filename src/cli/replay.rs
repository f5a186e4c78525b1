//! `replay`: recorded bodies through the same decisions, in CI or after an incident.

use std::{
    fs,
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::{
    Failure, Output, Sources,
    incident::{Incident, Outcome},
    parse_delivery, printable, read_bytes, read_file, runtime,
    statements::{self, Statements},
};
use crate::{
    alert::{Alert, Delivery, InvalidAlert, Pull, Pulled},
    engine::{AlertResult, Answer, Step},
    locate::{NodeName, gpu_of},
    policy::Locate,
    quarantine::{NodeState, NodeView, evidence::Shown},
    sources::{ActiveAlert, pull_of},
};

/// Run recorded webhook bodies.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sources: Sources,
    /// How the result is printed.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
    /// Compare the result with a saved JSON output; exit 1 with a diff if it differs.
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// In order: a file with a webhook body or a step of a recording, a directory of them (*.json, in name order), `-` for
    /// standard input, `alerts:FILE` for an answer of Alertmanager's API (GET /api/v2/alerts/groups), `evidence:FILE` for what
    /// Prometheus says from then on, or `+10m` to let time pass.
    #[arg(required = true, value_name = "STEP")]
    steps: Vec<String>,
}

enum Input {
    Body {
        name: String,
        delivery: Delivery,
    },
    /// A step of a recording: somebody else changed a node.
    Node {
        name: String,
        at: Timestamp,
        node: Value,
    },
    /// What a pull found: a step of a recording, or an answer of Alertmanager's API.
    Pull {
        name: String,
        /// The latest time that it speaks of, if it speaks of any.
        at: Option<Timestamp>,
        pull: Pull,
    },
    /// What Prometheus says from then on.
    Stated {
        name: String,
        statements: Statements,
    },
    /// What was shown about a node: a step of a recording.
    Shown(RecordedShown),
    /// How Prometheus rendered alerts: a step of a recording.
    Rendered(RecordedRendered),
    Pass(SignedDuration),
}

/// Evidence as `serve --record` writes it.
#[derive(Deserialize)]
struct RecordedShown {
    #[serde(rename = "receivedAt")]
    at: Timestamp,
    evidence: RecordedEvidence,
}

#[derive(Deserialize)]
struct RecordedEvidence {
    node: NodeName,
    shown: Shown,
}

/// Rendered alerts as `serve --record` writes them.
#[derive(Deserialize)]
struct RecordedRendered {
    #[serde(rename = "receivedAt")]
    at: Timestamp,
    rendered: Vec<ActiveAlert>,
}

/// A change of a node as `serve --record` writes it.
#[derive(Deserialize)]
struct RecordedNode {
    #[serde(rename = "receivedAt")]
    at: Timestamp,
    node: Value,
}

/// A pull as `serve --record` writes it.
#[derive(Deserialize)]
struct RecordedPull {
    #[serde(rename = "receivedAt")]
    at: Timestamp,
    pull: RecordedPullContent,
}

#[derive(Deserialize)]
struct RecordedPullContent {
    begun: Timestamp,
    incomplete: Option<String>,
    muted: Vec<Option<String>>,
    alerts: Vec<Value>,
}

impl RecordedPull {
    fn input(self, name: String, path: &str) -> Result<Input, Failure> {
        let RecordedPullContent { begun, incomplete, muted, alerts } = self.pull;
        let body = serde_json::json!({ "alerts": alerts }).to_string();
        let delivery = parse_delivery(path, body.as_bytes())?;
        let listed = delivery.alerts.into_iter().flatten().zip(muted);
        let alerts = listed.map(|(alert, muted)| Pulled { alert, muted }).collect();
        Ok(Input::Pull { name, at: Some(self.at), pull: Pull { begun, alerts, incomplete, changes_at: None } })
    }
}

/// An answer of Alertmanager's API, as of a complete pull at the latest time that it speaks of.
fn answer_of_the_api(path: &str, receiver: Option<&str>) -> Result<Input, Failure> {
    let mut pull = pull_of(&read_bytes(path)?, receiver).map_err(|e| Failure::input(format!("{path}: {e}")))?;
    let at = pull.alerts.iter().map(|p| p.alert.starts_at).max();
    // It was asked for after all the steps before.
    pull.begun = Timestamp::MAX;
    Ok(Input::Pull { name: file_name(path), at, pull })
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |n| n.to_string_lossy().into_owned())
}

/// Read all steps before the first is taken, so that a bad one is told at once.
fn inputs(steps: &[String], receiver: Option<&str>) -> Result<Vec<Input>, Failure> {
    if steps.iter().filter(|step| *step == "-").count() > 1 {
        return Err(Failure::input("standard input can be read once only: give `-` once"));
    }
    let mut inputs = Vec::new();
    for step in steps {
        if let Some(text) = step.strip_prefix('+') {
            let by = humantime::parse_duration(text)
                .ok()
                .and_then(|d| SignedDuration::try_from(d).ok())
                .ok_or_else(|| Failure::input(format!("step {step:?} is not a duration: write +10m, +1h30m or +90s")))?;
            inputs.push(Input::Pass(by));
        } else if let Some(path) = step.strip_prefix("alerts:") {
            inputs.push(answer_of_the_api(path, receiver)?);
        } else if let Some(path) = step.strip_prefix("evidence:") {
            inputs.push(Input::Stated { name: file_name(path), statements: statements::read(path)? });
        } else if step != "-" && Path::new(step).is_dir() {
            for file in bodies_of(step)? {
                inputs.push(body(&file)?);
            }
        } else {
            inputs.push(body(step)?);
        }
    }
    Ok(inputs)
}

fn bodies_of(dir: &str) -> Result<Vec<String>, Failure> {
    let failed = |e: std::io::Error| Failure::input(format!("cannot read the directory {dir}: {e}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|e| e == "json") {
            files.push(path.display().to_string());
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Failure::input(format!("the directory {dir} has no *.json files")));
    }
    Ok(files)
}

fn body(path: &str) -> Result<Input, Failure> {
    let name = match path {
        "-" => "standard input".to_owned(),
        _ => file_name(path),
    };
    let bytes = read_bytes(path)?;
    if let Ok(RecordedNode { at, node }) = serde_json::from_slice(&bytes) {
        return Ok(Input::Node { name, at, node });
    }
    if let Ok(recorded) = serde_json::from_slice::<RecordedPull>(&bytes) {
        return recorded.input(name, path);
    }
    if let Ok(shown) = serde_json::from_slice(&bytes) {
        return Ok(Input::Shown(shown));
    }
    if let Ok(rendered) = serde_json::from_slice(&bytes) {
        return Ok(Input::Rendered(rendered));
    }
    Ok(Input::Body { name, delivery: parse_delivery(path, &bytes)? })
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (config, cluster) = args.sources.load()?;
    let inputs = inputs(&args.steps, config.alertmanagers.as_ref().map(|a| a.receiver.as_str()))?;
    let (outcome, timeline) = runtime()?.block_on(async {
        let mut incident = Incident::begin(config, cluster).await;
        let mut timeline = Timeline::default();
        let mut results = Vec::new();
        let mut steps = timeline.steps(incident.new_steps());
        for input in inputs {
            match input {
                Input::Pass(by) => {
                    timeline.line(incident.now(), &format!("{} pass", humantime::format_duration(by.unsigned_abs())));
                    incident.advance(by).await;
                }
                Input::Node { name, at, node } => {
                    incident.change(at, &node).await.map_err(|e| Failure::input(format!("{name}: {e}")))?;
                    let subject = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                    timeline.line(at, &format!("{name}: somebody else changed {subject}"));
                }
                Input::Stated { name, statements } => {
                    if let Some(at) = statements.at {
                        incident.advance_to(at).await;
                    }
                    steps.extend(timeline.steps(incident.new_steps()));
                    timeline.line(incident.now(), &format!("{name}: what Prometheus says from now on"));
                    incident.state(statements).await;
                }
                Input::Shown(RecordedShown { at, evidence }) => {
                    incident.advance_to(at).await;
                    incident.take_shown(evidence.node, evidence.shown).await;
                }
                Input::Rendered(RecordedRendered { at, rendered }) => {
                    incident.advance_to(at).await;
                    incident.engine().take_rendered(&rendered).await;
                }
                Input::Pull { name, at, pull } => {
                    if let Some(at) = at {
                        incident.advance_to(at).await;
                    }
                    steps.extend(timeline.steps(incident.new_steps()));
                    let came = incident.engine().pull(&pull).await;
                    timeline.pull(incident.now(), &name, &pull, &came.results);
                    results.extend(came.results);
                }
                Input::Body { name, delivery } => {
                    incident.advance_for(&delivery).await;
                    steps.extend(timeline.steps(incident.new_steps()));
                    let about = about(&delivery, &incident.engine().config().locate);
                    let receiver = delivery.receiver.clone();
                    let answer = incident.deliver(delivery).await;
                    timeline.body(incident.now(), &format!("{name} for receiver {receiver}"), &about, &answer);
                    results.extend(answer.results);
                }
            }
            steps.extend(timeline.steps(incident.new_steps()));
        }
        let outcome = Outcome { results, steps, nodes: incident.engine().views() };
        timeline.end(incident.now(), &outcome);
        Ok::<_, Failure>((outcome, timeline))
    })?;
    let json = serde_json::to_string_pretty(&outcome).map_err(|e| Failure::input(format!("cannot write JSON: {e}")))?;
    match args.output {
        Output::Json => println!("{json}"),
        Output::Text => print!("{}", timeline.text),
    }
    match &args.expect {
        None => Ok(()),
        Some(file) => compare(file, &json),
    }
}

fn compare(file: &Path, got: &str) -> Result<(), Failure> {
    let want = read_file(file)?;
    if want.trim_end() == got.trim_end() {
        return Ok(());
    }
    let diff = TextDiff::from_lines(want.trim_end(), got.trim_end());
    let mut text = format!("the result differs from {}:\n", file.display());
    for group in diff.grouped_ops(3) {
        for op in group {
            for change in diff.iter_changes(&op) {
                let sign = match change.tag() {
                    ChangeTag::Delete => "- ",
                    ChangeTag::Insert => "+ ",
                    ChangeTag::Equal => "  ",
                };
                text.push_str(sign);
                text.push_str(change.value().trim_end_matches('\n'));
                text.push('\n');
            }
        }
        text.push_str("  ...\n");
    }
    text.push_str("- is what was expected, + is what came");
    Err(Failure::finding(text))
}

/// For each alert of a body its status and what it is about; neither stands in its result.
fn about(delivery: &Delivery, rules: &Locate) -> Vec<(&'static str, String)> {
    let about = |alert: &Result<Alert, InvalidAlert>| match alert {
        Ok(alert) => {
            let gpu = gpu_of(&alert.labels, rules).map(|gpu| format!(" on {gpu}")).unwrap_or_default();
            (alert.status.as_str(), format!("{}{gpu}", alert.name))
        }
        Err(invalid) => ("-", invalid.name.clone().unwrap_or_else(|| "(no name)".to_owned())),
    };
    delivery.alerts.iter().map(about).collect()
}

/// What happened, in the order in which it did, for people.
#[derive(Default)]
struct Timeline {
    text: String,
}

impl Timeline {
    fn line(&mut self, at: Timestamp, what: &str) {
        self.text += &format!("{at:.3}  {}\n", printable(what));
    }

    /// A line that belongs to the one above.
    fn detail(&mut self, what: &str) {
        self.text += &format!("{:24}    {}\n", "", printable(what));
    }

    fn body(&mut self, at: Timestamp, what: &str, about: &[(&'static str, String)], answer: &Answer) {
        let plural = if about.len() == 1 { "" } else { "s" };
        self.line(at, &format!("{what}: {} alert{plural}", about.len()));
        for ((status, subject), result) in about.iter().zip(&answer.results) {
            let outcome = result.outcome.as_str();
            let node = result.node.as_ref().map_or("-", NodeName::as_str);
            let policy = result.policy.as_ref().map(|p| format!(" (policy {p})")).unwrap_or_default();
            self.detail(&format!("{status:<8}  {outcome:<12}  {node:<12}  {subject}{policy}: {}", result.reason));
        }
        for warning in &answer.warnings {
            self.detail(&format!("warning: {warning}"));
        }
    }

    fn pull(&mut self, at: Timestamp, name: &str, pull: &Pull, results: &[AlertResult]) {
        let plural = if results.len() == 1 { "" } else { "s" };
        let proves = pull.incomplete.as_ref().map_or_else(|| "complete".to_owned(), |why| format!("incomplete: {why}"));
        self.line(at, &format!("{name}: a pull of {} alert{plural}, {proves}", results.len()));
        for result in results {
            let node = result.node.as_ref().map_or("-", NodeName::as_str);
            let policy = result.policy.as_ref().map(|p| format!(" (policy {p})")).unwrap_or_default();
            let name = result.alertname.as_deref().unwrap_or_default();
            self.detail(&format!("firing    {:<12}  {node:<12}  {name}{policy}: {}", result.outcome.as_str(), result.reason));
        }
    }

    fn steps(&mut self, steps: Vec<Step>) -> Vec<Step> {
        for step in &steps {
            let by = step.policy.as_ref().map(|p| format!(" (policy {p})")).unwrap_or_default();
            self.line(step.at, &format!("{} {}{by}: {}", step.action.to_uppercase(), step.node, step.reason));
            let names: Vec<String> = step.pods.iter().map(|pod| pod.pod.to_string()).collect();
            let width = names.iter().map(String::len).max().unwrap_or_default();
            for (name, pod) in names.iter().zip(&step.pods) {
                self.detail(format!("{name:width$}  {:<12}  {}", pod.outcome, pod.reason).trim_end());
            }
        }
        steps
    }

    fn end(&mut self, at: Timestamp, outcome: &Outcome) {
        self.line(at, "the end");
        let touched = |n: &&NodeView| n.state != NodeState::Free || n.waiting_for != "nothing" || !n.history.is_empty();
        let mut touched = outcome.nodes.iter().filter(touched).peekable();
        if touched.peek().is_none() {
            self.detail("no node was touched");
        }
        for node in touched {
            self.detail(&format!("{} is {}, waiting for {}", node.name, node.state, node.waiting_for));
            for past in &node.history {
                let on = past.gpu.as_ref().map(|gpu| format!(" on {gpu}")).unwrap_or_default();
                let (from, to) = (past.from, past.to);
                self.detail(&format!("  past: {}{on} from {from:.3} to {to:.3}, ended by {}", past.alert, past.by));
            }
        }
    }
}
