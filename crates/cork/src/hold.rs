//! How long something is held: the timer's side of the policy.

use core::time::Duration;

/// A moment, in nanoseconds of a monotonic clock with any origin. The caller may use a coarse
/// clock that stands still between two ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// Time since `earlier`, zero if that is not earlier.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A hold that began at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// When the first byte was held.
    pub since: Instant,
}

impl Hold {
    /// When it must end.
    pub fn deadline(self, bound: Duration) -> Instant {
        Instant(self.since.0.saturating_add(bound.as_nanos() as u64))
    }

    /// Whether a timer that looks at `now` and will look again only `period` later must push
    /// at this look. Waiting for the deadline itself would overrun it by up to a period.
    #[inline]
    pub fn is_due(self, now: Instant, bound: Duration, period: Duration) -> bool {
        now.since(self.since) + period > bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(1);
    const PERIOD: Duration = Duration::from_micros(500);

    #[test]
    fn nothing_is_held_past_its_deadline_by_a_timer_that_looks_every_period() {
        // Begin a hold at each offset within a period, look at each tick, note the push.
        for offset in (0..500_000).step_by(1_000) {
            let hold = Hold { since: Instant(10_000_000 + offset) };
            let push = (0..)
                .map(|tick| Instant(10_000_000 + tick * PERIOD.as_nanos() as u64))
                .find(|now| *now > hold.since && hold.is_due(*now, BOUND, PERIOD))
                .unwrap();
            assert!(push <= hold.deadline(BOUND), "offset {offset}: {push:?}");
            assert!(push.since(hold.since) >= PERIOD, "offset {offset}: far too early");
        }
    }

    #[test]
    fn a_clock_that_steps_back_is_not_an_age() {
        assert_eq!(Instant(5).since(Instant(9)), Duration::ZERO);
    }
}
