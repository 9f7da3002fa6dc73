//! Processing of a segment's data and FIN, and when to acknowledge them (RFC 9293 §3.10.7.4, seventh and
//! eighth step).

use uncork_wire::tcp::Flags;

use super::{Outcome, Segment};
use crate::connection::receive::Taken;
use crate::connection::receive::ack_policy::Arrival;
use crate::connection::timers::Timer;
use crate::connection::{Cause, Connection, ConnectionError, Fast, State};
use crate::context::Context;
use crate::event::Ready;
use crate::stack::join::Deferral;

/// Quick-ACK credits after a CE mark.
const MARK_QUICK_ACKS: u8 = 2;

impl Connection {
    pub(in crate::connection) fn take_data(
        &mut self,
        cx: &mut Context,
        segment: &Segment<'_>,
    ) -> Result<(), Outcome> {
        if segment.data.is_empty() {
            return Ok(());
        }
        if !self.state.may_receive() {
            // The peer's FIN was received: this can only be old, and is acknowledged once more.
            self.ack.demand();
            return Ok(());
        }
        // Nobody will ever read it, and the peer must learn that (RFC 9293 §3.6.1, RFC 2525 §2.17).
        if (segment.seq + segment.data_bytes()).after(self.receiver.nxt)
            && let Some(error) = self.resets_on_data()
        {
            self.finish(Cause::Abort, Some(error), cx);
            return Err(Outcome::Reset);
        }
        self.note_mark(cx, segment);
        // What is beyond the window is cut off; the peer will send it again.
        let room = (self.receiver.window_end() - segment.seq).max(0).unsigned_abs() as usize;
        let data = &segment.data[..segment.data.len().min(room)];
        if data.is_empty() {
            self.ack.demand();
            return Ok(());
        }
        let before = self.receiver.nxt;
        let taken = self.receiver.take(segment.seq, data, &mut cx.pool);
        let dropped = if taken == Taken::Dropped { segment.segments() } else { 0 };
        cx.counters.receive_drops += u64::from(dropped);
        let new = (self.receiver.nxt - before).unsigned_abs();
        self.counts.bytes_received += u64::from(new);
        self.counts.data_segments_in += u64::from(segment.segments());
        if new > 0 {
            self.user.news |= Ready::READABLE;
        }
        self.acknowledge(cx, segment, taken);
        Ok(())
    }

    /// Returns the error if nobody will read new data: the user has closed the connection, or shut down both
    /// directions (tcp_rcv_state_process, TCPABORTONDATA). After SHUT_RD alone data is still accepted, as in Linux.
    fn resets_on_data(&self) -> Option<ConnectionError> {
        let accepted = self.listener.is_none() || self.fast.has(Fast::ACCEPTED);
        if !self.user.attached && accepted {
            return Some(ConnectionError::Aborted);
        }
        let has_ended = matches!(self.state, State::FinWait1 | State::FinWait2);
        (has_ended && self.user.closed_reading).then_some(ConnectionError::Reset)
    }

    fn acknowledge(&mut self, cx: &mut Context, segment: &Segment<'_>, taken: Taken) {
        let window = self.receiver.window;
        match taken {
            Taken::Duplicate | Taken::Dropped => {
                // RFC 5681 §4.2: at once, so that the sender's recovery continues.
                self.ack.quicken(window, cx.config.quick_acks);
                self.ack.demand();
                return;
            }
            Taken::InOrder | Taken::Filled | Taken::Ahead => {}
        }
        let each = segment.segment_bytes.map_or(segment.data_bytes(), u32::from);
        let later = taken == Taken::InOrder && cx.deferral == Deferral::Allowed;
        if later && self.takes_plain_data() {
            cx.deferral = Deferral::Done(each);
            return;
        }
        if taken != Taken::Ahead {
            self.measure_window(cx);
        }
        self.note_arrival(cx, each, segment.flags.has(Flags::PSH));
        match taken {
            Taken::Ahead => {
                // RFC 5681 §4.2: a duplicate ACK for every out-of-order segment.
                let ahead = &mut self.counts.trouble_mut().out_of_order;
                *ahead = ahead.saturating_add(segment.segments());
                self.ack.demand();
                if !self.peer.sacks {
                    let segments = u8::try_from(segment.segments()).unwrap_or(u8::MAX);
                    self.owed.duplicate_acks = self.owed.duplicate_acks.saturating_add(segments);
                }
            }
            Taken::Filled => self.ack.demand(),
            _ => self.decide_on_ack(cx),
        }
    }

    #[inline(always)]
    fn note_arrival(&mut self, cx: &Context, each: u32, pushed: bool) {
        let arrival = Arrival {
            now: cx.now,
            segment_bytes: each,
            pushed,
            window: self.receiver.window,
            most_bytes: self.path.mtu,
            credits: cx.config.quick_acks,
        };
        self.ack.on_data(arrival, || self.rtt.timeout(cx.timeouts));
    }

