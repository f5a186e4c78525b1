//! A Prometheus with a history that never was.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use gpu_quarantine::{
    engine::{Clock as _, SystemClock},
    metrics::Metrics,
    policy,
    sources::{Evidence, EvidenceClient},
};
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use crate::process::{Process, eventually, free_port, in_path, required};

const MISSING: &str = "tests of evidence need `prometheus` and `promtool` in the PATH (Debian: prometheus)";

/// One Prometheus.
pub(crate) struct Prometheus {
    url: String,
    pub(crate) process: Process,
    _dir: TempDir,
}

impl Prometheus {
    /// Start it with a history in the text format, rules, and the address of an exporter. `None` if a program is missing.
    pub(crate) async fn start(history: Option<&str>, rules: &str, exporter: Option<String>) -> Option<Self> {
        let program = required(in_path("prometheus"), MISSING)?;
        let promtool = required(in_path("promtool"), MISSING)?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = |name: &str| dir.path().join(name);
        fs::write(file("rules.yaml"), rules).unwrap();
        let targets: Vec<String> = exporter.iter().map(|address| format!("{address:?}")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\n\
             scrape_configs:\n  - job_name: dcgm-exporter\n    static_configs: [{{targets: [{}]}}]\n",
            file("rules.yaml").display(),
            targets.join(", "),
        );
        fs::write(file("prometheus.yaml"), config).unwrap();
        if let Some(history) = history {
            create_blocks(&promtool, history, &dir);
        }
        let port = free_port();
        let args = [
            format!("--config.file={}", file("prometheus.yaml").display()),
            format!("--storage.tsdb.path={}", file("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".to_owned(),
        ];
        let process = Process::start(&program, &args, &file("prometheus.log"), None);
        let prometheus = Self { url: format!("http://127.0.0.1:{port}"), process, _dir: dir };
        let client = prometheus.client("").await;
        let ready = async || client.rules().await.map_err(|e| format!("{e}\n{}", prometheus.process.tail()));
        eventually("Prometheus is ready", Duration::from_secs(30), ready).await;
        Some(prometheus)
    }

    /// With further options of the configuration.
    pub(crate) async fn client(&self, more: &str) -> EvidenceClient {
        self.choosing("[]", more).await
    }

    /// With a selector as well.
    pub(crate) async fn choosing(&self, selector: &str, more: &str) -> EvidenceClient {
        let url = &self.url;
        let text = format!(
            "release: {{require: [evidence]}}\nsources: {{prometheus: {{query_url: '{url}', selector: {selector}}}}}\n{more}"
        );
        let config = policy::load("config.yaml", &text).unwrap_or_else(|e| panic!("{e}"));
        Evidence::new(config.prometheus.unwrap(), config.locate, Arc::new(Metrics::new())).client().await.unwrap()
    }
}

fn create_blocks(promtool: &Path, history: &str, dir: &TempDir) {
    let (text, data): (PathBuf, PathBuf) = (dir.path().join("history.txt"), dir.path().join("data"));
    fs::write(&text, history).unwrap();
    let made = Command::new(promtool).args(["tsdb", "create-blocks-from", "openmetrics"]).args([&text, &data]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Three hours ago, on a whole minute.
pub(crate) fn begin() -> Timestamp {
    let ago = SystemClock.now() - SignedDuration::from_hours(3);
    Timestamp::from_second(ago.as_second() / 60 * 60).unwrap()
}

pub(crate) fn after(begin: Timestamp, seconds: i64) -> Timestamp {
    begin + SignedDuration::from_secs(seconds)
}

/// `[metric, labels, from, to, value]`, a sample every 30 s, in seconds after the beginning.
pub(crate) fn history(begin: Timestamp, rows: &[(&str, &str, i64, i64, &str)]) -> String {
    let mut metrics: Vec<&str> = rows.iter().map(|row| row.0).collect();
    metrics.sort_unstable();
    metrics.dedup();
    let mut text = String::new();
    for metric in metrics {
        writeln!(text, "# TYPE {metric} gauge").unwrap();
        for (_, labels, from, to, value) in rows.iter().filter(|row| row.0 == metric) {
            for at in (*from..=*to).step_by(30) {
                writeln!(text, "{metric}{{{labels}}} {value} {}", after(begin, at).as_second()).unwrap();
            }
        }
    }
    text + "# EOF\n"
}
