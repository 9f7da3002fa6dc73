//! A packet socket that is handed over by the process that may open it to the process that uses it.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use uncork_packet::{Capabilities, Medium};

use super::geometry::Geometry;
use super::open::{LINK_BYTES, RECEIVED_AT};
use super::slots::HEADER_BYTES;
use crate::{ioctl, vnet};

/// A packet socket that is ready to receive and send, and its description. Opening one takes
/// CAP_NET_RAW, [`Port::adopt`](super::Port::adopt) takes no privilege: the two halves may run in two
/// processes, with the descriptor passed over a Unix socket.
#[derive(Debug)]
pub struct Handed {
    /// The socket.
    pub socket: OwnedFd,
    /// Description of the socket.
    pub description: Description,
}

/// What a process must know of a packet socket to use it, as of when the socket was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    pub(super) device: Device,
    pub(super) rings: Rings,
}

impl Description {
    /// The device's hardware address.
    #[must_use]
    pub fn mac(&self) -> [u8; ioctl::MAC_BYTES] {
        self.device.mac
    }
}

/// A device as of when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) index: i32,
    pub(super) mac: [u8; ioctl::MAC_BYTES],
    /// Whether its frames begin with an Ethernet header.
    pub(super) ethernet: bool,
    pub(super) mtu: u16,
    pub(super) max_train_bytes: u32,
}

/// The layout of both rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rings {
    pub(super) receive: Geometry,
    /// Whether the kernel keeps frames that are longer than a slot beside the ring.
    pub(super) long_beside: bool,
    pub(super) transmit: Geometry,
}

impl Device {
    /// Returns what a packet socket on the device can do.
    pub(super) fn capabilities(&self) -> Capabilities {
        self.capabilities_at(self.mtu)
    }

    /// Returns the capabilities for another MTU of the device.
    pub(super) fn capabilities_at(&self, mtu: u16) -> Capabilities {
        let takes_trains = self.max_train_bytes > u32::from(self.mtu);
        let train = if takes_trains { self.max_train_bytes } else { 0 };
        Capabilities {
            medium: if self.ethernet { Medium::Ethernet } else { Medium::Ip },
            mtu,
            max_train_bytes: train.max(u32::from(mtu)),
            completes_checksums: true,
            reports_completions: true,
        }
    }
}

impl Rings {
    /// The longest packet that can be received and sent, in octets.
    pub(super) fn longest_packet(&self) -> u16 {
        let slot = self.receive.slot_bytes().saturating_sub(RECEIVED_AT + LINK_BYTES);
        let receive = if self.long_beside { usize::MAX } else { slot };
        let before = HEADER_BYTES + vnet::BYTES + LINK_BYTES;
        let transmit = self.transmit.slot_bytes().saturating_sub(before);
        u16::try_from(receive.min(transmit)).unwrap_or(u16::MAX)
    }

    /// Checks the layout: our memory safety must not depend on the process that has described the rings.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.receive.is_sound() && self.transmit.is_sound() {
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::InvalidData, "its rings are not as they are described"))
    }
}
