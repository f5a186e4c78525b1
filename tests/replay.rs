//! `replay` of every recorded body and of whole incidents, against saved expectations.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests, but clippy knows only the functions marked so")]

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use rstest::rstest;
use serde_json::Value;

#[path = "support/command.rs"]
mod command;

use command::{on_prod_a, run, run_with};

const BODY: &str = "fixtures/payloads/01-firing-one.json";
const EXPECTED: &str = "fixtures/replay/expected/01-firing-one.json";
const AFTER_A_BODY: &str = "+15m";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names of the files of a directory that end so, without that end.
fn names(dir: &str, end: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(dir)).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    entries.map(name).filter_map(|n| n.strip_suffix(end).map(str::to_owned)).collect()
}

fn replay(args: &[&str]) -> command::Ran {
    run(&on_prod_a("replay", args))
}

fn replay_json(steps: &[&str]) -> Value {
    serde_json::from_str(&replay(&[&["--output", "json"], steps].concat()).well()).unwrap()
}

fn steps_of(scenario: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(format!("fixtures/replay/scenarios/{scenario}.steps"))).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Compare with a saved expectation; with `GPU_QUARANTINE_BLESS=1`, save it.
fn check(expected: &str, steps: &[&str]) {
    if env::var_os("GPU_QUARANTINE_BLESS").is_some() {
        let json = replay(&[&["--output", "json"], steps].concat()).well();
        fs::write(root().join(expected), json).unwrap();
    }
    let ran = replay(&[&["--output", "json", "--expect", expected], steps].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[rstest]
fn every_recorded_body_gives_what_is_expected_of_it(#[values("payloads", "traps")] dir: &str) {
    for name in names(&format!("fixtures/{dir}"), ".json") {
        let body = format!("fixtures/{dir}/{name}.json");
        let error = root().join(format!("fixtures/replay/expected/{name}.error.txt"));
        if error.exists() {
            assert_eq!(replay(&[&body, AFTER_A_BODY]).failed(2), fs::read_to_string(error).unwrap());
        } else {
            check(&format!("fixtures/replay/expected/{name}.json"), &[&body, AFTER_A_BODY]);
        }
    }
}

#[test]
fn every_recorded_body_has_one_expectation_and_every_expectation_its_body() {
    let bodies: Vec<_> = names("fixtures/payloads", ".json").into_iter().chain(names("fixtures/traps", ".json")).collect();
    let expected: Vec<_> =
        names("fixtures/replay/expected", ".json").into_iter().chain(names("fixtures/replay/expected", ".error.txt")).collect();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    assert_eq!(sorted(bodies), sorted(expected));
}

#[test]
fn every_scenario_gives_what_is_expected_of_it() {
    let scenarios = names("fixtures/replay/scenarios", ".steps");
    for scenario in &scenarios {
        let steps = steps_of(scenario);
        let steps: Vec<_> = steps.iter().map(String::as_str).collect();
        check(&format!("fixtures/replay/scenarios/{scenario}.json"), &steps);
    }
    assert_eq!(names("fixtures/replay/scenarios", ".json"), scenarios);
}

/// The link is up ten minutes after the fault ended for Prometheus, and twenty after Alertmanager said so.
#[test]
fn evidence_that_is_stated_releases_a_node_ten_minutes_after_the_fault_is_gone() {
    let with = |last: &str| {
        run(&[
            "replay",
            "--config.file",
            "fixtures/tuning/with-evidence.yaml",
            "--cluster",
            "fixtures/clusters/prod-a.yaml",
            "fixtures/tuning/bodies",
            "evidence:fixtures/tuning/evidence/link-down.yaml",
            "+15m",
            "evidence:fixtures/tuning/evidence/link-up.yaml",
            last,
        ])
    };
    let short = with("+9m").well();
    assert!(
        !short.contains("RELEASE") && short.contains("waiting for evidence: GpuNodeInfinibandDown was seen to be gone for"),
        "{short}"
    );
    let whole = with("+15m").well();
    insta::assert_snapshot!("replay-evidence", whole);
}

const EVICTION: [&str; 5] =
    ["replay", "--config.file", "fixtures/eviction/config.yaml", "--cluster", "fixtures/eviction/cluster.yaml"];
const EVICTED: &str = "fixtures/eviction/expected.json";

/// A rank of a Job goes; a budget, a policy of failures, a protection and a missing label each keep a pod, and a DaemonSet's is not
/// worth a word.
#[test]
fn an_eviction_is_told_pod_by_pod_with_who_is_left_and_why() {
    let steps = ["fixtures/eviction/01-gpu-lost.json", "+1m", "+10m"];
    let text = run(&[&EVICTION as &[&str], &steps].concat()).well();
    insta::assert_snapshot!("replay-eviction", text);
    let json = [&EVICTION as &[&str], &["--output", "json"], &steps].concat();
    if env::var_os("GPU_QUARANTINE_BLESS").is_some() {
        fs::write(root().join(EVICTED), run(&json).well()).unwrap();
    }
    let ran = run(&[&json as &[&str], &["--expect", EVICTED]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn the_json_of_an_eviction_has_each_pod_and_where_it_stands() {
    let ran = run(&[&EVICTION as &[&str], &["--output", "json", "fixtures/eviction/01-gpu-lost.json", "+1m"]].concat());
    let json: Value = serde_json::from_str(&ran.well()).unwrap();
    let told = |at: usize| {
        let step = &json["steps"][at];
        let pods: Vec<String> = step["pods"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|pod| format!("{} {}", pod["pod"].as_str().unwrap(), pod["outcome"].as_str().unwrap()))
            .collect();
        (step["action"].as_str().unwrap().to_owned(), pods)
    };
    assert_eq!(told(0), ("isolate".to_owned(), Vec::new()), "first it is isolated");
    let asked = ["team-a/llm-0 accepted", "team-b/chat-5d9c-x2x4t blocked"].map(str::to_owned).to_vec();
    assert_eq!(told(2), ("evict".to_owned(), asked));
    let eviction = &json["nodes"][0]["eviction"];
    let states: Vec<&str> = eviction["pods"].as_array().unwrap().iter().map(|pod| pod["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["gone", "left", "blocked"]);
    assert!(json["nodes"][1].get("eviction").is_none(), "a pod of the Job on another node is not touched");
    let evidence = eviction["evidence"].as_str().unwrap();
    assert!(evidence.starts_with("gpu-quarantine-evidence-gpu-1-"), "{evidence}");
}

#[test]
fn a_file_of_evidence_that_cannot_be_read_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("evidence.yaml");
    fs::write(&file, "nodes:\n  - node: gpu-node-07\n    gon: [GpuLost]\n").unwrap();
    let message = replay(&[BODY, &format!("evidence:{}", file.display())]).failed(2);
    assert!(message.contains("evidence.yaml") && message.contains("gon") && message.contains('3'), "{message}");
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let steps = steps_of("guard");
    let steps: Vec<_> = ["--output", "json"].into_iter().chain(steps.iter().map(String::as_str)).collect();
    assert_eq!(replay(&steps).well(), replay(&steps).well());
}

#[test]
fn json_is_one_object_with_results_steps_and_nodes() {
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    let json = replay_json(&[BODY]);
    assert_eq!(keys(&json), set(&["results", "steps", "nodes"]));
    assert_eq!(keys(&json["results"][0]), set(&["alertname", "fingerprint", "outcome", "node", "policy", "reason"]));
    assert_eq!(keys(&json["steps"][0]), set(&["at", "node", "action", "policy", "reason", "patch"]));
    let node = ["name", "uid", "isolated", "unschedulable", "taints", "state", "waiting_for", "claims", "history"];
    assert_eq!(keys(&json["nodes"][0]), set(&node));
    assert_eq!(json["nodes"].as_array().unwrap().len(), 16);
}

#[test]
fn a_difference_ends_with_1_and_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let changed = dir.path().join("changed.json");
    let text = fs::read_to_string(root().join(EXPECTED)).unwrap();
    fs::write(&changed, text.replacen(r#""outcome": "recorded""#, r#""outcome": "pending""#, 1)).unwrap();
    let changed = changed.display().to_string();
    let message = replay(&["--output", "json", "--expect", &changed, BODY, AFTER_A_BODY]).failed(1);
    assert!(message.starts_with(&format!("the result differs from {changed}:\n")), "{message}");
    for line in [
        r#"-       "outcome": "pending","#,
        r#"+       "outcome": "recorded","#,
        r#"        "fingerprint": "17ca147fb85cd638","#,
        "- is what was expected, + is what came",
    ] {
        assert!(message.lines().any(|l| l == line), "{line}\n{message}");
    }
    assert!(!message.contains("gpu-node-31"), "far lines are left out: {message}");
}

#[test]
fn an_expectation_is_compared_in_text_output_too() {
    let text = replay(&["--expect", EXPECTED, BODY, AFTER_A_BODY]).well();
    assert!(text.contains("ISOLATE gpu-node-07"), "{text}");
    replay(&["--expect", EXPECTED, BODY]).well();
    replay(&["--expect", EXPECTED, "fixtures/payloads/14b-firing-again-after-restart.json"]).failed(1);
}

#[test]
fn a_body_comes_from_standard_input() {
    let body = fs::read_to_string(root().join(BODY)).unwrap();
    let ran = run_with(&on_prod_a("replay", &["--expect", EXPECTED, "-", AFTER_A_BODY]), &body);
    assert!(ran.well().contains("standard input for receiver"));
    let message = run_with(&on_prod_a("replay", &["-"]), "{}").failed(2);
    assert!(message.starts_with("standard input: the body is not that of an Alertmanager webhook"), "{message}");
    let message = run_with(&on_prod_a("replay", &["-", "-"]), &body).failed(2);
    assert!(message.contains("standard input can be read once only"), "{message}");
}

#[test]
fn a_directory_is_read_in_name_order() {
    let dir = tempfile::tempdir().unwrap();
    // Written backwards, since most file systems list in an order of their own.
    for file in steps_of("all-in-name-order").iter().rev() {
        let file = Path::new(file);
        fs::copy(root().join(file), dir.path().join(file.file_name().unwrap())).unwrap();
    }
    fs::write(dir.path().join("notes.txt"), "no body").unwrap();
    let path = dir.path().display().to_string();
    replay(&["--expect", "fixtures/replay/scenarios/all-in-name-order.json", &path]).well();

    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let message = replay(&[empty.to_str().unwrap()]).failed(2);
    assert!(message.contains("has no *.json files"), "{message}");
}

#[rstest]
#[case("+0s", "2026-11-29T19:15:05.278Z")]
#[case("+90s", "2026-11-29T19:16:35.278Z")]
#[case("+1h30m", "2026-11-29T20:45:05.278Z")]
#[case("+2d", "2026-12-01T19:15:05.278Z")]
fn time_passes_as_told(#[case] step: &str, #[case] end: &str) {
    let text = replay(&[BODY, step]).well();
    assert!(text.lines().any(|l| l == format!("{end}  the end")), "{text}");
}

#[rstest]
fn what_is_no_duration_is_refused(#[values("+", "+10", "+ten", "+-1m", "+1y2z", "+99999999999999y")] step: &str) {
    let message = replay(&[BODY, step]).failed(2);
    assert_eq!(message, format!("step {step:?} is not a duration: write +10m, +1h30m or +90s\n"));
}

#[rstest]
#[case(&["fixtures/payloads/none.json"], "fixtures/payloads/none.json")]
#[case(&[BODY, "+10m", "none-either.json"], "none-either.json")]
#[case(&["--expect", "no-expectation.json", BODY], "no-expectation.json")]
fn a_missing_file_is_named(#[case] args: &[&str], #[case] file: &str) {
    let message = replay(args).failed(2);
    assert!(message.starts_with(&format!("cannot read {file}: ")), "{message}");
}

#[test]
fn without_a_step_there_is_nothing_to_replay() {
    let message = replay(&[]).failed(2);
    assert!(message.contains("<STEP>"), "{message}");
}

#[test]
fn a_released_node_is_what_it_was_before_but_for_its_history() {
    // Resolves of what never fired: nothing is touched.
    let before = replay_json(&["fixtures/payloads/03-resolved-all.json"]);
    let steps = steps_of("two-nodes-there-and-back");
    let mut after = replay_json(&steps.iter().map(String::as_str).collect::<Vec<_>>());
    let actions: Vec<_> = after["steps"].as_array().unwrap().iter().map(|s| s["action"].clone()).collect();
    assert_eq!(actions, ["isolate", "isolate", "release", "release"]);
    let mut histories = Vec::new();
    for node in after["nodes"].as_array_mut().unwrap() {
        let history = std::mem::replace(&mut node["history"], Value::Array(Vec::new()));
        histories.push((node["name"].as_str().unwrap().to_owned(), history.as_array().unwrap().len()));
    }
    histories.retain(|(_, episodes)| *episodes > 0);
    assert_eq!(histories, [("gpu-node-07".to_owned(), 2), ("gpu-node-12".to_owned(), 2)]);
    assert_eq!(after["nodes"], before["nodes"]);
    let foreign = &before["nodes"][2]["taints"];
    assert_eq!(foreign[0]["key"], "example.com/dedicated", "one of them has a taint that must survive");
    let release = &after["steps"][2]["patch"];
    assert_eq!(&release["spec"]["taints"], foreign);
    let annotations = release["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["gpu-quarantine.dev/record"]);
    assert!(release["metadata"]["resourceVersion"].is_string());
    assert_eq!((release.as_object().unwrap().len(), release["spec"].as_object().unwrap().len()), (2, 1));
}

#[rstest]
fn the_timeline_tells_an_incident(#[values("isolate-relapse-release", "guard", "frozen")] scenario: &str) {
    let steps = steps_of(scenario);
    let text = replay(&steps.iter().map(String::as_str).collect::<Vec<_>>()).well();
    let saved: PathBuf = root().join("tests/snapshots");
    insta::with_settings!({ snapshot_path => saved, prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("replay-{scenario}"), text);
    });
}

#[test]
fn times_stand_in_one_column_and_names_cannot_steer_the_terminal() {
    let body = fs::read_to_string(root().join("fixtures/traps/vmalert.json")).unwrap();
    let text = run_with(&on_prod_a("replay", &["-"]), &body.replace("GpuLost", r"Gpu\u001b[2JLost")).well();
    assert!(text.starts_with("2026-11-29T20:15:00.000Z  standard input"), "{text}");
    assert!(text.lines().all(|l| l.is_char_boundary(24) && (l[..24].ends_with('Z') || l[..24].trim().is_empty())), "{text}");
    assert!(text.contains("Gpu\u{fffd}[2JLost") && !text.contains('\u{1b}'), "{text}");
}
