//! Pacing: segments leave at a rate slightly above the congestion window per round trip, so that
//! they do not queue up.

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use crate::connection::Connection;
use crate::connection::congestion::Congestion;
use crate::connection::recovery::Passed;
use crate::units::Micros;

/// Pacing rate in percent of a window per round trip: in slow start, where the window doubles
/// in a round trip, and afterwards (tcp_pacing_ss_ratio, tcp_pacing_ca_ratio).
const SLOW_START_PERCENT: u64 = 200;
const AVOIDANCE_PERCENT: u64 = 120;

/// A rate in units of 16 bytes per second: up to 68 GB per second in half the size of a u64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rate(u32);

impl Rate {
    /// Makes a rate from bytes per second; a known rate is never zero.
    fn of(bytes: u64) -> Self {
        Self(u32::try_from(bytes / 16).unwrap_or(u32::MAX).max(1))
    }

    fn bytes(self) -> Option<u64> {
        (self.0 > 0).then(|| u64::from(self.0) * 16)
    }
}

/// The latest delivery rate, or the highest application-limited one; the topmost bit says which it is (rate_delivered and
/// rate_app_limited of Linux).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery(u32);

/// The bit in [`Delivery`] for an application-limited rate.
const LIMITED: u32 = 1 << 31;

impl Default for Delivery {
    fn default() -> Self {
        Self(LIMITED)
    }
}

impl Delivery {
    /// Returns the rate in bytes per second, if it is known.
    pub(crate) fn rate(self) -> Option<u64> {
        Rate(self.0 & !LIMITED).bytes()
    }

    /// Returns whether it is application-limited.
    pub(crate) fn is_limited(self) -> bool {
        self.0 & LIMITED != 0
    }

    /// Takes a sample (tcp_rate_gen).
    #[inline]
    fn note(&mut self, rate: Rate, limited: bool) {
        let told = rate.0.min(!LIMITED);
        if !limited || told >= self.0 & !LIMITED {
            self.0 = told | if limited { LIMITED } else { 0 };
        }
    }
}

impl Connection {
    /// Takes a delivery measurement, all of which is acknowledged now, when `nxt` is sent next.
    #[inline(always)]
    pub(crate) fn observe(&mut self, passed: Passed, nxt: SeqNumber, now: Instant) {
        let mss = self.segment_bytes();
        let took = now.as_nanos().saturating_sub(passed.since.as_nanos());
        let limited = passed.limited;
        let rate = self.pacer.observe(passed, mss, nxt, now);
        // A sample shorter than the shortest round trip is invalid: ACKs were bunched.
        let shortest = self.rtt.shortest().unwrap_or_default();
        if Micros(1).as_nanos() + took >= shortest.as_nanos() {
            self.counts.delivery.note(rate, limited);
        }
    }
}

/// The pacing rate, and when the next frame may leave.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pacer {
    /// None before a round trip was measured: no pacing.
    rate: Rate,
    /// Delivery rate, measured between one ACK and another a round trip later: the highest of this
    /// round trip, and of the one before. Unlike `rate` it does not include windows that are unused or are
    /// about to grow.
    through: [Rate; 2],
    /// What is acknowledged beyond this was sent after this round trip had begun.
    round: SeqNumber,
    next: Instant,
}

impl Pacer {
    /// Updates the rate from window and round-trip time.
    #[inline(always)]
    pub(crate) fn update(
        &mut self,
        congestion: &Congestion,
        segments_out: u32,
        mss: u32,
        smoothed: Option<Micros>,
    ) {
        let Some(smoothed) = smoothed.filter(|smoothed| smoothed.0 > 0) else { return };
        let percent = if congestion.window < congestion.threshold / 2 {
            SLOW_START_PERCENT
        } else {
            AVOIDANCE_PERCENT
        };
        let window = u64::from(congestion.window.max(segments_out)) * u64::from(mss);
        self.rate = Rate::of(window.saturating_mul(percent * 10_000) / u64::from(smoothed.0));
    }

    /// Updates the delivery rate from a measurement, all of which is acknowledged now. It does not divide what is in flight now
    /// by the round trip of what was acknowledged: while a queue grows, that is more than the path delivers, and
    /// makes the queue grow faster.
    #[inline(always)]
    fn observe(&mut self, passed: Passed, mss: u32, nxt: SeqNumber, now: Instant) -> Rate {
        let nanos = now.as_nanos().saturating_sub(passed.since.as_nanos()).max(1);
        let bytes = u64::from(passed.segments) * u64::from(mss);
        let through = Rate::of(bytes.saturating_mul(1_000_000_000) / nanos);
        if self.through[0] == Rate::default() || passed.end.after(self.round) {
            self.through = [through, self.through[0]];
            self.round = nxt;
        }
        self.through[0] = self.through[0].max(through);
        through
    }

    /// Returns what is delivered in three quarters of a millisecond: what a device may hold, so that
    /// even with the estimate's error nobody waits for longer than a whole one.
    pub(crate) fn device_bytes(&self) -> Option<u32> {
        self.through().map(|through| u32::try_from(through / 4000 * 3).unwrap_or(u32::MAX))
    }

    /// Makes a pacer with a known delivery rate.
    #[cfg(test)]
    pub(crate) fn of_rate(through: u64) -> Self {
        Self { through: [Rate::of(through); 2], ..Self::default() }
    }

