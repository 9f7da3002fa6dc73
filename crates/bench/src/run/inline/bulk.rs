//! iperf3, both ways: its server on the stack, its client on kernel sockets on another host.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::Value;
use uncork_lab::place::{NEAR, joined};
use uncork_netns::Namespace;

use super::{LIMIT, PRIVILEGE, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::process::{Running, run_to_end};
use crate::run::Bed;
use crate::run::on_cpu::on_cpu;
use crate::run::tuning::may;
use crate::toolbox::program;

const BENCH: &str = "inline-bulk";
const PORTS: [u16; 2] = [5201, 5202];

/// The directions of the data.
pub(super) const DIRECTIONS: [(&str, &[&str]); 2] =
    [("sent by the server", &["-R"]), ("received by it", &[])];

/// Runs both with segment trains and checksum offload as on veth.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip", "iperf3"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let ways = [("on the stack", ours(false)), ("on kernel sockets", Way::Plain)];
    let mut servers = Vec::new();
    for ((_, way), port) in ways.iter().zip(PORTS) {
        let at = SocketAddr::from((NEAR, port));
        servers.push((serve(bed, &near, at, (way, cores.server))?, at));
    }
    let mut cases = Vec::new();
    for (direction, arguments) in DIRECTIONS {
        for ((name, _), (running, at)) in ways.iter().zip(&servers) {
            let (far, pid, at) = (&far, running.pid(), *at);
            let label = format!("iperf3, {direction}: {name}");
            cases.push(Case::new(label, move || ask(bed, far, (pid, at), (arguments, cores))));
        }
    }
    let samples = interleave(&mut cases, bed.rounds(7), bed.progress)?;
    let mut rows = Vec::new();
    for (at, (direction, _)) in DIRECTIONS.iter().enumerate() {
        let row = |figure, unit, what: &str| {
            let what = format!("iperf3, {direction}, {what}: on the stack; against the kernel");
            let sides =
                (samples.get(at * 2, figure), Compare::Ratio, samples.get(at * 2 + 1, figure));
            Row::compare((BENCH, what), Place::TwoCores, unit, sides)
        };
        rows.push(row(0, Unit::Megabits, "throughput").bar(Bar::AtLeast(0.6)));
        rows.push(row(1, Unit::SecondsPerGigabyte, "the server's processor time"));
    }
    Ok(rows)
}

pub(super) fn serve(
    bed: &Bed<'_>,
    on: &Namespace,
    at: SocketAddr,
    (way, core): (&Way, usize),
) -> Result<Running> {
    let dir = bed.scratch.dir("iperf3")?;
    let job = Job::new(program("iperf3")?)
        .args(["--server", "--port", &at.port().to_string(), "--bind", &at.ip().to_string()])
        .way(way)
        .core(core);
    let mut running = Running::start(within(on, &job.command(bed.tools)?)?, "iperf3", &dir)?;
    running.listens_in(on, at.port())?;
    Ok(running)
}

/// Returns megabits per second, and the server's processor time for a gigabyte.
pub(super) fn ask(
    bed: &Bed<'_>,
    from: &Namespace,
    (pid, at): (u32, SocketAddr),
    (arguments, cores): (&[&str], Cores),
) -> Result<Vec<f64>> {
    let seconds = if bed.quick { "1" } else { "3" };
    let job = Job::new(program("iperf3")?)
        .args(["--client", &at.ip().to_string(), "--port", &at.port().to_string(), "--json"])
        .args(["--time", seconds])
        .args(arguments)
        .core(cores.client);
    let command = within(from, &job.command(bed.tools)?)?;
    let before = on_cpu(pid)?;
    let text = run_to_end(command, "iperf3", LIMIT)?;
    let cpu = on_cpu(pid)?.saturating_sub(before);
    let report: Value = serde_json::from_str(&text).context("understanding iperf3")?;
    let received = &report["end"]["sum_received"];
    let figure = |name: &str| received[name].as_f64().context("iperf3 has not told what came");
    let (rate, octets) = (figure("bits_per_second")?, figure("bytes")?);
    Ok(vec![rate / 1e6, cpu.as_secs_f64() / (octets / 1e9)])
}
