//! Processing of a segment's acknowledgment: what was delivered, and what follows from that for the
//! window, for loss detection, and for how much may be in flight (RFC 9293 §3.10.7.4, fifth step; RFC 5681;
//! RFC 6675; RFC 8985).

use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::SeqNumber;
use uncork_wire::tcp::Flags;

use super::{Outcome, Segment};
use crate::connection::congestion::Round;
use crate::connection::recovery::rack::DUPLICATE_THRESHOLD;
use crate::connection::recovery::{Delivered, Evidence, Phase};
use crate::connection::timers::{LossTimer, Timer};
use crate::connection::{Cause, Connection, Owed, State};
use crate::context::Context;
use crate::event::Ready;
use crate::units::Micros;

/// What one ACK says, collected before it is acted upon.
#[derive(Debug, Default)]
struct News {
    delivered: Delivered,
    /// It acknowledges new data (SND.UNA advances).
    progress: bool,
    /// It is a pure ACK that repeats the last one.
    says_nothing: bool,
    /// And data is in flight: it is a duplicate ACK (RFC 5681 §2).
    repeats: bool,
    /// Segments that it reports as duplicates (D-SACK, RFC 2883), and where they end.
    duplicates: u32,
    duplicates_end: SeqNumber,
    /// It carries ECE.
    marked: bool,
    /// Timestamp that it echoes.
    echo: Option<u32>,
}

impl Connection {
    pub(super) fn take_ack(
        &mut self,
        cx: &mut Context,
        segment: &Segment<'_>,
        ack: SeqNumber,
    ) -> Result<(), Outcome> {
        if self.state == State::SynReceived {
            self.finish_handshake(cx, segment, ack)?;
        }
        if ack.after(self.sender.nxt) {
            // "If the ACK acks something not yet sent then send an ACK".
            self.challenge(cx);
            return Err(Outcome::Done);
        }
        // RFC 5961 §5.2: older than anything that can still be in the network. However large the window is, the range does not
        // reach back beyond what was ever acknowledged (tcp_ack, 3d501dd326fb).
        let sent = u32::try_from(self.counts.bytes_acked).unwrap_or(u32::MAX);
        if ack.before(self.sender.una - self.sender.max_window.min(sent)) {
            self.challenge(cx);
            return Err(Outcome::Done);
        }
        if !ack.before(self.sender.una) {
            // The path works (tcp_ack).
            self.path.soft_error = None;
        }
        self.note_timestamp(cx, segment);
        let news = self.learn(cx, segment, ack);
        if news.progress {
            self.advance(cx, ack);
        }
        self.measure(cx.now, &news);
        if !segment.data.is_empty() && self.sender.flight.is_empty() {
            let answered = news.delivered.newest_sent.filter(|_| !news.delivered.ambiguous);
            answered.into_iter().for_each(|sent| cx.requests.note(Micros::between(sent, cx.now)));
        }
        if let Some(passed) = news.delivered.passed.filter(|_| !self.recovery.is_recovering()) {
            self.observe(passed, self.sender.nxt, cx.now);
        }
        self.note_congestion_echo(segment, &news);
        // With the window before this ACK, as what the ACK adds has not proved good yet.
        if self.recovery.phase == Phase::Open {
            self.watch_slow_start(cx, &news);
        }
        self.respond(cx, &news);
        self.note_idleness(cx.now);
        if self.sender.is_fin_acknowledged() {
            self.on_fin_acknowledged(cx);
        }
        self.tell_of_room(cx);
        Ok(())
    }

    /// Handles the third segment of a handshake.
    fn finish_handshake(
        &mut self,
        cx: &mut Context,
        segment: &Segment<'_>,
        ack: SeqNumber,
    ) -> Result<(), Outcome> {
        if !self.is_acceptable_ack(ack) {
            return Err(Outcome::Reset);
        }
        self.sender.window = self.scaled(segment);
        self.sender.max_window = self.sender.window;
        self.sender.window_seq = segment.seq;
        self.sender.window_ack = ack;
        let echo = segment.options.timestamps.map(|(_, echo)| echo);
        if self.passes_over(segment) {
            self.note_timestamp(cx, segment);
            self.pass_over(cx, echo);
            return Err(Outcome::Done);
        }
        self.end_handshake(cx, echo);
        Ok(())
    }

