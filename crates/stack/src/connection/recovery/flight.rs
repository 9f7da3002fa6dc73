//! The scoreboard of data that was sent and not yet acknowledged (RFC 6675 §4, RFC 8985 §5.2).
//!
//! It has one record for each transmission, which may be a train of many segments; a record is split where an
//! acknowledgment or a loss divides it. Neighbours that have both been SACKed are merged again,
//! so that a search through all records is a search for holes.

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use super::record::{
    AMBIGUOUS, LIMITED, LOST, Passed, RETRANSMITTED, Record, SACKED, WAITED_SHIFT,
};
use super::records::{Records, Settled};
use crate::memory::Pool;

/// Number of records beyond which SACK blocks no longer split records: one splits a train in up to three, each insertion moves
/// all records after it, and a peer that SACKs every other segment of a large window would make thousands of a few. An honest
/// receiver reports far fewer ranges ([`Reassembly`](crate::connection::receive::Reassembly) keeps 512), and Linux stops at
/// about as many (tcp_fragment, where sk_wmem_queued is twice the send buffer; CVE-2019-11478).
const MOST_DIVIDED: usize = 4096;

/// What one ACK newly reports as delivered.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivered {
    /// Segments that are newly known to have been delivered.
    pub(crate) segments: u32,
    /// Segments that are newly below SND.UNA, SACKed before or not.
    pub(crate) acked_segments: u32,
    /// Segments that were newly SACKed.
    pub(crate) sacked_segments: u32,
    /// When the oldest of the delivered segments that were sent only once left.
    pub(crate) oldest_sent: Option<Instant>,
    /// When the newest of them left.
    pub(crate) newest_sent: Option<Instant>,
    /// The delivery measurement of the newest.
    pub(crate) passed: Option<Passed>,
    /// Something that was retransmitted was acknowledged.
    pub(crate) ambiguous: bool,
    /// Start of the first delivered segment that was sent only once.
    pub(crate) original: Option<SeqNumber>,
}

impl Delivered {
    fn note(&mut self, record: &Record) {
        self.segments += u32::from(record.segments);
        if record.is_ambiguous() {
            self.ambiguous = true;
        } else {
            let first = self.original.filter(|first| !record.seq.before(*first));
            self.original = Some(first.unwrap_or(record.seq));
            self.oldest_sent =
                Some(self.oldest_sent.map_or(record.sent_at, |sent| sent.min(record.sent_at)));
            // Segments sent in one turn have the same time; the later ones come after the others.
            if self.newest_sent.is_none_or(|newest| newest <= record.sent_at) {
                self.newest_sent = Some(record.sent_at);
                self.passed = Some(record.passed());
            }
        }
    }
}

/// The scoreboard. Counts are in segments.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(super) records: Records,
    /// Segments that are not cumulatively acknowledged.
    out: u32,
    sacked: u32,
    pub(super) lost: u32,
    pub(super) retransmitted: u32,
    /// No record before this number wants a retransmission.
    pub(super) hint: SeqNumber,
    /// Total of delivered segments beyond which everything that was sent while application-limited has arrived; zero if the flow
    /// is not application-limited (app_limited).
    limited_until: u32,
}

impl Flight {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of segments sent and not cumulatively acknowledged.
    pub(crate) fn out_segments(&self) -> u32 {
        self.out
    }

    /// Returns the number of SACKed segments.
    pub(crate) fn sacked_segments(&self) -> u32 {
        self.sacked
    }

    /// Returns the number of segments considered lost, retransmitted or not.
    pub(crate) fn lost_segments(&self) -> u32 {
        self.lost
    }

    /// Returns the number of retransmissions in flight.
    pub(crate) fn retransmitted_segments(&self) -> u32 {
        self.retransmitted
    }

    /// Returns the number of segments considered in flight (pipe in RFC 6675 §4).
    pub(crate) fn in_flight(&self) -> u32 {
        (self.out + self.retransmitted).saturating_sub(self.sacked + self.lost)
    }

