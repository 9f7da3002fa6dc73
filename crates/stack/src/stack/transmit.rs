//! Output of the next frame: replies first, then connections that waited for the device, then the others in turn.

use uncork_packet::{Instant, Medium, Transmit};
use uncork_wire::ethernet::{self, EtherType};

use super::Stack;
use crate::connection::Blocked;
use crate::frame::Link;

impl Stack {
    /// Writes the next frame into `slot` and describes it; none if there is nothing to send.
    ///
    /// The slot must have room for a packet of the device's MTU and its link-layer header; a
    /// longer slot, up to the device's longest train, is made use of.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, slot: &mut [u8]) -> Option<Transmit> {
        self.finish_joining();
        if !self.ready.is_empty()
            && let Some(transmit) = self.transmit_plain(now, slot)
        {
            return Some(transmit);
        }
        if self.is_silent() { None } else { self.transmit_next(now, slot) }
    }

    /// Returns whether there may be something to send. If not, no slot is needed.
    #[must_use]
    #[inline]
    pub fn has_output(&self) -> bool {
        self.joined.is_some() || !self.is_silent()
    }

    /// Kept apart from the check whether there is anything to send, which runs in every turn.
    #[inline(never)]
    fn transmit_next(&mut self, now: Instant, slot: &mut [u8]) -> Option<Transmit> {
        let mut transmit = self.transmit_other(now, slot);
        if transmit.is_none() {
            transmit = self.transmit_data(now, slot);
        }
        if transmit.is_none() {
            // The connections may have requested a neighbour.
            transmit = self.interface.transmit(slot);
        }
        self.shared.counters.frames_out += u64::from(transmit.is_some());
        transmit
    }

    /// Returns whether there is nothing to send.
    fn is_silent(&self) -> bool {
        self.ready.is_empty() && self.deferred.is_empty() && self.is_silent_but_for_tcp()
    }

    fn is_silent_but_for_tcp(&self) -> bool {
        self.udp.ready.is_empty() && self.interface.is_silent()
    }

    /// Takes the fast path out, for the segments that conversations are made of (`connection/send/plain.rs`). As in
    /// [`Stack::arrive_predicted`] all checks come first and change nothing.
    #[inline(never)]
    fn transmit_plain(&mut self, now: Instant, slot: &mut [u8]) -> Option<Transmit> {
        if !self.deferred.is_empty() || !self.is_silent_but_for_tcp() {
            return None;
        }
        let place = self.ready.front()?;
        let connection = self.connections.get_quietly(place)?;
        let interface = &self.interface;
        let link_bytes = match interface.device.medium {
            Medium::Ip => 0,
            Medium::Ethernet => {
                let destination = interface.neighbours.fresh(connection.path.neighbour?, now)?;
                let ethertype = EtherType::IPV4;
                ethernet::Header { destination, source: interface.mac, ethertype }.emit(slot);
                ethernet::HEADER_BYTES
            }
        };
        let cx = self.shared.at(now);
        let room = u32::try_from(slot.len() - link_bytes).unwrap_or(u32::MAX);
        let bytes = connection.decide_plain(cx, room)?;
        connection.transmit_plain(cx, bytes, link_bytes, slot);
        self.demux.remember(&connection.tuple, place);
        connection.user.in_ready = false;
        debug_assert!(!connection.has_output());
        let transmit = connection.plain_transmit(cx, bytes, link_bytes);
        cx.counters.frames_out += 1;
        let early = connection.timers.take_early();
        self.ready.pop_front();
        self.enter_timers(place, early);
        Some(transmit)
    }

    fn transmit_other(&mut self, now: Instant, slot: &mut [u8]) -> Option<Transmit> {
        if self.is_silent_but_for_tcp() {
            return None;
        }
        self.interface.transmit(slot).or_else(|| self.transmit_udp(now, slot))
    }

    fn transmit_data(&mut self, now: Instant, slot: &mut [u8]) -> Option<Transmit> {
        if !self.deferred.is_empty() {
            self.ready.append(&mut self.deferred);
        }
        while let Some(place) = self.ready.front() {
            let Some(link_bytes) = self.begin_frame(place, now, slot) else {
                self.leave_queue();
                continue;
            };
            let Some(connection) = self.connections.get_quietly(place) else {
                self.ready.pop_front();
                continue;
            };
            let cx = self.shared.at(now);
            connection.user.goes_on |= !connection.is_in_device();
            let outcome = connection.transmit(cx, link_bytes, slot);
            match outcome {
                Ok(transmit) => {
                    // In most conversations the peer answers: the next segment will be for this connection.
                    self.demux.remember(&connection.tuple, place);
                    // Round robin: every connection gets a frame before any gets a second one.
                    self.ready.pop_front();
                    if connection.has_output() {
                        self.ready.push_back(place);
                    } else {
                        connection.note_blocked(cx, Blocked::Application);
                        connection.user.in_ready = false;
                        connection.user.goes_on = false;
                    }
                    self.settle_sent(place);
                    return Some(transmit);
                }
                Err(blocked) => {
                    let waited = connection.device.is_waiting();
                    connection.note_blocked(cx, blocked);
                    self.waiting += u32::from(!waited && connection.device.is_waiting());
                    connection.user.held_back |= blocked == Blocked::Held;
                    let early = connection.timers.take_early();
                    self.enter_timers(place, early);
                    self.leave_queue();
                }
            }
        }
        None
    }

    /// Removes the connection at the front of the queue, which has nothing to send for now.
    fn leave_queue(&mut self) {
        if let Some(connection) =
            self.ready.pop_front().and_then(|place| self.connections.get_quietly(place))
        {
            connection.user.in_ready = false;
            connection.user.goes_on = false;
        }
    }

    /// Writes the link-layer header of a connection's packets, and returns its length. If the neighbour is
    /// not known yet, the connection waits for it.
    fn begin_frame(&mut self, place: u32, now: Instant, slot: &mut [u8]) -> Option<usize> {
        let link = self.link_of(place, now)?;
        if link == Link::Bare {
            return Some(0);
        }
        let ipv6 = self.connections.get_quietly(place)?.tuple.is_ipv6();
        Some(link.emit(slot, if ipv6 { EtherType::IPV6 } else { EtherType::IPV4 }))
    }

    /// Returns the link-layer header for a connection's packets.
    pub(super) fn link_of(&mut self, place: u32, now: Instant) -> Option<Link> {
        let interface = &mut self.interface;
        if interface.device.medium == Medium::Ip {
            return Some(Link::Bare);
        }
        let connection = self.connections.get_quietly(place)?;
        let known = connection.path.neighbour.filter(|&id| interface.neighbours.is_current(id));
        let id = known.or_else(|| interface.neighbour_for(connection.tuple.remote().ip()))?;
        connection.path.neighbour = Some(id);
        let Some(destination) = interface.neighbours.mac(id, now) else {
            interface.neighbours.wait(id, place);
            return None;
        };
        Some(Link::Ethernet { source: interface.mac, destination })
    }

    /// Lets the connections go on that waited for a neighbour.
    pub(super) fn resume(&mut self, places: Vec<u32>) {
        for place in places {
            if place & super::udp::WAITS != 0 {
                self.resume_udp(place & !super::udp::WAITS);
                continue;
            }
            self.settle(place);
        }
    }
}
