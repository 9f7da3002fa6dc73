//! A day's worth of short connections, to a server on the stack and from a client on it: none
//! fails, none is left, and neither memory nor descriptors grow.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OURS, THEIRS, end};
use uncork_e2e::run::tail;
use uncork_e2e::skip::{find, note};
use uncork_e2e::{Daemon, Hosts, alone, artifact, run, soak};
use uncork_guardian::table;
use uncork_netns::Namespace;

use crate::on_stack::{Scratch, kernel_nginx, lacks, nginx, noise, wait_until};

const PORT: u16 = 8089;
const WORKERS: u32 = 2;
const CLIENTS: usize = 16;
const BODY: usize = 602;
const LONG: Duration = Duration::from_secs(20);
/// Local ports of the client's host: few, so that each is reused many times while the connection
/// that had it before is in TIME-WAIT, and so that these take no more after the warm-up.
const PORTS: RangeInclusive<u16> = 20_000..=23_999;
/// How often the processes are examined.
const LOOKS: Duration = Duration::from_millis(250);
/// How much may come and go in an allocator and among descriptors after the warm-up.
const ROOM_KIB: u64 = 1024;
const ROOM_DESCRIPTORS: u64 = 4;
/// The guardian has a descriptor for each port that it has reserved: up to 48 ahead of the
/// connections, and 31 after them until it is told that they are over.
const ROOM_PORTS: u64 = 79;
/// The length of TIME-WAIT, and some more.
const ALL_OVER: Duration = Duration::from_secs(90);

fn total() -> u64 {
    if soak() { 2_000_000 } else { 20_000 }
}

/// What a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    resident_kib: u64,
    /// With its share of the memory that it shares with others.
    proportional_kib: u64,
    descriptors: u64,
}

impl Size {
    fn of(pid: u32) -> Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let field = |name: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|line| line.split_whitespace().next());
            Ok(value.context("smaps_rollup lacks a line")?.parse()?)
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok(Self {
            resident_kib: field("Rss:")?,
            proportional_kib: field("Pss:")?,
            descriptors: u64::try_from(descriptors)?,
        })
    }
}

/// Processes by name: their sizes at first, when warm, and since then the largest and the last.
#[derive(Debug, Default)]
struct Sizes(BTreeMap<String, [Size; 4]>);

impl Sizes {
    /// Measures them again.
    fn look(&mut self, processes: &[(String, u32)], is_warm: bool) -> Result<()> {
        for (name, pid) in processes {
            let now = Size::of(*pid).with_context(|| name.clone())?;
            let [_, warm, most, last] = self.0.entry(name.clone()).or_insert([now; 4]);
            if !is_warm {
                (*warm, *most) = (now, now);
            }
            most.resident_kib = most.resident_kib.max(now.resident_kib);
            most.proportional_kib = most.proportional_kib.max(now.proportional_kib);
            most.descriptors = most.descriptors.max(now.descriptors);
            *last = now;
        }
        Ok(())
    }

    /// Fails if one of them has grown since it was warm.
    fn check(&self) -> Result<()> {
        for (name, [_, warm, _, last]) in &self.0 {
            let ports = if name.contains("guardian serve") { ROOM_PORTS } else { 0 };
            let is_flat = last.resident_kib <= warm.resident_kib + ROOM_KIB
                && last.descriptors <= warm.descriptors + ROOM_DESCRIPTORS + ports;
            ensure!(is_flat, "{name} has grown from {warm:?} to {last:?}");
        }
        Ok(())
    }

    fn told(&self) -> String {
        let mut told = String::new();
        for (name, sizes) in &self.0 {
            let each = |of: fn(&Size) -> u64| sizes.each_ref().map(of);
            let _ = write!(
                told,
                "\n  {name}, before, warm, at the most, at last: {:?} KiB resident, {:?} proportional, {:?} descriptors",
                each(|size| size.resident_kib),
                each(|size| size.proportional_kib),
                each(|size| size.descriptors)
            );
        }
        told
    }
}

const GUARDIAN: &str = "uncork guardian serve";

