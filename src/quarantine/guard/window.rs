//! What began of late, against how much of it may begin.

use jiff::Timestamp;

use crate::{policy::Rate, quarantine::release::later};

/// How much of a rate is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::quarantine) struct Window {
    /// So many began within it.
    pub(in crate::quarantine) begun: usize,
    /// So many may.
    pub(in crate::quarantine) most: usize,
    /// When time alone makes room; `None` if there is room, or time alone makes none.
    pub(in crate::quarantine) room_at: Option<Timestamp>,
}

impl Window {
    /// With what began at these times, the latest first, and so many more that are beginning now.
    pub(in crate::quarantine) fn of(
        latest_first: impl Iterator<Item = Timestamp>,
        beginning: usize,
        rate: Rate,
        now: Timestamp,
    ) -> Self {
        let ends: Vec<Timestamp> = latest_first.map(|at| later(at, rate.within)).take_while(|end| *end > now).collect();
        let (begun, most) = (ends.len() + beginning, usize::try_from(rate.count).unwrap_or(usize::MAX));
        // Room is there once no more than `most - 1` are left: those that are beginning, and the latest.
        let room_at = most.checked_sub(beginning + 1).and_then(|stay| ends.get(stay).copied());
        Self { begun, most, room_at }
    }

    /// Whether no more may begin.
    pub(in crate::quarantine) fn is_full(&self) -> bool {
        self.begun >= self.most
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_772_366_400 + second).unwrap()
    }

    #[rstest]
    #[case::nothing(&[], 0, 2, (0, false, None))]
    #[case::room(&[90], 0, 2, (1, false, None))]
    #[case::full(&[90, 80], 0, 2, (2, true, Some(180)))]
    #[case::more_than_full(&[90, 80, 70, 60], 0, 2, (4, true, Some(180)))]
    #[case::the_oldest_ended(&[90, 80, 0], 0, 2, (2, true, Some(180)))]
    #[case::one_is_beginning(&[90], 1, 2, (2, true, Some(190)))]
    #[case::only_beginning(&[], 2, 2, (2, true, None))]
    #[case::none_may(&[], 0, 0, (0, true, None))]
    #[case::none_may_and_one_did(&[90], 0, 0, (1, true, None))]
    fn so_many_began_and_room_comes_when_enough_of_them_are_long_ago(
        #[case] begun: &[i64],
        #[case] beginning: usize,
        #[case] count: u32,
        #[case] (want, full, room_at): (usize, bool, Option<i64>),
    ) {
        let rate = Rate { count, within: Duration::from_secs(100) };
        let window = Window::of(begun.iter().map(|second| at(*second)), beginning, rate, at(100));
        assert_eq!((window.begun, window.is_full(), window.room_at), (want, full, room_at.map(at)));
    }
}