    /// Completes the handshake, after its last segment has come and the window is known.
    pub(in crate::connection) fn end_handshake(&mut self, cx: &mut Context, echo: Option<u32>) {
        self.note_handshake_round_trip(cx, echo);
        self.sender.una = self.sender.iss + 1;
        self.resize_segment();
        self.become_established(cx);
        // Data of a Fast Open connection, on either side, was sent before and has waited for this.
        self.recovery.progress_at = cx.now;
        self.arm_loss_timer(cx);
    }

    /// Returns the window of a segment; that of a SYN is not scaled (RFC 7323 §2.2).
    fn scaled(&self, segment: &Segment<'_>) -> u32 {
        let shift = if segment.flags.has(Flags::SYN) { 0 } else { self.peer.send_shift };
        u32::from(segment.window) << shift
    }

    /// Stores the timestamp to echo, if the segment does not begin after the last ACK that was sent (RFC 7323 §4.3).
    fn note_timestamp(&mut self, cx: &Context, segment: &Segment<'_>) {
        if let Some((value, _)) = segment.options.timestamps
            && self.peer.stamps
            && !segment.seq.after(self.receiver.acknowledged)
            && !self.peer.is_old_stamp(value, cx.now)
        {
            self.peer.note_stamp(value, cx.now);
        }
    }

    /// Enters window, acknowledgment and SACK blocks into the scoreboard.
    fn learn(&mut self, cx: &Context, segment: &Segment<'_>, ack: SeqNumber) -> News {
        let una = self.sender.una;
        let outstanding = !self.sender.flight.is_empty();
        let same_window = !self.update_window(segment, ack);
        let says_nothing = ack == una && segment.len() == 0 && same_window;
        let mut news = News {
            progress: ack.after(una),
            marked: self.peer.ecn && segment.flags.has(Flags::ECE),
            says_nothing,
            repeats: says_nothing && outstanding,
            echo: segment.options.timestamps.map(|(_, echo)| echo).filter(|_| self.peer.stamps),
            ..News::default()
        };
        let mss = self.segment_bytes();
        let (now, rtt, echo) = (cx.now, self.rtt, news.echo);
        let peer = self.peer;
        let rack = &mut self.recovery.rack;
        rack.begin_ack();
        let mut arrived = |record: &crate::connection::Record| {
            // The echo matters only for what was retransmitted.
            let stale = record.is_ambiguous()
                && echo.is_some_and(|echo| {
                    echo.wrapping_sub(peer.stamp(record.sent_at)).cast_signed() < 0
                });
            rack.deliver(record, mss, now, &rtt, stale);
        };
        let flight = &mut self.sender.flight;
        if peer.sacks {
            let blocks = segment.options.sack.as_slice();
            for (index, &(left, right)) in blocks.iter().enumerate() {
                let within = blocks.get(1).is_some_and(|outer| {
                    index == 0 && !left.before(outer.0) && !right.after(outer.1)
                });
                if index == 0 && left.before(right) && (!right.after(ack) || within) {
                    news.duplicates = (right - left).unsigned_abs().div_ceil(mss);
                    news.duplicates_end = right;
                    continue;
                }
                // Blocks for what was never sent are ignored (RFC 2018 §8).
                if left.before(right) && left.after(una) && !right.after(self.sender.nxt) {
                    flight.sack((left, right), mss, &mut news.delivered, &mut arrived);
                }
            }
        }
        if news.progress {
            flight.acknowledge(ack, mss, &mut news.delivered, &mut arrived);
        }
        if news.duplicates > 0 {
            let reported = &mut self.counts.trouble_mut().duplicates_reported;
            *reported = reported.saturating_add(news.duplicates);
        }
        news
    }

