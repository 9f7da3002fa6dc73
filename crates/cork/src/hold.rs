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
    /// When the first byte was held, or the timer's latest look before that.
    pub since: Instant,
}

impl Hold {
    /// Whether a timer must push at this look, at `now`, when it will look again after about
    /// `period`. Waiting for the deadline itself would overrun it by up to a period; the half
    /// period allowed here keeps a look that is a little late from pushing what has only begun.
    #[inline]
    pub fn is_due(self, now: Instant, bound: Duration, period: Duration) -> bool {
        now.since(self.since) + period / 2 > bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(1);
    const PERIOD: Duration = Duration::from_micros(500);

    #[test]
    fn nothing_is_held_past_its_deadline_by_a_timer_that_looks_every_period() {
        // A hold that begins between two looks is dated to the earlier one.
        let look = |number: u64| Instant(10_000_000 + number * PERIOD.as_nanos() as u64);
        for begun in (0..500_000).step_by(1_000).map(|offset| Instant(look(0).0 + offset)) {
            let hold = Hold { since: look(0) };
            let push = (1..).map(look).find(|now| hold.is_due(*now, BOUND, PERIOD)).unwrap();
            assert!(push.since(begun) <= BOUND, "begun {begun:?}: too late");
            assert!(push.since(begun) >= PERIOD, "begun {begun:?}: far too early");
        }
    }

    #[test]
    fn a_look_that_is_late_does_not_push_what_was_held_just_now() {
        // The coarse clock says 0 for a hold that began right before the look at 0.6 ms.
        let hold = Hold { since: Instant(0) };
        assert!(!hold.is_due(Instant(600_000), BOUND, PERIOD));
        assert!(hold.is_due(Instant(1_000_000), BOUND, PERIOD));
    }

    #[test]
    fn a_clock_that_steps_back_is_not_an_age() {
        assert_eq!(Instant(5).since(Instant(9)), Duration::ZERO);
    }
}
