//! Connections that a client on the stack opens, one after the other, against the same on kernel sockets; by one
//! process, or each by a process of its own, as a script does.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use uncork_lab::place::{FAR, joined};

use super::{LIMIT, PRIVILEGE, ours};
use crate::contest::{Case, Samples, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Compare, Row, Unit};
use crate::place::Place;
use crate::process::{Running, run_to_end};
use crate::roles::{Dials, Lives};
use crate::run::Bed;
use crate::run::tuning::may;

const BENCH: &str = "inline-dial";
const COUNT: u64 = 2_000;
/// Processes in a run.
const PROCESSES: u64 = 50;
const PORT: u16 = 7010;

/// Measures with a core for each end; the server uses kernel sockets.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let count = bed.amount(COUNT).to_string();
    let samples = compare(bed, "dial", &count, |text| {
        let Dials { p50_us, p99_us, rate } = serde_json::from_str(text)?;
        Ok(vec![p50_us, p99_us, rate])
    })?;
    let row = |figure: usize, what: &str, unit| {
        let what = format!("connections opened over veth, {what}: a client on the stack");
        let sides = (samples.get(0, figure), Compare::Ratio, samples.get(1, figure));
        Row::compare((BENCH, what), Place::TwoCores, unit, sides)
    };
    Ok(vec![
        row(0, "connect(2), p50", Unit::Microseconds),
        row(1, "connect(2), p99", Unit::Microseconds),
        row(2, "a second", Unit::PerSecond),
    ])
}

/// Measures where each connection is a process.
pub(crate) fn run_processes(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let count = bed.amount(PROCESSES).to_string();
    let samples = compare(bed, "call", &count, |text| {
        let Lives { first_ms, p50_ms } = serde_json::from_str(text)?;
        Ok(vec![first_ms, p50_ms])
    })?;
    let row = |figure: usize, which: &str| {
        let what = format!("a process that opens one connection over veth, {which}: on the stack");
        let sides = (samples.get(0, figure), Compare::Ratio, samples.get(1, figure));
        Row::compare(("inline-processes", what), Place::TwoCores, Unit::Milliseconds, sides)
    };
    Ok(vec![row(0, "the first"), row(1, "p50 of those behind it")])
}

/// Alternates a role's measurements on the stack and on kernel sockets.
fn compare(
    bed: &Bed<'_>,
    role: &str,
    count: &str,
    figures: impl Fn(&str) -> serde_json::Result<Vec<f64>>,
) -> Result<Samples> {
    may(PRIVILEGE, &["ip"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let at = SocketAddr::from((FAR, PORT));
    let job = Job::new(&bed.tools.bench).args(["role", "hang-up", "--at", &at.to_string()]);
    let command = within(&far, &job.way(&Way::Plain).core(cores.server).command(bed.tools)?)?;
    let (mut server, mut lines) = Running::start_piped(command, "who is dialled")?;
    lines.find(|line| line.strip_prefix("port ")?.parse::<u16>().ok())?;
    server.listens_in(&far, PORT)?;
    let dial = |way: &Way| -> Result<Vec<f64>> {
        let job = Job::new(&bed.tools.bench)
            .args(["role", role, &at.to_string(), "--count", count])
            .way(way)
            .core(cores.client);
        let text = run_to_end(within(&near, &job.command(bed.tools)?)?, "the dialling", LIMIT)?;
        figures(&text).context("understanding what was dialled")
    };
    let dial = &dial;
    let mut cases = [("on the stack", ours(false)), ("on kernel sockets", Way::Plain)]
        .map(|(name, way)| Case::new(name, move || dial(&way)));
    interleave(&mut cases, bed.rounds(15), bed.progress)
}
