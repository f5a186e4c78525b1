//! What is asked, and how answers are read.

use rstest::rstest;
use serde_json::{Value, json};

use super::{answer, present::present, query};
use crate::{
    alert::{Labels, RecoveryQuery},
    locate::Gpu,
    policy::{self, Config},
    quarantine::evidence::{Range, Series},
};

const A: &str = "GPU-00000000-0000-0000-0000-00000000000a";
const B: &str = "GPU-00000000-0000-0000-0000-00000000000b";

fn config(more: &str) -> Config {
    let text = format!(
        "release: {{require: [evidence]}}\nsources: {{prometheus: {{query_url: 'http://p', selector: ['cluster=\"prod-a\"', \
         'env!~\"x|y\"']}}}}\n{more}"
    );
    policy::load("config.yaml", &text).unwrap_or_else(|e| panic!("{e}"))
}

fn presence(config: &Config, hosts: &[&str]) -> Result<String, String> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    query::presence(config.prometheus.as_ref().unwrap(), &config.locate, &hosts)
}

#[test]
fn presence_is_asked_for_fresh_samples_of_every_label_that_can_name_the_node() {
    let config =
        config("locate: {node_labels: [node], hostname_labels: [node, Hostname], pci_labels: [], index_labels: [gpu]}\n");
    let asked = presence(&config, &["gpu-1", "gpu-1.example.com", ""]).unwrap();
    let of = |label: &str| {
        let series = format!(
            "{{__name__=~\"METRICS\",{label}=~\"(?i)(?:gpu\\\\-1|gpu\\\\-1\\\\.example\\\\.com)\",cluster=\"prod-a\",env!~\"x|y\"}}"
        );
        format!(
            "group by (UUID,uuid,gpu_uuid,gpu) (last_over_time({series}[2m])) and group by (UUID,uuid,gpu_uuid,gpu) ({series})"
        )
    };
    let (before, rest) = asked.split_once("__name__=~\"").unwrap();
    let (metrics, _) = rest.split_once('"').unwrap();
    assert_eq!(asked.replace(metrics, "METRICS"), format!("{} or {}", of("node"), of("Hostname")));
    assert!(!before.contains("METRICS") && promql_parser::parser::parse(&asked).is_ok());
}

#[test]
fn the_metrics_are_those_behind_the_presence_of_the_rule_pack() {
    let rules = include_str!("../../../alert-rules/normalise.yaml");
    let (_, present) = rules.split_once("- record: gpu:present:max").unwrap();
    let (present, _) = present.split_once("- record:").unwrap();
    let mut want: Vec<&str> = Vec::new();
    for rule in rules.split("- record: ").filter(|rule| present.contains(rule.split_whitespace().next().unwrap())) {
        let names = rule.split("__name__=~\"").skip(1).filter_map(|rest| rest.split('"').next());
        want.extend(names.flat_map(|names| names.split('|')));
    }
    let asked = presence(&config(""), &["a"]).unwrap();
    let mut asked: Vec<&str> = asked.split("__name__=~\"").nth(1).unwrap().split('"').next().unwrap().split('|').collect();
    want.sort_unstable();
    asked.sort_unstable();
    want.dedup();
    assert_eq!(asked, want);
}

#[rstest]
#[case::regex("a.*|b", r"(?i)(?:a\\.\\*\\|b)")]
#[case::quote("a\"}) or vector(1) #", "(?i)(?:a\\\"\\\\}\\\\) or vector\\\\(1\\\\) \\\\#)")]
#[case::backslash("a\\", r"(?i)(?:a\\\\)")]
#[case::line("a\nb\0", r"(?i)(?:a\x0ab\x00)")]
fn a_hostile_name_stays_a_text(#[case] host: &str, #[case] want: &str) {
    let asked = presence(&config("locate: {node_labels: [node], hostname_labels: []}\n"), &[host]).unwrap();
    assert!(asked.contains(&format!(",node=~\"{want}\",cluster=")), "{asked}");
    assert!(promql_parser::parser::parse(&asked).is_ok(), "{asked}");
}

#[test]
fn names_that_are_no_words_are_quoted() {
    let asked =
        presence(&config("locate: {node_labels: ['node.name'], hostname_labels: [], uuid_labels: ['gpu.uuid', '1']}\n"), &["a"]);
    let asked = asked.unwrap();
    assert!(asked.contains("\"node.name\"=~") && asked.contains("by (\"gpu.uuid\",\"1\",pci_bus_id,"), "{asked}");
    assert!(promql_parser::parser::parse(&asked).is_ok(), "{asked}");
}

