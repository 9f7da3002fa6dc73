//! `--driver=xdp`: AF_XDP queues beside the packet sockets. Whichever way frames come, none is lost
//! or mixed up, and the program that hands frames over goes with the processes.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};
use uncork_e2e::hosts::{OURS, THEIRS};
use uncork_e2e::http::Answer;
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, Instances, artifact, run};

use crate::on_stack::nginx::{configuration, serving};
use crate::on_stack::stat::report;
use crate::on_stack::{Scratch, children, lacks, wait_until};

const PORT: u16 = 8080;
const REDIS_PORT: u16 = 6379;
const LONG: Duration = Duration::from_secs(20);
/// How many times as long something may take beside other tests.
const SLOWER: u32 = 4;
const NGINX: [(&str, &str); 2] = [("nginx", "nginx-light"), ("ethtool", "ethtool")];
const REDIS: [(&str, &str); 3] =
    [("redis-server", "redis-server"), ("redis-benchmark", "redis-tools"), ("ethtool", "ethtool")];

/// What a stack has received by its queues, and in all.
#[derive(Debug, Default)]
struct Came {
    queues: Vec<String>,
    by_queue: u64,
    in_all: u64,
}

fn came(pid: u32) -> Result<Came> {
    let report = report(pid)?;
    let by_queue = &report["by_queue"];
    let queues = by_queue["queues"].as_array().with_context(|| format!("{report}"))?;
    Ok(Came {
        queues: queues.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
        by_queue: by_queue["frames_in"].as_u64().context("no frames")?,
        in_all: report["counts"]["frames_in"].as_u64().context("no frames")?,
    })
}

/// Requests bodies of all lengths, on connections that come by both queues.
fn is_served(hosts: &Hosts, scratch: &Scratch) -> Result<()> {
    let whole =
        |name: &str| Ok::<_, anyhow::Error>(Answer::of(200, &std::fs::read(scratch.path(name))?));
    let (small, big) = (whole("small")?, whole("big")?);
    let before = hosts.counted()?;
    hosts.crowd(16, |who| {
        for round in 0..4 {
            let mut connection = hosts.http(PORT)?;
            ensure!(connection.get("/small")? == small, "{who}: small in round {round}");
            ensure!(connection.get("/big")? == big, "{who}: big in round {round}");
        }
        Ok(())
    })?;
    hosts.check_all_on_stack(before)
}

