//! `serve`: the service.

use std::{
    future::IntoFuture,
    io::{IsTerminal, stderr},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tracing_subscriber::EnvFilter;

use super::{
    Failure, LiveSources,
    evicting::{LiveAids, evict_for_ever},
    keeping::{keep_for_ever, read_at_start},
    load_config, load_snapshot,
    proving::prove_for_ever,
    pulling::pull_for_ever,
    recording::{Recorder, Recording},
    runtime,
};
use crate::{
    cluster::{
        Cluster,
        kubernetes::{self, ConnectError, EventWriter, KubeCluster},
    },
    engine::{Clock, Engine, NoticeSink, Step, StepSink, SystemClock},
    metrics::Metrics,
    notice::Notice,
    policy::{Config, HttpOptions},
    server::{App, DEFAULT_MAX_BODY, is_loopback},
};

/// How long work in flight may take after SIGTERM. Below Kubernetes' default grace of 30 s.
const DRAIN: Duration = Duration::from_secs(20);
/// How long the last Events may take after that.
const LAST_EVENTS: Duration = Duration::from_secs(3);
/// Parked alerts are tried again this often even if no node changes.
const REFRESH: Duration = Duration::from_secs(60);
/// Changes of nodes are gathered for so long before they are looked at.
const GATHER: Duration = Duration::from_millis(200);

/// Receive alerts and act on them.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sources: LiveSources,
    /// Whether decisions are carried out. `observe` reads and decides for real and writes nothing to nodes.
    #[arg(long, value_enum, default_value = "enforce")]
    mode: Mode,
    /// The same as --mode observe.
    #[arg(long)]
    dry_run: bool,
    /// Record what comes into this directory, redacted, such that `replay` of it decides the same.
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Where to listen. Other than loopback needs --web.allow-unauthenticated.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:9876")]
    listen: SocketAddr,
    /// Listen beyond loopback although this version authenticates nobody: who reaches the port can isolate nodes.
    #[arg(long = "web.allow-unauthenticated")]
    allow_unauthenticated: bool,
    /// The largest body taken, in bytes.
    #[arg(long = "web.max-body-size", value_name = "BYTES", default_value_t = DEFAULT_MAX_BODY)]
    max_body: usize,
    /// When a delivery is answered at the latest; keep it below Alertmanager's own timeout.
    #[arg(long = "web.deadline", value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "8s")]
    deadline: Duration,
    /// Which log lines are written: a level, or directives such as `info,gpu_quarantine=debug`.
    #[arg(long = "log.level", value_name = "FILTER", default_value = "info")]
    log_level: String,
    /// How log lines are written.
    #[arg(long = "log.format", value_enum, default_value = "text")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    #[default]
    Enforce,
    Observe,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    start_log(&args.log_level, args.log_format)?;
    if !is_loopback(&args.listen) && !args.allow_unauthenticated {
        return Err(Failure::input(format!(
            "{} is reachable from other machines and this version authenticates nobody: listen on 127.0.0.1, or give \
             --web.allow-unauthenticated if something in front of it does",
            args.listen
        )));
    }
    let config = load_config(&args.sources.config)?;
    runtime()?.block_on(serve(args, config))
}

fn start_log(level: &str, format: LogFormat) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(level).map_err(|e| Failure::input(format!("--log.level {level:?}: {e}")))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_ansi(stderr().is_terminal());
    let started = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| Failure::unreachable(format!("cannot start logging: {e}")))
}

fn log_step(step: &Step) {
    tracing::info!(
        node = %step.node, action = step.action, policy = step.policy.as_deref().unwrap_or_default(), reason = %step.reason,
        "The action on a node changed."
    );
    for pod in &step.pods {
        tracing::info!(node = %step.node, pod = %pod.pod, outcome = pod.outcome, reason = %pod.reason, "What became of a pod of an isolated node.");
    }
}

