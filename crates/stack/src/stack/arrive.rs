//! Input processing of a frame, up to its connection.

use std::net::{IpAddr, SocketAddr};

use uncork_packet::{Instant, Received, Trust};
use uncork_wire::tcp::{Fields, Flags, Header, OptionSet};
use uncork_wire::{Malformed, Protocol, SeqNumber, Unread, ipv4, ipv6};

use super::Stack;
use super::join::{Deferral, may_go_on};
use crate::connection::arrival::{Outcome, Segment};
use crate::connection::receive::window::shift_for;
use crate::connection::{Cause, ConnectionError, Offer, State, receive_buffer_bytes};
use crate::demux::Tuple;
use crate::event::Change;
use crate::frame::Packet;
use crate::interface::Interface;
use crate::interface::arrival::{Complaint, Frame, Incoming};
use crate::interface::reply::Reply;
use crate::listener::{Room, cookie};

impl Stack {
    #[inline(never)]
    pub(super) fn arrive(&mut self, now: Instant, frame: &Received<'_>) -> Result<(), Unread> {
        match self.interface.arrive(frame.bytes, now)? {
            Frame::Tcp(incoming) => self.arrive_tcp(now, frame, &incoming)?,
            Frame::Udp(incoming) => self.arrive_udp(now, frame, &incoming)?,
            Frame::Neighbour(waiting) => self.resume(waiting),
            Frame::Complaint(complaint, about) => self.arrive_complaint(now, complaint, about)?,
            Frame::Done => {}
            Frame::NotForUs => self.shared.counters.not_for_us += 1,
        }
        Ok(())
    }

    fn arrive_tcp(
        &mut self,
        now: Instant,
        frame: &Received<'_>,
        incoming: &Incoming<'_>,
    ) -> Result<(), Unread> {
        // A connection has two ends: group and broadcast frames are dropped (tcp_v4_rcv, PACKET_HOST; RFC 1122 §4.2.3.10).
        if incoming.to_many {
            self.shared.counters.not_for_us += 1;
            return Ok(());
        }
        let bytes = incoming.payload;
        if frame.trust == Trust::Unknown {
            let packet = Packet::new(incoming.source, incoming.destination, Protocol::TCP);
            let mut sum = packet.pseudo(bytes.len());
            sum.add(bytes);
            if !sum.is_good() {
                return Err(Unread::Malformed(Malformed::Checksum));
            }
        }
        let header = Header::read(bytes, bytes.len())?;
        let options = header.option_set();
        let segment = Segment {
            seq: header.seq(),
            ack: header.ack(),
            flags: header.flags(),
            window: header.window(),
            options: &options,
            data: bytes.get(header.header_bytes()..).unwrap_or_default(),
            segment_bytes: frame.segment_bytes,
            ecn: incoming.ecn,
        };
        self.shared.counters.segments_in += u64::from(segment.segments());
        let tuple = Tuple {
            local_address: incoming.destination,
            remote_address: incoming.source,
            local_port: header.destination_port(),
            remote_port: header.source_port(),
        };
        if self.join(now, &tuple, &segment) {
            return Ok(());
        }
        match self.demux.latest(&tuple).or_else(|| self.look_up(&tuple)) {
            Some(place) => self.arrive_at(now, place, &segment, incoming),
            None => self.arrive_nowhere(now, &tuple, &segment, incoming),
        }
        Ok(())
    }

    /// Finds a connection, and remembers its place for the next segment.
    pub(super) fn look_up(&mut self, tuple: &Tuple) -> Option<u32> {
        let place = self.find(tuple)?;
        self.connections.get(place)?.fetch();
        self.demux.remember(tuple, place);
        Some(place)
    }

    pub(super) fn find(&self, tuple: &Tuple) -> Option<u32> {
        let hash = self.hash_of(tuple);
        let connections = &self.connections;
        self.demux.find(hash, |place| connections.get(place).is_some_and(|one| one.tuple == *tuple))
    }

