//! Turns a decision into a frame in the driver's slot, and updates the state for what was sent.

use uncork_packet::{Instant, Owner, Transmit};
use uncork_wire::tcp::{Fields, Flags, OptionSet, SackBlocks};
use uncork_wire::{Protocol, SeqNumber};

use super::decision::{Action, Blocked, DataPlan};
use crate::connection::recovery::Probe;
use crate::connection::timers::Timer;
use crate::connection::{Connection, Offer, Owed};
use crate::context::Context;
use crate::frame::{Packet, TcpFrame};

/// ECN codepoint of an ECN-capable transport (ECT(0), RFC 3168 §5).
pub(super) const ECT0: u8 = 0b10;

/// The variable parts of one segment.
struct Segment {
    seq: SeqNumber,
    flags: Flags,
    bytes: u32,
    segments: u16,
    options: OptionSet,
    window: u16,
    capable: bool,
}

impl Connection {
    /// Writes the next frame into `slot`, after the `link_bytes` octets of its link-layer header, or returns
    /// why there is none.
    pub(crate) fn transmit(
        &mut self,
        cx: &mut Context,
        link_bytes: usize,
        slot: &mut [u8],
    ) -> Result<Transmit, Blocked> {
        let room = u32::try_from(slot.len().saturating_sub(link_bytes)).unwrap_or(u32::MAX);
        self.disturb();
        self.restart_if_idle(cx);
        let segment = match self.decide(cx, room)? {
            Action::Reset => self.make_reset(cx.now),
            Action::Syn => self.make_syn(cx, false),
            Action::SynAck => self.make_syn(cx, true),
            Action::Probe => self.make_probe(cx),
            Action::Ack => self.make_ack(cx),
            Action::Data(plan) => self.make_data(cx, plan),
        };
        let transmit = self.write(cx, link_bytes, slot, &segment);
        let segments = u32::from(segment.segments.max(1));
        cx.counters.segments_out += u64::from(segments);
        self.counts.segments_out += u64::from(segments);
        if segment.flags.has(Flags::ACK) {
            self.on_ack_sent(cx, segments);
        }
        if segment.bytes > 0 && cx.device.reports_completions {
            self.device.add(transmit.frame_bytes);
        }
        Ok(transmit)
    }

    #[inline]
    fn write(
        &self,
        cx: &Context,
        link_bytes: usize,
        slot: &mut [u8],
        segment: &Segment,
    ) -> Transmit {
        let tuple = &self.tuple;
        let mut packet = Packet::new(tuple.local_address, tuple.remote_address, Protocol::TCP);
        packet.flow_label = cx.secrets.flow_label(tuple);
        packet.tos = self.options.tos & !3 | if segment.capable { ECT0 } else { 0 };
        packet.id = self.packet_id();
        let mss = self.segment_bytes();
        TcpFrame {
            packet,
            fields: self.fields(segment),
            options: &segment.options,
            data: if segment.bytes > 0 {
                let syn = u32::from(segment.flags.has(Flags::SYN));
                self.sender.bytes(segment.seq + syn, segment.bytes)
            } else {
                (&[], &[])
            },
            train: (segment.bytes > mss).then(|| u16::try_from(mss).unwrap_or(u16::MAX)),
            owner: (segment.bytes > 0).then(|| Owner(self.id.as_u64())),
        }
        .emit_behind(slot, link_bytes, &cx.device)
    }

    #[inline]
    fn fields(&self, segment: &Segment) -> Fields {
        let has_ack = segment.flags.has(Flags::ACK);
        Fields {
            source_port: self.tuple.local_port,
            destination_port: self.tuple.remote_port,
            seq: segment.seq,
            ack: if has_ack { self.receiver.nxt } else { SeqNumber(0) },
            flags: segment.flags,
            window: segment.window,
        }
    }

    /// Returns the ACK that is owed, if any, by a connection that will send nothing more itself.
    pub(crate) fn take_owed_ack(&mut self, cx: &Context) -> Option<(Fields, OptionSet)> {
        if self.receiver.acknowledged == self.receiver.nxt {
            return None;
        }
        let segment = self.make_ack(cx);
        self.counts.segments_out += 1;
        self.on_ack_sent(cx, 1);
        Some((self.fields(&segment), segment.options))
    }

