//! A real Alertmanager with the shipped configuration, alone or as one of two peers.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use gpu_quarantine::alert::Labels;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    process::{Process, eventually, free_port},
    service::{Http, now},
};

/// One Alertmanager.
#[derive(Debug)]
pub(crate) struct Alertmanager {
    program: PathBuf,
    args: Vec<String>,
    dir: TempDir,
    port: u16,
    http: Http,
    process: Option<Process>,
}

impl Alertmanager {
    /// One, or several that know each other. Not yet started.
    pub(crate) fn prepare(program: &Path, config: &str, count: usize) -> Vec<Self> {
        let gossip: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let one = |me: usize| {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let file = dir.path().join("alertmanager.yaml");
            fs::write(&file, config).expect("the directory is writable");
            let port = free_port();
            let mut args = vec![
                format!("--config.file={}", file.display()),
                format!("--storage.path={}", dir.path().join("data").display()),
                format!("--web.listen-address=127.0.0.1:{port}"),
            ];
            if count == 1 {
                args.push("--cluster.listen-address=".to_owned());
            } else {
                args.push(format!("--cluster.listen-address=127.0.0.1:{}", gossip[me]));
                args.extend(gossip.iter().filter(|p| **p != gossip[me]).map(|p| format!("--cluster.peer=127.0.0.1:{p}")));
                let times = [
                    "peer-timeout=1s",
                    "settle-timeout=5s",
                    "gossip-interval=50ms",
                    "pushpull-interval=1s",
                    "probe-interval=500ms",
                    "probe-timeout=200ms",
                    "reconnect-interval=1s",
                    "tcp-timeout=1s",
                ];
                args.extend(times.map(|time| format!("--cluster.{time}")));
            }
            Self { program: program.to_owned(), args, dir, port, http: Http::new(), process: None }
        };
        (0..count).map(one).collect()
    }

    /// Start it if it does not run.
    pub(crate) fn launch(&mut self) {
        let log = self.dir.path().join("alertmanager.log");
        self.process.get_or_insert_with(|| Process::start(&self.program, &self.args, &log, None));
    }

    /// Replace parts of its configuration, and let it load that.
    pub(crate) async fn reconfigure(&self, changes: &[(&str, &str)]) {
        let file = self.dir.path().join("alertmanager.yaml");
        let mut text = fs::read_to_string(&file).expect("its configuration");
        for (from, to) in changes {
            assert!(text.contains(from), "{from} is not in\n{text}");
            text = text.replace(from, to);
        }
        fs::write(&file, text).expect("the directory is writable");
        let answer = self.http.send("POST", &format!("{}/-/reload", self.url()), None).await;
        assert!(matches!(answer, Ok((200, _))), "{answer:?}\n{}", self.tail());
    }

