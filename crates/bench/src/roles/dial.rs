//! Connections one after the other: the server sends a byte and closes, and the client times connect(2), or its
//! whole life where each connection is a process of its own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::ping::listening;
use crate::stats::quantile;

/// What to open.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whom to connect to
    to: SocketAddr,
    /// Connections that are timed
    #[arg(long, default_value_t = 2_000)]
    count: usize,
    /// Connections before them
    #[arg(long, default_value_t = 200)]
    warm_up: usize,
}

/// The measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Dials {
    /// Median of a connect(2), in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile, in microseconds.
    pub(crate) p99_us: f64,
    /// Connections opened, read from and closed in a second.
    pub(crate) rate: f64,
}

/// Sends a byte to each client and closes, until it is ended. It closes first, so that TIME-WAIT is on its side.
pub(crate) fn hang_up(at: SocketAddr) -> Result<()> {
    let listener = listening(at)?;
    loop {
        let (mut socket, _) = listener.accept().context("accepting")?;
        // A client that is gone is no reason to stop.
        let _ = socket.write_all(b"u");
    }
}

/// Opens connections and prints [`Dials`] as JSON.
pub(crate) fn dial(args: &Args) -> Result<()> {
    let mut samples = Vec::with_capacity(args.count);
    let mut begun = Instant::now();
    for round in 0..args.warm_up + args.count {
        let start = Instant::now();
        if round == args.warm_up {
            begun = start;
        }
        let mut socket = TcpStream::connect(args.to).context("connecting")?;
        if round >= args.warm_up {
            samples.push(start.elapsed().as_secs_f64() * 1e6);
        }
        socket.read_to_end(&mut Vec::new()).context("reading")?;
    }
    let rate = args.count as f64 / begun.elapsed().as_secs_f64();
    samples.sort_by(f64::total_cmp);
    let [p50_us, p99_us] = [0.5, 0.99].map(|q| quantile(&samples, q));
    println!("{}", serde_json::to_string(&Dials { p50_us, p99_us, rate })?);
    Ok(())
}

/// Who dials, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Callers {
    /// Whom to connect to
    to: SocketAddr,
    /// Processes that are timed
    #[arg(long, default_value_t = 50)]
    count: usize,
}

/// The measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Lives {
    /// Time from the start of the first process to its end, in milliseconds.
    pub(crate) first_ms: f64,
    /// Median of the other processes.
    pub(crate) p50_ms: f64,
}

/// Starts a process for each connection, one after the other, as a script does, and prints [`Lives`] as JSON.
pub(crate) fn call(args: &Callers) -> Result<()> {
    let program = std::env::current_exe().context("finding this program")?;
    let mut lives = Vec::with_capacity(args.count);
    for _ in 0..=args.count {
        let mut caller = Command::new(&program);
        let to = args.to.to_string();
        caller.args(["role", "dial", &to, "--count", "1", "--warm-up", "0"]).stdout(Stdio::null());
        let start = Instant::now();
        let ended = caller.status().context("starting who dials")?;
        lives.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(ended.success(), "who dials: {ended}");
    }
    let (first_ms, others) = lives.split_first_mut().context("nobody has dialled")?;
    others.sort_by(f64::total_cmp);
    let lives = Lives { first_ms: *first_ms, p50_ms: quantile(others, 0.5) };
    println!("{}", serde_json::to_string(&lives)?);
    Ok(())
}
