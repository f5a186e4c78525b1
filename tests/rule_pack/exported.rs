//! A rule or panel on a series that nobody exports stays silent for ever: each must come from a CSV of `deploy/dcgm-exporter/`, from
//! kube-state-metrics, from us, or from a record.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    pack::{files_in, no_problem, pack, read},
    promql::{self, Expr},
};

/// Of kube-state-metrics, with its default settings but for the allow list of labels of Nodes.
const KUBE_STATE_METRICS: [&str; 7] = [
    "kube_node_info",
    "kube_node_labels",
    "kube_node_status_allocatable",
    "kube_node_status_capacity",
    "kube_pod_container_status_restarts_total",
    "kube_pod_info",
    "kube_pod_status_ready",
];
/// Of Prometheus itself.
const PROMETHEUS: [&str; 3] = ["ALERTS", "ALERTS_FOR_STATE", "up"];

/// What a rule reads although no CSV lists it, and why.
const IN_NO_CSV: [(&str, &[&str]); 3] = [
    (
        "exporters before 2.0, and `--use-old-namespace`, whose names are older than every CSV here",
        &["dcgm_fb_used", "dcgm_gpu_temp", "dcgm_gpu_utilization", "dcgm_power_usage", "dcgm_sm_clock", "dcgm_xid_errors"],
    ),
    (
        "new names of DCGM 4.7 that the CSV of exporter 4.9 leaves out since they are not verified; its own default file has them",
        &["DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_GPU_UTIL_RATIO"],
    ),
    (
        "names that only some versions between two CSVs know, so that to list them would stop the others at their start",
        &[
            "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION",
            "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
            "DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL",
        ],
    ),
];

/// The CSVs, from the oldest exporter on.
pub(crate) const GENERATIONS: [&str; 5] = ["2.6", "3.4", "4.0", "4.8.3", "4.9"];

/// The first and the last generation that can have a field, for every field that a rule reads. An unknown name stops the exporter at
/// its start, so this is what its CSV may list, and no more.
const FIELDS: [(&str, &str, &[&str]); 8] = [
    ("2.6", "4.9", &["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL"]),
    (
        "2.6",
        "4.8.3",
        &[
            "DCGM_FI_DEV_GPU_TEMP",
            "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
            "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
            "DCGM_FI_DEV_POWER_USAGE",
            "DCGM_FI_DEV_RETIRED_DBE",
            "DCGM_FI_DEV_RETIRED_PENDING",
            "DCGM_FI_DEV_RETIRED_SBE",
            "DCGM_FI_DEV_ROW_REMAP_FAILURE",
            "DCGM_FI_DEV_SLOWDOWN_TEMP",
            "DCGM_FI_DEV_SM_CLOCK",
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
            "DCGM_FI_DEV_XID_ERRORS",
            "DCGM_FI_DRIVER_VERSION",
        ],
    ),
    ("2.6", "3.4", &["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"]),
    ("3.4", "4.9", &["DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_ROW_REMAP_PENDING"]),
    ("4.0", "4.9", &["DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_FABRIC_MANAGER_STATUS"]),
    (
        "4.0",
        "4.8.3",
        &["DCGM_FI_DEV_NVLINK_ERROR_DL_CRC", "DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY", "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY"],
    ),
    ("4.8.3", "4.9", &["DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "DCGM_FI_DEV_GPU_RECOVERY_ACTION"]),
    (
        "4.9",
        "4.9",
        &[
            "DCGM_FI_DEV_BOARD_POWER_WATTS",
            "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
            "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS",
            "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL",
            "DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL",
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL",
            "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL",
            "DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL",
            "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL",
            "DCGM_FI_DEV_NVLINK_REPLAY_TOTAL",
            "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL",
            "DCGM_FI_DEV_PAGE_RETIRED_PENDING",
            "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL",
            "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
            "DCGM_FI_DEV_ROW_REMAP_FAILED",
            "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
            "DCGM_FI_DEV_SM_CLOCK_HERTZ",
            "DCGM_FI_DEV_XID_ERROR",
            "DCGM_FI_SYSTEM_DRIVER_VERSION",
        ],
    ),
];

/// Whether a metric is one of the DCGM exporter, of any version.
pub(crate) fn is_of_exporter(metric: &str) -> bool {
    metric.starts_with("DCGM_") || metric.starts_with("dcgm_")
}

fn csv(generation: &str) -> String {
    format!("deploy/dcgm-exporter/exporter-{generation}.csv")
}

/// The fields that a CSV lists.
pub(crate) fn fields(generation: &str) -> BTreeSet<String> {
    let text = read(&csv(generation));
    let rows = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    rows.map(|row| row.split(',').next().unwrap().trim().to_owned()).collect()
}

/// The metrics of the exporter that rules read, and the labels that it makes of fields.
fn fields_that_rules_read() -> BTreeSet<String> {
    let of = |e: &Expr| match e {
        Expr::Text(text) if text.starts_with("DCGM_") && !text.contains('(') => vec![text.clone()],
        e => e.metrics(),
    };
    let all = pack().rules().flat_map(|r| r.exprs().flat_map(Expr::all).flat_map(of).collect::<Vec<_>>());
    all.filter(|m| is_of_exporter(m)).collect()
}

/// The queries of the dashboard: its panels, its annotations and its variables.
pub(crate) fn dashboard() -> Vec<Expr> {
    fn collect(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|v| collect(v, found)),
            Value::Object(fields) => fields.iter().for_each(|(key, value)| match (key.as_str(), value) {
                ("expr", Value::String(query)) => found.push(query.clone()),
                ("query" | "definition", Value::String(query)) => {
                    let inside = |function| query.strip_prefix(function).and_then(|q| q.strip_suffix(')'));
                    found.extend(inside("query_result(").map(str::to_owned));
                    found.extend(inside("label_values(").and_then(|q| q.rsplit_once(',')).map(|(q, _)| q.to_owned()));
                }
                (_, value) => collect(value, found),
            }),
            _ => {}
        }
    }
    let path = "deploy/grafana/gpu-quarantine.json";
    let mut found = Vec::new();
    collect(&serde_json::from_str(&read(path)).unwrap_or_else(|e| panic!("{path}: {e}")), &mut found);
    assert!(!found.is_empty(), "{path} has no query");
    found.iter().map(|q| promql::parse(q)).collect()
}

