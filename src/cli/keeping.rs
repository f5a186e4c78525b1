//! The task beside a running service that keeps the ledger in step, and the nodes' health labels with it.

use std::{sync::Arc, time::Duration};

use crate::engine::Engine;

/// What is new is gathered for so long.
const GATHER: Duration = Duration::from_secs(10);
/// It is read at least so often: a pause is to be heard of.
const READ: u32 = 3;
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
    let mut since = 0;
    loop {
        rounds.tick().await;
        since += 1;
        if since >= READ || engine.ledger_has_news() {
            engine.sync_ledger().await;
            since = 0;
        }
        engine.label_health().await;
    }
}
