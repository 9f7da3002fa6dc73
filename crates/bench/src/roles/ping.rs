//! Round trips: the echo, and the client that times it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::stats::quantile;

/// What to send.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Port of the echo
    port: u16,
    /// Where it is
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    host: Ipv4Addr,
    /// Round trips that are timed
    #[arg(long, default_value_t = 20_000)]
    count: usize,
    /// Round trips before them
    #[arg(long, default_value_t = 2_000)]
    warm_up: usize,
    /// Bytes each way
    #[arg(long, default_value_t = 64)]
    size: usize,
}

/// The measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct RoundTrips {
    /// Median, in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile, in microseconds.
    pub(crate) p99_us: f64,
    /// Shortest, in microseconds.
    pub(crate) min_us: f64,
}

/// Listens, and prints the port.
pub(super) fn listening(at: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(at).context("listening")?;
    println!("port {}", listener.local_addr()?.port());
    io::stdout().flush()?;
    Ok(listener)
}

/// Echoes until it is ended.
pub(crate) fn pong(at: SocketAddr) -> Result<()> {
    let listener = listening(at)?;
    loop {
        let (socket, _) = listener.accept().context("accepting")?;
        // A client that is gone is no reason to stop.
        let _ = echo(&socket);
    }
}

/// Echoes until the peer closes.
pub(super) fn echo(mut socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut buffer = [0; 64 * 1024];
    loop {
        let bytes = socket.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        socket.write_all(&buffer[..bytes])?;
    }
}

/// Times round trips and prints [`RoundTrips`] as JSON.
pub(crate) fn ping(args: &Args) -> Result<()> {
    let mut socket = TcpStream::connect((args.host, args.port)).context("connecting")?;
    socket.set_nodelay(true)?;
    let sent = vec![b'u'; args.size];
    let mut came = vec![0; args.size];
    let mut samples = Vec::with_capacity(args.count);
    for round in 0..args.warm_up + args.count {
        let start = Instant::now();
        socket.write_all(&sent)?;
        socket.read_exact(&mut came)?;
        if round >= args.warm_up {
            samples.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    samples.sort_by(f64::total_cmp);
    let [p50_us, p99_us, min_us] = [0.5, 0.99, 0.0].map(|q| quantile(&samples, q));
    println!("{}", serde_json::to_string(&RoundTrips { p50_us, p99_us, min_us })?);
    Ok(())
}