    fn arrive_at(
        &mut self,
        now: Instant,
        place: u32,
        segment: &Segment<'_>,
        incoming: &Incoming<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let (before, state) = (connection.sender.una, connection.state);
        let joins = self.shared.config.join_segments && may_go_on(segment);
        let cx = self.shared.at(now);
        cx.deferral = if joins { Deferral::Allowed } else { Deferral::Never };
        let outcome = connection.handle_segment(cx, segment);
        let (id, deferral) = (connection.id, cx.deferral);
        if connection.sender.una != before
            && let Some(neighbour) = connection.path.neighbour
        {
            self.interface.neighbours.confirm(neighbour, now);
        }
        if self.interface.shared && connection.state == State::TimeWait && state != State::TimeWait
        {
            self.changes.push_back(Change::Over { place });
        }
        let tuple = connection.tuple;
        match outcome {
            Outcome::Done => {}
            Outcome::Reset => self.reset(&tuple, segment, incoming),
            Outcome::Restart => return self.restart(now, place, segment, incoming),
        }
        self.settle(place);
        if let Deferral::Done(each) = deferral {
            self.begin_joining(now, id, segment, each);
        }
    }

    /// Handles a SYN that can only begin a new connection in place of one in TIME-WAIT. Without a listener there is no new one,
    /// and the old one stays (tcp_v4_rcv, TCP_TW_SYN).
    fn restart(
        &mut self,
        now: Instant,
        place: u32,
        segment: &Segment<'_>,
        incoming: &Incoming<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let (tuple, last) = (connection.tuple, connection.sender.nxt);
        let hash = tuple.hash(self.shared.secrets.table);
        let cx = self.shared.at(now);
        if self.listeners.find(tuple.local(), hash).is_none() {
            connection.challenge(cx);
            return self.settle(place);
        }
        connection.finish(Cause::TimeWaitOver, None, cx);
        self.settle(place);
        self.arrive_nowhere(now, &tuple, segment, incoming);
        let new = self.find(&tuple).and_then(|place| self.connections.get_mut(place));
        if let Some(connection) = new {
            connection.begin_behind(last);
        }
    }

    /// Handles a segment for which there is no connection (RFC 9293 §3.10.7.1 and §3.10.7.2).
    fn arrive_nowhere(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        incoming: &Incoming<'_>,
    ) {
        if segment.flags.has(Flags::RST) {
            return;
        }
        let hash = self.hash_of(tuple);
        let Some(listener) = self.listeners.find(tuple.local(), hash) else {
            self.refuse_segment(now, tuple, segment, incoming);
            return;
        };
        if let Some(ack) = segment.ack {
            let full = listener.is_full_for_proven();
            // Segments in flight to a connection that was given away match the cookie it was made from, but are its new owner's.
            let is_given = self.quiet.has_connection(tuple, now);
            if is_given || !self.accept_cookie(now, tuple, segment, (ack, full), incoming) {
                self.refuse_segment(now, tuple, segment, incoming);
            }
            return;
        }
        // A SYN with FIN is an attempt to evade a filter (RFC 9293 leaves it open; Linux drops it).
        if !segment.flags.has(Flags::SYN) || segment.flags.has(Flags::FIN) {
            return;
        }
        // Where the kernel's filters are in place they keep it away; nothing else checks it.
        if self.interface.shared && Interface::is_martian(tuple.remote_address) {
            return;
        }
        match listener.room() {
            Room::None => self.shared.counters.listen_drops += 1,
            Room::Cookie => {
                let bytes = self.shared.config.receive_buffer_bytes;
                let bytes = receive_buffer_bytes(&listener.options, bytes);
                self.answer_with_cookie(now, tuple, segment, bytes, incoming);
            }
            Room::Free => {
                let id = listener.id;
                let options = listener.options.clone();
                let answer = self.judge_fast_open(now, tuple, segment, id);
                self.assume_way_back(now, incoming);
                let place = self.open_passively(now, tuple, segment, id, &options);
                self.answer_fast(now, place, segment, answer);
            }
        }
    }

