//! The operations on connections and listeners, like those of a stack of one's own.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use uncork_stack::{
    Change, Config, ConnectError, ConnectionError, Counters, FastConnect, FastOpenKeys,
    FastOpenListen, Instant, ListenError, ListenerId, Listening, Ready, RecvError, SendError,
    Shutdown, SocketId, SocketOption, State,
};

use super::mirror::Mirror;
use super::{Attached, Listener};
use crate::ring::MOST_BYTES;
use crate::{Command, record};

impl Attached {
    /// Returns the state of a connection. See [`uncork_stack::Stack`] for this and what follows.
    #[must_use]
    pub fn state(&self, id: SocketId) -> Option<State> {
        self.get(id).map(|mirror| mirror.state)
    }

    /// Returns both ends, the local one first.
    #[must_use]
    pub fn ends(&self, id: SocketId) -> Option<(SocketAddr, SocketAddr)> {
        self.get(id).map(|mirror| (mirror.ends.local, mirror.ends.remote))
    }

    /// Begins to open a connection.
    ///
    /// # Errors
    ///
    /// Its local end must be given; any other error is reported later.
    pub fn connect(
        &mut self,
        _: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Result<SocketId, ConnectError> {
        let local = local.filter(|local| local.port() != 0).ok_or(ConnectError::NoPort)?;
        let number = self.number_of_ours();
        let seat = self.seat(number);
        seat.take(Mirror::new(local, remote, true));
        seat.is_ours = true;
        self.command_of(Command::Connect, number, &record::Ends { local, remote });
        self.counters.active_opens += 1;
        self.changes.push_back(Change::Came { place: number, local, remote });
        Ok(self.id(number))
    }

    /// The same, without data in the SYN: only the instance knows the cookies, and this does not wait to learn of one.
    ///
    /// # Errors
    ///
    /// As [`Attached::connect`].
    pub fn connect_fast(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        _: bool,
    ) -> Result<FastConnect, ConnectError> {
        self.connect(now, local, remote).map(FastConnect::Begun)
    }

    /// Tells whether a SYN waits for data, which none does here.
    #[must_use]
    pub fn is_deferred(&self, _: SocketId) -> bool {
        false
    }

    /// Would send a SYN that waits for data; none does here.
    pub fn launch(&mut self, _: Instant, _: SocketId) {}

    /// Returns an odd number that no connection has.
    fn number_of_ours(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let next = u32::try_from(self.seats.len()).unwrap_or(u32::MAX);
            next | 1
        })
    }

    /// Gives octets to be sent; returns how many were taken.
    ///
    /// # Errors
    ///
    /// As the stack reports them.
    pub fn send(
        &mut self,
        _: Instant,
        id: SocketId,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        let ring = self.ring_room();
        let Some((number, mirror)) = self.get_mut(id) else { return Err(SendError::NoSocket) };
        if let Some(error) = mirror.error.take() {
            return Err(error.into());
        }
        if mirror.closed_writing || !mirror.state.may_send() {
            return Err(SendError::Closed);
        }
        let wanted = bytes.len().min(mirror.room());
        let taken = self.give(number, &bytes[..wanted], ring, more)?;
        let Some(mirror) = self.mirror_at(number) else { return Err(SendError::NoSocket) };
        mirror.written += taken as u64;
        let refused = taken < bytes.len();
        mirror.wants_room = refused;
        self.starves |= refused && taken < wanted;
        if self.starves {
            // If the instance has read just now, the next turn finds that.
            self.end.commands.wait_for_room();
        }
        if taken == 0 && refused { Err(SendError::WouldBlock) } else { Ok(taken) }
    }

    /// Writes octets into the ring, as many as it takes.
    fn give(
        &mut self,
        number: u32,
        bytes: &[u8],
        mut ring: usize,
        more: bool,
    ) -> Result<usize, SendError> {
        let mut taken = 0;
        while taken < bytes.len() && ring > 0 {
            let piece = &bytes[taken..][..(bytes.len() - taken).min(ring).min(MOST_BYTES)];
            let goes_on = more || taken + piece.len() < bytes.len();
            let flags = if goes_on { record::MORE } else { 0 };
            let header = Command::Send.of_number(number).flagged(flags);
            match self.end.commands.write(header, piece) {
                Ok(true) => taken += piece.len(),
                Ok(false) => break,
                Err(damaged) => {
                    self.failed = Some(damaged);
                    return Err(ConnectionError::Reset.into());
                }
            }
            ring = self.end.commands.room().unwrap_or(0);
        }
        Ok(taken)
    }

    /// Ends a record with the latest octet given.
    pub fn end_record(&mut self, id: SocketId) {
        let Some(number) = self.number(id) else { return };
        let flags = record::END_OF_RECORD;
        self.order(Command::Send.of_number(number).flagged(flags), &[]);
    }

    /// Says that what was given is a whole message ([`uncork_stack::Stack::complete`]).
    pub fn complete(&mut self, _: Instant, id: SocketId) {
        let Some(number) = self.number(id) else { return };
        self.order(Command::Complete.of_number(number), &[]);
    }

    /// Returns how many octets may be given now.
    #[must_use]
    pub fn sendable_bytes(&mut self, _: Instant, id: SocketId) -> u32 {
        let ring = self.ring_room();
        let takes = |mirror: &&Mirror| !mirror.closed_writing && mirror.state.may_send();
        let room = self.get(id).filter(takes).map_or(0, Mirror::room);
        u32::try_from(room.min(ring)).unwrap_or(u32::MAX)
    }

    /// Returns how many octets a command may have now.
    fn ring_room(&mut self) -> usize {
        self.catch_up();
        if self.queue.is_empty() { self.end.commands.room().unwrap_or(0) } else { 0 }
    }

    /// Receives octets; zero when the peer has sent its last.
    ///
    /// # Errors
    ///
    /// As the stack reports them.
    pub fn recv(&mut self, _: Instant, id: SocketId, into: &mut [u8]) -> Result<usize, RecvError> {
        let Some((number, mirror)) = self.get_mut(id) else { return Err(RecvError::NoSocket) };
        let (taken, read) = mirror.receive(into, false)?;
        if let Some(extra) = read {
            self.order(Command::Read.of_number(number).and(extra), &[]);
        }
        Ok(taken)
    }

    /// Receives octets, and leaves them to be received again.
    ///
    /// # Errors
    ///
    /// As the stack reports them.
    pub fn peek(&mut self, _: Instant, id: SocketId, into: &mut [u8]) -> Result<usize, RecvError> {
        let Some((_, mirror)) = self.get_mut(id) else { return Err(RecvError::NoSocket) };
        mirror.receive(into, true).map(|(taken, _)| taken)
    }

    /// Returns how many octets can be read at once.
    #[must_use]
    pub fn readable_bytes(&self, id: SocketId) -> u32 {
        let bytes = self.get(id).map_or(0, |mirror| mirror.incoming.len());
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Returns the readiness.
    pub fn readiness(&mut self, _: Instant, id: SocketId) -> Ready {
        let has_ring = self.ring_room() > 0;
        let Some((_, mirror)) = self.get_mut(id) else { return Ready::default() };
        let ready = mirror.readiness(has_ring);
        if mirror.wants_room && !has_ring {
            // The caller is told when there is room again.
            self.starves = true;
            self.end.commands.wait_for_room();
        }
        ready
    }

    /// Takes the reason why a connection has failed.
    pub fn take_error(&mut self, id: SocketId) -> Option<ConnectionError> {
        self.get_mut(id)?.1.error.take()
    }

    /// Puts an error back that was taken by a caller that could not report it.
    pub fn put_back_error(&mut self, id: SocketId, error: ConnectionError) {
        if let Some((_, mirror)) = self.get_mut(id) {
            mirror.error = Some(error);
        }
    }

    /// Shuts down one direction or both.
    pub fn shutdown(&mut self, _: Instant, id: SocketId, how: Shutdown) {
        let Some((number, mirror)) = self.get_mut(id) else { return };
        let mut flags = 0;
        if how != Shutdown::Write {
            mirror.closed_reading = true;
            flags |= record::SHUT_READ;
        }
        if how != Shutdown::Read {
            mirror.closed_writing = true;
            flags |= record::SHUT_WRITE;
        }
        self.order(Command::Shutdown.of_number(number).flagged(flags), &[]);
    }

    /// Begins a close that waits (SO_LINGER); returns for how long.
    pub fn begin_close(&mut self, _: Instant, id: SocketId) -> Option<Duration> {
        let (number, mirror) = self.get_mut(id)?;
        let seconds = mirror.linger_seconds.filter(|&seconds| seconds > 0)?;
        if !mirror.incoming.is_empty() {
            return None;
        }
        mirror.closed_writing = true;
        let waits = !matches!(mirror.state, State::Closed | State::FinWait2 | State::TimeWait);
        self.command(Command::BeginClose, number, &[]);
        waits.then(|| Duration::from_secs(seconds.into()))
    }

    /// Tells whether [`Attached::close`] would reset the connection.
    #[must_use]
    pub fn close_resets(&self, id: SocketId) -> bool {
        self.get(id).is_some_and(|mirror| {
            let gives_up = !mirror.incoming.is_empty() || mirror.linger_seconds == Some(0);
            mirror.state.is_synchronised() && gives_up
        })
    }

    /// Closes a connection; its id is no longer valid.
    pub fn close(&mut self, _: Instant, id: SocketId) {
        let Some(number) = self.number(id) else { return };
        let Some(mirror) = self.seat(number).mirror.take() else { return };
        let flags = if mirror.incoming.is_empty() { 0 } else { record::UNREAD };
        self.order(Command::Close.of_number(number).flagged(flags), &[]);
    }

    /// Resets a connection. Its id stays valid until it is closed.
    pub fn abort(&mut self, _: Instant, id: SocketId) {
        let Some((number, mirror)) = self.get_mut(id) else { return };
        mirror.error = Some(ConnectionError::Aborted);
        mirror.state = State::Closed;
        mirror.cut_off = true;
        self.command(Command::Abort, number, &[]);
        self.note(number);
    }

    /// Resets all connections.
    pub fn abort_all(&mut self, now: Instant) {
        let all: Vec<_> = self.sockets().collect();
        for id in all {
            self.abort(now, id);
        }
    }

    /// Tells whether the instance has been told everything, and has got back all that was not accepted: what peers still wait
    /// for is the instance's business.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let has_told = self.queue.is_empty() && !self.end.commands.has_unshown();
        self.failed.is_some() || has_told && self.leaving.is_empty()
    }

    /// Sets an option.
    pub fn set_option(&mut self, _: Instant, id: SocketId, option: SocketOption) -> bool {
        let Some((number, mirror)) = self.get_mut(id) else { return false };
        if mirror.state == State::Closed {
            return false;
        }
        if let SocketOption::Linger(seconds) = option {
            mirror.linger_seconds = seconds;
        }
        self.command_of(Command::Option, number, &option);
        true
    }

    /// Listens. The guardian must be known to have agreed before the next turn.
    ///
    /// # Errors
    ///
    /// None: if it is impossible, the instance says so later.
    pub fn listen_with(
        &mut self,
        local: SocketAddr,
        listening: Listening,
    ) -> Result<ListenerId, ListenError> {
        let number = self.next_listener;
        self.next_listener = self.next_listener.wrapping_add(1);
        let Listening { backlog, v6_only, .. } = listening;
        self.command_of(Command::Listen, number, &record::Place { local, backlog, v6_only });
        self.listeners.push(Listener { number, waiting: VecDeque::new() });
        Ok(ListenerId::from_u64(number.into()))
    }

    /// Sets an option of all connections that will come to a listener.
    pub fn set_listener_option(&mut self, id: ListenerId, option: SocketOption) {
        if let Some(number) = self.listener(id).map(|listener| listener.number) {
            self.command_of(Command::ListenerOption, number, &option);
        }
    }

    /// Sets what a listener does with TCP Fast Open.
    pub fn open_fast_at(
        &mut self,
        id: ListenerId,
        listen: FastOpenListen,
        keys: Option<FastOpenKeys>,
    ) {
        if let Some(number) = self.listener(id).map(|listener| listener.number) {
            let fast_open = record::FastOpen { listen, keys };
            self.command_of(Command::ListenerFastOpen, number, &fast_open);
        }
    }

    /// Returns how many connections wait to be accepted.
    pub fn accept_waiting(&mut self, id: ListenerId) -> usize {
        self.listener(id).map_or(0, |listener| listener.waiting.len())
    }

    /// Accepts a connection.
    pub fn accept(&mut self, id: ListenerId) -> Option<SocketId> {
        let number = self.listener(id)?.waiting.pop_front()?;
        self.command(Command::Accept, number, &[]);
        Some(self.id(number))
    }

    /// Stops listening. Waiting connections go to others that listen there; if there are none they are reset.
    pub fn leave_listener(&mut self, id: ListenerId) {
        let is_it = |one: &Listener| u64::from(one.number) == id.as_u64();
        let Some(at) = self.listeners.iter().position(is_it) else { return };
        let listener = self.listeners.swap_remove(at);
        self.command(Command::LeaveListener, listener.number, &[]);
        self.leaving.push(listener);
    }

    /// Does the same as [`Attached::leave_listener`].
    pub fn close_listener(&mut self, _: Instant, id: ListenerId) {
        self.leave_listener(id);
    }

    fn listener(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.listeners.iter_mut().find(|one| u64::from(one.number) == id.as_u64())
    }

    /// Returns all connections that have an id.
    pub fn sockets(&self) -> impl Iterator<Item = SocketId> {
        let numbers = (0..).take(self.seats.len());
        let named = numbers.filter(|&number| self.seats[number as usize].mirror.is_some());
        named.map(|number| self.id(number))
    }

    /// Returns the configuration that a stack of one's own would begin with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns how many connections were made. What becomes of them only the instance counts.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
