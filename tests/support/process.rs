//! The real program as a child process, on a port that the kernel chose.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use axum::{body::Bytes, http::Request};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `gpu-quarantine serve` on prod-a, not yet started. Further arguments may follow.
pub(crate) fn serve(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-quarantine"));
    command.arg("serve").arg("--config.file").arg(config);
    command.arg("--cluster").arg(root().join("fixtures/clusters/prod-a.yaml"));
    command
}

/// Run to the end: the exit code, standard output and standard error.
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let mut child = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let status = child.ended().expect("it should have ended by itself");
    let (mut out, mut err) = (String::new(), String::new());
    child.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (status.code(), out, err)
}

/// A child that does not outlive its test.
struct Killed(Child);

impl Killed {
    fn ended(&mut self) -> Option<ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

type Log = Arc<(Mutex<Vec<String>>, Condvar)>;

/// The running service.
pub(crate) struct Process {
    child: Killed,
    log: Log,
    client: Client<HttpConnector, Full<Bytes>>,
    pub(crate) address: String,
    pub(crate) config: PathBuf,
    _dir: TempDir,
}

impl Process {
    /// Start with this configuration and wait until it listens. The log is JSON unless the arguments say otherwise.
    pub(crate) fn start(config: &str, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        fs::write(&path, config).unwrap();
        let mut command = serve(&path);
        command.args(["--web.listen-address", "127.0.0.1:0"]).args(args);
        if !args.contains(&"--log.format") {
            command.args(["--log.format", "json"]);
        }
        let mut child = Killed(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let log = Log::default();
        let (lines, sink) = (BufReader::new(child.0.stderr.take().unwrap()).lines(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                sink.0.lock().unwrap().push(line);
                sink.1.notify_all();
            }
        });
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut process = Self { child, log, client, address: String::new(), config: path, _dir: dir };
        let line = process.logged("Listening for alerts.");
        // Both formats write it as the only text of this shape: digits, dots and a colon.
        let address = line.rsplit("address").next().unwrap();
        address.trim_matches(|c: char| !c.is_ascii_digit()).clone_into(&mut process.address);
        process
    }

    /// Wait for a line of the log with this text; the first such line.
    pub(crate) fn logged(&self, text: &str) -> String {
        let guard = self.log.0.lock().unwrap();
        let missing = |lines: &mut Vec<String>| !lines.iter().any(|l| l.contains(text));
        let (lines, waited) = self.log.1.wait_timeout_while(guard, PATIENCE, missing).unwrap();
        assert!(!waited.timed_out(), "no {text:?} in\n{}", lines.join("\n"));
        lines.iter().find(|l| l.contains(text)).unwrap().clone()
    }

    pub(crate) fn log(&self) -> String {
        self.log.0.lock().unwrap().join("\n")
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").arg(format!("-{signal}")).arg(self.child.0.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// Wait for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let ended = self.child.ended();
        ended.unwrap_or_else(|| panic!("it should have ended:\n{}", self.log()))
    }

    pub(crate) fn configure(&self, config: &str) {
        fs::write(&self.config, config).unwrap();
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> (u16, String) {
        let request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        let request = request.body(Full::new(body.into())).unwrap();
        let response = tokio::time::timeout(PATIENCE, self.client.request(request)).await.expect("an answer").unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Post a file of `fixtures/`: the outcomes of a 200.
    pub(crate) async fn post(&self, file: &str) -> Vec<String> {
        let body = fs::read(root().join("fixtures").join(file)).unwrap();
        let (status, text) = self.send("POST", "/api/v1/alerts", body).await;
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let results = answer["results"].as_array().unwrap();
        results.iter().map(|r| r["outcome"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn node(&self, name: &str) -> Value {
        let (_, text) = self.send("GET", "/api/v1/nodes", "").await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        answer["nodes"].as_array().unwrap().iter().find(|n| n["name"] == name).unwrap().clone()
    }

    /// The value of a series of `/metrics`.
    pub(crate) async fn metric(&self, series: &str) -> String {
        let (_, text) = self.send("GET", "/metrics", "").await;
        let value = text.lines().find_map(|l| l.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in\n{text}")).to_owned()
    }

    /// Wait until a node is as wanted.
    pub(crate) async fn until(&self, node: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let view = self.node(node).await;
            if wanted(&view) {
                return view;
            }
            assert!(begin.elapsed() < PATIENCE, "{view}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
