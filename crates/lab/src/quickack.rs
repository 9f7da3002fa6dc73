//! When a receiver acknowledges: the runs of `uncork ack` that tell one kernel from another, made
//! between two namespaces, or on the loopback device where there is nothing to make them with.

mod loopback;

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

pub use loopback::prepare as prepare_loopback;

use crate::place::{FAR, joined};

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A server and a client, by their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// What it is, in words.
    pub name: &'static str,
    /// Options of `uncork ack server`.
    pub server: &'static str,
    /// Options of `uncork ack client`.
    pub client: &'static str,
    /// What was published of it.
    pub published: Option<&'static str>,
}

/// What is run, one after the other.
pub const RUNS: [Run; 4] = [
    Run {
        name: "the reference run",
        server: "-b 1k -D -s 100000",
        client: "-b 1k",
        published: Some("late from 17 on (6.1.27), none late (6.1.112)"),
    },
    Run {
        name: "a reader that stays behind",
        server: "-b 1k -D -s 100000",
        client: "-b 1k -L 4k",
        published: None,
    },
    Run {
        name: "a reader behind that also sends",
        server: "-b 1k -D -s 100000",
        client: "-b 1k -L 4k --talk 9",
        published: None,
    },
    Run {
        name: "replies of several segments",
        server: "-b 5000 -D -s 100000",
        client: "-b 5000",
        published: None,
    },
];

/// What became of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// Milliseconds from the departure of each segment to its ACK; none if that is not known.
    pub ack_delays_ms: Vec<Option<f64>>,
    /// The verdict on them, as `uncork ack` has it.
    pub verdict: Value,
    /// The same as a sentence.
    pub sentence: String,
}

impl Told {
    /// How many ACKs were late.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.verdict["late"].as_u64().unwrap_or_default()
    }
}

/// Ended when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How programs are started at either end, and where the far one is.
struct Ends<'a> {
    near: &'a (dyn Fn(&str) -> Command + Sync),
    far: &'a (dyn Fn(&str) -> Command + Sync),
    address: Ipv4Addr,
}

/// Makes one run for `time` in two namespaces of its own; `uncork` is the program that has `ack`.
///
/// # Errors
/// Without the privilege, if a program fails, or soon after `stop` was set.
pub fn measure(uncork: &Path, run: Run, time: Duration, stop: &AtomicBool) -> Result<Told> {
    let (near, far) = joined()?;
    let ends =
        Ends { near: &|name| near.command(name), far: &|name| far.command(name), address: FAR };
    between(&ends, uncork, run, time, stop)
}

/// Makes all runs at once for `time`, on the loopback device of the namespace that the caller is in
/// ([`prepare_loopback`]). Each sleeps nearly all of the time, so that they do not disturb each other.
///
/// # Errors
/// If a program fails, or soon after `stop` was set.
pub fn measure_on_loopback(uncork: &Path, time: Duration, stop: &AtomicBool) -> Result<Vec<Told>> {
    let ends =
        Ends { near: &|name| Command::new(name), far: &|name| Command::new(name), address: LOCAL };
    thread::scope(|scope| {
        let ends = &ends;
        let one = |run| scope.spawn(move || between(ends, uncork, run, time, stop));
        let threads: Vec<_> = RUNS.into_iter().map(one).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|told| told.unwrap_or_else(|_| bail!("a run panicked"))).collect()
    })
}

fn between(
    ends: &Ends<'_>,
    uncork: &Path,
    run: Run,
    time: Duration,
    stop: &AtomicBool,
) -> Result<Told> {
    let uncork = uncork.to_str().context("the path of uncork is not UTF-8")?;
    let ack = |mut command: Command, role: &str, words: &str| -> Command {
        command.args(["ack", role]).args(words.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    };
    let mut server = ack((ends.far)(uncork), "server", run.server);
    server.args(["-p", "0", "--json", "--connections", "1"]);
    let mut server = Running(server.spawn().context("cannot run uncork ack server")?);
    let stdout = server.0.stdout.take().context("uncork ack server has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let listening = event(&mut lines)?;
    let port = listening["port"].as_u64().context("uncork ack server does not say its port")?;
    let mut client = ack((ends.near)(uncork), "client", run.client);
    client.args(["-t", &time.as_secs_f64().to_string(), "-p", &port.to_string()]);
    client.arg(ends.address.to_string());
    let _client = Running(client.spawn().context("cannot run uncork ack client")?);
    let mut ack_delays_ms = Vec::new();
    loop {
        let event = event(&mut lines)?;
        if stop.load(Relaxed) {
            bail!("interrupted");
        }
        match event["event"].as_str() {
            Some("segment") => {
                ack_delays_ms.push(event["ack_delay_us"].as_f64().map(|us| us / 1e3));
            }
            Some("verdict") => {
                let sentence = event["sentence"].as_str().unwrap_or_default().to_owned();
                let verdict = event["verdict"].clone();
                return Ok(Told { run, ack_delays_ms, verdict, sentence });
            }
            _ => {}
        }
    }
}

fn event(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Result<Value> {
    let line = lines.next().context("uncork ack server has ended early")??;
    serde_json::from_str(&line).with_context(|| format!("uncork ack server said: {line}"))
}
