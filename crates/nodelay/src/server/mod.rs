//! `tcp_nodelay_server`: receives logical packets, answers them, and counts its reads.

mod args;
mod host;
mod listen;
mod serve;
mod summary;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;

use clap::CommandFactory;

use crate::error::{Error, plain};
use crate::output::{complain, say, say_json};
use serve::{Ending, Receiver};
use summary::{Listening, Summary};

const PROGRAM: &str = "tcp_nodelay_server";

/// Returns clap's definition of the command line, for manual pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    args::Args::command()
}

/// Runs the program: parses the command line and serves one connection after another.
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

/// The options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    port: u16,
    /// Address or name to listen on; `None` is every address of both families.
    bind: Option<String>,
    /// Logical packets of a connection.
    packets: u64,
    buffers: u32,
    replies: Replies,
    /// Connections to serve; `None` goes on for ever.
    connections: Option<u32>,
    json: bool,
}

/// The ways in which replies are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    /// With no option set.
    Plain,
    /// With TCP_NODELAY.
    NoDelay,
    /// Each between setting and clearing TCP_CORK.
    Corked,
    /// Not at all; the times between packets are measured instead.
    None,
}

fn run(options: &Options) -> Result<(), Error> {
    let listener = listen::listen(options.bind.as_deref(), options.port)?;
    if options.port == 0 {
        let port = listener.local_addr().map_err(Error::Accept)?.port();
        if options.json {
            say_json(&Listening::new(port))?;
        } else {
            say(format_args!("server: listening on port {port}"))?;
        }
    }
    let mut receiver = Receiver::new(options);
    let mut served = 0;
    while options.connections.is_none_or(|most| served < most) {
        if !options.json {
            say("server: waiting for connection")?;
        }
        let (socket, peer) = accept(&listener)?;
        serve(options, &mut receiver, &socket, peer)?;
        served += 1;
    }
    Ok(())
}

fn accept(listener: &TcpListener) -> Result<(TcpStream, SocketAddr), Error> {
    loop {
        match listener.accept() {
            Ok(accepted) => return Ok(accepted),
            // The client disconnected before its turn came.
            Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionAborted => {}
            Err(cause) => return Err(Error::Accept(cause)),
        }
    }
}

/// Serves one connection, from greeting to result. Only a failure to print ends the server.
fn serve(
    options: &Options,
    receiver: &mut Receiver<'_>,
    socket: &TcpStream,
    peer: SocketAddr,
) -> Result<(), Error> {
    let address = peer.ip().to_canonical();
    let host = host::name(address);
    if !options.json {
        say(format_args!("server: accept from {host}"))?;
    }
    let tally = receiver.receive(socket);
    match &tally.ending {
        Ending::Complete | Ending::Closed => {}
        Ending::Torn { bytes } => complain(
            PROGRAM,
            &format_args!(
                "the client closed {bytes} bytes into packet {} of {}: give both ends the same \
                 --buffers",
                tally.packets + 1,
                options.packets
            ),
        ),
        Ending::Failed(cause) => complain(
            PROGRAM,
            &format_args!(
                "the connection failed after {} of {} packets: {}",
                tally.packets,
                options.packets,
                plain(cause)
            ),
        ),
    }
    if options.json {
        let peer = SocketAddr::new(address, peer.port());
        return say_json(&Summary::new(options, host, peer, &tally));
    }
    say(format_args!("server: received {} buffers", tally.reads))?;
    match &tally.intervals {
        Some(intervals) => say(intervals),
        None => Ok(()),
    }
}
