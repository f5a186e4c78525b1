//! How many notices become Events. Events share etcd with everything else, and unique ones have filled it
//! (<https://github.com/kubernetes/kubernetes/issues/16600>).

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use super::{Notice, Reason};
use crate::locate::NodeName;

/// The same note about the same node is not sent again for so long.
const SAME_FOR: SignedDuration = SignedDuration::from_mins(10);
/// Different notes of one reason about one node: so many in so long. A second GPU's fault is not lost by it, and a note that
/// changes each time does no harm.
const PER_SUBJECT: usize = 5;
const SUBJECT_FOR: SignedDuration = SignedDuration::from_mins(5);
/// So many at once,
const BURST: i64 = 25;
/// and one more each so many milliseconds.
const REFILL_MS: i64 = 5_000;
/// What those that come in masses leave to the others.
const KEPT_FREE: i64 = 10;
/// More than the bucket lets through in [`SAME_FOR`], unless the clock runs backwards.
const MEMORY: usize = 256;

/// What becomes of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is sent.
    Send,
    /// The same was sent a short while ago.
    Repeated,
    /// There are too many.
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    at: Timestamp,
    node: Option<NodeName>,
    reason: Reason,
    note: String,
}

/// What was sent lately. Its memory is bounded by its rate: it remembers only what it let through.
#[derive(Debug, Clone)]
pub struct Limiter {
    sent: VecDeque<Sent>,
    /// One notice costs [`REFILL_MS`] of it; each millisecond that passes gives one back.
    credit_ms: i64,
    refilled: Option<Timestamp>,
}

impl Default for Limiter {
    fn default() -> Self {
        Self { sent: VecDeque::new(), credit_ms: BURST * REFILL_MS, refilled: None }
    }
}

impl Limiter {
    /// Whether this notice is to be sent at `now`; if so, it counts as sent.
    pub fn admit(&mut self, notice: &Notice, now: Timestamp) -> Admission {
        self.refill(now);
        // What lies in the future was sent before the clock was set back.
        self.sent.retain(|s| s.at <= now && now.duration_since(s.at) < SAME_FOR);
        let node = notice.node.as_ref().map(|n| &n.name);
        let alike = || self.sent.iter().filter(|s| s.reason == notice.reason && s.node.as_ref() == node);
        if alike().any(|s| s.note == notice.note) {
            return Admission::Repeated;
        }
        let kept = if notice.reason.comes_in_masses() { KEPT_FREE } else { 0 };
        let lately = alike().filter(|s| now.duration_since(s.at) < SUBJECT_FOR).count();
        if lately >= PER_SUBJECT || self.credit_ms < (1 + kept) * REFILL_MS {
            return Admission::Dropped;
        }
        self.credit_ms -= REFILL_MS;
        if self.sent.len() >= MEMORY {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent { at: now, node: node.cloned(), reason: notice.reason, note: notice.note.clone() });
        Admission::Send
    }

    /// It could not be sent: the next of its kind is no repetition. What it cost stays spent.
    pub fn failed(&mut self, notice: &Notice) {
        let node = notice.node.as_ref().map(|n| &n.name);
        self.sent.retain(|s| s.reason != notice.reason || s.node.as_ref() != node || s.note != notice.note);
    }

