//! Ends the connections of a dead stack at their other ends.
//!
//! Only a reset with the right sequence number is accepted there (RFC 5961 §3), and the stack has taken that number with it. So
//! the peer is made to say it: it answers any unacceptable segment with an ACK (RFC 9293 §3.10.7.4). That ACK arrives at the
//! kernel, which knows no such connection, and whose reset has the number that the ACK asked for. Two segments without data are
//! sent, half of the sequence space apart, as one alone may be acceptable.
//!
//! Each has a FIN. Linux answers unacceptable bare ACKs only once in half a second (tcp_invalid_ratelimit), and the last may
//! have been a probe of the stack's own, into a shut window or by keepalive; segments that take up sequence space it answers
//! each time.
//!
//! Where the kernel has these ends in TIME-WAIT it sends no reset, and the guardian sends one instead ([`crate::instead`]).

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};
use uncork_sockdiag::{Name, SockDiag};
use uncork_wire::checksum::Sum;
use uncork_wire::tcp::{self, CHECKSUM_OFFSET, Fields, Flags, OptionSet};
use uncork_wire::{Protocol, SeqNumber, ipv4, ipv6};

use crate::instead::InStead;
use crate::session::Ends;
use uncork_closing::Closing;

const HALF_OF_SPACE: u32 = 1 << 31;
const HOPS: u8 = 64;
/// Peers that are probed before the first ones' answers are read.
const ANSWERED_AT_ONCE: usize = 64;
/// Peers that are probed before others that wait for the guardian are served: some milliseconds.
const ASKED_AT_ONCE: usize = 256;
/// Peers that may wait to be probed, at most.
const WAITING: usize = 1 << 20;
const FIN_ACK: Flags = Flags(Flags::FIN.0 | Flags::ACK.0);

/// A connection whose stack is dead, and the device that has its local address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) ends: Ends,
    pub(crate) device: u32,
}

impl Left {
    /// Returns those of these connections whose local address a device has.
    pub(crate) fn all(
        connections: Vec<Ends>,
        device_of: impl Fn(IpAddr) -> Option<u32>,
    ) -> Vec<Self> {
        let here = |ends: Ends| Some(Self { ends, device: device_of(ends.0.ip())? });
        connections.into_iter().filter_map(here).collect()
    }
}

/// Sends the probes that make peers say their sequence numbers.
#[derive(Debug)]
pub(crate) struct Prober {
    /// Raw sockets that take whole packets; there may be no IPv6.
    v4: OwnedFd,
    v6: Option<OwnedFd>,
    kernel: SockDiag,
    /// Connections whose turn has not come, by the stack that has left them.
    waiting: VecDeque<Vec<Left>>,
    /// Receives answers, while there are peers to which the kernel sends no reset.
    instead: Option<InStead>,
    /// Closes the socket of `instead`, which takes RCU grace periods.
    closing: Closing,
}

impl Prober {
    pub(crate) fn open() -> io::Result<Self> {
        let open = |family| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))
        };
        let (v4, v6) = (open(AddressFamily::INET)?, open(AddressFamily::INET6).ok());
        let (kernel, closing) = (SockDiag::open()?, Closing::by(1));
        Ok(Self { v4, v6, kernel, waiting: VecDeque::new(), instead: None, closing })
    }

    /// Ends these connections at their other ends. Peers to which the kernel sends no reset get one once they have said their
    /// numbers. Of very many connections the first are ended now, the others by [`Prober::go_on`] and [`Prober::settle`].
    pub(crate) fn end(&mut self, all: Vec<Left>) {
        let waiting: usize = self.waiting.iter().map(Vec::len).sum();
        // Peers beyond that find out by their own timers.
        if !all.is_empty() && waiting < WAITING {
            self.waiting.push_back(all);
        }
        self.end_some();
    }

    /// Tells whether there are connections whose turn has not come.
    pub(crate) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn end_some(&mut self) {
        // Other stacks have their turn before the rest of this one's.
        let Some(mut all) = self.waiting.pop_front() else { return };
        let rest = all.split_off(all.len().min(ASKED_AT_ONCE));
        if !rest.is_empty() {
            self.waiting.push_back(rest);
        }
        for (at, some) in all.chunks(ANSWERED_AT_ONCE).enumerate() {
            if at > 0 {
                self.hear();
            }
            self.end_all(some);
        }
    }

    fn end_all(&mut self, all: &[Left]) {
        all.iter().for_each(|left| self.probe(left));
        for left in all {
            if !self.is_in_the_way(left.ends) {
                continue;
            }
            if self.instead.is_none() {
                self.instead = InStead::open(&self.closing).ok();
            }
            let Some(instead) = &mut self.instead else { return };
            instead.expect(left);
            self.probe(left);
        }
    }

    /// Returns a descriptor that is readable when [`Prober::go_on`] has something to do.
    pub(crate) fn hears(&self) -> Option<BorrowedFd<'_>> {
        self.instead.as_ref().map(|instead| instead.as_fd())
    }

    /// Returns how long peers are waited for at most; zero if others have their turn.
    pub(crate) fn rests(&self) -> Option<Duration> {
        if self.has_more() {
            return Some(Duration::ZERO);
        }
        self.instead.as_ref().map(InStead::rests)
    }

    /// Resets peers that have said their numbers by now, and probes the next.
    pub(crate) fn go_on(&mut self) {
        self.hear();
        self.end_some();
    }

    fn hear(&mut self) {
        let Some(mut instead) = self.instead.take() else { return };
        for said in instead.hear() {
            let (local, remote) = said.left.ends;
            // A new connection may have these ends by now.
            if !self.is_in_the_way(said.left.ends) {
                continue;
            }
            if let Some(packet) = bare(local, remote, said.seq, Flags::RST) {
                self.send(&packet, &said.left);
            }
        }
        if !instead.rests().is_zero() {
            self.instead = Some(instead);
        }
    }

    /// Resets all peers that say their numbers, and waits for them.
    pub(crate) fn settle(&mut self) {
        while self.has_more() {
            self.go_on();
        }
        while let (Some(heard), Some(rests)) = (self.hears(), self.rests()) {
            let rests = Timespec::try_from(rests).unwrap_or_default();
            // If poll(2) fails, this still ends when the time is up.
            let _ = poll(&mut [PollFd::from_borrowed_fd(heard, PollFlags::IN)], Some(&rests));
            self.go_on();
        }
    }

    /// Tells whether the kernel has a connection with these ends that is over, and answers for it.
    fn is_in_the_way(&mut self, (local, remote): Ends) -> bool {
        let name = Name::of(local, remote);
        self.kernel.is_over(&name).unwrap_or(false)
    }

    /// Makes the other end of a connection acknowledge.
    fn probe(&self, left: &Left) {
        let mut chance = [0; 4];
        // Any number will do, as the two that are sent are half of the space apart.
        let _ = getrandom(&mut chance[..], GetRandomFlags::empty());
        let first = u32::from_ne_bytes(chance);
        for seq in [first, first.wrapping_add(HALF_OF_SPACE)] {
            // The acknowledgment number does not matter.
            let (local, remote) = left.ends;
            if let Some(packet) = bare(local, remote, SeqNumber(seq), FIN_ACK) {
                self.send(&packet, left);
            }
        }
    }

    /// Sends a packet. If that fails, the peer is left to its own timers, as without us.
    fn send(&self, packet: &[u8], left: &Left) {
        let _ = match (left.ends.1, &self.v6) {
            (SocketAddr::V4(to), _) => {
                let to = SocketAddrV4::new(*to.ip(), 0);
                sendto(&self.v4, packet, SendFlags::empty(), &to)
            }
            (SocketAddr::V6(to), Some(v6)) => {
                let scope = if to.ip().is_unicast_link_local() { left.device } else { 0 };
                let to = SocketAddrV6::new(*to.ip(), 0, 0, scope);
                sendto(v6, packet, SendFlags::empty(), &to)
            }
            (SocketAddr::V6(_), None) => return,
        };
    }
}