    #[inline(always)]
    fn measure_window(&mut self, cx: &Context) {
        let receiver = &mut self.receiver;
        receiver.round_trip.measure(receiver.nxt, receiver.window, cx.now);
    }

    /// Takes a round-trip sample for the receiver from a timestamp that a segment of this many octets echoes.
    #[inline(always)]
    pub(super) fn hear_echo(&mut self, cx: &Context, echo: u32, bytes: u32) {
        let age = self.peer.stamp(cx.now).wrapping_sub(echo);
        let is_full = bytes >= self.ack.segment_bytes();
        let is_idle = self.receiver.readable_bytes() == 0;
        self.receiver.round_trip.hear(echo, age, is_full, is_idle);
    }

    /// Returns whether in-order data has no effect other than an ACK.
    pub(crate) fn takes_plain_data(&self) -> bool {
        self.state == State::Established && self.user.attached && self.receiver.is_plain()
    }

    /// Takes in-order data of a segment that brings nothing else new.
    pub(crate) fn take_plain_data(&mut self, cx: &mut Context, segment: &Segment<'_>) {
        self.counts.segments_in += 1;
        self.counts.data_segments_in += 1;
        self.counts.bytes_received += u64::from(segment.data_bytes());
        self.counts.last_heard = cx.now;
        self.counts.unanswered = 0;
        self.receiver.take(segment.seq, segment.data, &mut cx.pool);
        self.user.news |= Ready::READABLE;
    }

    /// Decides on the ACK for in-order segments of `each` octets; `pushed` says that they end a write.
    #[inline(always)]
    pub(crate) fn acknowledge_joined(&mut self, cx: &Context, each: u32, pushed: bool) {
        self.measure_window(cx);
        self.note_arrival(cx, each, pushed);
        self.decide_on_ack(cx);
    }

    #[inline(always)]
    fn decide_on_ack(&mut self, cx: &Context) {
        let receiver = &self.receiver;
        let unacknowledged = (receiver.nxt - receiver.acknowledged).unsigned_abs();
        // While the window is wide an ACK helps the sender; when it closes because nobody reads, the
        // read will send one (__tcp_ack_snd_check).
        let segment_bytes = self.ack.segment_bytes();
        let moved = || {
            let offer = receiver.window_to_offer(segment_bytes, self.peer.receive_shift);
            offer >= receiver.window.min(receiver.limit / 2)
        };
        let standing = self.timers.deadline(Timer::Ack);
        let smoothed = self.rtt.smoothed();
        let patience = cx.config.answer_patience;
        let deadline = self.ack.decide(unacknowledged, moved, patience, cx.now, smoothed, standing);
        if let Some(deadline) = deadline {
            self.timers.set(Timer::Ack, deadline);
        }
    }

    /// Notes a CE mark, which is echoed until the sender has reduced its window (RFC 3168 §6.1.3).
    fn note_mark(&mut self, cx: &Context, segment: &Segment<'_>) {
        if !self.peer.ecn {
            return;
        }
        if segment.flags.has(Flags::CWR) {
            self.peer.echoes_congestion = false;
            // The sender's window may be very small (tcp_ecn_accept_cwr).
            self.ack.demand();
        }
        let begins = segment.is_marked() && !self.peer.echoes_congestion;
        // A packet that is not ECN-capable, after some that were, is mostly a retransmission (tcp_data_ecn_check).
        let comes_again = !segment.is_capable() && self.counts.saw_capable;
        if begins || comes_again {
            self.ack.quicken(self.receiver.window, cx.config.quick_acks.min(MARK_QUICK_ACKS));
        }
        self.peer.echoes_congestion |= segment.is_marked();
        self.counts.saw_capable |= segment.is_capable();
    }

    pub(in crate::connection) fn take_fin(&mut self, cx: &mut Context, segment: &Segment<'_>) {
        if segment.flags.has(Flags::FIN) {
            let seq = segment.seq + segment.data_bytes();
            if !seq.before(self.receiver.nxt) && !seq.after(self.receiver.window_end()) {
                self.receiver.note_fin(seq, &mut cx.pool);
            }
            if self.state == State::TimeWait {
                self.enter_time_wait(cx);
            }
        }
        if !self.state.may_receive() || !self.receiver.take_fin() {
            // It was taken before and our ACK is lost, or it comes after a gap or beyond the window.
            if segment.flags.has(Flags::FIN) {
                self.ack.demand();
            }
            return;
        }
        self.acknowledge_fin(cx);
        self.user.news |= Ready::READABLE | Ready::PEER_CLOSED;
        self.change_state(Cause::FinReceived);
        if self.state == State::TimeWait {
            self.enter_time_wait(cx);
        }
    }

    /// Acknowledges a FIN. If this side may close soon the ACK waits, as its own FIN can carry it.
    fn acknowledge_fin(&mut self, cx: &Context) {
        if self.state != State::Established || self.owed.duplicate_acks > 0 {
            return self.ack.demand();
        }
        if let Some(deadline) = self.ack.hold(cx.config.answer_patience, cx.now) {
            self.timers.set(Timer::Ack, deadline);
        }
    }
}