/// Lists the processes of our host, each with its name.
fn processes(hosts: &Hosts) -> Result<Vec<(String, u32)>> {
    let listed = Command::new("ip").args(["netns", "pids", hosts.ours.name()]).output()?;
    let mut found = Vec::new();
    for pid in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = line.replace('\0', " ");
        let known =
            ["nginx: worker", GUARDIAN, "uncork guardian inherit", "uncork guardian instance"];
        let name = known.iter().find(|name| line.starts_with(**name)).copied();
        // With instances, the guardian is the command itself.
        let name = name.or_else(|| line.contains("stack start").then_some(GUARDIAN));
        let name = name.or_else(|| line.contains("wrk ").then_some("wrk"));
        if let Some(name) = name {
            found.push((format!("{name} {pid}"), pid.parse()?));
        }
    }
    Ok(found)
}

/// Counts the stack's connections in the guardian's tables, including those in TIME-WAIT.
fn connections(guardian: u32) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(format!("/proc/{guardian}/fd"))?.flatten() {
        let to = fs::read_link(entry.path()).unwrap_or_default();
        if to.to_string_lossy().starts_with("/memfd:uncork-connections") {
            count += table::read(File::open(entry.path())?.as_fd())?.len();
        }
    }
    Ok(count)
}

fn is_worker(name: &str) -> bool {
    name.starts_with("nginx: worker")
}

fn guardian(processes: &[(String, u32)]) -> Result<u32> {
    let found = processes.iter().find(|(name, _)| name.starts_with(GUARDIAN));
    Ok(found.context("no guardian")?.1)
}

/// Sets the range of ports that this host connects from.
pub(crate) fn take_ports(host: &Namespace, ports: &RangeInclusive<u16>) -> Result<()> {
    let file = "/proc/sys/net/ipv4/ip_local_port_range";
    let set = format!("echo {} {} >{file}", ports.start(), ports.end());
    uncork_netns::run(host.command("sh").args(["-c", &set]))
}

/// Makes one connection, which its server ends.
fn once(to: SocketAddr, body: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, LONG).context("connecting")?;
    stream.set_read_timeout(Some(LONG))?;
    stream.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).context("reading")?;
    let is_good = answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(body);
    ensure!(is_good, "another answer: {}", tail(&String::from_utf8_lossy(&answer)));
    Ok(())
}

