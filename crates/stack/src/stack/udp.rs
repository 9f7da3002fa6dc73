//! UDP sockets as the user sees them, and input and output of datagrams.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uncork_packet::{Instant, Medium, Received, Transmit, Trust};
use uncork_wire::{Malformed, Protocol, Unread, udp};

use super::{News, Stack};
use crate::demux::Tuple;
use crate::event::Ready;
use crate::frame::{Link, Packet};
use crate::interface::arrival::Incoming;
use crate::interface::reply::Reply;
use crate::udp::emit::{emit, most_bytes};
use crate::udp::{Datagram, UdpError, UdpId, UdpReceived};

/// Marks the place of a UDP socket among the waiters for a neighbour.
pub(super) const WAITS: u32 = 1 << 31;

/// ICMP errors per second, and in a burst (icmp_msgs_per_sec, icmp_msgs_burst; RFC 4443 §2.4 f
/// requires a limit, and a port scanner gets no more than that).
const ERRORS_A_SECOND: u32 = 1000;
const ERRORS_AT_ONCE: u32 = 50;

/// Octets of a packet that an error quotes: as many as always reach the sender (RFC 1812 §4.3.2.3, RFC 4443
/// §3.1), less the headers in front.
const QUOTED_BYTES: (usize, usize) = (576 - 28, 1280 - 48);

/// Token bucket for ICMP errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    left: u32,
    since: Instant,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: ERRORS_AT_ONCE, since: Instant::ZERO }
    }
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        let one = Duration::from_secs(1) / ERRORS_A_SECOND;
        let gained = now.since(self.since).as_nanos() / one.as_nanos();
        let gained = u32::try_from(gained).unwrap_or(u32::MAX).min(ERRORS_AT_ONCE);
        if gained > 0 {
            self.left = (self.left + gained).min(ERRORS_AT_ONCE);
            self.since = now;
        }
        let some = self.left > 0;
        self.left -= u32::from(some);
        some
    }
}

impl Stack {
    /// Makes a UDP socket at this address and port: at all addresses if the address is unspecified, at a
    /// free port if the port is 0.
    ///
    /// # Errors
    ///
    /// [`UdpError::NotOurs`], [`UdpError::AddressInUse`].
    pub fn udp_bind(&mut self, local: SocketAddr) -> Result<UdpId, UdpError> {
        if !local.ip().is_unspecified() && !self.interface.is_ours(local.ip()) {
            return Err(UdpError::NotOurs);
        }
        if local.port() != 0 {
            return self.udp.add(local);
        }
        let (first, last) = self.shared.config.ports;
        let count = u32::from(last.saturating_sub(first)) + 1;
        for _ in 0..count {
            // RFC 6056 §3.3.1: must not be predictable from the last one.
            let turn = self.next_port;
            self.next_port = turn.wrapping_add(1);
            let at = self.shared.secrets.udp_port(turn) % count;
            let port = u16::try_from(u32::from(first) + at).unwrap_or(first);
            let local = SocketAddr::new(local.ip(), port);
            if !self.udp.is_taken(local) {
                return self.udp.add(local);
            }
        }
        Err(UdpError::AddressInUse)
    }

    /// Connects a socket to a peer, so that it exchanges datagrams only with that one, and learns of port unreachable
    /// errors (RFC 1122 §4.1.3.3); or disconnects it.
    ///
    /// # Errors
    ///
    /// [`UdpError::NoSocket`], [`UdpError::NoRoute`].
    pub fn udp_connect(
        &mut self,
        socket: UdpId,
        remote: Option<SocketAddr>,
    ) -> Result<(), UdpError> {
        let local = match remote {
            Some(remote) => self.udp_source(socket, remote.ip())?,
            None => self.udp.get(socket)?.bound,
        };
        let socket = self.udp.get(socket)?;
        socket.local.set_ip(local);
        socket.remote = remote;
        socket.refused = false;
        Ok(())
    }

    /// Returns both ends of a socket.
    ///
    /// # Errors
    ///
    /// [`UdpError::NoSocket`].
    pub fn udp_ends(
        &mut self,
        socket: UdpId,
    ) -> Result<(SocketAddr, Option<SocketAddr>), UdpError> {
        self.udp.get(socket).map(|socket| (socket.local, socket.remote))
    }

