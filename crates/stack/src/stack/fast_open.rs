//! Fast Open as the user sees it, and the handling of its SYNs at listeners.

use std::net::SocketAddr;
use std::time::Duration;

use uncork_packet::Instant;

use super::{News, Stack};
use crate::connection::arrival::Segment;
use crate::connection::{Fast, State};
use crate::demux::Tuple;
use crate::fast_open::{FastOpen, FastOpenKeys, FastOpenListen, Judgement};
use crate::handle::{ListenerId, SocketId};
use crate::stack::ConnectError;

/// How long a connection that was reset before its handshake was complete counts as pending: this
/// limits an attacker that spoofs addresses with cookies that it has obtained (RFC 7413 §5.1,
/// reqsk_fastopen_remove).
const RESET_COUNTS: Duration = Duration::from_secs(60);

/// How an active open with Fast Open began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FastConnect {
    /// The SYN waits for the first bytes that are sent, and carries them: to the user the connection
    /// seems to be open.
    Deferred(SocketId),
    /// No cookie is known, and the SYN requests one: an ordinary handshake is under way.
    Begun(SocketId),
}

impl FastConnect {
    /// Returns the connection.
    #[must_use]
    pub fn socket(self) -> SocketId {
        match self {
            Self::Deferred(socket) | Self::Begun(socket) => socket,
        }
    }
}

impl Stack {
    /// Begins a connection whose SYN carries data, if a cookie of the peer is known or none is
    /// needed (TCP_FASTOPEN_CONNECT; followed directly by [`Stack::send`] it is MSG_FASTOPEN). The first
    /// [`Stack::send`] takes no more than fits into the SYN. `without_cookie` is
    /// TCP_FASTOPEN_NO_COOKIE.
    ///
    /// Data in a SYN may reach the server program twice, if the SYN is duplicated and that program
    /// restarts in between (RFC 7413 §2.1).
    ///
    /// # Errors
    ///
    /// [`ConnectError`]: with [`ConnectError::NoFastOpen`] if the stack has it switched off.
    pub fn connect_fast(
        &mut self,
        now: Instant,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        without_cookie: bool,
    ) -> Result<FastConnect, ConnectError> {
        if !self.shared.fast_open.switches.has(FastOpen::CLIENT) {
            return Err(ConnectError::NoFastOpen);
        }
        let place = self.begin(now, local, remote)?;
        let connection = self.connections.get_mut(place).ok_or(ConnectError::AddressInUse)?;
        let cx = self.shared.at(now);
        let waits = connection.open_fast(cx, without_cookie);
        let id = connection.id;
        self.settle(place);
        Ok(if waits { FastConnect::Deferred(id) } else { FastConnect::Begun(id) })
    }

    /// Sends a SYN that waits for data without any (sendto of nothing with MSG_FASTOPEN).
    pub fn launch(&mut self, now: Instant, socket: SocketId) {
        self.with(now, socket, |connection, _| connection.launch());
    }

    /// Returns whether the SYN waits for data.
    #[must_use]
    pub fn is_deferred(&self, socket: SocketId) -> bool {
        self.get(socket).is_some_and(|connection| connection.fast.has(Fast::DEFERRED))
    }

    /// Sets which parts of Fast Open are switched on (tcp_fastopen).
    pub fn set_fast_open(&mut self, switches: FastOpen) {
        self.shared.fast_open.switches = switches;
    }

    /// Returns the parts of Fast Open that are switched on.
    #[must_use]
    pub fn fast_open(&self) -> FastOpen {
        self.shared.fast_open.switches
    }

    /// Sets the keys of the cookies that are issued: a listener's own (TCP_FASTOPEN_KEY), or those of all
    /// other listeners (tcp_fastopen_key). The default is derived from the stack's seed.
    pub fn set_fast_open_keys(&mut self, listener: Option<ListenerId>, keys: FastOpenKeys) {
        self.shared.fast_open.set_keys(listener, keys);
    }

    /// Returns the keys in use.
    #[must_use]
    pub fn fast_open_keys(&self, listener: Option<ListenerId>) -> FastOpenKeys {
        *self.shared.fast_open.keys(listener)
    }