    /// Updates the window if the segment is newer than the one that last updated it
    /// (RFC 9293 §3.10.7.4). Returns whether the window has changed.
    fn update_window(&mut self, segment: &Segment<'_>, ack: SeqNumber) -> bool {
        let window = self.scaled(segment);
        let sender = &mut self.sender;
        if ack.before(sender.una) {
            return false;
        }
        // A segment with a new acknowledgment is newer, whatever its sequence number: a retransmission carries the current window
        // (tcp_may_update_window).
        let newer = ack.after(sender.una)
            || segment.seq.after(sender.window_seq)
            || segment.seq == sender.window_seq && !ack.before(sender.window_ack);
        if !newer {
            return false;
        }
        (sender.window_seq, sender.window_ack) = (segment.seq, ack);
        // The window counts from this ACK on; `una` is updated right after.
        let changed = sender.window != window;
        sender.window = window;
        if window > sender.max_window {
            sender.max_window = window;
            self.resize_segment();
        }
        if changed && self.timers.loss == LossTimer::Window {
            // RFC 9293 §3.8.6.1: the window has opened, or is still zero but the peer lives.
            self.timers.stop(Timer::Loss);
            self.rtt.backoff = 0;
        }
        changed
    }

    /// Advances SND.UNA.
    fn advance(&mut self, cx: &mut Context, ack: SeqNumber) {
        let octets = (ack - self.sender.una).unsigned_abs();
        self.counts.bytes_acked += u64::from(octets);
        // MSG_MORE applies to one call only: what an ACK releases does not wait for the next call (in Linux
        // it is an argument of tcp_push, and sockets remember nothing but TCP_CORK).
        self.sender.more = false;
        self.sender.acknowledge(ack, &mut cx.pool);
        if self.sender.flight.is_empty() {
            // There is no tail left to probe, and the next data must not be sent as a probe.
            self.owed.clear(Owed::TAIL_PROBE);
        }
        self.recovery.timeouts = 0;
        self.recovery.stuck_since.clear();
    }

    /// Takes an RTT sample (RFC 6298 §3 and RFC 7323 §4): exact from what was sent once, from a timestamp
    /// to the millisecond.
    fn measure(&mut self, now: Instant, news: &News) {
        let delivered = &news.delivered;
        if let (Some(oldest), false) = (delivered.oldest_sent, delivered.ambiguous) {
            self.rtt.sample(Micros::between(oldest, now));
            if let Some(newest) = delivered.newest_sent {
                self.rtt.note_shortest(Micros::between(newest, now));
            }
            self.rtt.backoff = 0;
        } else if let Some(took) = self.echoed(news.echo.filter(|_| news.progress), now) {
            self.rtt.sample(took);
            self.rtt.backoff = 0;
        }
    }

    /// Returns how long ago an echoed timestamp was sent.
    pub(super) fn echoed(&self, echo: Option<u32>, now: Instant) -> Option<Micros> {
        let echo = echo.filter(|&echo| self.peer.stamps && echo != 0)?;
        let millis = self.peer.stamp(now).wrapping_sub(echo);
        (millis.cast_signed() >= 0).then(|| Micros::from_millis(millis.max(1)))
    }

    fn watch_slow_start(&mut self, cx: &Context, news: &News) {
        let newest = news.delivered.newest_sent.filter(|_| !news.delivered.ambiguous);
        let took = newest.map(|sent| Micros::between(sent, cx.now));
        let sender = &self.sender;
        self.congestion.watch_slow_start(took, || Round {
            now: cx.now,
            una: sender.una,
            nxt: sender.nxt,
            paced: cx.config.pacing,
            rate: self.pacer.rate(),
        });
    }

    /// Handles ECE (RFC 3168 §6.1.2): it counts as a loss, once per window of data.
    fn note_congestion_echo(&mut self, segment: &Segment<'_>, news: &News) {
        if self.peer.ecn && segment.flags.has(Flags::ECE) && news.progress {
            let before = self.recovery.phase;
            self.recovery.enter_reduced(self.sender.nxt, &mut self.congestion);
            if before != self.recovery.phase {
                self.owe_cwr();
            }
        }
    }

    /// Notes that the window was reduced, for a mark, a loss or a timeout: the next new data carries CWR, which also answers the
    /// marks that the peer has reported until then (RFC 3168 §6.1.2).
    pub(in crate::connection) fn owe_cwr(&mut self) {
        self.peer.owes_cwr = self.peer.ecn;
    }

