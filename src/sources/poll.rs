//! When the sources are asked: at the start, regularly, when a silence ends, and when somebody wakes us.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

use super::Sources;
use crate::alert::Pull;

/// The shortest time between two pulls, however often we are woken.
const LEAST: Duration = Duration::from_secs(1);
/// A silence is over on every peer so long after its end.
const AFTER_SILENCE: Duration = Duration::from_secs(1);

/// Pull for ever, one at a time, and hand each pull on before the next. Drop it to stop.
///
/// It pulls at once, every `poll_interval` (give or take a tenth), when the first silence ends, and whenever `wake` is notified:
/// after a truncated webhook, or when a person asks. A notification during a pull leads to another one, since that pull may have
/// read its answer before. `now` is our clock.
pub async fn run(
    sources: &Sources,
    now: impl Fn() -> Timestamp,
    wake: &Notify,
    consume: impl FnMut(Pull) -> BoxFuture<'static, ()> + Send,
) {
    let pull = |now| sources.pull(now);
    poll(sources.settings().poll_interval, now, wake, pull, consume).await;
}

async fn poll<F: Future<Output = Pull>>(
    interval: Duration,
    now: impl Fn() -> Timestamp,
    wake: &Notify,
    mut pull: impl FnMut(Timestamp) -> F,
    mut consume: impl FnMut(Pull) -> BoxFuture<'static, ()>,
) {
    loop {
        let (began, asked_at) = (Instant::now(), now());
        let pulled = pull(asked_at).await;
        let changes_at = pulled.changes_at;
        consume(pulled).await;
        let done = Instant::now();
        let regular = jittered(interval, RandomState::new().hash_one(()));
        let due = began + until_change(changes_at, asked_at).map_or(regular, |wait| regular.min(wait));
        // Woken or due, it makes no difference.
        drop(timeout_at(due, wake.notified()).await);
        sleep_until(done + LEAST).await;
    }
}

/// How long from the beginning of a pull until a silence that it saw is over. One that should have been over by our clock has no
/// say: the clock of its peer lags behind.
fn until_change(changes_at: Option<Timestamp>, asked_at: Timestamp) -> Option<Duration> {
    let wait = changes_at?.duration_since(asked_at);
    let wait = Duration::try_from(wait).ok().filter(|wait| !wait.is_zero())?;
    Some(wait + AFTER_SILENCE)
}

/// From 0.9 to 1.1 of the interval, so that several instances do not ask at the same time for ever.
fn jittered(interval: Duration, random: u64) -> Duration {
    let thousandths = u32::try_from(random % 2001).unwrap_or(0);
    interval * 9 / 10 + interval / 10 * thousandths / 1000
}

#[cfg(test)]
mod tests;
