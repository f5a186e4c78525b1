//! The program under test as a process, and what is posted to it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use gpu_quarantine::{
    alert::{Fingerprint, Labels},
    engine::{Clock, SystemClock},
};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Process, eventually, free_port};

/// An HTTP client for one test.
#[derive(Debug, Clone)]
pub(crate) struct Http(Client<HttpConnector, Full<Bytes>>);

impl Http {
    pub(crate) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// One request; an error is one of the connection.
    pub(crate) async fn send(&self, method: &str, url: &str, body: Option<&Value>) -> Result<(u16, String), String> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.map(Value::to_string).unwrap_or_default())))
            .expect("a request");
        let answer = async {
            let response = self.0.request(request).await.map_err(|e| format!("{e:?}"))?;
            let status = response.status().as_u16();
            let bytes = response.into_body().collect().await.map_err(|e| format!("{e:?}"))?.to_bytes();
            Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
        };
        tokio::time::timeout(Duration::from_secs(30), answer).await.map_err(|_| "no answer within 30 s".to_owned())?
    }
}

/// A configuration whose scope are the nodes made for `scope`, with the hold-down `after`.
pub(crate) fn config(scope: &str, after: &str, cordon: bool) -> String {
    format!(
        "instance: {scope}\nscope: {{nodes: gq-test={scope}}}\n\
         isolation:\n  taint: {{key: gpu-quarantine.dev/isolated, effect: NoSchedule}}\n  cordon: {cordon}\n\
         release: {{after: {after}, require: [resolved], flapping: {{longer_after: 0, person_after: 0}}}}\n\
         guard: {{max_isolated: {{count: 100, percent: 100}}, pools: {{max_isolated: {{count: 100, percent: 100}}, min_healthy: 0}}, max_new_isolations: {{count: 1000}}}}\n\
         policies:\n  - {{name: gpu-lost, match: ['alertname=\"GpuLost\"'], action: isolate}}\n"
    )
}

/// The service.
#[derive(Debug)]
pub(crate) struct Service {
    dir: TempDir,
    args: Vec<String>,
    url: String,
    http: Http,
    process: Option<Process>,
}

impl Service {
    /// Start it, and wait until it is ready.
    pub(crate) async fn start(kubeconfig: PathBuf, config: &str, flags: &[&str]) -> Self {
        let mut service = Self::prepare(&kubeconfig, config, flags);
        service.restart().await;
        service
    }

    /// All but starting it.
    pub(crate) fn prepare(kubeconfig: &Path, config: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("config.yaml");
        fs::write(&file, config).expect("the directory is writable");
        let port = free_port();
        let mut args = vec!["serve".to_owned(), "--config.file".to_owned(), file.display().to_string()];
        args.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
        args.extend(["--web.listen-address".to_owned(), format!("127.0.0.1:{port}")]);
        args.extend(flags.iter().map(|&flag| flag.to_owned()));
        Self { dir, args, url: format!("http://127.0.0.1:{port}"), http: Http::new(), process: None }
    }

    /// Start it if it does not run.
    pub(crate) fn launch(&mut self) {
        let program = Path::new(env!("CARGO_BIN_EXE_gpu-quarantine"));
        let log = self.dir.path().join("gpu-quarantine.log");
        self.process.get_or_insert_with(|| Process::start(program, &self.args, &log, None));
    }

    /// Start it if it does not run, and wait until it is ready.
    pub(crate) async fn restart(&mut self) {
        self.launch();
        self.wait_ready().await;
    }

