//! What the user is told, in the terms in which he waits.

use std::net::{IpAddr, SocketAddr};
use std::ops::{BitOr, BitOrAssign};

use crate::handle::{ListenerId, SocketId};
use crate::udp::UdpId;

/// What has become possible. In an [`Event`] like an edge: told when it happens, not while it holds.
/// [`Stack::readiness`](crate::Stack) says what holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ready(u8);

impl Ready {
    /// There is something to read, or the end, or an error.
    pub const READABLE: Self = Self(1);
    /// There is room to write after a write was refused or cut short, or there never will be.
    pub const WRITABLE: Self = Self(2);
    /// The connection is open.
    pub const CONNECTED: Self = Self(4);
    /// The peer has sent its last.
    pub const PEER_CLOSED: Self = Self(8);
    /// The connection is over.
    pub const CLOSED: Self = Self(16);
    /// It has failed; sending or receiving says how.
    pub const ERROR: Self = Self(32);
    /// The peer has everything that was sent, and knows that it was all.
    pub const DRAINED: Self = Self(64);

    /// Whether all of `other` holds.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is nothing.
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

/// Something to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A connection has become ready for something.
    Socket(SocketId, Ready),
    /// A UDP socket has become ready for something.
    Udp(UdpId, Ready),
    /// A listener has a connection to accept.
    Incoming(ListenerId),
    /// Where do packets to this address go? Asked where addresses are shared with the kernel
    /// ([`Config::shares_addresses`](crate::Config)); [`Stack::set_neighbour`](crate::Stack) answers,
    /// whenever it is known. Without an answer it is asked again.
    Neighbour(IpAddr),
}

/// A connection has come to be, or is no more; in a table of all of them it stands at `place` meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It has come to be: a SYN has come or is about to be sent.
    Came {
        /// Its place.
        place: u32,
        /// This end.
        local: SocketAddr,
        /// The other end.
        remote: SocketAddr,
    },
    /// It is over for its peer, and in TIME-WAIT here.
    Over {
        /// Its place.
        place: u32,
    },
    /// Nothing is left of it for its peer, not even TIME-WAIT: its ends may be another's.
    Went {
        /// Its place.
        place: u32,
    },
    /// Nor for its user: its place may be another's.
    Left {
        /// The place that it had.
        place: u32,
    },
}
