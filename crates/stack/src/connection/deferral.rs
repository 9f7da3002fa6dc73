//! Deferred accept (TCP_DEFER_ACCEPT, tcp(7)): a connection is given to its user only when its first data has come. Until then
//! it stays in SYN-RECEIVED, and the ACK that would have completed the handshake is ignored.
//!
//! ```text
//! SYN ─▶ SYN-ACK ─▶ bare ACK: ignored ─▶ data, or a FIN ─▶ open
//!                       └─▶ no SYN-ACK again ─▶ the last timeout but one: once more ─▶ its ACK ─▶ open
//! ```
//!
//! The timeouts are those of the SYN-ACK, a second and doubled each time, whether or not it is sent again
//! (tcp_check_req and syn_ack_recalc of Linux).

use super::arrival::Segment;
use super::{Connection, Owed, State};
use crate::context::Context;
use crate::units::Micros;

/// State of deferred accept for one connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deferral {
    /// Number of timeouts during which an ACK without data is ignored (rskq_defer_accept).
    timeouts: u8,
    /// Timeouts at which the SYN-ACK was not sent again.
    sat_out: u8,
    /// An ACK was ignored.
    acknowledged: bool,
    /// A write waits for the connection.
    writer_waits: bool,
    /// Round-trip time of the handshake, if the SYN-ACK was sent only once.
    round_trip: Micros,
}

/// What to do at a timeout of the SYN-ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Send it again, or give the peer up.
    Ordinary,
    /// Nothing: the peer has acknowledged it.
    SitOut,
    /// Send it again in any case: its ACK completes the handshake, with data or without.
    Last,
}

impl Deferral {
    /// The state of a connection from a SYN cookie: no wait for data (cookie_v4_check), and the round-trip time is
    /// unknown, as the echoed timestamp has options in its low bits.
    pub(crate) fn of_cookie() -> Self {
        Self { acknowledged: true, ..Self::default() }
    }

    /// Sets the number of timeouts to wait.
    pub(crate) fn set(&mut self, timeouts: u8) {
        self.timeouts = timeouts;
    }

    /// Notes whether a write waits for the connection.
    pub(crate) fn note_writer(&mut self, waits: bool) {
        self.writer_waits = waits;
    }

    /// Returns whether the ACK of a SYN-ACK is left to the first data.
    pub(super) fn leaves_ack(self) -> bool {
        self.timeouts > 0 || self.writer_waits
    }

    /// Returns whether an ACK was ignored.
    pub(super) fn is_acknowledged(self) -> bool {
        self.acknowledged
    }

    /// Returns the round-trip time of the handshake, if it is known.
    pub(super) fn round_trip(self) -> Option<Micros> {
        (self.round_trip != Micros::ZERO).then_some(self.round_trip)
    }

    /// Returns the number of timeouts at which the SYN-ACK was not sent again.
    pub(super) fn sat_out(self) -> u8 {
        self.sat_out
    }
}

impl Connection {
    /// Returns the number of timeouts of the SYN-ACK so far.
    fn syn_ack_timeouts(&self) -> u8 {
        self.recovery.timeouts.saturating_add(self.deferral.sat_out)
    }

    /// Returns whether a segment only completes the handshake, and is ignored as data is waited for. A connection that its
    /// user already has (Fast Open) waits for nothing.
    pub(super) fn passes_over(&self, segment: &Segment<'_>) -> bool {
        self.listener.is_some()
            && !self.is_fast_child()
            && self.syn_ack_timeouts() < self.deferral.timeouts
            && segment.end() == self.receiver.irs + 1
    }

    /// Ignores such a segment, except for its round-trip time: the one measured when the connection opens would include the time
    /// that the peer's program has taken.
    pub(super) fn pass_over(&mut self, cx: &Context, echo: Option<u32>) {
        if let Some(round_trip) = self.handshake_round_trip(cx, echo) {
            self.deferral.round_trip = round_trip.max(Micros(1));
        }
        self.deferral.acknowledged = true;
        // A SYN-ACK that was owed once more is no longer needed.
        self.owed.clear(Owed::SYN_ACK);
    }

    /// Decides what to do at a timeout of the SYN-ACK (syn_ack_recalc).
    pub(super) fn turn_of_syn_ack(&self) -> Turn {
        let last = self.deferral.timeouts.saturating_sub(1);
        if self.state != State::SynReceived || !self.deferral.acknowledged {
            return Turn::Ordinary;
        }
        match self.syn_ack_timeouts() {
            timeouts if timeouts < last => Turn::SitOut,
            timeouts if timeouts < self.deferral.timeouts => Turn::Last,
            _ => Turn::Ordinary,
        }
    }

    /// Passes a timeout without sending the SYN-ACK again.
    pub(super) fn sit_out(&mut self, cx: &Context) {
        self.deferral.sat_out = self.deferral.sat_out.saturating_add(1);
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        self.start_handshake_timer(cx);
    }

    /// Ends the wait for data: the connection opens as soon as its peer has acknowledged.
    pub(crate) fn open_deferred(&mut self, cx: &mut Context) {
        self.deferral.timeouts = 0;
        if self.state == State::SynReceived && self.deferral.acknowledged {
            self.end_handshake(cx, None);
        }
    }
}
