//! The receiving side: from segments in any order ([`reassembly`]) to the user, the receive
//! window ([`window`]), and when to acknowledge ([`ack_policy`]).

pub(crate) mod ack_policy;
pub(crate) mod reassembly;
mod round_trip;
pub(crate) mod window;

use uncork_wire::SeqNumber;

pub(crate) use reassembly::Reassembly;
use round_trip::RoundTrip;
use window::Tuning;

use crate::memory::{LEAST_BYTES, Pool, Ring};

/// Receive sequence space (RFC 9293 §3.3.1) and the bytes in it.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Initial receive sequence number (IRS).
    pub(crate) irs: SeqNumber,
    /// Next octet expected (RCV.NXT).
    pub(crate) nxt: SeqNumber,
    /// RCV.NXT when the last ACK was sent.
    pub(crate) acknowledged: SeqNumber,
    /// The window in that ACK, in octets (RCV.WND).
    pub(crate) window: u32,
    /// Sequence number of the peer's FIN, if it has come.
    fin: Option<SeqNumber>,
    /// Octets in order that the user has not read, and out-of-order octets after them.
    buffer: Ring,
    gaps: Option<Box<Reassembly>>,
    /// A range that was received twice, to be reported once by D-SACK (RFC 2883).
    pub(crate) duplicate: Option<(SeqNumber, SeqNumber)>,
    /// Most octets in the buffer.
    pub(crate) limit: u32,
    pub(crate) tuning: Tuning,
    pub(crate) round_trip: RoundTrip,
}

/// How a segment's data was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was in order, and nothing was waiting after it.
    InOrder,
    /// It has filled a gap, or part of one.
    Filled,
    /// It is out of order.
    Ahead,
    /// All of it was received before.
    Duplicate,
    /// It was dropped for lack of room.
    Dropped,
}

impl Receiver {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            irs: SeqNumber(0),
            nxt: SeqNumber(0),
            acknowledged: SeqNumber(0),
            window: 0,
            fin: None,
            buffer: Ring::default(),
            gaps: None,
            duplicate: None,
            limit,
            tuning: Tuning::default(),
            round_trip: RoundTrip::default(),
        }
    }

    /// Starts with the peer's SYN.
    pub(crate) fn begin(&mut self, irs: SeqNumber) {
        self.irs = irs;
        self.nxt = irs + 1;
        self.acknowledged = self.nxt;
    }

    /// Returns the number of octets that the user can read.
    pub(crate) fn readable_bytes(&self) -> u32 {
        self.buffer.len()
    }

    /// Returns the octets that the user can read, in two pieces.
    pub(crate) fn readable(&self) -> (&[u8], &[u8]) {
        self.buffer.slices(0, self.buffer.len())
    }

    /// Removes octets that the user has read.
    pub(crate) fn consume(&mut self, bytes: u32, pool: &mut Pool) {
        self.buffer.consume(bytes);
        if self.buffer.len() == 0 && self.gaps.is_none() {
            self.buffer.release(pool);
        }
    }

    /// Returns all octets that the user can read, if there are any and they lie in one piece.
    #[inline]
    pub(crate) fn readable_piece(&self) -> Option<&[u8]> {
        self.buffer.piece()
    }

    /// Removes all octets after the user has read them, when there are no gaps.
    #[inline]
    pub(crate) fn consume_all(&mut self, pool: &mut Pool) {
        debug_assert!(self.gaps.is_none());
        self.buffer.release(pool);
    }

    /// Returns whether there is a gap before some received data, or a duplicate to report.
    pub(crate) fn has_gaps(&self) -> bool {
        self.gaps.is_some() || self.duplicate.is_some()
    }

    /// Returns whether there is no gap, no duplicate to report, and no FIN.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        !self.has_gaps() && self.fin.is_none()
    }

    /// Takes in-order data when there are no gaps.
    #[inline]
    pub(crate) fn take_next(&mut self, data: &[u8], pool: &mut Pool) {
        debug_assert!(self.gaps.is_none());
        #[expect(clippy::cast_possible_truncation, reason = "a frame is smaller than 4 GiB")]
        let bytes = data.len() as u32;
        self.buffer.push(data, pool);
        self.nxt += bytes;
    }

    pub(crate) fn gaps(&self) -> Option<&Reassembly> {
        self.gaps.as_deref()
    }

    /// Takes `data` that begins at `seq`, all of it within the window.
    pub(crate) fn take(&mut self, seq: SeqNumber, data: &[u8], pool: &mut Pool) -> Taken {
        #[expect(clippy::cast_possible_truncation, reason = "a frame is smaller than 4 GiB")]
        let end = seq + data.len() as u32;
        if !end.after(self.nxt) {
            self.report_duplicate(seq, end);
            return Taken::Duplicate;
        }
        // When all buffers together hold too much, each gets only what its user needs to make progress (tcp_try_rmem_schedule).
        if pool.is_full() && (seq.after(self.nxt) || self.readable_bytes() >= LEAST_BYTES) {
            return Taken::Dropped;
        }
        if seq.after(self.nxt) {
            return self.take_ahead(seq, end, data, pool);
        }
        let old = (self.nxt - seq).unsigned_abs();
        if old > 0 {
            self.report_duplicate(seq, self.nxt);
        }
        let data = &data[old as usize..];
        self.buffer.write_ahead(0, data, pool);
        let Some(gaps) = &mut self.gaps else {
            self.buffer.extend((end - self.nxt).unsigned_abs());
            self.nxt = end;
            return Taken::InOrder;
        };
        let reached = gaps.advance(end);
        // The range may include the FIN's sequence number, which is taken separately.
        let reached = self.fin.filter(|fin| reached.after(*fin)).unwrap_or(reached);
        self.buffer.extend((reached - self.nxt).unsigned_abs());
        self.nxt = reached;
        if gaps.is_empty()
            && let Some(gaps) = self.gaps.take()
        {
            pool.give_reassembly(gaps);
        }
        Taken::Filled
    }

    fn take_ahead(
        &mut self,
        seq: SeqNumber,
        end: SeqNumber,
        data: &[u8],
        pool: &mut Pool,
    ) -> Taken {
        let gaps = self.gaps.get_or_insert_with(|| pool.take_reassembly());
        if gaps.contains(seq, end) {
            self.duplicate = Some((seq, end));
            return Taken::Duplicate;
        }
        if !gaps.insert(seq, end) {
            return Taken::Dropped;
        }
        self.buffer.write_ahead((seq - self.nxt).unsigned_abs(), data, pool);
        Taken::Ahead
    }

    /// Notes a duplicate range for the next ACK: the first one is reported, and extended by others that touch it.
    pub(crate) fn report_duplicate(&mut self, left: SeqNumber, right: SeqNumber) {
        match &mut self.duplicate {
            Some(range) if !left.after(range.1) && !right.before(range.0) => {
                range.0 = if left.before(range.0) { left } else { range.0 };
                range.1 = range.1.max(right);
            }
            Some(_) => {}
            None => self.duplicate = Some((left, right)),
        }
    }

    /// Notes the peer's FIN at `seq`. A FIN that contradicts an earlier one is ignored. One that is out of order is reported by
    /// SACK like data: senders that track only whole segments count it as part of the last one
    /// (tcp_match_skb_to_sack).
    pub(crate) fn note_fin(&mut self, seq: SeqNumber, pool: &mut Pool) {
        if *self.fin.get_or_insert(seq) == seq && seq.after(self.nxt) {
            self.gaps.get_or_insert_with(|| pool.take_reassembly()).insert(seq, seq + 1);
        }
    }

    /// Takes the FIN if it is next in order; returns whether it is.
    pub(crate) fn take_fin(&mut self) -> bool {
        let turn = self.fin == Some(self.nxt);
        if turn {
            self.nxt += 1;
        }
        turn
    }

    /// Returns whether the peer's FIN was taken, so that no more data comes.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.nxt.after(fin))
    }

    /// Gives all storage back.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.buffer.release(pool);
        if let Some(gaps) = self.gaps.take() {
            pool.give_reassembly(gaps);
        }
    }
}

