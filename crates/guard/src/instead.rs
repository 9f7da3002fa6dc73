//! Resets where the kernel sends none.
//!
//! The kernel answers a peer's reply to a probe ([`crate::reset`]) with a reset only if it has nothing with these ends. An
//! earlier connection of its own stays in TIME-WAIT for a minute, and answers an ACK with an ACK (RFC 9293 §3.10.7.4), so that
//! the peer would wait for ever. Here the peer's reply is received, and the reset is sent that RFC 9293 §3.10.7.1 prescribes for
//! a connection that does not exist.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use uncork_wire::tcp::{Flags, Header};
use uncork_wire::{self as wire, SeqNumber, ipv4, ipv6};

use crate::reset::Left;
use crate::session::Ends;
use uncork_closing::{ClosedApart, Closing};

/// How long a peer has to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// ETH_P_ALL, in network byte order.
const ALL: u32 = (libc::ETH_P_ALL as u16).to_be() as u32;
/// Receive buffer, for what may arrive between two looks.
const BUFFER_BYTES: usize = 8 << 20;
/// Packets that are received in one go: the guardian has others to serve.
const AT_ONCE: usize = 1024;
/// Answers to probes have no data. Longer packets are cut off, and cannot be parsed then.
const ANSWER_BYTES: usize = 256;

/// Receives what the peers of ended connections answer.
#[derive(Debug)]
pub(crate) struct InStead {
    /// Receives a copy of all packets to and from this host. It exists only while peers are waited for.
    socket: ClosedApart,
    waits: HashMap<Ends, Waits>,
    /// Until when the last peer is waited for.
    until: Instant,
}

#[derive(Debug)]
struct Waits {
    device: u32,
    until: Instant,
}

/// A peer's answer, and the sequence number of the reset that it accepts.
pub(crate) struct Said {
    pub(crate) left: Left,
    pub(crate) seq: SeqNumber,
}

impl InStead {
    pub(crate) fn open(closing: &Closing) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let all = std::num::NonZeroU32::new(ALL).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, all)?;
        // With a smaller buffer more may be lost on a busy host.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES);
        let socket = ClosedApart::new(socket, closing);
        Ok(Self { socket, waits: HashMap::new(), until: Instant::now() })
    }

    /// Begins to wait for the answer of this connection's peer.
    pub(crate) fn expect(&mut self, left: &Left) {
        self.until = Instant::now() + PATIENCE;
        self.waits.insert(left.ends, Waits { device: left.device, until: self.until });
    }

    /// Returns how long answers are still waited for.
    pub(crate) fn rests(&self) -> Duration {
        if self.waits.is_empty() {
            return Duration::ZERO;
        }
        self.until.saturating_duration_since(Instant::now())
    }

    /// Returns the peers that have said their numbers, from what has arrived.
    pub(crate) fn hear(&mut self) -> Vec<Said> {
        let (now, mut packet, mut all) = (Instant::now(), [0; ANSWER_BYTES], Vec::new());
        for _ in 0..AT_ONCE {
            let Ok((bytes, _)) = recv(&self.socket, &mut packet[..], RecvFlags::empty()) else {
                break;
            };
            let Some((ends, seq)) = said(&packet[..bytes]) else { continue };
            let waits = self.waits.remove(&ends).filter(|waits| now < waits.until);
            if let (Some(Waits { device, .. }), Some(seq)) = (waits, seq) {
                all.push(Said { left: Left { ends, device }, seq });
            }
        }
        all
    }
}

impl AsFd for InStead {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the connection that a packet belongs to, and what it acknowledges; no number if its sender no longer has that
/// connection, or opens another one, and is to be left alone.
fn said(packet: &[u8]) -> Option<(Ends, Option<SeqNumber>)> {
    let (source, destination, segment): (IpAddr, IpAddr, _) = match packet.first()? >> 4 {
        4 => {
            let (header, segment) = ipv4::Header::read(packet).ok()?;
            (header.protocol == wire::Protocol::TCP).then_some(())?;
            (header.source.into(), header.destination.into(), segment)
        }
        _ => {
            let (header, segment) = ipv6::Header::read(packet).ok()?;
            (header.next_header == wire::Protocol::TCP).then_some(())?;
            (header.source.into(), header.destination.into(), segment)
        }
    };
    let header = Header::read(segment, segment.len()).ok()?;
    let is_over = header.flags().has(Flags::RST) || header.flags().has(Flags::SYN);
    let local = SocketAddr::new(destination, header.destination_port());
    let remote = SocketAddr::new(source, header.source_port());
    Some(((local, remote), header.ack().filter(|_| !is_over)))
}

#[cfg(test)]
mod tests {
    use uncork_wire::tcp::{Fields, OptionSet};

    use super::*;

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Makes a packet that a peer sends to our port 80.
    fn packet(protocol: wire::Protocol, flags: Flags) -> Vec<u8> {
        let (theirs, ours) = ([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
        let mut packet = vec![0; 40];
        ipv4::Header::whole(protocol, theirs, ours, 40).emit(&mut packet);
        let (seq, ack) = (SeqNumber(1), SeqNumber(7));
        let fields = Fields { source_port: 4711, destination_port: 80, seq, ack, flags, window: 0 };
        fields.emit(&OptionSet::default(), &mut packet[20..]);
        packet
    }

    #[test]
    fn only_who_has_such_a_connection_says_a_number() {
        let ends = (end("10.0.0.1:80"), end("10.0.0.2:4711"));
        let both = |one: Flags, other: Flags| Flags(one.0 | other.0);
        let says = |flags| said(&packet(wire::Protocol::TCP, flags));
        assert_eq!(says(Flags::ACK), Some((ends, Some(SeqNumber(7)))));
        assert_eq!(says(both(Flags::FIN, Flags::ACK)), Some((ends, Some(SeqNumber(7)))));
        // The peer has none, or opens another one: it is no longer waited for, and left alone.
        for flags in [Flags::RST, both(Flags::RST, Flags::ACK), Flags::SYN] {
            assert_eq!(says(flags), Some((ends, None)), "{flags:?}");
        }
        assert_eq!(says(both(Flags::SYN, Flags::ACK)), Some((ends, None)));
        assert_eq!(said(&packet(wire::Protocol(17), Flags::ACK)), None);
        assert_eq!(said(&packet(wire::Protocol::TCP, Flags::ACK)[..39]), None);
        assert_eq!(said(&[]), None);
    }
}
