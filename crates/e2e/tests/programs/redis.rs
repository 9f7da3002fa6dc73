//! redis: its benchmark, a deterministic data set, a replica, a background save, publish.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::skip::{find, skip};
use uncork_e2e::{Daemon, Finished, Mode, beside_others, daemon, run, same_as_plain};

use crate::programs::Scratch;

const LIMIT: Duration = Duration::from_secs(60);

fn serving(mode: &Mode, scratch: &Scratch, name: &str, more: &[&str]) -> Result<(Daemon, u16)> {
    let port = daemon::free_port()?;
    let server = find("redis-server").context("no redis-server")?;
    let mut command = scratch.reporting(mode).command(server)?;
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--enable-debug-command", "yes"])
        .arg("--dir")
        .arg(scratch.root())
        .args(["--dbfilename", name, "--port", &port.to_string()])
        .args(more);
    let server = Daemon::serving(command, &scratch.path(&format!("{name}.log")), port)?;
    mode.check_loaded(server.pid())?;
    Ok((server, port))
}

fn cli(mode: &Mode, port: u16, arguments: &[&str]) -> Result<String> {
    let mut command = mode.command("redis-cli")?;
    command.args(["-p", &port.to_string()]).args(arguments);
    let finished: Finished = run(&mut command, LIMIT)?.successful()?;
    Ok(finished.stdout)
}

#[test]
fn redis_loses_or_mixes_up_replies() -> Result<()> {
    if find("redis-server").is_none() || find("redis-benchmark").is_none() {
        return skip("redis is not installed (Debian: redis-server redis-tools)");
    }
    let _shared = beside_others();
    same_as_plain(&Mode::both_and_spinning(), |mode| {
        let scratch = Scratch::new()?;
        let (server, port) = serving(mode, &scratch, "main", &[])?;
        for load in [["1", "1", "1500"], ["20", "1", "5000"], ["10", "16", "20000"]] {
            benchmark(mode, port, load)?;
        }
        cli(mode, port, &["flushall"])?;
        let facts = data_set(mode, port)?;
        let status = server.stop(Signal::SIGTERM)?;
        scratch.check_helped(mode)?;
        Ok((facts, status))
    })
}

fn benchmark(mode: &Mode, port: u16, [clients, pipeline, count]: [&str; 3]) -> Result<()> {
    let mut command = mode.command("redis-benchmark")?;
    command
        .args(["-p", &port.to_string(), "-c", clients, "-P", pipeline, "-n", count, "--csv"])
        .args(["-t", "set,get,incr,lrange_100,mset", "-d", "300"]);
    let said = run(&mut command, LIMIT)?.successful()?;
    let tests = said.stdout.lines().filter(|line| line.starts_with('"')).count();
    ensure!(tests >= 6, "redis-benchmark told only:\n{}{}", said.stdout, said.stderr);
    ensure!(!said.stderr.contains("rror"), "redis-benchmark: {}", said.stderr);
    Ok(())
}

/// Returns redis's account of a data set that commands of all sizes have made.
fn data_set(mode: &Mode, port: u16) -> Result<Vec<String>> {
    let large = "v".repeat(100_000);
    for number in 0..20 {
        let key = format!("key{number}");
        cli(mode, port, &["set", &key, &large[..number * 5_000 + 1]])?;
        cli(mode, port, &["rpush", "list", &key, "x", "y"])?;
    }
    let mut facts = Vec::new();
    for question in ["debug digest", "dbsize", "lrange list 0 -1", "strlen key19", "get key3"] {
        let words: Vec<&str> = question.split(' ').collect();
        facts.push(cli(mode, port, &words)?);
    }
    Ok(facts)
}

#[test]
fn redis_replica_differs_from_its_master() -> Result<()> {
    if find("redis-server").is_none() {
        return skip("redis is not installed (Debian: redis-server redis-tools)");
    }
    let _shared = beside_others();
    same_as_plain(&Mode::both(), |mode| {
        let scratch = Scratch::new()?;
        let (main, port) = serving(mode, &scratch, "main", &[])?;
        data_set(mode, port)?;
        let of = ["--replicaof", "127.0.0.1", &port.to_string()];
        let (replica, second) = serving(mode, &scratch, "replica", &of)?;
        for number in 0..50 {
            cli(mode, port, &["incrby", "counter", &number.to_string()])?;
        }
        let acknowledged = cli(mode, port, &["wait", "1", "20000"])?;
        ensure!(acknowledged.trim() == "1", "the replica did not follow: {acknowledged}");
        let digests =
            [cli(mode, port, &["debug", "digest"])?, cli(mode, second, &["debug", "digest"])?];
        ensure!(digests[0] == digests[1], "main {}, replica {}", digests[0], digests[1]);
        let saved = cli(mode, port, &["bgsave"])?;
        let ends = (replica.stop(Signal::SIGTERM)?, main.stop(Signal::SIGTERM)?);
        Ok((digests, saved, ends))
    })
}