    fn make_reset(&mut self, now: Instant) -> Segment {
        self.owed.clear(Owed::RESET);
        // RFC 9293 §3.10.5: with the sequence number that the peer expects next.
        Segment {
            seq: self.acceptable_seq(),
            flags: Flags::RST.with(Flags::ACK),
            bytes: 0,
            segments: 0,
            // RFC 7323 §3.2 asks for timestamps in a reset, too.
            options: OptionSet { timestamps: self.peer.stamps_option(now), ..OptionSet::default() },
            window: 0,
            capable: false,
        }
    }

    fn make_syn(&mut self, cx: &mut Context, answers: bool) -> Segment {
        self.owed.clear(if answers { Owed::SYN_ACK } else { Owed::SYN });
        let mss = u16::try_from(self.announced_segment_bytes()).unwrap_or(u16::MAX);
        if !answers {
            self.peer.receive_shift = self.receive_shift(cx);
        }
        let offer = self.peer.offer;
        let mut options = OptionSet {
            mss: Some(mss),
            window_scale: (if answers { self.peer.scales } else { offer.has(Offer::SCALES) })
                .then_some(self.peer.receive_shift),
            sack_permitted: if answers { self.peer.sacks } else { offer.has(Offer::SACKS) },
            timestamps: (if answers { self.peer.stamps } else { offer.has(Offer::STAMPS) })
                .then(|| (self.peer.stamp(cx.now), if answers { self.peer.recent } else { 0 })),
            ..OptionSet::default()
        };
        let mut flags = Flags::SYN;
        if answers {
            flags = flags.with(Flags::ACK);
            if self.peer.ecn {
                flags = flags.with(Flags::ECE);
            }
        } else if offer.has(Offer::ASKS_ECN) && self.recovery.timeouts == 0 {
            // A path that drops SYNs with ECN gets one without it (RFC 3168 §6.1.1.1).
            flags = flags.with(Flags::ECE).with(Flags::CWR);
        }
        let bytes = if answers {
            self.fill_syn_ack(cx, &mut options);
            0
        } else {
            self.fill_syn(cx, &mut options)
        };
        // The window of a SYN is never scaled (RFC 7323 §2.2).
        let window = self.receiver.limit.min(u32::from(u16::MAX));
        self.receiver.window = window;
        self.sender.nxt = self.sender.nxt.max(self.sender.iss + 1);
        self.start_handshake_timer(cx);
        Segment {
            seq: self.sender.iss,
            flags,
            bytes,
            segments: u16::from(bytes > 0),
            options,
            window: u16::try_from(window).unwrap_or(u16::MAX),
            capable: false,
        }
    }

    /// Makes a segment that the peer must answer with an ACK, because it is outside its window.
    fn make_probe(&mut self, cx: &Context) -> Segment {
        self.owed.clear(Owed::PROBE);
        let mut probe = self.make_ack(cx);
        probe.seq = self.sender.una - 1;
        probe
    }

    fn make_ack(&mut self, cx: &Context) -> Segment {
        self.owed.duplicate_acks = self.owed.duplicate_acks.saturating_sub(1);
        let mut options =
            OptionSet { timestamps: self.peer.stamps_option(cx.now), ..OptionSet::default() };
        if self.peer.sacks {
            options.sack = self.sack_blocks();
        }
        self.receiver.duplicate = None;
        Segment {
            // RFC 9293 §3.10.7.4: <SEQ=SND.NXT><ACK=RCV.NXT>.
            seq: self.acceptable_seq(),
            flags: Flags::ACK.with(self.echo_flag()),
            bytes: 0,
            segments: 0,
            options,
            window: self.offer_window(),
            capable: false,
        }
    }

    /// Returns the sequence number of a segment without data: SND.NXT, or the window's right edge if the peer has taken back what
    /// was sent into (RFC 9293 §3.8.6), as it would discard a segment beyond that. An excess that may come from the
    /// rounding of a scaled window does not count (tcp_acceptable_seq).
    fn acceptable_seq(&self) -> SeqNumber {
        let (sender, peer) = (&self.sender, &self.peer);
        let excess = sender.nxt - (sender.first_unacknowledged() + sender.window);
        let rounding = if peer.scales { (1 << peer.receive_shift) - 1 } else { 0 };
        if excess <= rounding { sender.nxt } else { sender.nxt - excess.unsigned_abs() }
    }

