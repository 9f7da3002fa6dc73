//! Marking of lost records. A scoreboard may have thousands of records, and an ACK comes for every few of them: records
//! that are settled are not examined again (CVE-2019-11478).

use uncork_packet::Instant;

use super::flight::Flight;
use super::record::{RETRANSMITTED, Record};
use super::records::Settled;

/// The verdict on a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It is lost.
    Lost,
    /// It may still arrive.
    Wait,
    /// It may still arrive, and so may all records after it, which were sent later: never for a retransmission.
    Stop,
}

impl Flight {
    /// Examines the records that are neither SACKed nor known to be lost, by sequence number, until `judge` says stop.
    pub(crate) fn judge(&mut self, judge: impl FnMut(&Record) -> Judgement) {
        self.judge_from(0, judge);
    }

    /// Does the same where only records sent at `newest` or before can be lost: those known to be SACKed or lost
    /// are skipped, however many they are.
    pub(crate) fn judge_until(&mut self, newest: Instant, judge: impl FnMut(&Record) -> Judgement) {
        self.judge_from(self.first_to_judge(newest), judge);
    }

    /// Returns the first index to examine. Records are in the order of sending, except retransmissions, which may be anywhere
    /// before (Linux has an additional list in the order of sending, tsorted_sent_queue).
    fn first_to_judge(&self, newest: Instant) -> usize {
        let settled = self.records.settled();
        if !self.records.has_many() || self.retransmitted > 0 && newest >= settled.again_since {
            return 0;
        }
        // The usual case when nothing is lost.
        if self.records.front().is_none_or(|first| first.end.after(settled.until)) {
            return 0;
        }
        self.records.partition_point(|record| !record.end.after(settled.until))
    }

    fn judge_from(&mut self, index: usize, mut judge: impl FnMut(&Record) -> Judgement) {
        let mut waits = None;
        let mut again_since: Option<Instant> = None;
        let settled = self.records.settled();
        let mut reached = settled.until;
        for record in self.records.iter_mut_from(index) {
            reached = record.end;
            if record.is_sacked() || record.wants_retransmission() {
                continue;
            }
            let judgement = judge(record);
            if judgement == Judgement::Lost {
                self.lost += record.lose(&mut self.retransmitted);
                if record.seq.before(self.hint) {
                    self.hint = record.seq;
                }
                continue;
            }
            if record.marks & RETRANSMITTED != 0 {
                again_since = Some(again_since.map_or(record.sent_at, |at| at.min(record.sent_at)));
            } else {
                waits.get_or_insert(record.seq);
            }
            if judgement == Judgement::Stop {
                // Records after it were sent later, and so were their retransmissions.
                again_since = Some(again_since.map_or(record.sent_at, |at| at.min(record.sent_at)));
                waits.get_or_insert(record.seq);
                break;
            }
        }
        let until = waits.unwrap_or(reached);
        let all = index == 0;
        let again_since = if all { again_since.unwrap_or_default() } else { settled.again_since };
        self.records.settle(Settled { until, again_since });
    }

    /// Marks the first segment as lost, which is all that duplicate ACKs without SACK can show (RFC 6582).
    pub(crate) fn lose_first_segment(&mut self, mss: u32) {
        let Some(&first) = self.records.front() else { return };
        if first.segments > 1 {
            self.split(0, first.seq + mss, mss);
        }
        let Some(first) = self.records.front_mut() else { return };
        if !first.is_sacked() && !first.wants_retransmission() {
            let seq = first.seq;
            self.lost += first.lose(&mut self.retransmitted);
            self.hint = if seq.before(self.hint) { seq } else { self.hint };
        }
    }

