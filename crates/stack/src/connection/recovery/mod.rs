//! Finding out what was lost, and what to do about it.
//!
//! [`flight`] knows what is out, [`rack`] judges by time what of it is lost, [`prr`] says how many
//! segments an ACK lets out while the window comes down, [`rtt`] has the timeout for when no ACK
//! comes at all, and a probe of the tail ([`Probe`]) saves most of those timeouts.

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

/// What the sender believes of its path. The names are Linux's (tcp_ca_state).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing is amiss.
    #[default]
    Open,
    /// Something arrived out of order or twice, and it is not yet known why.
    Disorder,
    /// The window comes down because of a mark (ECN), not a loss.
    Reduced,
    /// Segments are lost and are sent again.
    Recovery,
    /// A timeout has fired: everything in flight counts as lost.
    Loss,
}

/// A probe for the tail of what was sent (RFC 8985 §7).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    /// SND.NXT when it was sent (TLP.end_seq).
    pub(crate) end: SeqNumber,
    /// Whether it was sent before (TLP.is_retrans).
    pub(crate) repeats: bool,
}

/// What to go back to should a recovery prove unnecessary (RFC 3522, RFC 3708).
#[derive(Debug, Clone, Copy)]
struct Before {
    /// SND.UNA then: what is reported twice from before it was sent again for another reason.
    una: SeqNumber,
    window: u32,
    threshold: u32,
    /// Segments that were sent again and not reported as duplicates.
    unexplained: u32,
    /// Clock for timestamps when the first of them was sent; none was before that.
    first_stamp: Option<u32>,
}

/// State of loss recovery.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    /// Whether the timeout was right.
    doubt: Doubt,
    /// SND.NXT when the phase began: it ends when that is acknowledged (RecoveryPoint). Behind the end of one, SND.NXT then.
    point: SeqNumber,
    pub(crate) rack: Rack,
    prr: Prr,
    /// Duplicate ACKs from a peer without SACK: segments that have left the path.
    pub(crate) duplicates: u32,
    pub(crate) probe: Option<Probe>,
    before: Option<Before>,
    /// Timeouts in a row without progress.
    pub(crate) timeouts: u8,
    /// When the latest progress was made, or the first segment sent: the timeout counts from there.
    pub(crate) progress_at: Instant,
    /// Since when nothing gets on: behind timeouts since the last progress (RFC 9293 §3.8.3 counts from there), and where the
    /// window is shut since that was found for the first time (icsk_probes_tstamp).
    pub(crate) stuck_since: MaybeInstant,
    /// The SYN-ACK was sent again because the SYN was.
    pub(crate) answered_again: bool,
}

impl Recovery {
    /// Whether what is thought lost is being sent again.
    pub(crate) fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovery | Phase::Loss)
    }

    /// Whether nothing is amiss, nothing is tried, and nothing may have to be taken back.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.phase == Phase::Open
            && self.duplicates == 0
            && self.probe.is_none()
            && self.before.is_none()
    }

    /// Losses are proven: the window comes down, and what is lost goes out again.
    pub(crate) fn enter(
        &mut self,
        (una, next): (SeqNumber, SeqNumber),
        congestion: &mut Congestion,
    ) {
        // A mark in the same window has cut it already.
        if self.phase != Phase::Reduced {
            self.remember(una, congestion);
            self.prr = Prr::new(congestion.window);
            congestion.on_congestion();
        }
        self.phase = Phase::Recovery;
        self.point = next;
        self.probe = None;
    }

    /// The path has marked segments instead of dropping them (RFC 3168 §6.1.2).
    pub(crate) fn enter_reduced(&mut self, next: SeqNumber, congestion: &mut Congestion) {
        if !matches!(self.phase, Phase::Open | Phase::Disorder) {
            return;
        }
        // It was no guess, and will not be taken back.
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

    /// A timeout has fired. `again` says that it is not the first for what is in flight.
    pub(crate) fn enter_loss(
        &mut self,
        (una, next): (SeqNumber, SeqNumber),
        congestion: &mut Congestion,
        again: bool,
    ) {
        // What came before in the same window has cut it already, and left PRR's momentary one (tcp_enter_loss).
        let calm = matches!(self.phase, Phase::Open | Phase::Disorder);
        if calm || !self.point.after(una) {
            self.remember(una, congestion);
            congestion.on_congestion();
        }
        // RFC 5682 §2.1, step 1: not where something was sent again already for another reason.
        let doubtful = !self.is_recovering() || again;
        self.doubt = if doubtful { Doubt::Fired } else { Doubt::None };
        congestion.on_timeout();
        congestion.window = 1;
        self.phase = Phase::Loss;
        self.point = next;
        self.duplicates = 0;
        self.probe = None;
    }

    /// What is in flight has to be sent again although nothing says that the path is to blame: the
    /// window stays.
    pub(crate) fn enter_resending(&mut self, next: SeqNumber) {
        self.phase = Phase::Loss;
        self.doubt = Doubt::None;
        self.point = next;
        self.before = None;
        self.probe = None;
    }

    /// Something was sent again.
    pub(crate) fn on_retransmission(&mut self, segments: u32, stamp: u32) {
        self.prr.on_sent(segments);
        if let Some(before) = &mut self.before {
            before.unexplained += segments;
            before.first_stamp.get_or_insert(stamp);
        }
    }

    /// New data was sent while recovering.
    pub(crate) fn on_new_data(&mut self, segments: u32) {
        self.prr.on_sent(segments);
    }

    /// The peer reports that it got `segments` twice, which end at `right`, while SND.UNA and SND.NXT are these.
    /// Whether everything that was sent again has been, so that the recovery was unnecessary (RFC 3708 §2).
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

    /// Whether an ACK answers to what was sent before the first retransmission, which was therefore
    /// unnecessary (Eifel, RFC 3522 §3.2).
    pub(crate) fn proves_original(&self, echo: Option<u32>) -> bool {
        let first = self.before.and_then(|before| before.first_stamp);
        first.zip(echo).is_some_and(|(first, echo)| echo.wrapping_sub(first).cast_signed() < 0)
    }

    /// Takes the window back to where it was before a recovery that was unnecessary.
    pub(crate) fn undo(&mut self, congestion: &mut Congestion) {
        if let Some(before) = self.before.take() {
            congestion.undo(before.window, before.threshold);
        }
        self.phase = Phase::Open;
        self.doubt = Doubt::None;
        self.duplicates = 0;
        self.timeouts = 0;
    }

    /// Something has arrived that left behind all that was sent again: nobody will report any of that twice.
    pub(crate) fn forget(&mut self, una: SeqNumber) {
        let over = matches!(self.phase, Phase::Open | Phase::Disorder);
        if self.before.is_some() && over && una.after(self.point) {
            self.before = None;
        }
    }

    /// SND.UNA and SND.NXT are these now. Whether the phase has ended with it.
    pub(crate) fn on_progress(
        &mut self,
        (una, next): (SeqNumber, SeqNumber),
        sacks: bool,
        congestion: &mut Congestion,
    ) -> bool {
        let over = match self.phase {
            Phase::Open | Phase::Disorder => false,
            Phase::Reduced => una.after(self.point),
            // Without SACK duplicate ACKs for what was sent in recovery must not start another one:
            // stay until something behind the point is acknowledged (RFC 6582 §3.2).
            Phase::Recovery if !sacks => una.after(self.point),
            Phase::Recovery | Phase::Loss => !una.before(self.point),
        };
        if over {
            // A timeout's window has grown from one on, and goes on from where it is.
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

    /// The window after an ACK in a phase in which it comes down (RFC 6937).
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
