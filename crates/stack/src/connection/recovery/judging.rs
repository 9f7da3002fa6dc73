//! Which of what is out is lost. A scoreboard may have thousands of records, and an ACK comes for each few of them: what is
//! settled is not looked at again (CVE-2019-11478).

use uncork_packet::Instant;

use super::flight::Flight;
use super::record::{RETRANSMITTED, Record};
use super::records::Settled;

/// What is thought of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It will not arrive.
    Lost,
    /// It still may.
    Wait,
    /// So may all behind it, which left later: not of what was sent again.
    Stop,
}

impl Flight {
    /// Looks at what is neither SACKed nor known lost, in the order of the numbers, until `judge` says stop.
    pub(crate) fn judge(&mut self, judge: impl FnMut(&Record) -> Judgement) {
        self.judge_from(0, judge);
    }

    /// The same where only what left at `newest` or before can be judged to be lost: what is known to be SACKed or lost
    /// is passed over, however much it is.
    pub(crate) fn judge_until(&mut self, newest: Instant, judge: impl FnMut(&Record) -> Judgement) {
        self.judge_from(self.first_to_judge(newest), judge);
    }

    /// Where to begin. The order of the numbers is that of sending, but for what was sent again, which may stand anywhere before
    /// (Linux has a list in the order of sending beside, tsorted_sent_queue).
    fn first_to_judge(&self, newest: Instant) -> usize {
        let settled = self.records.settled();
        if !self.records.has_many() || self.retransmitted > 0 && newest >= settled.again_since {
            return 0;
        }
        // So it is where nothing is lost.
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
                // What stands behind it left later, and so did its copies.
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

    /// The first segment is lost: all that duplicate ACKs without SACK can tell (RFC 6582).
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

    /// What was SACKed or lost may not be any more.
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

    /// `count` segments, in trains of so many, all sent at once.
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
            // All before it was SACKed or is lost.
            assert_eq!(flight.lost_segments() as usize, acks + 1);
            assert_eq!(most(&flight, at(0)), 8000 - segment as usize - 1);
        }
        // Copies stand among them, and those are judged once something arrives that left after one of them.
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
        // The sixth and then the third go out again; what leaves behind them arrives, and they do not.
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
        // What was not heard is as it was, and a whole train that has come is heard of all the same.
        assert_eq!(flight.out_segments(), 80_000);
        let before = flight.sacked_segments();
        flight.sack(span(76_800, 3200), MSS, &mut delivered, |_| ());
        assert_eq!(flight.sacked_segments(), before + 3200);
        flight.acknowledge(SeqNumber(79_000 * MSS), MSS, &mut delivered, |_| ());
        assert_eq!((flight.out_segments(), flight.records.count()), (1000, 1));
    }
}