    /// Returns whether it holds at most one transmission, sent once and without any mark.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        self.records.lone().map_or_else(|| self.is_plain_train(), |lone| lone.is_untold())
    }

    #[inline(never)]
    fn is_plain_train(&self) -> bool {
        self.records.get(1).is_none() && self.first().is_none_or(|only| only.is_untold())
    }

    /// Removes that transmission, which was acknowledged as a whole.
    #[inline]
    pub(crate) fn take_plain(&mut self) -> Option<Record> {
        let only = match self.records.take_lone() {
            Some(lone) => lone,
            None => self.records.pop_front()?,
        };
        debug_assert!(self.records.is_empty() && self.out == u32::from(only.segments));
        self.out = 0;
        Some(only)
    }

    #[cfg(test)]
    fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    pub(crate) fn first(&self) -> Option<&Record> {
        self.records.front()
    }

    /// Returns the record that ends last.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// Adds a first transmission; `acked` is when the latest ACK came, or when the first
    /// transmission that is in flight left.
    pub(crate) fn push(
        &mut self,
        (seq, end): (SeqNumber, SeqNumber),
        segments: u16,
        (now, acked): (Instant, Instant),
        pool: &mut Pool,
    ) {
        if self.records.is_empty() {
            self.hint = seq;
        }
        self.out += u32::from(segments);
        let ahead = u16::try_from(self.in_flight()).unwrap_or(u16::MAX);
        let waited = now.as_nanos().saturating_sub(acked.as_nanos());
        let waited = u16::try_from(waited.div_ceil(1 << WAITED_SHIFT)).unwrap_or(u16::MAX);
        let record = Record { sent_at: now, seq, end, segments, ahead, waited, marks: self.mark() };
        self.records.push(record, pool);
    }

    /// Adds a first transmission of one segment while nothing is in flight.
    #[inline]
    pub(crate) fn push_first(
        &mut self,
        (seq, end): (SeqNumber, SeqNumber),
        now: Instant,
        pool: &mut Pool,
    ) {
        debug_assert!(self.is_empty() && self.in_flight() == 0);
        self.hint = seq;
        self.out = 1;
        let record =
            Record { sent_at: now, seq, end, segments: 1, ahead: 1, waited: 0, marks: self.mark() };
        self.records.push_first(record, pool);
    }

    /// Marks the flow as application-limited until all that is in flight now has been delivered
    /// (tcp_rate_check_app_limited).
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "they are compared in a circle")]
    pub(crate) fn note_limit(&mut self, delivered: u64) {
        self.limited_until = (delivered as u32).wrapping_add(self.in_flight()).max(1);
    }

    /// Ends the application-limited state if enough segments were delivered.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "they are compared in a circle")]
    pub(crate) fn note_delivered(&mut self, delivered: u64) {
        if self.limited_until.wrapping_sub(delivered as u32).cast_signed() < 0 {
            self.limited_until = 0;
        }
    }

    /// Returns the mark for what is sent now.
    #[inline]
    fn mark(&self) -> u8 {
        if self.limited_until > 0 { LIMITED } else { 0 }
    }

    /// Gives the list back to the pool if nothing is in flight.
    #[inline]
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        self.records.release(pool);
    }

    /// Removes all records.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.records.clear();
        self.release(pool);
        *self = Self::default();
    }

    /// Removes everything before `una`. `each` is called for what was not known to be delivered.
    pub(crate) fn acknowledge(
        &mut self,
        una: SeqNumber,
        mss: u32,
        delivered: &mut Delivered,
        mut each: impl FnMut(&Record),
    ) {
        while let Some(first) = self.records.front() {
            if !first.seq.before(una) {
                break;
            }
            let whole = !first.end.after(una);
            if !whole && !self.split(0, una, mss) {
                // Less than a segment of it: the rest begins here, and counts as before.
                if let Some(first) = self.records.front_mut() {
                    first.seq = una;
                }
                break;
            }
            let Some(record) = self.records.pop_front() else { break };
            self.uncount(&record);
            delivered.acked_segments += u32::from(record.segments);
            if !record.is_sacked() {
                delivered.note(&record);
                each(&record);
            }
            if !whole {
                // The rest of a segment that was acknowledged in part.
                if let Some(first) = self.records.front_mut() {
                    first.seq = una;
                }
            }
        }
        // Moved along, as after a wrap an old number would seem to be in the future.
        if let Some(first) = self.records.front() {
            let first = first.seq;
            self.hint = self.hint.max(first);
            let settled = self.records.settled();
            self.records.settle(Settled { until: settled.until.max(first), ..settled });
        }
    }

    fn uncount(&mut self, record: &Record) {
        let segments = u32::from(record.segments);
        self.out -= segments;
        if record.marks & SACKED != 0 {
            self.sacked -= segments;
        }
        if record.marks & LOST != 0 {
            self.lost -= segments;
        }
        if record.marks & RETRANSMITTED != 0 {
            self.retransmitted -= segments;
        }
    }

    /// Marks the whole segments within `left..right` as SACKed. `each` is called for newly SACKed records.
    pub(crate) fn sack(
        &mut self,
        (left, right): (SeqNumber, SeqNumber),
        mss: u32,
        delivered: &mut Delivered,
        mut each: impl FnMut(&Record),
    ) {
        let mut index = self.records.partition_point(|record| !record.end.after(left));
        while let Some(record) = self.records.get(index) {
            if !record.seq.before(right) {
                break;
            }
            if record.is_sacked() {
                index += 1;
                continue;
            }
            if record.seq.before(left) {
                // The first whole segment at or after the left edge.
                let into = (left - record.seq).unsigned_abs().next_multiple_of(mss.max(1));
                if into < record.len() {
                    self.divide(index, record.seq + into, mss);
                }
                index += 1;
                continue;
            }
            if record.end.after(right) && !self.divide(index, right, mss) {
                break;
            }
            let Some(record) = self.records.get_mut(index) else { break };
            let segments = u32::from(record.segments);
            delivered.sacked_segments += segments;
            delivered.note(record);
            each(record);
            let before = *record;
            record.marks = SACKED | record.marks & AMBIGUOUS;
            self.uncount(&before);
            self.out += segments;
            self.sacked += segments;
            index = self.merge(index);
        }
    }

    /// Merges a SACKed record with SACKed neighbours; returns the index after it.
    fn merge(&mut self, mut index: usize) -> usize {
        if index > 0 && self.join(index - 1) {
            index -= 1;
        }
        self.join(index);
        index + 1
    }

    fn join(&mut self, index: usize) -> bool {
        let (Some(&one), Some(&other)) = (self.records.get(index), self.records.get(index + 1))
        else {
            return false;
        };
        let Some(segments) = one.segments.checked_add(other.segments) else { return false };
        if !one.is_sacked() || !other.is_sacked() {
            return false;
        }
        self.records.remove(index + 1);
        if let Some(record) = self.records.get_mut(index) {
            record.end = other.end;
            record.segments = segments;
            record.marks |= other.marks;
        }
        true
    }

    /// Divides a record for a SACK block as [`Self::split`] does, unless there are too many: then the block is ignored for this
    /// record, which is retransmitted if need be.
    fn divide(&mut self, index: usize, at: SeqNumber, mss: u32) -> bool {
        self.records.count() < MOST_DIVIDED && self.split(index, at, mss)
    }

    /// Splits a record before the segment that contains `at`; returns whether it has a segment
    /// before that.
    pub(super) fn split(&mut self, index: usize, at: SeqNumber, mss: u32) -> bool {
        let Some(record) = self.records.get_mut(index) else { return false };
        // A FIN may make the last segment longer by an octet.
        let most = record.segments.saturating_sub(1);
        let segments = (at - record.seq).unsigned_abs() / mss.max(1);
        let segments = u16::try_from(segments).unwrap_or(u16::MAX).min(most);
        if segments == 0 {
            return false;
        }
        let mut second = *record;
        let cut = record.seq + u32::from(segments) * mss;
        if !cut.before(record.end) {
            return false;
        }
        record.segments = segments;
        record.end = cut;
        second.segments -= segments;
        record.ahead = record.ahead.saturating_sub(second.segments).max(segments);
        second.seq = cut;
        self.records.insert(index + 1, second);
        true
    }

    /// Counts in segments of a new size; records whose number of segments changes count as lost.
    pub(crate) fn resegment(&mut self, mss: u32) {
        (self.out, self.sacked, self.lost, self.retransmitted) = (0, 0, 0, 0);
        for record in self.records.iter_mut() {
            let segments = u16::try_from(record.len().div_ceil(mss.max(1))).unwrap_or(u16::MAX);
            if segments != record.segments && !record.is_sacked() {
                record.marks = record.marks & !RETRANSMITTED | LOST;
            }
            record.segments = segments;
            let segments = u32::from(segments);
            self.out += segments;
            self.sacked += if record.is_sacked() { segments } else { 0 };
            self.lost += if record.is_lost() { segments } else { 0 };
            self.retransmitted += if record.marks & RETRANSMITTED != 0 { segments } else { 0 };
        }
        self.hint = self.records.front().map_or(self.hint, |first| first.seq);
        self.judge_anew();
    }

    /// Removes all SACK marks, as the peer has reneged (RFC 2018 §8). Merged records are counted in
    /// the segments in which they will be retransmitted.
    pub(crate) fn forget_sacks(&mut self, mss: u32) {
        for record in self.records.iter_mut().filter(|record| record.is_sacked()) {
            record.marks &= !SACKED;
            let segments = record.len().div_ceil(mss.max(1)).min(u32::from(record.segments));
            self.out -= u32::from(record.segments) - segments;
            record.segments = u16::try_from(segments).unwrap_or(u16::MAX);
        }
        self.sacked = 0;
        self.judge_anew();
    }

    /// Removes all marks of losses and retransmissions: everything is in flight, once.
    pub(crate) fn forget_losses(&mut self) {
        for record in self.records.iter_mut() {
            record.marks &= !(LOST | RETRANSMITTED);
        }
        self.lost = 0;
        self.retransmitted = 0;
        self.judge_anew();
    }

    /// Returns the first record that is lost and not retransmitted since.
    pub(crate) fn next_lost(&self) -> Option<&Record> {
        // Everything that is lost has been retransmitted.
        if self.lost == self.retransmitted {
            return None;
        }
        let from = self.records.partition_point(|record| record.seq.before(self.hint));
        self.records.from(from).find(|record| record.wants_retransmission())
    }

    /// Notes a retransmission from `seq` on, of this many segments: a probe has only the end of a train.
    pub(crate) fn retransmitted(&mut self, seq: SeqNumber, segments: u16, mss: u32, now: Instant) {
        let mut index = self.records.partition_point(|record| !record.end.after(seq));
        if self.records.get(index).is_some_and(|record| record.seq.before(seq)) {
            index += usize::from(self.split(index, seq, mss));
        }
        let Some(&record) = self.records.get(index) else { return };
        if segments < record.segments {
            self.split(index, seq + u32::from(segments) * mss, mss);
        }
        let is_first = self.next_lost().is_some_and(|first| first.seq == seq);
        let Some(record) = self.records.get_mut(index) else { return };
        record.sent_at = now;
        record.marks |= AMBIGUOUS;
        // A probe of what is not known to be lost is a copy: the original still counts, and nothing else.
        if record.is_lost() && record.marks & RETRANSMITTED == 0 {
            record.marks |= RETRANSMITTED;
            let (segments, end) = (u32::from(record.segments), record.end);
            if self.retransmitted == 0 {
                let settled = self.records.settled();
                self.records.settle(Settled { again_since: now, ..settled });
            }
            self.retransmitted += segments;
            if is_first {
                self.hint = end;
            }
        }
    }

    #[cfg(test)]
    fn check(&self) {
        let count = |which: &dyn Fn(&Record) -> bool| -> u32 {
            self.records.iter().filter(|record| which(record)).map(|r| u32::from(r.segments)).sum()
        };
        assert_eq!(self.out, count(&|_| true));
        assert_eq!(self.sacked, count(&|record| record.is_sacked()));
        assert_eq!(self.lost, count(&|record| record.is_lost()));
        assert_eq!(self.retransmitted, count(&|record| record.marks & RETRANSMITTED != 0));
        for (one, next) in self.records.iter().zip(self.records.iter().skip(1)) {
            assert_eq!(one.end, next.seq);
        }
        let settled = self.records.settled();
        let has_many = self.records.count() > 1;
        for record in self.records.iter().filter(|_| has_many) {
            let again = record.marks & RETRANSMITTED != 0;
            let is_settled = record.is_sacked() || record.is_lost();
            assert!(is_settled || !record.seq.before(settled.until), "it is judged no more");
            assert!(!again || record.sent_at >= settled.again_since, "it left before");
        }
        let first = self.records.iter().find(|record| record.wants_retransmission());
        assert_eq!(first.map(|record| record.seq), self.next_lost().map(|record| record.seq));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uncork_packet::Instant;
    use uncork_wire::SeqNumber;

    use super::super::judging::Judgement;
    use super::{Delivered, Flight};
    use crate::memory::Pool;

    const MSS: u32 = 100;

    #[derive(Debug, Clone)]
    enum Step {
        Send(u16, u32),
        Sack(u32, u32),
        Ack(u32),
        Lose(u32),
        LoseFirst,
        Retransmit(u16),
        Renege,
        Undo,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            // A FIN makes the last segment longer.
            3 => (1u16..20, 1u32..=MSS + 1).prop_map(|(segments, last)| Step::Send(segments, last)),
            3 => (0u32..6000, 1u32..900).prop_map(|(at, bytes)| Step::Sack(at, bytes)),
            2 => (0u32..900).prop_map(Step::Ack),
            1 => (0u32..3000).prop_map(Step::Lose),
            1 => Just(Step::LoseFirst),
            2 => (1u16..9).prop_map(Step::Retransmit),
            1 => Just(Step::Renege),
            1 => Just(Step::Undo),
        ]
    }

    proptest! {
        #[test]
        fn the_counts_hold_whatever_is_acknowledged_lost_and_sent_again(
            start in any::<u32>(),
            steps in proptest::collection::vec(step(), 1..80),
        ) {
            let mut pool = Pool::new(0);
            let mut flight = Flight::default();
            let (mut una, mut nxt) = (SeqNumber(start), SeqNumber(start));
            let mut sent = 0;
            let mut delivered_in_all = 0;
            for (time, step) in (0..).zip(steps) {
                let now = Instant::from_millis(time);
                let mut delivered = Delivered::default();
                match step {
                    Step::Send(segments, last) => {
                        let end = nxt + (u32::from(segments) - 1) * MSS + last;
                        flight.push((nxt, end), segments, (now, now), &mut pool);
                        nxt = end;
                        sent += u32::from(segments);
                    }
                    Step::Sack(at, bytes) => {
                        let left = una + at;
                        let right = left + bytes;
                        if !right.after(nxt) {
                            flight.sack((left, right), MSS, &mut delivered, |_| ());
                        }
                    }
                    Step::Ack(bytes) => {
                        let ack = una + bytes;
                        if !ack.after(nxt) {
                            flight.acknowledge(ack, MSS, &mut delivered, |_| ());
                            una = ack;
                        }
                    }
                    Step::Lose(bytes) => {
                        let limit = una + bytes;
                        flight.judge(|record| {
                            if !record.end.after(limit) {
                                Judgement::Lost
                            } else if record.is_ambiguous() {
                                Judgement::Wait
                            } else {
                                Judgement::Stop
                            }
                        });
                    }
                    Step::LoseFirst => flight.lose_first_segment(MSS),
                    Step::Retransmit(most) => {
                        if let Some(&record) = flight.next_lost() {
                            let segments = record.segments.min(most);
                            flight.retransmitted(record.seq, segments, MSS, now);
                        }
                    }
                    Step::Renege => flight.forget_sacks(MSS),
                    Step::Undo => flight.forget_losses(),
                }
                if !matches!(step, Step::Renege) {
                    delivered_in_all += delivered.segments;
                } else {
                    // What was reneged will be delivered again, perhaps in fewer segments.
                    sent = sent.min(delivered_in_all) + flight.out_segments();
                    delivered_in_all = sent - flight.out_segments();
                }
                flight.check();
                prop_assert_eq!(delivered_in_all, sent - flight.out_segments() + flight.sacked_segments());
                if let Some(first) = flight.first() {
                    prop_assert_eq!(first.seq, una);
                }
            }
        }
    }

    #[test]
    fn what_is_lost_is_all_found_two_gib_after_the_flight_was_empty_last() {
        let mut pool = Pool::new(0);
        let mut flight = Flight::default();
        let half = 1_u32 << 31;
        let ends = [0, MSS, half - MSS, half, half + MSS].map(SeqNumber);
        for (&seq, &end) in ends.iter().zip(&ends[1..]) {
            flight.push((seq, end), 1, (Instant::ZERO, Instant::ZERO), &mut pool);
            // Two segments stay out, in the end on both sides of the point 2 GiB after the first of all.
            let una = if end == ends[1] || end == ends[2] { seq } else { ends[2] };
            flight.acknowledge(una, MSS, &mut Delivered::default(), |_| ());
        }
        assert_eq!(flight.out_segments(), 2);
        flight.judge(|_| Judgement::Lost);
        flight.check();
        for begin in [half - MSS, half] {
            let lost = flight.next_lost().map(|record| record.seq);
            assert_eq!(lost, Some(SeqNumber(begin)));
            flight.retransmitted(SeqNumber(begin), 1, MSS, Instant::ZERO);
        }
    }

    #[test]
    fn the_end_of_a_train_that_is_sent_again_is_ambiguous_and_the_rest_is_not() {
        let mut pool = Pool::new(0);
        let mut flight = Flight::default();
        let first = Instant::ZERO;
        flight.push((SeqNumber(0), SeqNumber(950)), 10, (first, first), &mut pool);
        let again = Instant::from_millis(30);
        flight.retransmitted(SeqNumber(900), 1, MSS, again);
        flight.check();
        let records = flight.records().map(|one| (one.seq.0, one.sent_at, one.is_ambiguous()));
        assert_eq!(records.collect::<Vec<_>>(), [(0, first, false), (900, again, true)]);
        assert_eq!((flight.in_flight(), flight.retransmitted_segments()), (10, 0));
    }

    #[test]
    fn a_fin_that_makes_the_last_segment_longer_is_left_as_one_segment() {
        let mut pool = Pool::new(0);
        let mut flight = Flight::default();
        let end = SeqNumber(3 * MSS + 1);
        flight.push((SeqNumber(0), end), 3, (Instant::ZERO, Instant::ZERO), &mut pool);
        let mut news = Delivered::default();
        flight.sack((SeqNumber(MSS), SeqNumber(3 * MSS)), MSS, &mut news, |_| ());
        assert_eq!(news.sacked_segments, 1, "of the last one only as a whole");
        flight.acknowledge(SeqNumber(3 * MSS), MSS, &mut news, |_| ());
        flight.check();
        let left = flight.first().map(|left| (left.seq, left.end, left.segments));
        assert_eq!(left, Some((SeqNumber(3 * MSS), end, 1)));
        assert_eq!((flight.out_segments(), news.segments), (1, 2));
    }

    #[test]
    fn a_hole_in_a_train_divides_it_and_filling_it_joins_it_again() {
        let mut pool = Pool::new(0);
        let mut flight = Flight::default();
        flight.push((SeqNumber(0), SeqNumber(1000)), 10, (Instant::ZERO, Instant::ZERO), &mut pool);
        let mut news = Delivered::default();
        flight.sack((SeqNumber(200), SeqNumber(300)), MSS, &mut news, |_| ());
        flight.sack((SeqNumber(400), SeqNumber(500)), MSS, &mut news, |_| ());
        assert_eq!((flight.records().count(), news.sacked_segments), (5, 2));
        flight.sack((SeqNumber(200), SeqNumber(500)), MSS, &mut news, |_| ());
        assert_eq!((flight.records().count(), news.sacked_segments), (3, 3));
        // A block edge within a segment says nothing about that segment.
        flight.sack((SeqNumber(550), SeqNumber(799)), MSS, &mut news, |_| ());
        assert_eq!((flight.sacked_segments(), news.sacked_segments), (4, 4));
    }
}
