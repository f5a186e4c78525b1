//! Where the ledger is kept: one text under a version, written only over the version that was read.

use std::collections::BTreeMap;

/// A stored ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredText {
    /// The resourceVersion that a write must name.
    pub version: String,
    /// The text; `None` if there is none in it.
    pub text: Option<String>,
    /// The annotations beside it, which are people's.
    pub annotations: BTreeMap<String, String>,
}

/// What is to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerWrite<'a> {
    /// The version that was read; `None` if there was nothing, so that it is to be created.
    pub over: Option<&'a str>,
    /// The ledger.
    pub text: &'a str,
    /// A text that could not be used, to be kept beside it.
    pub unreadable: Option<&'a str>,
    /// An annotation to be taken away.
    pub without: Option<&'a str>,
}

/// A ledger that was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Somebody wrote, created or deleted it meanwhile: read again.
    #[error("it was changed by another writer meanwhile")]
    Conflict,
    /// The call failed; after a timeout the outcome of a write is unknown until it is read.
    #[error("{0}")]
    Failed(String),
}
