//! Round-trip time and retransmission timeout (RFC 6298).

use std::time::Duration;

use crate::units::Micros;

/// The initial retransmission timeout, before there is a measurement (RFC 6298 §2, rule 2.1).
const INITIAL_RTO: Micros = Micros::from_millis(1000);

/// The timeout behind a handshake that has given no measurement, mostly as its SYN was sent again: the initial one was too short,
/// perhaps (RFC 6298 §5, rule 5.7; TCP_TIMEOUT_FALLBACK).
const FALLBACK_RTO: Micros = Micros::from_millis(3000);

/// Clock granularity of the timeout (G in RFC 6298 §2).
const GRANULARITY: Micros = Micros::from_millis(1);

/// Stands for all round trips too long for `latest`, in microseconds, which a peer's delay would not change much.
const LONG: u16 = u16::MAX;

/// Bounds of the retransmission timeout, in the unit in which it is computed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    least: Micros,
    most: Micros,
}

impl Bounds {
    /// Returns a lower bound of every timeout ([`Rtt::base_timeout`]).
    pub(crate) fn least(self) -> Micros {
        self.least.min(self.most).min(INITIAL_RTO)
    }

    /// Returns the longest timeout.
    pub(crate) fn most(self) -> Micros {
        self.most
    }

    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { least: Micros::from_duration(least), most: Micros::from_duration(most) }
    }
}

/// Round-trip statistics of the path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rtt {
    /// Smoothed round-trip time (SRTT); zero before the first measurement, as none is that short.
    smoothed: Micros,
    /// Mean deviation (RTTVAR). Before the first measurement a quarter of the timeout, if that is not the initial one.
    deviation: Micros,
    /// Shortest measurement ever.
    shortest: Micros,
    /// Latest measurement, in microseconds; [`LONG`] if it is too long.
    latest: u16,
    /// How often the timeout was doubled since something was acknowledged (rule 5.5).
    pub(crate) backoff: u8,
}

impl Default for Rtt {
    fn default() -> Self {
        Self {
            smoothed: Micros::ZERO,
            deviation: Micros::ZERO,
            shortest: Micros::MAX,
            latest: LONG,
            backoff: 0,
        }
    }
}

impl Rtt {
    /// Takes a sample (rules 2.2 and 2.3).
    #[inline(always)]
    pub(crate) fn sample(&mut self, measured: Micros) {
        let measured = measured.max(Micros(1));
        self.shortest = self.shortest.min(measured);
        self.latest = u16::try_from(measured.0).unwrap_or(LONG);
        let smoothed = self.smoothed;
        if smoothed == Micros::ZERO {
            self.smoothed = measured;
            self.deviation = Micros(measured.0 / 2);
            return;
        }
        let error = measured.0.abs_diff(smoothed.0);
        // Beta is a quarter, alpha an eighth.
        self.deviation = Micros(self.deviation.0 - self.deviation.0 / 4 + error / 4);
        self.smoothed = Micros(smoothed.0 - smoothed.0 / 8 + measured.0 / 8);
    }

    /// Notes that the handshake is over, whose round trip may be unknown (tcp_init_metrics).
    pub(crate) fn end_handshake(&mut self) {
        if self.smoothed == Micros::ZERO {
            self.deviation = Micros(FALLBACK_RTO.0 / 4);
        }
    }

    /// Takes a sample that is not representative enough for smoothing into the minimum only.
    pub(crate) fn note_shortest(&mut self, measured: Micros) {
        self.shortest = self.shortest.min(measured.max(Micros(1)));
    }

    /// Returns the smoothed round-trip time.
    #[inline(always)]
    pub(crate) fn smoothed(&self) -> Option<Micros> {
        (self.smoothed != Micros::ZERO).then_some(self.smoothed)
    }

    /// Returns the time over which a window is paced: the smoothed round trip, or the last one if that was shorter. A peer that
    /// delayed an ACK, or whose window was zero, was slow once, not the path: the smoothed round trip shows that
    /// for many round trips more. On a path of 65 ms and more that makes little difference, and is ignored.
    #[inline(always)]
    pub(crate) fn for_pacing(&self) -> Option<Micros> {
        let latest = if self.latest == LONG { Micros::MAX } else { Micros(self.latest.into()) };
        self.smoothed().map(|smoothed| smoothed.min(latest))
    }

    /// Returns the mean deviation.
    pub(crate) fn deviation(&self) -> Micros {
        self.deviation
    }

