//! What outlives a node, and what a fault that comes back does.

use std::time::Duration;

use super::{Check, MAX_AFTER};
use crate::policy::{
    Flapping, LedgerPlace,
    names::flaw_in_domain,
    raw::{RawFlapping, RawLedger},
};

const DEFAULT_WITHIN: &str = "7d";
const DEFAULT_LONGER_AFTER: &str = "2";
const DEFAULT_PERSON_AFTER: &str = "4";
/// The same for the service in its pod and for a person's command elsewhere.
const DEFAULT_NAMESPACE: &str = "gpu-quarantine";
const DEFAULT_NAME: &str = "gpu-quarantine-ledger";
/// Ledger and record keep 20 episodes.
const MAX_RELEASES: u32 = 20;

impl Check<'_> {
    pub(super) fn flapping(&mut self, raw: &RawFlapping) -> Option<Flapping> {
        let within = self.text_or(raw.within.clone(), DEFAULT_WITHIN, window);
        let longer_after = self.text_or(raw.longer_after.clone(), DEFAULT_LONGER_AFTER, |t| count("longer_after", t));
        let person_after = self.text_or(raw.person_after.clone(), DEFAULT_PERSON_AFTER, |t| count("person_after", t));
        Some(Flapping { within: within?, longer_after: longer_after?, person_after: person_after? })
    }

    pub(super) fn ledger(&mut self, raw: RawLedger) -> Option<LedgerPlace> {
        let namespace = self.text_or(raw.namespace, DEFAULT_NAMESPACE, |t| object_name("namespace", t));
        let name = self.text_or(raw.name, DEFAULT_NAME, |t| object_name("name", t));
        Some(LedgerPlace { namespace: namespace?, name: name? })
    }
}

fn window(text: &str) -> Result<Duration, String> {
    let within = humantime::parse_duration(text)
        .map_err(|e| format!("within {text:?} is not a duration ({e}); write a number with a unit, such as 7d or 12h"))?;
    if within > MAX_AFTER {
        return Err(format!("within {text:?} is longer than 30 days; write 0s to 30d"));
    }
    Ok(within)
}

fn count(what: &str, text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|n| *n <= MAX_RELEASES)
        .ok_or_else(|| format!("{what} {text:?} is not a number of releases; write 1 to {MAX_RELEASES}, or 0 for never"))
}

pub(super) fn object_name(what: &str, text: &str) -> Result<String, String> {
    if what == "namespace" && text.contains('.') {
        return Err(format!("{what} {text:?} has a dot, which no namespace has"));
    }
    flaw_in_domain(text).map_or_else(|| Ok(text.to_owned()), |flaw| Err(format!("{what} {text:?} {flaw}")))
}
