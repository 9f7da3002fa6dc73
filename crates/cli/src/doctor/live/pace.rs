//! The polling interval: as short as its cost allows.

use std::time::Duration;

use uncork_doctor::{Histogram, Sampling};

/// The kernel's clock for the last transmission has ticks of 1 to 10 ms: more cannot be learnt.
const LEAST: Duration = Duration::from_millis(1);
/// Even if there are so many connections that a poll takes this long, the sockets are polled.
const MOST: Duration = Duration::from_secs(1);
/// Polling takes one part in so many of one processor's time.
const SHARE: u32 = 5;

/// When the sockets were polled.
#[derive(Debug, Default)]
pub(super) struct Pace {
    looks: u64,
    last: Option<Duration>,
    gaps: Histogram,
}

impl Pace {
    /// Notes that a poll begins.
    pub(super) fn begin(&mut self, now: Duration) {
        self.looks += 1;
        if let Some(last) = self.last.replace(now) {
            self.gaps.record(now.saturating_sub(last));
        }
    }

    /// Returns how long to rest, given how long the poll took.
    pub(super) fn rest(took: Duration) -> Duration {
        (took * (SHARE - 1)).clamp(LEAST, MOST)
    }

    pub(super) fn sampling(&self) -> Sampling {
        let gaps = self.gaps.spread();
        Sampling { looks: self.looks, typical: gaps.p50, longest: gaps.max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_four_times_the_work_within_bounds() {
        let us = Duration::from_micros;
        for (took, rest) in [(10, 1_000), (500, 2_000), (50_000, 200_000), (5_000_000, 1_000_000)] {
            assert_eq!(Pace::rest(us(took)), us(rest));
        }
    }

    #[test]
    fn what_is_told_of_it_are_the_gaps() {
        let mut pace = Pace::default();
        for ms in [0, 2, 4, 6, 36] {
            pace.begin(Duration::from_millis(1000 + ms));
        }
        let told = pace.sampling();
        assert_eq!(told.looks, 5);
        let about = |time: Duration, ms: f64| (time.as_secs_f64() * 1e3 / ms - 1.0).abs() < 0.1;
        assert!(about(told.typical, 2.0) && about(told.longest, 30.0), "{told:?}");
    }
}
