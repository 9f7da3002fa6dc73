//! HyStart: leaves slow start before it overflows the path (Ha and Rhee, 2011), as in Linux: when
//! the round trips of a round exceed the shortest one by more than an eighth, or when a round's ACK
//! train is as long as the path.

use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use crate::units::Micros;

/// Least window, in segments, for which it is active (hystart_low_window).
const LEAST_WINDOW: u32 = 16;
/// Round-trip samples of a round before they are compared (HYSTART_MIN_SAMPLES).
const SAMPLES: u8 = 8;
/// Bounds of the delay increase that ends slow start (HYSTART_DELAY_MIN, _MAX).
const DELAYS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
/// Largest gap between the ACKs of a train (hystart_ack_delta_us).
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// Trains of segments by which the ACKs of a round may be late without a queue, the octets of one, and the longest time
/// that they account for (hystart_ack_delay).
const LATE_TRAINS: u64 = 4;
const TRAIN_BYTES: u64 = 65_536;
const LATEST: Duration = Duration::from_millis(1);

/// The state of the current round at an ACK.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) now: Instant,
    pub(crate) una: SeqNumber,
    pub(crate) nxt: SeqNumber,
    /// Whether segments are paced over the round trip.
    pub(crate) paced: bool,
    /// Pacing rate in octets per second, if it is known.
    pub(crate) rate: Option<u64>,
}

impl Round {
    /// Returns by how much the train of ACKs may exceed the shortest round trip, as sender and receiver handle segments in
    /// trains (hystart_ack_delay): slow start would otherwise end where a round trip is but a little above the shortest.
    fn cushion(&self) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        Duration::from_micros(LATE_TRAINS * TRAIN_BYTES * 1_000_000 / rate.max(1)).min(LATEST)
    }
}

/// HyStart's state since slow start began.
#[derive(Debug, Clone, Copy)]
pub(super) struct HyStart {
    /// The end of slow start was found.
    found: bool,
    /// A round has begun.
    measures: bool,
    samples: u8,
    /// Sequence number at which this round ends, and the time at which it began.
    end: SeqNumber,
    began: Instant,
    last_ack: Instant,
    /// Shortest round trip of this round, and of all.
    round: Micros,
    shortest: Micros,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            found: false,
            measures: false,
            samples: 0,
            end: SeqNumber(0),
            began: Instant::ZERO,
            last_ack: Instant::ZERO,
            round: Micros::MAX,
            shortest: Micros::MAX,
        }
    }
}

impl HyStart {
    /// Handles an ACK in slow start, and returns whether to leave it. `took` is the round trip of the most recently sent segment
    /// that it acknowledges, which was sent once.
    #[inline]
    pub(super) fn leaves(&mut self, window: u32, took: Micros, round: impl Fn() -> Round) -> bool {
        self.shortest = self.shortest.min(took);
        !self.found && window >= LEAST_WINDOW && self.judge(took, round())
    }

    fn judge(&mut self, took: Micros, round: Round) -> bool {
        let shortest = self.shortest;
        // The end of a round long ago may seem to be in the future.
        if !self.measures || round.una.after(self.end) || self.end.after(round.nxt) {
            self.begin(round);
        }
        self.found = self.is_train_long(shortest, round) || self.is_delay_long(shortest, took);
        self.found
    }

    /// Starts over with a new slow start, on a path that may be another one (bictcp_reset zeroes delay_min).
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    fn begin(&mut self, round: Round) {
        self.end = round.nxt;
        self.began = round.now;
        self.last_ack = round.now;
        self.samples = 0;
        self.round = Micros::MAX;
        self.measures = true;
    }

    fn is_train_long(&mut self, shortest: Micros, round: Round) -> bool {
        if round.now.since(self.last_ack) > TRAIN_GAP {
            return false;
        }
        self.last_ack = round.now;
        // Without pacing, a window of ACKs arrives at the bottleneck's rate, there and back.
        let part = if round.paced { 1 } else { 2 };
        let long = round.now.since(self.began) * part;
        // The division is left out where it does not matter.
        long > shortest.as_duration() && long > shortest.as_duration() + round.cushion()
    }

