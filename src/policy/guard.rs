//! Limits of the guard: how many nodes may be isolated by us, and how fast.

use std::{fmt, str::FromStr, time::Duration};

/// All limits. Each of them must allow an isolation; none ever limits a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The label of nodes whose value names their pool. Nodes without it are a pool of their own.
    pub pool_label: String,
    /// What holds for every policy that has no limits of its own.
    pub limits: Limits,
    /// Groups that restart as a whole because a pod of theirs was evicted, of all nodes.
    pub max_evicted_gangs: Rate,
}

/// The limits of an isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Nodes isolated at once, of those in scope.
    pub fleet: Share,
    /// Nodes isolated at once, of those of a pool.
    pub pool: Share,
    /// The nodes of a pool that stay healthy: neither isolated, nor cordoned, nor `NotReady`. Rounded down to whole nodes, so that the
    /// only node of a pool can be isolated.
    pub min_healthy: Percent,
    /// Nodes isolated anew.
    pub new: Rate,
}

/// A number of nodes. The larger of the two holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// So many.
    pub count: u32,
    /// So many of all, rounded down to whole nodes.
    pub percent: Percent,
}

impl Share {
    /// How many nodes that is of so many.
    #[must_use]
    pub fn of(&self, nodes: usize) -> usize {
        self.percent.of(nodes).max(usize::try_from(self.count).unwrap_or(usize::MAX))
    }
}

/// So many within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many.
    pub count: u32,
    /// Within any time of this length.
    pub within: Duration,
}

/// What a policy has of its own of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyGuard {
    /// These limits instead. They count the nodes isolated by any policy, as all limits do.
    Limits(Limits),
    /// Nothing limits it; its nodes count for the others.
    Exempt,
}

/// A percentage from 0 to 100, exact to a millionth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u32);

impl Percent {
    const ONE: u32 = 1_000_000;

    /// A whole number of percent; what is above 100 counts as 100.
    #[must_use]
    pub const fn whole(percent: u32) -> Self {
        Self(if percent > 100 { 100 * Self::ONE } else { percent * Self::ONE })
    }

    /// So many of all, rounded down.
    #[must_use]
    pub fn of(self, all: usize) -> usize {
        let whole = u128::from(Self::ONE) * 100;
        usize::try_from(all as u128 * u128::from(self.0) / whole).unwrap_or(usize::MAX)
    }
}

impl FromStr for Percent {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let percent = f64::from_str(text).ok().filter(|percent| (0.0..=100.0).contains(percent)).ok_or(())?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100 million")]
        Ok(Self((percent * f64::from(Self::ONE)).round() as u32))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / f64::from(Self::ONE))
    }
}

impl fmt::Debug for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_count_and_percentage_holds_and_percentages_round_down() {
        let cases = [
            (3, "10", 0, 3),
            (3, "10", 16, 3),
            (3, "10", 39, 3),
            (3, "10", 40, 4),
            (3, "10", 1000, 100),
            (0, "0", 1000, 0),
            (0, "100", 7, 7),
            (0, "33.3", 10, 3),
            (0, "7", 100, 7),
            (0, "29", 100, 29),
            (0, "50", 1, 0),
            (0, "50", 0, 0),
        ];
        for (count, percent, nodes, want) in cases {
            let share = Share { count, percent: percent.parse().unwrap() };
            assert_eq!(share.of(nodes), want, "{count} {percent} of {nodes}");
        }
    }

    #[test]
    fn a_percentage_is_shown_as_it_was_written() {
        for text in ["0", "2.5", "33.333333", "100"] {
            assert_eq!(text.parse::<Percent>().unwrap().to_string(), text);
        }
        for text in ["-1", "100.1", "nan", "ten", ""] {
            assert_eq!(text.parse::<Percent>(), Err(()), "{text}");
        }
        assert_eq!(Percent::whole(50), "50".parse().unwrap());
    }
}