    /// Answers a SYN with a cookie, as too many handshakes are under way. The cookie does not encode the announced window,
    /// which is what the connection will have when it begins with the listener's options.
    fn answer_with_cookie(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        (receive_bytes, most_receive_bytes): (u32, u32),
        incoming: &Incoming<'_>,
    ) {
        let offer = Offer::of(&self.shared.config);
        let offered = &offer.of_these(segment.options);
        let default = if tuple.is_ipv6() { 1220 } else { 536 };
        let mss = offered.mss.unwrap_or(default);
        let ecn = offer.has(Offer::ECN) && asks_for_ecn(segment) && offered.timestamps.is_some();
        let stamps = offered.timestamps.map(|(value, _)| {
            let clock = self.shared.secrets.stamp_offset(tuple);
            #[expect(clippy::cast_possible_truncation, reason = "timestamps wrap")]
            let stamp = (now.as_millis() as u32).wrapping_add(clock);
            (cookie::hide_options(stamp, offered, ecn), value)
        });
        let shift = shift_for(most_receive_bytes);
        let options = OptionSet {
            mss: Some(self.announced_segment(tuple)),
            window_scale: offered.window_scale.filter(|_| stamps.is_some()).map(|_| shift),
            sack_permitted: offered.sack_permitted && stamps.is_some(),
            timestamps: stamps,
            ..OptionSet::default()
        };
        let window = receive_bytes.min(u32::from(u16::MAX));
        let fields = Fields {
            source_port: tuple.local_port,
            destination_port: tuple.remote_port,
            seq: cookie::make(&self.shared.secrets, tuple, segment.seq, mss, now),
            ack: segment.seq + 1,
            flags: Flags::SYN.with(Flags::ACK).with(if ecn { Flags::ECE } else { Flags(0) }),
            window: u16::try_from(window).unwrap_or(u16::MAX),
        };
        self.cookie_sent_at.set(now);
        self.quiet.begins_anew(tuple);
        self.shared.counters.cookies_sent += 1;
        self.reply(fields, options, incoming);
    }

    /// Returns whether a valid cookie may still come back.
    pub(super) fn awaits_cookies(&self, now: Instant) -> bool {
        self.cookie_sent_at.get().is_some_and(|at| now.since(at) < cookie::LONGEST_LIFE)
    }

    /// Checks whether an ACK without a connection returns a cookie, and makes the connection. Returns whether it was one.
    fn accept_cookie(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        (ack, full): (SeqNumber, bool),
        incoming: &Incoming<'_>,
    ) -> bool {
        // Where no cookie is outstanding there is none to be guessed (tcp_synq_no_recent_overflow).
        if !self.awaits_cookies(now) || segment.flags.has(Flags::SYN) {
            return false;
        }
        let counters = &mut self.shared.counters;
        let irs = segment.seq - 1;
        let Some(mss) = cookie::check(&self.shared.secrets, tuple, irs, ack - 1, now) else {
            counters.cookies_bad += 1;
            return false;
        };
        if full {
            // There is no room for the connection; the peer will send its data again.
            counters.listen_drops += 1;
            return true;
        }
        counters.cookies_good += 1;
        let stamps = segment.options.timestamps;
        let (mut offered, ecn) = cookie::find_options(stamps.map(|(_, echo)| echo), stamps);
        offered.mss = Some(mss);
        self.assume_way_back(now, incoming);
        self.open_from_cookie(now, tuple, segment, (&offered, ecn), ack - 1);
        true
    }

    /// Answers with a reset that the peer will accept (RFC 9293 §3.10.7.1).
    pub(super) fn reset(&mut self, tuple: &Tuple, segment: &Segment<'_>, incoming: &Incoming<'_>) {
        if segment.flags.has(Flags::RST) {
            return;
        }
        let (seq, ack, flags) = match segment.ack {
            Some(ack) => (ack, SeqNumber(0), Flags::RST),
            None => (SeqNumber(0), segment.end(), Flags::RST.with(Flags::ACK)),
        };
        let fields = Fields {
            source_port: tuple.local_port,
            destination_port: tuple.remote_port,
            seq,
            ack,
            flags,
            window: 0,
        };
        self.shared.counters.resets_out += 1;
        self.reply(fields, OptionSet::default(), incoming);
    }