fn log_notice(notice: &Notice) {
    let node = notice.node.as_ref().map(|n| n.name.as_str()).unwrap_or_default();
    tracing::info!(reason = %notice.reason, node, "{}", notice.note);
}

/// What a service has besides a configuration, a cluster and metrics.
#[derive(Default)]
pub(super) struct Options {
    /// The file that a reload reads.
    pub(super) reload_from: Option<PathBuf>,
    pub(super) mode: Mode,
    pub(super) recording: Option<Arc<Recording>>,
    /// Where people are told.
    pub(super) notices: Option<NoticeSink>,
}

/// The parts of a running service, put together; also what the demo runs.
pub(super) fn assemble(
    config: Config,
    cluster: Arc<dyn Cluster>,
    metrics: Arc<Metrics>,
    sink: StepSink,
    options: Options,
) -> App {
    let Options { reload_from, mode, recording, notices } = options;
    let clock = Arc::new(SystemClock);
    metrics.expect_policies(&config);
    metrics.reloaded(Some(clock.now()));
    let engine = Engine::new(cluster, config, clock, Arc::clone(&metrics), sink);
    let engine = engine.after_a_pull().aided(Arc::new(LiveAids { metrics: Arc::clone(&metrics) }));
    let mut engine = if mode == Mode::Observe { engine.observing() } else { engine };
    if let Some(recording) = recording.clone() {
        engine = engine.telling_foreign(Box::new(move |change| recording.foreign(&change, SystemClock.now())));
    }
    // Events speak of what was done. What would be done is in the log and in /api/v1/nodes.
    if let Some(notices) = notices.filter(|_| mode == Mode::Enforce) {
        engine = engine.with_notices(notices);
    }
    let engine = Arc::new(engine);
    let (reload_engine, reload_metrics) = (Arc::clone(&engine), Arc::clone(&metrics));
    let one_at_a_time = Arc::new(tokio::sync::Mutex::new(()));
    let reload = move || {
        let (engine, metrics, path) = (Arc::clone(&reload_engine), Arc::clone(&reload_metrics), reload_from.clone());
        let turn = Arc::clone(&one_at_a_time);
        let reload: futures::future::BoxFuture<'static, Result<(), String>> = Box::pin(async move {
            // From reading the file to its being in force: else an older file could replace a newer one.
            let _turn = turn.lock().await;
            reload(path, &engine, &metrics).await
        });
        reload
    };
    let mut app = App::new(Arc::clone(&engine), metrics, Box::new(reload));
    if let Some(recording) = recording {
        app.observer = Some(Box::new(Recorder { recording, engine }));
    }
    app
}

/// All of the new configuration is good, or the old one stays.
async fn reload(path: Option<PathBuf>, engine: &Engine, metrics: &Metrics) -> Result<(), String> {
    let result = match path {
        None => Err("this service was not started from a configuration file".to_owned()),
        Some(path) => match load_config(&path) {
            Err(failure) => Err(failure.message),
            Ok(config) => {
                metrics.expect_policies(&config);
                engine.reload(config).await.map_err(|e| format!("{}: {e}", path.display()))
            }
        },
    };
    match &result {
        Ok(()) => {
            metrics.reloaded(Some(SystemClock.now()));
            tracing::info!("The configuration was loaded.");
        }
        Err(error) => {
            metrics.reloaded(None);
            tracing::error!(%error, "The configuration was not loaded; the old one stays in force.");
        }
    }
    result
}

/// Until then, on our clock; for ever without a time.
pub(super) async fn until(at: Option<Timestamp>) {
    let Some(at) = at else { return std::future::pending().await };
    tokio::time::sleep(at.duration_since(SystemClock.now()).max(SignedDuration::ZERO).unsigned_abs()).await;
}