/// The metrics in the table of docs/operations.md, which tests/docs.rs holds to what the service shows.
fn ours() -> BTreeSet<String> {
    let text = read("docs/operations.md");
    let rows = text.lines().filter_map(|l| l.strip_prefix("| `gpu_quarantine_")?.split_once('`'));
    rows.map(|(name, _)| format!("gpu_quarantine_{name}")).collect()
}

/// Those of the metrics that nobody has.
fn that_nobody_has(metrics: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = GENERATIONS.iter().flat_map(|g| fields(g)).chain(ours()).collect();
    known.extend(pack().records.iter().map(|r| r.name.clone()));
    known.extend(
        KUBE_STATE_METRICS.iter().chain(&PROMETHEUS).chain(IN_NO_CSV.iter().flat_map(|(_, m)| *m)).map(|&m| m.to_owned()),
    );
    let is_known = |metric: &String| {
        // What Prometheus makes of a histogram.
        let parts = ["_bucket", "_count", "_sum"].into_iter().filter_map(|end| metric.strip_suffix(end));
        known.contains(metric) || parts.into_iter().any(|m| m.starts_with("gpu_quarantine_") && known.contains(m))
    };
    metrics.into_iter().filter(|m| !is_known(m)).collect()
}

#[test]
fn every_metric_that_a_rule_reads_is_exported_by_somebody() {
    no_problem(pack().rules().flat_map(|rule| {
        let metrics: Vec<_> = rule.exprs().flat_map(Expr::all).flat_map(Expr::metrics).collect();
        that_nobody_has(metrics).into_iter().map(|m| {
            format!("{}: nobody exports {m}: add it to the CSVs, or with its reason to tests/rule_pack/exported.rs", rule.place())
        })
    }));
}

#[test]
fn every_metric_that_the_dashboard_shows_is_exported_by_somebody() {
    let shown = dashboard();
    let nobody = that_nobody_has(shown.iter().flat_map(Expr::all).flat_map(Expr::metrics));
    no_problem(nobody.into_iter().map(|m| format!("deploy/grafana/gpu-quarantine.json: nobody exports {m}")));
}

#[test]
fn every_csv_has_what_the_rules_need_and_its_exporter_knows() {
    let position = |generation: &str| GENERATIONS.iter().position(|g| *g == generation).unwrap();
    let mut problems = Vec::new();
    for (at, generation) in GENERATIONS.iter().enumerate() {
        let there = fields(generation);
        for (first, last, names) in FIELDS {
            let known = (position(first)..=position(last)).contains(&at);
            let wrong = names.iter().filter(|n| there.contains(**n) != known);
            let what = if known { "must list" } else { "must not list" };
            problems.extend(wrong.map(|n| format!("{} {what} {n}: exporters {first} to {last} know it", csv(generation))));
        }
    }
    no_problem(problems);
    let csvs: BTreeSet<_> = files_in("deploy/dcgm-exporter", "csv").into_iter().collect();
    assert_eq!(csvs, GENERATIONS.map(csv).into(), "tests/rule_pack/exported.rs names every CSV");
}

#[test]
fn the_tables_of_this_test_name_what_rules_read_and_nothing_else() {
    let tables: Vec<&str> =
        FIELDS.iter().map(|(_, _, m)| m).chain(IN_NO_CSV.iter().map(|(_, m)| m)).flat_map(|m| *m).copied().collect();
    let named: BTreeSet<String> = tables.iter().map(|&m| m.to_owned()).collect();
    assert_eq!(named.len(), tables.len(), "a field stands in one table, once");
    let read = fields_that_rules_read();
    let missing =
        read.difference(&named).map(|m| format!("tests/rule_pack/exported.rs: say from which exporter on there is {m}"));
    let unread = named.difference(&read).map(|m| format!("tests/rule_pack/exported.rs: no rule reads {m}: remove it"));
    no_problem(missing.chain(unread));
    let listed: BTreeSet<_> = GENERATIONS.iter().flat_map(|g| fields(g)).collect();
    let listed: Vec<_> = IN_NO_CSV.iter().flat_map(|(_, m)| *m).filter(|m| listed.contains(**m)).collect();
    assert!(listed.is_empty(), "a CSV lists them now: move them to FIELDS: {listed:?}");
}
