//! Round trips of 64 bytes, with sleeping and spinning ends.

use std::time::Duration;

use anyhow::{Context, Result};

use super::Bed;
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::Place;
use crate::process::{Running, run_to_end};
use crate::roles::RoundTrips;

const BENCH: &str = "spin";
const COUNT: u64 = 10_000;

const SPIN: Way = Way::Preload(&[("spin", "auto")]);
const NO_SPIN: Way = Way::Preload(&[("spin", "off")]);

/// Starts an echo in a way, on a core of its own.
fn echo(bed: &Bed<'_>, way: &Way, core: usize) -> Result<(Running, u16)> {
    let job = Job::new(&bed.tools.bench).args(["role", "pong"]).way(way).core(core);
    let (running, mut lines) = Running::start_piped(job.command(bed.tools)?, "the echo")?;
    let port = lines.find(|line| line.strip_prefix("port ")?.parse().ok())?;
    Ok((running, port))
}

/// Measures both ends plain, under the library without spinning, one end spinning, both spinning.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let cores = Place::TwoCores.cores()?;
    let plain = echo(bed, &Way::Plain, cores.server)?;
    let sleeping = echo(bed, &NO_SPIN, cores.server)?;
    let spinning = echo(bed, &SPIN, cores.server)?;
    let count = bed.amount(COUNT).to_string();
    let case = |name: &'static str, way: Way, port: u16| {
        let count = &count;
        Case::new(name, move || {
            let job = Job::new(&bed.tools.bench)
                .args(["role", "ping", &port.to_string(), "--count", count])
                .way(&way)
                .core(cores.client);
            let limit = Duration::from_secs(60);
            let text = run_to_end(job.command(bed.tools)?, "the round trips", limit)?;
            let trips: RoundTrips =
                serde_json::from_str(&text).context("understanding the round trips")?;
            Ok(vec![trips.p50_us, trips.p99_us])
        })
    };
    let mut cases = [
        case("no spin", Way::Plain, plain.1),
        case("--spin auto on both ends", SPIN, spinning.1),
        case("--spin auto on the client", SPIN, plain.1),
        case("--spin off on both ends", NO_SPIN, sleeping.1),
    ];
    let samples = interleave(&mut cases, bed.rounds(15), bed.progress)?;
    let row = |index: usize, figure: usize, name: &str| {
        let which = if figure == 0 { "p50" } else { "p99" };
        let what = (BENCH, format!("64-byte round trip, {which}: {name}; against none"));
        let sides = (samples.get(index, figure), Compare::Ratio, samples.get(0, figure));
        Row::compare(what, Place::TwoCores, Unit::Microseconds, sides)
    };
    Ok(vec![
        row(1, 0, "--spin auto on both ends").bar(Bar::AtMost(0.15)),
        row(1, 1, "--spin auto on both ends"),
        row(2, 0, "--spin auto on the client"),
        row(3, 0, "--spin off on both ends"),
    ])
}
