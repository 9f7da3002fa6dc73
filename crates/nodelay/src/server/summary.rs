//! The server's JSON output.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::Options;
use super::serve::{Ending, Tally};

/// The port that was chosen when any would do.
#[derive(Debug, Serialize)]
pub(super) struct Listening {
    event: &'static str,
    port: u16,
}

impl Listening {
    pub(super) fn new(port: u16) -> Self {
        Self { event: "listening", port }
    }
}

/// One connection.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    event: &'static str,
    /// Host name of the client, or its address.
    host: String,
    peer: SocketAddr,
    /// Complete logical packets that arrived.
    packets: u64,
    /// Logical packets that were expected.
    packets_expected: u64,
    /// Buffers in a logical packet.
    buffers: u32,
    /// Reads that returned data: the number in `server: received N buffers`.
    reads: u64,
    /// Segments with data that the kernel has received (`tcpi_data_segs_in`); null if it does not
    /// tell.
    segments: Option<u32>,
    bytes: u64,
    /// `complete`, `closed` (by the client, between packets), `torn` (inside one) or `failed`.
    ended: &'static str,
    /// Times between packets; null unless started with the word `rate`.
    interval_us: Option<IntervalSummary>,
}

#[derive(Debug, Serialize)]
struct IntervalSummary {
    min: f64,
    max: f64,
    avg: f64,
}

impl Summary {
    pub(super) fn new(options: &Options, host: String, peer: SocketAddr, tally: &Tally) -> Self {
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        Self {
            event: "connection",
            host,
            peer,
            packets: tally.packets,
            packets_expected: options.packets,
            buffers: options.buffers,
            reads: tally.reads,
            segments: tally.segments,
            bytes: tally.bytes,
            ended: match tally.ending {
                Ending::Complete => "complete",
                Ending::Closed => "closed",
                Ending::Torn { .. } => "torn",
                Ending::Failed(_) => "failed",
            },
            interval_us: tally.intervals.as_ref().map(|intervals| IntervalSummary {
                min: microseconds(intervals.min()),
                max: microseconds(intervals.max()),
                avg: microseconds(intervals.average()),
            }),
        }
    }
}
