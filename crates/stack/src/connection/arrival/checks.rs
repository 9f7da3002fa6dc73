//! What a segment must pass before its acknowledgment and data are looked at: timestamp, sequence
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
            // Its SYN has come twice (RFC 2883; tcp_data_queue).
            self.receiver.report_duplicate(segment.seq, segment.end());
            self.ack.demand();
            return Ok(());
        }
        if segment.flags.has(Flags::SYN) {
            // RFC 5961 §4.2: whoever has really restarted answers this with a reset.
            self.challenge(cx);
            return Err(Outcome::Done);
        }
        Ok(())
    }

    /// Our SYN-ACK was lost, or is late.
    fn repeats_syn(&self, segment: &Segment<'_>) -> bool {
        segment.flags.has(Flags::SYN)
            && segment.ack.is_none()
            && !segment.flags.has(Flags::RST)
            && segment.seq == self.receiver.irs
    }

    /// Both have opened at once, and this is the peer's answer to our SYN (RFC 9293 §3.5, figure 7): its
    /// SYN is known, its ACK is not.
    fn crosses(&self, segment: &Segment<'_>) -> bool {
        self.state == State::SynReceived
            && self.listener.is_none()
            && segment.flags.has(Flags::SYN)
            && segment.len() == 1
            && segment.seq == self.receiver.irs
            && segment.ack == Some(self.sender.nxt)
    }

    /// A SYN that can only be a new connection's: its numbers or its timestamps are later than
    /// everything that the old one had, and neither is earlier (RFC 9293 §3.10.7.4 for TIME-WAIT, RFC 6191 §2).
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

    /// PAWS (RFC 7323 §5.3). A reset is not held against its clock (§5.2).
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

    /// First step: something of it must be in the window. What ends at or behind the last ACK is let
    /// through as Linux does: its data is cut off later, and its acknowledgment may be news.
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
        // A FIN that comes again starts the wait anew (§3.10.7.4, eighth step, TIME-WAIT).
        if self.state == State::TimeWait && segment.flags.has(Flags::FIN) {
            self.enter_time_wait(cx);
        }
        Err(Outcome::Done)
    }

    /// Second step, with RFC 5961 §3.2: only a reset that hits the next number exactly is believed;
    /// one that is elsewhere in the window is answered with an ACK, to which a peer that has really
    /// reset answers with one that does.
    fn take_reset(&mut self, cx: &mut Context, segment: &Segment<'_>) {
        let is_believed = segment.seq == self.receiver.nxt
            || self.resets_before_its_fin(segment)
            || self.resets_behind_all(segment);
        if !is_believed {
            self.challenge(cx);
            return;
        }
        // Where both have opened at once the peer has answered, and is not said to have refused: so Linux has it (tcp_reset),
        // and programs know it so, while RFC 9293 §3.10.7.4 would tell an active opener of a refusal.
        let error = match self.state {
            // Nobody has been told of it yet, or everybody has closed.
            State::TimeWait => None,
            State::CloseWait => Some(ConnectionError::Broken),
            _ => Some(ConnectionError::Reset),
        };
        self.finish(Cause::ResetReceived, error, cx);
    }

    /// Darwin says RST with the number of the FIN that it has sent before (tcp_reset_check).
    fn resets_before_its_fin(&self, segment: &Segment<'_>) -> bool {
        self.state.peer_has_ended() && segment.seq == self.receiver.nxt - 1
    }

    /// Who has reset behind a loss says so with the number behind all that he has sent, which may have come: if that was
    /// reported (tcp_validate_incoming). To ask him back costs a round trip, and the answer to that has the number that is
    /// next only if it knows our ACK.
    fn resets_behind_all(&self, segment: &Segment<'_>) -> bool {
        let gaps = self.receiver.gaps().filter(|_| self.peer.sacks);
        gaps.is_some_and(|gaps| gaps.end() == Some(segment.seq))
    }

    /// An ACK that asks the peer to prove that he meant it (RFC 5961).
    pub(crate) fn challenge(&mut self, cx: &mut Context) {
        if self.may_answer(cx) {
            cx.counters.challenge_acks += 1;
            self.ack.demand();
        }
    }

    /// Not too often: two ends that do not believe each other would go on for ever.
    fn may_answer(&mut self, cx: &Context) -> bool {
        let last = self.counts.challenged_at.get();
        let soon = last.is_some_and(|last| cx.now.since(last) < cx.config.challenge_interval);
        if !soon {
            self.counts.challenged_at.set(cx.now);
        }
        !soon
    }

    /// What comes again, or from outside of the window, is answered with an ACK at once, and what of it was
    /// had already is reported (RFC 2883). Data is always: its sender waits for that ACK.
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
