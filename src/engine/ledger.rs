//! The ledger as the engine keeps it: in memory at once, and with the cluster whenever that answers. Nothing waits for it.

use std::{collections::BTreeSet, mem, sync::PoisonError};

use jiff::Timestamp;

use super::{Engine, lock};
use crate::{
    cluster::{LedgerError, LedgerWrite},
    locate::{NodeFacts, NodeName},
    metrics::LedgerResult,
    quarantine::{Episode, Known, Ledger, News, NodeView, Open, StoredLedger, machine_key},
};

/// How often it is read and merged again when others write it as well.
const TRIES: u32 = 5;

/// The ledger, and what the cluster was not told of yet.
#[derive(Debug)]
pub(super) struct Book {
    ledger: Ledger,
    news: News,
    /// The last trouble with it, so that each is told once.
    trouble: Option<String>,
}

impl Book {
    pub(super) fn new(owner: &str) -> Self {
        Self { ledger: Ledger::new(owner), news: News::default(), trouble: None }
    }
}

/// What the ledger says about the machine below a node.
#[derive(Debug, Default)]
pub(super) struct OfMachine {
    past: Vec<Episode>,
    paused: Option<String>,
}

impl OfMachine {
    pub(super) fn known(&self) -> Known<'_> {
        Known { past: &self.past, paused: self.paused.as_deref(), ..Known::default() }
    }
}

impl Engine {
    /// What the ledger says about a node's machine.
    pub(super) fn of_machine(&self, node: &NodeFacts) -> OfMachine {
        OfMachine { past: self.past_of(node), paused: self.paused() }
    }

    /// Past episodes of a node's machine.
    pub(super) fn past_of(&self, node: &NodeFacts) -> Vec<Episode> {
        lock(&self.book).ledger.past_of(node).to_vec()
    }

    /// The claims that the machine below a node had when its former Node went: that Node is not there any more, and no other Node is
    /// of a machine with the same systemUUID.
    pub(super) fn left_behind(&self, node: &NodeFacts) -> Option<Open> {
        let open = lock(&self.book).ledger.left_behind(node).cloned()?;
        let key = machine_key(node);
        let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
        let rivals = |other: &NodeFacts| other.uid == open.uid || (other.uid != node.uid && machine_key(other) == key);
        (!nodes.iter().any(|other| rivals(other))).then_some(open)
    }

    /// Nodes whose machines left claims behind.
    fn heirs(&self) -> Vec<NodeName> {
        let candidates: Vec<_> = {
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            let book = lock(&self.book);
            let live: BTreeSet<&str> = nodes.iter().map(|n| n.uid.as_str()).collect();
            if book.ledger.uids_with_claims().all(|uid| live.contains(uid)) {
                return Vec::new();
            }
            nodes.iter().filter(|n| book.ledger.left_behind(n).is_some()).cloned().collect()
        };
        let record = self.config().annotation("record");
        let heirs = candidates.iter().filter(|n| !n.annotations.contains_key(&record) && self.left_behind(n).is_some());
        heirs.map(|n| n.name.clone()).collect()
    }

    /// Isolate again the machines whose Nodes were deleted while they were isolated.
    pub(super) async fn take_over_heirs(&self) {
        let heirs = self.heirs();
        self.decide_again(&heirs).await;
    }

    /// Why nothing new is begun, if so.
    #[must_use]
    pub fn paused(&self) -> Option<String> {
        lock(&self.book).ledger.paused.as_ref().map(ToString::to_string)
    }

