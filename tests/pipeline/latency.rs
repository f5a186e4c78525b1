//! How long it takes from a fault's first scrape to the taint, part by part. The parts are told by those who did them: when the
//! exporter was asked, Prometheus' own times, Alertmanager's, the relay's and the record's.
//!
//! `GPU_QUARANTINE_PIPELINE_TIMES=shipped` measures on the shipped intervals (4 minutes), and `GPU_QUARANTINE_PIPELINE_REPORT=FILE`
//! writes the table there as well.

use std::{fmt::Write as _, io::Write as _, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    exporter::Edit,
    nodes::{record, tainted},
    pipeline::{Pipeline, Plan},
    process::eventually,
    service::now,
    times::Times,
};

const ALERT: &str = "GpuXidGpuLost";
const NODES: usize = 10;

/// The parts, in the order in which they come, in milliseconds.
const PARTS: [&str; 7] = [
    "the fault waits for a scrape (not counted below)",
    "scrape: exporter asked to samples stored",
    "rules: to the evaluation that fires",
    "Prometheus: to the alert in Alertmanager",
    "Alertmanager: to the webhook",
    "ours: from the webhook to its answer, with the taint written",
    "from the first scrape to the taint",
];

fn time(value: &Value) -> Timestamp {
    value.as_str().expect("a time").parse().expect("a time")
}

fn between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}

/// Break a GPU of a node, and follow it.
async fn measure(pipe: &Pipeline, index: usize, stagger: Duration, patience: Duration) -> [f64; 7] {
    // At different phases of the intervals.
    tokio::time::sleep(stagger * u32::try_from(index).expect("few nodes")).await;
    let (name, prometheus, alertmanager) = (&pipe.names[index], &pipe.prometheuses[0], &pipe.alertmanagers[0]);
    let fault = now();
    pipe.exporters[index].edit(Edit::Xid { gpu: 0, code: 79 });
    // Each further report renews `updatedAt`: the first is what counts.
    let reported = eventually("Alertmanager has the alert", patience, async || {
        let alerts = alertmanager.alerts("gpu-quarantine", ALERT, name).await?;
        alerts.first().map(|a| time(&a["updatedAt"])).ok_or("not yet".to_owned())
    })
    .await;
    let active = time(&prometheus.alerts(ALERT, name).await.expect("an answer")[0]["activeAt"]);
    let took =
        prometheus.query(&format!("max_over_time(scrape_duration_seconds{{node=\"{name}\"}}[2m])")).await.expect("an answer");
    let took: f64 = took[0]["value"][1].as_str().expect("a number").parse().expect("a number");
    let node = eventually("the node is isolated", patience, async || {
        let node = pipe.nodes.get(name).await;
        if tainted(&node) { Ok(node) } else { Err(pipe.tail()) }
    })
    .await;
    // When it was decided, which is no later than the answer, which is no earlier than the taint.
    let decided = time(&record(&node).expect("a record")["added"]["at"]);
    let passed = eventually("the body is answered", Duration::from_secs(10), async || {
        let passed = pipe.relay.passed().into_iter().find(|p| p.tells(ALERT, name, "firing"));
        passed.filter(|p| p.answered.is_some()).ok_or_else(|| pipe.tail())
    })
    .await;
    let asked = pipe.exporters[index].asked().expect("it was asked");
    let (status, answered) = passed.answered.expect("checked above");
    assert!(status == 200 && decided >= passed.at && decided <= answered, "{status}, {decided}: {passed:?}");
    [
        between(fault, asked),
        took * 1e3,
        between(asked, active) - took * 1e3,
        between(active, reported),
        between(reported, passed.at),
        between(passed.at, answered),
        between(asked, answered),
    ]
}

#[tokio::test]
async fn the_time_from_the_first_scrape_of_a_fault_to_the_taint_is_told_in_its_parts() {
    let shipped = std::env::var("GPU_QUARANTINE_PIPELINE_TIMES").is_ok_and(|v| v == "shipped");
    let times = if shipped { Times::Shipped } else { Times::Compressed };
    let (stagger, patience) = if shipped { (3, 240) } else { (0, 25) };
    let stagger = Duration::from_secs(stagger) + Duration::from_millis(110);
    let Some(pipe) = Pipeline::start(Plan { nodes: NODES, gpus: 8, times, ..Plan::default() }).await else { return };
    let all = (0..NODES).map(|i| measure(&pipe, i, stagger, Duration::from_secs(patience)));
    let all = futures::future::join_all(all).await;
    let of_the_route = times.route();
    let wait = of_the_route.lines().find_map(|l| l.trim().strip_prefix("group_wait: ")).expect("group_wait");
    let interval = times.rules().iter().find_map(|(file, text)| (file == "xid.yaml").then(|| text.clone())).expect("xid.yaml");
    let interval = interval.lines().find_map(|l| l.trim().strip_prefix("interval: ")).expect("interval").to_owned();
    let mut text = format!(
        "{NODES} nodes with 8 GPUs, XID 79; scrape {}, rules {interval}, group_wait {wait}\n\n| ms | median | least | most |\n|---|---|---|---|\n",
        times.scrape()
    );
    for (part, name) in PARTS.iter().enumerate() {
        let mut values: Vec<f64> = all.iter().map(|run| run[part]).collect();
        values.sort_by(f64::total_cmp);
        let median = f64::midpoint(values[NODES / 2 - 1], values[NODES / 2]);
        writeln!(text, "| {name} | {median:.0} | {:.0} | {:.0} |", values[0], values[NODES - 1])
            .expect("a String can be written");
    }
    // Past the test runner, which shows nothing of a test that passes.
    writeln!(std::io::stderr(), "{text}").expect("standard error can be written");
    if let Ok(file) = std::env::var("GPU_QUARANTINE_PIPELINE_REPORT") {
        std::fs::write(&file, &text).unwrap_or_else(|e| panic!("{file}: {e}"));
    }
    for run in &all {
        assert!(run[5] < 5_000.0, "from the webhook to the taint: {} ms", run[5]);
    }
}
