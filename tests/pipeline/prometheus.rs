//! A real Prometheus with the shipped rules.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    process::{Process, eventually, free_port},
    service::Http,
    times::Times,
};

/// What a Prometheus scrapes and tells.
#[derive(Debug)]
pub(crate) struct Wiring<'a> {
    /// Exporters: node and address.
    pub(crate) exporters: &'a [(String, String)],
    /// The address of the service.
    pub(crate) service: &'a str,
    /// The addresses of the Alertmanagers that it tells.
    pub(crate) alertmanagers: &'a [String],
    /// The name of this replica, which its alerts do not carry.
    pub(crate) replica: &'a str,
    /// A field that it does not get.
    pub(crate) lost: Option<&'a str>,
}

/// One Prometheus.
#[derive(Debug)]
pub(crate) struct Prometheus {
    program: PathBuf,
    args: Vec<String>,
    dir: TempDir,
    port: u16,
    http: Http,
    process: Option<Process>,
    times: Times,
}

impl Prometheus {
    /// All but starting it.
    pub(crate) fn prepare(program: &Path, times: Times, without: &[&str], wiring: &Wiring<'_>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).expect("the directory is writable");
        fs::create_dir(dir.path().join("rules")).expect("the directory is writable");
        for (name, text) in times.rules().into_iter().filter(|(name, _)| !without.contains(&name.as_str())) {
            write(&format!("rules/{name}"), &text);
        }
        write("prometheus.yaml", &config(times, wiring));
        let port = free_port();
        let mut args = vec![
            format!("--config.file={}", dir.path().join("prometheus.yaml").display()),
            format!("--storage.tsdb.path={}", dir.path().join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".to_owned(),
            "--web.enable-lifecycle".to_owned(),
        ];
        if times == Times::Compressed {
            args.extend(["--rules.alert.resend-delay=1s", "--rules.alert.for-grace-period=10s"].map(str::to_owned));
        }
        Self { program: program.to_owned(), args, dir, port, http: Http::new(), process: None, times }
    }

    /// Write other wiring, and load it if it runs.
    pub(crate) async fn rewire(&self, wiring: &Wiring<'_>) {
        fs::write(self.dir.path().join("prometheus.yaml"), config(self.times, wiring)).expect("the directory is writable");
        if let Some(process) = &self.process {
            process.signal("HUP");
            let told = wiring.alertmanagers.len();
            eventually("Prometheus has loaded it", Duration::from_secs(20), async || match self.alertmanagers().await? {
                n if n == told => Ok(()),
                n => Err(format!("{n} Alertmanagers\n{}", self.tail())),
            })
            .await;
        }
    }

    /// Change a file of rules, and let it load that.
    pub(crate) async fn edit_rules(&self, file: &str, edit: impl FnOnce(&str) -> String) {
        let path = self.dir.path().join("rules").join(file);
        let before = fs::read_to_string(&path).expect("a file of rules");
        let after = edit(&before);
        assert_ne!(before, after, "nothing was changed in {file}");
        fs::write(&path, after).expect("the directory is writable");
        let answer = self.http.send("POST", &format!("{}/-/reload", self.url()), None).await;
        assert!(matches!(answer, Ok((200, _))), "{answer:?}\n{}", self.tail());
    }

    /// Delete the rule of an alert.
    pub(crate) async fn delete_alert(&self, file: &str, alert: &str) {
        let edit = |text: &str| {
            let begin = text.find(&format!("      - alert: {alert}\n")).expect("the alert");
            let rest = text.get(begin..).expect("a boundary");
            let end = rest.find("\n\n").map_or(text.len(), |end| begin + end + 2);
            [text.get(..begin), text.get(end..)].map(Option::unwrap_or_default).concat()
        };
        self.edit_rules(file, edit).await;
    }

    /// Start it if it does not run.
    pub(crate) fn launch(&mut self) {
        let log = self.dir.path().join("prometheus.log");
        self.process.get_or_insert_with(|| Process::start(&self.program, &self.args, &log, None));
    }

    /// Wait until it knows its Alertmanagers, which takes it 5 s, and so many nodes by its own rules.
    pub(crate) async fn wait_ready(&self, nodes: usize) {
        let limit = if self.times == Times::Compressed { 60 } else { 300 };
        // The number of GPUs that there should be is recorded every 15 minutes.
        let nodes_by = if self.times == Times::Compressed { "node:gpus_expected:max" } else { "node:gpus:count" };
        eventually("Prometheus is ready", Duration::from_secs(limit), async || {
            let told = self.alertmanagers().await.map_err(|e| format!("{e}\n{}", self.tail()))?;
            let seen = self.query(nodes_by).await?.len();
            if told > 0 && seen == nodes { Ok(()) } else { Err(format!("{told} Alertmanagers, {seen} nodes\n{}", self.tail())) }
        })
        .await;
    }

    async fn alertmanagers(&self) -> Result<usize, String> {
        Ok(self.get("alertmanagers").await?["data"]["activeAlertmanagers"].as_array().map_or(0, Vec::len))
    }

    /// Kill it.
    pub(crate) fn kill9(&mut self) {
        self.process = None;
        self.http = Http::new();
    }

    /// Its address, as the service is told it.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Throw away what it wrote down.
    pub(crate) fn forget(&self) {
        assert!(self.process.is_none(), "it still runs");
        drop(fs::remove_dir_all(self.dir.path().join("data")));
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let (status, text) = self.http.send("GET", &format!("{}/api/v1/{path}", self.url()), None).await?;
        if status == 200 { serde_json::from_str(&text).map_err(|e| e.to_string()) } else { Err(format!("{status}: {text}")) }
    }

    /// The samples of an expression of names, brackets and letters that need no more than quotes and braces escaped.
    pub(crate) async fn query(&self, expr: &str) -> Result<Vec<Value>, String> {
        let mut escaped = String::new();
        for byte in expr.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b':' | b'-' | b'.' => escaped.push(char::from(byte)),
                _ => write!(escaped, "%{byte:02X}").expect("a String can be written"),
            }
        }
        let answer = self.get(&format!("query?query={escaped}")).await?;
        Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// Its alerts of this name about this node.
    pub(crate) async fn alerts(&self, alert: &str, node: &str) -> Result<Vec<Value>, String> {
        let answer = self.get("alerts").await?;
        let about = |a: &&Value| a["labels"]["alertname"] == alert && a["labels"]["node"] == node;
        Ok(answer["data"]["alerts"].as_array().into_iter().flatten().filter(about).cloned().collect())
    }

