//! Packet sockets of many engines on one device, in a group of which one program chooses (`owned/group.h`).

use std::num::NonZeroU32;

use libbpf_rs::{MapCore as _, MapFlags};

use super::layout::{seat_key, seat_value};
use super::{Engine, Error, Owned, full, unless_absent};

/// A packet socket in a group: its number, which no other one has had under the same filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat(pub NonZeroU32);

impl Owned {
    /// What is this engine's and comes by this device is for the socket in this seat of a group, and not for the one that it had there
    /// before. It is likely to be so far behind the first one of the group: a wrong guess costs time, not frames.
    ///
    /// # Errors
    ///
    /// [`Error::Full`], or what the kernel says.
    pub fn seat(&self, device: i32, engine: Engine, seat: Seat, place: u32) -> Result<(), Error> {
        let (key, value) = (seat_key(device, engine), seat_value(seat, place));
        self.programs.maps()[8].update(&key, &value, MapFlags::ANY).map_err(full)
    }

    /// This engine has no socket there any more.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn unseat(&self, device: i32, engine: Engine) -> Result<(), Error> {
        unless_absent(self.programs.maps()[8].delete(&seat_key(device, engine)))
    }
}
