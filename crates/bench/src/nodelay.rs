//! The published small-write experiment, run with the published programs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::launch::{Job, Way};
use crate::place::Cores;
use crate::process::{Lines, Running, run_to_end};
use crate::toolbox::Toolbox;

/// The option that the client sets on its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// None: Nagle's algorithm meets the delayed ACK.
    Nothing,
    /// TCP_NODELAY.
    Nodelay,
    /// TCP_CORK around each logical packet.
    Cork,
    /// MSG_MORE on all writes but the last, and TCP_NODELAY.
    More,
}

/// How the client cuts a logical packet into writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A write for each buffer of two bytes.
    Buffers,
    /// Two writes: three buffers, then the rest.
    HeaderPayload,
    /// One write.
    Single,
}

/// What the client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Its socket option.
    pub(crate) asks: Asks,
    /// Its writes.
    pub(crate) cut: Cut,
    /// Buffers of two bytes in a logical packet.
    pub(crate) buffers: u32,
}

/// What the client told.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Told {
    /// Logical packets.
    pub(crate) packets: u64,
    /// Time for all of them.
    pub(crate) elapsed_ms: f64,
    /// Writes that the program made.
    pub(crate) writes: u64,
}

impl Told {
    /// Microseconds of a logical packet.
    pub(crate) fn us_per_packet(&self) -> f64 {
        self.elapsed_ms * 1e3 / self.packets as f64
    }
}

impl Pattern {
    /// The flags of `tcp_nodelay_client`, in their long form.
    pub(crate) fn flags(&self) -> Vec<String> {
        let asks: &[&str] = match self.asks {
            Asks::Nothing => &[],
            Asks::Nodelay => &["--no_delay"],
            Asks::Cork => &["--cork"],
            Asks::More => &["--no_delay", "--more"],
        };
        let cut = match self.cut {
            Cut::Buffers => None,
            Cut::HeaderPayload => Some("--header_plus_payload"),
            Cut::Single => Some("--single_request"),
        };
        let flags = asks.iter().copied().chain(cut).map(str::to_owned);
        flags.chain([format!("--buffers={}", self.buffers)]).collect()
    }

    /// Whether Nagle's algorithm stalls it when nobody helps.
    pub(crate) fn stalls(&self) -> bool {
        self.asks == Asks::Nothing && self.cut != Cut::Single
    }

    /// Bytes of a logical packet.
    pub(crate) fn bytes(&self) -> usize {
        self.buffers as usize * 2
    }
}

/// Runs the client once against a server on `port`.
pub(crate) fn client(
    tools: &Toolbox,
    (pattern, way): (&Pattern, &Way),
    (packets, port): (u64, u16),
    core: Option<usize>,
) -> Result<Told> {
    let mut job = Job::new(tools.nodelay_client()?)
        .args(pattern.flags())
        .args(["--json".to_owned(), format!("--nr_logical_packets={packets}")])
        .args([format!("--port={port}"), "127.0.0.1".to_owned()])
        .way(way);
    if let Some(core) = core {
        job = job.core(core);
    }
    // A stall costs 40 ms, on some systems 200 ms, a packet; all else ends in a second or two, and
    // if it stalls although it is helped, that is to be said soon.
    let stalls = if pattern.stalls() && *way == Way::Plain { packets } else { 0 };
    let limit = Duration::from_secs(60) + Duration::from_millis(stalls * 250);
    let text = run_to_end(job.command(tools)?, "tcp_nodelay_client", limit)?;
    let told: Told = serde_json::from_str(text.trim())
        .with_context(|| format!("understanding tcp_nodelay_client, which says {text:?}"))?;
    ensure!(told.packets == packets, "tcp_nodelay_client sent {} of {packets}", told.packets);
    Ok(told)
}

/// A running `tcp_nodelay_server` for one size of packet.
pub(crate) struct Server {
    _running: Running,
    lines: Lines,
    port: u16,
    cores: Cores,
}

/// What the server says, one JSON object a line.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Listening { port: u16 },
    Connection { packets: u64, reads: u64 },
}

/// One run of client and server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Microseconds of a logical packet.
    pub(crate) us_per_packet: f64,
    /// Buffers (reads) that a logical packet took on the server.
    pub(crate) buffers_per_packet: f64,
    /// Writes that the program made for a logical packet.
    pub(crate) writes_per_packet: f64,
}

impl Server {
    /// Starts one for logical packets of `buffers` buffers.
    pub(crate) fn start(tools: &Toolbox, buffers: u32, cores: Cores) -> Result<Self> {
        // More packets than anybody sends: a connection ends when the client closes it.
        const NO_LIMIT: &str = "1000000000";
        let job = Job::new(tools.nodelay_server()?)
            .args(["--json", "--bind=127.0.0.1", &format!("--buffers={buffers}"), "0", NO_LIMIT])
            .core(cores.server);
        let name = "tcp_nodelay_server";
        let (running, mut lines) = Running::start_piped(job.command(tools)?, name)?;
        let port = lines.find(|line| match serde_json::from_str(line) {
            Ok(Event::Listening { port }) => Some(port),
            _ => None,
        })?;
        Ok(Self { _running: running, lines, port, cores })
    }

    /// Runs a client against it.
    pub(crate) fn run(
        &mut self,
        tools: &Toolbox,
        (pattern, way): (&Pattern, &Way),
        packets: u64,
    ) -> Result<Run> {
        let core = Some(self.cores.client);
        let told = client(tools, (pattern, way), (packets, self.port), core)?;
        let (arrived, reads) = self.lines.find(|line| match serde_json::from_str(line) {
            Ok(Event::Connection { packets, reads }) => Some((packets, reads)),
            _ => None,
        })?;
        ensure!(arrived == packets, "the server received {arrived} of {packets} packets");
        Ok(Run {
            us_per_packet: told.us_per_packet(),
            buffers_per_packet: reads as f64 / packets as f64,
            writes_per_packet: told.writes as f64 / packets as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_published_client() {
        let pattern = Pattern { asks: Asks::Nodelay, cut: Cut::HeaderPayload, buffers: 100 };
        assert_eq!(pattern.flags(), ["--no_delay", "--header_plus_payload", "--buffers=100"]);
        assert!(!pattern.stalls());
        assert_eq!(pattern.bytes(), 200);
    }

    #[test]
    fn only_several_writes_without_an_option_stall() {
        let stalls = |asks, cut| Pattern { asks, cut, buffers: 15 }.stalls();
        assert!(stalls(Asks::Nothing, Cut::Buffers));
        assert!(stalls(Asks::Nothing, Cut::HeaderPayload));
        assert!(!stalls(Asks::Nothing, Cut::Single));
        assert!(!stalls(Asks::Cork, Cut::Buffers));
    }
}
