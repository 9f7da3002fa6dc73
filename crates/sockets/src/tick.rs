//! What wakes the keeper when nobody has made a turn for a while. Whoever makes turns moves it on, twice a period at the
//! most: a call of the kernel's, where to wake a thread would cost the program much more.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

use nix::errno::Errno;
use uncork_high::Timer;

use crate::errno;

/// How long what is due may wait for somebody's turn.
pub(crate) const PERIOD: Duration = Duration::from_millis(2);
/// The same, where somebody has written more than may leave at once: the next ACKs come within a moment, and he may do
/// something else by then.
pub(crate) const SOON: Duration = Duration::from_micros(200);
/// And not again before so long: who writes without end comes back to it by himself, and to set a timer that is soon due
/// takes a virtual machine microseconds.
pub(crate) const BETWEEN_SOON: Duration = Duration::from_millis(10);
/// How often in a row. At the first look he may have been at it a moment ago, and be again in the next.
const LOOKS_SOON: u8 = 3;
/// How often it is moved on at the most.
pub(crate) const MOVES: Duration = Duration::from_millis(1);

/// The keeper's timer.
#[derive(Debug)]
pub(crate) struct Tick {
    timer: Timer,
    /// Whether the keeper waits for it.
    goes: AtomicBool,
    /// How often the keeper, when it begins to wait for it, is to do so for a moment only.
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

    /// A period from now on it will wake the keeper, and not before. False: the program has closed the descriptor.
    pub(crate) fn move_on(&self) -> bool {
        self.timer.set(PERIOD).is_ok()
    }

    /// It will wake the keeper earlier.
    pub(crate) fn bring_forward(&self) {
        self.soon.store(LOOKS_SOON, Relaxed);
        if self.goes() {
            // If it cannot be, the keeper sees to that.
            let _ = self.timer.set(SOON);
        }
    }

    /// It wakes the keeper now.
    pub(crate) fn look_now(&self) {
        // If it cannot be, the keeper sees to that.
        let _ = self.timer.set(Duration::from_nanos(1));
    }

    /// The keeper, when it begins to wait for it, does so for a moment only.
    pub(crate) fn look_soon(&self) {
        self.soon.store(1, Relaxed);
    }

    /// The keeper begins to wait for it.
    pub(crate) fn begin(&self) -> bool {
        let left = self.soon.load(Relaxed);
        self.soon.store(left.saturating_sub(1), Relaxed);
        let time = if left > 0 { SOON } else { PERIOD };
        self.timer.set(time).is_ok()
    }

    /// The keeper sleeps on something else while this is off.
    pub(crate) fn set_going(&self, goes: bool) {
        self.goes.store(goes, Relaxed);
    }

    pub(crate) fn goes(&self) -> bool {
        self.goes.load(Relaxed)
    }
}
