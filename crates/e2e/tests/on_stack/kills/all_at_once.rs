//! The guardian's heir is killed together with guardian and program: no process is left to tell the
//! peers. They find out by their own timers, or when they send data, which the kernel answers;
//! nothing is left, and the next start works.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use socket2::{SockRef, TcpKeepalive};
use uncork_e2e::Hosts;

use super::NEVER;
use super::remains::{Process, Remains, processes};
use crate::on_stack::instances::{end_by, is_echoed, server};
use crate::on_stack::{Scratch, lacks, wait_until};

const NEEDED: [(&str, &str); 1] = [("python3", "python3")];
const PORT: u16 = 7096;
/// How long a silent peer is watched: if it were told of a death, it would hear much earlier.
const WATCHED: Duration = Duration::from_millis(500);
/// The keepalive time of a peer that wants to know.
const ASKS_AFTER: Duration = Duration::from_secs(1);

#[test]
fn a_program_killed_with_guardian_and_heir_leaves_something_behind() -> Result<()> {
    let hosts = Hosts::new("allgone")?;
    hosts.stop_instances()?;
    kill_all_at_once(&hosts)
}

#[test]
fn an_instance_killed_with_guardian_and_heir_leaves_something_behind() -> Result<()> {
    kill_all_at_once(&Hosts::with_instances("allgoneinst", 2)?)
}

fn kill_all_at_once(hosts: &Hosts) -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let echo = server(hosts, &scratch, "echo", PORT)?;
    let mut peers: Vec<_> = (0..3).map(|_| hosts.connect(PORT)).collect::<Result<_>>()?;
    for peer in &mut peers {
        is_echoed(peer, 2000)?;
        hosts.check_on_stack(peer)?;
    }
    let [mut silent, mut talks, mut asks] =
        <[TcpStream; 3]>::try_from(peers).ok().context("three peers")?;
    let probes = TcpKeepalive::new().with_time(ASKS_AFTER).with_interval(ASKS_AFTER);
    SockRef::from(&asks).set_tcp_keepalive(&probes)?;
    let mut remains = Remains::default();
    remains.note(hosts)?;
    let attached = hosts.instances().is_some();

    kill_together(&processes(hosts)?)?;
    wait_until("all have ended", || Ok(processes(hosts)?.is_empty()))?;
    drop(echo);
    silent.set_read_timeout(Some(WATCHED))?;
    let heard = hears(&mut silent);
    ensure!(heard == Err(ErrorKind::WouldBlock), "somebody has told a peer: {heard:?}");
    // The kernel has no such connection.
    let said = Instant::now();
    ensure!(is_echoed(&mut talks, 1).is_err(), "a peer is served by nobody");
    ensure!(said.elapsed() < WATCHED, "who speaks hears nothing for {:?}", said.elapsed());
    asks.set_read_timeout(Some(NEVER))?;
    let heard = hears(&mut asks);
    ensure!(heard == Err(ErrorKind::ConnectionReset), "who asks hears {heard:?}");

    if attached {
        hosts.start_instances(2)?;
    }
    let echo = server(hosts, &scratch, "echo", PORT).context("the next start")?;
    let mut new = hosts.connect(PORT)?;
    is_echoed(&mut new, 2000)?;
    hosts.check_on_stack(&new)?;
    drop(new);
    remains.note(hosts)?;
    echo.stop(Signal::SIGTERM)?;
    remains.check(hosts, PORT)
}

/// Returns what a peer reads, whatever child processes of this one do meanwhile.
fn hears(peer: &mut TcpStream) -> std::result::Result<usize, ErrorKind> {
    loop {
        match peer.read(&mut [0]).map_err(|error| error.kind()) {
            Err(ErrorKind::Interrupted) => {}
            heard => return heard,
        }
    }
}

/// Stops all before it kills any, so that none reacts to the end of another.
fn kill_together(all: &[Process]) -> Result<()> {
    let has = |is: fn(&Process) -> bool| all.iter().any(is);
    ensure!(has(Process::is_guardian) && has(Process::is_heir), "they are not all there: {all:?}");
    all.iter().try_for_each(|one| end_by(Signal::SIGSTOP, one.pid))?;
    all.iter().try_for_each(|one| end_by(Signal::SIGKILL, one.pid))
}
