//! Packet sockets of many engines on one device, in a group with one choosing program (`owned/group.h`).

use std::num::NonZeroU32;

use libbpf_rs::{MapCore as _, MapFlags};

use super::layout::{seat_key, seat_value};
use super::{Engine, Error, Owned, full, unless_absent};

/// A packet socket in a group, by a number that no other one has had under the same filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat(pub NonZeroU32);

impl Owned {
    /// Gives this engine's frames that come by this device to the socket in this seat of a group, not to its former one.
    /// `place` is its likely index in the group: a wrong guess costs time, not frames.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or the kernel's error.
    pub fn seat(&self, device: i32, engine: Engine, seat: Seat, place: u32) -> Result<(), Error> {
        let (key, value) = (seat_key(device, engine), seat_value(seat, place));
        self.programs.maps()[8].update(&key, &value, MapFlags::ANY).map_err(full)
    }

    /// Removes this engine's socket there.
    ///
    /// # Errors
    ///
    /// The kernel's error.
    pub fn unseat(&self, device: i32, engine: Engine) -> Result<(), Error> {
        unless_absent(self.programs.maps()[8].delete(&seat_key(device, engine)))
    }
}
