//! Pulls as long as the service runs, by the configuration in force.

use std::sync::Arc;

use super::recording::Recording;
use crate::{
    alert::Pull,
    engine::{Clock as _, Engine, SystemClock},
    metrics::Metrics,
    quarantine::Outcome,
    sources::{Sources, poll},
};

/// Never ends by itself.
pub(super) async fn pull_for_ever(engine: Arc<Engine>, metrics: Arc<Metrics>, recording: Option<Arc<Recording>>) {
    let mut reloads = engine.reloads();
    loop {
        reloads.mark_unchanged();
        let settings = engine.config().alertmanagers.clone();
        metrics.pull_configured(settings.is_some());
        let Some(settings) = settings else {
            tracing::warn!(
                "No sources.alertmanagers is configured, so webhooks are all that is known: a resolve that is never sent (silenced, \
                 inhibited, muted, lost) leaves a node isolated, and a silence is no veto."
            );
            // The sender is the engine, which is there.
            drop(reloads.changed().await);
            continue;
        };
        let sources = Sources::new(settings, Arc::clone(&metrics));
        let consume = |pull: Pull| {
            let (engine, recording) = (Arc::clone(&engine), recording.clone());
            // A task of its own: a reload ends the loop, and a node half decided helps nobody.
            let taken = tokio::spawn(async move { take(&engine, recording.as_deref(), &pull).await });
            let done: futures::future::BoxFuture<'static, ()> = Box::pin(async move {
                if let Err(error) = taken.await {
                    tracing::error!(%error, "The work on a pull ended abnormally.");
                }
            });
            done
        };
        tokio::select! {
            () = poll::run(&sources, || SystemClock.now(), &engine.wanted, consume) => {}
            _ = reloads.changed() => {}
        }
    }
}

async fn take(engine: &Engine, recording: Option<&Recording>, pull: &Pull) {
    if let Some(recording) = recording {
        recording.begin(&**engine.cluster(), &engine.config()).await;
        recording.pull(pull, &engine.config(), SystemClock.now());
    }
    let came = engine.pull(pull).await;
    let news = came.results.iter().filter(|r| r.outcome == Outcome::Recorded).count();
    if news > 0 {
        tracing::info!(alerts = news, "A pull found alerts that no webhook had told, or told otherwise.");
    }
    if came.failed > 0 {
        tracing::warn!(
            nodes = came.failed,
            "What a pull found could not be written to some nodes. The next pull tries them again."
        );
    }
}
