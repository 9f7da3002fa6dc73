//! redis: one thread and an epoll set, thousands of clients, pipelines, a child that saves, a
//! connection of its own to a master.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OURS, THEIRS, end};
use uncork_e2e::skip::{find, skip};
use uncork_e2e::{Daemon, Hosts, run};

use crate::on_stack::many_connections::take_ports;
use crate::on_stack::stat::report;
use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 6380;
const LONG: Duration = Duration::from_secs(30);
/// Each has a descriptor at either end; `BESIDE` is for what else either process has open.
const CLIENTS: u64 = 10_000;
const BESIDE: u64 = 1000;
const NEEDED: [(&str, &str); 2] =
    [("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")];

/// Returns the arguments of `redis-server`.
fn arguments(directory: &Path, more: &[&str]) -> Result<Vec<String>> {
    let directory = directory.to_str().context("a path in UTF-8")?;
    let port = PORT.to_string();
    let mut all = vec!["--port", &port, "--bind", "0.0.0.0", "::", "--dir", directory];
    all.extend(["--save", "", "--protected-mode", "no", "--enable-debug-command", "yes"]);
    all.extend(["--maxclients", "6000"]);
    all.extend(more);
    Ok(all.into_iter().map(str::to_owned).collect())
}

fn server() -> Result<std::path::PathBuf> {
    find("redis-server").context("no redis")
}

fn serving(hosts: &Hosts, scratch: &Scratch, more: &[&str]) -> Result<Daemon> {
    let mut command = hosts.on_stack(server()?)?;
    command.args(arguments(scratch.root(), more)?);
    Daemon::on_stack(command, &scratch.path("log"), hosts, PORT)
}

fn said(command: &mut Command) -> Result<String> {
    Ok(run(command, LONG)?.successful()?.stdout.trim().to_owned())
}

/// Returns an answer of the server on our host.
fn ask(hosts: &Hosts, words: &[&str]) -> Result<String> {
    let mut command = hosts.beside(find("redis-cli").context("no redis-cli")?)?;
    said(command.args(["-h", OURS, "-p", &PORT.to_string()]).args(words))
}

fn benchmark(hosts: &Hosts, words: &str) -> Result<()> {
    let mut command = hosts.beside(find("redis-benchmark").context("no redis-benchmark")?)?;
    command.args(["-h", OURS, "-p", &PORT.to_string(), "--csv"]).args(words.split(' '));
    let said = run(&mut command, LONG).context(words.to_owned())?.successful()?;
    let tests = said.stdout.lines().filter(|line| line.starts_with('"')).count();
    ensure!(tests > 1, "redis-benchmark {words}:\n{}{}", said.stdout, said.stderr);
    ensure!(!said.stderr.contains("rror"), "redis-benchmark {words}: {}", said.stderr);
    Ok(())
}

/// Stores values of all lengths.
fn fill(hosts: &Hosts) -> Result<()> {
    let large = "v".repeat(100_000);
    for number in 0..10 {
        ask(hosts, &["set", &format!("key{number}"), &large[..number * 11_000 + 1]])?;
    }
    Ok(())
}

#[test]
fn redis_does_not_keep_up_with_its_clients() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("redis")?;
    let scratch = Scratch::new()?;
    let server = serving(&hosts, &scratch, &[])?;
    let before = hosts.counted()?;
    benchmark(&hosts, "-c 50 -n 5000 -t ping,set,get,lpush,mset -d 100")?;
    benchmark(&hosts, "-c 20 -n 20000 -t set,get -P 64 -d 500")?;
    benchmark(&hosts, "-c 10 -n 200 -t set,get -d 300000")?;
    hosts.check_all_on_stack(before)?;
    let status = server.stop(Signal::SIGTERM)?;
    ensure!(status.success(), "redis ended with {status}");
    hosts.check_nothing_left(PORT)
}

/// Raises the descriptor limit of this process, and so of those that it starts, to what it wants if
/// that is allowed; returns the limit.
fn may_have_descriptors(wanted: u64) -> Result<u64> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let may_have = |count| setrlimit(Resource::RLIMIT_NOFILE, count, count).map(|()| count);
    // More than the hard limit takes a privilege (CAP_SYS_RESOURCE).
    Ok(may_have(wanted.max(most)).or_else(|_| may_have(most))?)
}

