//! The service as a process, what is posted to it, and what the kernel says of it.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tempfile::TempDir;

use crate::{
    alerts::CONFIG,
    process::{eventually, free_port},
};

/// The program as it ships.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-quarantine");
const CALLS: &str = "gpu_quarantine_kubernetes_request_duration_seconds_count{";

/// A running service. Dropped, it is killed.
pub(crate) struct Service {
    child: Child,
    url: String,
    http: Client<HttpConnector, Full<Bytes>>,
    _dir: TempDir,
}

impl Service {
    /// Start it, and wait until it takes alerts; how long that took.
    pub(crate) async fn start(kubeconfig: &Path) -> (Self, Duration) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("config.yaml");
        fs::write(&config, CONFIG).expect("the directory is writable");
        let log = fs::File::create(dir.path().join("log")).expect("the directory is writable");
        let address = format!("127.0.0.1:{}", free_port());
        let begin = Instant::now();
        let child = Command::new(PROGRAM)
            .args(["serve", "--web.listen-address", &address])
            .arg("--config.file")
            .arg(config)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the service can be started");
        let http = Client::builder(TokioExecutor::new()).build_http();
        let service = Self { child, url: format!("http://{address}"), http, _dir: dir };
        eventually("the service is ready", Duration::from_secs(120), async || match service.get("/-/ready").await {
            Ok((200, _)) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        (service, begin.elapsed())
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<(u16, Bytes), String> {
        let request =
            Request::builder().method(method).uri(format!("{}{path}", self.url)).body(Full::new(body)).expect("a request");
        let response = self.http.request(request).await.map_err(|e| format!("{e:?}"))?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await.map_err(|e| format!("{e:?}"))?.to_bytes()))
    }

    async fn get(&self, path: &str) -> Result<(u16, Bytes), String> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Post a body, which must be answered with 200 and one `outcome` for each of its `alerts`; how long that took.
    pub(crate) async fn post(&self, body: Bytes, alerts: usize, outcome: &str) -> Duration {
        let begin = Instant::now();
        let (status, answer) = self.send(Method::POST, "/api/v1/alerts", body).await.expect("an answer");
        let took = begin.elapsed();
        let text = String::from_utf8_lossy(&answer);
        let found = text.matches(&format!("\"outcome\":\"{outcome}\"")).count();
        assert!(status == 200 && found == alerts, "{status}, {found} of {alerts} are {outcome}: {text:.2000}");
        took
    }

    /// How many calls of that verb the service made to the API server so far, by its own count.
    pub(crate) async fn calls(&self, verb: &str) -> u64 {
        let (_, text) = self.get("/metrics").await.expect("an answer");
        let text = String::from_utf8_lossy(&text);
        let ours = text.lines().filter_map(|line| line.strip_prefix(CALLS)).filter(|l| l.contains(&format!("verb=\"{verb}\"")));
        ours.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// A line of the process's status, in MB (10^6 bytes): `VmRSS` now, `VmHWM` at its highest.
    pub(crate) fn memory(&self, line: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let found = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
        let kib = found.and_then(|l| l.trim().strip_suffix(" kB")?.parse::<u32>().ok());
        f64::from(kib.expect("Linux tells the memory of a process")) * 1024.0 / 1e6
    }

    /// Processor time used so far, in ms, to 10 ms.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // After the name, which may hold anything: the state is field 3, utime and stime are 14 and 15.
        let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
        fields.filter_map(|f| f.parse::<u32>().ok()).map(f64::from).sum::<f64>() * 10.0
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
