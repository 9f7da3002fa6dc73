//! Where each socket of a program is, and why: reported while it runs, and at its end.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use uncork_e2e::cpython::PYTHON;
use uncork_e2e::hosts::THEIRS;
use uncork_e2e::{Daemon, Hosts, artifact, run};

use crate::on_stack::{Scratch, kernel_nginx, lacks, wait_until};

const PORT: u16 = 7080;
const NEEDED: [(&str, &str); 2] = [("python3", "python3"), ("nginx", "nginx-light")];
const LONG: Duration = Duration::from_secs(20);
const OPTION: &str = "only the kernel knows an option that it has set: 1, 12";
const ASYNC: &str = "signals are to tell of what comes (O_ASYNC), and only the kernel sends them";
const OWNED: &str =
    "signals are to tell its owner of urgent data (F_SETOWN), and only the kernel sends them";
const STREAM: &str = "it is read and written by stdio (fdopen)";
const ASKED_FOR: &str = "the program asks for a socket of the kernel's (SOCK_KERNEL)";
const LOOPBACK: &str = "it listens at an address of the loopback device";
const ANOTHER_WAY: &str = "the way to the other end leads over none of the stack's devices";

const BY_PORTS: &str =
    "a rule (ip-rule(8)) leads connections with its ports another way than others";
const BY_ANOTHER: &str = "is on the stack of another program, which has a guardian of its own";
const ELSEWHERE: &str = "another process may have had it before it was connected";
const CAME_ANOTHER_WAY: &str = "it came to the kernel: not over one of the stack's devices";

/// What `uncork stack why` must say of each socket of `py/places.py`, and its exit status.
const PLACES: [(&str, &str, i32); 17] = [
    ("listener", "on the stack: it listens there, and on the kernel for other ways", 0),
    ("twin", "on the stack: it listens there, and on the kernel for other ways", 0),
    ("accepted", "on the stack: it was accepted there", 0),
    ("connected", "on the stack: it was connected there", 0),
    ("child", "a program that was started has it, too (vfork)", 1),
    ("later", "undecided: it listens, and its process has not waited there yet", 1),
    ("unused", "undecided: it neither listens nor has it been connected", 1),
    ("loopback", LOOPBACK, 1),
    ("asks", ASKED_FOR, 1),
    ("inside", ANOTHER_WAY, 1),
    ("other-way", CAME_ANOTHER_WAY, 1),
    ("option", OPTION, 1),
    ("asynchronous", ASYNC, 1),
    ("owned", OWNED, 1),
    ("streamed", STREAM, 1),
    ("by-port", BY_PORTS, 1),
    ("forked", ELSEWHERE, 1),
];

/// Runs `uncork` with these arguments; returns its output and exit status.
fn uncork(arguments: &[&str]) -> Result<(String, Option<i32>)> {
    let finished = run(Command::new(artifact::uncork()?).args(arguments), LONG)?;
    Ok((finished.stdout + &finished.stderr, finished.status.code()))
}

/// Has the kernel send what goes to one port of theirs by a router that is not there.
fn lead_aside(hosts: &Hosts) -> Result<()> {
    hosts.ours.ip(&format!("route add {THEIRS} via 10.95.0.99 dev eth0 table 100"))?;
    hosts.ours.ip(&format!("rule add ipproto tcp dport {} lookup 100", PORT + 4))
}

/// Returns the descriptors that the program has named, once it has named all.
fn named(server: &Daemon) -> Result<BTreeMap<String, String>> {
    let is_all = |said: &str| said.lines().any(|line| line.trim() == "all 0");
    let said_all = wait_until("the program has said all", || Ok(is_all(&server.said())));
    said_all.with_context(|| server.said())?;
    let said = server.said();
    let lines = said.lines().filter_map(|line| line.trim().split_once(' '));
    Ok(lines.map(|(name, fd)| (name.to_owned(), fd.to_owned())).collect())
}