    /// Returns the delivery rate in bytes per second, if it is known.
    pub(crate) fn through(&self) -> Option<u64> {
        self.through[0].max(self.through[1]).bytes()
    }

    /// Returns the pacing rate in bytes per second, if it is known.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate.bytes()
    }

    /// Returns what leaves in a millisecond, which bounds the length of a train.
    pub(crate) fn bytes_in_a_millisecond(&self) -> Option<u32> {
        self.rate().map(|rate| u32::try_from(rate / 1000).unwrap_or(u32::MAX))
    }

    /// Returns when the next frame may leave, if not now.
    #[inline]
    pub(crate) fn wait_until(&self, now: Instant) -> Option<Instant> {
        (self.next > now).then_some(self.next)
    }

    /// Notes a frame that leaves. A connection that was quiet may send `burst_bytes` at once, as with sch_fq's initial
    /// quantum: pacing a short answer gains nothing, and timers are late.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, bytes: u32, burst_bytes: u32, now: Instant) {
        let Some(rate) = self.rate() else { return };
        let time_for = |bytes: u32| u64::from(bytes) * 1_000_000_000 / rate;
        let earliest = now.as_nanos().saturating_sub(time_for(burst_bytes));
        let next = self.next.as_nanos().max(earliest);
        self.next = Instant::from_nanos(next.saturating_add(time_for(bytes)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uncork_packet::Instant;
    use uncork_wire::SeqNumber;

    use super::{Pacer, Rate};
    use crate::config::Algorithm;
    use crate::connection::congestion::Congestion;
    use crate::connection::recovery::{Delivered, Flight};
    use crate::memory::Pool;
    use crate::units::Micros;

    #[test]
    fn a_window_leaves_in_half_a_round_trip_in_slow_start_and_in_five_sixths_later() {
        let mut congestion = Congestion::new(Algorithm::Cubic, 100);
        let mut pacer = Pacer::default();
        pacer.update(&congestion, 0, 1000, Some(Micros::from_millis(10)));
        assert_eq!(pacer.rate(), Some(20_000_000));
        congestion.threshold = 100;
        pacer.update(&congestion, 0, 1000, Some(Micros::from_millis(10)));
        assert_eq!(pacer.rate(), Some(12_000_000));
        assert_eq!(pacer.bytes_in_a_millisecond(), Some(12_000));
    }

    #[test]
    fn a_burst_leaves_at_once_and_then_frames_leave_at_the_rate() {
        let mut pacer = Pacer { rate: Rate::of(1_000_000), ..Pacer::default() };
        let start = Instant::from_millis(1000);
        for _ in 0..3 {
            assert_eq!(pacer.wait_until(start), None);
            pacer.on_sent(2000, 4000, start);
        }
        let next = start + Duration::from_millis(2);
        assert_eq!(pacer.wait_until(start), Some(next));
        pacer.on_sent(2000, 4000, next);
        assert_eq!(pacer.wait_until(next), Some(next + Duration::from_millis(2)));
    }

    const MSS: u32 = 1000;

    /// A link that delivers a segment per millisecond, and the connection that sends over it.
    struct Link {
        flight: Flight,
        pool: Pool,
        pacer: Pacer,
        una: SeqNumber,
        nxt: SeqNumber,
        acked: Instant,
    }

    impl Link {
        fn new() -> Self {
            let zero = SeqNumber(0);
            let (flight, pacer) = (Flight::default(), Pacer::default());
            Self { flight, pool: Pool::new(0), pacer, una: zero, nxt: zero, acked: at(0) }
        }

        fn send(&mut self, segments: u16, now: Instant) {
            let end = self.nxt + u32::from(segments) * MSS;
            self.flight.push((self.nxt, end), segments, (now, self.acked), &mut self.pool);
            self.nxt = end;
        }

        /// Acknowledges segments, and returns the estimated delivery rate in segments per second.
        fn acknowledge(&mut self, segments: u32, now: Instant) -> u64 {
            let mut delivered = Delivered::default();
            self.una += segments * MSS;
            self.flight.acknowledge(self.una, MSS, &mut delivered, |_| ());
            self.pacer.observe(delivered.passed.unwrap(), MSS, self.nxt, now);
            self.acked = now;
            self.pacer.through().unwrap() / u64::from(MSS)
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(1000 + millis)
    }

    #[test]
    fn what_gets_through_is_not_more_while_a_queue_grows() {
        let mut link = Link::new();
        link.send(4, at(0));
        for millis in 1..200 {
            let through = link.acknowledge(1, at(millis));
            assert!((950..=1050).contains(&through), "{through} after {millis} ms");
            // Twice as fast as they are delivered.
            link.send(2, at(millis));
        }
    }

    #[test]
    fn what_gets_through_is_not_more_if_it_is_all_acknowledged_late() {
        let mut link = Link::new();
        link.send(29, at(0));
        link.send(1, at(28));
        let through = link.acknowledge(30, at(30));
        assert!((990..=1000).contains(&through), "{through}");
    }

    #[test]
    fn one_late_acknowledgment_does_not_make_what_gets_through_less() {
        let mut link = Link::new();
        link.send(10, at(0));
        let mut through = 0;
        for millis in 1..=10 {
            through = link.acknowledge(1, at(millis));
            link.send(1, at(millis));
        }
        assert_eq!(through, 1000);
        assert_eq!(link.acknowledge(1, at(40)), 1000);
    }
}
