//! What real time it is, for what is told about frames and done to them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    let begun = Instant::now();
    Box::new(move || Moment::ZERO + begun.elapsed())
}
