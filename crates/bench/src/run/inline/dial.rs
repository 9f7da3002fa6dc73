//! Connections that a client on the stack opens, one after the other, against the same on kernel sockets.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use uncork_lab::place::{FAR, joined};

use super::{LIMIT, PRIVILEGE, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Compare, Row, Unit};
use crate::place::Place;
use crate::process::{Running, run_to_end};
use crate::roles::Dials;
use crate::run::Bed;
use crate::run::tuning::may;

const BENCH: &str = "inline-dial";
const COUNT: u64 = 2_000;
const PORT: u16 = 7010;

/// A core for each end; who is dialled is the kernel's.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
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
        let count = bed.amount(COUNT).to_string();
        let job = Job::new(&bed.tools.bench)
            .args(["role", "dial", &at.to_string(), "--count", &count])
            .way(way)
            .core(cores.client);
        let text = run_to_end(within(&near, &job.command(bed.tools)?)?, "the dialling", LIMIT)?;
        let Dials { p50_us, p99_us, rate } =
            serde_json::from_str(&text).context("understanding what was dialled")?;
        Ok(vec![p50_us, p99_us, rate])
    };
    let mut cases = [("on the stack", ours(false)), ("on kernel sockets", Way::Plain)]
        .map(|(name, way)| Case::new(name, move || dial(&way)));
    let samples = interleave(&mut cases, bed.rounds(15), bed.progress)?;
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