    /// Returns the source address of a socket's datagrams to a peer.
    fn udp_source(&mut self, socket: UdpId, peer: IpAddr) -> Result<IpAddr, UdpError> {
        let bound = self.udp.get(socket)?.bound;
        if !self.interface.reaches(peer) {
            return Err(UdpError::NoRoute);
        }
        let source = if bound.is_unspecified() {
            self.interface.source_for(peer).ok_or(UdpError::NoRoute)?
        } else {
            bound
        };
        if source.is_ipv4() == peer.is_ipv4() { Ok(source) } else { Err(UdpError::NoRoute) }
    }

    /// Sends a datagram, to the connected peer if no destination is given.
    ///
    /// # Errors
    ///
    /// [`UdpError`]; [`UdpError::Refused`] is about an earlier datagram, and nothing was sent.
    pub fn udp_send(
        &mut self,
        socket: UdpId,
        to: Option<SocketAddr>,
        bytes: &[u8],
    ) -> Result<(), UdpError> {
        let one = self.udp.get(socket)?;
        if let Some(error) = one.take_error() {
            return Err(error);
        }
        let peer = to.or(one.remote).ok_or(UdpError::NoDestination)?;
        let ours = self.udp_source(socket, peer.ip())?;
        if bytes.len() > most_bytes(self.interface.device.mtu, peer.is_ipv6()) {
            return Err(UdpError::TooLong);
        }
        let limit = self.shared.config.udp_send_bytes;
        let one = self.udp.get(socket)?;
        if !one.sending.has_room(bytes.len(), limit) {
            one.wants_room = true;
            return Err(UdpError::WouldBlock);
        }
        let bytes = self.udp.copy(bytes);
        self.udp.get(socket)?.sending.push(Datagram { ours, peer, bytes });
        self.udp.make_ready(socket.place);
        Ok(())
    }

    /// Receives the next datagram into `into`; what does not fit is discarded.
    ///
    /// # Errors
    ///
    /// [`UdpError::WouldBlock`] if there is none, [`UdpError::Refused`], [`UdpError::NoSocket`].
    pub fn udp_receive(&mut self, socket: UdpId, into: &mut [u8]) -> Result<UdpReceived, UdpError> {
        let one = self.udp.get(socket)?;
        if let Some(error) = one.take_error() {
            return Err(error);
        }
        let datagram = one.received.take(0).ok_or(UdpError::WouldBlock)?;
        let bytes = datagram.bytes.len().min(into.len());
        into[..bytes].copy_from_slice(&datagram.bytes[..bytes]);
        let received = UdpReceived {
            bytes,
            whole_bytes: datagram.bytes.len(),
            from: datagram.peer,
            to: datagram.ours,
        };
        self.udp.give(datagram.bytes);
        Ok(received)
    }

    /// Closes a socket; unsent datagrams are discarded.
    pub fn udp_close(&mut self, socket: UdpId) {
        self.udp.remove(socket);
    }

