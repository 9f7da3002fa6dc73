//! The published programs: their arguments, and what they tell.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use crate::process::{Lines, Running, run_to_end};

/// Options of `uncork run`, by name and value: `("hold", "user")`.
pub type Options = &'static [(&'static str, &'static str)];

/// `run --hold user -- `.
#[must_use]
pub fn run_args(options: Options) -> Vec<String> {
    let mut args = vec!["run".to_owned()];
    for (name, value) in options {
        args.extend([format!("--{name}"), (*value).to_owned()]);
    }
    args.push("--".to_owned());
    args
}

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `tcp_nodelay_client`.
    Client,
    /// `tcp_nodelay_server`.
    Server,
}

/// Where the programs are, and how they are started.
pub trait Stage {
    /// A command that runs a program with these arguments on one core: plain, or under
    /// `uncork run` with `help`. It leads a process group of its own.
    ///
    /// # Errors
    /// If the program is not there.
    fn command(
        &self,
        program: Program,
        help: Option<Options>,
        core: usize,
        args: &[String],
    ) -> Result<Command>;

    /// Set when it is to end early.
    fn stop(&self) -> &AtomicBool;
}

/// Arguments of the client, for a server of this host.
#[must_use]
pub fn client_args(pattern: &Pattern, packets: u64, port: u16) -> Vec<String> {
    let mut args = pattern.flags();
    args.extend(["--json".to_owned(), format!("--nr_logical_packets={packets}")]);
    args.extend([format!("--port={port}"), "127.0.0.1".to_owned()]);
    args
}

/// Arguments of a server for logical packets of so many buffers.
#[must_use]
pub fn server_args(buffers: u32) -> Vec<String> {
    // More packets than anybody sends: a connection ends when the client closes it.
    const NO_LIMIT: &str = "1000000000";
    let buffers = format!("--buffers={buffers}");
    ["--json", "--bind=127.0.0.1", &buffers, "0", NO_LIMIT].map(str::to_owned).to_vec()
}

/// What the client tells.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Told {
    packets: u64,
    elapsed_ms: f64,
    bytes_per_ms: f64,
    writes: u64,
}

/// What the server tells, one JSON object a line.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Listening { port: u16 },
    Connection { packets: u64, reads: u64, segments: Option<u32> },
}

/// One run of client and server, or the medians of several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Microseconds of a logical packet and its reply.
    pub us_per_packet: f64,
    /// Throughput as it was published: bytes of logical packets in a millisecond.
    pub bytes_per_ms: f64,
    /// Writes that the program made for a logical packet.
    pub writes_per_packet: f64,
    /// Segments with data that came for a logical packet, by the server's kernel.
    pub segments_per_packet: f64,
    /// Reads that a logical packet took on the server.
    pub reads_per_packet: f64,
}

/// A running server for one size of packet.
#[derive(Debug)]
pub struct Server {
    _running: Running,
    lines: Lines,
    port: u16,
}

impl Server {
    /// Starts one; `command` has [`server_args`].
    ///
    /// # Errors
    /// If it does not begin to listen.
    pub fn start(command: Command) -> Result<Self> {
        let (running, mut lines) = Running::start_piped(command, "tcp_nodelay_server")?;
        let port = lines.find(|line| match serde_json::from_str(line) {
            Ok(Event::Listening { port }) => Some(port),
            _ => None,
        })?;
        Ok(Self { _running: running, lines, port })
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a client against it; `command` has [`client_args`] with as many packets.
    ///
    /// # Errors
    /// If one of the two fails, takes longer than `limit`, or soon after `stop` was set.
    pub fn run(
        &mut self,
        command: Command,
        packets: u64,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<Figures> {
        let text = run_to_end(command, "tcp_nodelay_client", limit, stop)?;
        let told: Told = serde_json::from_str(text.trim())
            .with_context(|| format!("understanding tcp_nodelay_client, which says {text:?}"))?;
        ensure!(told.packets == packets, "tcp_nodelay_client sent {} of {packets}", told.packets);
        let (arrived, reads, segments) =
            self.lines.find(|line| match serde_json::from_str(line) {
                Ok(Event::Connection { packets, reads, segments }) => {
                    Some((packets, reads, segments))
                }
                _ => None,
            })?;
        ensure!(arrived == packets, "the server received {arrived} of {packets} packets");
        let segments = segments.context("the kernel does not tell how many segments came")?;
        let per_packet = |count: f64| count / packets as f64;
        Ok(Figures {
            us_per_packet: per_packet(told.elapsed_ms * 1e3),
            bytes_per_ms: told.bytes_per_ms,
            writes_per_packet: per_packet(told.writes as f64),
            segments_per_packet: per_packet(f64::from(segments)),
            reads_per_packet: per_packet(reads as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_uncork_run_are_its_flags() {
        let options: Options = &[("hold", "user"), ("bound", "5ms")];
        assert_eq!(run_args(options), ["run", "--hold", "user", "--bound", "5ms", "--"]);
    }
}
