//! A socket of AF_XDP on its way from who may open it to who uses it.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use uncork_packet::{Capabilities, Medium};

use super::geometry::Geometry;
use crate::ioctl;

/// A socket that is ready to receive and send, the memory of its frames, and what must be known to use them.
/// Opening one takes CAP_NET_RAW, [`Port::adopt`](super::Port::adopt) nothing: the two halves may be two
/// processes', with both descriptors passed over a Unix socket.
#[derive(Debug)]
pub struct Handed {
    /// The socket. What redirects frames to it (uncork-bpf, `Owned::enter`) wants to know it.
    pub socket: OwnedFd,
    /// The memory of its frames (memfd_create(2)), which the kernel has a hold of.
    pub frames: OwnedFd,
    /// What they are.
    pub description: Description,
}

/// What must be known of a socket to use it, as it was when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    pub(super) device: Device,
    pub(super) area: Geometry,
    /// Whether the device puts frames where we see them by itself.
    pub(super) zero_copy: bool,
    /// Whether the kernel fills in checksums (`struct xsk_tx_metadata`).
    pub(super) completes_checksums: bool,
    /// Whether a word stands before each frame that came ([`Nature::marks`](super::Nature::marks)).
    pub(super) marks: bool,
    /// Whether asking for frames runs the device's part of receiving them.
    pub(super) polls_busily: bool,
}

/// A device as it is when it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) index: i32,
    pub(super) queue: u32,
    pub(super) mac: [u8; ioctl::MAC_BYTES],
    pub(super) mtu: u16,
}

impl Description {
    /// What the port can do where the device has this MTU by now.
    pub(super) fn capabilities_at(&self, mtu: u16) -> Capabilities {
        Capabilities {
            completes_checksums: self.completes_checksums,
            ..Capabilities::plain(Medium::Ethernet, mtu)
        }
    }

    /// Whoever has described it is not asked to be right for our memory's sake.
    pub(super) fn check(&self) -> io::Result<()> {
        let checksums = !self.completes_checksums || self.area.metadata_bytes > 0;
        if self.area.is_sound() && checksums {
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::InvalidData, "its frames are not as they are described"))
    }
}
