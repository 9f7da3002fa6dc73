//! The small-write experiment with a record of every call, for the picture.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::clock::Monotonic;

/// What to send.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Port of the server
    port: u16,
    /// Logical packets
    #[arg(long)]
    packets: usize,
    /// Writes of two bytes in each
    #[arg(long)]
    writes: usize,
    /// Set TCP_NODELAY
    #[arg(long)]
    no_delay: bool,
}

/// One logical packet as the client saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Packet {
    /// The time just before each write.
    pub(crate) writes: Vec<Monotonic>,
    /// When the reply had been read.
    pub(crate) reply: Monotonic,
}

/// All packets of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The packets, in order.
    pub(crate) packets: Vec<Packet>,
}

/// Runs the exchange and prints the [`Record`] as JSON.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, args.port)).context("connecting")?;
    if args.no_delay {
        socket.set_nodelay(true)?;
    }
    let mut packets = Vec::with_capacity(args.packets);
    for _ in 0..args.packets {
        let mut writes = Vec::with_capacity(args.writes);
        for _ in 0..args.writes {
            writes.push(Monotonic::now()?);
            socket.write_all(b"ab")?;
        }
        let mut reply = [0; 2];
        socket.read_exact(&mut reply)?;
        packets.push(Packet { writes, reply: Monotonic::now()? });
    }
    println!("{}", serde_json::to_string(&Record { packets })?);
    Ok(())
}
