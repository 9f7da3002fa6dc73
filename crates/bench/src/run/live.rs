//! The cost of live tracing for a server at full load.

use std::path::PathBuf;

use anyhow::Result;
use nix::unistd::geteuid;

use super::Bed;
use super::redis::{Ask, Redis, ask};
use super::serving::calibrate;
use crate::contest::{Case, interleave};
use crate::launch::{Job, Way};
use crate::outcome::{Bar, Compare, Row, Skip, Unit};
use crate::place::Place;
use crate::process::Running;
use crate::toolbox::program;

const BENCH: &str = "live";
/// The share of requests that must remain while it is watched: all but one in twenty.
const LEAST: f64 = 0.95;

/// Runs redis-benchmark GET with 50 connections, with and without `uncork doctor --pid` watching
/// the server; a core each.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    if !geteuid().is_root() {
        return Err(Skip::new("live tracing needs root here").into());
    }
    let cores = Place::TwoCores.cores()?;
    let benchmark = program("redis-benchmark")?;
    let how = (bed.tools, benchmark.as_path());
    let server = Redis::start(bed, &Way::Plain, cores.server)?;
    let seconds = if bed.quick { 0.5 } else { 1.5 };
    let get = Ask { test: "get", connections: 50, pipeline: 1, requests: 0 };
    let load = |requests| {
        let get = Ask { requests, ..get };
        ask(how, (get, server.port), (&Way::Plain, cores.client))
    };
    let requests = calibrate(seconds, load)?;
    let mut cases = vec![
        Case::new("plain", || Ok(vec![load(requests)?])),
        Case::new("traced", || {
            let _doctor = trace(bed, server.running.pid())?;
            Ok(vec![load(requests)?])
        }),
    ];
    let samples = interleave(&mut cases, bed.rounds(21), bed.progress)?;
    let what = (BENCH, "redis GET -c50: traced by uncork doctor --pid; against not traced");
    let sides = (samples.get(1, 0), Compare::Ratio, samples.get(0, 0));
    let row = Row::compare(what, Place::TwoCores, Unit::PerSecond, sides);
    Ok(vec![row.bar(Bar::AtLeast(LEAST))])
}

/// Starts a doctor that watches the process until it is dropped.
fn trace(bed: &Bed<'_>, pid: u32) -> Result<Running> {
    let dir: PathBuf = bed.scratch.dir("doctor")?;
    let job =
        Job::new(bed.tools.uncork()?).args(["doctor", "--pid", &pid.to_string(), "--for", "600s"]);
    let mut doctor = Running::start(job.command(bed.tools)?, "uncork doctor", &dir)?;
    doctor.wait_until_it_says("tracing process")?;
    Ok(doctor)
}