    /// Acts on an ACK: phases, loss detection, congestion window, pacing rate, timers.
    fn respond(&mut self, cx: &mut Context, news: &News) {
        let (una, next) = (self.sender.una, self.sender.nxt);
        let mut arrived = news.delivered.segments;
        let lossy = self.recovery.phase == Phase::Loss;
        let spurious = lossy && self.recovery.judge_timeout(self.evidence(news));
        cx.counters.spurious_timeouts += u64::from(spurious);
        // Before the phase may end: the ACK of everything proves as much as one of a part (tcp_try_undo_recovery,
        // tcp_try_undo_loss).
        let undone = spurious || self.proves_original(news);
        // The ACK that ends a recovery leaves the window where recovery has brought it; after a timeout
        // the window is growing already.
        let recovered = !undone
            && news.progress
            && self.recovery.on_progress((una, next), self.peer.sacks, &mut self.congestion)
            && !lossy;
        self.judge_tail_probe(news);
        if undone || self.proves_unnecessary(news) {
            cx.counters.undone += 1;
            self.recovery.undo(&mut self.congestion);
            self.sender.flight.forget_losses();
        }
        self.recovery.forget(una);
        let lost_before = self.sender.flight.lost_segments();
        let wait = if self.peer.sacks {
            let recovering = self.recovery.is_recovering();
            let flight = &mut self.sender.flight;
            self.recovery.rack.detect(flight, cx.now, &self.rtt, recovering, false)
        } else {
            arrived = self.count_duplicates(news);
            None
        };
        let newly_lost = self.sender.flight.lost_segments() > lost_before;
        if newly_lost && !self.recovery.is_recovering() {
            self.begin_recovery(cx);
        } else if self.recovery.phase == Phase::Open && self.sender.flight.sacked_segments() > 0 {
            self.recovery.phase = Phase::Disorder;
        } else if self.recovery.phase == Phase::Disorder
            && self.sender.flight.sacked_segments() == 0
            && self.recovery.duplicates == 0
        {
            self.recovery.phase = Phase::Open;
        }
        self.note_delivered(news, arrived);
        if !recovered || self.recovery.is_recovering() {
            self.adjust_window(cx, news, arrived, newly_lost);
        }
        let out = self.sender.flight.out_segments();
        self.pacer.update(&self.congestion, out, self.segment_bytes(), self.rtt.for_pacing());
        self.arm_after_ack(cx, news, wait);
        self.note_recovery(cx.now);
    }

    /// Counts segments as delivered, and as marked if the ACK carries ECE (tcp_count_delivered).
    fn note_delivered(&mut self, news: &News, arrived: u32) {
        self.counts.delivered += u64::from(arrived);
        if news.marked && arrived > 0 {
            let marked = &mut self.counts.trouble_mut().marked;
            *marked = marked.saturating_add(arrived);
        }
        self.sender.flight.note_delivered(self.counts.delivered);
    }

    /// Returns what an ACK says about an earlier timeout.
    fn evidence(&self, news: &News) -> Evidence {
        Evidence {
            una: self.sender.una,
            next: self.sender.nxt,
            progress: news.progress,
            out_of_order: news.delivered.sacked_segments > 0 || news.repeats,
            original: news.delivered.original,
            has_new: self.sender.unsent_bytes() > 0 && self.sender.window_room() > 0,
        }
    }

    /// Returns whether all retransmissions have arrived twice.
    fn proves_unnecessary(&mut self, news: &News) -> bool {
        let space = (self.sender.una, self.sender.nxt);
        news.duplicates > 0
            && self.recovery.on_duplicate_report(space, news.duplicates, news.duplicates_end)
    }

    /// Returns whether an original has arrived that was retransmitted (Eifel): only in phases in which something was
    /// retransmitted for a loss. Some peers echo zero when they have nothing to echo (tcp_tsopt_ecr_before).
    fn proves_original(&self, news: &News) -> bool {
        news.progress
            && self.recovery.is_recovering()
            && self.recovery.proves_original(news.echo.filter(|echo| *echo != 0))
    }

    fn adjust_window(&mut self, cx: &Context, news: &News, arrived: u32, newly_lost: bool) {
        match self.recovery.phase {
            Phase::Recovery | Phase::Reduced => {
                let in_flight = self.in_flight();
                let good = news.progress && !newly_lost;
                self.recovery.reduce_window(&mut self.congestion, in_flight, arrived, good);
            }
            Phase::Open | Phase::Disorder | Phase::Loss if news.progress => {
                self.congestion.on_ack(arrived, cx.now, &self.rtt);
            }
            Phase::Open | Phase::Disorder | Phase::Loss => {}
        }
    }

