//! Loss detection and recovery.
//!
//! [`flight`] keeps track of what is in flight, [`rack`] finds by time what of it is lost, [`prr`] says how many
//! segments an ACK releases while the window is reduced, [`rtt`] has the retransmission timeout for when no ACK
//! comes at all, and a tail loss probe ([`Probe`]) avoids most of those timeouts.

pub(crate) mod flight;
pub(crate) mod frto;
pub(crate) mod judging;
pub(crate) mod prr;
pub(crate) mod rack;
mod record;
mod records;
pub(crate) mod rtt;

use serde::{Deserialize, Serialize};
use uncork_packet::Instant;
use uncork_wire::SeqNumber;

pub(crate) use flight::{Delivered, Flight};
use frto::Doubt;
pub(crate) use frto::Evidence;
use prr::Prr;
use rack::Rack;
pub(crate) use record::{Passed, Record};
pub(crate) use records::List;
pub(crate) use rtt::{Bounds, Rtt};

use super::congestion::Congestion;
use crate::units::MaybeInstant;

/// State of congestion control. The names are Linux's (tcp_ca_state).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Phase {
    /// No sign of trouble.
    #[default]
    Open,
    /// Something arrived out of order or twice, and the reason is not yet known.
    Disorder,
    /// The window is being reduced because of an ECN mark, not a loss.
    Reduced,
    /// Fast recovery: lost segments are retransmitted.
    Recovery,
    /// A retransmission timeout has expired: everything in flight counts as lost.
    Loss,
}

/// A tail loss probe (RFC 8985 §7).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    /// SND.NXT when it was sent (TLP.end_seq).
    pub(crate) end: SeqNumber,
    /// Whether it was a retransmission (TLP.is_retrans).
    pub(crate) repeats: bool,
}

/// State to restore if a recovery turns out to be spurious (RFC 3522, RFC 3708).
#[derive(Debug, Clone, Copy)]
struct Before {
    /// SND.UNA at that time: duplicates reported below it were retransmitted for another reason.
    una: SeqNumber,
    window: u32,
    threshold: u32,
    /// Retransmitted segments that were not reported as duplicates.
    unexplained: u32,
    /// Timestamp clock at the first retransmission; none before that.
    first_stamp: Option<u32>,
}

/// State of loss recovery.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    /// F-RTO's state: whether the timeout was genuine.
    doubt: Doubt,
    /// SND.NXT when the phase began, which ends when that is acknowledged (RecoveryPoint). After a phase, SND.NXT at its end.
    point: SeqNumber,
    pub(crate) rack: Rack,
    prr: Prr,
    /// Duplicate ACKs from a peer without SACK: each stands for a segment that has left the network.
    pub(crate) duplicates: u32,
    pub(crate) probe: Option<Probe>,
    before: Option<Before>,
    /// Consecutive timeouts without progress.
    pub(crate) timeouts: u8,
    /// When the latest progress was made, or the first segment was sent: the retransmission timeout counts from there.
    pub(crate) progress_at: Instant,
    /// Since when there is no progress: after timeouts since the last progress (RFC 9293 §3.8.3 counts from there), with a zero
    /// window since that was first noticed (icsk_probes_tstamp).
    pub(crate) stuck_since: MaybeInstant,
    /// The SYN-ACK was sent again because the SYN came again.
    pub(crate) answered_again: bool,
}

