//! HyStart: leaves slow start before it overflows the path (Ha and Rhee, 2011), as Linux has it: when
//! the round trips of a round are longer than the shortest by more than an eighth, or when a round's ACKs
//! come in a train that is as long as the path.

use std::time::Duration;

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use crate::units::Micros;

/// Below this many segments it is not looked at (hystart_low_window).
const LEAST_WINDOW: u32 = 16;
/// Round trips of a round that are measured before they are compared (HYSTART_MIN_SAMPLES).
const SAMPLES: u8 = 8;
/// Bounds of what counts as longer (HYSTART_DELAY_MIN, _MAX).
const DELAYS: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));
/// ACKs closer than this are of one train (hystart_ack_delta_us).
const TRAIN_GAP: Duration = Duration::from_millis(2);

/// What an ACK tells of its round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) now: Instant,
    pub(crate) una: SeqNumber,
    pub(crate) nxt: SeqNumber,
    /// Whether segments leave spread over the round trip.
    pub(crate) paced: bool,
}

/// State since slow start began.
#[derive(Debug, Clone, Copy)]
pub(super) struct HyStart {
    /// The end was found.
    found: bool,
    /// A round has begun.
    measures: bool,
    samples: u8,
    /// Where this round ends, and when it began.
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
    /// An ACK has come in slow start. Whether to leave it. `took` is the round trip of what was sent last of what it
    /// acknowledges, which was sent once.
    #[inline]
    pub(super) fn leaves(&mut self, window: u32, took: Micros, round: impl Fn() -> Round) -> bool {
        self.shortest = self.shortest.min(took);
        !self.found && window >= LEAST_WINDOW && self.judge(took, round())
    }

    fn judge(&mut self, took: Micros, round: Round) -> bool {
        let shortest = self.shortest;
        // One of long ago may seem to end in the future.
        if !self.measures || round.una.after(self.end) || self.end.after(round.nxt) {
            self.begin(round);
        }
        self.found = self.is_train_long(shortest, round) || self.is_delay_long(shortest, took);
        self.found
    }

    /// Slow start begins anew.
    pub(super) fn reset(&mut self) {
        *self = Self { shortest: self.shortest, ..Self::default() };
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
        // Unpaced, a window arrives as fast as the bottleneck lets it, there and back.
        let long = shortest.as_duration() / if round.paced { 1 } else { 2 };
        round.now.since(self.began) > long
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
        hystart.leaves(40, took, || Round { now, una, nxt, paced: true })
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
        // Three GiB in between, in which nobody asked: the window was too small, or there was no slow start.
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
}
