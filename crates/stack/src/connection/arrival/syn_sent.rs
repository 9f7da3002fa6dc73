//! A segment comes in SYN-SENT (RFC 9293 §3.10.7.3).

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

    /// The peer knows an old connection between the same ends, in TIME-WAIT mostly, and our reset ends that: the SYN goes
    /// out again right behind it, and not when its timer says so, once. Linux waits for two ticks, which are the least that
    /// its timers know (tcp_rcv_synsent_state_process), and has the case less often: all its programs have one clock and one
    /// secret to choose numbers by (RFC 6528), so that TIME-WAIT takes most SYNs for new ones.
    fn ask_again_soon(&mut self, cx: &Context) {
        let has_asked = self.sender.nxt != self.sender.iss;
        if has_asked && self.recovery.timeouts == 0 {
            self.timers.set_loss(LossTimer::Retransmit, cx.now);
        }
    }

    /// At once, or with what the user sends, for whom that was asked (TCP_DEFER_ACCEPT of one who connects), or who is waiting
    /// to (tcp_rcv_synsent_state_process). His answers to what comes then carry ACKs.
    fn acknowledge_syn_ack(&mut self, cx: &Context) {
        if self.deferral.leaves_ack() {
            self.ack.quicken(self.receiver.window, cx.config.quick_acks);
            self.ack.schedule();
            self.timers.set(Timer::Ack, cx.now + ack_policy::LONGEST);
        } else {
            self.ack.demand();
        }
    }

    /// It answers to a timestamp that no SYN of ours has had (Linux's PAWSActiveRejected).
    fn echoes_wrongly(&self, cx: &Context, segment: &Segment<'_>) -> bool {
        let Some((_, echo)) = segment.options.timestamps.filter(|(_, echo)| *echo != 0) else {
            return false;
        };
        let first = self.peer.stamp(self.counts.last_sent);
        let age = self.peer.stamp(cx.now).wrapping_sub(first);
        echo.wrapping_sub(first) > age
    }

    /// The peer's SYN tells where its numbers begin and what it knows.
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

    /// What an answer to a SYN has taken, if that is the first to it. Karn: only if it was sent once, or what the peer echoes tells
    /// which one he answers (RFC 7323 §4).
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
        if self.recovery.timeouts > 1 {
            // RFC 5681 §3.1: after a lost SYN the first window is one segment; after a single one, with a
            // first timeout of a second only, Linux does not believe it (tcp_init_transfer).
            self.congestion.window = 1;
        }
        self.rtt.backoff = 0;
        self.recovery.timeouts = 0;
        self.recovery.stuck_since.clear();
    }

    /// The handshake is over for this side.
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
        // Without SACK Linux's recovery of a SYN ends with something behind it.
        if self.peer.sacks || self.listener.is_some() {
            self.note_recovery(cx.now);
        }
    }
}