#[cfg(test)]
mod tests {
    use uncork_wire::SeqNumber;

    use super::{Receiver, Taken};
    use crate::memory::Pool;

    fn receiver() -> Receiver {
        let mut receiver = Receiver::new(65_536);
        receiver.begin(SeqNumber(u32::MAX));
        receiver
    }

    #[test]
    fn what_comes_out_of_order_and_twice_is_read_in_order_and_once() {
        let mut pool = Pool::new(1 << 20);
        let mut receiver = receiver();
        let mut take = |seq, data: &[u8]| receiver.take(SeqNumber(seq), data, &mut pool);
        assert_eq!(take(5, b"fgh"), Taken::Ahead);
        assert_eq!(take(10, b"k"), Taken::Ahead);
        assert_eq!(take(0, b"abc"), Taken::Filled);
        assert_eq!(take(6, b"gh"), Taken::Duplicate);
        assert_eq!(take(1, b"bcdef"), Taken::Filled);
        assert_eq!(take(0, b"a"), Taken::Duplicate);
        assert_eq!(take(8, b"ij"), Taken::Filled);
        assert_eq!(take(11, b"l"), Taken::InOrder);
        assert_eq!(receiver.readable().0, b"abcdefghijkl");
        receiver.consume(12, &mut pool);
        assert_eq!(receiver.buffer.capacity(), 0);
    }

    #[test]
    fn a_fin_waits_for_what_is_missing_before_it() {
        let mut pool = Pool::new(1 << 20);
        let mut receiver = receiver();
        receiver.take(SeqNumber(1), b"b", &mut pool);
        receiver.note_fin(SeqNumber(2), &mut pool);
        assert!(!receiver.take_fin());
        receiver.take(SeqNumber(0), b"a", &mut pool);
        assert_eq!((receiver.nxt, receiver.readable_bytes()), (SeqNumber(2), 2));
        assert!(receiver.take_fin() && receiver.is_finished() && !receiver.has_gaps());
        assert_eq!(receiver.nxt, SeqNumber(3));
    }
}
