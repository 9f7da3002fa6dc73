//! The arrival of bytes that were written just before a busy loop: the timer has to push them.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::Bed;
use crate::clock::Monotonic;
use crate::launch::{Job, Options, Way};
use crate::outcome::{Bar, Row, Unit};
use crate::place::{Pinned, Place};
use crate::process::Running;
use crate::roles::Message;

const BENCH: &str = "timer";
const SAMPLES: u64 = 60;
/// How many connections are made at most, as a multiple of the samples that must count.
const TRIES: u64 = 10;
/// How late a timer may be.
const GRACE_MS: f64 = 1.0;
/// A receiver that did not poll for this long before it found something was not running, and does
/// not know when that came.
const BLIND: Duration = Duration::from_micros(200);
/// A writer that waited for its core this long shared it with another program, and what it wrote
/// says nothing about the library.
const CROWDED: Duration = Duration::from_micros(300);

/// A hold mode, its bound, and its name.
const SETTINGS: [(&str, Options, u64); 4] = [
    ("--hold kernel --bound 1ms", &[("hold", "kernel"), ("bound", "1ms")], 1),
    ("--hold user --bound 1ms", &[("hold", "user"), ("bound", "1ms")], 1),
    ("--hold kernel --bound 5ms", &[("hold", "kernel"), ("bound", "5ms")], 5),
    ("--hold user --bound 5ms", &[("hold", "user"), ("bound", "5ms")], 5),
];

/// Measures every bound, and the machine itself without the library.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let samples = bed.amount(SAMPLES);
    bed.progress.begin(SETTINGS.len() + 1);
    let mut rows = Vec::new();
    for (name, options, bound) in SETTINGS {
        bed.progress.on(name);
        let found = arrivals(bed, &Way::Preload(options), (bound, samples))?;
        rows.push(row(name, &found).bar_for_most(Bar::AtMost(bound as f64 + GRACE_MS)));
        bed.progress.done();
    }
    bed.progress.on("plain");
    let found = arrivals(bed, &Way::Plain, (1, samples))?;
    rows.push(row("plain, the machine's own part", &found));
    bed.progress.done();
    Ok(rows)
}

fn row(name: &str, found: &Found) -> Row {
    let what = (BENCH, format!("arrival of bytes written before a busy loop: {name}"));
    let row = Row::absolute(what, Place::TwoCores, Unit::Milliseconds, &found.arrivals);
    match found.left_out {
        0 => row,
        n => {
            row.note(format!("{n} more samples left out: other programs kept an end from running"))
        }
    }
}

/// Samples of one setting.
#[derive(Debug, Default)]
struct Found {
    /// Milliseconds from just before the first write to its arrival.
    arrivals: Vec<f64>,
    /// Samples during which another program kept the sender from running, or the receiver when the
    /// bytes came.
    left_out: u64,
}

/// Takes `samples` samples, each on a connection of its own.
fn arrivals(bed: &Bed<'_>, way: &Way, (bound, samples): (u64, u64)) -> Result<Found> {
    let cores = Place::TwoCores.cores()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening")?;
    let port = listener.local_addr()?.port();
    // Long enough that the close at its end cannot be taken for the timer.
    let busy = bound * 2 + 10;
    let tries = samples * TRIES;
    let job = Job::new(&bed.tools.bench)
        .args(["role", "busy", &port.to_string()])
        .args(["--samples", &tries.to_string(), "--busy", &busy.to_string()])
        .way(way)
        .core(cores.client);
    let (_writer, mut lines) = Running::start_piped(job.command(bed.tools)?, "the busy writer")?;
    let _pinned = Pinned::to(cores.server)?;
    let mut found = Found::default();
    for _ in 0..tries {
        if found.arrivals.len() as u64 == samples {
            return Ok(found);
        }
        let (socket, _) = listener.accept().context("waiting for the busy writer")?;
        let latest = latest(&socket)?;
        let waited = Duration::from_micros(lines.find(|line| line.parse().ok())?);
        match latest {
            Some(late) if waited <= CROWDED => found.arrivals.push(late.as_secs_f64() * 1e3),
            _ => found.left_out += 1,
        }
    }
    ensure!(
        found.arrivals.len() as u64 == samples,
        "other programs kept sender or receiver from running in {} of {tries} samples: the \
         machine is too busy for this benchmark",
        found.left_out
    );
    Ok(found)
}

/// Returns the longest delay on this connection; `None` if the receiver was not running.
fn latest(mut socket: &TcpStream) -> Result<Option<Duration>> {
    socket.set_nonblocking(true)?;
    let mut latest = Duration::ZERO;
    let mut messages = 0;
    let mut knows = true;
    let mut looked = Monotonic::now()?;
    let mut came = Vec::new();
    let mut buffer = [0; 256];
    loop {
        let read = socket.read(&mut buffer);
        let now = Monotonic::now()?;
        let unseen = now.since(looked);
        looked = now;
        match read {
            Ok(0) => break,
            Ok(bytes) => {
                knows &= unseen <= BLIND;
                came.extend_from_slice(&buffer[..bytes]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error).context("reading from the busy writer"),
        }
        while let Some(message) = Message::decode(&came) {
            came.drain(..Message::LEN);
            latest = latest.max(now.since(message.at));
            messages += 1;
        }
    }
    ensure!(messages > 0, "the busy writer closed a connection without a word");
    Ok(knows.then_some(latest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_left_out_are_told() {
        let note = |left_out| row("x", &Found { arrivals: vec![1.0], left_out }).note;
        assert!(note(3).unwrap().starts_with("3 more samples left out"));
        assert_eq!(note(0), None);
    }

    #[test]
    fn only_what_comes_is_late() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let message = Message { sample: 0, at: Monotonic::now().unwrap() };
        std::io::Write::write_all(&mut client, &message.encode()).unwrap();
        drop(client);
        let (socket, _) = listener.accept().unwrap();
        // Late by the time that this test took, or unknown if it was kept from running just then.
        if let Some(late) = latest(&socket).unwrap() {
            assert!(late > Duration::ZERO && late < Duration::from_secs(5), "{late:?}");
        }
        let silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(silent);
        let (socket, _) = listener.accept().unwrap();
        assert!(latest(&socket).is_err());
    }
}