    /// Returns the shortest round trip.
    pub(crate) fn shortest(&self) -> Option<Micros> {
        (self.shortest != Micros::MAX).then_some(self.shortest)
    }

    /// Returns the timeout without backoff (rule 2.3). Linux bounds the deviation's part from below by the
    /// shortest timeout rather than the sum, which keeps the timer clear of delayed ACKs on long
    /// paths; so does this.
    #[inline(always)]
    pub(crate) fn base_timeout(&self, bounds: Bounds) -> Micros {
        let margin = self.deviation.saturating_mul(4);
        let timeout = self.smoothed().map_or(INITIAL_RTO.max(margin), |smoothed| {
            smoothed.saturating_add(margin.max(GRANULARITY).max(bounds.least))
        });
        timeout.min(bounds.most)
    }

    /// Returns the current timeout (rules 2.4, 2.5 and 5.5).
    pub(crate) fn timeout(&self, bounds: Bounds) -> Micros {
        let base = self.base_timeout(bounds);
        base.doubled(self.backoff.into()).min(bounds.most)
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, Micros, Rtt};

    const BOUNDS: Bounds =
        Bounds { least: Micros::from_millis(200), most: Micros::from_millis(120_000) };

    fn millis(millis: u32) -> Micros {
        Micros::from_millis(millis)
    }

    #[test]
    fn the_first_timeout_is_a_second_and_the_first_measurement_counts_whole() {
        // RFC 6298 §2, rules 2.1 and 2.2.
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(BOUNDS), Micros::from_millis(1000));
        rtt.sample(millis(100));
        assert_eq!(rtt.smoothed(), Some(Micros::from_millis(100)));
        assert_eq!(rtt.deviation(), Micros::from_millis(50));
        assert_eq!(rtt.timeout(BOUNDS), Micros::from_millis(300));
    }

    #[test]
    fn later_measurements_are_smoothed() {
        // Rule 2.3: SRTT + (R' - SRTT)/8, RTTVAR + (|SRTT - R'| - RTTVAR)/4.
        let mut rtt = Rtt::default();
        rtt.sample(millis(800));
        rtt.sample(millis(1600));
        assert_eq!(rtt.smoothed(), Some(Micros::from_millis(900)));
        assert_eq!(rtt.deviation(), Micros::from_millis(500));
        assert_eq!(rtt.timeout(BOUNDS), Micros::from_millis(2900));
        assert_eq!(rtt.shortest(), Some(Micros::from_millis(800)));
    }

    #[test]
    fn a_handshake_without_a_measurement_makes_it_three_seconds() {
        // Rule 5.7.
        let mut rtt = Rtt::default();
        rtt.end_handshake();
        assert_eq!(rtt.timeout(BOUNDS), millis(3000));
        rtt.sample(millis(100));
        assert_eq!(rtt.timeout(BOUNDS), millis(300));
        rtt.end_handshake();
        assert_eq!(rtt.timeout(BOUNDS), millis(300));
    }

    #[test]
    fn no_timeout_is_shorter_than_the_least() {
        let of = |least, most| Bounds { least: millis(least), most: millis(most) };
        let mut measured = Rtt::default();
        measured.sample(millis(1));
        for bounds in [BOUNDS, of(2000, 3000), of(200, 100), of(0, 10)] {
            for rtt in [Rtt::default(), measured] {
                assert!(rtt.base_timeout(bounds) >= bounds.least(), "{bounds:?}");
            }
        }
    }

    #[test]
    fn doubling_ends_at_the_longest() {
        // Rules 2.5 and 5.5.
        let mut rtt = Rtt { backoff: 3, ..Rtt::default() };
        assert_eq!(rtt.timeout(BOUNDS), Micros::from_millis(8000));
        rtt.backoff = 200;
        assert_eq!(rtt.timeout(BOUNDS), Micros::from_millis(120_000));
    }

    #[test]
    fn pacing_follows_a_shorter_round_trip_at_once_and_a_longer_one_slowly() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.for_pacing(), None);
        rtt.sample(millis(40));
        assert_eq!(rtt.for_pacing(), Some(millis(40)));
        rtt.sample(Micros(50));
        assert_eq!(rtt.for_pacing(), Some(Micros(50)));
        rtt.sample(millis(40));
        assert_eq!(rtt.for_pacing(), rtt.smoothed());
        // One that is too long.
        rtt.sample(millis(100));
        assert_eq!(rtt.for_pacing(), rtt.smoothed());
        assert!(rtt.smoothed() < Some(millis(60)));
    }
}
