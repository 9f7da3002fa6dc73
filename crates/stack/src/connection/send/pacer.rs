//! Pacing: segments leave at a rate a little above what the congestion window makes of them, so that
//! they do not meet in a queue.

use std::time::Duration;

use uncork_packet::Instant;

use crate::connection::congestion::Congestion;
use crate::units::Micros;

/// How much faster than a window in a round trip, in percent: in slow start, where the window is
/// twice as large a round trip later, and afterwards (tcp_pacing_ss_ratio, tcp_pacing_ca_ratio).
const SLOW_START_PERCENT: u64 = 200;
const AVOIDANCE_PERCENT: u64 = 120;

/// The rate, and when the next frame may leave.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pacer {
    /// Bytes a second; zero before a round trip was measured: no pacing.
    rate: u64,
    /// Bytes a second that get through: what is out, in a round trip (Little's law). Unlike `rate` it
    /// has nothing of windows that are not used or are about to grow.
    through: u64,
    next: Instant,
}

impl Pacer {
    /// Follows window and round-trip time.
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
        self.rate = window.saturating_mul(percent * 10_000) / u64::from(smoothed.0);
    }

    /// An ACK came while `segments_out` were out, for what was sent a `round_trip` ago.
    pub(crate) fn observe(&mut self, segments_out: u32, mss: u32, round_trip: Duration) {
        let nanos = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX).max(1);
        let window = u64::from(segments_out) * u64::from(mss);
        self.through = window.saturating_mul(1_000_000_000) / nanos;
    }

    /// What gets through in three quarters of a millisecond: as much as a device may hold, so that
    /// with what the estimate is wrong by nobody waits for longer than one.
    pub(crate) fn device_bytes(&self) -> Option<u32> {
        (self.through > 0).then(|| u32::try_from(self.through / 4000 * 3).unwrap_or(u32::MAX))
    }

    /// Bytes a second that get through, if that is known.
    pub(crate) fn through(&self) -> Option<u64> {
        (self.through > 0).then_some(self.through)
    }

    /// Bytes a second, if a rate is known.
    pub(crate) fn rate(&self) -> Option<u64> {
        (self.rate > 0).then_some(self.rate)
    }

    /// What leaves in a millisecond: as long as a train may be.
    pub(crate) fn bytes_in_a_millisecond(&self) -> Option<u32> {
        self.rate().map(|rate| u32::try_from(rate / 1000).unwrap_or(u32::MAX))
    }

    /// When the next frame may leave, if not now.
    pub(crate) fn wait_until(&self, now: Instant) -> Option<Instant> {
        (self.next > now).then_some(self.next)
    }

    /// A frame leaves. Whoever was quiet may send `burst_bytes` at once, as with sch_fq's initial
    /// quantum: a short answer gains nothing by being spread, and timers are late.
    pub(crate) fn on_sent(&mut self, bytes: u32, burst_bytes: u32, now: Instant) {
        let Some(rate) = self.rate() else { return };
        let time_for = |bytes: u32| u64::from(bytes) * 1_000_000_000 / rate;
        let earliest = now.as_nanos().saturating_sub(time_for(burst_bytes));
        let next = self.next.max(Instant::from_nanos(earliest));
        self.next = next + Duration::from_nanos(time_for(bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uncork_packet::Instant;

    use super::Pacer;
    use crate::config::Algorithm;
    use crate::connection::congestion::Congestion;
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
        let mut pacer = Pacer { rate: 1_000_000, ..Pacer::default() };
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
}
