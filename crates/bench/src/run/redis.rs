//! redis-benchmark against redis.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use uncork_netns::Namespace;

use super::Bed;
use super::serving::{Load, calibrate, compare};
use crate::launch::{Job, Way, within};
use crate::outcome::Row;
use crate::place::Place;
use crate::process::{Running, free_port, run_to_end};
use crate::toolbox::{Toolbox, program};

const BENCH: &str = "redis";

/// A redis in memory only, on a port of its own.
pub(crate) struct Redis {
    /// The server.
    pub(crate) running: Running,
    /// Its port.
    pub(crate) port: u16,
}

impl Redis {
    /// Starts a redis.
    pub(crate) fn start(bed: &Bed<'_>, way: &Way, core: usize) -> Result<Self> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let (job, dir) = prepare(bed, at)?;
        let job = job.way(way).core(core);
        let mut running = Running::start(job.command(bed.tools)?, "redis-server", &dir)?;
        running.wait_for(at.port())?;
        Ok(Self { running, port: at.port() })
    }

    /// Starts one at an address of a namespace.
    pub(crate) fn start_in(
        bed: &Bed<'_>,
        namespace: &Namespace,
        at: SocketAddr,
        (way, core): (&Way, usize),
    ) -> Result<Self> {
        let (job, dir) = prepare(bed, at)?;
        let command = within(namespace, &job.way(way).core(core).command(bed.tools)?)?;
        let mut running = Running::start(command, "redis-server", &dir)?;
        running.listens_in(namespace, at.port())?;
        Ok(Self { running, port: at.port() })
    }
}

/// Returns the job of one that serves at this address, and its own directory.
fn prepare(bed: &Bed<'_>, at: SocketAddr) -> Result<(Job, PathBuf)> {
    let dir = bed.scratch.dir("redis")?;
    let job = Job::new(program("redis-server")?)
        .args(["--port", &at.port().to_string(), "--bind", &at.ip().to_string()])
        .args(["--daemonize", "no", "--save", "", "--appendonly", "no", "--protected-mode", "no"])
        .arg("--dir")
        .arg(&dir);
    Ok((job, dir))
}

/// Arguments of one redis-benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    /// `get` or `set`.
    pub(crate) test: &'a str,
    /// Connections.
    pub(crate) connections: u32,
    /// Requests sent at once on a connection.
    pub(crate) pipeline: u32,
    /// Requests in all.
    pub(crate) requests: u64,
}

/// Runs redis-benchmark once and returns the requests per second.
pub(crate) fn ask(
    (tools, benchmark): (&Toolbox, &Path),
    (ask, port): (Ask<'_>, u16),
    (way, core): (&Way, usize),
) -> Result<f64> {
    let job = Job::new(benchmark)
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "--csv", "-t", ask.test])
        .args(["-c", &ask.connections.to_string(), "-P", &ask.pipeline.to_string()])
        .args(["-n", &ask.requests.to_string()])
        .way(way)
        .core(core);
    let limit = Duration::from_secs(120);
    let text = run_to_end(job.command(tools)?, "redis-benchmark", limit)?;
    rate(&text).with_context(|| format!("understanding redis-benchmark, which says {text:?}"))
}

/// Returns the requests per second: the second column of the line after the heading.
pub(crate) fn rate(csv: &str) -> Option<f64> {
    column(csv, 1)
}

/// Returns a column of the line after the heading, counted from zero.
pub(crate) fn column(csv: &str, at: usize) -> Option<f64> {
    let line = csv.lines().find(|line| !line.starts_with("\"test\""))?;
    line.split(',').nth(at)?.trim_matches('"').parse().ok()
}

/// Measures GET and SET with one connection, with fifty, and sixteen requests at once.
pub(crate) fn run(bed: &Bed<'_>, place: Place) -> Result<Vec<Row>> {
    let cores = place.cores()?;
    let benchmark = program("redis-benchmark")?;
    let how = (bed.tools, benchmark.as_path());
    let start = |way: &Way| Redis::start(bed, way, cores.server);
    let trial = start(&Way::Plain)?;
    let seconds = if bed.quick { 0.2 } else { 0.5 };
    let mut loads = Vec::new();
    for (connections, pipeline) in [(1, 1), (50, 1), (50, 16)] {
        for test in ["get", "set"] {
            let load = Ask { test, connections, pipeline, requests: 0 };
            let requests = calibrate(seconds, |requests| {
                ask(how, (Ask { requests, ..load }, trial.port), (&Way::Plain, cores.client))
            })?;
            let load = Ask { requests, ..load };
            let pipelined = if pipeline > 1 { format!(" -P{pipeline}") } else { String::new() };
            loads.push(Load {
                name: format!("{} -c{connections}{pipelined}", test.to_uppercase()),
                run: Box::new(move |way: &Way, server: &Redis| {
                    ask(how, (load, server.port), (way, cores.client))
                }),
            });
        }
    }
    drop(trial);
    compare(bed, (BENCH, place), start, &loads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_csv() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"101010.10\",\"0.254\"\n";
        assert_eq!(rate(text), Some(101_010.10));
        assert_eq!(rate("Could not connect"), None);
    }
}
