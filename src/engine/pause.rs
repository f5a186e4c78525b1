//! The pause: acted on at once where it is heard, stored in the ledger for the other replicas and for the next start.

use jiff::Timestamp;

use super::{Engine, lock};
use crate::quarantine::{PauseWord, Paused};

/// A pause, or its end, that holds in this process and could not be stored. It is stored as soon as that can be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it holds in this process, and could not be stored: {why}. Other replicas do not hear of it, and a restart forgets it, until it is"
)]
pub struct NotStored {
    /// What failed, on which object and why.
    pub why: String,
}

impl Engine {
    /// Our clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What pauses this service now.
    #[must_use]
    pub fn paused(&self) -> Paused {
        lock(&self.book).paused()
    }

    /// Take a person's word. It holds at once, whatever becomes of storing it. An end takes the
    /// annotation that pauses from the ledger as well.
    ///
    /// # Errors
    ///
    /// If the ledger could not be written. It is tried again with the ledger's next round.
    pub async fn say_pause(&self, word: PauseWord) -> Result<(), NotStored> {
        lock(&self.book).say(word);
        self.sync_ledger().await;
        let book = lock(&self.book);
        if !book.has_word() {
            return Ok(());
        }
        let why = match book.trouble() {
            Some(trouble) => trouble.to_owned(),
            None if self.shadow.is_some() => "this service only observes and writes nothing".to_owned(),
            None => "another word came meanwhile".to_owned(),
        };
        Err(NotStored { why })
    }

    /// Say that a pause began or ended, and let in who waited for its end.
    pub(super) async fn heed_pause(&self) {
        let Some((was, is)) = lock(&self.book).pause_changed() else { return };
        if let Some(why) = &is.why {
            tracing::warn!("Nothing new is begun: {why}.");
        } else {
            tracing::info!("The pause is over.");
        }
        if was.no_releases().is_some() && is.no_releases().is_none() {
            let isolated = lock(&self.fleet).isolated();
            self.decide_again(&isolated).await;
        }
        if is.why.is_none() {
            self.admit_waiting().await;
        }
        self.timers.notify_one();
    }
}
