//! The user's operations on a connection: sending, receiving, closing (RFC 9293 §3.10.2 to §3.10.5).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::population::Counted;
use super::send::ends::Course;
use super::{Cause, Connection, Fast, Owed, State};
use crate::context::Context;
use crate::event::Ready;

/// Why a connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
pub enum ConnectionError {
    /// A reset answered the SYN: nobody listens there.
    #[error("the peer refused the connection")]
    Refused,
    /// A reset was received.
    #[error("the peer reset the connection")]
    Reset,
    /// A reset was received after the peer's FIN: the peer accepts nothing any more (tcp_reset).
    #[error("the peer has closed the connection and takes nothing any more")]
    Broken,
    /// The peer has not answered for too long.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The user has aborted it.
    #[error("the connection was aborted")]
    Aborted,
    /// ICMP reported an unreachable host, and the connection was not open yet or timed out; so with the variants below.
    #[error("the peer's host cannot be reached")]
    Unreachable,
    /// The peer's network is unreachable.
    #[error("the peer's network cannot be reached")]
    NetworkUnreachable,
    /// A router or firewall prohibits the traffic.
    #[error("the way to the peer is forbidden")]
    Prohibited,
    /// There is no such host.
    #[error("there is no such host")]
    HostUnknown,
    /// The peer's host has no TCP.
    #[error("the peer's host has no TCP")]
    NoProtocol,
    /// A router or the peer's host could not process a header.
    #[error("a header was not understood on the way to the peer")]
    Protocol,
}

/// Why no data was accepted for sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SendError {
    /// There is no such connection.
    #[error("no such connection")]
    NoSocket,
    /// The buffer is full: wait until it is writable.
    #[error("the send buffer is full")]
    WouldBlock,
    /// This side has closed, or the connection is over.
    #[error("this side of the connection is closed")]
    Closed,
    /// The connection failed.
    #[error(transparent)]
    Failed(#[from] ConnectionError),
}

/// Why no data was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecvError {
    /// There is no such connection.
    #[error("no such connection")]
    NoSocket,
    /// There is no data: wait until it is readable.
    #[error("nothing to be read")]
    WouldBlock,
    /// The connection failed.
    #[error(transparent)]
    Failed(#[from] ConnectionError),
}

/// The user's side of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct User {
    /// The user has not released it; an orphan lives only until its peer has finished.
    pub(crate) attached: bool,
    /// The user reads no more.
    pub(crate) closed_reading: bool,
    /// The user holds back the output.
    pub(crate) held: bool,
    /// Some output was held back.
    pub(crate) held_back: bool,
    /// The user was refused room in the send buffer, and waits to be told when there is some.
    pub(crate) wants_room: bool,
    /// The error of a failed connection, until the user has fetched it.
    error: Option<ConnectionError>,
    /// Readiness that the user has yet to be told of.
    pub(crate) news: Ready,
    /// How it is counted once its user has closed it.
    pub(crate) counted: Counted,
    /// It is in the queue of connections with news.
    pub(crate) in_news: bool,
    /// It is in the queue of connections with something to send.
    pub(crate) in_ready: bool,
    /// The current output continues a burst that began when the device held nothing of this connection.
    pub(crate) goes_on: bool,
}

impl User {
    pub(crate) fn note_end(&mut self, error: Option<ConnectionError>) {
        self.error = self.error.or(error);
        self.news |= Ready::READABLE | Ready::WRITABLE | Ready::CLOSED;
        if error.is_some() {
            self.news |= Ready::ERROR;
        }
    }

    /// Returns the error, unless it was fetched.
    pub(crate) fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// Returns the error once (SO_ERROR).
    pub(crate) fn take_error(&mut self) -> Option<ConnectionError> {
        self.error.take()
    }

    /// Puts back an error that could not be reported, for the next caller that asks.
    pub(crate) fn put_back_error(&mut self, error: ConnectionError) {
        self.error = Some(error);
    }
}