    /// Wait until it takes alerts.
    pub(crate) async fn wait_ready(&self) {
        eventually("the service is ready", Duration::from_secs(30), async || match self.get("/-/ready").await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}\n{}", self.tail())),
        })
        .await;
    }

    /// Kill it.
    pub(crate) fn kill9(&mut self) {
        self.process = None;
        // Its connections are gone as well.
        self.http = Http::new();
    }

    /// Ask it to stop, and wait until it did.
    pub(crate) async fn stop(&mut self) {
        if let Some(process) = &self.process {
            process.signal("TERM");
            eventually("the service ends", Duration::from_secs(30), async || {
                if process.has_ended() { Ok(()) } else { Err(process.tail()) }
            })
            .await;
        }
        self.kill9();
    }

    /// Give it another configuration, for the next reload.
    pub(crate) fn configure(&self, config: &str) {
        fs::write(self.dir.path().join("config.yaml"), config).expect("the directory is writable");
    }

    /// Ask it to load its configuration again.
    pub(crate) async fn reload(&self) -> Result<(u16, String), String> {
        self.http.send("POST", &format!("{}/-/reload", self.url), None).await
    }

    /// The address that Alertmanager posts to.
    pub(crate) fn webhook(&self) -> String {
        format!("{}/api/v1/alerts", self.url)
    }

    /// `host:port` of it.
    pub(crate) fn address(&self) -> String {
        self.url.trim_start_matches("http://").to_owned()
    }

    /// Read a path.
    pub(crate) async fn get(&self, path: &str) -> Result<(u16, String), String> {
        self.http.send("GET", &format!("{}{path}", self.url), None).await
    }

    /// Post a body, once.
    pub(crate) async fn post(&self, body: &Value) -> Result<(u16, Value), String> {
        post(&self.http, &self.webhook(), body).await
    }

    /// Post a body that must be taken; its results.
    pub(crate) async fn deliver(&self, body: &Value) -> Vec<Value> {
        let (status, answer) = self.post(body).await.unwrap_or_else(|e| panic!("{e}\n{}", self.tail()));
        assert_eq!(status, 200, "{answer}\n{}", self.tail());
        answer["results"].as_array().expect("results").clone()
    }

    /// Post a body that must be taken and holds one alert; its outcome.
    pub(crate) async fn outcome(&self, body: &Value) -> String {
        self.deliver(body).await[0]["outcome"].as_str().expect("an outcome").to_owned()
    }

    /// Post a body until it is taken, as Alertmanager does.
    pub(crate) async fn insist(&self, body: &Value) {
        eventually("the body is taken", Duration::from_secs(60), async || match self.post(body).await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}\n{}", self.tail())),
        })
        .await;
    }

    /// One node as the service shows it; null if it does not.
    pub(crate) async fn node(&self, name: &str) -> Value {
        let (status, text) = self.get("/api/v1/nodes").await.expect("an answer");
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        answer["nodes"].as_array().expect("nodes").iter().find(|n| n["name"] == name).cloned().unwrap_or_default()
    }

    /// Wait until the service shows a node in `state`.
    pub(crate) async fn wait_state(&self, name: &str, state: &str) -> Value {
        eventually(&format!("{name} is {state}"), Duration::from_secs(20), async || {
            let node = self.node(name).await;
            if node["state"] == state { Ok(node) } else { Err(format!("{node}\n{}", self.tail())) }
        })
        .await
    }

    /// Its metrics.
    pub(crate) async fn metrics(&self) -> String {
        self.get("/metrics").await.expect("an answer").1
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        self.process.as_ref().map(Process::tail).unwrap_or_default()
    }
}

/// Post a body to a service that may be killed meanwhile.
pub(crate) async fn post(http: &Http, webhook: &str, body: &Value) -> Result<(u16, Value), String> {
    let (status, text) = http.send("POST", webhook, Some(body)).await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

/// Now, in whole milliseconds.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// One alert about the GPU `gpu` of a node, since `since`.
#[derive(Debug, Clone)]
pub(crate) struct Alert {
    pub(crate) node: String,
    pub(crate) gpu: u8,
    pub(crate) since: Timestamp,
}

impl Alert {
    /// One that begins now.
    pub(crate) fn on(node: &str) -> Self {
        Self { node: node.to_owned(), gpu: 0, since: now() }
    }

    /// Its labels.
    pub(crate) fn labels(&self) -> Labels {
        let gpu = format!("GPU-{:08x}-8a3e-5c1d-b7a1-000000000000", self.gpu);
        [("alertname", "GpuLost"), ("cluster", "test"), ("node", &self.node), ("UUID", &gpu)].into_iter().collect()
    }

    fn json(&self, end: Option<Timestamp>) -> Value {
        let labels = self.labels();
        json!({
            "status": if end.is_some() { "resolved" } else { "firing" },
            "fingerprint": Fingerprint::of(&labels), "labels": labels, "annotations": {"summary": "a GPU is gone"},
            "startsAt": self.since, "endsAt": end.map_or("0001-01-01T00:00:00Z".to_owned(), |t| t.to_string()),
            "generatorURL": "http://prometheus.example/graph",
        })
    }

    /// A body with it firing.
    pub(crate) fn firing(&self) -> Value {
        body(&[self.json(None)])
    }

    /// A body with it resolved just now.
    pub(crate) fn resolved(&self) -> Value {
        body(&[self.json(Some(now()))])
    }
}

/// A body with several alerts firing.
pub(crate) fn all_firing(alerts: &[Alert]) -> Value {
    body(&alerts.iter().map(|a| a.json(None)).collect::<Vec<_>>())
}

fn body(alerts: &[Value]) -> Value {
    json!({
        "version": "4", "groupKey": "{}:{cluster=\"test\"}", "receiver": "gpu-quarantine", "truncatedAlerts": 0,
        "status": alerts.first().map(|a| a["status"].clone()), "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {},
        "externalURL": "http://alertmanager.example", "alerts": alerts,
    })
}