/// Makes this many connections from the other host, and counts them. The first failure ends it.
fn connect_often(hosts: &Hosts, total: u64, done: &AtomicU64) -> Result<()> {
    let (to, body) = (end(OURS, PORT)?, noise(BODY));
    let (begun, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    hosts.crowd(CLIENTS, |_| {
        while begun.fetch_add(1, Relaxed) < total && !failed.load(Relaxed) {
            let outcome = once(to, &body).inspect_err(|_| failed.store(true, Relaxed));
            outcome.with_context(|| format!("behind {} connections", done.load(Relaxed)))?;
            done.fetch_add(1, Relaxed);
        }
        Ok(())
    })?;
    Ok(())
}

#[test]
fn server_of_many_short_connections_loses_one_or_grows() -> Result<()> {
    if lacks(&[("nginx", "nginx-light")])? {
        return Ok(());
    }
    let alone = alone();
    let hosts = alone.hosts("manyserver")?;
    let scratch = Scratch::new()?;
    scratch.file("small", BODY)?;
    take_ports(&hosts.theirs, &PORTS)?;
    let configuration = nginx::configuration(&scratch, PORT, WORKERS, "on");
    fs::write(scratch.path("nginx.conf"), configuration)?;
    let mut command = hosts.on_stack(find("nginx").context("no nginx")?)?;
    command.arg("-c").arg(scratch.path("nginx.conf")).arg("-p").arg(scratch.root());
    command.args(["-e", "stderr"]);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let workers = |all: &[(String, u32)]| all.iter().filter(|(name, _)| is_worker(name)).count();
    wait_until("all workers are there", || Ok(workers(&processes(&hosts)?) == WORKERS as usize))?;
    let (before, all) = (hosts.counted()?, processes(&hosts)?);
    let (total, done, over) = (total(), AtomicU64::new(0), AtomicBool::new(false));
    let (mut sizes, begun) = (Sizes::default(), Instant::now());
    thread::scope(|scope| {
        let crowd = scope.spawn(|| {
            let outcome = connect_often(&hosts, total, &done);
            over.store(true, Relaxed);
            outcome
        });
        while !over.load(Relaxed) {
            sizes.look(&all, done.load(Relaxed) >= total / 2)?;
            thread::sleep(LOOKS);
        }
        crowd.join().map_err(|_| anyhow!("a thread panicked"))?
    })
    .with_context(|| server.said())?;
    let took = begun.elapsed();
    sizes.look(&all, true)?;
    let rate = total as f64 / took.as_secs_f64();
    note(&format!("{total} connections, {rate:.0} a second{}", sizes.told()));
    sizes.check()?;
    let kernels = hosts.opened_since(before)?;
    ensure!(kernels == 0, "{kernels} connections were the kernel's");
    check_over(&all)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

/// Fails if a connection is left.
fn check_over(all: &[(String, u32)]) -> Result<()> {
    for (name, pid) in all.iter().filter(|(name, _)| is_worker(name)) {
        let mut why = Command::new(artifact::uncork()?);
        let said = run(why.args(["stack", "why", &pid.to_string()]), LONG)?.stdout;
        let is_connection = |line: &&str| line.contains("it was accepted");
        let connections: Vec<_> = said.lines().filter(is_connection).collect();
        ensure!(connections.is_empty(), "{name} still has {}", connections.join("\n"));
    }
    let (guardian, patience) = (guardian(all)?, Instant::now() + ALL_OVER);
    loop {
        let left = connections(guardian)?;
        // A minute is too long to wait each time.
        if left == 0 || (!soak() && left <= usize::from(PORTS.end() - PORTS.start())) {
            return Ok(());
        }
        ensure!(Instant::now() < patience, "{left} connections are left");
        thread::sleep(LOOKS);
    }
}

/// Returns the number of connections that a client makes: a tenth.
fn total_of_client() -> u64 {
    total() / 10
}

/// Returns the number of wrk's requests, each on its own connection, and the sizes meanwhile.
fn wrk(hosts: &Hosts, scratch: &Scratch, time: Duration) -> Result<(u64, Sizes)> {
    let mut command = hosts.on_stack(find("wrk").context("no wrk")?)?;
    let clients = CLIENTS.to_string();
    let seconds = format!("{}s", time.as_secs());
    command.args(["-t", "2", "-c", &clients, "-d", &seconds, "-H", "Connection: close"]);
    command.arg(format!("http://{THEIRS}:{PORT}/small"));
    let log = scratch.path("wrk.log");
    let (begun, mut sizes) = (Instant::now(), Sizes::default());
    let client = Daemon::start(command, &log)?;
    while begun.elapsed() + LOOKS < time {
        let found = processes(hosts)?;
        if begun.elapsed() > LOOKS {
            sizes.look(&found, begun.elapsed() > time / 2)?;
        }
        thread::sleep(LOOKS);
    }
    let status = client.wait(LONG)?;
    let said = fs::read_to_string(log)?;
    let is_bad = ["Socket errors", "Non-2xx"].iter().any(|text| said.contains(text));
    ensure!(status.success() && !is_bad, "{said}");
    let requests = said.lines().find_map(|line| line.trim().split_once(" requests in"));
    let Some((requests, _)) = requests else { bail!("{said}") };
    Ok((requests.parse()?, sizes))
}

#[test]
fn client_of_many_short_connections_loses_one_or_grows() -> Result<()> {
    if lacks(&[("nginx", "nginx-light"), ("wrk", "wrk")])? {
        return Ok(());
    }
    let alone = alone();
    let hosts = alone.hosts("manyclient")?;
    let scratch = Scratch::new()?;
    scratch.file("small", BODY)?;
    let server = kernel_nginx(&hosts, &scratch, PORT)?;
    take_ports(&hosts.ours, &PORTS)?;
    let before = hosts.counted()?;
    let trial = Duration::from_secs(2);
    let (requests, mut sizes) = wrk(&hosts, &scratch, trial)?;
    let mut told = requests;
    if soak() {
        let seconds = total_of_client() * trial.as_secs() / requests.max(1);
        (told, sizes) = wrk(&hosts, &scratch, Duration::from_secs(seconds))?;
    }
    note(&format!("{told} connections{}", sizes.told()));
    sizes.check()?;
    let kernels = hosts.opened_since(before)?;
    ensure!(kernels == 0, "{kernels} connections were the kernel's");
    server.stop(Signal::SIGTERM)?;
    wait_until("all is over", || Ok(hosts.check_nothing_left(PORT).is_ok()))
}
