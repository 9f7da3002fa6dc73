//! Whose ends the kernel has in TIME-WAIT hears of a kill as well.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OUR_V6, OURS, end};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, artifact};

use super::remains::{Process, processes};
use crate::instances::end_by;
use crate::{Scratch, lacks, wait_until};

const PORT: u16 = 7094;
/// The peers' first port.
const FIRST: u16 = 21_000;
/// By both versions of IP.
const PEERS: u16 = 16;
/// How long the guardian goes on leaving segments of a connection to the kernel that had it, and a little more.
const STAYS: Duration = Duration::from_secs(4);
/// So long peers may take to hear of it.
const SOON: Duration = Duration::from_millis(100);

#[test]
fn peers_whose_ends_the_kernel_has_in_time_wait_hang_behind_a_kill() -> Result<()> {
    if lacks(&[("python3", "python3")])? {
        return Ok(());
    }
    let hosts = Hosts::new("waited")?;
    // The guardian resets them, or its heir.
    let program: fn(&Process) -> bool = Process::is_programs;
    for (from, victims) in [(FIRST, program), (FIRST + PEERS, |one| !one.is_heir())] {
        let scratch = Scratch::new()?;
        let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
        command.arg(artifact::source("py/end_first.py")).arg(PORT.to_string());
        let _server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        let peers = peers_who_come_again(&hosts, from)?;
        let killed = Instant::now();
        for one in processes(&hosts)?.iter().filter(|one| victims(one)) {
            end_by(Signal::SIGKILL, one.pid)?;
        }
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

/// On the stack, from ports that the kernel's connections had before, whose end was ours.
fn peers_who_come_again(hosts: &Hosts, from: u16) -> Result<Vec<TcpStream>> {
    let ends: Vec<(u16, SocketAddr)> = (0..PEERS)
        .map(|at| Ok((from + at, end(if at % 2 == 0 { OURS } else { OUR_V6 }, PORT)?)))
        .collect::<Result<_>>()?;
    for (port, to) in &ends {
        let mut first = hosts.connect_from(*port, *to)?;
        first.write_all(b"end")?;
        ensure!(first.read(&mut [0])? == 0, "more than the end");
    }
    thread::sleep(STAYS);
    let again = ends.into_iter().map(|(port, to)| {
        let mut peer = hosts.connect_from(port, to)?;
        peer.write_all(b"?")?;
        peer.read_exact(&mut [0])?;
        hosts.check_on_stack(&peer)?;
        let waits = hosts.kernel_waits(peer.local_addr()?)?;
        ensure!(waits, "the kernel has nothing in TIME-WAIT, so this tests nothing");
        Ok(peer)
    });
    again.collect()
}
