//! The user-space stack beside the kernel's own, over devices: what `make bench-stack` measures besides
//! the stack in memory. `uncork stack serve` is the one, the same server on kernel sockets or a bulk
//! sender of the kernel's the other; whoever asks or receives is the kernel's in either case.

pub(super) mod bulk;
pub(super) mod http;
pub(super) mod loss;
pub(super) mod ping;
pub(super) mod ports;
mod server;
mod transfer;

use std::net::{Ipv4Addr, SocketAddr};

use uncork_lab::place::NEAR;

use super::Bed;

/// The stack's address, in the network of the kernel's on the same device ([`NEAR`]).
const OURS: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 9);
/// And of another one that is there at the same time.
const OURS_TOO: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 10);
const PREFIX: u8 = 24;
/// What needs root beside the namespaces.
const PACKETS: &str = "packet sockets";

/// Whose TCP it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Ours, by a packet socket.
    Ours,
    Kernel,
    /// Ours, where many requests wait for each other.
    Moderated,
    /// Ours, by AF_XDP, which is compared with the packet socket only.
    Xdp,
}

impl Who {
    const ALL: [Self; 2] = [Self::Ours, Self::Kernel];

    /// Where it is reached.
    fn at(self, port: u16) -> SocketAddr {
        match self {
            Self::Ours | Self::Xdp => (OURS, port).into(),
            Self::Moderated => (OURS_TOO, port).into(),
            Self::Kernel => (NEAR, port).into(),
        }
    }

    /// Its place in [`Who::ALL`].
    fn case(self) -> usize {
        usize::from(self == Self::Kernel)
    }
}
