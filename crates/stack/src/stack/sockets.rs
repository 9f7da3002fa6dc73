//! The user's operations (RFC 9293 §3.9.1, in the terms of BSD sockets).

use std::net::SocketAddr;
use std::time::Duration;

use uncork_packet::Instant;

use super::Stack;
use super::settle::settle_open;
use crate::connection::{
    Connection, ConnectionError, Info, RecvError, SendError, SocketOption, State,
};
use crate::context::Context;
use crate::demux::Tuple;
use crate::handle::SocketId;

/// Why a connection could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No address of this stack can reach the peer.
    #[error("there is no route to the peer")]
    NoRoute,
    /// The local address is not one of the stack's.
    #[error("the local address is not one of this stack")]
    NotOurs,
    /// Another connection has these ends, or every port is taken.
    #[error("the local port is taken, or all of them are")]
    AddressInUse,
    /// The kernel assigns the ports of an address that it shares with the stack.
    #[error("on an address that is shared with the kernel the local port is to be named")]
    NoPort,
    /// The stack has Fast Open switched off for clients.
    #[error("TCP Fast Open is switched off")]
    NoFastOpen,
}

/// The direction to shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Nothing more is read; what still arrives is acknowledged and kept, as in Linux.
    Read,
    /// Nothing more is sent.
    Write,
    /// Both.
    Both,
}

