//! Requests at a fixed rate, and not when the last one was answered, on many connections to a redis.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::stats::quantile;

/// What to ask.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the redis is
    to: SocketAddr,
    /// Connections
    #[arg(long)]
    connections: usize,
    /// Requests a second, on all together
    #[arg(long)]
    rate: u32,
    /// How long
    #[arg(long)]
    seconds: f64,
}

/// The measurements.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Paced {
    /// Median of the time to the answer, in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile, in microseconds.
    pub(crate) p99_us: f64,
    /// Total number of answers.
    pub(crate) answers: f64,
}

const REQUEST: &[u8] = b"PING\r\n";
const ANSWER: &[u8] = b"+PONG\r\n";
/// How many connections are read between two readings of the clock.
const LOOKS: usize = 8;

/// A connection, and when its unanswered requests were sent.
struct Conversation {
    socket: TcpStream,
    asked: Option<Instant>,
}

impl Conversation {
    fn new(to: SocketAddr) -> Result<Self> {
        let socket = TcpStream::connect(to).context("connecting")?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, asked: None })
    }

    fn ask(&mut self) -> Result<()> {
        if self.asked.is_none() {
            self.asked = Some(Instant::now());
            self.socket.write_all(REQUEST).context("asking")?;
        }
        Ok(())
    }

    /// Returns how long the answer took, if it is there.
    fn hear(&mut self) -> Result<Option<Duration>> {
        let Some(asked) = self.asked else { return Ok(None) };
        let mut answer = [0; ANSWER.len()];
        match self.socket.read(&mut answer) {
            Ok(length) => {
                ensure!(&answer[..length] == ANSWER, "no answer of redis");
                self.asked = None;
                Ok(Some(asked.elapsed()))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("hearing"),
        }
    }
}

/// Sends the requests and prints [`Paced`] as JSON.
pub(crate) fn pace(args: &Args) -> Result<()> {
    let conversations = (0..args.connections).map(|_| Conversation::new(args.to));
    let mut conversations = conversations.collect::<Result<Vec<_>>>()?;
    let step = Duration::from_secs(1) / args.rate.max(1);
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(args.seconds);
    let (mut next, mut samples) = (begun, Vec::new());
    let (mut asks, mut hears) = ((0..args.connections).cycle(), (0..args.connections).cycle());
    loop {
        let now = Instant::now();
        if now >= until {
            break;
        }
        if now >= next {
            next += step;
            asks.next().map_or(Ok(()), |at| conversations[at].ask())?;
        }
        for at in hears.by_ref().take(LOOKS) {
            samples.extend(conversations[at].hear()?.map(|took| took.as_secs_f64() * 1e6));
        }
    }
    samples.sort_by(f64::total_cmp);
    let [p50_us, p99_us] = [0.5, 0.99].map(|q| quantile(&samples, q));
    let told = Paced { p50_us, p99_us, answers: samples.len() as f64 };
    println!("{}", serde_json::to_string(&told)?);
    Ok(())
}
