//! Ten thousand clients of a redis that all send requests at once.

use anyhow::{Context as _, Result, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use uncork_lab::place::{NEAR, joined};
use uncork_netns::Namespace;

use super::{LIMIT, PRIVILEGE, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::process::run_to_end;
use crate::run::Bed;
use crate::run::redis::{Redis, column};
use crate::run::tuning::may;
use crate::toolbox::program;

const BENCH: &str = "inline-clients";
const PORTS: [u16; 2] = [6393, 6394];
/// Two fewer than redis accepts: one checks whether it is running.
const CLIENTS: u64 = 9_998;
/// Descriptors of a server with as many, and of its stack.
const DESCRIPTORS: u64 = CLIENTS + 500;
const REQUESTS: u32 = 100_000;
/// The output of redis-benchmark, by column, with units.
const TOLD: [(usize, &str, Unit); 3] = [
    (1, "requests a second", Unit::PerSecond),
    (6, "p99", Unit::Milliseconds),
    (7, "the slowest answer", Unit::Milliseconds),
];

/// Alternates between the stack and kernel sockets, with a core for each end.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip", "redis-server", "redis-benchmark"])?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if most < DESCRIPTORS {
        bail!("it needs {DESCRIPTORS} descriptors in one process: ulimit -n {DESCRIPTORS}");
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    // Among twice as many ports the clients' kernel finds a free one in half the time.
    let range = "echo 1024 65000 >/proc/sys/net/ipv4/ip_local_port_range";
    uncork_netns::run(far.command("sh").args(["-c", range]))?;
    let mut running = Vec::new();
    for (way, port) in [ours(false), Way::Plain].iter().zip(PORTS) {
        running.push(Redis::start_in(bed, &near, (NEAR, port).into(), (way, cores.server))?);
    }
    let case = |(name, port)| {
        let far = &far;
        Case::new(format!("GET, {CLIENTS} clients: {name}"), move || ask(bed, far, port, cores))
    };
    let mut cases: Vec<_> =
        ["on the stack", "on kernel sockets"].into_iter().zip(PORTS).map(case).collect();
    let samples = interleave(&mut cases, bed.rounds(5), bed.progress)?;
    let row = |(figure, (_, what, unit))| {
        let what = format!("GET, {CLIENTS} clients, {what}: on the stack; against the kernel");
        let [ours, kernels] = [0, 1].map(|way| samples.get(way, figure));
        Row::compare((BENCH, what), Place::TwoCores, unit, (ours, Compare::Ratio, kernels))
    };
    Ok(TOLD.into_iter().enumerate().map(row).collect())
}

fn ask(bed: &Bed<'_>, from: &Namespace, port: u16, cores: Cores) -> Result<Vec<f64>> {
    let requests = if bed.quick { REQUESTS / 5 } else { REQUESTS };
    let job = Job::new(program("redis-benchmark")?)
        .args(["-h", &NEAR.to_string(), "-p", &port.to_string(), "--csv", "-t", "get"])
        .args(["-c", &CLIENTS.to_string(), "-n", &requests.to_string()])
        .core(cores.client);
    let text = run_to_end(within(from, &job.command(bed.tools)?)?, "redis-benchmark", LIMIT)?;
    let told = TOLD.iter().map(|(at, ..)| column(&text, *at));
    told.collect::<Option<_>>().context("understanding redis-benchmark")
}