#[test]
fn without_a_name_or_a_label_nothing_is_asked() {
    let why = presence(&config(""), &["", ""]).unwrap_err();
    assert!(why.contains("no name by which"), "{why}");
    let why = presence(&config("locate: {node_labels: [], hostname_labels: []}\n"), &["a"]).unwrap_err();
    assert!(why.contains("no label is known that names a node"), "{why}");
}

#[test]
fn a_recovery_query_becomes_one_series_of_numbers() {
    let text = query::recovery(&RecoveryQuery::parse("up == 1 # is it?").unwrap());
    assert_eq!(text, "group((up == 1 # is it?\n) >= -Inf)");
    assert!(promql_parser::parser::parse(&text).is_ok());
}

fn range() -> Range {
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    Range { from: at(1_001), to: at(1_061), step: std::time::Duration::from_secs(30) }
}

fn steps(seconds: &[i64]) -> Series {
    seconds.iter().map(|s| jiff::Timestamp::from_second(*s).unwrap()).collect()
}

fn matrix(answer: &Value) -> Result<Vec<(Labels, Series)>, String> {
    answer::matrix(answer.to_string().as_bytes(), &range())
}

fn success(result: &Value) -> Value {
    json!({"status": "success", "data": {"resultType": "matrix", "result": result}})
}

#[test]
fn a_step_counts_if_there_is_a_number() {
    let found = matrix(&success(&json!([
        {"metric": {"gpu": "0"}, "values": [[1001, "1"], [1031.0, "NaN"], [1061, "+Inf"]]},
        {"metric": {}, "values": [[1031, "-1e-3"]]},
        {"metric": {"gpu": "1"}, "histograms": [[1001, {"count": "1"}]]},
    ])));
    let labels = |pairs: &[(&str, &str)]| -> Labels { pairs.iter().copied().collect() };
    let want = vec![
        (labels(&[("gpu", "0")]), steps(&[1001, 1061])),
        (labels(&[]), steps(&[1031])),
        (labels(&[("gpu", "1")]), steps(&[])),
    ];
    assert_eq!(found, Ok(want));
    assert_eq!(matrix(&success(&json!([]))), Ok(vec![]));
}

#[rstest]
#[case::error(json!({"status": "error", "errorType": "timeout", "error": "query timed out\nin here"}), "it says: query timed out in here")]
#[case::warning(
    json!({"status": "success", "data": {"resultType": "matrix", "result": []}, "warnings": ["no store matched"]}),
    "may be partial, it warns: no store matched"
)]
#[case::partial(
    json!({"status": "success", "isPartial": true, "data": {"resultType": "matrix", "result": []}}),
    "the answer is partial"
)]
#[case::vector(json!({"status": "success", "data": {"resultType": "vector", "result": []}}), "did not answer with a matrix")]
#[case::no_data(json!({"status": "success"}), "it has no data")]
#[case::something_else(json!({"alerts": []}), "is not that of Prometheus' HTTP API v1")]
#[case::a_list(json!([]), "is not that of Prometheus' HTTP API v1")]
#[case::other_steps(success(&json!([{"metric": {}, "values": [[1000, "1"]]}])), "it answered for other times")]
#[case::a_fraction(success(&json!([{"metric": {}, "values": [[1001.5, "1"]]}])), "it answered for other times")]
#[case::no_time(success(&json!([{"metric": {}, "values": [[1e300, "1"]]}])), "it answered for other times")]
#[case::cut(success(&json!(vec![json!({"metric": {}}); 513])), "has 513 series, more than 512")]
fn an_answer_that_is_not_whole_shows_nothing(#[case] answer: Value, #[case] want: &str) {
    let why = matrix(&answer).unwrap_err();
    assert!(why.contains(want), "{why}");
}

#[test]
fn what_prometheus_only_remarks_does_no_harm() {
    let mut answer = success(&json!([]));
    answer["infos"] = json!(["metric might not be a counter"]);
    answer["warnings"] = json!([]);
    assert_eq!(matrix(&answer), Ok(vec![]));
}

/// Labels, and the steps at which there was a number.
type Shown<'a> = (&'a [(&'a str, &'a str)], &'a [i64]);

