//! The timer that wakes the keeper when no turn was made for a while. A thread that makes turns moves it on, at most twice a
//! period: a system call, where waking a thread would cost the program much more.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

use nix::errno::Errno;
use uncork_high::Timer;

use crate::errno;

/// How long what is due may wait for a turn of the program.
pub(crate) const PERIOD: Duration = Duration::from_millis(2);
/// How long it may, if a thread has written more than may leave at once: the next ACKs come within a moment, and the thread
/// may do something else by then.
pub(crate) const SOON: Duration = Duration::from_micros(200);
/// The least time between two such: a thread that writes without end comes back to it by itself, and to set a timer that is
/// soon due takes a virtual machine microseconds.
pub(crate) const BETWEEN_SOON: Duration = Duration::from_millis(10);
/// How many such looks are made in a row: at the first the thread may have been at it a moment ago, and be again in the next.
const LOOKS_SOON: u8 = 3;
/// The least time between two moves of the timer.
pub(crate) const MOVES: Duration = Duration::from_millis(1);

/// The keeper's timer.
#[derive(Debug)]
pub(crate) struct Tick {
    timer: Timer,
    /// Whether the keeper waits for it.
    goes: AtomicBool,
    /// How often the keeper is still to wait for a moment only, when it begins to wait for it.
    soon: AtomicU8,
}

impl Tick {
    pub(crate) fn new() -> Result<Self, Errno> {
        let timer = Timer::new().map_err(errno::of)?;
        Ok(Self { timer, goes: AtomicBool::new(true), soon: AtomicU8::new(0) })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// Moves it on: it wakes the keeper a period from now, and not before. False: the program has closed the descriptor.
    pub(crate) fn move_on(&self) -> bool {
        self.timer.set(PERIOD).is_ok()
    }

    /// Brings it forward: it wakes the keeper earlier.
    pub(crate) fn bring_forward(&self) {
        self.soon.store(LOOKS_SOON, Relaxed);
        if self.goes() {
            // If that fails, the keeper sees to it.
            let _ = self.timer.set(SOON);
        }
    }

    /// Makes it wake the keeper now.
    pub(crate) fn look_now(&self) {
        // If that fails, the keeper sees to it.
        let _ = self.timer.set(Duration::from_nanos(1));
    }

    /// Makes the keeper wait for a moment only, when it begins to wait for it next.
    pub(crate) fn look_soon(&self) {
        self.soon.store(1, Relaxed);
    }

    /// Sets it, as the keeper begins to wait for it.
    pub(crate) fn begin(&self) -> bool {
        let left = self.soon.load(Relaxed);
        self.soon.store(left.saturating_sub(1), Relaxed);
        let time = if left > 0 { SOON } else { PERIOD };
        self.timer.set(time).is_ok()
    }

    /// Sets whether the keeper waits for it, or sleeps on something else.
    pub(crate) fn set_going(&self, goes: bool) {
        self.goes.store(goes, Relaxed);
    }

    pub(crate) fn goes(&self) -> bool {
        self.goes.load(Relaxed)
    }
}
