//! What real time it is, for what is told about frames and done to them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use uncork_packet::Instant as Moment;

/// Gives the time since 1970.
pub type WallClock = Box<dyn Fn() -> Duration + Send>;

/// Gives the time that the engine passes to its stack.
pub type Clock = Box<dyn Fn() -> Moment + Send>;

/// The system's.
#[must_use]
pub fn wall_clock() -> WallClock {
    Box::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// One that begins now.
#[must_use]
pub fn clock() -> Clock {
    let begun = nanos();
    Box::new(move || Moment::from_nanos(nanos().saturating_sub(begun)))
}

/// Since the machine was started. It is asked several times in each turn, and std's clock does more than that: it takes
/// times apart and puts them together again.
fn nanos() -> u64 {
    // This clock is there wherever Linux is.
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return 0 };
    let [seconds, nanos] = [now.tv_sec(), now.tv_nsec()].map(i64::unsigned_abs);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}
