//! Events for the user, in the terms in which it waits.

use std::net::{IpAddr, SocketAddr};
use std::ops::{BitOr, BitOrAssign};

use crate::handle::{ListenerId, SocketId};
use crate::udp::UdpId;

/// Readiness of a socket. In an [`Event`] it is edge-triggered: reported when it begins, not while it lasts.
/// [`Stack::readiness`](crate::Stack) returns the current state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready(u8);

impl Ready {
    /// There is data to read, or the end of the stream, or an error.
    pub const READABLE: Self = Self(1);
    /// There is room to write after a write was refused or cut short, or writing will never be possible.
    pub const WRITABLE: Self = Self(2);
    /// The connection is established.
    pub const CONNECTED: Self = Self(4);
    /// The peer has sent its FIN.
    pub const PEER_CLOSED: Self = Self(8);
    /// The connection is closed.
    pub const CLOSED: Self = Self(16);
    /// The connection has failed; sending or receiving returns the error.
    pub const ERROR: Self = Self(32);
    /// The peer has acknowledged everything that was sent, the FIN included.
    pub const DRAINED: Self = Self(64);
    /// There is data to read, and hardly more can come before some of it is read.
    pub const STOPPED: Self = Self(128);

    /// Returns whether all of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether nothing is set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Ready {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// An event for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A connection has become ready for something.
    Socket(SocketId, Ready),
    /// A UDP socket has become ready for something.
    Udp(UdpId, Ready),
    /// A listener has a connection to accept.
    Incoming(ListenerId),
    /// The stack needs the neighbour entry of this address. Asked where addresses are shared with the kernel
    /// ([`Config::shares_addresses`](crate::Config)); [`Stack::set_neighbour`](crate::Stack) answers
    /// whenever it is known. Without an answer it is asked again.
    Neighbour(IpAddr),
}

/// A step in the life of a connection; `place` is its index in a table of all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was created: a SYN has come or is about to be sent.
    Came {
        /// Its place.
        place: u32,
        /// Local end.
        local: SocketAddr,
        /// Remote end.
        remote: SocketAddr,
    },
    /// It is over for its peer, and in TIME-WAIT here.
    Over {
        /// Its place.
        place: u32,
    },
    /// It has left TIME-WAIT, too: another connection may have the same ends.
    Went {
        /// Its place.
        place: u32,
    },
    /// Its user has released it, too: another connection may have its place.
    Left {
        /// The place that it had.
        place: u32,
    },
}
