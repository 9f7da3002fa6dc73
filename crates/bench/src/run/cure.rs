//! Programs that stall, cured while they run by `uncork tune --nodelay --pid`, and stalling again
//! when that is undone.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use uncork_lab::stalling::{C, GO, PYTHON};
use uncork_netns::Namespace;

use super::Bed;
use super::tuning::{Tuning, may};
use crate::contest::{Case, interleave};
use crate::outcome::{Bar, Row, Unit};
use crate::place::Place;
use crate::process::{Running, run_to_end};
use crate::stats::median;
use crate::toolbox::program;

const BENCH: &str = "cure";
const BENCH_GO: &str = "cure-go";
/// Nagle's algorithm meets delayed ACKs: 40 ms and more.
const STALLED_MS: f64 = 30.0;
const CURED_MS: f64 = 0.5;
/// The request under way belongs to the time before, and the next may, too.
const SKIPPED: usize = 2;
const REQUESTS: usize = 15;
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures Python, and C linked statically.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may("uncork tune", &["ip", "python3", "cc"])?;
    let python = |place: &Namespace| {
        let mut command = place.command("/usr/bin/python3");
        command.args(["-c", PYTHON]);
        command
    };
    let mut rows = cured(bed, (BENCH, "Python"), &python)?;
    let c = static_c(bed)?;
    rows.extend(cured(bed, (BENCH, "static C"), &|place| starting(place, &c))?);
    Ok(rows)
}

/// Measures Go.
pub(crate) fn run_go(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may("uncork tune", &["ip", "go"])?;
    let go = go(bed)?;
    cured(bed, (BENCH_GO, "Go"), &|place| starting(place, &go))
}

fn starting(place: &Namespace, file: &Path) -> Command {
    place.command(&file.to_string_lossy())
}

/// Measures the request p50 of a process before it is cured, then, and after that is undone; repeatedly.
fn cured(
    bed: &Bed<'_>,
    (bench, name): (&'static str, &str),
    command: &dyn Fn(&Namespace) -> Command,
) -> Result<Vec<Row>> {
    let place = Namespace::new("cure")?;
    let tuning = Tuning::new(bed)?;
    let stalling = Stalling::start(command(&place), name)?;
    let once = || {
        let before = stalling.p50_ms()?;
        tuning.tune(&format!("--nodelay --pid {}", stalling.running.pid()))?;
        let cured = stalling.p50_ms()?;
        tuning.undo()?;
        Ok(vec![before, cured, stalling.p50_ms()?])
    };
    let mut cases = [Case::new(name, once)];
    let samples = interleave(&mut cases, bed.rounds(5), bed.progress)?;
    let row = |figure, what: &str, bar| {
        let what = (bench, format!("{name}: request p50 {what}"));
        let measured = samples.get(0, figure);
        Row::absolute(what, Place::TwoCores, Unit::Milliseconds, measured).bar(bar)
    };
    Ok(vec![
        row(0, "as it runs", Bar::AtLeast(STALLED_MS)),
        row(1, "under uncork tune --nodelay --pid", Bar::AtMost(CURED_MS))
            .beside(samples.get(0, 0)),
        row(2, "after undo", Bar::AtLeast(STALLED_MS)),
    ])
}

/// A running program that prints its requests' times.
struct Stalling {
    running: Running,
    times_us: Receiver<f64>,
}

impl Stalling {
    fn start(mut command: Command, name: &str) -> Result<Self> {
        command.process_group(0).stdin(Stdio::null());
        let (running, mut lines) = Running::start_piped(command, name)?;
        // The port comes first.
        lines.find(|line| line.parse::<u16>().ok())?;
        let (sender, times_us) = channel();
        // Until the program ends, or the receiver is dropped.
        thread::spawn(move || {
            while let Ok(time) = lines.find(|line| line.parse().ok()) {
                if sender.send(time).is_err() {
                    break;
                }
            }
        });
        Ok(Self { running, times_us })
    }

    /// Returns the median of the requests that are still to come.
    fn p50_ms(&self) -> Result<f64> {
        while self.times_us.try_recv().is_ok() {}
        let next = |_| self.times_us.recv_timeout(PATIENCE).context("it makes no requests");
        let times: Vec<f64> = (0..REQUESTS + SKIPPED).map(next).collect::<Result<_>>()?;
        Ok(median(&times[SKIPPED..]) / 1e3)
    }
}

fn static_c(bed: &Bed<'_>) -> Result<PathBuf> {
    let dir = bed.scratch.dir("stalls-c")?;
    let (source, file) = (dir.join("stalls.c"), dir.join("stalls"));
    fs::write(&source, C).context("writing a program")?;
    let mut command = Command::new(program("cc")?);
    command.args(["-static", "-O1", "-o"]).arg(&file).arg(&source);
    build(command, "cc")?;
    Ok(file)
}

fn go(bed: &Bed<'_>) -> Result<PathBuf> {
    let dir = bed.scratch.dir("stalls-go")?;
    let (source, file) = (dir.join("stalls.go"), dir.join("stalls"));
    fs::write(&source, GO).context("writing a program")?;
    let mut command = Command::new(program("go")?);
    command.env("GOCACHE", dir.join("cache")).env("CGO_ENABLED", "0").env("GOFLAGS", "");
    command.args(["build", "-o"]).arg(&file).arg(&source);
    build(command, "go build")?;
    Ok(file)
}

fn build(mut command: Command, name: &str) -> Result<()> {
    /// Go compiles its own library first.
    const LIMIT: Duration = Duration::from_secs(300);
    command.process_group(0).stdin(Stdio::null());
    run_to_end(command, name, LIMIT).map(|_| ())
}
