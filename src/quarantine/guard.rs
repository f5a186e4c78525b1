//! The guard: how many nodes may be isolated by us at once. It never limits a release.

use crate::policy::GuardLimits;

/// The fleet as the guard sees it, without the node that is being decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Other nodes that are isolated by us, or about to be.
    pub isolated: usize,
    /// How many may be.
    pub limit: usize,
    /// Nodes that have waited longer for a slot.
    pub ahead: usize,
}

impl Slots {
    /// Whether one more node may be isolated: those that have waited longer go first.
    #[must_use]
    pub fn admits(self) -> bool {
        self.isolated + self.ahead < self.limit
    }

    /// Why not, in words.
    #[must_use]
    pub fn refusal(self) -> String {
        format!(
            "guard.max_isolated: {} of {} nodes are isolated, number {} in the queue",
            self.isolated,
            self.limit,
            self.ahead + 1
        )
    }
}

/// How many nodes may be isolated of `in_scope`: the count, or the percentage rounded down to whole nodes, whichever is larger.
#[must_use]
pub fn limit(limits: &GuardLimits, in_scope: usize) -> usize {
    // Exact to a millionth of a percent, and safe for any fleet that fits into memory.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a validated percentage: 0 to 100")]
    let millionths = (limits.max_isolated_percent.clamp(0.0, 100.0) * 1e6).round() as u128;
    let by_percent = usize::try_from(in_scope as u128 * millionths / 100_000_000).unwrap_or(usize::MAX);
    by_percent.max(usize::try_from(limits.max_isolated_count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_count_and_percentage_holds_and_percentages_round_down() {
        let cases = [
            (3, 10.0, 0, 3),
            (3, 10.0, 16, 3),
            (3, 10.0, 39, 3),
            (3, 10.0, 40, 4),
            (3, 10.0, 1000, 100),
            (0, 0.0, 1000, 0),
            (0, 100.0, 7, 7),
            (0, 33.3, 10, 3),
            (0, 7.0, 100, 7),
            (0, 29.0, 100, 29),
        ];
        for (count, percent, in_scope, want) in cases {
            let limits = GuardLimits { max_isolated_count: count, max_isolated_percent: percent };
            assert_eq!(limit(&limits, in_scope), want, "{count} {percent} of {in_scope}");
        }
    }

    #[test]
    fn who_has_waited_longer_goes_first() {
        assert!(Slots { isolated: 2, limit: 3, ahead: 0 }.admits());
        assert!(!Slots { isolated: 2, limit: 3, ahead: 1 }.admits());
        assert!(!Slots { isolated: 3, limit: 3, ahead: 0 }.admits());
        assert!(!Slots { isolated: 0, limit: 0, ahead: 0 }.admits());
    }
}
