//! Peers of connections that the kernel has in TIME-WAIT hear of a kill as well.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OUR_V6, OURS, end};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, artifact, run};

use super::remains::{Process, processes};
use crate::on_stack::instances::end_by;
use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 7094;
/// The peers' first port, and how many ports each case may use.
const FIRST: u16 = 21_000;
const CASE: u16 = 100;
/// Half of the peers use IPv4, the others IPv6.
const PEERS: usize = 16;
/// How often peers may be replaced whose old ends a busy kernel has lost: one ACK of a FIN too
/// many, and the peer's reset ends TIME-WAIT (RFC 1337).
const TRIES: usize = 3;
/// How long the guardian leaves segments to the kernel that had the connection, and a bit more.
const STAYS: Duration = Duration::from_secs(4);
/// How long peers may take to hear of it.
const SOON: Duration = Duration::from_millis(100);
/// By then a guardian that hears of a program's end has asked its peers for their sequence numbers,
/// and still waits for them.
const ASKED: Duration = Duration::from_millis(100);

#[test]
fn peers_whose_ends_the_kernel_has_in_time_wait_hang_behind_a_kill() -> Result<()> {
    // The guardian resets them, or its heir does.
    each_case(
        "waited",
        &[&|hosts| kill(hosts, Process::is_programs), &|hosts| kill(hosts, |one| !one.is_heir())],
    )
}

/// The guardian is killed after it has asked them and before any answer: its heir asks again.
#[test]
fn peers_hang_whose_guardian_dies_before_they_have_answered() -> Result<()> {
    each_case(
        "unanswered",
        &[&|hosts| {
            are_heard(hosts, false)?;
            kill(hosts, Process::is_programs)?;
            thread::sleep(ASKED);
            are_heard(hosts, true)?;
            kill(hosts, Process::is_guardian)
        }],
    )
}

/// Kills processes, and returns when it began.
type Killer<'a> = &'a dyn Fn(&Hosts) -> Result<Instant>;

/// Asserts that the peers of a server whose processes are killed in each of these ways hear of it.
fn each_case(label: &str, cases: &[Killer<'_>]) -> Result<()> {
    if lacks(&[("python3", "python3")])? {
        return Ok(());
    }
    let hosts = Hosts::new(label)?;
    // Instances end the connections of a dead program themselves.
    hosts.stop_instances()?;
    for (from, ends) in (FIRST..).step_by(CASE.into()).zip(cases) {
        let scratch = Scratch::new()?;
        let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
        command.arg(artifact::source("py/end_first.py")).arg(PORT.to_string());
        let _server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        let peers = peers_who_come_again(&hosts, from)?;
        let killed = ends(&hosts)?;
        for mut peer in peers {
            let heard = peer.read(&mut [0]).map_err(|error| error.kind());
            let is_reset = heard == Err(ErrorKind::ConnectionReset);
            ensure!(is_reset, "{:?} hears {heard:?}", peer.local_addr());
        }
        let took = killed.elapsed();
        ensure!(took < SOON, "it took {took:?} until all had heard");
        wait_until("all have ended", || Ok(processes(&hosts)?.is_empty()))?;
    }
    hosts.check_nothing_left(PORT)
}

/// Kills these processes, and returns when it began.
fn kill(hosts: &Hosts, victims: impl Fn(&Process) -> bool) -> Result<Instant> {
    let all = processes(hosts)?;
    let begun = Instant::now();
    for one in all.iter().filter(|one| victims(one)) {
        end_by(Signal::SIGKILL, one.pid)?;
    }
    Ok(begun)
}

/// Sets whether the other host has a route for its packets to ours.
fn are_heard(hosts: &Hosts, are: bool) -> Result<()> {
    for to in [OURS, OUR_V6] {
        let mut command = Command::new("ip");
        command.args(["-n", hosts.theirs.name(), "route"]);
        run(command.args([if are { "del" } else { "add" }, "blackhole", to]), SOON * 100)?
            .successful()?;
    }
    Ok(())
}

/// Returns peers on the stack, from ports of earlier kernel connections that our end closed first.
fn peers_who_come_again(hosts: &Hosts, from: u16) -> Result<Vec<TcpStream>> {
    let (mut peers, mut ports) = (Vec::new(), from..from + CASE);
    for _ in 0..TRIES {
        let lacking: Vec<u16> = ports.by_ref().take(PEERS - peers.len()).collect();
        come_and_end(hosts, &lacking)?;
        thread::sleep(STAYS);
        for port in lacking {
            peers.extend(comes_again(hosts, port)?);
        }
        if peers.len() == PEERS {
            return Ok(peers);
        }
    }
    bail!("the kernel has nothing in TIME-WAIT, so this tests nothing")
}

fn come_and_end(hosts: &Hosts, ports: &[u16]) -> Result<()> {
    for port in ports {
        let mut first = connect_from(hosts, *port)?;
        first.write_all(b"end")?;
        ensure!(first.read(&mut [0])? == 0, "more than the end");
    }
    Ok(())
}

/// Returns `None` if the kernel has nothing in TIME-WAIT.
fn comes_again(hosts: &Hosts, port: u16) -> Result<Option<TcpStream>> {
    let mut peer = connect_from(hosts, port)?;
    peer.write_all(b"?")?;
    peer.read_exact(&mut [0])?;
    hosts.check_on_stack(&peer)?;
    Ok(hosts.kernel_waits(peer.local_addr()?)?.then_some(peer))
}

fn connect_from(hosts: &Hosts, port: u16) -> Result<TcpStream> {
    let to = if port.is_multiple_of(2) { OURS } else { OUR_V6 };
    hosts.connect_from(port, end(to, PORT)?)
}
