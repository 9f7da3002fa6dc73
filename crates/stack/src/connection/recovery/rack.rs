//! RACK: a segment is lost if one that was sent later was delivered, and enough time has passed
//! (RFC 8985 §6).

use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use super::flight::Flight;
use super::judging::Judgement;
use super::record::Record;
use super::rtt::Rtt;
use crate::units::Micros;

/// Duplicate ACKs or SACKed segments that prove a loss if reordering was never seen
/// (RFC 5681 §3.2, RFC 8985 §6.2 step 4).
pub(crate) const DUPLICATE_THRESHOLD: u32 = 3;

/// Recoveries for which a wider window is kept after a DSACK (RFC 8985 §6.2, RACK.reo_wnd_persist).
const PERSISTENCE: u8 = 16;

/// State of the algorithm (RFC 8985 §5.3).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rack {
    /// Send time of the most recently sent segment that was delivered (RACK.xmit_ts).
    sent_at: Instant,
    /// Its end (RACK.end_seq).
    end: SeqNumber,
    /// Round-trip time of the last processed delivery (RACK.rtt).
    rtt: Micros,
    /// Highest sequence number that was delivered (RACK.fack).
    forward: SeqNumber,
    /// Whether anything was ever delivered.
    started: bool,
    /// Whether an original was seen to be delivered after a later one (RACK.reordering_seen).
    pub(crate) reordering_seen: bool,
    /// How many ACKs have shown reordering, and its largest extent in segments (tcpi_reord_seen,
    /// tcpi_reordering).
    pub(crate) reorderings: u16,
    pub(crate) degree: u16,
    /// The present ACK is counted in `reorderings`.
    counted: bool,
    /// `forward` and `started` before the present ACK: in which order the segments of one ACK arrived is unknown.
    forward_before: SeqNumber,
    started_before: bool,
    /// Quarters of the shortest round trip, after the first, that reordering may take (RACK.reo_wnd_mult, less one).
    quarters: u8,
    /// Recoveries until that is reset.
    persistence: u8,
    /// End of the round trip in which a duplicate was last reported (RACK.dsack_round).
    round: SeqNumber,
    /// Whether `sent_at` has advanced since losses were last looked for.
    advanced: bool,
}

impl Rack {
    /// Prepares for the deliveries of an ACK.
    pub(crate) fn begin_ack(&mut self) {
        self.counted = false;
        (self.forward_before, self.started_before) = (self.forward, self.started);
    }

    /// Notes that an original was delivered after a later one.
    fn note_reordering(&mut self, record: &Record, mss: u32) {
        self.reordering_seen = true;
        if !std::mem::replace(&mut self.counted, true) {
            self.reorderings = self.reorderings.saturating_add(1);
        }
        let forward = if self.started_before { self.forward_before } else { self.forward };
        let segments = (forward - record.seq).unsigned_abs().div_ceil(mss.max(1));
        self.degree = self.degree.max(u16::try_from(segments).unwrap_or(u16::MAX));
    }

    /// Notes a delivery (step 2 and step 3). `stale_echo` says whether a timestamp proves
    /// that it was not the latest transmission that arrived.
    pub(crate) fn deliver(
        &mut self,
        record: &Record,
        mss: u32,
        now: Instant,
        rtt: &Rtt,
        stale_echo: bool,
    ) {
        if !self.started || record.end.after(self.forward) {
            self.forward = record.end;
        }
        let behind = self.started_before && !record.end.after(self.forward_before);
        if behind && !record.is_ambiguous() {
            self.note_reordering(record, mss);
        }
        if record.is_ambiguous() {
            let took = now.since(record.sent_at);
            let too_fast = rtt.shortest().is_some_and(|shortest| took < shortest.as_duration());
            if too_fast || stale_echo {
                return;
            }
        }
        // Of several in one ACK the last one counts, by sequence number; in RFC 8985 §6.2 step 2 it is the
        // last one sent. For an original that was sent before a retransmission
        // Linux's order (tcp_rack_advance) waits longer, as it should: what was sent with that original
        // may be as late.
        self.rtt = Micros::between(record.sent_at, now);
        self.advanced = true;
        if !self.started || sent_after((record.sent_at, record.end), (self.sent_at, self.end)) {
            self.started = true;
            (self.sent_at, self.end) = (record.sent_at, record.end);
        }
    }

