//! What is remembered of segments that left together, and what it tells when they have arrived.

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

/// Segments that left together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
    /// When they left last.
    pub(crate) sent_at: Instant,
    /// Sequence number of the first octet.
    pub(crate) seq: SeqNumber,
    /// The number after the last one, a FIN counted.
    pub(crate) end: SeqNumber,
    /// How many segments they are on the wire.
    pub(crate) segments: u16,
    /// How many were in flight when they left first, these included.
    pub(super) ahead: u16,
    /// How long before that the latest ACK had come, in units of two to the [`WAITED_SHIFT`] nanoseconds.
    pub(super) waited: u16,
    pub(super) marks: u8,
}

/// So that a second fits.
pub(super) const WAITED_SHIFT: u32 = 14;

/// How much has arrived, and since when: what [`Record`] knows when it has arrived itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) segments: u16,
    /// Where the last of them ends.
    pub(crate) end: SeqNumber,
    /// The ACK came from which on these were under way. Not when they left: a peer that has not
    /// acknowledged for a while then does it for all that came meanwhile.
    pub(crate) since: Instant,
    /// The user had no more.
    pub(crate) limited: bool,
}

pub(super) const SACKED: u8 = 1;
pub(super) const LOST: u8 = 2;
/// It was sent again and that transmission is in flight.
pub(super) const RETRANSMITTED: u8 = 4;
/// It was sent again at some time, so that an acknowledgment may be for either (Karn).
pub(super) const AMBIGUOUS: u8 = 8;
/// When it left, more could have been out, but the user had no more (Linux's is_app_limited).
pub(super) const LIMITED: u8 = 16;

impl Record {
    pub(crate) fn is_sacked(&self) -> bool {
        self.marks & SACKED != 0
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.marks & LOST != 0
    }

    /// Whether it is lost and was not sent again since.
    pub(crate) fn wants_retransmission(&self) -> bool {
        self.marks & (SACKED | LOST | RETRANSMITTED) == LOST
    }

    pub(crate) fn is_ambiguous(&self) -> bool {
        self.marks & AMBIGUOUS != 0
    }

    /// Whether it was sent once, and nothing was told of it yet.
    pub(super) fn is_untold(&self) -> bool {
        self.marks & !LIMITED == 0
    }

    /// It is lost, and so is what was sent of it again; gives how many segments are that were not lost before, and takes those
    /// that are in flight no more from `retransmitted`.
    pub(super) fn lose(&mut self, retransmitted: &mut u32) -> u32 {
        let segments = u32::from(self.segments);
        let newly = if self.is_lost() { 0 } else { segments };
        if self.marks & RETRANSMITTED != 0 {
            *retransmitted -= segments;
        }
        self.marks = self.marks & !RETRANSMITTED | LOST;
        newly
    }

    /// Octets of sequence space.
    pub(crate) fn len(&self) -> u32 {
        (self.end - self.seq).unsigned_abs()
    }

    /// What has passed between two ACKs, if the later one is of this.
    pub(crate) fn passed(&self) -> Passed {
        let waited = u64::from(self.waited) << WAITED_SHIFT;
        let since = Instant::from_nanos(self.sent_at.as_nanos().saturating_sub(waited));
        let limited = self.marks & LIMITED != 0;
        Passed { segments: self.ahead, end: self.end, since, limited }
    }
}
