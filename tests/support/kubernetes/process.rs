//! Programs that die with the test, whatever becomes of it, and small helpers to wait for them.

use std::{
    collections::BTreeSet,
    fmt::Display,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The shell holds our end of a pipe as its standard input. When that closes, because the test closes it, panics or is killed
/// itself, the program is killed. A terminal's Ctrl-C reaches the shell too, which therefore ignores it.
const KEEPER: &str = r#"trap "" INT HUP TERM QUIT
log=$1 clean=$2; shift 2
"$@" >>"$log" 2>&1 </dev/null &
echo $!
exec >/dev/null
cat
kill -9 $!
wait $!
code=$?
[ -z "$clean" ] || rm -rf "$clean"
exit $code"#;

/// A running program. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    keeper: Child,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Start a program with its output appended to `log`; `clean` is a directory to be removed after its end.
    pub(crate) fn start(program: &Path, args: &[String], log: &Path, clean: Option<&Path>) -> Self {
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(log)
            .arg(clean.unwrap_or(Path::new("")))
            .arg(program)
            .args(args)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh can be started");
        let mut pid = String::new();
        BufReader::new(keeper.stdout.take().expect("it is piped")).read_line(&mut pid).expect("the shell tells the process id");
        let pid = pid.trim().parse().expect("a process id");
        Self { keeper, pid, log: log.to_owned() }
    }

    /// Send a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        assert!(self.try_signal(name), "kill -{name} {}: {}", self.pid, self.tail());
    }

    /// Send a signal by name to what may have ended.
    pub(crate) fn try_signal(&self, name: &str) -> bool {
        let kill = Command::new("kill").arg(format!("-{name}")).arg(self.pid.to_string()).stderr(Stdio::null()).status();
        kill.expect("kill can be started").success()
    }

    /// Whether it ended by itself; without /proc nobody can tell.
    pub(crate) fn has_ended(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid));
        Path::new("/proc/self/status").exists() && status.map_or(true, |text| text.contains("State:\tZ"))
    }

    /// Kill it if it still runs. Its exit code, or 128 and the number of the signal that ended it.
    pub(crate) fn end(&mut self) -> i32 {
        drop(self.keeper.stdin.take());
        // The shell kills the program, waits for its end and ends as it did.
        self.keeper.wait().ok().and_then(|status| status.code()).unwrap_or(-1)
    }

    /// The last lines of its output.
    pub(crate) fn tail(&self) -> String {
        let text = fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        format!("{}:\n{}", self.log.display(), lines[lines.len().saturating_sub(25)..].join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A program that a test cannot do without. In CI it must be there; elsewhere the test is skipped, and says so.
pub(crate) fn required(found: Option<PathBuf>, what: &str) -> Option<PathBuf> {
    if found.is_none() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{what}");
        // Past the test runner, which shows nothing of a test that passes.
        writeln!(std::io::stderr(), "SKIPPED: {what}").expect("standard error can be written");
    }
    found
}

/// A program in the `PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A port that nobody listens on, given to nobody else in this process.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        if GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return port;
        }
    }
}

/// A name that no other test of this process uses.
pub(crate) fn unique(stem: &str) -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    format!("{stem}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// By how much the random cases are multiplied.
pub(crate) fn soak() -> u64 {
    std::env::var("GPU_QUARANTINE_SOAK").map_or(1, |v| v.parse().expect("GPU_QUARANTINE_SOAK is a whole number"))
}

/// Poll until there is an answer. `probe` says in its error what is the case instead.
pub(crate) async fn eventually<T, E: Display>(what: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    loop {
        match probe().await {
            Ok(answer) => return answer,
            Err(e) if begin.elapsed() > limit => panic!("{what}: not within {limit:?}: {e}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Random numbers from a seed (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}