    /// The ledger as it is known here.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        lock(&self.book).ledger.clone()
    }

    /// Whether the cluster was not told of all of it yet.
    #[must_use]
    pub fn ledger_has_news(&self) -> bool {
        !lock(&self.book).news.is_empty()
    }

    /// Note what is seen of a node.
    pub(super) fn note_in_ledger(&self, node: &NodeFacts, view: &NodeView, now: Timestamp) {
        let mut book = lock(&self.book);
        let news = book.ledger.news_of(node, view, now);
        if !news.is_empty() {
            book.ledger.take(&news);
            book.news.then(news);
        }
    }

    /// Read the ledger, and write what is new. A failure is counted and told once, and never stops anything else.
    pub async fn sync_ledger(&self) {
        let _alone = self.ledger_turn.lock().await;
        let (config, was) = (self.config(), self.paused());
        let news = mem::take(&mut lock(&self.book).news);
        let mut last = LedgerError::Conflict;
        let mut merged = None;
        for _ in 0..TRIES {
            match self.merge_and_write(&config, &news).await {
                Ok(ledger) => {
                    merged = Some(ledger);
                    break;
                }
                Err(LedgerError::Conflict) => self.metrics.ledger(LedgerResult::Conflict),
                Err(error) => {
                    last = error;
                    break;
                }
            }
        }
        {
            let mut book = lock(&self.book);
            if let Some(ledger) = merged {
                book.ledger = ledger;
                // What came meanwhile.
                let later = book.news.clone();
                book.ledger.take(&later);
                if book.trouble.take().is_some() {
                    tracing::info!(place = %config.ledger, "The ledger is in step again.");
                }
            } else {
                let later = mem::replace(&mut book.news, news);
                book.news.then(later);
                self.metrics.ledger(LedgerResult::Failed);
                let trouble = last.to_string();
                if book.trouble.as_ref() != Some(&trouble) {
                    tracing::error!(
                        place = %config.ledger,
                        "The ledger is not in step: {trouble}. Nodes are isolated and released all the same; what happened to \
                         machines is kept in memory and written later."
                    );
                    book.trouble = Some(trouble);
                }
            }
        }
        let is = self.paused();
        if is != was {
            if let Some(pause) = &is {
                tracing::warn!("Nothing new is begun: {pause}.");
            } else {
                tracing::info!("The pause is over.");
            }
        }
        self.take_over_heirs().await;
        if is.is_none() && was.is_some() {
            self.admit_waiting().await;
            self.timers.notify_one();
        }
    }

    /// The ledger as it is stored afterwards.
    async fn merge_and_write(&self, config: &crate::policy::Config, news: &News) -> Result<Ledger, LedgerError> {
        let stored = self.cluster.read_ledger(&config.ledger).await?;
        let (version, text) = stored.map_or((None, None), |stored| (Some(stored.version), stored.text));
        let read = text.as_deref().map(|text| Ledger::read(text, &config.instance));
        let mut unreadable = None;
        let (base, before) = match read {
            Some(StoredLedger::Ours(ledger)) => (*ledger.clone(), Some(*ledger)),
            Some(StoredLedger::Untouchable(why)) => {
                return Err(LedgerError::Failed(format!("ConfigMap {} is not touched: {why}", config.ledger)));
            }
            Some(StoredLedger::Unreadable(why)) => {
                self.metrics.ledger(LedgerResult::Unreadable);
                tracing::error!(
                    place = %config.ledger,
                    "The ledger cannot be read, {why}. It is kept under the key `unreadable`, and begun anew from what is known here."
                );
                unreadable = text.as_deref();
                // Somebody may have mistyped it: a pause goes on.
                (lock(&self.book).ledger.clone(), None)
            }
            // Lost, or never there: what is known here, and no pause, which stands nowhere else.
            None => (self.known_ledger(), None),
        };
        let mut ledger = base;
        ledger.take(news);
        let text = ledger.fit(self.clock.now());
        let nothing = before.as_ref().map_or(ledger.machines.is_empty() && unreadable.is_none(), |before| *before == ledger);
        if nothing || self.shadow.is_some() {
            return Ok(ledger);
        }
        let write = LedgerWrite { over: version.as_deref(), text: &text, unreadable };
        self.cluster.write_ledger(&config.ledger, write).await?;
        self.metrics.ledger(LedgerResult::Ok);
        Ok(ledger)
    }

    fn known_ledger(&self) -> Ledger {
        let mut ledger = lock(&self.book).ledger.clone();
        ledger.paused = None;
        ledger
    }
}
