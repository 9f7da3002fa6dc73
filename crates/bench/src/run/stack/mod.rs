//! The user-space stack beside the kernel's own, over devices: what `make bench-stack` measures in
//! addition to the stack in memory. `uncork stack serve` is compared with the same server on kernel
//! sockets or a bulk sender of the kernel's; clients and receivers use the kernel's in either case.

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
/// The address of another stack at the same time.
const OURS_TOO: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 10);
const PREFIX: u8 = 24;
/// What needs root besides the namespaces.
const PACKETS: &str = "packet sockets";

/// The TCP that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Ours, over a packet socket.
    Ours,
    Kernel,
    /// Ours, where many requests wait for each other.
    Moderated,
    /// Ours, over AF_XDP, which is only compared with the packet socket.
    Xdp,
}

impl Who {
    const ALL: [Self; 2] = [Self::Ours, Self::Kernel];

    /// Returns its address.
    fn at(self, port: u16) -> SocketAddr {
        match self {
            Self::Ours | Self::Xdp => (OURS, port).into(),
            Self::Moderated => (OURS_TOO, port).into(),
            Self::Kernel => (NEAR, port).into(),
        }
    }

    /// Returns its index in [`Who::ALL`].
    fn case(self) -> usize {
        usize::from(self == Self::Kernel)
    }
}