fn gpus(series: &[Shown<'_>]) -> Vec<(Vec<String>, Series)> {
    let found = series.iter().map(|(labels, at)| (labels.iter().copied().collect(), steps(at))).collect();
    let present = present(found, &config("").locate);
    present.into_iter().map(|gpu| (gpu.names.iter().map(Gpu::to_string).collect(), gpu.at)).collect()
}

#[test]
fn one_gpu_of_two_exporters_pods_and_mig_instances_is_one() {
    let of_mig = "MIG-00000000-0000-0000-0000-0000000000ff";
    let found = gpus(&[
        (&[("gpu", "0"), ("UUID", A), ("device", "nvidia0"), ("pci_bus_id", "00000000:1B:00.0")], &[1]),
        (&[("uuid", A.trim_start_matches("GPU-"))], &[2]),
        (&[("pci_bus_id", "1b:00.0")], &[3]),
        (&[("gpu", "0")], &[4]),
        (&[("gpu", "0"), ("UUID", of_mig)], &[5]),
        (&[("gpu", "1"), ("UUID", B)], &[1]),
        (&[("device", "mlx5_0")], &[6]),
    ]);
    let first = vec![A.to_owned(), "00000000:1B:00.0".to_owned(), "index:0".to_owned()];
    let second = vec![B.to_owned(), "index:1".to_owned()];
    assert_eq!(found, [(first, steps(&[1, 2, 3, 4, 5])), (second, steps(&[1]))]);
}

#[test]
fn what_could_be_either_of_two_gpus_is_neither() {
    // The GPU in the slot was replaced: the index alone does not say of which it is.
    let found = gpus(&[(&[("gpu", "0"), ("UUID", A)], &[1]), (&[("gpu", "0"), ("UUID", B)], &[2]), (&[("gpu", "0")], &[3])]);
    assert_eq!(found.iter().map(|(_, at)| at.clone()).collect::<Vec<_>>(), [steps(&[1]), steps(&[2])]);
}

#[test]
fn a_gpu_without_a_uuid_beside_others_with_one_could_be_any_of_them() {
    let found = gpus(&[(&[("UUID", A)], &[1]), (&[("gpu", "7")], &[1])]);
    assert_eq!(found, [(vec![A.to_owned()], steps(&[1]))]);
    let found = gpus(&[(&[("gpu", "6")], &[1]), (&[("device", "nvidia7")], &[2])]);
    assert_eq!(found, [(vec!["index:6".to_owned()], steps(&[1])), (vec!["index:7".to_owned()], steps(&[2]))]);
}

#[test]
fn of_the_rules_what_fires_with_a_query_and_what_fails_is_read() {
    let alert = |state: &str, cluster: &str, query: Option<&str>| {
        let mut alert = json!({"state": state, "labels": {"alertname": "A", "node": "n1"}, "annotations": {"summary": "x"}});
        if !cluster.is_empty() {
            alert["labels"]["cluster"] = cluster.into();
        }
        if let Some(query) = query {
            alert["annotations"]["recovery_query"] = query.into();
        }
        alert
    };
    let rule = |health: &str, error: &str, alerts: Value| json!({"type": "alerting", "name": "A", "query": "up", "health": health, "lastError": error, "alerts": alerts});
    let answer = json!({"status": "success", "data": {"groups": [
        {"name": "g", "file": "f", "rules": [
            rule("ok", "", json!([
                alert("firing", "", Some("up")), alert("pending", "", Some("down")), alert("firing", "", None),
                alert("firing", "prod-a", Some("near")), alert("firing", "prod-b", Some("far")),
            ])),
            rule("err", "vector contains\nduplicates", json!([alert("firing", "", Some("still"))])),
        ]},
        {"name": "h", "rules": [{"type": "alerting", "name": "B", "health": "unknown", "alerts": null}, {}]},
        {"name": "empty"},
    ]}});
    let found = answer::rules(answer.to_string().as_bytes(), &config("").prometheus.unwrap().selector).unwrap();
    let queries: Vec<&str> = found.alerts.iter().map(|a| a.recovery_query.as_str()).collect();
    assert_eq!(queries, ["up", "near", "still"]);
    assert_eq!(found.alerts[0].labels.get("node"), Some("n1"));
    let failing: Vec<String> = found.failing.iter().map(ToString::to_string).collect();
    assert_eq!(failing, ["the rule A fails: vector contains duplicates"]);
}

#[test]
fn a_rule_that_reads_what_a_failing_one_records_is_told_as_well() {
    let rule =
        |name: &str, query: &str, health: &str| json!({"type": "recording", "name": name, "query": query, "health": health});
    let answer = json!({"status": "success", "data": {"groups": [
        {"name": "g", "rules": [
            rule("node:gpus:count", "count by (node) (gpu:present:max)", "ok"), rule("gpu:present", "vector(1)", "ok"),
            rule("gpu:present:max", "max by (node) (DCGM_FI_DEV_GPU_TEMP)", "err"), rule("node:few:bool", "node:gpus:count < 8", "ok"),
        ]},
    ]}});
    let found = answer::rules(answer.to_string().as_bytes(), &[]).unwrap();
    let failing: Vec<String> = found.failing.iter().map(ToString::to_string).collect();
    assert_eq!(
        failing,
        [
            "the rule gpu:present:max fails: ",
            "the rule node:gpus:count fails: it reads gpu:present:max, which fails",
            "the rule node:few:bool fails: it reads node:gpus:count, which fails",
        ]
    );
}
