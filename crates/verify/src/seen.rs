//! The figures of a device over a period of time.

use std::num::NonZeroU32;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Size of a full Ethernet frame with timestamps, and of its TCP payload.
const FRAME_BYTES: u64 = 1514;
const PAYLOAD_BYTES: u64 = 1448;

/// A distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Number of figures.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
}

impl Spread {
    pub(crate) fn of(figures: &Histogram<u64>) -> Self {
        Self {
            count: figures.len(),
            p50: figures.value_at_quantile(0.5),
            p99: figures.value_at_quantile(0.99),
        }
    }
}

/// The figures of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Seen {
    /// Its duration.
    pub seconds: f64,
    /// Connections over the device with more to send than they had sent, on average.
    pub senders: f64,
    /// Share of the time in which there was at least one.
    pub busy_share: f64,
    /// Payload that the peers have acknowledged, of all connections over the device.
    pub payload_bits_per_second: f64,
    /// Rate by the device's counter.
    pub device_bits_per_second: f64,
    /// Backlog of its queueing discipline; `None` if it has none.
    pub backlog_bytes: Option<Spread>,
    /// Round trips of bulk senders, in microseconds, as TCP has them (smoothed, RFC 6298): each of
    /// their segments waits in the queue.
    pub bulk_us: Spread,
    /// Round trips of other connections over the device.
    pub others_us: Spread,
    /// Pings sent meanwhile, in microseconds, if any.
    pub ping_us: Option<Spread>,
    /// Bulk senders that do not use this device: for a user who has named the wrong one.
    pub elsewhere: u32,
}

impl Seen {
    /// Returns how many connections send in bulk, as far as can be determined.
    #[must_use]
    pub fn bulk_senders(&self) -> Option<NonZeroU32> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // few, and not negative
        let rounded = self.senders.round().min(1e6) as u32;
        let some = (self.senders > 0.0).then_some(rounded.max(1));
        some.and_then(NonZeroU32::new)
    }

    /// Returns what is sent over the link, in octets of frames a second. A virtual device counts the headers
    /// of a train once, so the payload is more accurate there; other traffic is only in the device's counter.
    #[must_use]
    pub fn link_bytes_per_second(&self) -> u64 {
        #[allow(clippy::cast_precision_loss)] // small numbers
        let frames = self.payload_bits_per_second * FRAME_BYTES as f64 / PAYLOAD_BYTES as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate of a device
        let octets = (frames.max(self.device_bits_per_second) / 8.0) as u64;
        octets
    }

    /// Returns the round trip under load: that of the pings, or else the bulk senders' own.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        let spread = self.ping_us.unwrap_or(self.bulk_us);
        (spread.count > 0).then(|| Duration::from_micros(spread.p50))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_s_rate_has_the_headers_of_every_frame() {
        let seen = Seen {
            payload_bits_per_second: 95.6e6,
            device_bits_per_second: 96.1e6,
            ..Seen::default()
        };
        let megabits = seen.link_bytes_per_second() as f64 * 8e-6;
        assert!((99.5..100.5).contains(&megabits), "{megabits}");
        let others = Seen { device_bits_per_second: 800e6, ..seen };
        assert_eq!(others.link_bytes_per_second(), 100_000_000);
    }

    #[test]
    fn part_of_a_sender_is_one_and_none_is_none() {
        let seen = |senders| Seen { senders, ..Seen::default() };
        assert_eq!(seen(0.0).bulk_senders(), None);
        assert_eq!(seen(0.2).bulk_senders(), NonZeroU32::new(1));
        assert_eq!(seen(7.8).bulk_senders(), NonZeroU32::new(8));
    }
}
