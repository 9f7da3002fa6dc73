//! The sending side: from the user's call into a [`Sender`]'s buffer, through what may hold data
//! back ([`decision`]), into a frame ([`emit`]).

pub(crate) mod decision;
pub(crate) mod device_queue;
pub(crate) mod emit;
pub(crate) mod ends;
pub(crate) mod pacer;
mod plain;

use uncork_wire::SeqNumber;

use self::ends::{Course, Ends, mark_pushes};
use super::recovery::Flight;
use crate::memory::{Pool, Ring};

/// Send sequence space (RFC 9293 §3.3.1) and the bytes in it.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Initial send sequence number (ISS).
    pub(crate) iss: SeqNumber,
    /// First unacknowledged sequence number (SND.UNA).
    pub(crate) una: SeqNumber,
    /// Next sequence number to send (SND.NXT).
    pub(crate) nxt: SeqNumber,
    /// The peer's window from `una` on, in octets (SND.WND).
    pub(crate) window: u32,
    /// Segment and acknowledgment of the last window update (SND.WL1, SND.WL2).
    pub(crate) window_seq: SeqNumber,
    pub(crate) window_ack: SeqNumber,
    /// Largest window the peer has ever had, in octets (MAX.SND.WND, RFC 5961 §5.2).
    pub(crate) max_window: u32,
    /// The sequence number after the last octet that the user has queued.
    pub(crate) end: SeqNumber,
    /// End of the latest write without MSG_MORE: the segment there has PSH.
    pub(crate) pushed: SeqNumber,
    /// End of the latest whole message, which Nagle's algorithm does not hold back.
    whole: SeqNumber,
    /// A cork does not hold it back either: it was pushed explicitly.
    hurried: bool,
    /// End of the latest segment below full size (Minshall's variant of Nagle's algorithm).
    pub(crate) small_end: SeqNumber,
    /// The latest write announced more (MSG_MORE).
    pub(crate) more: bool,
    /// The user has closed the sending direction: a FIN follows the last octet.
    pub(crate) fin_queued: bool,
    /// The FIN was sent at least once.
    pub(crate) fin_sent: bool,
    /// Ends of records and of the pieces of a long write; boxed, as most connections have none.
    ends: Option<Box<Ends>>,
    pub(crate) buffer: Ring,
    pub(crate) flight: Flight,
}

impl Sender {
    pub(crate) fn new(iss: SeqNumber) -> Self {
        let first = iss + 1;
        Self {
            iss,
            una: iss,
            nxt: iss,
            window: 0,
            window_seq: SeqNumber(0),
            window_ack: SeqNumber(0),
            max_window: 0,
            end: first,
            pushed: first,
            whole: first,
            hurried: false,
            small_end: iss,
            more: false,
            fin_queued: false,
            fin_sent: false,
            ends: None,
            buffer: Ring::default(),
            flight: Flight::default(),
        }
    }

    /// Changes the initial sequence number before anything was sent or queued.
    pub(crate) fn renumber(&mut self, iss: SeqNumber) {
        debug_assert!(self.nxt == self.iss && self.buffer.len() == 0, "it has begun");
        let first = iss + 1;
        (self.iss, self.una, self.nxt, self.small_end) = (iss, iss, iss, iss);
        (self.end, self.pushed, self.whole) = (first, first, first);
    }

    /// Exempts all that was queued so far from Nagle's algorithm and the cork.
    pub(crate) fn hurry(&mut self) {
        (self.whole, self.hurried) = (self.end, true);
    }

    /// Exempts all that was queued so far from Nagle's algorithm.
    pub(crate) fn complete(&mut self) {
        self.hurried &= self.whole == self.end;
        self.whole = self.end;
    }

