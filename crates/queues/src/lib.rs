//! Chooses settings that keep the queue below TCP as short as desired: a pure function of its inputs.
//! docs/LAB.md has the underlying measurements.
#![forbid(unsafe_code)]

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;

/// Settings of a sending host that bound what TCP puts into the queues below it. `None` leaves a
/// setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueSettings {
    /// `net.ipv4.tcp_limit_output_bytes`.
    pub limit_output_bytes: Option<u32>,
    /// `net.ipv4.tcp_tso_rtt_log`.
    pub tso_rtt_log: Option<u32>,
    /// `net.ipv4.tcp_min_tso_segs`: the fewest segments of a train, if there is that much to
    /// send.
    pub min_tso_segments: Option<u32>,
    /// `gso_max_size` of the device, for IPv4 and IPv6.
    pub gso_max_bytes: Option<u32>,
    /// `gso_max_segs` of the device. A congestion control may have a minimum train length of its
    /// own, which `min_tso_segments` does not bound: BBR's is two segments (`bbr_min_tso_segs`).
    pub gso_max_segments: Option<u32>,
    /// SO_MAX_PACING_RATE of each socket that sends in bulk, in octets of payload a second.
    pub pacing_bytes_per_second: Option<u64>,
}

impl QueueSettings {
    /// The kernel's defaults.
    pub const KERNEL: Self = Self {
        limit_output_bytes: None,
        tso_rtt_log: None,
        min_tso_segments: None,
        gso_max_bytes: None,
        gso_max_segments: None,
        pacing_bytes_per_second: None,
    };
}

/// A full Ethernet frame, as shapers count it, and its TCP payload (with time stamps).
const FRAME_BYTES: u64 = 1514;
const PAYLOAD_BYTES: u64 = 1448;
/// What the kernel subtracts from `gso_max_size` for headers (`MAX_TCP_HEADER` + 1, at most 321 octets;
/// `sk_setup_caps`, net/core/sock.c).
const HEADER_ROOM_BYTES: u64 = 320;
/// What a train takes of the limit beside its payload: the limit counts `truesize`.
const TRAIN_OVERHEAD_BYTES: u64 = 1280;
/// Most segments in a train of 64 KiB.
const MOST_SEGMENTS: u64 = 43;
/// Trains of one connection that are below TCP at any time: the limit does not apply below two
/// (`tcp_small_queue_check`, net/ipv4/tcp_output.c).
const TRAINS: u64 = 2;
/// Time from a completion to the sender's next train, wake-ups included. With less than that
/// queued, a device runs dry: at 1 Gbit/s 65 µs lost a tenth of the throughput, 130 µs nothing.
const TURN_ROUND: Duration = Duration::from_micros(140);
/// Shortest time of a train on the link: making one and processing its ACKs costs a core nearly
/// the same however long it is. At 1 Gbit/s, on two cores that hold both ends, eight senders with
/// trains of one segment (12 µs) lost two fifths of the throughput, of three (36 µs) now and then some,
/// of four (48 µs) nothing; more short ones in flight did not help.
const SHORTEST_TRAIN: Duration = Duration::from_micros(45);
/// Share of the target, in percent: the rest is for what the device itself holds, and for wake-ups.
const SHARE_OF_TARGET: u64 = 60;
/// Share of a link's rate, in tenths of a percent: with faster pacing, queues do not shrink again.
const PACED_SHARE: u64 = 992;