    /// Forgets the cookies received from peers (`ip tcp_metrics flush`).
    pub fn forget_fast_open_cookies(&mut self) {
        self.shared.fast_open.cache.clear();
    }

    /// Sets whether, and how, a listener takes data from SYNs (TCP_FASTOPEN).
    pub fn set_listener_fast_open(&mut self, listener: ListenerId, listen: FastOpenListen) {
        if let Some(listener) = self.listeners.get(listener) {
            listener.fast_open.listen = listen;
        }
    }

    /// Sets a listener's Fast Open settings, and its own keys, if it is to have any.
    pub fn open_fast_at(
        &mut self,
        listener: ListenerId,
        listen: FastOpenListen,
        keys: Option<FastOpenKeys>,
    ) {
        self.set_listener_fast_open(listener, listen);
        if let Some(keys) = keys {
            self.set_fast_open_keys(Some(listener), keys);
        }
    }

    /// Decides how to treat a SYN that may use Fast Open.
    pub(super) fn judge_fast_open(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        id: ListenerId,
    ) -> Judgement {
        let Some(listener) = self.listeners.get(id) else { return Judgement::Ordinary };
        let shared = &mut self.shared;
        let cookie = segment.options.fast_open;
        let request = cookie.is_some_and(|cookie| cookie.is_request());
        shared.counters.fast_open_requests += u64::from(request);
        let switches = shared.fast_open.switches;
        let concerns = cookie.is_some() || !segment.data.is_empty();
        let listen = listener.fast_open_listen(switches);
        if !switches.has(FastOpen::SERVER) || !concerns || listen.pending == 0 {
            return Judgement::Ordinary;
        }
        if !listener.fast_open.has_room(listen, now) {
            shared.counters.fast_open_overflows += 1;
            return Judgement::Ordinary;
        }
        let has_data = !segment.data.is_empty();
        let judgement = shared.fast_open.judge((id, listen), tuple, cookie, has_data);
        let bad = judgement == Judgement::Give && !request;
        shared.counters.fast_open_passive_failed += u64::from(bad);
        judgement
    }

    /// Completes the handling of an accepted SYN: takes its data, or prepares a cookie for the next time.
    pub(super) fn answer_fast(
        &mut self,
        now: Instant,
        place: u32,
        segment: &Segment<'_>,
        answer: Judgement,
    ) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let cx = self.shared.at(now);
        connection.answer_fast(cx, segment, answer);
        let Some(listener) = connection.listener.and_then(|id| self.listeners.get(id)) else {
            return;
        };
        if connection.fast.has(Fast::CHILD) {
            listener.fast_open.pending += 1;
            listener.queue(connection.id);
            self.news.push_back(News::Incoming(listener.id));
        } else {
            listener.handshakes += 1;
        }
        self.settle(place);
    }

    /// Puts a Fast Open connection that waits to be accepted back into the SYN queue until its handshake is complete, like any
    /// other: its next owner can do nothing with it before then.
    pub(super) fn slow_down(&mut self, place: u32) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        if !connection.is_fast_child() || connection.fast.has(Fast::ACCEPTED) {
            return;
        }
        let Some(listener) = connection.listener.and_then(|id| self.listeners.get(id)) else {
            return;
        };
        listener.take_back(connection.id);
        listener.handshakes += 1;
        listener.fast_open.handshake_over(None);
        connection.fast.clear(Fast::CHILD);
        connection.user.attached = false;
        // No further wait for data (TCP_DEFER_ACCEPT): it could have been accepted already.
        connection.deferral.set(0);
    }

    /// Updates a Fast Open connection of a listener if its handshake is now over.
    pub(super) fn settle_fast_child(&mut self, place: u32) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        if connection.state == State::SynReceived {
            return;
        }
        connection.fast.clear(Fast::CHILD);
        let accepted = connection.fast.has(Fast::ACCEPTED);
        let Some(listener) = connection.listener.and_then(|id| self.listeners.get(id)) else {
            return;
        };
        let reset = accepted && connection.was_reset();
        let until = connection.counts.last_heard + RESET_COUNTS;
        listener.fast_open.handshake_over(reset.then_some(until));
        if accepted {
            connection.listener = None;
        }
    }
}
