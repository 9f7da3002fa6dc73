//! redis-benchmark against redis.

use anyhow::{Context as _, Result};
use uncork_lab::place::{NEAR, joined};
use uncork_netns::Namespace;

use super::{Asked, LIMIT, PRIVILEGE, Server, moderated, ours};
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way, within};
use crate::outcome::{Bar, Compare, Row, Unit};
use crate::place::{Cores, Place};
use crate::process::run_to_end;
use crate::run::Bed;
use crate::run::reception::Reception;
use crate::run::redis::{Redis, rate};
use crate::run::tuning::may;
use crate::toolbox::program;

const BENCH: &str = "inline-redis";
const PORTS: [u16; 3] = [6390, 6391, 6392];
/// Requests of one run: about a second's.
const REQUESTS: u32 = 100_000;

/// Fifty clients request one key, alternating between the three servers, which share a core.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    may(PRIVILEGE, &["ip", "redis-server", "redis-benchmark"])?;
    let cores = Place::TwoCores.cores()?;
    let (near, far) = joined()?;
    let mut running = Vec::new();
    let mut servers = Vec::new();
    let ways = [
        ("on the stack", ours(false)),
        ("on the stack, moderated", moderated()),
        ("on kernel sockets", Way::Plain),
    ];
    for ((_, way), port) in ways.iter().zip(PORTS) {
        let redis = Redis::start_in(bed, &near, (NEAR, port).into(), (way, cores.server))?;
        servers.push(Server::new(redis.running.pid(), port));
        running.push(redis);
    }
    let mut cases = Vec::new();
    for reception in Reception::ALL {
        for ((name, _), server) in ways.iter().zip(&servers) {
            let (near, far, server) = (&near, &far, *server);
            let label = format!("GET -c50, {}: {name}", reception.name());
            cases.push(Case::new(label, move || {
                reception.set((near, far), cores)?;
                ask(bed, far, server, cores)
            }));
        }
    }
    let samples = interleave(&mut cases, bed.rounds(7), bed.progress)?;
    let mut rows = Vec::new();
    for (at, reception) in Reception::ALL.into_iter().enumerate() {
        for (way, (name, _)) in ways.iter().enumerate().take(2) {
            let row = |figure, what: &str| {
                let reception = reception.name();
                let what = format!("GET -c50, {reception}, {what}: {name}; against the kernel");
                let [ours, kernels] =
                    [way, 2].map(|way| samples.get(at * ways.len() + way, figure));
                let sides = (ours, Compare::Ratio, kernels);
                Row::compare((BENCH, what), Place::TwoCores, Unit::PerSecond, sides)
            };
            rows.push(row(0, "requests a CPU-second of the server").bar(Bar::AtLeast(1.5)));
            rows.push(row(1, "requests a second"));
            rows.push(row(2, "requests a CPU-second of both ends"));
        }
    }
    Ok(rows)
}

fn ask(bed: &Bed<'_>, from: &Namespace, server: Server, cores: Cores) -> Result<Vec<f64>> {
    let requests = if bed.quick { REQUESTS / 5 } else { REQUESTS };
    let job = Job::new(program("redis-benchmark")?)
        .args(["-h", &server.at.ip().to_string(), "-p", &server.at.port().to_string(), "--csv"])
        .args(["-t", "get", "-c", "50", "-n", &requests.to_string()])
        .core(cores.client);
    let command = within(from, &job.command(bed.tools)?)?;
    server.observe(cores, || {
        let text = run_to_end(command, "redis-benchmark", LIMIT)?;
        let rate = rate(&text).context("understanding redis-benchmark")?;
        Ok(Asked { requests: requests.into(), rate })
    })
}
