//! The ledger as the engine keeps it: in memory at once, and with the cluster whenever that answers. Nothing waits for it.

use std::{collections::BTreeSet, mem, sync::PoisonError};

use jiff::Timestamp;

use super::{Engine, lock};
use crate::{
    cluster::{LedgerError, LedgerWrite},
    locate::{NodeFacts, NodeName},
    metrics::LedgerResult,
    policy::Config,
    quarantine::{Episode, Known, Ledger, News, NodeView, Open, PauseWord, Paused, StoredLedger, machine_key},
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
    /// What a person said here of a pause and the cluster was not told of yet.
    word: Option<PauseWord>,
    /// The annotation on the stored ledger that pauses: its name and the reason.
    annotated: Option<(String, String)>,
    /// The pause that was last heeded.
    heeded: Paused,
}

impl Book {
    pub(super) fn new(owner: &str) -> Self {
        Self {
            ledger: Ledger::new(owner),
            news: News::default(),
            trouble: None,
            word: None,
            annotated: None,
            heeded: Paused::default(),
        }
    }

    pub(super) fn paused(&self) -> Paused {
        let annotation = self.annotated.as_ref().map(|(name, reason)| (name.as_str(), reason.as_str()));
        Paused::by(self.ledger.paused.as_ref(), annotation)
    }

    /// A person said so, here.
    pub(super) fn say(&mut self, word: PauseWord) {
        if word == PauseWord::Resume {
            self.annotated = None;
        }
        self.ledger.paused = word.pause().cloned();
        self.word = Some(word);
    }

    /// Whether a word is not stored yet.
    pub(super) fn has_word(&self) -> bool {
        self.word.is_some()
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// What paused before and what does now, if that changed since this was asked last.
    pub(super) fn pause_changed(&mut self) -> Option<(Paused, Paused)> {
        let is = self.paused();
        (is != self.heeded).then(|| (mem::replace(&mut self.heeded, is.clone()), is))
    }

    /// Take the ledger as it is stored now. `word` is what was stored of a pause with it.
    fn stored(&mut self, stored: Kept, word: Option<&PauseWord>) {
        (self.ledger, self.annotated) = (stored.ledger, stored.annotated);
        // What came meanwhile.
        self.ledger.take(&self.news);
        if self.word.as_ref() == word {
            self.word = None;
        } else if let Some(word) = self.word.take() {
            self.say(word);
        }
    }
}

/// The ledger as it is stored, and the annotation on it that pauses.
struct Kept {
    ledger: Ledger,
    annotated: Option<(String, String)>,
}

/// What the ledger says about the machine below a node.
#[derive(Debug, Default)]
pub(super) struct OfMachine {
    past: Vec<Episode>,
    paused: Paused,
}

impl OfMachine {
    pub(super) fn known(&self) -> Known<'_> {
        Known { past: &self.past, paused: self.paused.why.as_deref(), no_releases: self.paused.no_releases(), ..Known::default() }
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

    /// The ledger as it is known here.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        lock(&self.book).ledger.clone()
    }

    /// Whether the cluster was not told of all of it yet.
    #[must_use]
    pub fn ledger_has_news(&self) -> bool {
        let book = lock(&self.book);
        !book.news.is_empty() || book.word.is_some()
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
        let config = self.config();
        let (news, word) = {
            let mut book = lock(&self.book);
            (mem::take(&mut book.news), book.word.clone())
        };
        let mut last = LedgerError::Conflict;
        let mut merged = None;
        for _ in 0..TRIES {
            match self.merge_and_write(&config, &news, word.as_ref()).await {
                Ok(kept) => {
                    merged = Some(kept);
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
            if let Some(kept) = merged {
                // Who only observes stores nothing, and keeps the word.
                book.stored(kept, word.as_ref().filter(|_| self.shadow.is_none()));
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
        self.take_over_heirs().await;
        self.heed_pause().await;
    }

    /// The ledger as it is stored afterwards.
    async fn merge_and_write(&self, config: &Config, news: &News, word: Option<&PauseWord>) -> Result<Kept, LedgerError> {
        let stored = self.cluster.read_ledger(&config.ledger).await?;
        let name = config.annotation("pause");
        let annotated = stored.as_ref().and_then(|stored| stored.annotations.get(&name)).map(|why| (name.clone(), why.clone()));
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
        if let Some(word) = word {
            ledger.paused = word.pause().cloned();
        }
        // A pause is over when a person says so, whichever way it was said.
        let without = annotated.as_ref().filter(|_| word == Some(&PauseWord::Resume)).map(|(name, _)| name.as_str());
        let text = ledger.fit(self.clock.now());
        let is_empty = ledger.machines.is_empty() && ledger.paused.is_none() && unreadable.is_none();
        let nothing = without.is_none() && before.as_ref().map_or(is_empty, |before| *before == ledger);
        if nothing || self.shadow.is_some() {
            return Ok(Kept { ledger, annotated });
        }
        let write = LedgerWrite { over: version.as_deref(), text: &text, unreadable, without };
        self.cluster.write_ledger(&config.ledger, write).await?;
        self.metrics.ledger(LedgerResult::Ok);
        Ok(Kept { ledger, annotated: annotated.clone().filter(|_| without.is_none()) })
    }

    fn known_ledger(&self) -> Ledger {
        let mut ledger = lock(&self.book).ledger.clone();
        ledger.paused = None;
        ledger
    }
}
