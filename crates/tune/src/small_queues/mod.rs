//! `uncork tune small-queues`: no connection keeps more in the queue of a device than a target time
//! takes to send.
//!
//! The kernel has the limit (TCP small queues, tcp_limit_output_bytes), but a train of segments is
//! no longer cut to a part of it, and at short round trips is made longer still (tcp_tso_rtt_log):
//! so the limit alone does nothing. It takes all of what is set here together.

mod rate;

use std::time::Duration;

pub use rate::Rate;

use crate::Error;
use crate::change::{Change, Link, Sysctl};
use crate::netns::Handle;
use crate::plan::Plan;

/// A full segment of Ethernet, with its headers. A train is a whole number of these.
const SEGMENT_BYTES: u64 = 1514;
/// The kernel sends no shorter trains than this (netif_set_gso_max_size takes no size that leaves
/// no room behind the longest headers); two segments.
const LEAST_TRAIN_BYTES: u64 = 2 * SEGMENT_BYTES;
/// What may wait unsent in a socket: enough for a program that is woken late not to run dry.
const LEAST_UNSENT_BYTES: u64 = 128 * 1024;
/// GSO_LEGACY_MAX_SIZE: longer trains help nobody's latency.
const MOST_TRAIN_BYTES: u64 = 65_536;

/// What is asked for.
#[derive(Debug)]
pub struct Request {
    /// The device through which the bulk goes.
    pub device: String,
    /// How long what one connection has in the queue may take to send.
    pub target: Duration,
    /// Bytes a second, if the device is not to be asked.
    pub rate_bytes_per_second: Option<u64>,
    /// Where the device is.
    pub netns: Handle,
}

/// The sizes that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    limit_bytes: u64,
    train_bytes: u64,
    unsent_bytes: u64,
}

impl Sizes {
    /// A connection has two trains on the way: one that is being sent, one that is next. The
    /// limit counts what a train takes in memory, and stops the one after it is passed.
    fn of(rate_bytes_per_second: u64, target: Duration) -> Self {
        let budget = u128::from(rate_bytes_per_second) * target.as_micros() / 1_000_000;
        let budget = u64::try_from(budget).unwrap_or(u64::MAX);
        let whole = (budget / 2 / SEGMENT_BYTES).saturating_mul(SEGMENT_BYTES);
        let train_bytes = whole.clamp(LEAST_TRAIN_BYTES, MOST_TRAIN_BYTES);
        let limit_bytes = budget.clamp(2 * train_bytes, u64::from(u32::MAX) / 2);
        // What waits in the socket delays nobody else, only this connection's next message.
        Self { limit_bytes, train_bytes, unsent_bytes: (2 * limit_bytes).max(LEAST_UNSENT_BYTES) }
    }
}

/// What has to be changed for this.
///
/// # Errors
/// If the device is not there, or its rate is not known.
pub fn plan(request: &Request) -> Result<Plan, Error> {
    let Request { device, target, netns, .. } = request;
    let rate = match request.rate_bytes_per_second {
        Some(bytes_per_second) => Rate { bytes_per_second, source: "--rate".to_owned() },
        None => rate::learn(netns, device)?,
    };
    let sizes = Sizes::of(rate.bytes_per_second, *target);
    let sysctl =
        |name: &str, value: u64| Sysctl::plan(netns, name, value.to_string()).map(Change::Sysctl);
    let train = u32::try_from(sizes.train_bytes).unwrap_or(u32::MAX);
    let megabits = rate.bytes_per_second.saturating_mul(8) / 1_000_000;
    let title = format!(
        "small queues on {device}: at most {target:?} at {megabits} Mbit/s ({}){}",
        rate.source,
        netns.id.words()
    );
    let mut changes = vec![
        sysctl("net.ipv4.tcp_limit_output_bytes", sizes.limit_bytes)?,
        sysctl("net.ipv4.tcp_notsent_lowat", sizes.unsent_bytes)?,
    ];
    // Kernels before 5.18 have no trains that grow at short round trips.
    if let Ok(change) = sysctl("net.ipv4.tcp_tso_rtt_log", 0) {
        changes.push(change);
    }
    changes.push(Change::Link(Link::plan(netns, device, train)?));
    Ok(Plan { title, changes, ..Plan::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_whole_segments_and_at_most_half_the_limit() {
        for megabits in [1, 10, 100, 1_000, 10_000, 400_000] {
            for target in [100, 300, 1_000, 10_000] {
                let sizes = Sizes::of(megabits * 125_000, Duration::from_micros(target));
                assert!(sizes.train_bytes * 2 <= sizes.limit_bytes, "{megabits} {sizes:?}");
                assert!(sizes.limit_bytes < u64::from(u32::MAX), "{megabits} {sizes:?}");
            }
        }
        let sizes = Sizes::of(12_500_000, Duration::from_millis(1));
        assert_eq!((sizes.limit_bytes, sizes.train_bytes), (12_500, 4 * 1514));
    }
}