#[test]
fn nobody_can_tell_why_a_socket_is_not_on_the_stack() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("why")?;
    let scratch = Scratch::new()?;
    let far = kernel_nginx(&hosts, &scratch, PORT)?;
    lead_aside(&hosts)?;
    let mut command = hosts.on_stack("/usr/bin/python3")?;
    command.arg(artifact::source("py/places.py")).args([&PORT.to_string(), THEIRS]);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let mut stream = hosts.connect(PORT)?;
    stream.write_all(b"g")?;
    let fds = named(&server)?;
    let pid = server.pid().to_string();

    let refusal = fds.get("refusal").map(String::as_str);
    ensure!(refusal == Some("22"), "O_ASYNC is not refused with EINVAL: {refusal:?}");
    for (name, wanted, status) in PLACES {
        let fd = fds.get(name).with_context(|| format!("no {name}: {}", server.said()))?;
        let (said, code) = uncork(&["stack", "why", &format!("{pid}:{fd}")])?;
        ensure!(said.contains(wanted) && code == Some(status), "{name}: {said}, {code:?}");
    }
    // `uncork stack stat` reports all of them briefly, beside what the stack does.
    let (said, code) = uncork(&["stack", "stat", &pid])?;
    for why in [LOOPBACK, ASKED_FOR, ANOTHER_WAY, OPTION, ELSEWHERE] {
        let is_it = |line: &str| line.contains(" with the kernel: ") && line.contains(why);
        ensure!(said.lines().any(is_it) && code == Some(0), "{why}: {said}, {code:?}");
    }
    ensure!(said.contains("\nwith the kernel now: descriptors "), "{said}");
    let (said, code) = uncork(&["stack", "stat", "--json", &pid])?;
    let told: Value = serde_json::from_str(&said)?;
    let sockets =
        told["stack"]["sockets"].as_array().with_context(|| format!("{said}, {code:?}"))?;
    let is_it = |one: &&Value| one["fd"].as_i64() == fds["loopback"].parse().ok();
    let loopback = sockets.iter().find(is_it).with_context(|| said.clone())?;
    ensure!(loopback["place"] == "kernel", "{loopback}");
    ensure!(told["connections"].is_array(), "{said}");

    let (said, code) = uncork(&["stack", "why", &format!("{pid}:{}", fds["inside"])])?;
    ensure!(said.contains(&format!("to 127.0.0.1:{PORT}: the kernel's")), "{said}, {code:?}");
    for (of, wanted, status) in [
        (format!("{pid}:{}", fds["file"]), "is no TCP socket", 2),
        (format!("{pid}:99999"), "is no TCP socket", 2),
        (far.pid().to_string(), "libuncork.so is not in process", 4),
        ("nginx".to_owned(), "4711 or 4711:9", 2),
    ] {
        let (said, code) = uncork(&["stack", "why", &of])?;
        ensure!(said.contains(wanted) && code == Some(status), "{of}: {said}, {code:?}");
    }
    let (said, code) = uncork(&["stack", "why", &pid])?;
    ensure!(said.lines().count() >= PLACES.len() && said.contains(OPTION), "{said}, {code:?}");
    let (said, _) = uncork(&["status", &pid])?;
    ensure!(said.contains(&format!("1 with the kernel: {OPTION}")), "{said}");

    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    far.stop(Signal::SIGTERM)?;
    Ok(())
}

#[test]
fn the_report_at_the_end_does_not_know_the_stack() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("whyend")?;
    let scratch = Scratch::new()?;
    let far = kernel_nginx(&hosts, &scratch, PORT)?;
    lead_aside(&hosts)?;
    let mut command = hosts.on_stack("/usr/bin/python3")?;
    command.arg(artifact::source("py/places.py")).args([&PORT.to_string(), THEIRS]);
    let stats = scratch.path("stats.json");
    command.env("UNCORK_STATS", &stats);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    hosts.connect(PORT)?.write_all(b"g")?;
    named(&server)?;
    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    far.stop(Signal::SIGTERM)?;

    let told = std::fs::read_to_string(&stats)?;
    let report: Value = serde_json::from_str(told.lines().last().context("no report")?)?;
    let stack = &report["stack"];
    // Connections of the rig, which has waited for the server, have come and gone.
    ensure!(stack["accepted"].as_u64() >= Some(2) && stack["listening"] == 1, "{report:#}");
    ensure!(stack["connected"] == 4, "{report:#}");
    let kernels = stack["kernel"].as_object().context("nothing of the kernel's")?;
    // One, and perhaps the rig's; twenty more have come over a Unix socket, which is not TCP.
    for (why, most) in [
        (OPTION, 1),
        (ASYNC, 1),
        (OWNED, 1),
        (STREAM, 1),
        (BY_PORTS, 1),
        (ASKED_FOR, 1),
        (LOOPBACK, 1),
        (ANOTHER_WAY, 1),
        (ELSEWHERE, 1),
        (CAME_ANOTHER_WAY, 19),
    ] {
        let of_it = kernels.iter().filter(|(told, _)| told.starts_with(why));
        let count: u64 = of_it.filter_map(|(_, sockets)| sockets.as_u64()).sum();
        ensure!((1..=most).contains(&count), "{why}: {report:#}");
    }
    Ok(())
}

/// Two programs started apart, as a new version beside the old one: SO_REUSEPORT lets both listen.
#[test]
fn two_guardians_answer_for_one_port() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::by_packet_sockets("guardians")?;
    hosts.stop_instances()?;
    let scratch = Scratch::new()?;
    let start = |label: &str| {
        let mut command = hosts.on_stack(PYTHON)?;
        command.arg(artifact::source("py/shares.py")).arg(PORT.to_string());
        Daemon::on_stack(command, &scratch.path(label), &hosts, PORT)
    };
    let first = start("first")?;
    let second = start("second")?;
    let told = || Ok(uncork(&["stack", "why", &second.pid().to_string()])?.0.contains(BY_ANOTHER));
    wait_until("the second says why it is the kernel's", told)?;
    for _ in 0..20 {
        let stream = hosts.connect(PORT)?;
        hosts.check_on_stack(&stream)?;
        answered_by(stream, first.pid())?;
    }
    first.stop(Signal::SIGTERM)?;
    for _ in 0..20 {
        answered_by(hosts.connect(PORT)?, second.pid())?;
    }
    second.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

fn answered_by(mut stream: TcpStream, pid: u32) -> Result<()> {
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    ensure!(said == pid.to_string(), "{said} has answered, not {pid}");
    Ok(())
}
