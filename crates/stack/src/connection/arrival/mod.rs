//! Processing of a received segment, in the order of RFC 9293 §3.10.7.

mod ack;
mod checks;
mod data;
mod predicted;
mod syn_sent;

use uncork_wire::SeqNumber;
use uncork_wire::tcp::{Flags, OptionSet};

use super::{Connection, State};
use crate::context::Context;

/// A received segment, or a train of segments that the device has joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    /// SEG.SEQ
    pub(crate) seq: SeqNumber,
    /// SEG.ACK, if there is one
    pub(crate) ack: Option<SeqNumber>,
    pub(crate) flags: Flags,
    /// SEG.WND as on the wire
    pub(crate) window: u16,
    /// By reference: the set is long, and copying what was just written makes the processor wait.
    pub(crate) options: &'a OptionSet,
    pub(crate) data: &'a [u8],
    /// Data of each segment of a train.
    pub(crate) segment_bytes: Option<u16>,
    /// ECN field of its IP header (RFC 3168 §5).
    pub(crate) ecn: u8,
}

impl Segment<'_> {
    /// Returns whether a router has marked it (CE).
    pub(crate) fn is_marked(&self) -> bool {
        self.ecn == 3
    }

    /// Returns whether its packet is ECN-capable, marked or not (ECT or CE).
    pub(crate) fn is_capable(&self) -> bool {
        self.ecn != 0
    }

    /// Returns SEG.LEN: data, SYN and FIN.
    pub(crate) fn len(&self) -> u32 {
        let syn = u32::from(self.flags.has(Flags::SYN));
        let fin = u32::from(self.flags.has(Flags::FIN));
        self.data_bytes() + syn + fin
    }

    /// Returns the sequence number after its last.
    pub(crate) fn end(&self) -> SeqNumber {
        self.seq + self.len()
    }

    #[expect(clippy::cast_possible_truncation, reason = "a frame is smaller than 4 GiB")]
    pub(crate) fn data_bytes(&self) -> u32 {
        self.data.len() as u32
    }

    /// Returns how many segments it was on the wire.
    pub(crate) fn segments(&self) -> u32 {
        let each = self.segment_bytes.map_or(u32::MAX, u32::from).max(1);
        self.data_bytes().div_ceil(each).max(1)
    }
}

/// What the caller still has to do about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing.
    Done,
    /// Answer it with a reset.
    Reset,
    /// Begin a new connection with it in place of this one, which was in TIME-WAIT.
    Restart,
}

impl Connection {
    /// Processes a received segment.
    pub(crate) fn handle_segment(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Outcome {
        self.counts.segments_in += u64::from(segment.segments());
        let outcome = match self.state {
            State::Closed => Err(Outcome::Reset),
            State::SynSent => self.arrive_in_syn_sent(cx, segment),
            _ => self.arrive(cx, segment),
        };
        outcome.err().unwrap_or(Outcome::Done)
    }

    /// Processes a segment in every state from SYN-RECEIVED on (§3.10.7.4).
    fn arrive(&mut self, cx: &mut Context, segment: &Segment<'_>) -> Result<(), Outcome> {
        self.check(cx, segment)?;
        self.counts.last_heard = cx.now;
        self.counts.unanswered = 0;
        // A segment without ACK is dropped (fifth step).
        let ack = segment.ack.ok_or(Outcome::Done)?;
        // The segment that completes the handshake has been used for a sample by that (tcp_rcv_state_process).
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
