//! Processing of a segment in SYN-SENT (RFC 9293 §3.10.7.3).

use uncork_wire::tcp::Flags;

use super::{Outcome, Segment};
use crate::connection::receive::ack_policy;
use crate::connection::timers::{LossTimer, Timer};
use crate::connection::{Cause, Connection, ConnectionError, Offer, Owed};
use crate::context::Context;
use crate::event::Ready;
use crate::units::Micros;

impl Connection {
    pub(super) fn arrive_in_syn_sent(
        &mut self,
        cx: &mut Context,
        segment: &Segment<'_>,
    ) -> Result<(), Outcome> {
        let reset = segment.flags.has(Flags::RST);
        // First step: an ACK of something that was never sent.
        if segment.ack.is_some_and(|ack| !self.is_acceptable_ack(ack)) {
            self.ask_again_soon(cx);
            return Err(if reset { Outcome::Done } else { Outcome::Reset });
        }
        if !reset && segment.ack.is_some() && self.echoes_wrongly(cx, segment) {
            return Err(Outcome::Reset);
        }
        // Second step.
        if reset {
            if segment.ack.is_some() {
                self.finish(Cause::ResetReceived, Some(ConnectionError::Refused), cx);
            }
            return Ok(());
        }
        // Fourth step.
        if !segment.flags.has(Flags::SYN) {
            return Ok(());
        }
        self.take_syn(cx, segment);
        let Some(ack) = segment.ack else {
            // Simultaneous open: <SEQ=ISS><ACK=RCV.NXT><CTL=SYN,ACK>.
            self.change_state(Cause::SynReceived);
            self.owed.clear(Owed::SYN);
            self.owed.add(Owed::SYN_ACK);
            return Ok(());
        };
        let repeated = self.recovery.timeouts > 0;
        self.note_handshake_round_trip(cx, segment.options.timestamps.map(|(_, echo)| echo));
        self.acknowledge_syn_data(cx, ack);
        self.sender.window_seq = segment.seq;
        self.sender.window_ack = ack;
        self.peer.ecn = self.peer.offer.has(Offer::ASKS_ECN)
            && segment.flags.has(Flags::ECE)
            && !segment.flags.has(Flags::CWR);
        self.become_established(cx);
        self.acknowledge_syn_ack(cx);
        if self.finish_fast_open(cx, segment, repeated) {
            return Ok(());
        }
        self.take_syn_ack_data(cx, segment)
    }

    /// Retransmits the SYN directly after our reset, once, instead of when its timer expires: the peer has an old connection with
    /// the same ends, mostly in TIME-WAIT, which the reset ends. Linux waits for two ticks, the shortest time of its timers
    /// (tcp_rcv_synsent_state_process), and meets this case less often: all its programs share one clock and one
    /// secret for sequence numbers (RFC 6528), so that TIME-WAIT accepts most SYNs as new ones.
    fn ask_again_soon(&mut self, cx: &Context) {
        let has_asked = self.sender.nxt != self.sender.iss;
        if has_asked && self.recovery.timeouts == 0 {
            self.timers.set_loss(LossTimer::Retransmit, cx.now);
        }
    }

    /// Acknowledges the SYN-ACK at once, or with the user's first data if that was asked for (TCP_DEFER_ACCEPT on an active open)
    /// or a write waits (tcp_rcv_synsent_state_process). The user's answers to what comes then carry ACKs.
    fn acknowledge_syn_ack(&mut self, cx: &Context) {
        if self.deferral.leaves_ack() {
            self.ack.quicken(self.receiver.window, cx.config.quick_acks);
            self.ack.schedule();
            self.timers.set(Timer::Ack, cx.now + ack_policy::LONGEST);
        } else {
            self.ack.demand();
        }
    }

    /// Returns whether it echoes a timestamp that none of our SYNs had (Linux's PAWSActiveRejected).
    fn echoes_wrongly(&self, cx: &Context, segment: &Segment<'_>) -> bool {
        let Some((_, echo)) = segment.options.timestamps.filter(|(_, echo)| *echo != 0) else {
            return false;
        };
        let first = self.peer.stamp(self.counts.last_sent);
        let age = self.peer.stamp(cx.now).wrapping_sub(first);
        echo.wrapping_sub(first) > age
    }

    /// Takes over the peer's initial sequence number, window and options from its SYN.
    pub(crate) fn take_syn(&mut self, cx: &Context, segment: &Segment<'_>) {
        self.receiver.begin(segment.seq);
        let shift = self.receive_shift(cx);
        let offered = self.peer.offer.of_these(segment.options);
        self.peer.agree(&offered, self.tuple.is_ipv6(), shift, cx.now);
        // The window of a SYN is not scaled (RFC 7323 §2.2).
        self.sender.window = segment.window.into();
        self.sender.max_window = self.sender.window;
        self.resize_segment();
        self.sender.window_seq = segment.seq;
        self.counts.last_heard = cx.now;
    }

    /// Returns the round-trip time of the handshake, from the first answer to our SYN or SYN-ACK. Karn's algorithm: only if that
    /// was sent once, or if the echoed timestamp shows which one is answered (RFC 7323 §4).
    pub(in crate::connection) fn handshake_round_trip(
        &self,
        cx: &Context,
        echo: Option<u32>,
    ) -> Option<Micros> {
        if self.deferral.is_acknowledged() {
            return self.deferral.round_trip();
        }
        let is_ambiguous = self.recovery.timeouts > 0 || self.recovery.answered_again;
        let alone = || Some(Micros::between(self.recovery.progress_at, cx.now));
        if is_ambiguous { self.echoed(echo, cx.now) } else { alone() }
    }

    pub(super) fn note_handshake_round_trip(&mut self, cx: &Context, echo: Option<u32>) {
        if let Some(round_trip) = self.handshake_round_trip(cx, echo) {
            self.rtt.sample(round_trip);
        }
        self.rtt.end_handshake();
        if self.recovery.timeouts > 1 {
            // RFC 5681 §3.1: after a lost SYN the initial window is one segment; Linux ignores a single loss, as the
            // initial timeout is only a second (tcp_init_transfer).
            self.congestion.window = 1;
        }
        self.rtt.backoff = 0;
        self.recovery.timeouts = 0;
        self.recovery.stuck_since.clear();
    }

    /// Enters ESTABLISHED.
    pub(super) fn become_established(&mut self, cx: &mut Context) {
        self.counts.delivered += 1;
        self.change_state(Cause::SynAcknowledged);
        if self.sender.fin_queued {
            self.change_state(Cause::Close);
        }
        self.timers.stop_all();
        self.owed.clear(Owed::SYN | Owed::SYN_ACK);
        self.ack.begin(self.segment_bytes(), self.receiver.window, cx.now);
        let out = self.sender.flight.out_segments();
        self.pacer.update(&self.congestion, out, self.segment_bytes(), self.rtt.for_pacing());
        self.user.news |= Ready::CONNECTED | Ready::WRITABLE;
        self.arm_idle_timer(cx);
        // Without SACK, Linux ends the recovery of a SYN only when something sent after it is acknowledged.
        if self.peer.sacks || self.listener.is_some() {
            self.note_recovery(cx.now);
        }
    }
}