/// Timers, changes of nodes, parked alerts. Never ends by itself.
pub(super) async fn tick(engine: Arc<Engine>) {
    let mut changes = engine.cluster().changes();
    let mut refresh = tokio::time::interval(REFRESH);
    engine.refresh().await;
    loop {
        tokio::select! {
            () = until(engine.next_due()) => engine.run_due().await,
            () = engine.timers.notified() => {}
            _ = refresh.tick() => {
                engine.refresh().await;
                engine.retry_parked().await;
            }
            Ok(()) = changes.changed() => {
                tokio::time::sleep(GATHER).await;
                changes.mark_unchanged();
                engine.refresh().await;
            }
        }
    }
}

/// A cluster, where its people are told, and what runs beside it.
struct Connected {
    cluster: Arc<dyn Cluster>,
    notices: NoticeSink,
    /// What keeps the inventory current, and what writes Events. The embedded cluster needs neither.
    beside: Option<(JoinHandle<()>, EventWriter)>,
}

async fn connect(sources: &LiveSources, config: &Config, metrics: &Arc<Metrics>) -> Result<Connected, Failure> {
    if let Some(file) = &sources.cluster {
        let notices = |notice: Notice, _: &Arc<Config>| log_notice(&notice);
        let cluster = Arc::new(load_snapshot(file, &config.domain)?);
        return Ok(Connected { cluster, notices: Box::new(notices), beside: None });
    }
    let failed = |e: ConnectError| Failure::unreachable(e.to_string());
    let client = kubernetes::config(sources.kubeconfig.as_deref(), sources.context.as_deref()).await.map_err(failed)?;
    tracing::info!(url = %client.cluster_url, "Connecting to the cluster.");
    let labels = config.node_label_keys();
    let cluster = KubeCluster::new(client, &config.domain, labels, Arc::clone(metrics)).map_err(failed)?;
    let cluster = Arc::new(cluster);
    let watch = tokio::spawn({
        let cluster = Arc::clone(&cluster);
        async move { cluster.watch().await }
    });
    let (notices, events) = EventWriter::start(Arc::clone(&cluster), Arc::new(SystemClock), Arc::clone(metrics));
    Ok(Connected { cluster, notices, beside: Some((watch, events)) })
}

/// How the watch on nodes ended, which it must not; never where there is none.
async fn watch_ended(beside: &mut Option<(JoinHandle<()>, EventWriter)>) -> Result<(), tokio::task::JoinError> {
    match beside {
        Some((watch, _)) => watch.await,
        None => std::future::pending().await,
    }
}