    /// Notes the delivery of what was sent last, was sent once, and is all that was in flight.
    #[inline]
    pub(crate) fn deliver_next(&mut self, record: &Record, took: Micros) {
        self.begin_ack();
        self.forward = record.end;
        self.rtt = took;
        self.started = true;
        (self.sent_at, self.end) = (record.sent_at, record.end);
    }

    /// Handles a D-SACK: what was considered lost was late. The reordering window grows, once per
    /// round trip (step 4), which ends when all that is in flight now has been delivered.
    pub(crate) fn duplicate_reported(&mut self, una: SeqNumber, next: SeqNumber) {
        // After a wrap, the end of a round long ago may seem to be in the future.
        if self.round.after(una) && !self.round.after(next) {
            return;
        }
        self.round = next;
        self.quarters = self.quarters.saturating_add(1);
        self.persistence = PERSISTENCE;
    }

    /// Notes the end of a recovery.
    pub(crate) fn recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.quarters = 0;
        }
    }

    /// Returns the reordering window (RACK.reo_wnd).
    fn reordering_window(&self, rtt: &Rtt, recovering: bool, sacked: u32) -> Duration {
        if !self.reordering_seen && (recovering || sacked >= DUPLICATE_THRESHOLD) {
            return Duration::ZERO;
        }
        let shortest = rtt.shortest().unwrap_or_default().as_nanos();
        let window = shortest / 4 * (u64::from(self.quarters) + 1);
        Duration::from_nanos(window.min(rtt.smoothed().unwrap_or_default().as_nanos()))
    }

    /// Marks what is lost (step 5), and returns the time after which to look again if more
    /// may be lost.
    pub(crate) fn detect(
        &mut self,
        flight: &mut Flight,
        now: Instant,
        rtt: &Rtt,
        recovering: bool,
        on_timer: bool,
    ) -> Option<Duration> {
        if !self.advanced && !on_timer {
            return None;
        }
        self.advanced = false;
        // Everything was delivered, as with most ACKs of a request or a response.
        if flight.is_empty() {
            return None;
        }
        let window = self.reordering_window(rtt, recovering, flight.sacked_segments());
        let patience = self.rtt.as_duration() + window;
        let newest = (self.sent_at, self.end);
        let mut wait = None;
        flight.judge_until(newest.0, |record| {
            if !sent_after(newest, (record.sent_at, record.end)) {
                // Records after an original were sent later still; after a retransmission there may be
                // originals that are older.
                return if record.is_ambiguous() { Judgement::Wait } else { Judgement::Stop };
            }
            let elapsed = now.since(record.sent_at);
            if elapsed >= patience {
                return Judgement::Lost;
            }
            wait = wait.max(Some(patience - elapsed));
            Judgement::Wait
        });
        wait
    }
}

