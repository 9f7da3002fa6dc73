//! When a receiver acknowledges: the runs of `uncork ack` that tell one kernel from another, between
//! two namespaces, or on the loopback device where those cannot be created.

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
use crate::stats::median;

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A server and a client, by their options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Description of the run.
    pub name: &'static str,
    /// Options of `uncork ack server`.
    pub server: &'static str,
    /// Options of `uncork ack client`.
    pub client: &'static str,
    /// What was published about it.
    pub published: Option<&'static str>,
    /// Segments of each reply, where the client asks for replies.
    pub reply_segments: Option<usize>,
}

impl Run {
    const fn unasked(name: &'static str, client: &'static str) -> Self {
        let server = "-b 1k -D -s 100000";
        Self { name, server, client, published: None, reply_segments: None }
    }

    const fn asked(
        name: &'static str,
        server: &'static str,
        client: &'static str,
        segments: usize,
    ) -> Self {
        Self { name, server, client, published: None, reply_segments: Some(segments) }
    }
}

/// All runs. 1448 octets are a segment of Ethernet with timestamps: each is a write of its own, so that
/// the ACK of each is timed.
pub const RUNS: [Run; 7] = [
    Run {
        published: Some("late from 17 (6.1.27), none (6.1.112)"),
        ..Run::unasked("the reference run", "-b 1k")
    },
    Run::unasked("a reader that stays behind", "-b 1k -L 4k"),
    Run::unasked("a reader behind that also sends", "-b 1k -L 4k --talk 9"),
    Run::asked(
        "replies of 2 segments, each 100 ms",
        "-b 1448 -D --reply 2",
        "-b 2896 --ask -s 100000",
        2,
    ),
    Run::asked(
        "replies of 3 segments, each 100 ms",
        "-b 1448 -D --reply 3",
        "-b 4344 --ask -s 100000",
        3,
    ),
    Run::asked(
        "replies of 5 segments, each 100 ms",
        "-b 1448 -D --reply 5",
        "-b 7240 --ask -s 100000",
        5,
    ),
    Run::asked(
        "replies of 3 segments, each 10 ms",
        "-b 1448 -D --reply 3",
        "-b 4344 --ask -s 10000",
        3,
    ),
];

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// Milliseconds from the departure of each segment to its ACK; `None` if that is not known, and for
    /// a segment that left together with the next.
    pub ack_delays_ms: Vec<Option<f64>>,
    /// The verdict on them, from `uncork ack`.
    pub verdict: Value,
    /// The verdict as a sentence.
    pub sentence: String,
}

impl Told {
    /// Returns how many ACKs were late.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.verdict["late"].as_u64().unwrap_or_default()
    }

    /// Returns the median delay of the ACKs by the place of the segment in its reply; `None` where no
    /// delay is known. Empty for a run without replies.
    #[must_use]
    pub fn by_place(&self) -> Vec<Option<f64>> {
        let segments = self.run.reply_segments.unwrap_or(0);
        let of = |place| {
            let all = self.ack_delays_ms.iter().skip(place).step_by(segments);
            let known: Vec<f64> = all.flatten().copied().collect();
            (!known.is_empty()).then(|| median(&known))
        };
        (0..segments).map(of).collect()
    }
}

/// A process that is ended when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How programs are started at either end, and the address of the far one.
struct Ends<'a> {
    near: &'a (dyn Fn(&str) -> Command + Sync),
    far: &'a (dyn Fn(&str) -> Command + Sync),
    address: Ipv4Addr,
}

/// Makes all of these runs at once, each in namespaces of its own: they send hardly anything. `done` is
/// called when one has ended.
///
/// # Errors
/// As [`measure`].
pub fn measure_all(
    uncork: &Path,
    runs: &[Run],
    time: Duration,
    stop: &AtomicBool,
    done: impl Fn() + Sync,
) -> Result<Vec<Told>> {
    thread::scope(|scope| {
        let one = |run: &Run| {
            let (run, done) = (*run, &done);
            scope.spawn(move || measure(uncork, run, time, stop).inspect(|_| done()))
        };
        let threads: Vec<_> = runs.iter().map(one).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Told>>| {
            thread.join().unwrap_or_else(|_| bail!("a run has panicked"))
        };
        // All are waited for, whatever the first one returns.
        let told: Vec<Result<Told>> = threads.into_iter().map(join).collect();
        told.into_iter().collect()
    })
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

/// Makes these runs at once for `time`, on the loopback device of the caller's namespace
/// ([`prepare_loopback`]). Each sleeps nearly all of the time, so that they do not disturb each other.
///
/// # Errors
/// If a program fails, or soon after `stop` was set.
pub fn measure_on_loopback(
    uncork: &Path,
    runs: &[Run],
    time: Duration,
    stop: &AtomicBool,
) -> Result<Vec<Told>> {
    let ends =
        Ends { near: &|name| Command::new(name), far: &|name| Command::new(name), address: LOCAL };
    thread::scope(|scope| {
        let ends = &ends;
        let one = |run: &Run| {
            let run = *run;
            scope.spawn(move || between(ends, uncork, run, time, stop))
        };
        let threads: Vec<_> = runs.iter().map(one).collect();
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
    let mut ack_delays_ms: Vec<Option<f64>> = Vec::new();
    loop {
        let event = event(&mut lines)?;
        if stop.load(Relaxed) {
            bail!("interrupted");
        }
        match event["event"].as_str() {
            Some("segment") => {
                let number = event["last_write"].as_u64().context("a segment without a number")?;
                // Of the segments that left together, the last one was timed.
                ack_delays_ms.resize(usize::try_from(number)?.saturating_sub(1), None);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_told_by_the_place_in_the_reply() {
        let told = |run, ack_delays_ms| Told {
            run,
            ack_delays_ms,
            verdict: Value::Null,
            sentence: String::new(),
        };
        let delays =
            vec![None, Some(0.1), Some(40.0), None, Some(0.3), Some(42.0), None, Some(0.2)];
        let replies = RUNS.iter().find(|run| run.reply_segments == Some(3)).unwrap();
        assert_eq!(told(*replies, delays.clone()).by_place(), [None, Some(0.2), Some(41.0)]);
        assert_eq!(told(RUNS[0], delays).by_place(), []);
    }

    #[test]
    fn a_client_reads_the_whole_reply_before_it_asks_again() {
        for run in RUNS {
            let number = |line: &str, option: &str| -> Option<usize> {
                let mut words = line.split(' ').skip_while(|word| *word != option);
                words.nth(1)?.parse().ok()
            };
            assert_eq!(run.reply_segments, number(run.server, "--reply"), "{}", run.name);
            if let Some(segments) = run.reply_segments {
                let reply = number(run.server, "-b").unwrap() * segments;
                assert_eq!(number(run.client, "-b"), Some(reply), "{}", run.name);
            }
        }
    }
}