impl Connection {
    /// Queues bytes to be sent, as many as there is room for (RFC 9293 §3.10.2).
    pub(crate) fn send(
        &mut self,
        cx: &mut Context,
        bytes: &[u8],
        more: bool,
    ) -> Result<usize, SendError> {
        self.check_sending()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut room = self.send_room(cx) as usize;
        if self.fast.has(Fast::DEFERRED) {
            // The rest is taken when the handshake is over (tcp_send_syn_data).
            room = room.min(self.syn_room(cx) as usize);
            self.launch();
        }
        if room == 0 {
            self.user.wants_room = true;
            return Err(SendError::WouldBlock);
        }
        let taken = bytes.len().min(room);
        self.user.wants_room = taken < bytes.len();
        // A write that is cut short will be continued; `more` is taken as given.
        self.queue(cx, &bytes[..taken], more);
        Ok(taken)
    }

    /// Queues all bytes, as was promised, whatever room there is now.
    pub(crate) fn send_promised(
        &mut self,
        cx: &mut Context,
        bytes: &[u8],
        more: bool,
    ) -> Result<(), SendError> {
        self.check_sending()?;
        if !bytes.is_empty() {
            self.queue(cx, bytes, more);
        }
        Ok(())
    }

    /// Returns whether there is no room now, but may be later.
    pub(crate) fn has_no_room(&self, cx: &Context) -> bool {
        let goes_on = self.state.is_synchronised() && self.state.may_send();
        let may_give = goes_on && !self.sender.fin_queued && self.user.error().is_none();
        may_give && self.send_room(cx) == 0
    }

    fn check_sending(&mut self) -> Result<(), SendError> {
        if let Some(error) = self.user.take_error() {
            return Err(error.into());
        }
        let may = self.state.may_send() && !self.sender.fin_queued;
        if may { Ok(()) } else { Err(SendError::Closed) }
    }

    /// Marks the flow as application-limited if the window is not full when the user queues data (tcp_rate_check_app_limited).
    #[inline(always)]
    pub(super) fn note_limit(&mut self) {
        let Self { sender, device, congestion, .. } = self;
        let flight = &mut sender.flight;
        if device.bytes() == 0
            && flight.in_flight() < congestion.window
            && flight.lost_segments() <= flight.retransmitted_segments()
            && sender.end - sender.nxt < i32::from(self.segment)
        {
            flight.note_limit(self.counts.delivered);
        }
    }

    fn queue(&mut self, cx: &mut Context, bytes: &[u8], more: bool) {
        self.note_limit();
        let long = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if self.sender.is_long(long) && self.state.is_synchronised() {
            self.sender.mark_pushes(long, self.course(cx));
        }
        let more = more && !self.is_full_below_a_segment(cx, long);
        self.sender.push(bytes, more, &mut cx.pool);
    }

    /// Returns whether `more` octets fill the send buffer with less than a segment while nothing is in flight: a user that holds
    /// it back for more data would wait for room first (tcp_sendmsg pushes without MSG_MORE before it waits).
    fn is_full_below_a_segment(&self, cx: &Context, more: u32) -> bool {
        let all = self.sender.queued_bytes().saturating_add(more);
        self.sender.flight.is_empty() && all < self.segment_bytes() && self.free_bytes(cx) <= more
    }

    /// Returns the free bytes of the send buffer.
    fn free_bytes(&self, cx: &Context) -> u32 {
        self.send_limit(cx).saturating_sub(self.sender.queued_bytes())
    }

    pub(crate) fn send_room(&self, cx: &Context) -> u32 {
        let room = self.free_bytes(cx);
        match self.options.not_sent_low_water {
            // New trains are begun while less than that is unsent, and then filled (tcp_sendmsg and
            // sk_stream_memory_free).
            Some(bytes) => {
                let train = self.most_train_bytes();
                let unsent = self.sender.unsent_bytes();
                let begun = unsent.max(bytes).next_multiple_of(train);
                room.min(begun.saturating_sub(unsent))
            }
            None => room,
        }
    }

    /// Returns the largest train: half of the peer's largest window, in whole segments
    /// (tcp_xmit_size_goal).
    fn most_train_bytes(&self) -> u32 {
        let mss = self.segment_bytes();
        let bytes = (self.sender.max_window / 2).min(u32::from(u16::MAX));
        (bytes / mss * mss).max(mss)
    }