/// Makes a packet without data and with these flags. None if the ends are of two versions of IP.
fn bare(local: SocketAddr, remote: SocketAddr, seq: SeqNumber, flags: Flags) -> Option<Vec<u8>> {
    let fields = Fields {
        source_port: local.port(),
        destination_port: remote.port(),
        seq,
        ack: SeqNumber(0),
        flags,
        window: 0,
    };
    let bytes = tcp::HEADER_BYTES as u16;
    let (mut packet, mut sum) = (vec![0; ipv6::HEADER_BYTES + tcp::HEADER_BYTES], Sum::default());
    let header_bytes = match (local.ip(), remote.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            packet.truncate(ipv4::HEADER_BYTES + tcp::HEADER_BYTES);
            let total_bytes = ipv4::HEADER_BYTES as u16 + bytes;
            ipv4::Header::whole(Protocol::TCP, source, destination, total_bytes).emit(&mut packet);
            sum.add_pseudo_v4(source, destination, Protocol::TCP.0, bytes.into());
            ipv4::HEADER_BYTES
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_bytes: bytes,
                next_header: Protocol::TCP,
                hop_limit: HOPS,
                source,
                destination,
            };
            header.emit(&mut packet);
            sum.add_pseudo_v6(source, destination, Protocol::TCP.0, bytes.into());
            ipv6::HEADER_BYTES
        }
        _ => return None,
    };
    let segment = &mut packet[header_bytes..];
    fields.emit_summed(&OptionSet::default(), segment, &mut sum);
    segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
    Some(packet)
}

#[cfg(test)]
mod tests {
    use uncork_wire::tcp::Header;

    use super::*;

    #[test]
    fn what_leaves_takes_up_sequence_space_and_has_a_good_checksum() {
        let end = |text: &str| text.parse::<SocketAddr>().unwrap();
        let packet = bare(end("10.0.0.1:80"), end("10.0.0.2:4711"), SeqNumber(7), FIN_ACK).unwrap();
        let (ip, segment) = ipv4::Header::read(&packet).unwrap();
        let mut sum = Sum::default();
        sum.add_pseudo_v4(ip.source, ip.destination, 6, 20);
        sum.add(segment);
        assert!(sum.is_good());
        let header = Header::read(segment, segment.len()).unwrap();
        assert_eq!((header.source_port(), header.destination_port()), (80, 4711));
        assert_eq!((header.seq(), header.flags()), (SeqNumber(7), FIN_ACK));
        let packet =
            bare(end("[fd00::1]:80"), end("[fd00::2]:4711"), SeqNumber(7), FIN_ACK).unwrap();
        let (ip, segment) = ipv6::Header::read(&packet).unwrap();
        let mut sum = Sum::default();
        sum.add_pseudo_v6(ip.source, ip.destination, 6, 20);
        sum.add(segment);
        assert!(sum.is_good());
        assert_eq!(bare(end("10.0.0.1:80"), end("[fd00::2]:1"), SeqNumber(7), FIN_ACK), None);
    }
}
