//! The record of segments that left together, and what it measures when they are delivered.

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

/// A transmission: segments that left together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
    /// When they last left.
    pub(crate) sent_at: Instant,
    /// Sequence number of the first octet.
    pub(crate) seq: SeqNumber,
    /// The sequence number after the last octet, a FIN included.
    pub(crate) end: SeqNumber,
    /// Number of segments on the wire.
    pub(crate) segments: u16,
    /// How many segments were in flight when they first left, these included.
    pub(super) ahead: u16,
    /// How long before that the latest ACK had come, in units of two to the [`WAITED_SHIFT`] nanoseconds.
    pub(super) waited: u16,
    pub(super) marks: u8,
}

/// Shift of that unit, with which a second fits.
pub(super) const WAITED_SHIFT: u32 = 14;

/// How much was delivered since when: the measurement of a delivered [`Record`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) segments: u16,
    /// The sequence number after the last of them.
    pub(crate) end: SeqNumber,
    /// Arrival of the ACK after which these were in flight. Not the time when they left: a peer that has not
    /// acknowledged for a while then acknowledges all that has arrived meanwhile.
    pub(crate) since: Instant,
    /// The flow was application-limited.
    pub(crate) limited: bool,
}

pub(super) const SACKED: u8 = 1;
pub(super) const LOST: u8 = 2;
/// It was retransmitted, and the retransmission is in flight.
pub(super) const RETRANSMITTED: u8 = 4;
/// It was ever retransmitted, so that an acknowledgment may be for either transmission (Karn).
pub(super) const AMBIGUOUS: u8 = 8;
/// When it left the flow was application-limited: more could have been in flight (Linux's is_app_limited).
pub(super) const LIMITED: u8 = 16;

impl Record {
    pub(crate) fn is_sacked(&self) -> bool {
        self.marks & SACKED != 0
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.marks & LOST != 0
    }

    /// Returns whether it is lost and was not retransmitted since.
    pub(crate) fn wants_retransmission(&self) -> bool {
        self.marks & (SACKED | LOST | RETRANSMITTED) == LOST
    }

    pub(crate) fn is_ambiguous(&self) -> bool {
        self.marks & AMBIGUOUS != 0
    }

    /// Returns whether it was sent once, and has no mark.
    pub(super) fn is_untold(&self) -> bool {
        self.marks & !LIMITED == 0
    }

    /// Marks the record and its retransmission as lost; returns how many segments are newly lost, and takes those that are no
    /// longer in flight from `retransmitted`.
    pub(super) fn lose(&mut self, retransmitted: &mut u32) -> u32 {
        let segments = u32::from(self.segments);
        let newly = if self.is_lost() { 0 } else { segments };
        if self.marks & RETRANSMITTED != 0 {
            *retransmitted -= segments;
        }
        self.marks = self.marks & !RETRANSMITTED | LOST;
        newly
    }

    /// Returns its length in sequence space.
    pub(crate) fn len(&self) -> u32 {
        (self.end - self.seq).unsigned_abs()
    }

    /// Returns the delivery measurement for an ACK of this record.
    pub(crate) fn passed(&self) -> Passed {
        let waited = u64::from(self.waited) << WAITED_SHIFT;
        let since = Instant::from_nanos(self.sent_at.as_nanos().saturating_sub(waited));
        let limited = self.marks & LIMITED != 0;
        Passed { segments: self.ahead, end: self.end, since, limited }
    }
}
