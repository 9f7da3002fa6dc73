//! A connection that came is its user's when its first data has come (TCP_DEFER_ACCEPT, tcp(7)): until then it
//! stays in SYN-RECEIVED, and the ACK that would have opened it is passed over.
//!
//! ```text
//! SYN ─▶ SYN-ACK ─▶ bare ACK: passed over ─▶ data, or a FIN ─▶ open
//!                       └─▶ no SYN-ACK again ─▶ the last timeout but one: once more ─▶ its ACK ─▶ open
//! ```
//!
//! Timeouts are those of the SYN-ACK, a second and twice as long each time, whether it is sent again or not
//! (tcp_check_req and syn_ack_recalc of Linux).

use super::arrival::Segment;
use super::{Connection, Owed, State};
use crate::context::Context;
use crate::units::Micros;

/// What of it concerns one connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deferral {
    /// For so many timeouts an ACK without data is passed over (rskq_defer_accept).
    timeouts: u8,
    /// Timeouts at which the SYN-ACK was not sent again.
    sat_out: u8,
    /// An ACK was passed over.
    acknowledged: bool,
    /// A write waits for the connection.
    writer_waits: bool,
    /// How long it took, if the SYN-ACK was sent once.
    round_trip: Micros,
}

/// What becomes of a SYN-ACK whose timeout has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is sent again, or the peer given up.
    Ordinary,
    /// Nothing: the peer has it.
    SitOut,
    /// It is sent again in any case: its ACK opens the connection, with data or without.
    Last,
}

impl Deferral {
    /// Of what begins with the ACK of a cookie: data is not waited for (cookie_v4_check), and how long it took nobody
    /// knows, as what it echoes has options in its low bits.
    pub(crate) fn of_cookie() -> Self {
        Self { acknowledged: true, ..Self::default() }
    }

    /// Until so many timeouts.
    pub(crate) fn set(&mut self, timeouts: u8) {
        self.timeouts = timeouts;
    }

    /// A write waits for the connection, or does not any more.
    pub(crate) fn note_writer(&mut self, waits: bool) {
        self.writer_waits = waits;
    }

    /// Whether the ACK of a SYN-ACK is left to data.
    pub(super) fn leaves_ack(self) -> bool {
        self.timeouts > 0 || self.writer_waits
    }

    /// Whether an ACK was passed over.
    pub(super) fn is_acknowledged(self) -> bool {
        self.acknowledged
    }

    /// Its round trip, if that is known.
    pub(super) fn round_trip(self) -> Option<Micros> {
        (self.round_trip != Micros::ZERO).then_some(self.round_trip)
    }

    /// Timeouts at which the SYN-ACK was not sent again.
    pub(super) fn sat_out(self) -> u8 {
        self.sat_out
    }
}

impl Connection {
    /// Timeouts of its SYN-ACK so far.
    fn syn_ack_timeouts(&self) -> u8 {
        self.recovery.timeouts.saturating_add(self.deferral.sat_out)
    }

    /// Whether the last segment of its handshake is one that data is waited for instead of. One that is its user's
    /// already waits for nothing.
    pub(super) fn passes_over(&self, segment: &Segment<'_>) -> bool {
        self.listener.is_some()
            && !self.is_fast_child()
            && self.syn_ack_timeouts() < self.deferral.timeouts
            && segment.end() == self.receiver.irs + 1
    }

    /// Such a segment has come. Its round trip counts: the one that opens the connection tells how long the peer's
    /// program has taken.
    pub(super) fn pass_over(&mut self, cx: &Context, echo: Option<u32>) {
        if let Some(round_trip) = self.handshake_round_trip(cx, echo) {
            self.deferral.round_trip = round_trip.max(Micros(1));
        }
        self.deferral.acknowledged = true;
        // It was sent, if it was asked for once more.
        self.owed.clear(Owed::SYN_ACK);
    }

    /// The timeout of a SYN-ACK has come (syn_ack_recalc).
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

    /// The SYN-ACK is not sent again.
    pub(super) fn sit_out(&mut self, cx: &Context) {
        self.deferral.sat_out = self.deferral.sat_out.saturating_add(1);
        self.rtt.backoff = self.rtt.backoff.saturating_add(1);
        self.start_handshake_timer(cx);
    }

    /// Its data is waited for no longer: it opens as soon as its peer has acknowledged.
    pub(crate) fn open_deferred(&mut self, cx: &mut Context) {
        self.deferral.timeouts = 0;
        if self.state == State::SynReceived && self.deferral.acknowledged {
            self.end_handshake(cx, None);
        }
    }
}
