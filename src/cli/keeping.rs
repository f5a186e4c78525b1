//! The task beside a running service that keeps the ledger in step, and the nodes' health labels with it.

use std::{sync::Arc, time::Duration};

use crate::engine::Engine;

/// What is new is gathered for so long, and a pause is heard of at the latest.
const GATHER: Duration = Duration::from_secs(10);
/// How long the start may wait for it.
const AT_START: Duration = Duration::from_secs(5);

/// Read the ledger before anything is decided, if the cluster answers soon.
pub(super) async fn read_at_start(engine: &Engine) {
    if tokio::time::timeout(AT_START, engine.sync_ledger()).await.is_err() {
        tracing::warn!("The ledger was not read in time; the service starts without it and reads it later.");
    }
}

/// Write what is new and read what others wrote. Never ends by itself.
pub(super) async fn keep_for_ever(engine: Arc<Engine>) {
    let mut rounds = tokio::time::interval(GATHER);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        engine.sync_ledger().await;
        engine.label_health().await;
    }
}