    /// Makes all records subject to examination again, after SACK or loss marks were removed.
    pub(super) fn judge_anew(&mut self) {
        if let Some(first) = self.records.front() {
            let until = first.seq;
            self.records.settle(Settled { until, ..self.records.settled() });
        }
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;
    use uncork_wire::SeqNumber;

    use super::super::flight::{Delivered, Flight};
    use super::super::rack::Rack;
    use super::super::rtt::Rtt;
    use crate::memory::Pool;
    use crate::units::Micros;

    const MSS: u32 = 36;

    fn span(segment: u32, segments: u32) -> (SeqNumber, SeqNumber) {
        (SeqNumber(segment * MSS), SeqNumber((segment + segments) * MSS))
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Makes `count` segments, in trains of `train`, all sent at once.
    fn flight(count: u32, train: u16) -> Flight {
        let mut flight = Flight::default();
        let mut pool = Pool::new(0);
        for first in (0..count).step_by(train.into()) {
            flight.push(span(first, train.into()), train, (at(0), at(0)), &mut pool);
        }
        flight
    }

    fn sack(flight: &mut Flight, rack: &mut Rack, rtt: &Rtt, segment: u32, now: Instant) {
        rack.begin_ack();
        flight.sack(span(segment, 1), MSS, &mut Delivered::default(), |record| {
            rack.deliver(record, MSS, now, rtt, false);
        });
    }

    #[test]
    fn what_is_settled_is_not_judged_again_however_much_it_is() {
        let mut flight = flight(8000, 1);
        let mut rack = Rack::default();
        let mut rtt = Rtt::default();
        rtt.sample(Micros::from_millis(40));
        let most = |flight: &Flight, newest| flight.records.count() - flight.first_to_judge(newest);
        for (acks, segment) in (1..8000).step_by(2).enumerate() {
            sack(&mut flight, &mut rack, &rtt, segment, at(50));
            rack.detect(&mut flight, at(50), &rtt, true, false);
            // All records before it are SACKed or lost.
            assert_eq!(flight.lost_segments() as usize, acks + 1);
            assert_eq!(most(&flight, at(0)), 8000 - segment as usize - 1);
        }
        // Retransmissions among them are examined once something is delivered that was sent after one of them.
        let first = flight.next_lost().map(|record| record.seq);
        assert_eq!(first, Some(SeqNumber(0)));
        flight.retransmitted(SeqNumber(0), 1, MSS, at(60));
        assert_eq!((most(&flight, at(59)), most(&flight, at(60))), (0, 8000));
        assert_eq!(flight.next_lost().map(|record| record.seq), Some(SeqNumber(2 * MSS)));
    }

    #[test]
    fn a_copy_that_is_lost_is_found_before_what_is_settled() {
        let mut flight = flight(100, 1);
        let mut rack = Rack::default();
        let mut rtt = Rtt::default();
        rtt.sample(Micros::from_millis(40));
        for segment in 10..50 {
            sack(&mut flight, &mut rack, &rtt, segment, at(41));
        }
        rack.detect(&mut flight, at(41), &rtt, false, false);
        assert_eq!(flight.lost_segments(), 10);
        // The sixth and then the third are retransmitted; what is sent after them arrives, and they do not.
        for (segment, now) in [(6, 43), (3, 44)] {
            flight.retransmitted(span(segment, 1).0, 1, MSS, at(now));
        }
        let mut pool = Pool::new(0);
        flight.push(span(100, 1), 1, (at(45), at(44)), &mut pool);
        sack(&mut flight, &mut rack, &rtt, 100, at(90));
        let wait = rack.detect(&mut flight, at(90), &rtt, true, false);
        assert_eq!((flight.retransmitted_segments(), wait), (0, None));
        assert_eq!(flight.lost_segments(), 10 + 50);
    }

    #[test]
    fn no_peer_makes_more_records_of_trains_than_are_bounded() {
        let mut flight = flight(80_000, 1600);
        let mut delivered = Delivered::default();
        for segment in (1..80_000).step_by(2) {
            flight.sack(span(segment, 1), MSS, &mut delivered, |_| ());
        }
        assert!((4096..4200).contains(&flight.records.count()), "{}", flight.records.count());
        // Blocks that were ignored changed nothing, and a whole train that was received is still noted.
        assert_eq!(flight.out_segments(), 80_000);
        let before = flight.sacked_segments();
        flight.sack(span(76_800, 3200), MSS, &mut delivered, |_| ());
        assert_eq!(flight.sacked_segments(), before + 3200);
        flight.acknowledge(SeqNumber(79_000 * MSS), MSS, &mut delivered, |_| ());
        assert_eq!((flight.out_segments(), flight.records.count()), (1000, 1));
    }
}