#[test]
fn redis_loses_requests_of_ten_thousand_clients() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("redismany")?;
    let scratch = Scratch::new()?;
    let most = may_have_descriptors(CLIENTS + BESIDE)?;
    if most < CLIENTS + BESIDE {
        return skip(&format!("it may have {most} descriptors (ulimit -Hn {})", CLIENTS + BESIDE));
    }
    let server = serving(&hosts, &scratch, &["--maxclients", &(CLIENTS + 100).to_string()])?;
    let before = hosts.counted()?;
    // With twice as many ports the clients' kernel finds a free one in half of the time.
    take_ports(&hosts.theirs, &(1024..=65_000))?;
    benchmark(&hosts, &format!("-c {CLIENTS} -n 100000 -t get"))?;
    let report = report(server.pid())?;
    // All clients may have sent requests while the server had no processor.
    if let Some(lost) = report["frames_lost"].as_u64() {
        let came = report["counts"]["frames_in"].as_u64().context("no frames")?;
        ensure!(came > 100_000 && lost * 200 < came, "{lost} frames were lost, {came} came");
    }
    hosts.check_all_on_stack(before)?;
    let status = server.stop(Signal::SIGTERM)?;
    ensure!(status.success(), "redis ended with {status}");
    hosts.check_nothing_left(PORT)
}

#[test]
fn redis_loses_what_it_saves_or_those_who_are_connected_meanwhile() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("redissave")?;
    let scratch = Scratch::new()?;
    let server = serving(&hosts, &scratch, &[])?;
    let before = hosts.counted()?;
    fill(&hosts)?;
    let digest = ask(&hosts, &["debug", "digest"])?;
    // A connection that stays open while the child lives, and after.
    let mut beside = hosts.connect(PORT)?;
    for _ in 0..3 {
        ask(&hosts, &["bgsave"])?;
        talk(&mut beside)?;
        let is_over =
            || Ok(ask(&hosts, &["info", "persistence"])?.contains("rdb_bgsave_in_progress:0"));
        wait_until("it has saved", is_over)?;
        talk(&mut beside)?;
    }
    hosts.check_on_stack(&beside)?;
    ensure!(ask(&hosts, &["info", "persistence"])?.contains("rdb_last_bgsave_status:ok"), "saved");
    hosts.check_all_on_stack(before)?;
    drop(server);
    hosts.check_nothing_left(PORT)?;
    let server = serving(&hosts, &scratch, &["--dbfilename", "dump.rdb"])?;
    ensure!(ask(&hosts, &["debug", "digest"])? == digest, "what was saved is something else");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

fn talk(stream: &mut std::net::TcpStream) -> Result<()> {
    use std::io::{Read as _, Write as _};
    for _ in 0..50 {
        stream.write_all(b"ping\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        ensure!(&answer == b"+PONG\r\n", "{}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

#[test]
fn redis_replica_on_the_stack_differs_from_its_master() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("redisreplica")?;
    let (of_master, of_replica) = (Scratch::new()?, Scratch::new()?);
    let mut command = hosts.beside(server()?)?;
    command.args(arguments(of_master.root(), &[])?);
    let master = Daemon::start(command, &of_master.path("log"))?;
    let ask_master = |words: &[&str]| {
        let mut command = hosts.beside(find("redis-cli").context("no redis-cli")?)?;
        said(command.args(["-p", &PORT.to_string()]).args(words))
    };
    wait_until("the other host listens", || Ok(hosts.theirs.listens(PORT)))?;
    ask_master(&["debug", "populate", "20000", "key", "100"])?;
    let of = ["--replicaof", THEIRS, &PORT.to_string()];
    let replica = serving(&hosts, &of_replica, &of)?;
    let before = hosts.counted()?;
    for number in 0..20 {
        ask_master(&["incrby", "counter", &number.to_string()])?;
    }
    let acknowledged = ask_master(&["wait", "1", "20000"])?;
    ensure!(acknowledged == "1", "the replica did not follow\n{}", replica.said());
    let (theirs, ours) = (ask_master(&["debug", "digest"])?, ask(&hosts, &["debug", "digest"])?);
    ensure!(theirs == ours, "master {theirs}, replica {ours}");
    ensure!(!hosts.kernel_has(end(THEIRS, PORT)?)?, "it has its master by the kernel");
    hosts.check_all_on_stack(before)?;
    replica.stop(Signal::SIGTERM)?;
    master.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}
