//! A load for memcached: one set for nine gets, over a number of connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// What to ask of whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Port of memcached
    port: u16,
    /// Connections, each with one request under way
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// How long
    #[arg(long)]
    milliseconds: u64,
}

/// The measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    /// Requests that were answered, per second.
    pub(crate) per_second: f64,
}

const VALUE: &str = "0123456789abcdef0123456789abcdef";
/// Every tenth request is a set.
const SET_EVERY: u64 = 10;

/// A connection and what it has received.
struct Connection {
    socket: TcpStream,
    key: String,
    came: Vec<u8>,
}

/// Runs the load and prints [`Load`] as JSON.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut connections = (0..args.connections)
        .map(|number| Connection::open(args.port, number))
        .collect::<Result<Vec<_>>>()?;
    for connection in &mut connections {
        connection.set()?;
        connection.answer(b"STORED\r\n")?;
    }
    let limit = Duration::from_millis(args.milliseconds);
    let start = Instant::now();
    let mut requests = 0u64;
    let mut turn = 0u64;
    while start.elapsed() < limit {
        turn += 1;
        let set = turn.is_multiple_of(SET_EVERY);
        for connection in &mut connections {
            if set { connection.set()? } else { connection.get()? }
        }
        for connection in &mut connections {
            connection.answer(if set { b"STORED\r\n" } else { b"END\r\n" })?;
            requests += 1;
        }
    }
    let per_second = requests as f64 / start.elapsed().as_secs_f64();
    println!("{}", serde_json::to_string(&Load { per_second })?);
    Ok(())
}

impl Connection {
    fn open(port: u16, number: usize) -> Result<Self> {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting")?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, key: format!("key{number}"), came: Vec::new() })
    }

    fn set(&mut self) -> Result<()> {
        let request = format!("set {} 0 0 {}\r\n{VALUE}\r\n", self.key, VALUE.len());
        Ok(self.socket.write_all(request.as_bytes())?)
    }

    fn get(&mut self) -> Result<()> {
        let request = format!("get {}\r\n", self.key);
        Ok(self.socket.write_all(request.as_bytes())?)
    }

    /// Reads up to the `end` of one answer, which must contain the value if it was a get.
    fn answer(&mut self, end: &[u8]) -> Result<()> {
        self.came.clear();
        let mut buffer = [0; 4096];
        while !self.came.ends_with(end) {
            let bytes = self.socket.read(&mut buffer)?;
            if bytes == 0 {
                bail!("memcached closed the connection");
            }
            self.came.extend_from_slice(&buffer[..bytes]);
            if self.came.starts_with(b"ERROR") || self.came.starts_with(b"SERVER_ERROR") {
                bail!("memcached says {}", String::from_utf8_lossy(&self.came));
            }
        }
        let found = end != b"END\r\n" || self.came.starts_with(b"VALUE");
        if !found {
            bail!("memcached lost {}", self.key);
        }
        Ok(())
    }
}
