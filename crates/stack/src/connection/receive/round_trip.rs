//! The receiver's estimate of the round-trip time (tcpi_rcv_rtt): from echoed timestamps of
//! full segments, and from the time in which a whole window arrives (tcp_rcv_rtt_measure_ts and tcp_rcv_rtt_measure of
//! Linux).

use uncork_packet::Instant;
use uncork_wire::SeqNumber;

use crate::units::Micros;

/// The receiver's round-trip estimate.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    /// Smoothed estimate, in eighths of a microsecond; zero before there is one.
    eighths: u32,
    /// The last echoed timestamp: each is used once.
    echo: u32,
    /// End of the window that is being measured.
    end: SeqNumber,
    /// When it began, in microseconds, which wrap after 71 minutes; zero if none has begun.
    began: u32,
}

/// Returns the clock in microseconds, which are never zero.
#[expect(clippy::cast_possible_truncation, reason = "see above")]
#[inline]
fn micros(now: Instant) -> u32 {
    (now.as_nanos() / 1000) as u32 | 1
}

impl RoundTrip {
    /// Returns the estimate; zero before there is one.
    pub(crate) fn known(self) -> Micros {
        Micros(self.eighths / 8)
    }

    /// Takes a sample from an echoed timestamp that was sent this many milliseconds ago, with a full segment or not. `is_idle`
    /// says that nothing waits to be read: otherwise the sample may be late because nobody reads.
    pub(crate) fn hear(&mut self, echo: u32, age: u32, is_full: bool, is_idle: bool) {
        if echo == self.echo {
            return;
        }
        self.echo = echo;
        // Samples below the clock's tick are ignored (Linux d59fc95be9d0), and so are those from the future.
        if is_full && age.cast_signed() > 0 {
            self.sample(age.saturating_mul(1000), is_idle);
        }
    }

    /// Notes in-order data up to `nxt`, after which `window` octets more may come at once.
    #[inline(always)]
    pub(crate) fn measure(&mut self, nxt: SeqNumber, window: u32, now: Instant) {
        if self.began != 0 && nxt.before(self.end) {
            return;
        }
        self.measure_window(nxt, window, now);
    }

    #[inline(never)]
    fn measure_window(&mut self, nxt: SeqNumber, window: u32, now: Instant) {
        let now = micros(now);
        if self.began != 0 {
            // A peer that pauses makes the sample longer, so only a lower one is accepted.
            self.sample(now.wrapping_sub(self.began).max(1), false);
        }
        self.end = nxt + window;
        self.began = now;
    }

    /// Takes a sample: a lower one at once (Linux b879dcb1aeec), a higher one only if it is to be `smoothed`.
    fn sample(&mut self, micros: u32, smoothed: bool) {
        let eighths = micros.saturating_mul(8);
        let old = self.eighths;
        if old == 0 || eighths < old {
            self.eighths = eighths;
        } else if smoothed {
            self.eighths = (old - old / 8).saturating_add(micros);
        }
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Instant;
    use uncork_wire::SeqNumber;

    use super::{Micros, RoundTrip};

    #[test]
    fn a_stamp_counts_once_with_a_full_segment_and_more_than_a_tick() {
        let mut one = RoundTrip::default();
        one.hear(5, 0, true, true);
        one.hear(6, 50, false, true);
        assert_eq!(one.known(), Micros::ZERO);
        one.hear(7, 50, true, true);
        one.hear(7, 5, true, true);
        one.hear(8, u32::MAX, true, true);
        assert_eq!(one.known(), Micros(50_000));
        // A higher sample is smoothed, if a slow reader did not delay it; a lower one is accepted at once.
        one.hear(9, 300, true, false);
        assert_eq!(one.known(), Micros(50_000));
        one.hear(10, 300, true, true);
        assert_eq!(one.known(), Micros(81_250));
        one.hear(11, 20, true, false);
        assert_eq!(one.known(), Micros(20_000));
    }

    #[test]
    fn a_window_takes_a_round_trip_at_least() {
        let mut one = RoundTrip::default();
        let at = Instant::from_millis;
        one.measure(SeqNumber(1000), 10_000, at(100));
        one.measure(SeqNumber(10_999), 10_000, at(150));
        assert_eq!(one.known(), Micros::ZERO);
        one.measure(SeqNumber(11_000), 10_000, at(160));
        assert_eq!(one.known(), Micros(60_000));
        one.measure(SeqNumber(21_000), 10_000, at(260));
        assert_eq!(one.known(), Micros(60_000));
        one.measure(SeqNumber(31_000), 10_000, at(290));
        assert_eq!(one.known(), Micros(30_000));
    }
}