    /// Wait until so many alerts of this name about this node fire.
    pub(crate) async fn wait_firing(&self, alert: &str, node: &str, count: usize) {
        eventually(&format!("{count} {alert} of {node} in Prometheus"), Duration::from_secs(90), async || {
            let alerts = self.alerts(alert, node).await?;
            let firing = alerts.iter().filter(|a| a["state"] == "firing").count();
            if firing == count { Ok(()) } else { Err(format!("{alerts:?}\n{}", self.tail())) }
        })
        .await;
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        self.process.as_ref().map(Process::tail).unwrap_or_default()
    }
}

fn config(times: Times, wiring: &Wiring<'_>) -> String {
    let every = times.scrape();
    let replica = wiring.replica;
    let quoted = |addresses: &[String]| addresses.iter().map(|a| format!("{a:?}")).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "global:\n  scrape_interval: {every}\n  scrape_timeout: 1s\n  evaluation_interval: {every}\n  \
         external_labels: {{cluster: test, replica: {replica}}}\nrule_files: [rules/*.yaml]\n\
         alerting:\n  alert_relabel_configs:\n    - {{action: labeldrop, regex: replica}}\n  alertmanagers:\n    \
         - {{timeout: 2s, static_configs: [{{targets: [{}]}}]}}\n\
         scrape_configs:\n  - job_name: gpu-quarantine\n    static_configs: [{{targets: [{:?}]}}]\n  - job_name: dcgm-exporter\n    \
         relabel_configs:\n      - {{source_labels: [__meta_kubernetes_pod_node_name], target_label: node}}\n    \
         metric_relabel_configs:\n      - {{source_labels: [__name__], regex: {}, action: drop}}\n    static_configs:\n",
        quoted(wiring.alertmanagers),
        wiring.service,
        wiring.lost.unwrap_or("none"),
    );
    for (node, address) in wiring.exporters {
        writeln!(text, "      - {{targets: [{address:?}], labels: {{__meta_kubernetes_pod_node_name: {node}}}}}")
            .expect("a String can be written");
    }
    text
}
