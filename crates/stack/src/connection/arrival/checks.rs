//! Checks of a segment before its acknowledgment and data are processed: timestamp, sequence
//! number, RST, SYN (RFC 9293 §3.10.7.4, first to fourth step; RFC 7323 §5; RFC 5961).

use uncork_wire::SeqNumber;
use uncork_wire::tcp::Flags;

use super::{Outcome, Segment};
use crate::connection::{Cause, Connection, ConnectionError, Owed, State};
use crate::context::Context;

impl Connection {
    pub(super) fn check(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Result<(), Outcome> {
        if self.state == State::SynReceived && self.repeats_syn(segment) {
            self.recovery.answered_again = true;
            self.owed.add(Owed::SYN_ACK);
            return Err(Outcome::Done);
        }
        if self.state == State::TimeWait && self.begins_anew(cx, segment) {
            return Err(Outcome::Restart);
        }
        self.check_timestamp(cx, segment)?;
        self.check_sequence(cx, segment)?;
        if segment.flags.has(Flags::RST) {
            self.take_reset(cx, segment);
            return Err(Outcome::Done);
        }
        if self.crosses(segment) {
            // The peer's SYN was received twice (RFC 2883; tcp_data_queue).
            self.receiver.report_duplicate(segment.seq, segment.end());
            self.ack.demand();
            return Ok(());
        }
        if segment.flags.has(Flags::SYN) {
            // RFC 5961 §4.2: a peer that has really restarted answers this with a reset.
            self.challenge(cx);
            return Err(Outcome::Done);
        }
        Ok(())
    }

    /// Returns whether the peer repeats its SYN, as our SYN-ACK was lost or is late.
    fn repeats_syn(&self, segment: &Segment<'_>) -> bool {
        segment.flags.has(Flags::SYN)
            && segment.ack.is_none()
            && !segment.flags.has(Flags::RST)
            && segment.seq == self.receiver.irs
    }

    /// Returns whether, in a simultaneous open, this is the peer's SYN-ACK for our SYN (RFC 9293 §3.5, figure 7): its
    /// SYN is known already, its ACK is new.
    fn crosses(&self, segment: &Segment<'_>) -> bool {
        self.state == State::SynReceived
            && self.listener.is_none()
            && segment.flags.has(Flags::SYN)
            && segment.len() == 1
            && segment.seq == self.receiver.irs
            && segment.ack == Some(self.sender.nxt)
    }

    /// Returns whether a SYN can only begin a new connection: its sequence number or its timestamp is later than
    /// all of the old connection's, and neither is earlier (RFC 9293 §3.10.7.4 for TIME-WAIT, RFC 6191 §2).
    fn begins_anew(&self, cx: &Context, segment: &Segment<'_>) -> bool {
        let plain = segment.flags.has(Flags::SYN)
            && !segment.flags.has(Flags::RST)
            && segment.ack.is_none();
        let stamp = segment.options.timestamps.filter(|_| self.peer.stamps);
        let (is_old, is_later) = stamp.map_or((false, false), |(value, _)| {
            let is_old = self.peer.is_old_stamp(value, cx.now);
            (is_old, !is_old && value != self.peer.recent)
        });
        plain && !is_old && (segment.seq.after(self.receiver.nxt) || is_later)
    }

    /// Applies PAWS (RFC 7323 §5.3). Resets are exempt (§5.2).
    fn check_timestamp(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Result<(), Outcome> {
        let Some((value, _)) = segment.options.timestamps.filter(|_| self.peer.stamps) else {
            return Ok(());
        };
        if segment.flags.has(Flags::RST) || !self.peer.is_old_stamp(value, cx.now) {
            return Ok(());
        }
        cx.counters.old_timestamps += 1;
        self.repeat_ack(cx, segment);
        Err(Outcome::Done)
    }

    /// First step: part of the segment must be in the window. A segment that ends at or after the last ACK is
    /// accepted as in Linux: old data is cut off later, and its acknowledgment may be new.
    fn check_sequence(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Result<(), Outcome> {
        let receiver = &self.receiver;
        let end = segment.end();
        let old = end.before(receiver.acknowledged);
        let beyond = segment.seq.after(receiver.window_end());
        if !old && !beyond {
            return Ok(());
        }
        if segment.flags.has(Flags::RST) {
            if self.resets_before_its_fin(segment) {
                self.take_reset(cx, segment);
            }
            return Err(Outcome::Done);
        }
        if segment.flags.has(Flags::SYN) {
            self.challenge(cx);
        } else {
            self.repeat_ack(cx, segment);
        }
        // A FIN that comes again restarts the wait (§3.10.7.4, eighth step, TIME-WAIT).
        if self.state == State::TimeWait && segment.flags.has(Flags::FIN) {
            self.enter_time_wait(cx);
        }
        Err(Outcome::Done)
    }

    /// Second step, with RFC 5961 §3.2: only a reset with exactly the expected sequence number is accepted;
    /// one elsewhere in the window is answered with a challenge ACK, which a peer that has really
    /// reset answers with such a one.
    fn take_reset(&mut self, cx: &mut Context, segment: &Segment<'_>) {
        let is_believed = segment.seq == self.receiver.nxt
            || self.resets_before_its_fin(segment)
            || self.resets_behind_all(segment);
        if !is_believed {
            self.challenge(cx);
            return;
        }
        // In a simultaneous open the peer has answered, so the error is not "refused": Linux does the same (tcp_reset), and
        // programs expect it, while RFC 9293 §3.10.7.4 would report a refusal to an active opener.
        let error = match self.state {
            // Both sides have closed: there is no error to report.
            State::TimeWait => None,
            State::CloseWait => Some(ConnectionError::Broken),
            _ => Some(ConnectionError::Reset),
        };
        self.finish(Cause::ResetReceived, error, cx);
    }

    /// Returns whether a reset has the sequence number of the peer's own FIN, as Darwin sends it (tcp_reset_check).
    fn resets_before_its_fin(&self, segment: &Segment<'_>) -> bool {
        self.state.peer_has_ended() && segment.seq == self.receiver.nxt - 1
    }

    /// Returns whether a reset has the number after all out-of-order data. A peer that resets after a loss uses the number after
    /// all that it has sent (accepted by tcp_validate_incoming, too, if SACK has reported that). A challenge ACK would cost a
    /// round trip, and the answer has the expected number only if the peer gets that ACK.
    fn resets_behind_all(&self, segment: &Segment<'_>) -> bool {
        let gaps = self.receiver.gaps().filter(|_| self.peer.sacks);
        gaps.is_some_and(|gaps| gaps.end() == Some(segment.seq))
    }

    /// Sends a challenge ACK, which asks the peer to confirm a segment (RFC 5961).
    pub(crate) fn challenge(&mut self, cx: &mut Context) {
        if self.may_answer(cx) {
            cx.counters.challenge_acks += 1;
            self.ack.demand();
        }
    }

    /// Limits the rate of such answers: two ends that reject each other's segments would go on for ever.
    fn may_answer(&mut self, cx: &Context) -> bool {
        let last = self.counts.challenged_at.get();
        let soon = last.is_some_and(|last| cx.now.since(last) < cx.config.challenge_interval);
        if !soon {
            self.counts.challenged_at.set(cx.now);
        }
        !soon
    }

    /// Acknowledges a segment that was received before, or is outside the window, and reports the part that was
    /// received before by D-SACK (RFC 2883). For data always: its sender waits for that ACK.
    fn repeat_ack(&mut self, cx: &Context, segment: &Segment<'_>) {
        let nxt = self.receiver.nxt;
        let data_end: SeqNumber = segment.seq + segment.data_bytes();
        if segment.data_bytes() > 0 && segment.seq.before(nxt) {
            let end = if data_end.after(nxt) { nxt } else { data_end };
            self.receiver.report_duplicate(segment.seq, end);
        }
        if segment.len() > 0 || self.may_answer(cx) {
            self.ack.demand();
        }
    }
}