    /// Returns whether the queued data ends with a whole message. Tested by equality: the end of a message long ago would seem
    /// to be in the future after a wrap.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.whole == self.end
    }

    /// Returns whether no part of the queued data may be held back.
    #[inline]
    pub(crate) fn is_hurried(&self) -> bool {
        self.hurried && self.is_whole()
    }

    /// Returns whether a segment below full size is unacknowledged. If its end is long ago, that number may seem to be in the
    /// future.
    #[inline]
    pub(crate) fn is_small_out(&self) -> bool {
        self.small_end.after(self.una) && !self.small_end.after(self.nxt)
    }

    /// Returns the number of octets that were never sent.
    pub(crate) fn unsent_bytes(&self) -> u32 {
        // Before the SYN is sent there is one sequence number more than there are octets.
        u32::try_from(self.end - self.nxt).unwrap_or(0).min(self.buffer.len())
    }

    /// Ends a record at the latest queued octet.
    pub(crate) fn end_record(&mut self) {
        self.ends.get_or_insert_default().add_record(self.end);
    }

    /// Returns the octets left of the record that is sent next, if something follows it.
    pub(crate) fn record_bytes(&self) -> Option<u32> {
        let end = self.ends.as_deref()?.record_after(self.nxt)?;
        end.before(self.end).then(|| (end - self.nxt).unsigned_abs())
    }

    /// Returns whether a segment of these octets has PSH: a write of the user's ends in it, or a record, or a piece of
    /// a long write.
    #[inline]
    pub(crate) fn pushes(&self, seq: SeqNumber, end: SeqNumber) -> bool {
        self.pushed.after(seq) && !self.pushed.after(end)
            || self.ends.as_deref().is_some_and(|ends| ends.pushes(seq, end))
    }

    /// Returns whether `bytes` more are so many that PSH may be needed before their end.
    pub(crate) fn is_long(&self, bytes: u32) -> bool {
        (self.end - self.pushed).unsigned_abs().saturating_add(bytes) > self.max_window / 2
    }

    /// Computes the PSH positions in the next `bytes`, which are a long write.
    pub(crate) fn mark_pushes(&mut self, bytes: u32, course: Course) {
        let (end, unsent, half) = (self.end, self.unsent_bytes(), self.max_window / 2);
        let ends = &mut self.ends;
        self.pushed = mark_pushes(end, unsent, bytes, course, half, self.pushed, |end| {
            ends.get_or_insert_default().add_push(end);
        });
    }

    /// Sets PSH after what has been sent so far.
    pub(crate) fn push_here(&mut self) {
        let sent = self.nxt;
        self.ends.get_or_insert_default().add_push(sent);
    }

    /// Returns whether there are boundaries within the queued data.
    pub(crate) fn has_ends(&self) -> bool {
        self.ends.is_some()
    }

    /// Removes the boundaries before `una`.
    fn forget_ends(&mut self) {
        if self.ends.as_deref_mut().is_some_and(|ends| ends.forget(self.una)) {
            self.ends = None;
        }
    }

    /// Returns whether a FIN is queued that was never sent.
    pub(crate) fn owes_fin(&self) -> bool {
        self.fin_queued && !self.fin_sent
    }

    /// Returns the octets in the buffer: unacknowledged, sent or not.
    pub(crate) fn queued_bytes(&self) -> u32 {
        self.buffer.len()
    }

    /// Returns the sequence number of the first octet in the buffer. It does not depend on `una` and `iss`: after 4 GiB an octet
    /// has the number of the SYN.
    pub(crate) fn buffer_start(&self) -> SeqNumber {
        self.end - self.buffer.len()
    }

    /// Returns the number of the first octet, or FIN, that was not acknowledged, sent or not. The SYN is not in the peer's window.
    pub(crate) fn first_unacknowledged(&self) -> SeqNumber {
        self.una + u32::from(self.una == self.iss && self.nxt != self.iss)
    }

    /// Returns how much of the peer's window is left for unsent data, in octets.
    pub(crate) fn window_room(&self) -> u32 {
        self.window_room_from(self.nxt)
    }

    /// Returns how much of the peer's window is left from `seq` on.
    pub(crate) fn window_room_from(&self, seq: SeqNumber) -> u32 {
        u32::try_from((self.buffer_start() + self.window) - seq).unwrap_or(0)
    }

    /// Returns whether the FIN was acknowledged.
    pub(crate) fn is_fin_acknowledged(&self) -> bool {
        self.fin_sent && self.una.after(self.end)
    }

    /// Returns the octets from `seq` on.
    pub(crate) fn bytes(&self, seq: SeqNumber, bytes: u32) -> (&[u8], &[u8]) {
        let offset = (seq - self.buffer_start()).unsigned_abs();
        self.buffer.slices(offset, bytes)
    }

    /// Queues data of the user.
    pub(crate) fn push(&mut self, bytes: &[u8], more: bool, pool: &mut Pool) {
        self.buffer.push(bytes, pool);
        #[expect(clippy::cast_possible_truncation, reason = "a buffer is smaller than 4 GiB")]
        let bytes = bytes.len() as u32;
        self.end += bytes;
        self.more = more;
        if !more {
            self.pushed = self.end;
        }
    }

    /// Removes the octets before `una`, which were acknowledged.
    pub(crate) fn acknowledge(&mut self, una: SeqNumber, pool: &mut Pool) {
        let octets = (una - self.buffer_start()).max(0).unsigned_abs().min(self.buffer.len());
        self.buffer.consume(octets);
        self.una = una;
        self.forget_ends();
        if self.buffer.len() == 0 {
            self.buffer.release(pool);
        }
        self.flight.release(pool);
    }

    /// Handles the acknowledgment of everything, when there are no boundaries within it.
    #[inline]
    pub(crate) fn acknowledge_all(&mut self, pool: &mut Pool) {
        debug_assert!(self.ends.is_none() && self.end == self.nxt);
        self.una = self.nxt;
        self.buffer.release(pool);
        self.flight.release(pool);
    }

    /// Gives all storage back.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.buffer.release(pool);
        self.flight.clear(pool);
        self.end = self.nxt;
        self.ends = None;
        self.fin_queued = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_octet_may_have_the_number_that_the_syn_had() {
        let mut pool = Pool::new(1 << 20);
        let mut sender = Sender::new(SeqNumber(7));
        sender.push(b"abc", false, &mut pool);
        assert_eq!((sender.buffer_start(), sender.unsent_bytes()), (SeqNumber(8), 3));
        sender.release(&mut pool);
        // 4 GiB later.
        (sender.una, sender.nxt, sender.end) = (SeqNumber(5), SeqNumber(5), SeqNumber(5));
        sender.push(b"abcdef", false, &mut pool);
        sender.nxt = SeqNumber(7);
        assert_eq!(sender.unsent_bytes(), 4, "two are under way");
        sender.acknowledge(SeqNumber(7), &mut pool);
        assert_eq!((sender.buffer_start(), sender.unsent_bytes()), (SeqNumber(7), 4));
        assert_eq!(sender.bytes(SeqNumber(7), 3).0, b"cde");
        sender.nxt = SeqNumber(10);
        sender.acknowledge(SeqNumber(9), &mut pool);
        assert_eq!((sender.bytes(SeqNumber(9), 2).0, sender.queued_bytes()), (&b"ef"[..], 2));
    }

    #[test]
    fn a_small_segment_of_long_ago_is_not_out() {
        let mut sender = Sender::new(SeqNumber(1));
        sender.nxt = SeqNumber(1002);
        sender.small_end = SeqNumber(1002);
        assert!(sender.is_small_out());
        // Nothing but full segments since.
        for gib in 1..9_u32 {
            sender.una = SeqNumber(1002_u32.wrapping_add(gib << 30));
            for under_way in [0, 1, 1448, 1 << 20] {
                sender.nxt = sender.una + under_way;
                let is_there_again = gib.is_multiple_of(4);
                assert!(is_there_again || !sender.is_small_out(), "{gib} GiB, {under_way}");
            }
        }
    }
}
