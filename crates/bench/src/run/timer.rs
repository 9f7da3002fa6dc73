//! When bytes arrive that were written just before a busy loop: the timer has to push them.

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
/// How late a timer may be.
const GRACE_MS: f64 = 1.0;
/// A receiver that did not look for this long before it found something was not running, and does
/// not know when it came.
const BLIND: Duration = Duration::from_micros(200);
/// A writer that waited for its core this long shared it with some other program, and what it
/// wrote says nothing about the library.
const CROWDED: Duration = Duration::from_micros(300);

/// A way to hold, the bound that belongs to it, and how it is called.
const SETTINGS: [(&str, Options, u64); 4] = [
    ("--hold kernel --bound 1ms", &[("hold", "kernel"), ("bound", "1ms")], 1),
    ("--hold user --bound 1ms", &[("hold", "user"), ("bound", "1ms")], 1),
    ("--hold kernel --bound 5ms", &[("hold", "kernel"), ("bound", "5ms")], 5),
    ("--hold user --bound 5ms", &[("hold", "user"), ("bound", "5ms")], 5),
];

/// Every bound, and the machine itself without the library.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let samples = bed.amount(SAMPLES);
    bed.progress.begin(SETTINGS.len() + 1);
    let mut rows = Vec::new();
    for (name, options, bound) in SETTINGS {
        bed.progress.on(name);
        let arrivals = arrivals(bed, &Way::Preload(options), (bound, samples))?;
        let bar = Bar::AtMost(bound as f64 + GRACE_MS);
        rows.push(row(name, &arrivals, samples)?.bar_for_most(bar));
        bed.progress.done();
    }
    bed.progress.on("plain");
    let arrivals = arrivals(bed, &Way::Plain, (1, samples))?;
    rows.push(row("plain, the machine's own part", &arrivals, samples)?);
    bed.progress.done();
    Ok(rows)
}

fn row(name: &str, arrivals: &[f64], samples: u64) -> Result<Row> {
    let left_out = samples - arrivals.len() as u64;
    ensure!(
        left_out * 2 <= samples,
        "sender or receiver was kept from running by other programs in {left_out} of {samples} \
         samples: the machine is too busy for this benchmark"
    );
    let what = (BENCH, format!("arrival of bytes written before a busy loop: {name}"));
    let row = Row::absolute(what, Place::TwoCores, Unit::Milliseconds, arrivals);
    let note = format!("{left_out} samples left out: other programs kept an end from running");
    Ok(if left_out > 0 { row.note(note) } else { row })
}

/// Milliseconds from just before the first write to its arrival, for each connection in which
/// no other program kept the sender from running, nor the receiver when the bytes came.
fn arrivals(bed: &Bed<'_>, way: &Way, (bound, samples): (u64, u64)) -> Result<Vec<f64>> {
    let cores = Place::TwoCores.cores()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening")?;
    let port = listener.local_addr()?.port();
    // Long enough that the close at its end cannot be taken for the timer.
    let busy = bound * 2 + 10;
    let job = Job::new(&bed.tools.bench)
        .args(["role", "busy", &port.to_string()])
        .args(["--samples", &samples.to_string(), "--busy", &busy.to_string()])
        .way(way)
        .core(cores.client);
    let (_writer, mut lines) = Running::start_piped(job.command(bed.tools)?, "the busy writer")?;
    let _pinned = Pinned::to(cores.server)?;
    let mut arrivals = Vec::new();
    for _ in 0..samples {
        let (socket, _) = listener.accept().context("waiting for the busy writer")?;
        let latest = latest(&socket)?;
        let waited = Duration::from_micros(lines.find(|line| line.parse().ok())?);
        let latest = latest.filter(|_| waited <= CROWDED);
        arrivals.extend(latest.map(|late| late.as_secs_f64() * 1e3));
    }
    Ok(arrivals)
}

/// The longest that anything on this connection took; `None` if the receiver was not running.
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
    fn samples_left_out_are_told_and_too_many_are_an_error() {
        let note = row("x", &[1.0, 1.2, 1.1], 4).unwrap().note.unwrap();
        assert!(note.starts_with("1 samples left out"), "{note}");
        assert!(row("x", &[1.0], 4).is_err());
        assert!(row("x", &[1.0, 1.0], 2).unwrap().note.is_none());
    }
}
