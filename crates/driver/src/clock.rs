//! Clocks, for traces and recordings of frames and for decorators that delay them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use uncork_packet::Instant as Moment;

/// Returns the time since 1970.
pub type WallClock = Box<dyn Fn() -> Duration + Send>;

/// Returns the time that the engine passes to its stack.
pub type Clock = Box<dyn Fn() -> Moment + Send>;

/// Returns the system's wall clock.
#[must_use]
pub fn wall_clock() -> WallClock {
    Box::new(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Returns a monotonic clock that begins now.
#[must_use]
pub fn clock() -> Clock {
    let begun = nanos();
    Box::new(move || Moment::from_nanos(nanos().saturating_sub(begun)))
}

/// Nanoseconds since boot. It is read several times in each turn, and std's clock does more: it splits
/// times into their parts and joins them again.
fn nanos() -> u64 {
    // CLOCK_MONOTONIC exists on every Linux.
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else { return 0 };
    let [seconds, nanos] = [now.tv_sec(), now.tv_nsec()].map(i64::unsigned_abs);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}
