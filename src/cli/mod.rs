//! The commands, one module each, and what they share: flags, files, exit codes.

mod demo;
mod evicting;
mod explain;
mod guard;
mod incident;
mod keeping;
mod nodes;
mod pause;
mod proving;
mod pulling;
mod recording;
mod replay;
mod serve;
mod statements;
mod table;
mod uninstall;

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand, ValueEnum};

use crate::{
    alert::{Delivery, parse_body},
    cluster::snapshot::SnapshotCluster,
    policy::{self, Config},
};

/// Alertmanager webhook receiver that isolates Kubernetes nodes with GPU faults and gives them back when the fault is gone.
#[derive(Debug, Parser)]
#[command(name = "gpu-quarantine", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Receive alerts and act on them.
    Serve(serve::Args),
    /// Run recorded webhook bodies through the same decisions, on a virtual clock and an embedded cluster.
    Replay(replay::Args),
    /// Say for each alert of a body which policy and node it is about, why, and what would be done.
    Explain(explain::Args),
    /// Run a recorded incident over HTTP against the embedded cluster and show what an on-call engineer would see.
    Demo(demo::Args),
    /// What stands on the nodes and why; hold, release or ignore one.
    Nodes(nodes::Args),
    /// Each limit of the guard, its use, and who waits for what.
    Guard(guard::Args),
    /// Begin nothing new until `resume`: no isolation, no eviction. Releases go on.
    Pause(pause::PauseArgs),
    /// End the pause: what waits is looked at again and let in, in its order.
    Resume(pause::ResumeArgs),
    /// Give back everything that the service put on nodes, and begin nothing new from now on.
    Uninstall(uninstall::Args),
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Where the configuration and the embedded cluster come from.
#[derive(Debug, clap::Args)]
struct Sources {
    /// The configuration file.
    #[arg(long = "config.file", value_name = "FILE")]
    config: PathBuf,
    /// The embedded cluster: a YAML stream of Nodes and Pods, as `kubectl get nodes,pods -A -o yaml` prints them.
    #[arg(long, value_name = "FILE")]
    cluster: PathBuf,
}

/// Where the configuration and a live or embedded cluster come from.
#[derive(Debug, clap::Args)]
struct LiveSources {
    /// The configuration file.
    #[arg(long = "config.file", value_name = "FILE")]
    config: PathBuf,
    /// The embedded cluster instead of a real one: a YAML stream of Nodes and Pods.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    cluster: Option<PathBuf>,
    /// How to reach the cluster; without it the environment says so, as for kubectl, or the pod's service account.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Where the configuration and a live cluster come from.
#[derive(Debug, clap::Args)]
struct Place {
    /// The configuration file: whose instance, domain, taint and ledger are meant.
    #[arg(long = "config.file", value_name = "FILE")]
    config: PathBuf,
    /// How to reach the cluster; without it the environment says so, as for kubectl, or the pod's service account.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

fn load_snapshot(path: &Path, domain: &str) -> Result<SnapshotCluster, Failure> {
    let text = read_file(path)?;
    SnapshotCluster::load(&path.display().to_string(), &text, domain).map_err(|e| Failure::input(e.to_string()))
}

impl Sources {
    fn load(&self) -> Result<(Config, SnapshotCluster), Failure> {
        let config = load_config(&self.config)?;
        let cluster = load_snapshot(&self.cluster, &config.domain)?;
        Ok((config, cluster))
    }
}

/// Why a command ended without success. The exit codes are part of the interface.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// A difference, a finding or a refusal.
    fn finding(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// Usage or bad input.
    fn input(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// The cluster or a source cannot be reached, or this machine does not let us work.
    fn unreachable(message: impl Into<String>) -> Self {
        Self { code: 3, message: message.into() }
    }
}

impl Cli {
    /// Run the command. Exit codes: 0 well, 1 a difference, finding or refusal, 2 usage or bad input, 3 something unreachable.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let result = match self.command {
            Command::Serve(args) => serve::run(args),
            Command::Replay(args) => replay::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Nodes(args) => nodes::run(&args),
            Command::Guard(args) => guard::run(&args),
            Command::Pause(args) => pause::pause(args),
            Command::Resume(args) => pause::resume(&args),
            Command::Uninstall(args) => uninstall::run(&args),
        };
        match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("{}", failure.message);
                ExitCode::from(failure.code)
            }
        }
    }
}

fn read_file(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|e| Failure::input(format!("cannot read {}: {e}", path.display())))
}

fn load_config(path: &Path) -> Result<Config, Failure> {
    let text = read_file(path)?;
    policy::load(&path.display().to_string(), &text).map_err(|e| Failure::input(e.to_string()))
}

/// A webhook body from a file, or from standard input for `-`.
fn read_delivery(path: &str) -> Result<Delivery, Failure> {
    parse_delivery(path, &read_bytes(path)?)
}

/// The bytes of a file, or of standard input for `-`.
fn read_bytes(path: &str) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    let read =
        if path == "-" { io::stdin().read_to_end(&mut body).map(|_| ()) } else { fs::read(path).map(|bytes| body = bytes) };
    read.map_err(|e| Failure::input(format!("cannot read {}: {e}", shown(path))))?;
    Ok(body)
}

fn parse_delivery(path: &str, body: &[u8]) -> Result<Delivery, Failure> {
    parse_body(body).map_err(|e| Failure::input(format!("{}: {e}", shown(path))))
}

fn shown(path: &str) -> &str {
    if path == "-" { "standard input" } else { path }
}

/// A line for a terminal: whatever an alert carries, it must not steer it.
fn printable(line: &str) -> String {
    line.replace(char::is_control, "\u{fffd}")
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::unreachable(format!("cannot start the runtime: {e}")))
}
