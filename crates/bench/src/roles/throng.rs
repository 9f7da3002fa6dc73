//! Many connections at once, each with a thread at either end that waits in read(2).

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};

use super::ping::{echo, listening};

/// Whom to ask.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the echo is
    to: SocketAddr,
    /// Threads, each with a connection
    #[arg(long)]
    threads: usize,
    /// How long
    #[arg(long)]
    seconds: f64,
}

/// The measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Throng {
    /// Round trips per second, of all together.
    pub(crate) rate: f64,
    /// The longest of all round trips, in microseconds.
    pub(crate) longest_us: f64,
}

/// Bytes each way.
const SIZE: usize = 64;

/// Echoes, with a thread for each connection, until it is ended.
pub(crate) fn answer(at: SocketAddr) -> Result<()> {
    let listener = listening(at)?;
    loop {
        let (socket, _) = listener.accept().context("accepting")?;
        // A client that is gone is no reason to stop.
        thread::spawn(move || echo(&socket));
    }
}

/// Sends the requests and prints [`Throng`] as JSON.
pub(crate) fn ask(args: &Args) -> Result<()> {
    let connect = |_| -> Result<TcpStream> {
        let socket = TcpStream::connect(args.to).context("connecting")?;
        socket.set_nodelay(true)?;
        Ok(socket)
    };
    let sockets = (0..args.threads).map(connect).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(args.seconds);
    let threads = sockets.into_iter().map(|socket| thread::spawn(move || talk(socket, until)));
    let threads: Vec<_> = threads.collect();
    let (mut trips, mut longest) = (0, Duration::ZERO);
    for thread in threads {
        let told = thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        trips += told.0;
        longest = longest.max(told.1);
    }
    let rate = f64::from(trips) / begun.elapsed().as_secs_f64();
    let longest_us = longest.as_secs_f64() * 1e6;
    println!("{}", serde_json::to_string(&Throng { rate, longest_us })?);
    Ok(())
}

/// Returns the number of round trips, and the longest.
fn talk(mut socket: TcpStream, until: Instant) -> io::Result<(u32, Duration)> {
    let (mut trips, mut longest, mut bytes) = (0, Duration::ZERO, [b'u'; SIZE]);
    let mut begun = Instant::now();
    while begun < until {
        socket.write_all(&bytes)?;
        socket.read_exact(&mut bytes)?;
        let now = Instant::now();
        longest = longest.max(now - begun);
        (trips, begun) = (trips + 1, now);
    }
    Ok((trips, longest))
}