    /// Counts duplicate ACKs of a peer without SACK (RFC 5681 §3.2, RFC 6582). Returns how many segments
    /// this ACK reports as delivered.
    fn count_duplicates(&mut self, news: &News) -> u32 {
        let mss = self.segment_bytes();
        let una = self.sender.una;
        let flight = &mut self.sender.flight;
        if news.progress {
            let acked = news.delivered.acked_segments;
            let recovery = &mut self.recovery;
            // Some of these were counted before, by duplicate ACKs (tcp_remove_reno_sacks).
            let arrived = acked.saturating_sub(recovery.duplicates).max(1);
            if recovery.is_partial(una) {
                // A partial acknowledgment: the segment that is first now was lost as well (RFC 6582 §3.2).
                recovery.duplicates = recovery.duplicates.saturating_sub(acked.saturating_sub(1));
                flight.lose_first_segment(mss);
            } else {
                recovery.duplicates = 0;
            }
            return arrived;
        }
        if !news.repeats {
            return 0;
        }
        let most = flight.out_segments().saturating_sub(flight.lost_segments().max(1));
        if self.recovery.duplicates >= most {
            return 0;
        }
        self.recovery.duplicates += 1;
        if self.recovery.duplicates >= DUPLICATE_THRESHOLD && !self.recovery.is_recovering() {
            flight.lose_first_segment(mss);
        } else if self.recovery.phase == Phase::Open {
            self.recovery.phase = Phase::Disorder;
        }
        1
    }

    /// Evaluates a tail loss probe (RFC 8985 §7.4.2, tcp_process_tlp_ack). An ACK of all that was in flight then
    /// may be for the original: the duplicate ACK that the copy causes shows that both have arrived, and an ACK of later data
    /// shows that they have not.
    fn judge_tail_probe(&mut self, news: &News) {
        let Some(probe) = self.recovery.probe else { return };
        let una = self.sender.una;
        if una.before(probe.end) {
            return;
        }
        // Both copies have arrived, or the probe was no copy: nothing was lost.
        let tells_nothing = news.says_nothing && news.delivered.sacked_segments == 0;
        if !probe.repeats || news.duplicates > 0 || una == probe.end && tells_nothing {
            self.recovery.probe = None;
            return;
        }
        if una == probe.end {
            return;
        }
        self.recovery.probe = None;
        // The probe has repaired a loss that would otherwise have been detected: it counts as one.
        let next = self.sender.nxt;
        if matches!(self.recovery.phase, Phase::Open | Phase::Disorder) {
            self.owe_cwr();
            self.recovery.enter_reduced(next, &mut self.congestion);
            self.congestion.window = self.congestion.threshold.min(self.congestion.window);
            self.recovery.phase = Phase::Open;
        }
    }

    /// Starts loss recovery.
    pub(crate) fn begin_recovery(&mut self, cx: &mut Context) {
        cx.counters.recoveries += 1;
        let space = (self.sender.una, self.sender.nxt);
        if self.recovery.phase != Phase::Reduced {
            self.owe_cwr();
        }
        self.recovery.enter(space, &mut self.congestion);
        let in_flight = self.in_flight();
        self.recovery.reduce_window(&mut self.congestion, in_flight, 0, false);
    }

    fn arm_after_ack(&mut self, cx: &Context, news: &News, wait: Option<Duration>) {
        let moved = news.progress || news.delivered.segments > 0;
        if moved {
            self.recovery.progress_at = cx.now;
        }
        // Nothing is found lost by what may be forgotten.
        if let Some(wait) = wait.filter(|_| !self.seems_forgotten()) {
            self.timers.set_loss(LossTimer::Reorder, cx.now + wait);
        } else if moved {
            self.timers.stop(Timer::Loss);
            self.arm_loss_timer(cx);
        }
    }

    fn on_fin_acknowledged(&mut self, cx: &mut Context) {
        if !self.change_state(Cause::FinAcknowledged) {
            return;
        }
        self.user.news |= Ready::DRAINED;
        match self.state {
            State::TimeWait => self.enter_time_wait(cx),
            State::Closed => self.finish(Cause::FinAcknowledged, None, cx),
            _ => self.arm_idle_timer(cx),
        }
    }
}