#[test]
fn workers_with_a_queue_each_lose_what_comes_by_anothers() -> Result<()> {
    if lacks(&NGINX)? {
        return Ok(());
    }
    let hosts = Hosts::by_xdp("xdpnginx")?;
    if hosts.instances().is_some() {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    scratch.file("small", 602)?;
    scratch.file("big", 1 << 20)?;
    // One worker more than there are queues.
    let server = serving(&hosts, &scratch, 3, "on")?;
    is_served(&hosts, &scratch)?;
    let workers = children(server.pid())?;
    let mut all = workers.iter().map(|pid| Ok((*pid, came(*pid)?))).collect::<Result<Vec<_>>>()?;
    all.sort_by(|(_, one), (_, other)| one.queues.cmp(&other.queues));
    let queues: Vec<_> = all.iter().map(|(_, came)| came.queues.join(" ")).collect();
    ensure!(queues == ["", "eth0:0", "eth0:1"], "{all:?}");
    for (_, came) in &all {
        let by_queue = came.by_queue > 0;
        ensure!(by_queue != came.queues.is_empty() && came.by_queue < came.in_all, "{came:?}");
    }
    // Another worker gets the queue of one that dies, and the others are served on.
    let dies = i32::try_from(all[1].0)?;
    kill(Pid::from_raw(dies), Signal::SIGKILL)?;
    wait_until("somebody has the queue of the dead", || {
        let again = children(server.pid())?;
        let found = again.iter().filter_map(|pid| came(*pid).ok());
        Ok(found.flat_map(|came| came.queues).collect::<std::collections::BTreeSet<_>>().len() == 2)
    })?;
    is_served(&hosts, &scratch)?;
    server.stop(Signal::SIGKILL)?;
    // The next start works while the kernel still frees what the last one had.
    for worker in children_named("nginx", &hosts)? {
        kill(Pid::from_raw(worker), Signal::SIGKILL)?;
    }
    let server = serving(&hosts, &scratch, 2, "off")?;
    is_served(&hosts, &scratch)?;
    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    hosts.check_nothing_left(PORT)
}

/// Lists the processes of our host with this name.
fn children_named(name: &str, hosts: &Hosts) -> Result<Vec<i32>> {
    let output = Command::new("ip").args(["netns", "pids", hosts.ours.name()]).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_it = |pid: &&str| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    text.split_whitespace().filter(is_it).map(|pid| Ok(pid.parse()?)).collect()
}

fn redis(hosts: &Hosts, scratch: &Scratch, more: &[&str]) -> Result<Daemon> {
    let program = find("redis-server").context("no redis-server")?;
    let mut command = hosts.on_stack_with(more, program)?;
    command.args(["--port", &REDIS_PORT.to_string(), "--bind", "0.0.0.0", "--save", ""]);
    command.args(["--protected-mode", "no", "--daemonize", "no"]);
    Daemon::on_stack(command, &scratch.path("redis.log"), hosts, REDIS_PORT)
}

/// Runs the benchmark, and returns how long it takes.
fn redis_benchmark(hosts: &Hosts) -> Result<Duration> {
    let begun = Instant::now();
    let mut command = hosts.beside(find("redis-benchmark").context("no redis-benchmark")?)?;
    command.args(["-h", OURS, "-t", "get,set", "-n", "40000", "-c", "50", "-q"]);
    let finished = run(&mut command, LONG)?;
    ensure!(finished.status.success(), "{}{}", finished.stdout, finished.stderr);
    Ok(begun.elapsed())
}

#[test]
fn a_process_with_all_queues_gets_something_by_its_packet_socket() -> Result<()> {
    if lacks(&REDIS)? {
        return Ok(());
    }
    let hosts = Hosts::by_xdp("xdpredis")?;
    if hosts.instances().is_some() {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let server = redis(&hosts, &scratch, &["--queues=2"])?;
    let at_first = came(server.pid())?;
    redis_benchmark(&hosts)?;
    let Came { queues, by_queue, in_all } = came(server.pid())?;
    ensure!(queues == ["eth0:0", "eth0:1"], "{queues:?}");
    let (by_queue, in_all) = (by_queue - at_first.by_queue, in_all - at_first.in_all);
    ensure!(by_queue == in_all && in_all > 40_000, "{by_queue} of {in_all} frames");
    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    hosts.check_nothing_left(REDIS_PORT)
}

#[test]
fn who_comes_first_is_heard() -> Result<()> {
    if lacks(&NGINX)? {
        return Ok(());
    }
    let hosts = Hosts::by_xdp("xdpfirst")?;
    if hosts.instances().is_some() {
        return Ok(());
    }
    is_heard_first(&hosts, &["--queues=2"])
}

#[test]
fn who_comes_first_to_an_instance_of_two_devices_is_heard() -> Result<()> {
    if lacks(&NGINX)? {
        return Ok(());
    }
    let hosts = Hosts::by_xdp("xdpfirsti")?;
    hosts.stop_instances()?;
    hosts.ours.ip("link add eth1 type veth peer name eth2")?;
    hosts.ours.ip("address add 10.96.2.1/24 dev eth1")?;
    for device in ["eth1", "eth2"] {
        hosts.ours.ip(&format!("link set {device} up"))?;
    }
    let devices = ["eth0", "eth1"];
    *hosts.instances() = Some(Instances::start_with(&["--driver=xdp"], &hosts.ours, &devices, 1)?);
    is_heard_first(&hosts, &[])
}

/// Asserts that an idle server, which gets nothing by its packet socket, answers at once.
fn is_heard_first(hosts: &Hosts, more: &[&str]) -> Result<()> {
    let scratch = Scratch::new()?;
    scratch.file("small", 602)?;
    std::fs::write(scratch.path("nginx.conf"), configuration(&scratch, PORT, 1, "on"))?;
    let mut command = hosts.on_stack_with(more, find("nginx").context("no nginx")?)?;
    command.arg("-c").arg(scratch.path("nginx.conf")).arg("-p").arg(scratch.root());
    let server = Daemon::start(command, &scratch.path("log"))?;
    wait_until("nginx listens", || Ok(hosts.ours.listens(PORT)))?;
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    let mut connection = hosts.http(PORT)?;
    let answer = connection.get("/small")?;
    // A SYN is retransmitted after a second.
    let took = begun.elapsed();
    ensure!(took < Duration::from_millis(900), "an answer after {took:?}");
    ensure!(answer == Answer::of(200, &std::fs::read(scratch.path("small"))?), "another answer");
    hosts.check_on_stack(connection.stream())?;
    drop(connection);
    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    hosts.check_nothing_left(PORT)
}

#[test]
fn instances_leave_a_queue_unused() -> Result<()> {
    if lacks(&REDIS)? {
        return Ok(());
    }
    let hosts = Hosts::by_xdp("xdpinst")?.on_instances(1)?;
    let scratch = Scratch::new()?;
    let server = redis(&hosts, &scratch, &[])?;
    let at_first = redis_benchmark(&hosts)?;
    let instance = *hosts.instances().as_ref().context("none")?.pids()?.first().context("none")?;
    let found = came(instance)?;
    ensure!(found.queues == ["eth0:0", "eth0:1"], "{found:?}");
    ensure!(found.by_queue > 40_000 && found.in_all - found.by_queue < 100, "{found:?}");
    // Another instance takes its place, with the same queues.
    kill(Pid::from_raw(i32::try_from(instance)?), Signal::SIGKILL)?;
    wait_until("there is another instance with the queues", || {
        let pids = hosts.instances().as_ref().context("none")?.pids()?;
        Ok(pids.iter().any(|pid| came(*pid).is_ok_and(|came| came.queues.len() == 2)))
    })?;
    hosts.wait_for_stack(REDIS_PORT, &server)?;
    // Redis saw its connections end, and must not be slower for that: it would take ten times as
    // long if each of its writes asked the instance for something.
    let again = redis_benchmark(&hosts)?;
    ensure!(again < at_first * SLOWER, "{at_first:?} with the first instance, then {again:?}");
    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    hosts.check_nothing_left(REDIS_PORT)
}

/// Compiles a device's own program, which drops what comes from this port.
fn first(scratch: &Scratch, drops: u16) -> Result<PathBuf> {
    let object = scratch.path("first.bpf.o");
    let mut compiler = Command::new("clang");
    compiler.args(["-target", "bpf", "-O2", "-g", "-I"]);
    // Debian's directory for headers that depend on the architecture.
    compiler.arg(format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    compiler.arg(format!("-DFROM={drops}")).arg("-o").arg(&object);
    run(compiler.arg("-c").arg(artifact::source("c/first.bpf.c")), LONG)?.successful()?;
    Ok(object)
}

/// Connects from this port of the other host, and returns the outcome.
fn connected_from(hosts: &Hosts, port: u16) -> Result<Result<(), ErrorKind>> {
    let (from, to): (SocketAddr, SocketAddr) =
        (format!("{THEIRS}:{port}").parse()?, format!("{OURS}:{PORT}").parse()?);
    let connect = move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&from.into())?;
        Ok(socket.connect_timeout(&to.into(), Duration::from_secs(1)).map_err(|e| e.kind()))
    };
    hosts.theirs.within(connect)
}

/// With packet sockets a stack comes after the device's own program, which AF_XDP would replace.
#[test]
fn what_a_device_s_own_program_drops_comes_to_the_stack() -> Result<()> {
    const DROPPED: u16 = 5555;
    if lacks(&[("nginx", "nginx-light"), ("clang", "clang")])? {
        return Ok(());
    }
    let hosts = Hosts::by_packet_sockets("xdpbehind")?;
    let scratch = Scratch::new()?;
    scratch.file("small", 602)?;
    scratch.file("big", 1 << 20)?;
    let object = first(&scratch, DROPPED)?;
    hosts.ours.ip(&format!("link set dev eth0 xdpdrv obj {} sec xdp", object.display()))?;
    let shown = || -> Result<bool> {
        let shown = hosts.ours.command("ip").args(["link", "show", "dev", "eth0"]).output()?;
        Ok(String::from_utf8_lossy(&shown.stdout).contains("name first"))
    };
    let mut by_xdp = hosts.ours.command(artifact::uncork()?.to_str().context("no UTF-8")?);
    by_xdp.env("UNCORK_LIBRARY", artifact::library()?);
    by_xdp.args("run --stack --driver=xdp --dev eth0 -- true".split_whitespace());
    let finished = run(&mut by_xdp, LONG)?;
    ensure!(finished.status.code() == Some(125), "{}", finished.status);
    ensure!(finished.stderr.contains("leave out --driver=xdp"), "{}", finished.stderr);
    let server = serving(&hosts, &scratch, 2, "on")?;
    is_served(&hosts, &scratch)?;
    ensure!(connected_from(&hosts, DROPPED)? == Err(ErrorKind::TimedOut), "it is not dropped");
    ensure!(connected_from(&hosts, DROPPED + 1)? == Ok(()), "all are dropped");
    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    ensure!(shown()?, "the device has lost its program");
    hosts.ours.ip("link set dev eth0 xdpdrv off")?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn what_af_xdp_cannot_do_is_not_said() -> Result<()> {
    if lacks(&NGINX)? {
        return Ok(());
    }
    let hosts = Hosts::new("xdprefused")?;
    let refused = |line: &str, code: i32, why: &str| {
        let uncork = artifact::uncork()?;
        let mut command = hosts.ours.command(uncork.to_str().context("a path in UTF-8")?);
        command.env("UNCORK_LIBRARY", artifact::library()?).args(line.split_whitespace());
        let finished = run(&mut command, LONG)?;
        let said = finished.stderr;
        ensure!(finished.status.code() == Some(code), "{line}: {}: {said}", finished.status);
        ensure!(said.contains(why) && said.lines().count() == 1, "{line}: {said}");
        Ok(())
    };
    hosts.ours.ip("tuntap add tap0 mode tap")?;
    hosts.ours.ip("address add 10.96.0.1/24 dev tap0")?;
    hosts.ours.ip("link set tap0 up")?;
    refused("run --stack --driver=xdp --dev tap0 -- true", 125, "packet socket")?;
    refused("stack start --driver xdp --dev tap0", 2, "packet socket")?;
    hosts.ours.ip("link add br0 type bridge")?;
    hosts.ours.ip("address add 10.96.1.1/24 dev br0")?;
    hosts.ours.ip("link set br0 up")?;
    refused("run --stack --driver=xdp --dev br0 -- true", 125, "leave out --driver=xdp")?;
    refused("run --stack --queues=2 -- true", 125, "--driver=xdp beside it")?;
    let many = "eth0 has 1 queue, and each process is to get 64 of them";
    refused("run --stack --driver=xdp --queues=64 --dev eth0 -- true", 125, many)?;
    refused("stack guard --driver=xdp --queues=64 --dev eth0", 2, "(--queues=1)")?;
    refused("run --stack=instance --driver=xdp -- true", 125, "uncork stack start")?;
    // Root without the capabilities that let an eBPF program read the kernel's own buffers.
    let without = ["--bounding-set=-perfmon,-sys_admin", "--inh-caps=-perfmon,-sys_admin"];
    let mut command = hosts.ours.command("setpriv");
    command.args(without).arg(artifact::uncork()?).env("UNCORK_LIBRARY", artifact::library()?);
    command.args("run --stack --driver=xdp --dev eth0 -- true".split_whitespace());
    let finished = run(&mut command, LONG)?;
    let said = finished.stderr;
    ensure!(finished.status.code() == Some(125), "{}: {said}", finished.status);
    ensure!(said.contains("cap_perfmon") && said.lines().count() == 1, "{said}");
    Ok(())
}

/// Returns a command that runs uncork as root, with a limit on locked memory and without the
/// capability to exceed it.
fn locking(hosts: &Hosts, kib: u64, arguments: &str) -> Result<Command> {
    let mut command = hosts.ours.command("setpriv");
    command.args(["--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "sh", "-c"]);
    command.arg(format!("ulimit -l {kib} && exec \"$@\"")).arg("sh").arg(artifact::uncork()?);
    command.args(arguments.split_whitespace()).env("UNCORK_LIBRARY", artifact::library()?);
    Ok(command)
}

/// Returns how many KiB a message says are enough.
fn enough(said: &str) -> Result<u64> {
    let behind = said.split("ulimit -l ").nth(1).with_context(|| said.to_owned())?;
    let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().with_context(|| said.to_owned())
}

#[test]
fn memory_that_may_not_be_locked_is_said_with_what_is_enough() -> Result<()> {
    if lacks(&REDIS)? {
        return Ok(());
    }
    let hosts = Hosts::by_xdp("xdplocked")?;
    if hosts.instances().is_some() {
        return Ok(());
    }
    let ends = "run --stack --driver=xdp --dev eth0 -- true";
    let finished = run(&mut locking(&hosts, 64, ends)?, LONG)?;
    let said = finished.stderr;
    ensure!(finished.status.code() == Some(125), "{}: {said}", finished.status);
    ensure!(said.contains("AF_XDP has to lock ") && said.lines().count() == 1, "{said}");
    ensure!(said.contains("eth0, and this user may lock 64 KiB in all"), "{said}");
    ensure!(said.contains("cap_ipc_lock+ep"), "{said}");
    let kib = enough(&said)?;
    run(&mut locking(&hosts, kib, ends)?, LONG)?.successful()?;

    // Enough for one queue is too little for two: the program runs all the same, and says so.
    let scratch = Scratch::new()?;
    let program = find("redis-server").context("no redis-server")?;
    let program = program.to_str().context("a path in UTF-8")?;
    let options = "--bind 0.0.0.0 --appendonly no --protected-mode no --daemonize no";
    let line = format!(
        "run --stack --driver=xdp --queues=2 --dev eth0 -- {program} --port {REDIS_PORT} {options}"
    );
    let mut command = locking(&hosts, kib, &line)?;
    command.args(["--save", ""]);
    let server = Daemon::on_stack(command, &scratch.path("redis.log"), &hosts, REDIS_PORT)?;
    let by_queue = &report(server.pid())?["by_queue"];
    ensure!(by_queue["queues"] == serde_json::json!(["eth0:0"]), "{by_queue}");
    let missing = by_queue["missing"].as_array().with_context(|| by_queue.to_string())?;
    let why = missing.first().and_then(|why| why.as_str()).unwrap_or_default();
    ensure!(why.starts_with("eth0:1 cannot be had: AF_XDP has to lock "), "{by_queue}");
    let (table, _) = crate::on_stack::stat::stat(server.pid(), &[])?;
    ensure!(table.contains("\neth0:1 cannot be had: "), "{table}");
    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    hosts.check_nothing_left(REDIS_PORT)
}
