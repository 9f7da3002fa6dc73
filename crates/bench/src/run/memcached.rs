//! Sets and gets against memcached, with a load of our own.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::geteuid;

use super::Bed;
use super::serving::{Load, compare};
use crate::launch::{Job, Way};
use crate::outcome::Row;
use crate::place::Place;
use crate::process::{Running, free_port, run_to_end};
use crate::roles;
use crate::toolbox::program;

const BENCH: &str = "memcached";

/// Runs one and sixteen connections.
pub(crate) fn run(bed: &Bed<'_>, place: Place) -> Result<Vec<Row>> {
    let cores = place.cores()?;
    let milliseconds = bed.amount(500).to_string();
    let loads = [1, 16].map(|connections| {
        let milliseconds = &milliseconds;
        let run = move |way: &Way, (_, port): &(Running, u16)| {
            let job = Job::new(&bed.tools.bench)
                .args(["role", "memcache", &port.to_string()])
                .args(["--connections", &connections.to_string()])
                .args(["--milliseconds", milliseconds])
                .way(way)
                .core(cores.client);
            let limit = Duration::from_secs(60);
            let text = run_to_end(job.command(bed.tools)?, "the load for memcached", limit)?;
            let load: roles::Load =
                serde_json::from_str(&text).context("understanding the load for memcached")?;
            Ok(load.per_second)
        };
        Load { name: format!("get and set, {connections} connections"), run: Box::new(run) }
    });
    compare(bed, (BENCH, place), |way| start(bed, way, cores.server), &loads)
}

fn start(bed: &Bed<'_>, way: &Way, core: usize) -> Result<(Running, u16)> {
    let dir = bed.scratch.dir("memcached")?;
    let port = free_port()?;
    // As root it refuses to run unless told to.
    let user: &[&str] = if geteuid().is_root() { &["-u", "root"] } else { &[] };
    let job = Job::new(program("memcached")?)
        .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-t", "1", "-m", "32"])
        .args(user)
        .way(way)
        .core(core);
    let mut running = Running::start(job.command(bed.tools)?, "memcached", &dir)?;
    running.wait_for(port)?;
    Ok((running, port))
}