    fn is_delay_long(&mut self, shortest: Micros, took: Micros) -> bool {
        let least = self.round.min(took);
        self.round = least;
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        let shortest = shortest.as_duration();
        least.as_duration() > shortest + (shortest / 8).clamp(DELAYS.0, DELAYS.1)
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;
    use uncork_wire::SeqNumber;

    use super::{HyStart, Micros, Round};

    fn ack(hystart: &mut HyStart, at_millis: u64, took_millis: u32, una: u32, nxt: u32) -> bool {
        let now = Instant::from_millis(at_millis);
        let (una, nxt) = (SeqNumber(una), SeqNumber(nxt));
        let took = Micros::from_millis(took_millis);
        hystart.leaves(40, took, || Round { now, una, nxt, paced: true, rate: None })
    }

    #[test]
    fn round_trips_that_get_longer_end_slow_start_after_eight_of_them() {
        let mut hystart = HyStart::default();
        for n in 0..20 {
            assert!(!ack(&mut hystart, u64::from(n) * 3, 40, n, 100));
        }
        // The next round is 46 ms long, an eighth of 40 is 5.
        for n in 0..8 {
            assert!(!ack(&mut hystart, 100 + u64::from(n) * 3, 46, 101 + n, 300));
        }
        assert!(ack(&mut hystart, 130, 46, 109, 300));
        // Once is enough.
        assert!(!ack(&mut hystart, 131, 60, 110, 300));
    }

    #[test]
    fn a_round_of_long_ago_is_over() {
        let mut hystart = HyStart::default();
        for n in 0..20 {
            assert!(!ack(&mut hystart, u64::from(n) * 3, 40, n, 100));
        }
        // Three GiB in between without an ACK for it: the window was too small, or there was no slow start.
        let begin = 3 << 30;
        for n in 0..8 {
            assert!(!ack(&mut hystart, 9_000_000 + u64::from(n) * 3, 46, begin + n, begin + 100));
        }
        assert!(ack(&mut hystart, 9_000_030, 46, begin + 9, begin + 100));
    }

    #[test]
    fn a_train_of_acks_as_long_as_the_path_ends_it_too() {
        let mut hystart = HyStart::default();
        assert!(!ack(&mut hystart, 0, 20, 0, 100));
        let ended = (1..40).find(|&n| ack(&mut hystart, n, 20, u32::try_from(n).unwrap(), 100));
        assert_eq!(ended, Some(21));
    }
    /// Returns after how many microseconds a train of ACKs ends slow start on a path of 200 µs.
    fn ended(paced: bool, rate: u64) -> Option<u64> {
        let mut hystart = HyStart::default();
        let mut at = |micros| {
            let now = Instant::from_nanos(1000 * micros);
            let (una, nxt) = (SeqNumber(0), SeqNumber(100));
            hystart.leaves(40, Micros(200), || Round { now, una, nxt, paced, rate: Some(rate) })
        };
        (0..2000).find(|micros| at(*micros))
    }

    #[test]
    fn four_trains_at_the_pacing_rate_are_no_queue() {
        // hystart_ack_delay: 262,144 octets at 2 GB/s take 131 µs; a millisecond at most.
        assert_eq!(ended(true, 2_000_000_000), Some(332));
        assert_eq!(ended(true, 1_000_000), Some(1201));
        assert_eq!(ended(false, 1_000_000), Some(601));
    }

    #[test]
    fn a_new_slow_start_knows_no_shortest_round_trip() {
        // bictcp_reset: behind a timeout the path may be another one.
        let mut hystart = HyStart::default();
        assert!(!ack(&mut hystart, 0, 20, 0, 100));
        hystart.reset();
        for n in 0..40 {
            assert!(!ack(&mut hystart, 100 + u64::from(n), 60, n, 100));
        }
    }
}
