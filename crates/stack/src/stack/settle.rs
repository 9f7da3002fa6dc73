//! After something has happened to a connection: who has to know?

use uncork_packet::Instant;

use super::{News, Stack};
use crate::connection::{Cause, Connection, ConnectionError, Fast, Owed, State};
use crate::event::Change;
use crate::memory::{Queue, Slab};
use crate::timer::{Entries, Entry};

impl Stack {
    /// Enters its timers, queues it if it may send, queues its news, and takes it away if it is gone.
    pub(super) fn settle(&mut self, place: u32) {
        // Whoever has done something to it has disturbed it, if that does.
        let Some(connection) = self.connections.get_quietly(place) else { return };
        if connection.listener.is_none() && connection.state != State::Closed {
            let early = settle_open(connection, place, &mut self.news, &mut self.ready);
            self.enter_timers(place, early);
        } else {
            self.settle_other(place);
        }
    }

    /// The wheel is to come back to it by then.
    #[inline]
    pub(super) fn enter_timers(&mut self, place: u32, early: Option<Instant>) {
        if let Some(deadline) = early {
            self.wheel.ensure(&mut self.connections, place, deadline);
        }
    }

    #[inline(never)]
    pub(super) fn settle_other(&mut self, place: u32) {
        self.settle_with_listener(place);
        let Some(connection) = self.connections.get_mut(place) else { return };
        if !connection.is_gone() {
            let early = settle_open(connection, place, &mut self.news, &mut self.ready);
            self.enter_timers(place, early);
        }
        self.settle_over(place);
    }

    /// One that is over needs its ends no more, nor its place if its user has given back its name.
    fn settle_over(&mut self, place: u32) {
        let Some(connection) = self.connections.get_quietly(place) else { return };
        if connection.is_gone() {
            self.remove(place);
        } else if connection.is_over() {
            self.free_ends(place);
        }
    }

    /// The same after a frame has left: it is where it belongs in the queue, and has no news but that less is unsent
    /// than the user's low water mark says (tcp_check_space, behind what an ACK lets out).
    pub(super) fn settle_sent(&mut self, place: u32) {
        let Some(connection) = self.connections.get_quietly(place) else { return };
        if connection.state == State::Closed {
            return self.settle_over(place);
        }
        let has_mark = connection.options.not_sent_low_water.is_some();
        if has_mark && connection.tell_of_room(&self.shared) {
            return self.settle(place);
        }
        let early = connection.timers.take_early();
        self.enter_timers(place, early);
    }

    /// A connection that came to a listener: is its handshake over, one way or the other?
    #[inline(never)]
    fn settle_with_listener(&mut self, place: u32) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        if connection.listener.is_none() {
            return;
        }
        if connection.fast.has(Fast::CHILD) {
            self.settle_fast_child(place);
            return;
        }
        if connection.state == State::SynReceived || connection.user.attached {
            return;
        }
        let Some(listener) = connection.listener.and_then(|id| self.listeners.get(id)) else {
            return;
        };
        listener.handshakes = listener.handshakes.saturating_sub(1);
        if connection.state == State::Closed {
            connection.listener = None;
            return;
        }
        // From now on the accept queue has a name for it.
        connection.user.attached = true;
        listener.queue(connection.id);
        self.news.push_back(News::Incoming(listener.id));
    }

    #[cold]
    fn remove(&mut self, place: u32) {
        self.free_ends(place);
        self.wheel.cancel(&mut self.connections, place);
        let Some(mut connection) = self.connections.remove(place) else { return };
        self.waiting -= u32::from(connection.device.is_waiting());
        connection.sender.release(&mut self.shared.pool);
        connection.receiver.release(&mut self.shared.pool);
        if self.interface.shared {
            self.changes.push_back(Change::Left { place });
        }
    }

    /// Another connection may have its ends, whoever still has a name for this one (Linux: tcp_done, inet_unhash).
    #[cold]
    fn free_ends(&mut self, place: u32) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        if std::mem::replace(&mut connection.has_no_ends, true) {
            return;
        }
        let hash = connection.tuple.hash(self.shared.secrets.table);
        self.demux.remove(hash, place);
        if self.interface.shared {
            self.changes.push_back(Change::Went { place });
        }
    }

    /// Nobody answers to the addresses that these packets go to.
    pub(super) fn fail_all_unreachable(&mut self, places: Vec<u32>, now: Instant) {
        for place in places {
            if place & super::udp::WAITS != 0 {
                self.resume_udp(place & !super::udp::WAITS);
            } else {
                self.fail_unreachable(place, now);
            }
        }
    }

    /// Nobody answers to the address that this connection's packets go to.
    fn fail_unreachable(&mut self, place: u32, now: Instant) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        match connection.state {
            // All that is left of it is a reset, which is lost with whatever else waits for that address
            // (arp_error_report).
            State::Closed => connection.owed.clear(Owed::RESET),
            // One that is open goes on trying, and its user's patience decides (RFC 1122 §4.2.3.9).
            state if state.is_synchronised() => {
                connection.hear_of_no_neighbour(self.shared.at(now));
            }
            _ => {
                let cx = self.shared.at(now);
                connection.finish(Cause::GiveUp, Some(ConnectionError::Unreachable), cx);
            }
        }
        self.settle(place);
    }
}

/// Of one that has come to no listener, or was accepted, and is not over. When the wheel is to come back, if that
/// is before it would.
#[inline]
pub(super) fn settle_open(
    connection: &mut Connection,
    place: u32,
    news: &mut Queue<News>,
    ready: &mut Queue<u32>,
) -> Option<Instant> {
    let user = &mut connection.user;
    if !user.news.is_empty() && user.attached && !user.in_news {
        user.in_news = true;
        news.push_back(News::Socket(place));
    }
    if !connection.user.in_ready && connection.has_output() {
        connection.user.in_ready = true;
        ready.push_back(place);
    }
    connection.timers.take_early()
}

impl Slab<Connection> {
    /// The connection at a place, to do something with that is not of every conversation.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut Connection> {
        let connection = self.get_quietly(place)?;
        connection.disturb();
        Some(connection)
    }
}

/// The wheel's entries are the connections' own.
impl Entries for Slab<Connection> {
    #[inline]
    fn entry(&mut self, place: u32) -> Option<&mut Entry> {
        self.get_quietly(place).map(|connection| connection.timers.entry())
    }
}

impl Connection {
    /// The same of one that is steady.
    #[inline]
    pub(super) fn has_plain_output(&self) -> bool {
        let has = self.ack.is_demanded() || self.sender.unsent_bytes() > 0;
        debug_assert_eq!(has, self.has_any_output());
        has
    }

    /// Whether it is worth asking for its next frame.
    #[inline]
    pub(super) fn has_output(&self) -> bool {
        if self.was_steady() { self.has_plain_output() } else { self.has_any_output() }
    }

    fn has_any_output(&self) -> bool {
        let sender = &self.sender;
        !self.owed.is_empty()
            || self.ack.is_demanded()
            || sender.unsent_bytes() > 0
            || sender.owes_fin()
            || sender.flight.lost_segments() > sender.flight.retransmitted_segments()
    }
}
