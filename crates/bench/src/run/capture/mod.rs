//! The speed and memory of `uncork doctor` reading a capture, beside the tools in common use today.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::Bed;
use crate::contest::{Case, interleave};
use crate::launch::Job;
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;
use crate::process::run_to_end;
use crate::roles::Usage;
use crate::toolbox::program;
use make::Pace;

mod make;

const BENCH: &str = "capture";
/// Segments in the capture that all programs read.
const SEGMENTS: u64 = 2_000_000;
/// Connections in it.
const CONNECTIONS: u32 = 2_000;
/// Connections in the capture for the memory test.
const MANY_CONNECTIONS: u32 = 100_000;
/// Connections in the captures that differ only in their segments: few, so that each has had all
/// its findings after a tenth of them.
const FEW_CONNECTIONS: u32 = 200;
/// tshark's two passes over two million segments take about a minute.
const LIMIT: Duration = Duration::from_secs(1800);

/// Reads captures that are made here, each program separately on one core.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let dir = bed.scratch.dir(BENCH)?;
    let mut rows = memory(bed, &dir)?;
    rows.extend(speed(bed, &dir)?);
    Ok(rows)
}

/// Measures peak memory: with many connections, and with ten times the segments in the same connections.
fn memory(bed: &Bed<'_>, dir: &Path) -> Result<Vec<Row>> {
    let segments = bed.amount(SEGMENTS);
    let megabytes = |connections: u32, segments: u64, pace: Pace| -> Result<f64> {
        let file = make::capture(dir, connections, segments, pace)?;
        let usage = doctor(bed, &file)?;
        std::fs::remove_file(&file)?;
        Ok(usage.peak_bytes as f64 / 1e6)
    };
    let many_segments = segments.max(20 * u64::from(MANY_CONNECTIONS));
    let brisk = megabytes(MANY_CONNECTIONS, many_segments, Pace::Brisk)?;
    let open = megabytes(MANY_CONNECTIONS, many_segments, Pace::Leisurely)?;
    let few = megabytes(FEW_CONNECTIONS, segments / 10, Pace::Brisk)?;
    let ten_times = megabytes(FEW_CONNECTIONS, segments, Pace::Brisk)?;
    let row = |what: &str, megabytes: f64| {
        Row::absolute((BENCH, what), Place::OneCore, Unit::Megabytes, &[megabytes])
    };
    let more = "200 connections: ten times the segments, memory";
    Ok(vec![
        row("100,000 connections, memory", brisk).bar(Bar::AtMost(200.0)),
        row("100,000 connections, all open at once, memory", open).bar(Bar::AtMost(200.0)),
        // The allocator behaves differently in any two runs.
        Row::compare(
            (BENCH, more),
            Place::OneCore,
            Unit::Megabytes,
            (&[ten_times], Compare::Ratio, &[few]),
        )
        .bar(Bar::AtMost(1.2)),
    ])
}

/// Measures the time for the same file.
fn speed(bed: &Bed<'_>, dir: &Path) -> Result<Vec<Row>> {
    let tshark = program("tshark")?;
    let tcptrace = program("tcptrace")?;
    let segments = bed.amount(SEGMENTS);
    let file = make::capture(dir, CONNECTIONS, segments, Pace::Brisk)?;
    let mut cases = [
        Case::new("uncork doctor", || Ok(vec![doctor(bed, &file)?.seconds * 1e3])),
        Case::new("tshark", || {
            let arguments = ["-2", "-q", "-z", "expert", "-r"];
            Ok(vec![other(bed, &tshark, &arguments, &file)?.seconds * 1e3])
        }),
        Case::new("tcptrace", || Ok(vec![other(bed, &tcptrace, &["-n"], &file)?.seconds * 1e3])),
    ];
    let samples = interleave(&mut cases, bed.rounds(3), bed.progress)?;
    let row = |index: usize, name: &str, times: f64| {
        let what = format!("{segments} segments: uncork doctor against {name}");
        let sides = (samples.get(0, 0), Compare::Faster, samples.get(index, 0));
        Row::compare((BENCH, what), Place::OneCore, Unit::Milliseconds, sides)
            .bar(Bar::AtLeast(times))
    };
    let seconds = samples.get(0, 0).iter().map(|milliseconds| milliseconds / 1e3);
    let rates: Vec<f64> = seconds.map(|seconds| segments as f64 / seconds).collect();
    Ok(vec![
        row(1, "tshark -2 -q -z expert", 20.0),
        row(2, "tcptrace -n", 2.0),
        Row::absolute((BENCH, "segments a second"), Place::OneCore, Unit::PerSecond, &rates),
    ])
}

/// Runs `uncork doctor` on a capture; that it finds something is no failure.
fn doctor(bed: &Bed<'_>, file: &Path) -> Result<Usage> {
    measured(bed, &["--found", "1"], &bed.tools.uncork()?, &["doctor", "--pcap"], file)
}

fn other(bed: &Bed<'_>, program: &Path, arguments: &[&str], file: &Path) -> Result<Usage> {
    measured(bed, &[], program, arguments, file)
}

/// Runs a program through a helper that has no other child, so that the helper's resource usage of
/// children is the program's.
fn measured(
    bed: &Bed<'_>,
    helper: &[&str],
    program: &Path,
    arguments: &[&str],
    file: &Path,
) -> Result<Usage> {
    let core = Place::OneCore.cores()?.client;
    let job = Job::new(&bed.tools.bench).args(["role", "usage"]).args(helper).arg("--");
    let job = job.arg(program).args(arguments).arg(file).core(core);
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = run_to_end(job.command(bed.tools)?, &name, LIMIT)?;
    serde_json::from_str(&text).with_context(|| format!("understanding the helper: {text:?}"))
}

/// Returns the file name of a capture of that many connections and segments.
fn path_of(dir: &Path, connections: u32, segments: u64) -> PathBuf {
    dir.join(format!("{connections}-{segments}.pcap"))
}
