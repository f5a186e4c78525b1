//! The rule pack on every exporter: from each recorded output in `fixtures/dcgm-samples`, a promtool test that holds every fault
//! which that exporter can show. The tests stand in `alert-rules/tests/exporters`, where `.ci/rules` runs them; here they are made
//! (`GPU_QUARANTINE_BLESS=1 cargo test --test exporter_outputs`), and compared.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod exporters;
mod faults;
mod sample;

use std::{collections::BTreeSet, env, fmt::Write, fs, path::Path};

use exporters::{EXPORTERS, Exporter};
use faults::{FAULTS, Fault, Seen};
use sample::{Labels, Sample};

/// Evaluations and scrapes come every 30 s.
const STEP: usize = 30;
/// When, in steps, all faults begin: 10 min.
const BEGIN: usize = 20;
/// When the pods leave the node: 20 min.
const EVICTED: usize = 40;
/// When the exporter restarts, and when it is back: 32 to 34 min. It has then forgotten its XIDs.
const DOWN: usize = 64;
const BACK: usize = 68;
/// The end: 70 min.
const END: usize = 140;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The promtool test of an exporter.
fn test_of(exporter: &'static Exporter) -> String {
    let sample = Sample::read(exporter);
    let faults: Vec<&Fault> = FAULTS.iter().filter(|f| f.possible(&sample)).collect();
    let mut text = format!(
        "# Made from fixtures/dcgm-samples/{}.prom. Do not edit: change tests/exporter_outputs and run\n\
         # GPU_QUARANTINE_BLESS=1 cargo test --test exporter_outputs\n\
         # {}\n\
         # One GPU for each fault, from 10 min on. At 20 min the pods leave the node; from 32 to 34 min the exporter restarts.\n\
         rule_files:\n",
        exporter.sample, exporter.about,
    );
    for file in exporters::RULE_FILES {
        writeln!(text, "  - ../../{file}.yaml").unwrap();
    }
    text += "evaluation_interval: 30s\n# The slowest order: what a group needs of another is 30 s old.\ngroup_eval_order:\n";
    for group in groups().iter().rev() {
        writeln!(text, "  - {group}").unwrap();
    }
    text += "tests:\n";
    writeln!(text, "  - name: exporter {}\n    interval: {STEP}s\n    input_series:", exporter.version).unwrap();
    for (gpu, fault) in faults.iter().enumerate() {
        writeln!(text, "      # GPU {gpu}: {}", fault.about).unwrap();
        for (series, values) in fault.series(&sample, gpu) {
            writeln!(text, "      - {{series: '{series}', values: '{values}'}}").unwrap();
        }
    }
    text += "    promql_expr_test:\n";
    for (minute, seen) in [
        ("9m", None),
        ("16m", Some(Seen::Soon)),
        ("24m", Some(Seen::Later)),
        ("33m", Some(Seen::Down)),
        ("66m", Some(Seen::Back)),
    ] {
        let expr = "group by (alertname, node, UUID, gpu) (ALERTS{alertstate=\"firing\"})";
        writeln!(text, "      - expr: {expr}\n        eval_time: {minute}\n        exp_samples:").unwrap();
        // Of the node as a whole an alert fires once, whatever the number of its GPUs.
        let mut expected = BTreeSet::new();
        for (gpu, fault) in faults.iter().enumerate() {
            for alert in seen.iter().flat_map(|seen| fault.alerts(*seen)) {
                expected.insert(sample.alert(alert, fault.of_the_node, gpu));
            }
        }
        for labels in &expected {
            writeln!(text, "          - {{labels: '{labels}', value: 1}}").unwrap();
        }
        if expected.is_empty() {
            let with_nothing = text.trim_end_matches("        exp_samples:\n").len();
            text.truncate(with_nothing);
        }
    }
    text
}

/// The rule groups of the files, in the order in which they build on each other.
fn groups() -> Vec<String> {
    let text = |file: &str| fs::read_to_string(root().join(format!("alert-rules/{file}.yaml"))).unwrap();
    let name = |line: &str| line.strip_prefix("  - name: ").map(str::to_owned);
    exporters::RULE_FILES.iter().flat_map(|file| text(file).lines().filter_map(name).collect::<Vec<_>>()).collect()
}

fn tests_dir() -> std::path::PathBuf {
    root().join("alert-rules/tests/exporters")
}

#[test]
fn the_promtool_tests_are_those_that_the_recorded_outputs_give() {
    let bless = env::var_os("GPU_QUARANTINE_BLESS").is_some();
    let mut expected = BTreeSet::new();
    for exporter in EXPORTERS {
        let (name, text) = (format!("{}.yaml", exporter.sample), test_of(exporter));
        let path = tests_dir().join(&name);
        if bless {
            fs::create_dir_all(tests_dir()).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(stored == text, "{} is stale: GPU_QUARANTINE_BLESS=1 cargo test --test exporter_outputs", path.display());
        expected.insert(name);
    }
    let names = fs::read_dir(tests_dir()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), expected, "a test without an exporter");
}

#[test]
fn every_recorded_output_is_used_and_the_versions_that_are_promised_are_among_them() {
    let recorded = fs::read_dir(root().join("fixtures/dcgm-samples")).unwrap();
    let recorded = recorded.map(|e| e.unwrap().file_name().into_string().unwrap());
    let recorded = recorded.filter_map(|name| name.strip_suffix(".prom").map(str::to_owned));
    assert_eq!(EXPORTERS.iter().map(|e| e.sample.to_owned()).collect::<BTreeSet<_>>(), recorded.collect());
    for promised in ["2.0", "3.1", "3.4", "4.2", "4.5", "4.8.3", "4.9"] {
        assert!(EXPORTERS.iter().any(|e| e.version.starts_with(promised)), "{promised}");
    }
}

#[test]
fn every_fault_is_possible_on_some_exporter_and_nearly_all_on_the_newest() {
    for fault in FAULTS {
        let on: Vec<&str> = EXPORTERS.iter().filter(|e| fault.possible(&Sample::read(e))).map(|e| e.version).collect();
        assert!(!on.is_empty(), "{}", fault.about);
    }
    let newest = Sample::read(EXPORTERS.iter().find(|e| e.version == "4.9.0").unwrap());
    let missing: Vec<&str> = FAULTS.iter().filter(|f| !f.possible(&newest)).map(|f| f.about).collect();
    assert!(missing.len() <= 1, "{missing:?}");
}

/// Labels in the order in which Prometheus writes them.
fn shown(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    format!("{{{}}}", pairs.join(","))
}
