//! The documents say what the program does: links, configurations, commands, words, metrics and flags.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, RwLock},
};

use axum::{
    body::Body,
    http::{Request, StatusCode, header},
};
use futures::future::BoxFuture;
use gpu_quarantine::{
    cluster::{Cluster, ClusterError, snapshot::SnapshotCluster},
    engine::{Engine, SystemClock},
    locate::{ExporterPod, Inventory, NodeFacts, NodeName},
    metrics::Metrics,
    policy::{self, Selector},
    quarantine::{
        NodeState, Outcome,
        eviction::{EvicteeState, EvictionAnswer},
    },
    server::App,
};
use serde_json::{Value, json};
use tower::ServiceExt;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-quarantine");
const COMMANDS: [&str; 15] = [
    "serve",
    "replay",
    "explain",
    "demo",
    "nodes list",
    "nodes show",
    "nodes hold",
    "nodes unhold",
    "nodes ignore",
    "nodes unignore",
    "nodes release",
    "guard",
    "pause",
    "resume",
    "uninstall",
];
/// The configuration that a reader starts from.
const MINIMAL: &str = include_str!("../fixtures/minimal.yaml");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A fenced block: the words after the fence, and the text.
struct Block {
    info: String,
    text: String,
}

/// A document apart from its fenced blocks, and these.
fn parts(document: &str) -> (String, Vec<Block>) {
    let (mut prose, mut blocks, mut open) = (String::new(), Vec::new(), None::<Block>);
    for line in document.lines() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(info)) => open = Some(Block { info: info.trim().to_owned(), text: String::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    assert!(open.is_none(), "a fenced block is not closed");
    (prose, blocks)
}

fn documents() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("README.md"), PathBuf::from("CONTRIBUTING.md")];
    let mut folders = vec![PathBuf::from("docs"), PathBuf::from("deploy"), PathBuf::from("fixtures")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The targets of inline links.
fn links(prose: &str) -> Vec<&str> {
    prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// The anchors that a Markdown page gives its headings.
fn anchors(prose: &str) -> BTreeSet<String> {
    let headings = prose.lines().filter(|l| l.starts_with('#')).map(|l| l.trim_start_matches('#').trim().to_lowercase());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    headings.map(|h| h.chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut checked = 0;
    for document in documents() {
        let (prose, _) = parts(&read(document.to_str().unwrap()));
        for link in links(&prose).into_iter().filter(|l| !l.contains("://") && !l.starts_with("mailto:")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let there = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            assert!(root().join(&there).exists(), "{}: {link} leads nowhere", document.display());
            if !anchor.is_empty() {
                let (prose, _) = parts(&fs::read_to_string(root().join(&there)).unwrap());
                assert!(anchors(&prose).contains(anchor), "{}: {link} has no such heading", document.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} links were found");
}

#[test]
fn every_configuration_in_the_readme_loads_and_the_minimal_one_is_there() {
    let (_, blocks) = parts(&read("README.md"));
    let yaml: Vec<&Block> = blocks.iter().filter(|b| b.info.starts_with("yaml")).collect();
    for block in &yaml {
        match block.info.as_str() {
            "yaml configuration" => drop(policy::load("README.md", &block.text).unwrap_or_else(|e| panic!("{e}"))),
            "yaml alertmanager" | "yaml toleration" => {}
            other => {
                panic!("say whose YAML it is, ours (yaml configuration) or not (yaml alertmanager, yaml toleration): {other:?}")
            }
        }
    }
    assert!(yaml.iter().any(|b| b.info == "yaml configuration" && b.text == MINIMAL), "the minimal configuration is missing");
    policy::load("minimal.yaml", MINIMAL).unwrap();
}

#[test]
fn the_route_in_the_readme_is_the_one_that_is_shipped_and_tested() {
    let yaml = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
    let (_, blocks) = parts(&read("README.md"));
    let shown = yaml(&blocks.iter().find(|b| b.info == "yaml alertmanager").expect("the route").text);
    let shipped = yaml(&read("deploy/alertmanager/gpu-quarantine.yaml"));
    let (ours, last) = (&shipped["route"]["routes"][0], &shipped["route"]["routes"][1]);
    assert_eq!(shown["route"]["routes"], json!([ours]));
    let receivers = shipped["receivers"].as_array().unwrap();
    assert!(shown["receivers"].as_array().unwrap().iter().all(|r| receivers.contains(r)), "{shown}");
    // `continue` leads to the receiver at the top only by a route that takes everything.
    assert_eq!((&ours["continue"], last), (&json!(true), &json!({ "receiver": shipped["route"]["receiver"] })));
    // What is muted when it ends is never told to be over.
    assert!(shipped.get("inhibit_rules").is_none() && ours.get("mute_time_intervals").is_none());
}

/// Run a block as a shell would in the root of the repository, except that what it writes goes elsewhere.
fn run_block(text: &str) -> Output {
    let place = tempfile::tempdir().unwrap();
    for folder in ["docs", "fixtures"] {
        std::os::unix::fs::symlink(root().join(folder), place.path().join(folder)).unwrap();
    }
    // What cargo would build and run has been built already.
    let cargo = "cargo() { while [ \"$1\" != -- ]; do shift; done; shift; gpu-quarantine \"$@\"; }";
    let path = format!("{}:{}", Path::new(PROGRAM).parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let script = format!("set -eu\n{cargo}\n{text}");
    Command::new("sh").args(["-c", &script]).current_dir(place.path()).env("PATH", path).output().unwrap()
}

/// The documents whose commands are run.
const RUN: [&str; 2] = ["README.md", "docs/tuning.md"];

#[test]
fn the_commands_in_the_readme_and_in_tuning_run() {
    for document in RUN {
        let (_, blocks) = parts(&read(document));
        let mut seen = BTreeSet::new();
        for block in blocks.iter().filter(|b| b.info == "sh") {
            for line in block.text.replace("\\\n", " ").lines() {
                let command =
                    line.strip_prefix("cargo run --locked --quiet -- ").or_else(|| line.strip_prefix("gpu-quarantine "));
                let word = command.and_then(|c| c.split_whitespace().next());
                assert!(
                    matches!(word, Some("replay" | "explain")),
                    "a test runs blocks marked `sh`; mark others `console`: {line}"
                );
                seen.extend(word.map(str::to_owned));
            }
            let output = run_block(&block.text);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{document}: {}\n{}: {errors}", block.text, output.status);
        }
        assert_eq!(seen.len(), 2, "{document}: both replay and explain are shown");
    }
}

#[test]
fn the_output_of_explain_in_the_readme_and_in_tuning_is_what_it_prints() {
    for document in RUN {
        let (_, blocks) = parts(&read(document));
        let at = blocks.iter().position(|b| b.info == "sh" && b.text.contains("-- explain ")).expect("explain is shown");
        let (command, shown) = (&blocks[at], &blocks[at + 1]);
        let printed = String::from_utf8(run_block(&command.text).stdout).unwrap();
        for (line, printed) in shown.text.lines().zip(printed.lines()) {
            match line.strip_suffix("...") {
                Some(beginning) => assert!(printed.starts_with(beginning), "{document}: {line}"),
                None => assert_eq!(line, printed, "{document}"),
            }
        }
        assert_eq!(shown.text.lines().count(), printed.lines().count(), "{document}");
    }
}

/// A block whose info names a file after the language shows that file.
#[test]
fn the_files_shown_in_tuning_are_those_of_the_example() {
    let (_, blocks) = parts(&read("docs/tuning.md"));
    let shown = blocks.iter().filter_map(|b| Some((b.info.strip_prefix("yaml ")?, &b.text)));
    let mut files = 0;
    for (file, text) in shown {
        assert_eq!(*text, read(file), "docs/tuning.md shows another {file}");
        files += 1;
    }
    assert_eq!(files, 3, "the rules, their test, and the evidence");
}

/// The first cells of the table below a heading, without their backticks.
fn first_cells(document: &str, heading: &str) -> BTreeSet<String> {
    let section = document.split(&format!("\n{heading}\n")).nth(1).unwrap_or_else(|| panic!("{heading} is missing"));
    let rows = section.lines().skip_while(|l| !l.starts_with('|')).take_while(|l| l.starts_with('|')).skip(2);
    rows.filter_map(|row| row.split('|').nth(1)).map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

#[test]
fn the_tables_of_outcomes_and_states_are_complete_and_name_nothing_else() {
    let operations = read("docs/operations.md");
    let outcomes = Outcome::ALL.iter().map(|o| o.as_str().to_owned()).collect();
    assert_eq!(first_cells(&operations, "## Outcomes of an alert"), outcomes);
    let states = NodeState::ALL.iter().map(|s| s.as_str().to_owned()).collect();
    assert_eq!(first_cells(&operations, "## States of a node"), states);
    let answers = EvictionAnswer::ALL.iter().map(|answer| (*answer).to_owned()).collect();
    assert_eq!(first_cells(&operations, "### What was answered"), answers);
    let pods = EvicteeState::ALL.iter().map(|s| s.as_str().to_owned()).collect();
    assert_eq!(first_cells(&operations, "### States of a pod"), pods);
}

#[test]
fn the_flags_of_each_command_are_those_of_its_help() {
    let operations = read("docs/operations.md");
    for command in COMMANDS {
        let output = Command::new(PROGRAM).args(command.split(' ')).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let flag = |line: &str| line.trim_start().trim_start_matches("-h, ").split_whitespace().next().map(str::to_owned);
        let flags: BTreeSet<String> = help.lines().filter_map(flag).filter(|f| f.starts_with("--")).collect();
        assert!(flags.contains("--help"), "{help}");
        assert_eq!(first_cells(&operations, &format!("### `{command}`")), flags, "{command}");
    }
}

/// A cluster that can be read and refuses every write, so that each metric has a value.
#[derive(Debug)]
struct ReadOnly(SnapshotCluster);

impl Cluster for ReadOnly {
    fn ready(&self) -> bool {
        self.0.ready()
    }

    fn inventory(&self) -> &RwLock<Inventory> {
        self.0.inventory()
    }

    fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.changes()
    }

    fn get<'a>(&'a self, node: &'a NodeName) -> BoxFuture<'a, Result<Option<NodeFacts>, ClusterError>> {
        self.0.get(node)
    }

    fn patch<'a>(&'a self, node: &'a NodeName, _: &'a Value) -> BoxFuture<'a, Result<NodeFacts, ClusterError>> {
        Box::pin(async move { Err(ClusterError::Refused { node: node.clone(), message: "read only".to_owned() }) })
    }

    fn exporter_pods<'a>(&'a self, selectors: &'a [Selector]) -> BoxFuture<'a, Result<Vec<ExporterPod>, String>> {
        self.0.exporter_pods(selectors)
    }
}

#[tokio::test]
async fn the_table_of_metrics_is_what_the_service_shows() {
    let config = policy::load("minimal.yaml", MINIMAL).unwrap();
    let cluster = SnapshotCluster::load("prod-a.yaml", &read("fixtures/clusters/prod-a.yaml"), "gpu-quarantine.dev").unwrap();
    // One node that is isolated, so that the metrics that name such nodes are there.
    let isolated = |node: &mut Value| {
        let taint = json!({ "key": "gpu-quarantine.dev/isolated", "value": "gpu-lost", "effect": "NoSchedule" });
        let record = json!({
            "v": 1, "owner": "default", "node": { "uid": node["metadata"]["uid"] },
            "added": { "taint": taint, "cordon": false, "at": "2026-11-29T19:15:05Z" }, "before": { "unschedulable": false },
            "claims": [{ "alert": "GpuLost", "policy": "gpu-lost", "action": "isolate", "state": "firing",
                "since": "2026-11-29T19:15:05Z", "members": [{ "fp": "0bbd80be98181e25", "startsAt": "2026-11-29T19:15:05Z" }] }],
        });
        node["spec"]["taints"] = json!([taint]);
        node["metadata"]["annotations"] = json!({ "gpu-quarantine.dev/record": record.to_string() });
    };
    cluster.edit(&NodeName::parse("gpu-node-03").unwrap(), isolated).unwrap();
    let metrics = Arc::new(Metrics::new());
    metrics.expect_policies(&config);
    let cluster = Arc::new(ReadOnly(cluster));
    let engine = Arc::new(Engine::new(cluster, config, Arc::new(SystemClock), Arc::clone(&metrics), Box::new(drop)));
    engine.refresh().await;
    let app = App::new(Arc::clone(&engine), Arc::clone(&metrics), Box::new(|| Box::pin(async { Ok(()) })));
    let router = Arc::new(app).router();
    // One is refused by its node, the other names none.
    for body in ["fixtures/incident/01-first-gpu-lost.json", "fixtures/traps/localhost.json"] {
        let request = Request::post("/api/v1/alerts").header(header::CONTENT_TYPE, "application/json");
        let answer = router.clone().oneshot(request.body(Body::from(read(body))).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
    let text = metrics.render(&engine);
    let shown: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
        .collect();
    assert!(shown.contains("gpu_quarantine_node_write_failures_total"), "{text}");
    assert_eq!(first_cells(&read("docs/operations.md"), "## Metrics"), shown);
}