    /// Handles a received datagram, or several that the device has joined.
    pub(super) fn arrive_udp(
        &mut self,
        now: Instant,
        frame: &Received<'_>,
        incoming: &Incoming<'_>,
    ) -> Result<(), Unread> {
        let (header, data) = udp::Header::read(incoming.payload)?;
        let bytes = &incoming.payload[..usize::from(header.total_bytes)];
        let summed = header.checksum != 0;
        // IPv6 requires a checksum (RFC 8200 §8.1).
        if frame.trust == Trust::Unknown && (summed || incoming.source.is_ipv6()) {
            let packet = Packet::new(incoming.source, incoming.destination, Protocol::UDP);
            let mut sum = packet.pseudo(bytes.len());
            sum.add(bytes);
            if !summed || !sum.is_good() {
                self.shared.counters.udp_errors += 1;
                return Err(Unread::Malformed(Malformed::Checksum));
            }
        }
        let ours = SocketAddr::new(incoming.destination.ip(), header.destination_port);
        let peer = SocketAddr::new(incoming.source.ip(), header.source_port);
        let each = frame.segment_bytes.map_or(usize::MAX, usize::from).max(1);
        let limit = self.shared.config.udp_receive_bytes;
        let mut rest = data;
        loop {
            let (first, behind) = rest.split_at(rest.len().min(each));
            rest = behind;
            let Some(socket) = self.udp.find(ours, peer) else {
                self.refuse(now, incoming);
                return Ok(());
            };
            let (id, room) = (socket.id, socket.received.has_room(first.len(), limit));
            if room {
                let bytes = self.udp.copy(first);
                let datagram = Datagram { ours: ours.ip(), peer, bytes };
                if let Ok(socket) = self.udp.get(id) {
                    socket.received.push(datagram);
                }
                self.tell_udp(id, Ready::READABLE);
                self.shared.counters.udp_in += 1;
            } else {
                self.shared.counters.udp_receive_drops += 1;
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Answers a datagram to a port without a socket (RFC 1122 §4.1.3.1), unless it was sent to a group (§3.2.2).
    fn refuse(&mut self, now: Instant, incoming: &Incoming<'_>) {
        self.shared.counters.udp_no_ports += 1;
        // Where addresses are shared the port may be the kernel's, which answers for it.
        if self.interface.shared
            || incoming.to_many
            || incoming.source.ip().is_unspecified()
            || !self.allowance.take(now)
        {
            return;
        }
        let most = if !incoming.source.is_ipv6() { QUOTED_BYTES.0 } else { QUOTED_BYTES.1 };
        let mut body = self.interface.replies.body();
        body.extend_from_slice(&incoming.packet[..incoming.packet.len().min(most)]);
        let reply = Reply::PortUnreachable {
            link: incoming.back.link(self.interface.mac),
            source: incoming.destination.ip(),
            destination: incoming.source.ip(),
            body,
        };
        if !self.interface.replies.push(reply) {
            self.shared.counters.replies_dropped += 1;
        }
    }

    /// Reports a port unreachable error to the socket that is connected to that peer.
    pub(super) fn udp_refused(&mut self, ours: SocketAddr, peer: SocketAddr) {
        let Some(socket) = self.udp.find(ours, peer) else { return };
        if socket.remote == Some(peer) {
            socket.refused = true;
            let id = socket.id;
            self.tell_udp(id, Ready::ERROR | Ready::READABLE | Ready::WRITABLE);
        }
    }

    fn tell_udp(&mut self, id: UdpId, ready: Ready) {
        let Ok(socket) = self.udp.get(id) else { return };
        socket.news |= ready;
        if !socket.in_news {
            socket.in_news = true;
            self.news.push_back(News::Udp(id.place));
        }
    }

    /// Resumes a socket after a neighbour was resolved; datagrams to unreachable neighbours are dropped.
    pub(super) fn resume_udp(&mut self, place: u32) {
        let Some(socket) = self.udp.at_mut(place) else { return };
        let mut index = 0;
        while let Some(datagram) = socket.sending.datagrams.get(index) {
            let id = self.interface.neighbour_for(datagram.peer.ip());
            if id.is_some_and(|id| self.interface.neighbours.is_hopeless(id)) {
                socket.sending.take(index);
            } else {
                index += 1;
            }
        }
        self.udp.make_ready(place);
    }

    /// Writes the next datagram into `slot`, if one can be sent.
    pub(super) fn transmit_udp(&mut self, now: Instant, slot: &mut [u8]) -> Option<Transmit> {
        while let Some(place) = self.udp.ready.pop_front() {
            let Some(socket) = self.udp.at_mut(place) else { continue };
            socket.in_ready = false;
            let count = socket.sending.datagrams.len();
            let link =
                (0..count).find_map(|index| Some((index, self.udp_link(place, index, now)?)));
            let Some((index, link)) = link else { continue };
            let Some(socket) = self.udp.at_mut(place) else { continue };
            let (id, port) = (socket.id, socket.local.port());
            let Some(datagram) = socket.sending.take(index) else { continue };
            let limit = self.shared.config.udp_send_bytes;
            let writable = socket.wants_room && socket.sending.is_half_empty(limit);
            socket.wants_room &= !writable;
            let tuple = Tuple::new(SocketAddr::new(datagram.ours, port), datagram.peer);
            let label = self.shared.secrets.flow_label(&tuple);
            let transmit = emit(&datagram, (port, label), slot, link, &self.interface.device);
            self.udp.give(datagram.bytes);
            self.udp.make_ready(place);
            if writable {
                self.tell_udp(id, Ready::WRITABLE);
            }
            self.shared.counters.udp_out += 1;
            return Some(transmit);
        }
        None
    }

    /// Returns the link-layer header of a datagram; if the neighbour is not known yet the socket waits for it.
    fn udp_link(&mut self, place: u32, index: usize, now: Instant) -> Option<Link> {
        let interface = &mut self.interface;
        if interface.device.medium == Medium::Ip {
            return Some(Link::Bare);
        }
        let peer = self.udp.at_mut(place)?.sending.datagrams.get(index)?.peer;
        let id = interface.neighbour_for(peer.ip())?;
        let Some(destination) = interface.neighbours.mac(id, now) else {
            interface.neighbours.wait(id, place | WAITS);
            return None;
        };
        Some(Link::Ethernet { source: interface.mac, destination })
    }
}
