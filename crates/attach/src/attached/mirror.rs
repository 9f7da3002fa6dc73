//! What the program keeps of a connection.

use std::collections::VecDeque;
use std::net::SocketAddr;

use uncork_stack::{ConnectionError, Ready, RecvError, State};

use crate::WINDOW_BYTES;
use crate::record::Ends;

/// Capacity that is kept for incoming octets while there are none.
const KEPT_BYTES: usize = 64 << 10;
/// How many octets must have been read before that is reported.
const REPORTED_BYTES: u32 = WINDOW_BYTES / 4;

/// A connection as its program sees it.
#[derive(Debug)]
pub(super) struct Mirror {
    pub(super) ends: Ends,
    pub(super) state: State,
    pub(super) incoming: VecDeque<u8>,
    /// The peer has sent its last octet.
    pub(super) ended: bool,
    /// It has not, and nothing more will come. The instance may still have octets of a connection that is over, which it has not
    /// passed on for want of room.
    pub(super) cut_off: bool,
    /// shutdown(2), for each direction.
    pub(super) closed_reading: bool,
    pub(super) closed_writing: bool,
    pub(super) error: Option<ConnectionError>,
    pub(super) linger_seconds: Option<u16>,
    /// How many octets were given to be sent, and how many may be in total.
    pub(super) written: u64,
    pub(super) allowed: u64,
    /// Sending was refused, and the instance has not said yet that it may go on.
    pub(super) wants_room: bool,
    /// Octets that were read and not yet reported to the instance.
    pub(super) unreported: u32,
}

impl Mirror {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr, opened: bool) -> Self {
        Self {
            ends: Ends { local, remote },
            state: if opened { State::SynSent } else { State::Established },
            incoming: VecDeque::new(),
            ended: false,
            cut_off: false,
            closed_reading: false,
            closed_writing: false,
            error: None,
            linger_seconds: None,
            written: 0,
            allowed: 0,
            wants_room: false,
            unreported: 0,
        }
    }

    /// Returns how many octets may be sent now.
    pub(super) fn room(&self) -> usize {
        usize::try_from(self.allowed.saturating_sub(self.written)).unwrap_or(usize::MAX)
    }

    /// Takes octets that have come; none at the end. Also returns how many read octets to report to the instance, if any.
    pub(super) fn receive(
        &mut self,
        into: &mut [u8],
        look: bool,
    ) -> Result<(usize, Option<u32>), RecvError> {
        if self.incoming.is_empty() {
            return self.nothing_to_read().map(|end| (end, None));
        }
        let (front, back) = self.incoming.as_slices();
        let first = front.len().min(into.len());
        into[..first].copy_from_slice(&front[..first]);
        let second = back.len().min(into.len() - first);
        into[first..first + second].copy_from_slice(&back[..second]);
        let taken = first + second;
        if look {
            return Ok((taken, None));
        }
        self.incoming.drain(..taken);
        if self.incoming.is_empty() && self.incoming.capacity() > KEPT_BYTES {
            self.incoming = VecDeque::new();
        }
        self.unreported = self.unreported.saturating_add(u32::try_from(taken).unwrap_or(u32::MAX));
        let tells = self.unreported >= REPORTED_BYTES || self.incoming.is_empty();
        Ok((taken, tells.then(|| std::mem::take(&mut self.unreported))))
    }

    fn nothing_to_read(&mut self) -> Result<usize, RecvError> {
        // A program that has read all there ever was has missed nothing: the error is for its writes.
        if self.ended {
            return Ok(0);
        }
        if !(self.cut_off || self.closed_reading) {
            return Err(RecvError::WouldBlock);
        }
        self.error.take().map_or(Ok(0), |error| Err(error.into()))
    }

    /// Returns the readiness as the stack defines it (`Stack::readiness`). `has_ring`: a command would find room in the ring.
    pub(super) fn readiness(&mut self, has_ring: bool) -> Ready {
        let failed = if self.error.is_some() { Ready::ERROR } else { Ready::default() };
        if !self.state.is_synchronised() && self.state != State::Closed {
            return failed;
        }
        let over = self.state == State::Closed;
        let ended_out = over || self.closed_writing || !self.state.may_send();
        let ended_in = over || self.ended || self.closed_reading;
        let writable = ended_out || has_ring && self.room() > 0;
        self.wants_room |= !writable;
        let readable = self.ended || self.closed_reading || self.cut_off;
        let holds = [
            (Ready::READABLE, readable || !self.incoming.is_empty()),
            (Ready::WRITABLE, writable),
            (Ready::CONNECTED, !over),
            (Ready::PEER_CLOSED, ended_in),
            (Ready::CLOSED, ended_in && ended_out),
            (Ready::DRAINED, matches!(self.state, State::FinWait2 | State::TimeWait)),
        ];
        holds.into_iter().filter(|(_, holds)| *holds).fold(failed, |ready, (one, _)| ready | one)
    }

    /// Ends the connection, as its instance is gone.
    pub(super) fn lose(&mut self) {
        if !matches!(self.state, State::Closed | State::TimeWait) {
            self.error = self.error.or(Some(ConnectionError::Reset));
        }
        self.state = State::Closed;
        self.cut_off = true;
    }
}
