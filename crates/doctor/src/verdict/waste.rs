//! Trouble that costs packets and queues rather than a wait of its own.

use std::time::Duration;

use super::words::ms;
use super::{Sum, View};
use crate::report::{Finding, Kind, Severity};

/// Headers of a segment on Ethernet: 14 octets, 20 of IPv4, 32 of TCP with timestamps.
const HEADERS: u64 = 66;
/// Fewer needless segments are not reported.
const NEEDLESS: u32 = 16;
/// Segments with more data than this are not tiny.
const TINY_BYTES: u64 = 256;
/// A queue shorter than this is no trouble.
const LONG_QUEUE: Duration = Duration::from_millis(3);
/// Where an end answers so many times faster than the path to the other takes, the capture was made
/// next to it.
const BESIDE: u32 = 20;
/// ACKs that must be measured under load before anything is reported.
const MEASURED: u64 = 20;

pub(super) fn tiny_packets(view: &View<'_>) -> Option<Finding> {
    let tiny = view.sender.messages.tiny;
    let needless = tiny.segments.saturating_sub(tiny.needed);
    let mean_bytes = tiny.bytes.checked_div(tiny.segments.into())?;
    let mostly = u64::from(tiny.segments) * 2 >= view.sender.data_segments;
    // With a clock that stands still everything seems to come at once.
    let clock_stands = view.connection.first_seen == view.connection.last_seen;
    if needless < NEEDLESS || mean_bytes > TINY_BYTES || !mostly || clock_stands {
        return None;
    }
    let evidence = format!(
        "The {} sent {} segments where {} would have done: on average {} a message, of \
         {mean_bytes} octets each; {} % of what went over the wire was headers.",
        view.role(),
        tiny.segments,
        tiny.needed,
        tiny.segments / tiny.messages.max(1),
        HEADERS * 100 / (HEADERS + mean_bytes),
    );
    let mut finding = Sum::default().finding(Kind::TinyPackets, Severity::Waste, evidence);
    finding.count = tiny.messages.into();
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}

pub(super) fn sender_queue(view: &View<'_>) -> Option<Finding> {
    let loaded = view.sender.loaded.as_deref()?;
    let spread = loaded.spread();
    let queued = spread.p50.saturating_sub(view.path());
    let long = queued >= LONG_QUEUE && spread.p50 >= view.path() * 3 / 2;
    // What the receiver's host captures has passed every queue.
    let at_receiver = view.connection.rtt().is_some_and(|rtt| view.path() * BESIDE < rtt);
    if loaded.len() < MEASURED || !long || at_receiver {
        return None;
    }
    let evidence = format!(
        "With up to {} octets of the {} in flight, its ACKs took {} (median) where the path alone \
         takes {}: the rest is spent in a queue of its own making.",
        view.sender.most_in_flight_bytes,
        view.role(),
        ms(spread.p50),
        ms(view.path()),
    );
    let sum = Sum::default();
    let mut finding = sum.finding(Kind::SenderQueue, Severity::Waste, evidence);
    finding.count = loaded.len();
    finding.each = spread;
    finding.histogram = loaded.buckets();
    finding.bytes_held_by = Some(view.role());
    Some(finding)
}