    /// Wait until it serves.
    pub(crate) async fn wait_ready(&self) {
        eventually("Alertmanager is ready", Duration::from_secs(90), async || {
            match self.http.send("GET", &format!("{}/-/ready", self.url()), None).await {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}\n{}", self.tail())),
            }
        })
        .await;
    }

    /// Start it if it does not run, and wait until it serves.
    pub(crate) async fn restart(&mut self) {
        self.launch();
        self.wait_ready().await;
    }

    /// Kill it.
    pub(crate) fn kill9(&mut self) {
        self.process = None;
        self.http = Http::new();
    }

    /// Ask it to stop, and wait until it did: it writes down what it knows.
    pub(crate) async fn stop(&mut self) {
        if let Some(process) = &self.process {
            process.signal("TERM");
            eventually("Alertmanager ends", Duration::from_secs(20), async || {
                if process.has_ended() { Ok(()) } else { Err(process.tail()) }
            })
            .await;
        }
        self.kill9();
    }

    /// Throw away what it wrote down.
    pub(crate) fn forget(&self) {
        assert!(self.process.is_none(), "it still runs");
        drop(fs::remove_dir_all(self.dir.path().join("data")));
    }

    /// Its address, as the service is told it.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// `host:port`, as Prometheus is told it.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its answer to a GET below `/api/v2`.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, String> {
        let (status, text) = self.http.send("GET", &format!("{}/api/v2/{path}", self.url()), None).await?;
        if status == 200 { serde_json::from_str(&text).map_err(|e| e.to_string()) } else { Err(format!("{status}: {text}")) }
    }

    /// The alerts of this name about this node, as its groups show them to `receiver`; resolved ones are never shown.
    pub(crate) async fn alerts(&self, receiver: &str, alert: &str, node: &str) -> Result<Vec<Value>, String> {
        let groups = self.get(&format!("alerts/groups?receiver={receiver}")).await?;
        let alerts = groups.as_array().into_iter().flatten().flat_map(|group| group["alerts"].as_array().into_iter().flatten());
        let about = |a: &&Value| a["labels"]["alertname"] == alert && a["labels"]["node"] == node;
        Ok(alerts.filter(about).cloned().collect())
    }

    /// Wait until it shows (`Some(state)`) such an alert in this state, or none (`None`).
    pub(crate) async fn wait_alert(&self, alert: &str, node: &str, state: Option<&str>) {
        eventually(&format!("{alert} of {node} is {state:?} in Alertmanager"), Duration::from_secs(90), async || {
            let alerts = self.alerts("gpu-quarantine", alert, node).await?;
            let right = match state {
                None => alerts.is_empty(),
                Some(state) => alerts.iter().any(|a| a["status"]["state"] == state),
            };
            if right { Ok(()) } else { Err(format!("{alerts:?}\n{}", self.tail())) }
        })
        .await;
    }

    /// Wait until it knows how many peers it has, itself included.
    pub(crate) async fn wait_peers(&self, count: usize) {
        eventually(&format!("{count} peers"), Duration::from_secs(90), async || {
            let status = self.get("status").await?;
            let peers = status["cluster"]["peers"].as_array().map_or(0, Vec::len);
            if peers == count && status["cluster"]["status"] == "ready" { Ok(()) } else { Err(status["cluster"].to_string()) }
        })
        .await;
    }

    /// Tell it of an alert, as Prometheus does; for one that no rule makes. It starts now: one from before its node was created would be
    /// about the node's predecessor.
    pub(crate) async fn tell(&self, labels: &[(&str, &str)], over: bool) {
        let (labels, now): (Labels, _) = (labels.iter().copied().collect(), now());
        let end = if over { now } else { now + SignedDuration::from_mins(10) };
        let body = json!([{"labels": labels, "annotations": {}, "startsAt": now, "endsAt": end}]);
        let answer = self.http.send("POST", &format!("{}/api/v2/alerts", self.url()), Some(&body)).await;
        assert!(matches!(answer, Ok((200, _))), "{answer:?}");
    }

    /// Silence a node; the id of the silence.
    pub(crate) async fn silence(&self, node: &str) -> String {
        let begin: Timestamp = now();
        let silence = json!({
            "matchers": [{"name": "node", "value": node, "isRegex": false, "isEqual": true}],
            "startsAt": begin, "endsAt": begin + SignedDuration::from_mins(10), "createdBy": "ann", "comment": "changing the board",
        });
        let answer = self.http.send("POST", &format!("{}/api/v2/silences", self.url()), Some(&silence)).await;
        let Ok((200, text)) = answer else { panic!("{answer:?}") };
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        answer["silenceID"].as_str().expect("an id").to_owned()
    }

    /// End a silence.
    pub(crate) async fn unsilence(&self, id: &str) {
        let answer = self.http.send("DELETE", &format!("{}/api/v2/silence/{id}", self.url()), None).await;
        assert!(matches!(answer, Ok((200, _))), "{answer:?}");
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        self.process.as_ref().map(Process::tail).unwrap_or_default()
    }
}