    fn reply(&mut self, fields: Fields, options: OptionSet, incoming: &Incoming<'_>) {
        let link = incoming.back.link(self.interface.mac);
        let tuple = Tuple {
            local_address: incoming.destination,
            remote_address: incoming.source,
            local_port: fields.source_port,
            remote_port: fields.destination_port,
        };
        let flow_label = self.shared.secrets.flow_label(&tuple);
        let (source, destination) = (incoming.destination.ip(), incoming.source.ip());
        self.say(Reply::Tcp { link, source, destination, flow_label, fields, options });
    }

    /// Queues a segment that belongs to no connection.
    pub(super) fn say(&mut self, reply: Reply) {
        if self.interface.replies.push(reply) {
            self.shared.counters.segments_out += 1;
        } else {
            self.shared.counters.replies_dropped += 1;
        }
    }

    /// Handles an ICMP error about a packet from this host's address, which may be spoofed.
    fn arrive_complaint(
        &mut self,
        now: Instant,
        complaint: Complaint,
        about: &[u8],
    ) -> Result<(), Unread> {
        let Quoted { source, destination, protocol, transport } = quoted(about)?;
        let Some(head) = transport.first_chunk::<8>() else { return Ok(()) };
        let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let local = SocketAddr::new(source, port(0));
        let remote = SocketAddr::new(destination, port(2));
        if protocol == Protocol::UDP {
            let Complaint::Undeliverable(what) = complaint else { return Ok(()) };
            if what.error == ConnectionError::Refused {
                self.udp_refused(local, remote);
            }
            return Ok(());
        }
        let seq = SeqNumber(u32::from_be_bytes([head[4], head[5], head[6], head[7]]));
        let Some(place) = self.find(&Tuple::new(local, remote)) else { return Ok(()) };
        let Some(connection) = self.connections.get_mut(place) else { return Ok(()) };
        connection.hear_complaint(self.shared.at(now), complaint, seq);
        self.settle(place);
        Ok(())
    }
}

/// Returns whether a SYN requests ECN (RFC 3168 §6.1.1: both bits are set).
pub(super) fn asks_for_ecn(syn: &Segment<'_>) -> bool {
    syn.flags.has(Flags::ECE.with(Flags::CWR))
}

/// The packet that an ICMP error quotes.
struct Quoted<'a> {
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    /// The transport header, which may be cut.
    transport: &'a [u8],
}

/// Parses a quoted packet.
fn quoted(packet: &[u8]) -> Result<Quoted<'_>, Unread> {
    let cut = Unread::CutShort;
    let spoken = |protocol: Option<&u8>| {
        let protocol = Protocol(*protocol.ok_or(cut)?);
        let known = matches!(protocol, Protocol::TCP | Protocol::UDP);
        if known { Ok(protocol) } else { Err(Unread::NotTcp) }
    };
    let first = packet.first().ok_or(cut)?;
    if first >> 4 == 4 {
        let header_bytes = usize::from(first & 0x0f) * 4;
        let ends: [u8; 8] = *packet.get(12..).and_then(|rest| rest.first_chunk()).ok_or(cut)?;
        if header_bytes < ipv4::HEADER_BYTES {
            return Err(Unread::NotTcp);
        }
        let [a, b, c, d, e, f, g, h] = ends;
        return Ok(Quoted {
            source: IpAddr::from([a, b, c, d]),
            destination: IpAddr::from([e, f, g, h]),
            protocol: spoken(packet.get(9))?,
            transport: packet.get(header_bytes..).ok_or(cut)?,
        });
    }
    let source: [u8; 16] = *packet.get(8..).and_then(|rest| rest.first_chunk()).ok_or(cut)?;
    let destination: [u8; 16] = *packet.get(24..).and_then(|rest| rest.first_chunk()).ok_or(cut)?;
    Ok(Quoted {
        source: source.into(),
        destination: destination.into(),
        protocol: spoken(packet.get(6))?,
        transport: packet.get(ipv6::HEADER_BYTES..).ok_or(cut)?,
    })
}
