//! Listening and accepting: the user's operations.

use std::net::SocketAddr;

use uncork_packet::Instant;

use super::Stack;
use crate::connection::{Fast, SocketOption};
use crate::fast_open::FastOpenListen;
use crate::handle::{ListenerId, SocketId};
use crate::listener::{ListenError, Listening, Place};

impl Stack {
    /// Listens at one address, at all IPv4 addresses (0.0.0.0), or at all of both versions (`[::]`).
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen(&mut self, local: SocketAddr, backlog: u32) -> Result<ListenerId, ListenError> {
        self.listen_with(local, Listening { backlog, v6_only: false, shares: false })
    }

    /// Listens with the parameters in [`Listening`].
    ///
    /// # Errors
    ///
    /// [`ListenError`].
    pub fn listen_with(
        &mut self,
        local: SocketAddr,
        listening: Listening,
    ) -> Result<ListenerId, ListenError> {
        let place = match Place::of(local.ip()) {
            Place::All if listening.v6_only => Place::AllV6,
            place => place,
        };
        match place {
            Place::One(address) if !self.interface.is_ours(address) => Err(ListenError::NotOurs),
            place => self.listeners.add(place, local.port(), listening),
        }
    }

    /// Makes a listener leave: if others have its place it gets no new connections, but completes handshakes, for accepting.
    /// Fast Open connections wait for their handshake to end; TCP_DEFER_ACCEPT still waits for data ([`Stack::open_deferred`]).
    pub fn leave_listener(&mut self, listener: ListenerId) {
        self.listeners.leave(listener);
        if let Some(listener) = self.listeners.get(listener) {
            listener.fast_open.listen = FastOpenListen::default();
        }
        self.under_way(listener).into_iter().for_each(|place| self.slow_down(place));
    }

    /// Ends the wait for data (TCP_DEFER_ACCEPT): peers that have acknowledged the SYN-ACK can be accepted.
    pub fn open_deferred(&mut self, now: Instant, listener: ListenerId) {
        let Some(its) = self.listeners.get(listener) else { return };
        let before = its.options.len();
        its.options.retain(|option| !matches!(option, SocketOption::DeferAccept(_)));
        if its.options.len() == before {
            return;
        }
        for place in self.under_way(listener) {
            if let Some(connection) = self.connections.get_mut(place) {
                let cx = self.shared.at(now);
                connection.open_deferred(cx);
                self.settle(place);
            }
        }
    }

    /// Sets an option that a listener's future connections begin with.
    pub fn set_listener_option(&mut self, listener: ListenerId, option: SocketOption) {
        if let Some(listener) = self.listeners.get(listener) {
            listener
                .options
                .retain(|other| std::mem::discriminant(other) != std::mem::discriminant(&option));
            listener.options.push(option);
        }
        if let SocketOption::DeferAccept(timeouts) = option {
            // For those that wait for data Linux asks the listener each time.
            for place in self.under_way(listener) {
                if let Some(connection) = self.connections.get_mut(place) {
                    connection.deferral.set(timeouts);
                }
            }
        }
    }

    /// Returns whether a connection may still come to this listener from a handshake, or a SYN cookie, that is under way.
    #[must_use]
    pub fn has_under_way(&self, now: Instant, listener: ListenerId) -> bool {
        self.awaits_cookies(now) || !self.under_way(listener).is_empty()
    }

    /// Returns whether this listener has connections that were not accepted, including handshakes. A peer that returns a
    /// SYN cookie gets to the listener that is there then.
    pub fn has_comers(&mut self, listener: ListenerId) -> bool {
        self.listeners.get(listener).is_some_and(|one| one.handshakes > 0 || one.waiting() > 0)
    }

    /// Returns the connections of a listener that were not accepted.
    fn under_way(&self, listener: ListenerId) -> Vec<u32> {
        let all = self.connections.iter();
        let its = all.filter(|(_, connection)| connection.listener == Some(listener));
        its.map(|(place, _)| place).collect()
    }

    /// Takes the next connection from the accept queue, if there is one.
    pub fn accept(&mut self, listener: ListenerId) -> Option<SocketId> {
        let id = self.listeners.get(listener)?.accept()?;
        let connection = self.connections.get_mut(id.place)?;
        if connection.is_fast_child() {
            // The listener counts it until its handshake is over.
            connection.fast.add(Fast::ACCEPTED);
        } else {
            connection.listener = None;
        }
        Some(id)
    }

    /// Returns the length of the accept queue.
    pub fn accept_waiting(&mut self, listener: ListenerId) -> usize {
        self.listeners.get(listener).map_or(0, |listener| listener.waiting())
    }

    /// Closes a listener. Connections in the accept queue are reset. Handshakes under way are
    /// forgotten, and reset when they continue, as there is no connection for them (inet_csk_listen_stop).
    pub fn close_listener(&mut self, now: Instant, listener: ListenerId) {
        let waiting = self.listeners.remove(listener).unwrap_or_default();
        self.shared.fast_open.forget_listener(listener);
        for id in waiting {
            self.abort(now, id);
            self.close(now, id);
        }
        for place in self.under_way(listener) {
            if let Some(connection) = self.connections.get_mut(place) {
                if connection.fast.has(Fast::ACCEPTED) {
                    connection.listener = None;
                    continue;
                }
                let cx = self.shared.at(now);
                if connection.receiver.readable_bytes() > 0 {
                    // Data of a SYN that was acknowledged (TCP Fast Open).
                    connection.abort(cx);
                } else {
                    connection.forget(cx);
                }
                connection.listener = None;
                self.settle(place);
            }
        }
    }
}