async fn serve(args: Args, config: Config) -> Result<(), Failure> {
    let signals = |kind| signal(kind).map_err(|e| Failure::unreachable(format!("cannot wait for signals: {e}")));
    let (mut hangup, mut terminate, mut interrupt) =
        (signals(SignalKind::hangup())?, signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|e| Failure::unreachable(format!("cannot listen on {}: {e}", args.listen)))?;
    let address = listener.local_addr().map_err(|e| Failure::unreachable(format!("cannot tell the address: {e}")))?;

    let mode = if args.dry_run { Mode::Observe } else { args.mode };
    if mode == Mode::Observe {
        tracing::warn!("Observing only: nothing will be written to nodes.");
    }
    let metrics = Arc::new(Metrics::new());
    let Connected { cluster, notices, mut beside } = connect(&args.sources, &config, &metrics).await?;
    let path = args.sources.config.clone();
    let asked = config.alertmanagers.as_ref().map(|a| &a.http).into_iter().chain(config.prometheus.as_ref().map(|p| &p.http));
    if args.record.is_some() && asked.into_iter().any(HttpOptions::holds_secrets) {
        let why = "--record copies the configuration, which holds secrets: put them into files (password_file, credentials_file, files)";
        return Err(Failure::input(why));
    }
    let recording = args.record.as_ref().map(|dir| Recording::into(dir, &path)).transpose()?.map(Arc::new);
    let options = Options { reload_from: Some(path), mode, recording: recording.clone(), notices: Some(notices) };
    let mut app = assemble(config, cluster, metrics, Box::new(|step| log_step(&step)), options);
    (app.deadline, app.max_body) = (args.deadline, args.max_body);
    let engine = Arc::clone(&app.engine);
    read_at_start(&engine).await;
    engine.refresh().await;
    let app = Arc::new(app);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut wait = stopped.clone();
    let server = axum::serve(listener, App::router(Arc::clone(&app)))
        .with_graceful_shutdown(async move {
            // An error means that the sender is gone, which is a stop as well.
            wait.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
        })
        .into_future();
    let mut server = tokio::spawn(server);
    let mut ticks = tokio::spawn(tick(Arc::clone(&engine)));
    let mut pulls = tokio::spawn(pull_for_ever(Arc::clone(&engine), Arc::clone(&app.metrics), recording.clone()));
    let mut proofs = tokio::spawn(prove_for_ever(Arc::clone(&engine), Arc::clone(&app.metrics), recording.clone()));
    let mut evictions = tokio::spawn(evict_for_ever(Arc::clone(&engine)));
    let mut ledger = tokio::spawn(keep_for_ever(engine));
    tracing::info!(%address, "Listening for alerts.");

    loop {
        tokio::select! {
            // A task of its own: nodes are decided again, and a signal to stop must not wait for that.
            _ = hangup.recv() => drop(tokio::spawn((app.reload)())),
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            ended = &mut ticks => {
                return Err(Failure::unreachable(format!("timers ended by themselves, and nothing would be released: {ended:?}")));
            }
            ended = &mut pulls => {
                return Err(Failure::unreachable(format!("pulls ended by themselves, and lost notifications would stay lost: {ended:?}")));
            }
            ended = &mut proofs => {
                return Err(Failure::unreachable(format!("evidence is no longer asked for, and nothing would be released: {ended:?}")));
            }
            ended = &mut evictions => {
                return Err(Failure::unreachable(format!("evictions ended by themselves, and pods would stay on isolated nodes: {ended:?}")));
            }
            ended = &mut ledger => {
                return Err(Failure::unreachable(format!("the ledger is no longer kept, and a pause would not be heard of: {ended:?}")));
            }
            ended = watch_ended(&mut beside) => {
                return Err(Failure::unreachable(format!("the watch on nodes ended by itself: {ended:?}")));
            }
            ended = &mut server => {
                return Err(Failure::unreachable(format!("the server ended by itself: {ended:?}")));
            }
        }
    }
    tracing::info!("Stopping: finishing what is in flight.");
    // Evictions that go on are finished, or found on record.
    for task in [&ticks, &pulls, &proofs, &evictions, &ledger] {
        task.abort();
    }
    let events = beside.map(|(watch, events)| {
        watch.abort();
        events
    });
    stop.send_replace(true);
    let finished = async {
        // How the accept loop ended no longer matters.
        drop((&mut server).await);
        app.drained().await;
        app.engine.flush().await;
        if app.engine.ledger_has_news() {
            app.engine.sync_ledger().await;
        }
        if let Some(recording) = recording {
            recording.end(&app.engine).await;
        }
        if let Some(events) = events {
            events.finish(LAST_EVENTS).await;
        }
    };
    tokio::select! {
        () = finished => Ok(()),
        _ = terminate.recv() => Err(Failure::finding("stopped at once by a second signal")),
        _ = interrupt.recv() => Err(Failure::finding("stopped at once by a second signal")),
        () = tokio::time::sleep(DRAIN) => Err(Failure::finding("what was in flight did not finish in time")),
    }
}

#[cfg(test)]
mod tests {
    use crate::server::DEFAULT_DEADLINE;

    #[test]
    fn the_default_deadline_of_the_flag_is_the_default_of_the_server() {
        assert_eq!(humantime::parse_duration("8s").unwrap(), DEFAULT_DEADLINE);
    }
}
