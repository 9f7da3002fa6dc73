//! UDP, as far as a host needs it (RFC 768, RFC 1122 §4.1): sockets with a queue each way.
//!
//! Datagrams are never divided: one that does not fit into a packet of the path is refused, as with
//! IP_PMTUDISC_DO. Memory of datagrams that were read is used again for the next ones.

pub(crate) mod emit;
pub(crate) mod table;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::event::Ready;

/// A UDP socket. Never means another one, even after it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpId {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

/// Why something was not done with a UDP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UdpError {
    /// There is no such socket.
    #[error("no such socket")]
    NoSocket,
    /// Another socket has this address and port, or every port is taken.
    #[error("another socket has this address and port, or all ports are taken")]
    AddressInUse,
    /// The address is none of the stack's.
    #[error("the address is not one of this stack")]
    NotOurs,
    /// No address of this stack can reach the peer.
    #[error("there is no route to the peer")]
    NoRoute,
    /// It is not said to whom to send (EDESTADDRREQ).
    #[error("the socket is not connected, and no destination was given")]
    NoDestination,
    /// The datagram does not fit into a packet (EMSGSIZE).
    #[error("the datagram is longer than a packet of this path")]
    TooLong,
    /// Nothing is there to be read, or the queue of what is to be sent is full.
    #[error("nothing to be read, or no room to write")]
    WouldBlock,
    /// The peer's host says that nobody has that port (ECONNREFUSED). Told once.
    #[error("nobody has the peer's port")]
    Refused,
}

/// A datagram that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpReceived {
    /// Octets that were copied.
    pub bytes: usize,
    /// Octets that it had: what did not fit is gone (MSG_TRUNC).
    pub whole_bytes: usize,
    /// Who has sent it.
    pub from: SocketAddr,
    /// Which of our addresses to.
    pub to: IpAddr,
}

/// A datagram in a queue.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) ours: IpAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// What a datagram counts for beside its octets, so that empty ones are not for nothing.
const OVERHEAD_BYTES: usize = 64;

/// Datagrams in order, and how much room they take.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) datagrams: VecDeque<Datagram>,
    bytes: usize,
}

impl Queue {
    /// Whether there is room for one more; an empty queue always has.
    pub(crate) fn has_room(&self, bytes: usize, limit: u32) -> bool {
        self.bytes == 0 || self.bytes + bytes + OVERHEAD_BYTES <= limit as usize
    }

    /// Whether less than half of the room is taken.
    pub(crate) fn is_half_empty(&self, limit: u32) -> bool {
        self.bytes <= limit as usize / 2
    }

    pub(crate) fn push(&mut self, datagram: Datagram) {
        self.bytes += datagram.bytes.len() + OVERHEAD_BYTES;
        self.datagrams.push_back(datagram);
    }

    /// Takes one out, at any place.
    pub(crate) fn take(&mut self, index: usize) -> Option<Datagram> {
        let datagram = self.datagrams.remove(index)?;
        self.bytes -= datagram.bytes.len() + OVERHEAD_BYTES;
        Some(datagram)
    }
}

/// A socket.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) id: UdpId,
    /// Its own end; no address in particular if that is unspecified.
    pub(crate) local: SocketAddr,
    /// What it was bound to, to go back to when it is connected no more.
    pub(crate) bound: IpAddr,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) received: Queue,
    pub(crate) sending: Queue,
    /// The peer's host has said that nobody has the port.
    pub(crate) refused: bool,
    /// Its user was refused room and wants to know when there is some.
    pub(crate) wants_room: bool,
    pub(crate) in_ready: bool,
    pub(crate) in_news: bool,
    pub(crate) news: Ready,
}

impl Socket {
    /// How well a datagram between these ends fits (udp_lib's compute_score): more for what is said more exactly.
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
