//! What passes between the stack and a driver.
//!
//! No packet type is passed around, and there is no packet pool. A frame lives in memory that its
//! driver owns from beginning to end: a slot of a ring that is shared with the kernel, a frame of
//! an AF_XDP area, a buffer of its own. The driver lends it:
//!
//! - **Out**: the stack gets `&mut [u8]` of an empty slot, writes headers and data straight into it,
//!   and says in a [`Transmit`] how long the frame is, what is left to be done to it, and which owner wants
//!   its completion. The octets of a send buffer are copied once, into the slot.
//! - **In**: the stack gets a [`Received`], reads it, copies the data to where the program will fetch
//!   it, and gives the slot back by returning.
//!
//! So only these metadata cross the boundary, and time as both sides count it.
#![forbid(unsafe_code)]

mod instant;
mod received;
mod transmit;

pub use instant::Instant;
pub use received::{Received, Trust};
pub use transmit::{Checksum, Completion, Owner, Segmentation, Transmit};

/// The header before IP in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// An Ethernet header: neighbours have to be resolved.
    Ethernet,
    /// None (a TUN device, a raw socket).
    Ip,
}

/// Capabilities of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The header that its frames begin with.
    pub medium: Medium,
    /// Largest IP packet on the link, in octets.
    pub mtu: u16,
    /// Largest IP packet that the driver takes as a train of segments and cuts itself, or delivers
    /// whole; the MTU if it takes none.
    pub max_train_bytes: u32,
    /// Whether it completes the checksum of TCP and UDP in frames that are sent
    /// ([`Checksum::Partial`]).
    pub completes_checksums: bool,
    /// Whether it reports when a frame has left ([`Completion`]). If not, frames count as gone when
    /// they are handed over, and there are neither small queues nor autocorking.
    pub reports_completions: bool,
}

impl Capabilities {
    /// Returns the capabilities of a device of this MTU without offloads.
    #[must_use]
    pub const fn plain(medium: Medium, mtu: u16) -> Self {
        Self {
            medium,
            mtu,
            max_train_bytes: mtu as u32,
            completes_checksums: false,
            reports_completions: true,
        }
    }
}
