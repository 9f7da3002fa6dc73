//! The next frame: answers first, then those that have waited for the device, then the others in turn.

use uncork_packet::{Instant, Medium, Transmit};

use super::Stack;
use crate::connection::Blocked;
use crate::frame::Link;

impl Stack {
    /// Writes the next frame into `slot` and says what it is, or that there is none.
    ///
    /// The slot must have room for a packet of the device's MTU and what stands in front of it; a
    /// longer one, up to the device's longest train, is made use of.
    pub fn poll_transmit(&mut self, now: Instant, slot: &mut [u8]) -> Option<Transmit> {
        self.finish_joining();
        if self.is_silent() {
            return None;
        }
        let transmit = self
            .interface
            .transmit(slot)
            .or_else(|| self.transmit_udp(now, slot))
            .or_else(|| self.transmit_data(now, slot))
            // They may have asked for a neighbour.
            .or_else(|| self.interface.transmit(slot));
        self.shared.counters.frames_out += u64::from(transmit.is_some());
        transmit
    }

    /// Whether nobody has anything to send.
    fn is_silent(&self) -> bool {
        self.ready.is_empty()
            && self.deferred.is_empty()
            && self.udp.ready.is_empty()
            && self.interface.is_silent()
    }

    fn transmit_data(&mut self, now: Instant, slot: &mut [u8]) -> Option<Transmit> {
        if !self.deferred.is_empty() {
            self.ready.append(&mut self.deferred);
        }
        while let Some(&place) = self.ready.front() {
            let Some(link) = self.link(place, now) else {
                self.leave_queue();
                continue;
            };
            let Some(connection) = self.connections.get_mut(place) else {
                self.ready.pop_front();
                continue;
            };
            let mut cx = self.shared.context(&self.interface.device, now);
            let outcome = connection.transmit(&mut cx, link, slot);
            match outcome {
                Ok(transmit) => {
                    // Everybody gets a frame before anybody gets a second one.
                    self.ready.pop_front();
                    if connection.has_output() {
                        self.ready.push_back(place);
                    } else {
                        connection.note_blocked(&mut cx, Blocked::Application);
                        connection.user.in_ready = false;
                    }
                    self.settle_sent(place);
                    return Some(transmit);
                }
                Err(blocked) => {
                    let waited = connection.device.is_waiting();
                    connection.note_blocked(&mut cx, blocked);
                    self.waiting += u32::from(!waited && connection.device.is_waiting());
                    connection.user.held_back |= blocked == Blocked::Held;
                    self.leave_queue();
                    let earliest = self.connections.get(place).map(|one| one.timers.earliest());
                    if let Some(earliest) = earliest {
                        self.wheel.ensure(place, earliest);
                    }
                }
            }
        }
        None
    }

    /// The one at the front has nothing to send for now.
    fn leave_queue(&mut self) {
        if let Some(connection) =
            self.ready.pop_front().and_then(|place| self.connections.get_mut(place))
        {
            connection.user.in_ready = false;
        }
    }

    /// What to put in front of the packets of a connection. If that is not known yet, the connection
    /// waits for the answer.
    fn link(&mut self, place: u32, now: Instant) -> Option<Link> {
        let interface = &mut self.interface;
        if interface.device.medium == Medium::Ip {
            return Some(Link::Bare);
        }
        let connection = self.connections.get_mut(place)?;
        let known = connection.path.neighbour.filter(|&id| interface.neighbours.is_current(id));
        let id = known.or_else(|| interface.neighbour_for(connection.tuple.remote().ip()))?;
        connection.path.neighbour = Some(id);
        let Some(destination) = interface.neighbours.mac(id, now) else {
            interface.neighbours.wait(id, place);
            return None;
        };
        Some(Link::Ethernet { source: interface.mac, destination })
    }

    /// A neighbour was found: who has waited for him goes on.
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
