//! A fault that comes back: how often a node was released of late, what that does to its hold-down, and how healthy its machine is.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::{
    claim::{Claim, ClaimState, Episode},
    hand::Judgement,
    record::Record,
};
use crate::policy::{Config, Flapping};

/// A hold-down is never lengthened beyond this.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// After so long an episode weighs half in the health of a machine.
const HALF_LIFE: f64 = 7.0 * 24.0 * 60.0 * 60.0;
/// What is left of the health after one episode that has just ended.
const AFTER_ONE: f64 = 0.8;

/// How often the worst of a node's claims was released before it began, within the window.
///
/// The window ends where the claim began, so that waiting alone makes nothing easier.
pub(super) fn releases(record: &Record, past: &[Episode], rules: &Flapping) -> usize {
    let live = |c: &&Claim| c.state != ClaimState::Released && c.action.isolates();
    record.claims.iter().filter(live).map(|claim| of_claim(claim, record, past, rules.within)).max().unwrap_or(0)
}

fn of_claim(claim: &Claim, record: &Record, past: &[Episode], within: Duration) -> usize {
    let since = claim.since.checked_sub(within).unwrap_or(Timestamp::MIN);
    // All claims of a release end at the same moment, and the ledger has what the record has.
    let ends: BTreeSet<Timestamp> = record
        .history
        .iter()
        .chain(past)
        .filter(|e| (since..=claim.since).contains(&e.to) && !is_false_alarm(e) && concern_each_other(claim, e))
        .map(|e| e.to)
        .collect();
    ends.len()
}

/// One of them is about the node as a whole, or both are about the same GPU.
fn concern_each_other(claim: &Claim, episode: &Episode) -> bool {
    claim.gpu.is_none() || episode.gpu.is_none() || claim.gpu == episode.gpu
}

/// A person found that nothing was wrong.
fn is_false_alarm(episode: &Episode) -> bool {
    episode.verdict.as_deref() == Some(Judgement::FalseAlarm.as_str())
}

/// A hold-down after so many releases.
pub(super) fn lengthened(after: Duration, releases: usize, rules: &Flapping) -> Duration {
    let from = usize::try_from(rules.longer_after).unwrap_or(usize::MAX);
    let Some(doublings) = releases.checked_sub(from).filter(|_| from > 0) else { return after };
    let doublings = u32::try_from(doublings + 1).unwrap_or(u32::MAX);
    let longer = 2_u32.checked_pow(doublings).and_then(|factor| after.checked_mul(factor)).unwrap_or(LONGEST);
    // A hold-down that is configured longer than the cap stays as it is.
    after.max(longer.min(LONGEST))
}

/// What a person is told who decides in place of the hold-down, if it is so.
pub(super) fn asks_for_a_person(record: &Record, past: &[Episode], config: &Config) -> Option<String> {
    let (rules, releases) = (&config.flapping, releases(record, past, &config.flapping));
    let most = usize::try_from(rules.person_after).unwrap_or(usize::MAX);
    (most > 0 && releases >= most).then(|| format!("it was {}", sentence(releases, rules)))
}

/// In words, if the node flaps: its hold-down is longer, or a person decides.
pub(super) fn flaps(record: &Record, past: &[Episode], config: &Config) -> Option<String> {
    let (rules, releases) = (&config.flapping, releases(record, past, &config.flapping));
    let least = [rules.longer_after, rules.person_after].into_iter().filter(|n| *n > 0).min()?;
    (releases >= usize::try_from(least).unwrap_or(usize::MAX)).then(|| sentence(releases, rules))
}

fn sentence(releases: usize, rules: &Flapping) -> String {
    let times = if releases == 1 { "once".to_owned() } else { format!("{releases} times") };
    format!("released {times} within {} before this fault began", in_words(rules.within))
}

fn in_words(window: Duration) -> String {
    match window.as_secs() {
        s if s > 0 && s % 86_400 == 0 => format!("{} days", s / 86_400),
        s if s > 0 && s % 3600 == 0 => format!("{} hours", s / 3600),
        s => format!("{s} seconds"),
    }
}

/// The health of a machine, 0 to 100, from its past episodes: 100 x 0.8^S, rounded, where each release adds to S one half for every
/// seven days since it. False alarms add nothing.
#[must_use]
pub fn health(past: &[Episode], now: Timestamp) -> u8 {
    let ends: BTreeSet<Timestamp> = past.iter().filter(|e| !is_false_alarm(e)).map(|e| e.to).collect();
    let weight = |to: Timestamp| {
        let age = now.duration_since(to).max(SignedDuration::ZERO).as_secs_f64();
        0.5_f64.powf(age / HALF_LIFE)
    };
    let sum: f64 = ends.into_iter().map(weight).sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100")]
    let health = (100.0 * AFTER_ONE.powf(sum)).round() as u8;
    health
}
