//! The MTU of a device that is in use: an administrator may change it at any time.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::ioctl;

/// How often it is read, at most, while all goes well: soon enough after a change for anybody, and
/// seldom enough to cost nothing.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// The MTU as of the last look.
#[derive(Debug)]
pub(crate) struct Mtu {
    /// Index of the device.
    index: i32,
    /// Upper bound for packets, whatever the device would take.
    most: u16,
    value: u16,
    looked: Duration,
}

impl Mtu {
    pub(crate) fn new(index: i32, most: u16, value: u16) -> Self {
        Self { index, most, value, looked: now() }
    }

    /// Returns the MTU as of the last look.
    pub(crate) fn value(&self) -> u16 {
        self.value
    }

    /// Reads the MTU, through any socket of the device's network namespace that answers; returns it if it
    /// has changed.
    pub(crate) fn look(&mut self, socket: impl AsFd) -> Option<u16> {
        self.looked = now();
        // A device that does not answer is gone, or about to be: others notice that.
        let mtu = ioctl::mtu_by_index(socket, self.index).ok()?;
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).min(self.most);
        let before = std::mem::replace(&mut self.value, mtu);
        (before != mtu).then_some(mtu)
    }

    /// Reads the MTU if the last look was a while ago.
    pub(crate) fn look_if_due(&mut self, socket: impl AsFd) -> Option<u16> {
        let due = now().saturating_sub(self.looked) >= LOOK_AFTER;
        if due { self.look(socket) } else { None }
    }
}

/// Reads the clock that is cheapest to read, and precise to some milliseconds.
fn now() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE);
    time.map_or(Duration::ZERO, Duration::from)
}
