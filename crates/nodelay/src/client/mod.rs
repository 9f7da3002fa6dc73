//! `tcp_nodelay_client`: sends logical packets made of small writes, and times them.

mod args;
mod exchange;
mod pace;
mod parts;
mod summary;

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;

use crate::error::Error;
use crate::output::{say, say_json};
use args::{Cut, Style};
use exchange::Exchange;
use summary::Summary;

const PROGRAM: &str = "tcp_nodelay_client";

/// How long a reply may take before a message is printed: without one the client would seem to
/// hang. A paced client waits that long for each reply and then gives up, because a server in its
/// rate mode never sends any. Others wait that long for the first reply, say what may be wrong, and
/// go on waiting, because the server may be busy with another client.
const REPLY_LIMIT: Duration = Duration::from_secs(3);

/// Returns clap's definition of the command line, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    args::Args::command()
}

/// Runs the program: parses the command line, does the exchange and prints the result.
///
/// Exits with 2 by itself for an invalid command line.
#[must_use]
pub fn main() -> ExitCode {
    let options = args::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(PROGRAM),
    }
}

/// The options, from either form of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    server: String,
    port: u16,
    packets: u64,
    buffers: u32,
    cut: Cut,
    no_delay: bool,
    cork: bool,
    /// Whether all writes of a packet but the last carry MSG_MORE.
    more: bool,
    /// Packets per second; `None` sends each as soon as the one before was answered.
    rate: Option<u32>,
    await_reply: bool,
    style: Style,
}

fn run(options: &Options) -> Result<(), Error> {
    let socket = connect(&options.server, options.port)?;
    if options.no_delay {
        socket.set_nodelay(true).map_err(|cause| Error::Option { option: "TCP_NODELAY", cause })?;
    }
    if options.await_reply {
        socket
            .set_read_timeout(Some(REPLY_LIMIT))
            .map_err(|cause| Error::Option { option: "SO_RCVTIMEO", cause })?;
    }
    let tally = Exchange::new(&socket, options)?.run()?;
    let summary = Summary::new(options, socket.peer_addr().ok(), &tally);
    match options.style {
        Style::Rate => say(summary.rate_line()),
        Style::Verbose => say(summary.verbose_line()),
        Style::Positional => say(summary.positional_line()),
        Style::Json => say_json(&summary),
    }
}

/// Connects to the first address of the host that accepts the connection.
fn connect(host: &str, port: u16) -> Result<TcpStream, Error> {
    let addresses: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(|cause| Error::Resolve { host: host.to_owned(), cause })?
        .collect();
    if addresses.is_empty() {
        let cause = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        return Err(Error::Resolve { host: host.to_owned(), cause });
    }
    TcpStream::connect(addresses.as_slice()).map_err(|cause| Error::Connect {
        host: host.to_owned(),
        port,
        cause,
    })
}
