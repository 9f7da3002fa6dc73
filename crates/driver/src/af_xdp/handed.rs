//! An AF_XDP socket that is handed over by the process that may open it to the process that uses it.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use uncork_packet::{Capabilities, Medium};

use super::geometry::Geometry;
use crate::ioctl;

/// A socket that is ready to receive and send, the memory of its frames, and its description. Opening one
/// takes CAP_NET_RAW, [`Port::adopt`](super::Port::adopt) takes no privilege: the two halves may run in two
/// processes, with both descriptors passed over a Unix socket.
#[derive(Debug)]
pub struct Handed {
    /// The socket, to be entered into the map that redirects frames to it (uncork-bpf, `Owned::enter`).
    pub socket: OwnedFd,
    /// The memory of its frames (memfd_create(2)), which the kernel has pinned.
    pub frames: OwnedFd,
    /// Description of socket and frames.
    pub description: Description,
}

/// What a process must know of a socket to use it, as of when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    pub(super) device: Device,
    pub(super) area: Geometry,
    /// Whether the device itself writes frames into the area (zero copy).
    pub(super) zero_copy: bool,
    /// Whether the kernel fills in checksums (`struct xsk_tx_metadata`).
    pub(super) completes_checksums: bool,
    /// Whether a word precedes each received frame ([`Nature::marks`](super::Nature::marks)).
    pub(super) marks: bool,
    /// Whether calls for frames run the device's receive processing (busy polling).
    pub(super) polls_busily: bool,
}

/// A device as of when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) index: i32,
    pub(super) queue: u32,
    pub(super) mac: [u8; ioctl::MAC_BYTES],
    pub(super) mtu: u16,
}

impl Description {
    /// Returns the port's capabilities at this MTU of the device.
    pub(super) fn capabilities_at(&self, mtu: u16) -> Capabilities {
        Capabilities {
            completes_checksums: self.completes_checksums,
            ..Capabilities::plain(Medium::Ethernet, mtu)
        }
    }

    /// Checks the layout: our memory safety must not depend on the process that has described it.
    pub(super) fn check(&self) -> io::Result<()> {
        let checksums = !self.completes_checksums || self.area.metadata_bytes > 0;
        if self.area.is_sound() && checksums {
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::InvalidData, "its frames are not as they are described"))
    }
}
