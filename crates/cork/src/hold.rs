//! How long something is held: the timer's side of the policy.

use core::time::Duration;

/// A moment, in nanoseconds of a monotonic clock with any origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// Returns the time since `earlier`, or zero if that is not earlier.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment that is this much later.
    #[inline]
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A hold that began at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// When the first byte was held.
    pub since: Instant,
}

impl Hold {
    /// Returns the moment by which the hold must end.
    #[inline]
    pub fn deadline(self, bound: Duration) -> Instant {
        self.since.after(bound)
    }

    /// Returns whether a timer that looks at `now` must push. A hold that is nearly due is pushed
    /// too: coming back for it in a moment would cost more than is lost.
    #[inline]
    pub fn is_due(self, now: Instant, bound: Duration) -> bool {
        now.since(self.since) + bound / 16 >= bound
    }
}

/// Returns how long a timer may sleep: until the earliest deadline of what is held, and never so
/// long that something held from now on could become overdue.
pub fn next_look(now: Instant, earliest: Option<Instant>, bound: Duration) -> Duration {
    earliest.map_or(bound, |deadline| deadline.since(now)).min(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_is_held_past_its_deadline_whenever_it_begins() {
        // One hold, which may begin at any moment after the first look.
        for begun in (0..3_000_000).step_by(1_777).map(Instant) {
            let hold = Hold { since: begun };
            let mut now = Instant(0);
            loop {
                let held = begun <= now;
                if held && hold.is_due(now, BOUND) {
                    break;
                }
                let wait = next_look(now, held.then(|| hold.deadline(BOUND)), BOUND);
                assert!(wait > Duration::ZERO, "a timer that does not sleep");
                now = Instant(now.0 + wait.as_nanos() as u64);
            }
            assert!(now <= hold.deadline(BOUND), "begun {begun:?}, pushed {now:?}");
            assert!(now.since(begun) >= BOUND * 15 / 16, "begun {begun:?}, pushed {now:?}");
        }
    }

    #[test]
    fn a_clock_that_steps_back_is_not_an_age() {
        assert_eq!(Instant(5).since(Instant(9)), Duration::ZERO);
    }
}
