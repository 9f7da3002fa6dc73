//! Resets where the kernel sends none.
//!
//! What a peer says to a probe ([`crate::reset`]) the kernel answers with a reset only where it has nothing with these
//! ends. A connection of its own that was there before is in TIME-WAIT for a minute, and answers an ACK with an ACK
//! (RFC 9293 §3.10.7.4), so that the peer would wait for ever. Here is heard what he says, and the reset sent that RFC
//! 9293 §3.10.7.1 has for a connection that is not there.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};
use uncork_wire::tcp::{Flags, Header};
use uncork_wire::{self as wire, SeqNumber, ipv4, ipv6};

use crate::reset::Left;
use crate::session::Ends;

/// How long a peer has to answer; it counts anew with each connection that ends.
const PATIENCE: Duration = Duration::from_secs(1);
/// ETH_P_ALL, in the order of the network.
const ALL: u32 = (libc::ETH_P_ALL as u16).to_be() as u32;
/// What may come between two looks.
const BUFFER_BYTES: usize = 8 << 20;
/// Answers to probes have no data. What is longer is cut off, and nothing that can be read.
const ANSWER_BYTES: usize = 256;

/// Hears what peers of connections say that have ended.
#[derive(Debug)]
pub(crate) struct InStead {
    /// A copy of all that comes to this host. It is there only while somebody is waited for.
    socket: OwnedFd,
    /// With the devices that have their addresses.
    waits: HashMap<Ends, u32>,
    until: Instant,
}

/// A peer has answered, and this is the sequence number of the reset that it takes.
pub(crate) struct Said {
    pub(crate) left: Left,
    pub(crate) seq: SeqNumber,
}

impl InStead {
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let all = std::num::NonZeroU32::new(ALL).map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, all)?;
        // With less room more may be lost on a host that is busy.
        let _ = setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES);
        Ok(Self { socket, waits: HashMap::new(), until: Instant::now() })
    }

    /// What the peer of this says is waited for.
    pub(crate) fn expect(&mut self, left: &Left) {
        self.waits.insert(left.ends, left.device);
        self.until = Instant::now() + PATIENCE;
    }

    /// For how long somebody is waited for still.
    pub(crate) fn rests(&self) -> Duration {
        if self.waits.is_empty() {
            return Duration::ZERO;
        }
        self.until.saturating_duration_since(Instant::now())
    }

    /// The next who has said his number, of all that has come.
    pub(crate) fn next(&mut self) -> Option<Said> {
        let mut packet = [0; ANSWER_BYTES];
        loop {
            let (bytes, _) = recv(&self.socket, &mut packet[..], RecvFlags::empty()).ok()?;
            let Some((ends, seq)) = said(&packet[..bytes]) else { continue };
            if let Some(device) = self.waits.remove(&ends) {
                return Some(Said { left: Left { ends, device }, seq });
            }
        }
    }
}

impl AsFd for InStead {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whose a packet is, and what it acknowledges. None for what no reset answers.
fn said(packet: &[u8]) -> Option<(Ends, SeqNumber)> {
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
    (!header.flags().has(Flags::RST)).then_some(())?;
    let local = SocketAddr::new(destination, header.destination_port());
    let remote = SocketAddr::new(source, header.source_port());
    Some(((local, remote), header.ack()?))
}
