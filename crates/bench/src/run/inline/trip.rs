//! Round trips of 64 bytes between two hosts: to an echo on the stack, against kernels that spin and that do not.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use uncork_lab::place::{NEAR, joined};
use uncork_netns::Namespace;

use super::{LIMIT, PRIVILEGE, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::process::{Running, run_to_end};
use crate::roles::RoundTrips;
use crate::run::Bed;
use crate::run::tuning::may;

const BENCH: &str = "inline-trip";
const COUNT: u64 = 10_000;
const SPIN: Way = Way::Preload(&[("spin", "auto")]);
const PORTS: [u16; 3] = [7000, 7001, 7002];

/// Measures with a core for each end. The echo on the stack spins as much as the kernel's that it is compared with.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let mut running = Vec::new();
    let mut cases = Vec::new();
    let ways = [
        ("an echo on the stack, both ends spin", ours(true), SPIN),
        ("kernel sockets, both ends spin", SPIN, SPIN),
        ("kernel sockets, nobody spins", Way::Plain, Way::Plain),
    ];
    for ((name, server, client), port) in ways.into_iter().zip(PORTS) {
        let at = SocketAddr::from((NEAR, port));
        running.push(echo(bed, &near, at, (&server, cores.server))?);
        let far = &far;
        cases.push(Case::new(name, move || ask(bed, far, at, (&client, cores))));
    }
    let samples = interleave(&mut cases, bed.rounds(15), bed.progress)?;
    let row = |figure: usize, against: usize, name: &str| {
        let which = if figure == 0 { "p50" } else { "p99" };
        let what =
            format!("64-byte round trip over veth, {which}: an echo on the stack; against {name}");
        let sides = (samples.get(0, figure), Compare::Ratio, samples.get(against, figure));
        Row::compare((BENCH, what), Place::TwoCores, Unit::Microseconds, sides)
    };
    Ok(vec![
        row(0, 1, "kernel sockets, spinning as much").bar(Bar::AtMost(0.75)),
        row(0, 2, "kernel sockets").bar(Bar::AtMost(0.08)),
        row(1, 1, "kernel sockets, spinning as much"),
    ])
}

fn echo(
    bed: &Bed<'_>,
    on: &Namespace,
    at: SocketAddr,
    (way, core): (&Way, usize),
) -> Result<Running> {
    let job = Job::new(&bed.tools.bench).args(["role", "pong", "--at", &at.to_string()]);
    let command = within(on, &job.way(way).core(core).command(bed.tools)?)?;
    let (mut running, mut lines) = Running::start_piped(command, "the echo")?;
    lines.find(|line| line.strip_prefix("port ")?.parse::<u16>().ok())?;
    running.listens_in(on, at.port())?;
    Ok(running)
}

fn ask(
    bed: &Bed<'_>,
    from: &Namespace,
    at: SocketAddr,
    (way, cores): (&Way, Cores),
) -> Result<Vec<f64>> {
    let count = bed.amount(COUNT).to_string();
    let job = Job::new(&bed.tools.bench)
        .args(["role", "ping", &at.port().to_string(), "--host", &at.ip().to_string()])
        .args(["--count", &count])
        .way(way)
        .core(cores.client);
    let text = run_to_end(within(from, &job.command(bed.tools)?)?, "the round trips", LIMIT)?;
    let trips: RoundTrips = serde_json::from_str(&text).context("understanding the round trips")?;
    Ok(vec![trips.p50_us, trips.p99_us])
}
