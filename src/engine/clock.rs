//! The clock, so that time is an argument everywhere else.

use std::{
    fmt::Debug,
    sync::{Mutex, PoisonError},
};

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// Where the time comes from.
pub trait Clock: Send + Sync + Debug {
    /// Now, in whole milliseconds.
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the one place where the time is read")]
        let now = Timestamp::now();
        now.round(TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Floor)).unwrap_or(now)
    }
}

/// A clock that only moves when told to, for replay and tests.
#[derive(Debug)]
pub struct VirtualClock(Mutex<Timestamp>);

impl VirtualClock {
    /// A clock that stands at `at`.
    #[must_use]
    pub fn at(at: Timestamp) -> Self {
        Self(Mutex::new(at))
    }

    /// Move to `at`, unless it is in the past: this clock never runs backwards.
    pub fn advance_to(&self, at: Timestamp) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now = at.max(*now);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
