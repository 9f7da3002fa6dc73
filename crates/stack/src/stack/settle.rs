//! What follows from a change of a connection: timers, queues, events, and its removal.

use uncork_packet::Instant;

use super::{News, Stack};
use crate::connection::{Cause, Connection, ConnectionError, Fast, Owed, State};
use crate::event::Change;
use crate::memory::{Queue, Slab};
use crate::timer::{Entries, Entry};

impl Stack {
    /// Enters its timers, queues it if it may send, queues its news, and removes it if it is gone.
    pub(super) fn settle(&mut self, place: u32) {
        // `get_quietly`, as the code that changed it has already called `disturb` if the change calls for that.
        let Some(connection) = self.connections.get_quietly(place) else { return };
        if connection.listener.is_none() && connection.state != State::Closed {
            let early = settle_open(connection, place, &mut self.news, &mut self.ready);
            self.enter_timers(place, early);
        } else {
            self.settle_other(place);
        }
    }

    /// Makes the wheel come back to a connection at `early` or before.
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

    /// Frees the ends of a connection that is over, and its place if its user has released it.
    fn settle_over(&mut self, place: u32) {
        let Some(connection) = self.connections.get_quietly(place) else { return };
        if connection.is_gone() {
            self.remove(place);
        } else if connection.is_over() {
            self.free_ends(place);
        }
    }

    /// Settles a connection after a frame has left: its place in the queue is right, and its only news can be that less is
    /// unsent than the user's low-water mark (tcp_check_space, after what an ACK has let out).
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

    /// Updates the listener of a connection if its handshake is over, successful or not.
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
        // From now on the accept queue refers to it.
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

    /// Frees the ends for another connection, even if a user still refers to this one (Linux: tcp_done, inet_unhash).
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

    /// Fails the connections and datagrams that wait for unreachable neighbours.
    pub(super) fn fail_all_unreachable(&mut self, places: Vec<u32>, now: Instant) {
        for place in places {
            if place & super::udp::WAITS != 0 {
                self.resume_udp(place & !super::udp::WAITS);
            } else {
                self.fail_unreachable(place, now);
            }
        }
    }

    /// Fails a connection whose neighbour is unreachable.
    fn fail_unreachable(&mut self, place: u32, now: Instant) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        match connection.state {
            // Only its reset is left, which is dropped like anything else that waits for that address
            // (arp_error_report).
            State::Closed => connection.owed.clear(Owed::RESET),
            // An open one goes on trying, until it times out (RFC 1122 §4.2.3.9).
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

/// Settles a connection that is not over and has no listener, or was accepted. Returns when the wheel is to come back, if
/// that is earlier than it would.
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
    /// Returns the connection at a place for a change outside the fast paths: it is no longer steady.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut Connection> {
        let connection = self.get_quietly(place)?;
        connection.disturb();
        Some(connection)
    }
}

/// The wheel's entries are kept in the connections.
impl Entries for Slab<Connection> {
    #[inline]
    fn entry(&mut self, place: u32) -> Option<&mut Entry> {
        self.get_quietly(place).map(|connection| connection.timers.entry())
    }
}

impl Connection {
    /// Does what [`Self::has_output`] does for a steady connection.
    #[inline]
    pub(super) fn has_plain_output(&self) -> bool {
        let has = self.ack.is_demanded() || self.sender.unsent_bytes() > 0;
        debug_assert_eq!(has, self.has_any_output());
        has
    }

    /// Returns whether the connection may have a frame to send.
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