impl Stack {
    /// Begins a connection; [`crate::Ready::CONNECTED`] or an error reports the result. With a `local` port
    /// of 0, or no `local` at all, the stack chooses one, except on an address that is shared with the
    /// kernel, whose other programs choose from the same ports: there the port must be one that the kernel has
    /// reserved, and the address the one that its route selects.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<SocketId, ConnectError> {
        let place = self.begin(now, local, remote)?;
        let connection = self.connections.get_mut(place).ok_or(ConnectError::AddressInUse)?;
        connection.open();
        let id = connection.id;
        self.settle(place);
        Ok(id)
    }

    /// Makes a connection for a user, without opening it.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<u32, ConnectError> {
        if !self.interface.reaches(remote.ip()) {
            return Err(ConnectError::NoRoute);
        }
        let source = self.interface.source_for(remote.ip()).ok_or(ConnectError::NoRoute)?;
        let address = match local {
            Some(local) if !local.ip().is_unspecified() => {
                let ours = self.interface.is_ours(local.ip());
                if ours { local.ip() } else { return Err(ConnectError::NotOurs) }
            }
            _ => source,
        };
        let port = local.map_or(0, |local| local.port());
        let tuple = match port {
            0 if self.interface.shared => return Err(ConnectError::NoPort),
            0 => self.choose_port(address, remote).ok_or(ConnectError::AddressInUse)?,
            port => Tuple::new(SocketAddr::new(address, port), remote),
        };
        if self.find(&tuple).is_some() {
            return Err(ConnectError::AddressInUse);
        }
        let place = self.insert(now, tuple, &[]);
        self.shared.counters.active_opens += 1;
        let connection = self.connections.get_mut(place).ok_or(ConnectError::AddressInUse)?;
        connection.user.attached = true;
        self.ask_the_way(now, place);
        Ok(place)
    }

    /// Chooses a free port, starting at an offset that depends on the destination (RFC 6056 §3.3.3, algorithm 3).
    fn choose_port(&mut self, address: std::net::IpAddr, remote: SocketAddr) -> Option<Tuple> {
        let (first, last) = self.shared.config.ports;
        let count = u32::from(last.saturating_sub(first)) + 1;
        let offset =
            self.shared.secrets.port_offset(&Tuple::new(SocketAddr::new(address, 0), remote));
        for _ in 0..count {
            let turn = self.next_port;
            self.next_port = turn.wrapping_add(1);
            let port = u32::from(first) + offset.wrapping_add(turn) % count;
            let port = u16::try_from(port).unwrap_or(first);
            let tuple = Tuple::new(SocketAddr::new(address, port), remote);
            if self.find(&tuple).is_none() {
                return Some(tuple);
            }
        }
        None
    }

    /// Queues bytes to be sent; returns how many were taken. With `more`, what does not fill a segment waits for
    /// the rest, for at most 200 ms (MSG_MORE).
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub fn send(
        &mut self,
        now: Instant,
        socket: SocketId,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        if !more && self.send_plain(now, socket, bytes) {
            return Ok(bytes.len());
        }
        self.send_generally(now, socket, bytes, more)
    }

    #[inline(never)]
    fn send_generally(
        &mut self,
        now: Instant,
        socket: SocketId,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        if self.has_no_room(now, socket) && !bytes.is_empty() {
            return Err(SendError::WouldBlock);
        }
        self.with(now, socket, |connection, cx| connection.send(cx, bytes, more))
            .unwrap_or(Err(SendError::NoSocket))
    }

    /// Returns whether a live connection has no room for more bytes; it then reports when it has. It is not settled for this:
    /// a caller that waits for room would find output pending each time.
    fn has_no_room(&mut self, now: Instant, socket: SocketId) -> bool {
        self.finish_joining();
        let connection = self.connections.get_quietly(socket.place);
        let open = |one: &&mut Connection| one.id == socket && one.user.attached;
        let Some(connection) = connection.filter(open) else { return false };
        let has_none = connection.has_no_room(self.shared.at(now));
        if has_none {
            // An event has to be sent when there is room, which the fast paths do not handle.
            connection.disturb();
            connection.user.wants_room = true;
        }
        has_none
    }

    /// Queues bytes for a caller that was told how many would be taken ([`Stack::sendable_bytes`]) and has queued no more since:
    /// all are taken, even if the buffer was made smaller meanwhile.
    ///
    /// # Errors
    ///
    /// [`SendError`], except that the buffer is full.
    pub fn send_promised(
        &mut self,
        now: Instant,
        socket: SocketId,
        bytes: &[u8],
        more: bool,
    ) -> Result<(), SendError> {
        self.with(now, socket, |connection, cx| connection.send_promised(cx, bytes, more))
            .unwrap_or(Err(SendError::NoSocket))
    }

    /// Receives bytes into `into`; returns zero after the peer's FIN.
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn recv(
        &mut self,
        now: Instant,
        socket: SocketId,
        into: &mut [u8],
    ) -> Result<usize, RecvError> {
        let heard = self.recv_plain(now, socket, into);
        heard.unwrap_or_else(|| self.recv_generally(now, socket, into))
    }

    #[inline(never)]
    fn recv_generally(
        &mut self,
        now: Instant,
        socket: SocketId,
        into: &mut [u8],
    ) -> Result<usize, RecvError> {
        self.with(now, socket, |connection, cx| connection.recv(cx, into, false))
            .unwrap_or(Err(RecvError::NoSocket))
    }

    /// Receives bytes and leaves them in the buffer (MSG_PEEK).
    ///
    /// # Errors
    ///
    /// [`RecvError`].
    pub fn peek(
        &mut self,
        now: Instant,
        socket: SocketId,
        into: &mut [u8],
    ) -> Result<usize, RecvError> {
        self.with(now, socket, |connection, cx| connection.recv(cx, into, true))
            .unwrap_or(Err(RecvError::NoSocket))
    }

    /// Shuts down one direction or both.
    pub fn shutdown(&mut self, now: Instant, socket: SocketId, how: Shutdown) {
        self.with(now, socket, |connection, cx| {
            if connection.is_connecting() {
                return connection.give_up(cx);
            }
            if how != Shutdown::Write {
                connection.user.closed_reading = true;
            }
            if how != Shutdown::Read {
                connection.shut_sending(cx);
            }
        });
    }

    /// Returns whether [`Stack::close`] would reset the connection and drop unsent data: received data was not
    /// read, or its user does not want to linger.
    #[must_use]
    pub fn close_resets(&self, socket: SocketId) -> bool {
        self.get(socket).is_some_and(Connection::close_resets)
    }

    /// Closes and releases a connection. Queued data is still sent; unread received data turns the close into a reset.
    pub fn close(&mut self, now: Instant, socket: SocketId) {
        self.with(now, socket, |connection, cx| connection.close(cx));
    }

    /// Begins a close that the user waits for (SO_LINGER): the FIN is queued, and the connection is kept until
    /// [`Stack::close`], which is to follow on [`crate::Ready::DRAINED`], on [`crate::Ready::CLOSED`], or
    /// after the returned time. If that is none, at once.
    pub fn begin_close(&mut self, now: Instant, socket: SocketId) -> Option<Duration> {
        self.with(now, socket, |connection, cx| connection.begin_close(cx)).flatten()
    }

    /// Resets a connection. It is kept until it is closed.
    pub fn abort(&mut self, now: Instant, socket: SocketId) {
        self.with(now, socket, |connection, cx| connection.abort(cx));
    }

    /// Holds back the output of a connection while the user changes several things of which only the sum should show.
    /// Until [`Stack::release`] nothing of it leaves; it is remembered whether anything would have.
    pub fn hold(&mut self, now: Instant, socket: SocketId) {
        self.with(now, socket, |connection, _| connection.user.held = true);
    }

    /// Ends [`Stack::hold`].
    pub fn release(&mut self, now: Instant, socket: SocketId) {
        self.with(now, socket, |connection, _| {
            connection.user.held = false;
            connection.user.held_back = false;
        });
    }

    /// Returns whether output of a held connection was held back.
    #[must_use]
    pub fn is_held_back(&self, socket: SocketId) -> bool {
        self.get(socket).is_some_and(|connection| connection.user.held_back)
    }

    /// Sets an option; returns whether there is such a connection and it still takes options.
    pub fn set_option(&mut self, now: Instant, socket: SocketId, option: SocketOption) -> bool {
        self.with(now, socket, |connection, cx| {
            let takes = connection.takes_options();
            if takes {
                connection.set_option(cx, option);
            }
            takes
        })
        .unwrap_or(false)
    }

    /// Returns the error of a failed connection, once (SO_ERROR).
    pub fn take_error(&mut self, socket: SocketId) -> Option<ConnectionError> {
        self.connections
            .get_mut(socket.place)
            .filter(|connection| connection.id == socket)
            .and_then(|connection| connection.user.take_error())
    }

    /// Puts back an error that was taken but could not be reported.
    pub fn put_back_error(&mut self, socket: SocketId, error: ConnectionError) {
        let connection = self.connections.get_mut(socket.place);
        if let Some(connection) = connection.filter(|connection| connection.id == socket) {
            connection.user.put_back_error(error);
        }
    }

    /// Returns whether the connection has failed, and the error was not fetched yet (POLLERR).
    #[must_use]
    pub fn has_error(&self, socket: SocketId) -> bool {
        self.get(socket).is_some_and(|connection| connection.user.error().is_some())
    }

    /// Ends a record at the last queued octet: no segment contains octets from both sides of it, and what is
    /// before it does not wait for what comes after (MSG_EOR).
    pub fn end_record(&mut self, socket: SocketId) {
        if let Some(connection) = self.connections.get_mut(socket.place)
            && connection.id == socket
        {
            connection.sender.end_record();
        }
    }

    /// Marks the queued data as a whole message: it leaves even if an earlier small segment is not acknowledged (Nagle's
    /// algorithm). A cork still holds it.
    pub fn complete(&mut self, now: Instant, socket: SocketId) {
        let connection = self.connections.get_quietly(socket.place);
        let Some(connection) = connection.filter(|connection| connection.id == socket) else {
            return;
        };
        let sender = &mut connection.sender;
        if sender.unsent_bytes() == 0 {
            return;
        }
        sender.complete();
        // Data that Nagle's algorithm does not hold leaves in any case.
        if sender.is_small_out() {
            self.with(now, socket, |_, _| ());
        }
    }

    /// Returns all information about a connection (TCP_INFO).
    #[must_use]
    pub fn info(&mut self, now: Instant, socket: SocketId) -> Option<Info> {
        self.finish_joining();
        let connection = self.connections.get(socket.place)?;
        let cx = self.shared.at(now);
        (connection.id == socket).then(|| connection.info(cx))
    }

    /// Returns an iterator over all connections.
    pub fn sockets(&self) -> impl Iterator<Item = SocketId> {
        self.connections.iter().map(|(_, connection)| connection.id)
    }

    /// Returns the octets that can be read at once (FIONREAD).
    #[must_use]
    pub fn readable_bytes(&self, socket: SocketId) -> u32 {
        self.get(socket).map_or(0, |connection| connection.receiver.readable_bytes())
    }

    /// Returns whether receiving would not block: there is data, the end of the stream, or an error.
    #[must_use]
    pub fn is_readable(&self, socket: SocketId) -> bool {
        self.get(socket).is_none_or(Connection::is_readable)
    }

    /// Returns the octets that [`Stack::send`] would take now.
    #[must_use]
    pub fn sendable_bytes(&mut self, now: Instant, socket: SocketId) -> u32 {
        let Some(connection) = self.connections.get(socket.place) else { return 0 };
        let cx = self.shared.at(now);
        let takes = connection.id == socket && connection.state.may_send();
        if takes { connection.send_room(cx) } else { 0 }
    }

    /// Returns whether sending would not block.
    #[must_use]
    pub fn is_writable(&mut self, now: Instant, socket: SocketId) -> bool {
        let Some(connection) = self.connections.get(socket.place) else { return true };
        let cx = self.shared.at(now);
        connection.id != socket || !connection.state.may_send() || connection.is_writable(cx)
    }

    /// Takes the fast path for queueing data in a conversation; returns whether it could.
    #[inline(always)]
    fn send_plain(&mut self, now: Instant, socket: SocketId, bytes: &[u8]) -> bool {
        let Some((connection, cx)) = self.talking(now, socket) else { return false };
        let said = connection.say(cx, bytes);
        if said && !connection.user.in_ready {
            connection.user.in_ready = true;
            self.ready.push_back(socket.place);
        }
        said
    }

    /// Takes the fast path for receiving, if it can.
    #[inline(always)]
    fn recv_plain(
        &mut self,
        now: Instant,
        socket: SocketId,
        into: &mut [u8],
    ) -> Option<Result<usize, RecvError>> {
        let (connection, cx) = self.talking(now, socket)?;
        let heard = connection.hear(cx, into);
        if heard.is_some() && connection.has_plain_output() && !connection.user.in_ready {
            connection.user.in_ready = true;
            self.ready.push_back(socket.place);
        }
        heard
    }

    #[inline(always)]
    fn talking(
        &mut self,
        now: Instant,
        socket: SocketId,
    ) -> Option<(&mut Connection, &mut Context)> {
        if self.joined.is_some() {
            return None;
        }
        let connection = self.connections.get_quietly(socket.place)?;
        if connection.id != socket {
            return None;
        }
        if !self.demux.is_latest(socket.place) {
            connection.fetch();
        }
        Some((connection, self.shared.at(now)))
    }

    pub(super) fn get(&self, socket: SocketId) -> Option<&Connection> {
        self.connections.get(socket.place).filter(|connection| connection.id == socket)
    }

    /// Applies an operation to a connection that its user has not released, and settles the connection.
    pub(super) fn with<T>(
        &mut self,
        now: Instant,
        socket: SocketId,
        act: impl FnOnce(&mut Connection, &mut Context) -> T,
    ) -> Option<T> {
        self.finish_joining();
        let connection = self.connections.get_mut(socket.place)?;
        if connection.id != socket || !connection.user.attached {
            return None;
        }
        if !self.demux.is_latest(socket.place) {
            connection.fetch();
        }
        let cx = self.shared.at(now);
        let result = act(connection, cx);
        if connection.listener.is_none() && connection.state != State::Closed {
            let early = settle_open(connection, socket.place, &mut self.news, &mut self.ready);
            self.enter_timers(socket.place, early);
        } else {
            self.settle_other(socket.place);
        }
        Some(result)
    }
}