    /// Returns what could leave now, as far as the windows, the pacer and the device queue are concerned.
    fn course(&self, cx: &Context) -> Course {
        let room = self.sender.window_room() / self.segment_bytes() * self.segment_bytes();
        let frame = self.next_frame_bytes(cx).min(room);
        let window = self.congestion.window.saturating_sub(self.in_flight());
        let room =
            if frame == 0 { 0 } else { room.min(window.saturating_mul(self.segment_bytes())) };
        Course { buffer: self.most_train_bytes(), frame, room }
    }

    /// Returns whether the user is told that it can write: when a third of the buffer is free, so that
    /// not every ACK wakes it (sk_stream_is_writeable).
    pub(crate) fn is_writable(&self, cx: &Context) -> bool {
        if !self.state.may_send() || self.sender.fin_queued {
            return false;
        }
        let room = self.free_bytes(cx);
        // Well below the mark, not just below it (tcp_stream_memory_free).
        let low_water = self.options.not_sent_low_water;
        if low_water.is_some_and(|bytes| self.sender.unsent_bytes() > bytes / 2) {
            return false;
        }
        room > 0 && room >= self.sender.queued_bytes() / 2
    }

    /// Queues the event that there is room, if the user waits for it; returns whether it did.
    pub(crate) fn tell_of_room(&mut self, cx: &Context) -> bool {
        let tells = self.user.wants_room && self.is_writable(cx);
        if tells {
            self.user.wants_room = false;
            self.user.news |= Ready::WRITABLE;
        }
        tells
    }

