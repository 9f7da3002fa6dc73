//! pgbench -S (selects by key) against PostgreSQL.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use nix::unistd::{User, chown, geteuid};

use super::Bed;
use super::serving::{Load, compare};
use crate::launch::{Job, Way};
use crate::outcome::{Row, Skip};
use crate::place::Place;
use crate::process::{Running, free_port, run_to_end};
use crate::toolbox::program;

const BENCH: &str = "pgbench";
const LIMIT: Duration = Duration::from_secs(120);

/// A cluster of its own; ended by SIGQUIT, which does not wait for clients.
struct Postgres {
    _running: Running,
    port: u16,
}

/// Runs one and eight connections.
pub(crate) fn run(bed: &Bed<'_>, place: Place) -> Result<Vec<Row>> {
    let cores = place.cores()?;
    let pgbench = program("pgbench")?;
    let loads = [1, 8].map(|connections| {
        let pgbench = &pgbench;
        let run = move |way: &Way, server: &Postgres| {
            let args = ["-S", "-n", "-j", "1", "-c", &connections.to_string(), "-T", "1"];
            let job = client(pgbench, server.port).args(args).arg("postgres");
            let command = job.way(way).core(cores.client).command(bed.tools)?;
            rate(&run_to_end(command, "pgbench", LIMIT)?)
        };
        Load { name: format!("pgbench -S -c{connections}"), run: Box::new(run) }
    });
    compare(bed, (BENCH, place), |way| Postgres::start(bed, way, cores.server), &loads)
}

fn client(pgbench: &Path, port: u16) -> Job {
    Job::new(pgbench).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres"])
}

impl Postgres {
    fn start(bed: &Bed<'_>, way: &Way, core: usize) -> Result<Self> {
        let user = server_user()?;
        let user = user.as_deref();
        let dir = directory(bed, user)?;
        let data = dir.join("data");
        let initdb = Job::new(program("initdb")?)
            .args(["-A", "trust", "-U", "postgres", "--no-sync", "--locale=C", "-E", "UTF8", "-D"])
            .arg(&data)
            .user(user);
        run_to_end(initdb.command(bed.tools)?, "initdb", LIMIT)?;
        let port = free_port()?;
        let library = match way {
            Way::Plain => None,
            _ => Some(readable_library(bed, &dir)?),
        };
        let settings = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "autovacuum=off",
            "shared_buffers=64MB",
        ];
        let settings = settings.iter().flat_map(|s| ["-c".into(), OsString::from(s)]);
        let job = Job::new(program("postgres")?)
            .args(["-p", &port.to_string()])
            .arg("-D")
            .arg(&data)
            .args(settings)
            .way(way)
            .own_library(library)
            .user(user)
            .core(core)
            .end("SIGQUIT");
        let running = Running::start(job.command(bed.tools)?, "postgres", &dir)?;
        let mut running = running.ended_by(Signal::SIGQUIT);
        // It listens before it is ready.
        running.wait_until_it_says("ready to accept connections")?;
        let tables = client(&program("pgbench")?, port).args(["-i", "-q", "postgres"]);
        run_to_end(tables.command(bed.tools)?, "pgbench -i", LIMIT)?;
        Ok(Self { _running: running, port })
    }
}

/// Returns the server's user, as PostgreSQL refuses to run as root.
fn server_user() -> Result<Option<String>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    match User::from_name("postgres").context("looking for the user postgres")? {
        Some(user) => Ok(Some(user.name)),
        None => Err(Skip::new("there is no user postgres: apt-get install postgresql").into()),
    }
}

fn directory(bed: &Bed<'_>, user: Option<&str>) -> Result<PathBuf> {
    let dir = bed.scratch.dir("postgres")?;
    if let Some(user) = user.map(User::from_name).transpose()?.flatten() {
        chown(&dir, Some(user.uid), Some(user.gid)).context("handing a directory to postgres")?;
    }
    Ok(dir)
}

/// Copies the library to where the server's user can read it.
fn readable_library(bed: &Bed<'_>, dir: &Path) -> Result<PathBuf> {
    let copy = dir.join("libuncork.so");
    fs::copy(bed.tools.preload_library()?, &copy).context("copying the library for postgres")?;
    Ok(copy)
}

fn rate(text: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let value = line.and_then(|line| line.split(' ').next()?.parse().ok());
    value.with_context(|| format!("understanding pgbench, which says {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read() {
        let text = "latency average = 0.1 ms\ntps = 9876.543210 (without initial connection time)";
        assert_eq!(rate(text).unwrap(), 9876.54321);
        assert!(rate("pgbench: error: connection failed").is_err());
    }
}
