//! The result, in the published forms and as JSON.

use std::net::SocketAddr;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Options;
use super::args::Cut;
use super::exchange::Tally;
use super::parts::MOST_VECTORS;
use crate::packet_bytes;

/// The result of a run; its fields are those of the JSON object.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// How packets are cut into writes: `buffers`, `header_plus_payload`, `sendfile`,
    /// `single_request` or `writev`.
    mode: &'static str,
    /// Socket options that were used.
    options: Vec<&'static str>,
    server: String,
    /// Address that took the connection.
    peer: Option<SocketAddr>,
    packets: u64,
    /// Buffers of a logical packet.
    buffers: u32,
    /// Bytes of a logical packet.
    bytes_per_packet: usize,
    /// Bytes of all packets.
    bytes: u64,
    /// Writes into which a packet is cut.
    writes_per_packet: u32,
    /// Calls of `write(2)` and the like that were made.
    writes: u64,
    elapsed_ms: f64,
    bytes_per_ms: f64,
    /// Requested packets per second.
    rate: Option<u32>,
    /// Times from a packet's first write to its reply; null when no replies were awaited.
    latency_us: Option<Distribution>,
    /// How late each packet was begun; null without `--rate`.
    late_us: Option<Distribution>,
}

/// A distribution of times, in microseconds.
#[derive(Debug, Serialize)]
struct Distribution {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Summary {
    pub(super) fn new(options: &Options, peer: Option<SocketAddr>, tally: &Tally) -> Self {
        let bytes_per_packet = packet_bytes(options.buffers);
        let bytes = options.packets * bytes_per_packet as u64;
        let elapsed_ms = tally.elapsed.as_secs_f64() * 1e3;
        let (mode, writes_per_packet) = match options.cut {
            Cut::Buffers => ("buffers", options.buffers),
            Cut::HeaderPlusPayload => ("header_plus_payload", 2),
            Cut::Sendfile => ("sendfile", 2),
            Cut::SingleRequest => ("single_request", 1),
            Cut::Writev => ("writev", options.buffers.div_ceil(MOST_VECTORS)),
        };
        let used = [
            (options.no_delay, "TCP_NODELAY"),
            (options.cork, "TCP_CORK"),
            (options.more, "MSG_MORE"),
        ];
        Self {
            mode,
            options: used.iter().filter(|(used, _)| *used).map(|(_, name)| *name).collect(),
            server: options.server.clone(),
            peer,
            packets: options.packets,
            buffers: options.buffers,
            bytes_per_packet,
            bytes,
            writes_per_packet,
            writes: tally.writes,
            elapsed_ms,
            bytes_per_ms: bytes as f64 / elapsed_ms,
            rate: options.rate,
            latency_us: tally.latency.as_ref().map(Distribution::new),
            late_us: tally.lateness.as_ref().map(Distribution::new),
        }
    }

    /// Formats `168.861069`.
    pub(super) fn rate_line(&self) -> String {
        format!("{:.6}", self.bytes_per_ms)
    }

    /// Formats `10000 packets (15 buffers) sent in 1776.608398 ms: 168.861069 bytes/ms using TCP_NODELAY`.
    pub(super) fn verbose_line(&self) -> String {
        let plural = if self.writes_per_packet == 1 { "" } else { "s" };
        format!(
            "{} packets ({} buffer{plural}) sent in {}",
            self.packets,
            self.writes_per_packet,
            self.time_and_rate()
        )
    }

    /// Formats `10000 packets of 30 bytes sent in 1649.771240 ms: 181.843399 bytes/ms using TCP_NODELAY`.
    pub(super) fn positional_line(&self) -> String {
        format!(
            "{} packets of {} bytes sent in {}",
            self.packets,
            self.bytes_per_packet,
            self.time_and_rate()
        )
    }

    fn time_and_rate(&self) -> String {
        // With both options set the cork decides, as in the published programs.
        let using = self.options.last().map_or_else(String::new, |name| format!(" using {name}"));
        format!("{:.6} ms: {:.6} bytes/ms{using}", self.elapsed_ms, self.bytes_per_ms)
    }
}

impl Distribution {
    fn new(nanoseconds: &Histogram<u64>) -> Self {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        Self {
            p50: microseconds(nanoseconds.value_at_quantile(0.50)),
            p99: microseconds(nanoseconds.value_at_quantile(0.99)),
            max: microseconds(nanoseconds.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::args::Style;
    use super::*;

    fn summary(cut: Cut, no_delay: bool, cork: bool) -> Summary {
        let options = Options {
            server: "localhost".to_owned(),
            port: 5001,
            packets: 10_000,
            buffers: 15,
            cut,
            no_delay,
            cork,
            more: false,
            rate: None,
            await_reply: true,
            style: Style::Verbose,
        };
        let tally = Tally {
            elapsed: Duration::from_nanos(1_776_608_398),
            writes: 150_000,
            latency: None,
            lateness: None,
        };
        Summary::new(&options, None, &tally)
    }

    // The published figure is ...069: it was computed in single precision.
    #[test]
    fn lines_are_the_published_ones() {
        let with_no_delay = summary(Cut::Buffers, true, false);
        assert_eq!(with_no_delay.rate_line(), "168.861073");
        assert_eq!(
            with_no_delay.verbose_line(),
            "10000 packets (15 buffers) sent in 1776.608398 ms: 168.861073 bytes/ms using \
             TCP_NODELAY"
        );
        assert_eq!(
            summary(Cut::Buffers, false, true).positional_line(),
            "10000 packets of 30 bytes sent in 1776.608398 ms: 168.861073 bytes/ms using TCP_CORK"
        );
        assert_eq!(
            summary(Cut::SingleRequest, false, false).verbose_line(),
            "10000 packets (1 buffer) sent in 1776.608398 ms: 168.861073 bytes/ms"
        );
        assert_eq!(
            summary(Cut::HeaderPlusPayload, true, true).verbose_line(),
            "10000 packets (2 buffers) sent in 1776.608398 ms: 168.861073 bytes/ms using TCP_CORK"
        );
    }
}