impl Recovery {
    /// Returns whether lost data is being retransmitted.
    pub(crate) fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovery | Phase::Loss)
    }

    /// Returns whether there is no trouble, no probe, and no recovery that may have to be undone.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.phase == Phase::Open
            && self.duplicates == 0
            && self.probe.is_none()
            && self.before.is_none()
    }

    /// Enters fast recovery: the window is reduced, and lost data is retransmitted.
    pub(crate) fn enter(
        &mut self,
        (una, next): (SeqNumber, SeqNumber),
        congestion: &mut Congestion,
    ) {
        // A mark in the same window has already reduced it.
        if self.phase != Phase::Reduced {
            self.remember(una, congestion);
            self.prr = Prr::new(congestion.window);
            congestion.on_congestion();
        }
        self.phase = Phase::Recovery;
        self.point = next;
        self.probe = None;
    }

    /// Enters the reduction after a router has marked packets instead of dropping them (RFC 3168 §6.1.2).
    pub(crate) fn enter_reduced(&mut self, next: SeqNumber, congestion: &mut Congestion) {
        if !matches!(self.phase, Phase::Open | Phase::Disorder) {
            return;
        }
        // A mark is no guess, so this reduction is never undone.
        self.before = None;
        self.prr = Prr::new(congestion.window);
        congestion.on_congestion();
        self.phase = Phase::Reduced;
        self.point = next;
    }

    fn remember(&mut self, una: SeqNumber, congestion: &Congestion) {
        self.before = Some(Before {
            una,
            window: congestion.window,
            threshold: congestion.threshold,
            unexplained: 0,
            first_stamp: None,
        });
    }

    /// Enters the loss phase after a timeout. `again` says that it is not the first one for what is in flight.
    pub(crate) fn enter_loss(
        &mut self,
        (una, next): (SeqNumber, SeqNumber),
        congestion: &mut Congestion,
        again: bool,
    ) {
        // An earlier event in the same window has already reduced it, and left PRR's momentary window (tcp_enter_loss). But a
        // timeout for what no timeout has repeated yet is a new one: the loss of retransmissions at the rate of slow start (RFC
        // 5681 §3.1, equation 4).
        let calm = matches!(self.phase, Phase::Open | Phase::Disorder);
        let anew = self.phase == Phase::Loss && !again;
        if calm || anew || !self.point.after(una) {
            self.remember(una, congestion);
            congestion.on_congestion();
        }
        // RFC 5682 §2.1, step 1: not if something was already retransmitted for another reason.
        let doubtful = !self.is_recovering() || again;
        self.doubt = if doubtful { Doubt::Fired } else { Doubt::None };
        congestion.on_timeout();
        congestion.window = 1;
        self.phase = Phase::Loss;
        self.point = next;
        self.duplicates = 0;
        self.probe = None;
    }

    /// Enters the loss phase to retransmit what is in flight although there was no congestion: the
    /// window stays.
    pub(crate) fn enter_resending(&mut self, next: SeqNumber) {
        self.phase = Phase::Loss;
        self.doubt = Doubt::None;
        self.point = next;
        self.before = None;
        self.probe = None;
    }

    /// Notes a retransmission.
    pub(crate) fn on_retransmission(&mut self, segments: u32, stamp: u32) {
        self.prr.on_sent(segments);
        if let Some(before) = &mut self.before {
            before.unexplained += segments;
            before.first_stamp.get_or_insert(stamp);
        }
    }

    /// Notes new data that was sent during recovery.
    pub(crate) fn on_new_data(&mut self, segments: u32) {
        self.prr.on_sent(segments);
    }

    /// Handles a D-SACK for `segments` that end at `right`, with the current SND.UNA and SND.NXT. Returns whether all
    /// retransmissions have now been reported as duplicates, so that the recovery was spurious (RFC 3708 §2).
    pub(crate) fn on_duplicate_report(
        &mut self,
        (una, next): (SeqNumber, SeqNumber),
        segments: u32,
        right: SeqNumber,
    ) -> bool {
        self.rack.duplicate_reported(una, next);
        let Some(before) = &mut self.before else { return false };
        if before.first_stamp.is_none() || !right.after(before.una) {
            return false;
        }
        before.unexplained = before.unexplained.saturating_sub(segments);
        before.unexplained == 0
    }

    /// Returns whether an ACK echoes a timestamp from before the first retransmission, which was therefore
    /// spurious (Eifel, RFC 3522 §3.2).
    pub(crate) fn proves_original(&self, echo: Option<u32>) -> bool {
        let first = self.before.and_then(|before| before.first_stamp);
        first.zip(echo).is_some_and(|(first, echo)| echo.wrapping_sub(first).cast_signed() < 0)
    }

    /// Restores the window after a spurious recovery.
    pub(crate) fn undo(&mut self, congestion: &mut Congestion) {
        if let Some(before) = self.before.take() {
            congestion.undo(before.window, before.threshold);
        }
        self.phase = Phase::Open;
        self.doubt = Doubt::None;
        self.duplicates = 0;
        self.timeouts = 0;
    }

    /// Drops the undo state when something sent after all retransmissions is acknowledged: no D-SACK for those will come.
    pub(crate) fn forget(&mut self, una: SeqNumber) {
        let over = matches!(self.phase, Phase::Open | Phase::Disorder);
        if self.before.is_some() && over && una.after(self.point) {
            self.before = None;
        }
    }

    /// Updates the phase after SND.UNA has advanced, with the current SND.UNA and SND.NXT. Returns whether the phase has ended.
    pub(crate) fn on_progress(
        &mut self,
        (una, next): (SeqNumber, SeqNumber),
        sacks: bool,
        congestion: &mut Congestion,
    ) -> bool {
        let over = match self.phase {
            Phase::Open | Phase::Disorder => false,
            Phase::Reduced => una.after(self.point),
            // Without SACK, duplicate ACKs for what was sent in recovery must not start another one:
            // stay until something beyond the point is acknowledged (RFC 6582 §3.2).
            Phase::Recovery if !sacks => una.after(self.point),
            Phase::Recovery | Phase::Loss => !una.before(self.point),
        };
        if over {
            // After a timeout the window has grown from one, and goes on from where it is.
            if self.phase != Phase::Loss {
                congestion.window = congestion.threshold.min(congestion.window.max(1));
                if congestion.threshold != u32::MAX {
                    congestion.window = congestion.threshold;
                }
                self.rack.recovered();
            }
            self.phase = Phase::Open;
            self.doubt = Doubt::None;
            self.duplicates = 0;
            self.point = next;
            self.before = self.before.filter(|before| before.unexplained > 0);
        }
        over
    }

    /// Returns whether an ACK that makes SND.UNA this acknowledges a part of what was in flight when fast recovery began (RFC 6582
    /// §3.2, step 3).
    pub(crate) fn is_partial(&self, una: SeqNumber) -> bool {
        self.phase == Phase::Recovery && una.before(self.point)
    }

    /// Sets the window after an ACK in a phase in which it is reduced (RFC 6937).
    pub(crate) fn reduce_window(
        &mut self,
        congestion: &mut Congestion,
        in_flight: u32,
        delivered: u32,
        progress: bool,
    ) {
        if delivered == 0 && self.prr.has_sent() {
            return;
        }
        let out = self.prr.allowed(congestion.threshold, in_flight, delivered, progress);
        congestion.window = in_flight + out;
    }
}
