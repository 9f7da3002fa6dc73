//! The published programs: their arguments, and their output.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;
use crate::process::{Lines, Running, run_to_end};

/// Options of `uncork run`, by name and value: `("hold", "user")`.
pub type Options = &'static [(&'static str, &'static str)];

/// Returns the arguments of `uncork run`: `run --hold user -- `.
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

/// The place of the programs, and the way in which they are started.
pub trait Stage {
    /// Returns a command that runs a program with these arguments on one core: plain, or under
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

    /// The flag that is set to end the run early.
    fn stop(&self) -> &AtomicBool;
}

/// Returns the client's arguments, for a server on this host.
#[must_use]
pub fn client_args(pattern: &Pattern, packets: u64, port: u16) -> Vec<String> {
    let mut args = pattern.flags();
    args.extend(["--json".to_owned(), format!("--nr_logical_packets={packets}")]);
    args.extend([format!("--port={port}"), "127.0.0.1".to_owned()]);
    args
}

/// Returns the server's arguments, for logical packets of `buffers` buffers.
#[must_use]
pub fn server_args(buffers: u32) -> Vec<String> {
    // More packets than any client sends: a connection ends when the client closes it.
    const NO_LIMIT: &str = "1000000000";
    let buffers = format!("--buffers={buffers}");
    ["--json", "--bind=127.0.0.1", &buffers, "0", NO_LIMIT].map(str::to_owned).to_vec()
}

/// The client's output.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Told {
    packets: u64,
    elapsed_ms: f64,
    bytes_per_ms: f64,
    writes: u64,
}

/// The server's output, one JSON object per line.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Listening { port: u16 },
    Connection { packets: u64, reads: u64, segments: Option<u32> },
}

/// One run of client and server, or the medians of several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Microseconds per logical packet and its reply.
    pub us_per_packet: f64,
    /// Throughput as it was published: bytes of logical packets per millisecond.
    pub bytes_per_ms: f64,
    /// Writes by the program per logical packet.
    pub writes_per_packet: f64,
    /// Segments with data per logical packet, as counted by the server's kernel.
    pub segments_per_packet: f64,
    /// Reads by the server per logical packet.
    pub reads_per_packet: f64,
}

/// A running server for one packet size.
#[derive(Debug)]
pub struct Server {
    _running: Running,
    lines: Lines,
    port: u16,
}

impl Server {
    /// Starts a server; `command` has [`server_args`].
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

    /// Returns the port on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a client against it; `command` has [`client_args`] for as many packets.
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