/// RACK_sent_after: at equal times the higher sequence number counts as later.
fn sent_after(one: (Instant, SeqNumber), other: (Instant, SeqNumber)) -> bool {
    one.0 > other.0 || one.0 == other.0 && one.1.after(other.1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uncork_packet::Instant;
    use uncork_wire::SeqNumber;

    use super::super::flight::Delivered;
    use super::{Flight, Rack, Rtt};
    use crate::memory::Pool;
    use crate::units::Micros;

    const MSS: u32 = 1000;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    struct Path {
        flight: Flight,
        rack: Rack,
        rtt: Rtt,
    }

    impl Path {
        /// Segments 0, 1, 2 …, each sent one millisecond after the one before, with a round trip of 40 ms.
        fn new(segments: u32) -> Self {
            let mut flight = Flight::default();
            let mut pool = Pool::new(0);
            for n in 0..segments {
                let seq = SeqNumber(n * MSS);
                flight.push((seq, seq + MSS), 1, (at(n.into()), at(0)), &mut pool);
            }
            let mut rtt = Rtt::default();
            rtt.sample(Micros::from_millis(40));
            Self { flight, rack: Rack::default(), rtt }
        }

        fn sack(&mut self, segment: u32, now: Instant) -> Option<Duration> {
            let seq = SeqNumber(segment * MSS);
            let Self { flight, rack, rtt } = self;
            let mut delivered = Delivered::default();
            rack.begin_ack();
            flight.sack((seq, seq + MSS), MSS, &mut delivered, |record| {
                rack.deliver(record, MSS, now, rtt, false);
            });
            rack.detect(flight, now, rtt, false, false)
        }
    }

    #[test]
    fn a_hole_is_lost_after_the_reordering_window_only() {
        // RFC 8985 §6.2 step 5: a quarter of the shortest round trip is waited.
        let mut path = Path::new(3);
        let wait = path.sack(1, at(41)).unwrap();
        assert_eq!((wait, path.flight.lost_segments()), (Duration::from_millis(9), 0));
        let Path { flight, rack, rtt } = &mut path;
        assert_eq!(rack.detect(flight, at(41) + wait, rtt, false, true), None);
        assert_eq!(
            (flight.lost_segments(), flight.next_lost().map(|r| r.seq)),
            (1, Some(SeqNumber(0)))
        );
    }

    #[test]
    fn three_segments_behind_a_hole_prove_it_at_once_if_nothing_was_ever_reordered() {
        let mut path = Path::new(5);
        path.sack(1, at(41));
        path.sack(2, at(42));
        assert_eq!(path.flight.lost_segments(), 0);
        path.sack(3, at(43));
        assert_eq!(path.flight.lost_segments(), 1);
    }

    #[test]
    fn where_reordering_was_seen_three_segments_prove_nothing() {
        let mut path = Path::new(8);
        path.sack(2, at(42));
        path.sack(1, at(42));
        assert!(path.rack.reordering_seen);
        path.sack(3, at(43));
        path.sack(4, at(43));
        assert_eq!(path.flight.lost_segments(), 0);
    }

    #[test]
    fn what_came_twice_widens_the_window_once_a_round_trip() {
        // RFC 8985 §6.2 step 4, tcp_rack_update_reo_wnd.
        let mut rack = Rack::default();
        for una in [100, 200, 300] {
            rack.duplicate_reported(SeqNumber(una), SeqNumber(una + 500));
        }
        assert_eq!(rack.quarters, 1);
        rack.duplicate_reported(SeqNumber(600), SeqNumber(900));
        assert_eq!(rack.quarters, 2);
        // 3 GiB later.
        rack.duplicate_reported(SeqNumber(3 << 30), SeqNumber((3 << 30) + 500));
        assert_eq!((rack.quarters, rack.persistence), (3, 16));
    }

    #[test]
    fn a_retransmission_that_is_lost_too_is_noticed() {
        let mut path = Path::new(10);
        for segment in 1..4 {
            path.sack(segment, at(41));
        }
        path.flight.retransmitted(SeqNumber(0), 1, MSS, at(43));
        assert_eq!(path.flight.next_lost().map(|r| r.seq), None);
        // What was sent after it is delivered, and more than a round trip later it is not.
        let mut pool = Pool::new(0);
        let span = (SeqNumber(10 * MSS), SeqNumber(11 * MSS));
        path.flight.push(span, 1, (at(44), at(43)), &mut pool);
        path.sack(10, at(95));
        assert_eq!(path.flight.next_lost().map(|r| r.seq), Some(SeqNumber(0)));
    }

    #[test]
    fn an_original_that_arrives_with_a_retransmission_says_how_late_its_neighbour_may_be() {
        let mut path = Path::new(6);
        for segment in 1..4 {
            path.sack(segment, at(41));
        }
        path.flight.retransmitted(SeqNumber(0), 1, MSS, at(43));
        let Path { flight, rack, rtt } = &mut path;
        rack.begin_ack();
        // The retransmission took 43 ms; segment 4 has taken 82, so that 5 is not lost after 81.
        flight.acknowledge(SeqNumber(5 * MSS), MSS, &mut Delivered::default(), |record| {
            rack.deliver(record, MSS, at(86), rtt, false);
        });
        let wait = rack.detect(flight, at(86), rtt, true, false);
        assert_eq!((wait, flight.lost_segments()), (Some(Duration::from_millis(1)), 0));
    }
}
