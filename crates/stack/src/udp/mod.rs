//! UDP, as far as a host needs it (RFC 768, RFC 1122 §4.1): sockets with a queue in each direction.
//!
//! Datagrams are never fragmented: one that does not fit into a packet of the path is refused, as with
//! IP_PMTUDISC_DO. Buffers of datagrams that were read are reused for the next ones.

pub(crate) mod emit;
pub(crate) mod table;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::event::Ready;

/// Identifies a UDP socket. It never comes to mean another one, even after that one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

/// Why an operation on a UDP socket failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UdpError {
    /// There is no such socket.
    #[error("no such socket")]
    NoSocket,
    /// Another socket has this address and port, or every port is taken.
    #[error("another socket has this address and port, or all ports are taken")]
    AddressInUse,
    /// The address is not one of the stack's.
    #[error("the address is not one of this stack")]
    NotOurs,
    /// No address of this stack can reach the peer.
    #[error("there is no route to the peer")]
    NoRoute,
    /// The socket is not connected, and no destination was given (EDESTADDRREQ).
    #[error("the socket is not connected, and no destination was given")]
    NoDestination,
    /// The datagram does not fit into a packet (EMSGSIZE).
    #[error("the datagram is longer than a packet of this path")]
    TooLong,
    /// There is nothing to read, or the send queue is full.
    #[error("nothing to be read, or no room to write")]
    WouldBlock,
    /// The peer's host says that the port is unreachable (ECONNREFUSED). Reported once.
    #[error("nobody has the peer's port")]
    Refused,
}

/// A datagram that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpReceived {
    /// Octets that were copied.
    pub bytes: usize,
    /// Octets of the datagram: what did not fit was discarded (MSG_TRUNC).
    pub whole_bytes: usize,
    /// Sender of the datagram.
    pub from: SocketAddr,
    /// The local address to which it was sent.
    pub to: IpAddr,
}

/// A datagram in a queue.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) ours: IpAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// What a datagram counts for in addition to its octets, so that empty ones are not free.
const OVERHEAD_BYTES: usize = 64;

/// A queue of datagrams, and the room that they take.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) datagrams: VecDeque<Datagram>,
    bytes: usize,
}

impl Queue {
    /// Returns whether there is room for one more; an empty queue always has room.
    pub(crate) fn has_room(&self, bytes: usize, limit: u32) -> bool {
        self.bytes == 0 || self.bytes + bytes + OVERHEAD_BYTES <= limit as usize
    }

    /// Returns whether at most half of the room is taken.
    pub(crate) fn is_half_empty(&self, limit: u32) -> bool {
        self.bytes <= limit as usize / 2
    }

    pub(crate) fn push(&mut self, datagram: Datagram) {
        self.bytes += datagram.bytes.len() + OVERHEAD_BYTES;
        self.datagrams.push_back(datagram);
    }

    /// Removes a datagram at any index.
    pub(crate) fn take(&mut self, index: usize) -> Option<Datagram> {
        let datagram = self.datagrams.remove(index)?;
        self.bytes -= datagram.bytes.len() + OVERHEAD_BYTES;
        Some(datagram)
    }
}

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) id: UdpId,
    /// Local end; any address if that is unspecified.
    pub(crate) local: SocketAddr,
    /// The address it was bound to, which is restored when it is disconnected.
    pub(crate) bound: IpAddr,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) received: Queue,
    pub(crate) sending: Queue,
    /// The peer's host has said that the port is unreachable.
    pub(crate) refused: bool,
    /// Its user was refused room, and waits to be told when there is some.
    pub(crate) wants_room: bool,
    pub(crate) in_ready: bool,
    pub(crate) in_news: bool,
    pub(crate) news: Ready,
}

impl Socket {
    /// Scores how well a datagram between these ends fits (compute_score in Linux's udp.c): a more specific socket scores higher.
    pub(crate) fn fit(&self, ours: IpAddr, peer: SocketAddr) -> Option<u32> {
        let local = self.local.ip();
        let exactly = local == ours;
        // "::" takes both families, as with IPV6_V6ONLY off.
        let any = local.is_unspecified() && (local.is_ipv6() || ours.is_ipv4());
        if !exactly && !any || self.remote.is_some_and(|remote| remote != peer) {
            return None;
        }
        Some(u32::from(exactly) + 2 * u32::from(self.remote.is_some()))
    }

    pub(crate) fn take_error(&mut self) -> Option<UdpError> {
        std::mem::take(&mut self.refused).then_some(UdpError::Refused)
    }
}