    fn refill(&mut self, now: Timestamp) {
        let gone = self.refilled.map_or(0, |at| now.as_millisecond().saturating_sub(at.as_millisecond()).max(0));
        self.credit_ms = self.credit_ms.saturating_add(gone).min(BURST * REFILL_MS);
        self.refilled = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notice::Subject;

    fn notice(reason: Reason, node: &str, text: &str) -> Notice {
        let node = Some(Subject { name: NodeName::parse(node).unwrap(), uid: None });
        Notice { at: Timestamp::UNIX_EPOCH, reason, node, note: text.to_owned(), taint: None }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    #[test]
    fn an_equal_notice_within_ten_minutes_is_a_repetition_and_another_note_is_not() {
        let mut limiter = Limiter::default();
        let one = notice(Reason::Isolated, "a", "one");
        assert_eq!(limiter.admit(&one, at(0)), Admission::Send);
        assert_eq!(limiter.admit(&one, at(599)), Admission::Repeated);
        assert_eq!(limiter.admit(&notice(Reason::Isolated, "a", "two"), at(599)), Admission::Send);
        assert_eq!(limiter.admit(&notice(Reason::Isolated, "b", "one"), at(599)), Admission::Send);
        assert_eq!(limiter.admit(&notice(Reason::Released, "a", "one"), at(599)), Admission::Send);
        assert_eq!(limiter.admit(&one, at(600)), Admission::Send);
    }

    #[test]
    fn notes_that_change_each_time_are_cut_off_for_their_node_only() {
        let mut limiter = Limiter::default();
        for n in 0..5 {
            assert_eq!(limiter.admit(&notice(Reason::WriteFailed, "a", &n.to_string()), at(n)), Admission::Send);
        }
        assert_eq!(limiter.admit(&notice(Reason::WriteFailed, "a", "5"), at(5)), Admission::Dropped);
        assert_eq!(limiter.admit(&notice(Reason::Isolated, "a", "5"), at(5)), Admission::Send);
        assert_eq!(limiter.admit(&notice(Reason::WriteFailed, "b", "5"), at(5)), Admission::Send);
        assert_eq!(limiter.admit(&notice(Reason::WriteFailed, "a", "6"), at(300)), Admission::Send);
    }

    #[test]
    fn twenty_five_at_once_and_one_more_each_five_seconds() {
        let mut limiter = Limiter::default();
        let sent = |limiter: &mut Limiter, range: std::ops::Range<i64>, now| {
            range.filter(|n| limiter.admit(&notice(Reason::Isolated, &format!("n{n}"), ""), now) == Admission::Send).count()
        };
        assert_eq!(sent(&mut limiter, 0..100, at(0)), 25);
        assert_eq!(sent(&mut limiter, 100..200, at(4)), 0);
        assert_eq!(sent(&mut limiter, 200..300, at(5)), 1);
        assert_eq!(sent(&mut limiter, 300..400, at(24)), 3, "what is left of a refill is not lost");
        assert_eq!(sent(&mut limiter, 400..500, at(100_000)), 25, "a full bucket does not overflow");
    }

    #[test]
    fn what_comes_in_masses_leaves_room_for_isolations() {
        let mut limiter = Limiter::default();
        let refused =
            (0..100).filter(|n| limiter.admit(&notice(Reason::Refused, &format!("n{n}"), ""), at(0)) == Admission::Send);
        assert_eq!(refused.count(), 15);
        assert_eq!(limiter.admit(&notice(Reason::Isolated, "a", ""), at(0)), Admission::Send);
    }

    #[test]
    fn what_could_not_be_sent_is_no_repetition() {
        let mut limiter = Limiter::default();
        let one = notice(Reason::Isolated, "a", "one");
        assert_eq!(limiter.admit(&one, at(0)), Admission::Send);
        limiter.failed(&one);
        assert_eq!(limiter.admit(&one, at(1)), Admission::Send);
    }

    #[test]
    fn a_clock_that_is_set_back_blocks_nothing_and_memory_stays_bounded() {
        let mut limiter = Limiter::default();
        for n in 0..10_000 {
            // Forwards and backwards in turn, an hour at a time.
            limiter.admit(&notice(Reason::Isolated, &format!("n{n}"), ""), at(3600 * (n % 2)));
            assert!(limiter.sent.len() <= MEMORY);
        }
        let one = notice(Reason::Isolated, "a", "one");
        assert_eq!(limiter.admit(&one, at(100_000)), Admission::Send);
        assert_eq!(limiter.admit(&one, at(0)), Admission::Send);
    }
}
