//! A segment has come: what RFC 9293 §3.10.7 says to do, in its order.

mod ack;
mod checks;
mod data;
mod predicted;
mod syn_sent;

use uncork_wire::SeqNumber;
use uncork_wire::tcp::{Flags, OptionSet};

use super::{Connection, State};
use crate::context::Context;

/// A segment, or a train of them that was joined on the way in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    /// SEG.SEQ
    pub(crate) seq: SeqNumber,
    /// SEG.ACK, if there is one
    pub(crate) ack: Option<SeqNumber>,
    pub(crate) flags: Flags,
    /// SEG.WND as on the wire
    pub(crate) window: u16,
    /// Referred to: they are long, and to copy what was just written makes the processor wait.
    pub(crate) options: &'a OptionSet,
    pub(crate) data: &'a [u8],
    /// Data of each segment of a train.
    pub(crate) segment_bytes: Option<u16>,
    /// What its IP header says of congestion (RFC 3168 §5).
    pub(crate) ecn: u8,
}

impl Segment<'_> {
    /// A router has marked it (CE).
    pub(crate) fn is_marked(&self) -> bool {
        self.ecn == 3
    }

    /// It is marked, or could have been (ECT).
    pub(crate) fn is_capable(&self) -> bool {
        self.ecn != 0
    }

    /// SEG.LEN: data, SYN and FIN.
    pub(crate) fn len(&self) -> u32 {
        let syn = u32::from(self.flags.has(Flags::SYN));
        let fin = u32::from(self.flags.has(Flags::FIN));
        self.data_bytes() + syn + fin
    }

    /// The number behind its last.
    pub(crate) fn end(&self) -> SeqNumber {
        self.seq + self.len()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a frame is smaller than 4 GiB")]
    pub(crate) fn data_bytes(&self) -> u32 {
        self.data.len() as u32
    }

    /// Segments that it was on the wire.
    pub(crate) fn segments(&self) -> u32 {
        let each = self.segment_bytes.map_or(u32::MAX, u32::from).max(1);
        self.data_bytes().div_ceil(each).max(1)
    }
}

/// What is left to be done about a segment by whoever has handed it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing.
    Done,
    /// It is answered with a reset.
    Reset,
    /// It begins a new connection in the place of this one, which was in TIME-WAIT.
    Restart,
}

impl Connection {
    /// Takes a segment in.
    pub(crate) fn handle_segment(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Outcome {
        self.counts.segments_in += u64::from(segment.segments());
        let outcome = match self.state {
            State::Closed => Err(Outcome::Reset),
            State::SynSent => self.arrive_in_syn_sent(cx, segment),
            _ => self.arrive(cx, segment),
        };
        outcome.err().unwrap_or(Outcome::Done)
    }

    /// Every state from SYN-RECEIVED on (§3.10.7.4).
    fn arrive(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Result<(), Outcome> {
        self.check(cx, segment)?;
        self.counts.last_heard = cx.now;
        self.counts.unanswered = 0;
        // Without ACK it is dropped (fifth step).
        let ack = segment.ack.ok_or(Outcome::Done)?;
        // What ends the handshake tells of that (tcp_rcv_state_process).
        let was_open = self.state == State::Established;
        self.take_ack(cx, segment, ack)?;
        if was_open
            && !segment.data.is_empty()
            && self.peer.stamps
            && let Some((_, echo)) = segment.options.timestamps
        {
            self.hear_echo(cx, echo, segment.len());
        }
        self.take_data(cx, segment)?;
        self.take_fin(cx, segment);
        Ok(())
    }
}