    /// Returns the SACK blocks: duplicates first (RFC 2883 §4), then out-of-order data.
    fn sack_blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let most = if self.peer.stamps { SackBlocks::WITH_TIMESTAMPS } else { SackBlocks::MOST };
        if let Some((left, right)) = self.receiver.duplicate {
            blocks.push(left, right);
        }
        if let Some(gaps) = self.receiver.gaps() {
            gaps.sack_blocks(&mut blocks, most);
        }
        blocks
    }

    fn echo_flag(&self) -> Flags {
        if self.peer.echoes_congestion { Flags::ECE } else { Flags(0) }
    }

    /// Chooses and stores the window to announce.
    #[inline]
    pub(super) fn offer_window(&mut self) -> u16 {
        let shift = self.peer.receive_shift;
        let window = self.receiver.window_to_offer(self.ack.segment_bytes(), shift);
        self.receiver.acknowledged = self.receiver.nxt;
        self.receiver.window = window;
        u16::try_from(window >> shift).unwrap_or(u16::MAX)
    }

    fn make_data(&mut self, cx: &mut Context, plan: DataPlan) -> Segment {
        let end = plan.seq + plan.bytes;
        let mut flags = Flags::ACK.with(self.echo_flag());
        if plan.fin {
            flags = flags.with(Flags::FIN);
        }
        // The last segment of a train always has PSH, as in Linux: a receiver that joins segments stops there.
        if plan.bytes > 0
            && (plan.segments > 1
                || self.sender.pushes(plan.seq, end)
                || self.owed.has(Owed::WINDOW_FILL))
        {
            flags = flags.with(Flags::PSH);
        }
        let tail_probe = self.owed.has(Owed::TAIL_PROBE);
        self.owed.clear(Owed::TAIL_PROBE | Owed::WINDOW_FILL);
        if plan.again {
            self.on_sent_again(cx, plan, tail_probe);
        } else {
            if self.peer.owes_cwr {
                self.peer.owes_cwr = false;
                flags = flags.with(Flags::CWR);
            }
            self.on_sent_new(cx, plan, tail_probe);
        }
        self.note_data_sent(cx, plan, self.header_bytes());
        Segment {
            seq: plan.seq,
            flags,
            bytes: plan.bytes,
            segments: plan.segments,
            options: OptionSet {
                timestamps: self.peer.stamps_option(cx.now),
                ..OptionSet::default()
            },
            window: self.offer_window(),
            // Retransmissions are not ECN-capable (RFC 3168 §6.1.5).
            capable: self.peer.ecn && !plan.again,
        }
    }

    /// Updates pacing and counters for data that leaves, with this many header octets per segment.
    fn note_data_sent(&mut self, cx: &Context, plan: DataPlan, header_bytes: u32) {
        let frame_bytes = plan.bytes + u32::from(plan.segments) * header_bytes;
        let burst_bytes = cx.config.initial_window_segments * self.segment_bytes();
        self.pacer.on_sent(frame_bytes, burst_bytes, cx.now);
        self.counts.bytes_sent += u64::from(plan.bytes);
        self.counts.data_segments_out += u64::from(plan.segments);
        self.ack.on_data_sent(cx.now);
    }

    fn on_sent_new(&mut self, cx: &mut Context, plan: DataPlan, tail_probe: bool) {
        if self.sender.flight.is_empty() {
            self.congestion.on_restart(self.counts.last_sent, cx.now);
        }
        let mss = self.segment_bytes();
        let end = plan.seq + plan.bytes + u32::from(plan.fin);
        let sender = &mut self.sender;
        if sender.flight.is_empty() {
            self.recovery.progress_at = cx.now;
            // The window is open, if it was zero before.
            self.recovery.stuck_since.clear();
        }
        let times = (cx.now, self.recovery.progress_at);
        sender.flight.push((plan.seq, end), plan.segments, times, &mut cx.pool);
        sender.nxt = end;
        sender.fin_sent |= plan.fin;
        if !plan.bytes.is_multiple_of(mss) {
            sender.small_end = plan.seq + plan.bytes;
        }
        if !sender.nxt.before(sender.end) {
            self.timers.stop(Timer::Cork);
            self.sender.more = false;
        }
        self.counts.sent_in_turn = true;
        self.recovery.on_new_data(plan.segments.into());
        self.counts.last_sent = cx.now;
        if tail_probe {
            self.note_tail_probe(false);
        }
        self.arm_loss_timer(cx);
    }

    fn on_sent_again(&mut self, cx: &mut Context, plan: DataPlan, tail_probe: bool) {
        let mss = self.segment_bytes();
        cx.counters.retransmitted += u64::from(plan.segments);
        let trouble = self.counts.trouble_mut();
        trouble.retransmitted += u64::from(plan.segments);
        trouble.bytes_retransmitted += u64::from(plan.bytes);
        self.sender.flight.retransmitted(plan.seq, plan.segments, mss, cx.now);
        if tail_probe {
            self.note_tail_probe(true);
        } else {
            let stamp = self.peer.stamp(cx.now);
            self.recovery.on_retransmission(plan.segments.into(), stamp);
        }
        self.recovery.progress_at = cx.now;
        self.arm_loss_timer(cx);
    }

    fn note_tail_probe(&mut self, repeats: bool) {
        self.recovery.probe = Some(Probe { end: self.sender.nxt, repeats });
    }

    /// Restarts the congestion window after more than a timeout without sending (RFC 5681 §4.1), before
    /// anything is sent in the old one.
    #[inline(always)]
    pub(super) fn restart_if_idle(&mut self, cx: &Context) {
        // No timeout is shorter than this.
        if cx.now > self.counts.last_sent + cx.timeouts.least() {
            self.restart_if_timed_out(cx);
        }
    }

    #[inline(never)]
    fn restart_if_timed_out(&mut self, cx: &Context) {
        let sends = self.sender.unsent_bytes() > 0 && self.sender.window_room() > 0;
        if !self.sender.flight.is_empty() || !sends {
            return;
        }
        let timeout = self.rtt.base_timeout(cx.timeouts);
        let idles = cx.now > self.counts.last_sent + timeout;
        if idles && cx.config.restart_after_idle && self.counts.data_segments_out > 0 {
            let idle = cx.now.since(self.counts.last_sent);
            let timeouts = idle.as_micros() / timeout.as_duration().as_micros().max(1);
            let timeouts = u32::try_from(timeouts).unwrap_or(u32::MAX);
            self.congestion.on_idle(timeouts, cx.config.initial_window_segments);
        }
    }

    #[inline]
    pub(super) fn on_ack_sent(&mut self, cx: &Context, segments: u32) {
        self.ack.on_ack_sent(segments, cx.config.quick_ack_counting);
        self.timers.stop(Timer::Ack);
        self.receiver.acknowledged = self.receiver.nxt;
    }

    /// Notes why sending has stopped, and prepares the timer or completion that continues it.
    pub(crate) fn note_blocked(&mut self, cx: &mut Context, blocked: Blocked) {
        self.note_spending(blocked, cx.now);
        match blocked {
            Blocked::SmallQueue => {
                cx.counters.throttled += 1;
                self.device.wait(true);
            }
            Blocked::Autocork => {
                cx.counters.autocorked += 1;
                self.device.wait(false);
            }
            Blocked::Pacing => {
                if let Some(until) = self.paced_until(cx.now) {
                    self.timers.set(Timer::Pace, until);
                }
            }
            Blocked::Cork if !self.timers.is_running(Timer::Cork) => {
                self.timers.set(Timer::Cork, cx.now + super::super::CORK_CEILING);
            }
            Blocked::Window if self.sender.flight.is_empty() => self.arm_loss_timer(cx),
            _ => {}
        }
        if std::mem::take(&mut self.counts.sent_in_turn) {
            let full = self.in_flight() >= self.congestion.window;
            let sender = &self.sender;
            self.congestion.note_usage(
                full || blocked == Blocked::CongestionWindow,
                sender.una,
                sender.nxt,
                sender.flight.out_segments(),
            );
        }
    }
}
