//! Joining of consecutive segments in a batch of frames (what Linux calls GRO): the first is processed
//! like any segment, and the others only contribute their data. The ACK is decided once for all of
//! them, as Linux decides it for what its GRO has joined.
//!
//! Nothing waits for this: any other event, whether it is another frame, a call of the user, or the request
//! for the next frame to send, finishes the joining first.

use uncork_packet::Instant;
use uncork_wire::SeqNumber;
use uncork_wire::tcp::{Flags, OptionSet};

use super::Stack;
use crate::connection::Connection;
use crate::connection::arrival::Segment;
use crate::context::Context;
use crate::demux::Tuple;
use crate::handle::SocketId;

/// Most octets that are joined (GRO_LEGACY_MAX_SIZE): an ACK for more would come late.
const MOST_BYTES: u32 = 65_536;

/// Whether the decision about an ACK may be deferred, and whether it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Deferral {
    /// It may not be deferred.
    #[default]
    Never,
    /// It may be deferred, as more segments may follow.
    Allowed,
    /// It was deferred, for segments of this many octets.
    Done(u32),
}

/// Segments that were joined, and what the next one must match to be joined, too.
#[derive(Debug)]
pub(super) struct Joined {
    id: SocketId,
    next: SeqNumber,
    ack: Option<SeqNumber>,
    window: u16,
    options: OptionSet,
    ecn: u8,
    /// Octets of each segment, and of all.
    each: u32,
    bytes: u32,
    /// The last one has the PSH flag.
    pushed: bool,
    at: Instant,
}

/// Returns whether further segments may be joined to this one.
pub(super) fn may_go_on(segment: &Segment<'_>) -> bool {
    segment.flags == Flags::ACK
        && !segment.data.is_empty()
        && !segment.is_marked()
        && segment.segment_bytes.is_none()
        && segment.options.sack.is_empty()
}

impl Stack {
    /// Begins joining with a segment whose ACK was deferred.
    pub(super) fn begin_joining(
        &mut self,
        now: Instant,
        id: SocketId,
        segment: &Segment<'_>,
        each: u32,
    ) {
        self.joined = Some(Joined {
            id,
            next: segment.end(),
            ack: segment.ack,
            window: segment.window,
            options: *segment.options,
            ecn: segment.ecn,
            each,
            bytes: segment.data_bytes(),
            pushed: false,
            at: now,
        });
    }

    /// Joins a segment to those directly before it. If it does not match, the joining is finished.
    pub(super) fn join(&mut self, now: Instant, tuple: &Tuple, segment: &Segment<'_>) -> bool {
        let Some(joined) = &mut self.joined else { return false };
        let bytes = segment.data_bytes();
        let ends = segment.flags.has(Flags::PSH) || bytes < joined.each;
        // The same checks as in tcp_gro_receive.
        let alike = segment.seq == joined.next
            && Flags(segment.flags.0 & !Flags::PSH.0) == Flags::ACK
            && segment.ack == joined.ack
            && segment.window == joined.window
            && *segment.options == joined.options
            && segment.segment_bytes.is_none()
            && segment.ecn == joined.ecn
            && (1..=joined.each).contains(&bytes)
            && joined.bytes + bytes <= MOST_BYTES;
        if alike
            && let Some(connection) = self.connections.get_mut(joined.id.place)
            && connection.id == joined.id
            && connection.tuple == *tuple
        {
            let cx = self.shared.at(now);
            if connection.join(cx, segment) {
                cx.counters.joined += 1;
                joined.next += bytes;
                joined.bytes += bytes;
                joined.pushed = segment.flags.has(Flags::PSH);
                joined.at = now;
                if ends {
                    self.finish_joining();
                }
                return true;
            }
        }
        self.finish_joining();
        false
    }

    /// Finishes the joining: the joined data is acknowledged, now or by the delayed-ACK timer.
    #[inline]
    pub(super) fn finish_joining(&mut self) {
        if self.joined.is_some() {
            self.end_joining();
        }
    }

    fn end_joining(&mut self) {
        let Some(joined) = self.joined.take() else { return };
        let Some(connection) = self.connections.get_mut(joined.id.place) else { return };
        if connection.id != joined.id {
            return;
        }
        let cx = self.shared.at(joined.at);
        connection.acknowledge_joined(cx, joined.each, joined.pushed);
        self.settle(joined.id.place);
    }
}

impl Connection {
    /// Takes the data of a segment if it matches the one before it and is next in order; returns whether it does.
    fn join(&mut self, cx: &mut Context, segment: &Segment<'_>) -> bool {
        let fits = self.takes_plain_data()
            && !cx.pool.is_full()
            && segment.seq == self.receiver.nxt
            && !segment.end().after(self.receiver.window_end());
        if fits {
            self.take_plain_data(cx, segment);
        }
        fits
    }
}