/// Returns settings with which no packet waits much longer than `target` below TCP, at `rate` bits a second.
///
/// `senders` is the number of connections that will send in bulk at a time. Where it is known, each
/// is paced at its share of the rate, which nearly empties the queue; none may then exceed
/// its share, even while others are silent. Where it is not known, one is assumed, and each further
/// sender adds as much again.
///
/// A target that is too short to keep the device busy is missed: throughput comes first. So is one
/// shorter than two of the shortest trains of each sender: TCP always has that much queued. From
/// 0.25 Gbit/s up many senders need a longer one, or pacing.
#[must_use]
pub fn small_queues(rate: u64, target: Duration, senders: Option<NonZeroU32>) -> QueueSettings {
    let count = senders.map_or(1, |senders| u64::from(senders.get()));
    let wanted = bytes_in(rate, target) * SHARE_OF_TARGET / 100 / count;
    let needed = bytes_in(rate, TURN_ROUND) / count;
    let bytes = wanted.max(needed);
    let segments = (bytes / TRAINS / FRAME_BYTES)
        .max(needed.div_ceil(TRAINS * FRAME_BYTES))
        .max(bytes_in(rate, SHORTEST_TRAIN).div_ceil(FRAME_BYTES))
        .clamp(1, MOST_SEGMENTS);
    let train_bytes = segments * PAYLOAD_BYTES + TRAIN_OVERHEAD_BYTES;
    // While one train is below the limit and two are not, two are in flight. Where the
    // largest trains are not enough, the limit lets more of them through.
    let limit_bytes = (train_bytes * 3 / 2).max(bytes.saturating_sub(train_bytes));
    QueueSettings {
        limit_output_bytes: Some(narrow(limit_bytes)),
        // Trains must not grow on short round trips.
        tso_rtt_log: Some(0),
        min_tso_segments: Some(narrow(segments.min(2))),
        gso_max_bytes: Some(narrow((segments * FRAME_BYTES + HEADER_ROOM_BYTES).min(65_536))),
        gso_max_segments: Some(narrow(segments)),
        pacing_bytes_per_second: senders.map(|_| paced(rate) / count),
    }
}

