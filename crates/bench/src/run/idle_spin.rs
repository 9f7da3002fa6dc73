//! The cost of spinning for a server that has nothing to do.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::unistd::{SysconfVar, sysconf};

use super::Bed;
use super::nginx::Nginx;
use super::redis::{Ask, Redis, ask};
use crate::launch::{Job, Way};
use crate::outcome::{Bar, Row, Unit};
use crate::place::Place;
use crate::process::run_to_end;
use crate::toolbox::program;

const BENCH: &str = "idle-spin";
const SPIN: Way = Way::Preload(&[("spin", "auto")]);
/// Percent of a core.
const AT_MOST: f64 = 2.0;

/// Lets redis and nginx work, so that they learn to spin, and then measures them idle.
pub(crate) fn run(bed: &Bed<'_>) -> Result<Vec<Row>> {
    let core = Place::OneCore.cores()?.server;
    let client = Place::TwoCores.cores().map_or(core, |cores| cores.client);
    let mut servers = Vec::new();
    for (name, way) in [("--spin auto", SPIN), ("plain", Way::Plain)] {
        let redis = Redis::start(bed, &way, core)?;
        let nginx = Nginx::start(bed, &way, core)?;
        work(bed, (&redis, &nginx), &way, client)?;
        servers.push((name, redis, nginx));
    }
    let watched: Vec<(String, u32)> = servers
        .iter()
        .flat_map(|(name, redis, nginx)| {
            [
                (format!("idle redis, {name}"), redis.running.pid()),
                (format!("idle nginx, {name}"), nginx.running.pid()),
            ]
        })
        .collect();
    // Connections are being closed, and what was learned may still be in effect: not idle yet.
    thread::sleep(Duration::from_secs(1));
    let seconds = bed.amount(10);
    let rounds = bed.rounds(3);
    bed.progress.begin(rounds);
    let mut shares = vec![Vec::new(); watched.len()];
    for _ in 0..rounds {
        bed.progress.on(&format!("watching for {seconds} s"));
        let pids: Vec<u32> = watched.iter().map(|(_, pid)| *pid).collect();
        for (into, share) in shares.iter_mut().zip(watch(&pids, Duration::from_secs(seconds))?) {
            into.push(share);
        }
        bed.progress.done();
    }
    let rows = watched.into_iter().zip(shares).map(|((what, _), shares)| {
        let barred = what.ends_with("--spin auto");
        let row = Row::absolute((BENCH, what), Place::OneCore, Unit::PercentOfCore, &shares);
        if barred { row.bar(Bar::AtMost(AT_MOST)) } else { row }
    });
    Ok(rows.collect())
}

/// Sends one request after the other for a second or so.
fn work(bed: &Bed<'_>, (redis, nginx): (&Redis, &Nginx), way: &Way, core: usize) -> Result<()> {
    let requests = bed.amount(20_000);
    let get = Ask { test: "get", connections: 1, pipeline: 1, requests };
    ask((bed.tools, &program("redis-benchmark")?), (get, redis.port), (way, core))?;
    let url = format!("http://127.0.0.1:{}/index.html", nginx.port);
    let wrk = Job::new(program("wrk")?).args(["-t1", "-c1", "-d1s", &url]).way(way).core(core);
    run_to_end(wrk.command(bed.tools)?, "wrk", Duration::from_secs(60))?;
    Ok(())
}

/// Returns the percentage of a core that each process and its descendants use over `time`.
fn watch(pids: &[u32], time: Duration) -> Result<Vec<f64>> {
    let ticks_a_second = sysconf(SysconfVar::CLK_TCK)?.context("no clock ticks")? as f64;
    let ticks = || {
        let table = table();
        pids.iter().map(|&pid| tree_ticks(&table, pid)).collect::<Vec<u64>>()
    };
    let (before, start) = (ticks(), Instant::now());
    thread::sleep(time);
    let (after, elapsed) = (ticks(), start.elapsed());
    let share = |(before, after): (u64, u64)| {
        after.saturating_sub(before) as f64 / ticks_a_second / elapsed.as_secs_f64() * 100.0
    };
    Ok(before.into_iter().zip(after).map(share).collect())
}

/// Returns the parent and processor time of every process.
fn table() -> BTreeMap<u32, (u32, u64)> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, parse(&stat)?))
        })
        .collect()
}

/// Parses parent, and user and system time in clock ticks, from /proc/PID/stat (proc_pid_stat(5)).
fn parse(stat: &str) -> Option<(u32, u64)> {
    // The name in parentheses may contain anything, even parentheses.
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let parent = fields.get(1)?.parse().ok()?;
    let user: u64 = fields.get(11)?.parse().ok()?;
    let system: u64 = fields.get(12)?.parse().ok()?;
    Some((parent, user + system))
}

fn tree_ticks(table: &BTreeMap<u32, (u32, u64)>, root: u32) -> u64 {
    let own = table.get(&root).map_or(0, |(_, ticks)| *ticks);
    let children = table.iter().filter(|(_, (parent, _))| *parent == root);
    own + children.map(|(&child, _)| tree_ticks(table, child)).sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 50 25 0 0 20 0 1 0 9";
        assert_eq!(parse(stat), Some((7, 75)));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn children_count_with_their_parent() {
        let table = BTreeMap::from([(1, (0, 5)), (2, (1, 10)), (3, (2, 20)), (4, (0, 40))]);
        assert_eq!(tree_ticks(&table, 1), 35);
    }

    #[test]
    fn a_busy_thread_shows() {
        let busy = thread::spawn(|| {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(700) {
                std::hint::spin_loop();
            }
        });
        let share = watch(&[std::process::id()], Duration::from_millis(500)).unwrap()[0];
        busy.join().unwrap();
        assert!(share > 10.0, "{share}");
    }
}
