//! Packets at a steady rate, each at its own absolute time.

use std::io;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};

const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Deadlines that count from the start and not from the packet before, so that a late packet does
/// not delay all that follow.
pub(super) struct Pace {
    start: TimeSpec,
    rate: u32,
}

impl Pace {
    /// Starts the clock; packet 0 is due at once.
    pub(super) fn start(rate: u32) -> io::Result<Self> {
        Ok(Self { start: clock_gettime(CLOCK)?, rate })
    }

    /// Sleeps until packet `index` is due and returns how late it then is.
    pub(super) fn wait(&self, index: u64) -> io::Result<Duration> {
        let due = self.start + TimeSpec::from_duration(offset(index, self.rate));
        // A deadline in the past returns at once.
        loop {
            match clock_nanosleep(CLOCK, ClockNanosleepFlags::TIMER_ABSTIME, &due) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let now = clock_gettime(CLOCK)?;
        Ok(if now > due { Duration::from(now - due) } else { Duration::ZERO })
    }
}

/// Returns when packet `index` is due after the start, at `rate` packets a second.
fn offset(index: u64, rate: u32) -> Duration {
    let rate = u64::from(rate);
    let seconds = index / rate;
    // Below 2^32 * 10^9, which fits.
    let nanoseconds = (index % rate) * 1_000_000_000 / rate;
    Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_does_not_add_up() {
        assert_eq!(offset(0, 3), Duration::ZERO);
        assert_eq!(offset(1, 3), Duration::from_nanos(333_333_333));
        assert_eq!(offset(3, 3), Duration::from_secs(1));
        assert_eq!(offset(3_000_000, 3), Duration::from_secs(1_000_000));
        assert_eq!(offset(u64::from(u32::MAX), u32::MAX), Duration::from_secs(1));
    }

    #[test]
    fn a_packet_is_never_early_and_lateness_is_counted_from_its_own_time() {
        let begun = std::time::Instant::now();
        let pace = Pace::start(100).unwrap();
        pace.wait(2).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(20));
        // Packet 1 was due 10 ms before packet 2.
        assert!(pace.wait(1).unwrap() >= Duration::from_millis(10));
    }
}
