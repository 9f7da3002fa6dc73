//! The current readiness of a connection, for callers that poll (poll(2), level-triggered
//! epoll(7)). It is asked for every descriptor of a set, so it neither formats nor allocates.

use std::net::SocketAddr;

use uncork_packet::Instant;

use super::Stack;
use crate::connection::{Connection, Fast, State};
use crate::context::Context;
use crate::event::Ready;
use crate::handle::SocketId;

impl Stack {
    /// Returns the current readiness, with the meaning of Linux's `tcp_poll`; nothing is set if there is no such connection:
    ///
    /// | | in poll(2) | is set if |
    /// |---|---|---|
    /// | [`Ready::READABLE`] | POLLIN | there is something to read, the end, or an error |
    /// | [`Ready::WRITABLE`] | POLLOUT | there is room, or sending would fail at once |
    /// | [`Ready::CONNECTED`] | | the handshake is over, and the connection is not |
    /// | [`Ready::PEER_CLOSED`] | POLLRDHUP | nothing more can come: the peer or the user has closed it, or it is over |
    /// | [`Ready::CLOSED`] | POLLHUP | both directions are closed, or it is over |
    /// | [`Ready::ERROR`] | POLLERR | it has failed, and the error was not fetched yet (SO_ERROR) |
    /// | [`Ready::DRAINED`] | | the peer has acknowledged everything, the FIN included |
    /// | [`Ready::STOPPED`] | POLLIN, whatever SO_RCVLOWAT says | there is something to read, and the window, or the memory, has no room for more than a segment |
    ///
    /// A user that is told that it cannot write will get an [`Event`](crate::Event) when it can.
    #[must_use]
    pub fn readiness(&mut self, now: Instant, socket: SocketId) -> Ready {
        let Some(connection) = self.connections.get_mut(socket.place) else {
            return Ready::default();
        };
        if connection.id != socket {
            return Ready::default();
        }
        let cx = self.shared.at(now);
        let ready = connection.readiness(cx);
        connection.user.wants_room |= !ready.has(Ready::WRITABLE);
        ready
    }

    /// Returns both ends of a connection, the local one first (getsockname(2), getpeername(2)).
    #[must_use]
    pub fn ends(&self, socket: SocketId) -> Option<(SocketAddr, SocketAddr)> {
        self.get(socket).map(|connection| (connection.tuple.local(), connection.tuple.remote()))
    }

    /// Returns the state of a connection (`tcpi_state`).
    #[must_use]
    pub fn state(&self, socket: SocketId) -> Option<State> {
        self.get(socket).map(|connection| connection.state)
    }
}

impl Connection {
    fn readiness(&self, cx: &Context) -> Ready {
        let failed = if self.user.error().is_some() { Ready::ERROR } else { Ready::default() };
        let opening = !self.state.is_synchronised() && self.state != State::Closed;
        if opening && !self.is_fast_child() {
            // Nothing but the first write, which goes with the SYN (tcp_poll, defer_connect).
            let deferred = self.fast.has(Fast::DEFERRED);
            return failed | if deferred { Ready::WRITABLE } else { Ready::default() };
        }
        let over = self.state == State::Closed;
        let ended_out = over || !self.state.may_send() || self.sender.fin_queued;
        let ended_in = over || self.receiver.is_finished() || self.user.closed_reading;
        let drained = matches!(self.state, State::FinWait2 | State::TimeWait);
        let holds = [
            (Ready::READABLE, ended_in || self.receiver.readable_bytes() > 0),
            (Ready::STOPPED, self.is_stopped(cx)),
            (Ready::WRITABLE, ended_out || self.is_writable(cx)),
            (Ready::CONNECTED, !over),
            (Ready::PEER_CLOSED, ended_in),
            (Ready::CLOSED, ended_in && ended_out),
            (Ready::DRAINED, drained),
        ];
        holds.into_iter().filter(|(_, holds)| *holds).fold(failed, |ready, (one, _)| ready | one)
    }
    /// Returns whether who waits for more than there is to read would wait in vain (tcp_epollin_ready).
    fn is_stopped(&self, cx: &Context) -> bool {
        let receiver = &self.receiver;
        let has_room = receiver.window_left() > self.ack.segment_bytes() && !cx.pool.is_full();
        receiver.readable_bytes() > 0 && !has_room
    }
}