    /// Copies received bytes to the user, and removes them unless it only peeks
    /// (RFC 9293 §3.10.3). Zero means that the peer's FIN has been reached.
    pub(crate) fn recv(
        &mut self,
        cx: &mut Context,
        into: &mut [u8],
        look: bool,
    ) -> Result<usize, RecvError> {
        let (front, back) = self.receiver.readable();
        if front.is_empty() {
            return self.nothing_to_read();
        }
        let first = front.len().min(into.len());
        into[..first].copy_from_slice(&front[..first]);
        let second = back.len().min(into.len() - first);
        if second > 0 {
            into[first..first + second].copy_from_slice(&back[..second]);
        }
        let bytes = first + second;
        if !look {
            self.on_read(cx, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        Ok(bytes)
    }

    fn nothing_to_read(&mut self) -> Result<usize, RecvError> {
        // A reader that has read everything up to the FIN missed nothing (SOCK_DONE): the error is for a writer.
        if self.receiver.is_finished() {
            return Ok(0);
        }
        if let Some(error) = self.user.take_error() {
            return Err(error.into());
        }
        let over = self.user.closed_reading || self.state == State::Closed;
        if over { Ok(0) } else { Err(RecvError::WouldBlock) }
    }

    /// Returns whether receiving would return at once, with data, the end of the stream or an error.
    pub(crate) fn is_readable(&self) -> bool {
        self.receiver.readable_bytes() > 0
            || self.receiver.is_finished()
            || self.user.closed_reading
            || self.state == State::Closed
    }

    /// Handles a read of `bytes` octets: the window opens, and perhaps an ACK is worth sending.
    pub(crate) fn on_read(&mut self, cx: &mut Context, bytes: u32) {
        self.receiver.consume(bytes, &mut cx.pool);
        self.after_read(cx);
    }

    /// Tunes the receive buffer after a read, and decides on an ACK.
    #[inline(always)]
    pub(super) fn after_read(&mut self, cx: &Context) {
        if self.options.receive_buffer_bytes.is_none() && !cx.pool.is_short() {
            // The receiver's estimate, not the one from ACKs: a side that only receives has had that from the handshake alone.
            let round_trip = self.receiver.round_trip.known();
            let most = cx.config.receive_buffer_bytes.1;
            self.receiver.tune(cx.now, round_trip, self.ack.segment_bytes(), most);
        }
        if !self.state.may_receive() {
            return;
        }
        let unacknowledged = (self.receiver.nxt - self.receiver.acknowledged).unsigned_abs();
        let drained = self.receiver.readable_bytes() == 0;
        self.ack.on_read(unacknowledged, drained, cx.config.hands_on);
        // A window that has become twice as large is worth announcing (tcp_cleanup_rbuf).
        let left = self.receiver.window_left();
        if left <= self.receiver.limit / 2 {
            let shift = self.peer.receive_shift;
            let offer = self.receiver.window_to_offer(self.ack.segment_bytes(), shift);
            if offer > 0 && offer >= left.saturating_mul(2) {
                self.ack.demand();
            }
        }
    }

    /// Returns whether the peer has not answered the SYN yet.
    pub(crate) fn is_connecting(&self) -> bool {
        self.state == State::SynSent
    }

    /// Gives up connecting; a user that waits for the connection is told (`inet_shutdown`, `tcp_disconnect`).
    pub(crate) fn give_up(&mut self, cx: &mut Context) {
        self.finish(Cause::Close, Some(ConnectionError::Reset), cx);
    }

    /// Closes the sending direction (shutdown(SHUT_WR), RFC 9293 §3.10.4).
    pub(crate) fn shut_sending(&mut self, cx: &mut Context) {
        if self.state == State::SynSent {
            self.finish(Cause::Close, None, cx);
            return;
        }
        if self.change_state(Cause::Close) || self.state == State::SynReceived {
            self.sender.fin_queued = true;
            self.sender.more = false;
            self.sender.hurry();
        }
    }

    /// Returns whether a close resets the connection: received data is unread, and the peer must learn of that (RFC 2525 §2.17,
    /// RFC 9293 §3.6.1), or the linger time is zero.
    pub(crate) fn close_resets(&self) -> bool {
        self.state.is_synchronised()
            && (self.receiver.readable_bytes() > 0 || self.options.linger_seconds == Some(0))
    }

    pub(crate) fn close(&mut self, cx: &mut Context) {
        self.user.attached = false;
        self.user.closed_reading = true;
        // Nobody is left who could release it.
        self.user.held = false;
        if self.state == State::Closed {
            return;
        }
        let open = self.state.is_synchronised() || self.is_fast_child();
        if self.receiver.readable_bytes() > 0 && open {
            self.owed.add(Owed::RESET);
            self.finish(Cause::Abort, Some(ConnectionError::Aborted), cx);
            return;
        }
        if self.options.linger_seconds == Some(0) {
            // Only after the check for unread data (tcp_close); a connection that is over stays so.
            if self.state != State::TimeWait {
                self.abort(cx);
            }
            return;
        }
        self.shut_sending(cx);
        self.become_orphan(cx);
        // Nobody will read what still arrives: the wait for the peer's FIN is bounded.
        self.arm_idle_timer(cx);
    }

    /// Begins a close that the user waits for (SO_LINGER), and returns how long it waits; none
    /// if there is nothing to wait for.
    pub(crate) fn begin_close(&mut self, cx: &mut Context) -> Option<Duration> {
        let seconds = self.options.linger_seconds.filter(|&seconds| seconds > 0)?;
        if self.receiver.readable_bytes() > 0 {
            return None;
        }
        self.shut_sending(cx);
        let waits = !matches!(self.state, State::Closed | State::FinWait2 | State::TimeWait);
        waits.then(|| Duration::from_secs(seconds.into()))
    }

    /// Aborts the connection (ABORT, RFC 9293 §3.10.5).
    pub(crate) fn abort(&mut self, cx: &mut Context) {
        let tells = self.state.is_synchronised() && self.state != State::TimeWait
            || self.state == State::SynReceived;
        if tells {
            self.owed.add(Owed::RESET);
        }
        self.finish(Cause::Abort, Some(ConnectionError::Aborted), cx);
    }

    /// Ends the connection without telling the peer.
    pub(crate) fn forget(&mut self, cx: &mut Context) {
        self.finish(Cause::Abort, Some(ConnectionError::Aborted), cx);
    }

    /// Returns whether neither the peer nor the user needs it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_over() && !self.user.attached
    }

    /// Returns whether the peer needs it no more.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Closed && !self.owed.has(Owed::RESET)
    }
}