/// Returns how long TCP's least backlog takes to send: two trains of each sender, as long as the
/// settings make them. `None` if they do not say.
#[must_use]
pub fn least_queued(rate: u64, senders: NonZeroU32, settings: &QueueSettings) -> Option<Duration> {
    let segments = u128::from(settings.gso_max_segments?);
    let bytes = segments * u128::from(TRAINS * FRAME_BYTES) * u128::from(senders.get());
    let nanos = (bytes * 8_000_000_000).checked_div(rate.into())?;
    Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// Returns the payload that a link of this rate carries in a second without a queue.
fn paced(rate: u64) -> u64 {
    let octets = u128::from(rate) / 8;
    let payload = octets * u128::from(PAYLOAD_BYTES * PACED_SHARE) / u128::from(FRAME_BYTES * 1000);
    u64::try_from(payload).unwrap_or(u64::MAX)
}

fn bytes_in(rate: u64, time: Duration) -> u64 {
    // More than a terabyte is no queue.
    const MOST: u128 = 1 << 40;
    let bytes = u128::from(rate).saturating_mul(time.as_nanos()) / 8_000_000_000;
    u64::try_from(bytes.min(MOST)).unwrap_or(MOST as u64)
}

fn narrow(bytes: u64) -> u32 {
    // The kernel stores them in signed numbers.
    u32::try_from(bytes.min(i32::MAX as u64)).unwrap_or(i32::MAX as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;

    fn segments(settings: &QueueSettings) -> u64 {
        // As the kernel computes it, with time stamps.
        (u64::from(settings.gso_max_bytes.unwrap()) - 321) / PAYLOAD_BYTES
    }

    fn senders(count: u32) -> Option<NonZeroU32> {
        NonZeroU32::new(count)
    }

    #[test]
    fn what_was_measured_to_work_is_what_is_chosen() {
        let slow = small_queues(100 * MBIT, Duration::from_millis(1), None);
        assert_eq!(segments(&slow), 2, "{slow:?}");
        let fast = small_queues(1000 * MBIT, Duration::from_micros(300), None);
        assert_eq!(segments(&fast), 7, "{fast:?}");
        let eight = small_queues(100 * MBIT, Duration::from_millis(2), senders(8));
        assert_eq!((segments(&eight), eight.min_tso_segments), (1, Some(1)), "{eight:?}");
        assert_eq!(eight.gso_max_segments, Some(1), "{eight:?}");
        // With one segment they had 560 to 770 of 950 Mbit/s.
        let fast = small_queues(1000 * MBIT, Duration::from_micros(300), senders(8));
        assert_eq!((segments(&fast), fast.min_tso_segments), (4, Some(2)), "{fast:?}");
    }

    #[test]
    fn two_trains_fit_the_target_and_three_do_not_fit_the_limit() {
        for (rate, micros) in [(10, 10_000), (100, 1000), (1000, 300), (1000, 1000), (10_000, 200)]
        {
            let target = Duration::from_micros(micros);
            let chosen = small_queues(rate * MBIT, target, None);
            let trains = TRAINS * segments(&chosen) * FRAME_BYTES;
            assert!(trains <= bytes_in(rate * MBIT, target), "{rate} Mbit/s: {chosen:?}");
            let train = segments(&chosen) * PAYLOAD_BYTES;
            let limit = u64::from(chosen.limit_output_bytes.unwrap());
            assert!(limit >= train + TRAIN_OVERHEAD_BYTES, "{chosen:?}");
            if segments(&chosen) < MOST_SEGMENTS - 1 {
                assert!(limit < 2 * train + 2 * TRAIN_OVERHEAD_BYTES, "{chosen:?}");
            }
            assert!(chosen.pacing_bytes_per_second.is_none());
        }
    }

    #[test]
    fn the_device_is_kept_busy_however_short_the_target() {
        let chosen = small_queues(1000 * MBIT, Duration::from_micros(1), None);
        assert!(TRAINS * segments(&chosen) * FRAME_BYTES >= bytes_in(1000 * MBIT, TURN_ROUND));
        let least = small_queues(MBIT, Duration::ZERO, None);
        assert_eq!(segments(&least), 1);
    }

    #[test]
    fn what_is_queued_at_least_tells_whether_a_target_is_met() {
        let least = |rate, target, count| {
            let settings = small_queues(rate, target, senders(count));
            least_queued(rate, senders(count).unwrap(), &settings).unwrap()
        };
        let ms = Duration::from_millis;
        assert!(least(100 * MBIT, ms(1), 1) <= ms(1));
        assert!(least(100 * MBIT, ms(2), 8) <= ms(2));
        assert!(least(100 * MBIT, ms(1), 8) > Duration::from_micros(1900));
        assert_eq!(least(MBIT, ms(1), 1), Duration::from_micros(24_224));
        // The device is kept busy.
        assert!(least(1000 * MBIT, Duration::from_micros(100), 1) > Duration::from_micros(140));
        assert_eq!(least_queued(MBIT, NonZeroU32::MIN, &QueueSettings::KERNEL), None);
        let some = QueueSettings { gso_max_segments: Some(1), ..QueueSettings::KERNEL };
        assert_eq!(least_queued(0, NonZeroU32::MIN, &some), None);
    }

    #[test]
    fn those_who_share_a_link_get_no_more_than_it_has() {
        for count in [1, 3, 8, 1000] {
            let chosen = small_queues(100 * MBIT, Duration::from_millis(1), senders(count));
            let all = chosen.pacing_bytes_per_second.unwrap() * u64::from(count);
            let link = 100 * MBIT / 8 * PAYLOAD_BYTES / FRAME_BYTES;
            assert!(all < link && all > link * 98 / 100, "{count}: {all} of {link}");
        }
    }

    #[test]
    fn no_rate_and_no_target_overflow() {
        for rate in [0, 1, u64::MAX] {
            for target in [Duration::ZERO, Duration::MAX] {
                let chosen = small_queues(rate, target, senders(u32::MAX));
                assert!(chosen.gso_max_bytes.unwrap() <= 65_536);
            }
        }
    }
}
