//! What wakes the keeper when nobody has made a turn for a while. Whoever makes turns moves it on, twice a period at the
//! most: a call of the kernel's, where to wake a thread would cost the program much more.

use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use nix::errno::Errno;
use uncork_high::Timer;

use crate::errno;

/// How long what is due may wait for somebody's turn.
pub(crate) const PERIOD: Duration = Duration::from_millis(2);
/// How often it is moved on at the most.
pub(crate) const MOVES: Duration = Duration::from_millis(1);

/// The keeper's timer.
#[derive(Debug)]
pub(crate) struct Tick {
    timer: Timer,
    /// Whether the keeper waits for it.
    goes: AtomicBool,
}

impl Tick {
    pub(crate) fn new() -> Result<Self, Errno> {
        let timer = Timer::new().map_err(errno::of)?;
        Ok(Self { timer, goes: AtomicBool::new(true) })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }

    /// A period from now on it will wake the keeper, and not before. False: the program has closed the descriptor.
    pub(crate) fn move_on(&self) -> bool {
        self.timer.set(PERIOD).is_ok()
    }

    /// The keeper sleeps on something else while this is off.
    pub(crate) fn set_going(&self, goes: bool) {
        self.goes.store(goes, Relaxed);
    }

    pub(crate) fn goes(&self) -> bool {
        self.goes.load(Relaxed)
    }
}
