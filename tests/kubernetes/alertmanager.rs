//! A real Alertmanager, with its times compressed, in front of the service.

use std::{fs, path::Path, time::Duration};

use gpu_quarantine::alert::Labels;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    harness::ApiServer,
    nodes::{Nodes, added, node, record, tainted, without_us},
    process::{Process, eventually, free_port, in_path, required, unique},
    seen::{lasting, replay},
    service::{Alert, Http, Service, config, now},
};

const MISSING: &str = "tests with a real Alertmanager need `alertmanager` in the PATH (Debian: prometheus-alertmanager)";

struct Alertmanager {
    process: Process,
    url: String,
    http: Http,
    _dir: TempDir,
}

impl Alertmanager {
    /// Start one. `None`, said aloud, if this build of it lacks its own files.
    async fn start(program: &Path, webhook: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let text = format!(
            "route: {{receiver: q, group_by: [cluster, node], group_wait: 1s, group_interval: 2s, repeat_interval: 5s}}\n\
             receivers:\n  - name: q\n    webhook_configs:\n      - {{url: {webhook:?}, send_resolved: true, max_alerts: 0}}\n"
        );
        let file = dir.path().join("alertmanager.yaml");
        fs::write(&file, text).unwrap();
        let port = free_port();
        let args = [
            format!("--config.file={}", file.display()),
            format!("--storage.path={}", dir.path().join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--cluster.listen-address=".to_owned(),
        ];
        let process = Process::start(program, &args, &dir.path().join("alertmanager.log"), None);
        let this = Self { process, url: format!("http://127.0.0.1:{port}"), http: Http::new(), _dir: dir };
        let started = eventually("Alertmanager is ready", Duration::from_secs(30), async || {
            if this.process.has_ended() {
                return Ok(false);
            }
            match this.http.send("GET", &format!("{}/-/ready", this.url), None).await {
                Ok((200, _)) => Ok(true),
                other => Err(format!("{other:?}\n{}", this.process.tail())),
            }
        })
        .await;
        let log = this.process.tail();
        // Debian's reads them from a fixed place; others bring them along.
        let bare = log.contains(".tmpl: no such file");
        assert!(started || bare, "Alertmanager ended by itself: {log}");
        required(started.then(|| program.to_owned()), &format!("this alertmanager lacks its own templates: {log}"))?;
        Some(this)
    }

    /// Tell it that alerts fire, or that they are over, as Prometheus does.
    async fn tell(&self, alerts: &[Alert], over: bool) {
        let alerts: Vec<Value> = alerts
            .iter()
            .map(|alert| {
                let labels: Labels = alert.labels();
                let mut told = json!({"labels": labels, "annotations": {"summary": "a GPU is gone"}, "startsAt": alert.since});
                if over {
                    told["endsAt"] = json!(now());
                }
                told
            })
            .collect();
        let answer = self.http.send("POST", &format!("{}/api/v2/alerts", self.url), Some(&json!(alerts))).await.unwrap();
        assert_eq!(answer.0, 200, "{answer:?}");
    }

    /// The sum over all series of a counter of its webhooks.
    async fn counter(&self, name: &str) -> f64 {
        let text = self.http.send("GET", &format!("{}/metrics", self.url), None).await.unwrap().1;
        let webhooks = text.lines().filter(|l| l.starts_with(&format!("{name}{{")) && l.contains("integration=\"webhook\""));
        webhooks.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

/// Wait until a node is isolated, with so many members in its record.
async fn wait_isolated(nodes: &Nodes, service: &Service, name: &str, claims: usize) {
    eventually(&format!("{name} is isolated"), Duration::from_secs(40), async || {
        let node = nodes.get(name).await;
        let firing = record(&node).map_or(0, |r| r["claims"].as_array().map_or(0, Vec::len));
        if tainted(&node) && firing == claims { Ok(()) } else { Err(format!("{:?}\n{}", record(&node), service.tail())) }
    })
    .await;
}

#[tokio::test]
async fn a_real_alertmanager_isolates_and_gives_back_and_its_retry_cures_a_503() {
    let Some(program) = required(in_path("alertmanager"), MISSING) else { return };
    let Some(server) = ApiServer::exclusive().await else { return };
    let nodes = Nodes::of(server.client().await);
    let scope = unique("am");
    let (one, two) = (format!("{scope}-a"), format!("{scope}-b"));
    let mut before = Vec::new();
    for name in [&one, &two] {
        before.push(nodes.create(node(name, &scope)).await);
    }
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("recording");
    let flags = ["--web.deadline=2s".to_owned(), format!("--record={}", recording.display())];
    let flags = flags.each_ref().map(String::as_str);
    let mut service = Service::start(server.kubeconfig(), &config(&scope, "300ms", false), &flags).await;
    let Some(alertmanager) = Alertmanager::start(&program, &service.webhook()).await else { return };

    // Two GPUs of one node come as one group, the other node as another.
    let grouped = [Alert::on(&one), Alert { gpu: 1, ..Alert::on(&one) }];
    let other = [Alert::on(&two)];
    alertmanager.tell(&grouped, false).await;
    alertmanager.tell(&other, false).await;
    wait_isolated(&nodes, &service, &one, 2).await;
    wait_isolated(&nodes, &service, &two, 1).await;

    // One GPU is over: the node waits for the other.
    alertmanager.tell(&grouped[..1], true).await;
    eventually("one claim cleared", Duration::from_secs(20), async || match service.node(&one).await {
        node if node["claims"].as_array().is_some_and(|c| c.iter().any(|c| c["state"] == "cleared")) => Ok(()),
        node => Err(node),
    })
    .await;
    assert_eq!(service.node(&one).await["state"], "isolated");
    alertmanager.tell(&grouped[1..], true).await;
    service.wait_state(&one, "free").await;
    assert_eq!(without_us(&nodes.get(&one).await), without_us(&before[0]));
    let (failed, refused) = ("alertmanager_notifications_failed_total", "alertmanager_notification_requests_failed_total");
    assert!(alertmanager.counter("alertmanager_notifications_total").await >= 3.0);
    assert_eq!((alertmanager.counter(failed).await, alertmanager.counter(refused).await), (0.0, 0.0), "nothing failed so far");

    // The API server hangs: 503, and Alertmanager's retry is what brings the alert home.
    server.pause();
    let again = [Alert::on(&one)];
    alertmanager.tell(&again, false).await;
    eventually("a request was refused", Duration::from_secs(40), async || match alertmanager.counter(refused).await {
        n if n >= 1.0 => Ok(()),
        n => Err(n),
    })
    .await;
    server.resume();
    wait_isolated(&nodes, &service, &one, 1).await;
    let provoked = alertmanager.counter(failed).await;
    alertmanager.tell(&again, true).await;
    alertmanager.tell(&other, true).await;
    service.wait_state(&one, "free").await;
    service.wait_state(&two, "free").await;
    for (name, before) in [&one, &two].into_iter().zip(&before) {
        let node = nodes.get(name).await;
        assert!(!added(&node));
        assert_eq!(without_us(&node), without_us(before));
    }
    let shown = [service.node(&one).await, service.node(&two).await];
    let more = alertmanager.counter(failed).await - provoked;
    assert!(more <= 0.0, "{more} notifications failed besides the provoked ones (of which {provoked})");

    // The run, recorded, is decided again.
    service.stop().await;
    let replayed = replay(&recording);
    for node in shown {
        let again = replayed["nodes"].as_array().unwrap().iter().find(|n| n["name"] == node["name"]).unwrap();
        assert_eq!(lasting(again), lasting(&node));
    }
}
