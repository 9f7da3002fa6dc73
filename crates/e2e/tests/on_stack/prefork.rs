//! Workers that serve one connection after the other. Short connections are better served by the
//! kernel's single queue, and then cost no more than without the stack; long-lived ones are worth
//! the stack.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use uncork_e2e::hosts::{THEIRS, end};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, artifact, run};

use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 5350;
const NEEDED: [(&str, &str); 1] = [("python3", "python3")];
/// Enough connections for each of four workers to be recognised.
const SHORT: usize = 200;
/// Connections that are kept open, and exchanges on each.
const KEPT: usize = 60;
const EXCHANGES: usize = 12;
/// At least this many are the kernel's once the workers are recognised.
const MOST: u64 = SHORT as u64 / 2;
/// Concurrent clients, served by four workers that block at the same time.
const CROWD: usize = 4;
/// Requests to the other workers while the listener has O_NONBLOCK.
const WHILE_SET: usize = 12;
const LONG: Duration = Duration::from_secs(10);
const PEER_SAYS: &str = "by the peer";

fn serve(hosts: &Hosts, scratch: &Scratch) -> Result<Daemon> {
    let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
    command.arg(artifact::source("py/prefork.py")).args([&PORT.to_string(), THEIRS]);
    Daemon::on_stack(command, &scratch.path("log"), hosts, PORT)
}

/// Sends this many requests on one connection, and returns the worker that has answered.
fn ask(hosts: &Hosts, exchanges: usize) -> Result<u32> {
    let mut stream = hosts.connect(PORT)?;
    stream.set_read_timeout(Some(LONG))?;
    let mut worker = 0;
    for _ in 0..exchanges {
        stream.write_all(b"?")?;
        worker = line(&mut stream)?.parse()?;
    }
    Ok(worker)
}

fn line(stream: &mut TcpStream) -> Result<String> {
    let mut said = String::new();
    let mut octet = [0];
    loop {
        stream.read_exact(&mut octet)?;
        match octet[0] {
            b'\n' => return Ok(said),
            other => said.push(char::from(other)),
        }
    }
}

#[test]
fn short_connections_to_workers_that_block_are_the_kernels_and_cost_nobody_a_device() -> Result<()>
{
    if lacks(&NEEDED)? {
        return Ok(());
    }
    // Queues of AF_XDP stay where they are, and an instance has one queue for all.
    let hosts = Hosts::by_packet_sockets("prefork")?;
    hosts.stop_instances()?;
    let scratch = Scratch::new()?;
    let server = serve(&hosts, &scratch)?;
    let before = hosts.counted()?;
    let asked = hosts.crowd(CROWD, |_| (0..SHORT).map(|_| ask(&hosts, 1)).collect::<Result<_>>());
    let workers: BTreeSet<u32> = asked?.into_iter().flat_map(|all: Vec<u32>| all).collect();
    ensure!(workers.len() == 4, "not four have served: {workers:?}\n{}", server.said());
    let opens = hosts.opened_since(before)?;
    ensure!(opens >= MOST, "only {opens} connections of {} were the kernel's", CROWD * SHORT);
    // Peers have closed first, so that nothing is left on any stack.
    let is_put_away = || {
        ask(&hosts, 1)?;
        Ok(hosts.devices_in_use()? == 0)
    };
    wait_until("no worker has a device", is_put_away).with_context(|| server.said())?;

    let said = server.said();
    let fd = said.lines().find_map(|line| line.trim().strip_prefix("listener "));
    let worker = workers.first().context("no worker")?;
    let of = format!("{worker}:{}", fd.context("no listener")?);
    let told = run(Command::new(artifact::uncork()?).args(["stack", "why", &of]), LONG)?;
    ensure!(told.stdout.contains("take turns") && told.status.code() == Some(1), "{told:?}");

    // What a worker sets on the shared listener counts for all, as on the kernel's sockets: the accept(2) that others are in takes
    // one more connection each, and further ones do not wait.
    let mut sets = hosts.connect(PORT)?;
    sets.set_read_timeout(Some(LONG))?;
    sets.write_all(b"n")?;
    let setter: u32 = line(&mut sets)?.parse()?;
    for _ in 0..WHILE_SET {
        ensure!(ask(&hosts, 1)? != setter, "it serves two at a time");
    }
    drop(sets);
    let said = server.said();
    ensure!(!said.contains("has ended"), "{said}");
    ensure!(
        said.contains("not to be waited for"),
        "O_NONBLOCK counts for the one who sets it alone"
    );

    // A worker that connects gets a stack again.
    let peer: SocketAddr = end(THEIRS, PORT + 1)?;
    let peer = hosts.theirs.within(move || Ok(TcpListener::bind(peer)?))?;
    let before = hosts.counted()?;
    thread::scope(|scope| {
        let accepted = scope.spawn(|| -> Result<()> {
            let (mut stream, _) = peer.accept()?;
            Ok(stream.write_all(format!("{PEER_SAYS}\n").as_bytes())?)
        });
        let mut stream = hosts.connect(PORT)?;
        stream.set_read_timeout(Some(LONG))?;
        stream.write_all(b"c")?;
        let said = line(&mut stream)?;
        ensure!(said == PEER_SAYS, "{said}");
        accepted.join().map_err(|_| anyhow::anyhow!("the peer panicked"))?
    })?;
    let (opens, devices) = (hosts.opened_since(before)?, hosts.devices_in_use()?);
    ensure!(opens == 1 && devices == 1, "{opens} of the kernel's, {devices} devices");
    ensure!(!server.said().contains("has ended"), "{}", server.said());
    drop(server);
    hosts.check_nothing_left(PORT)
}

#[test]
fn connections_that_are_kept_stay_on_the_stack_of_workers_that_block() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("kept")?;
    let scratch = Scratch::new()?;
    let server = serve(&hosts, &scratch)?;
    let before = hosts.counted()?;
    for _ in 0..KEPT {
        ask(&hosts, EXCHANGES)?;
    }
    hosts.check_all_on_stack(before).with_context(|| server.said())?;
    drop(server);
    hosts.check_nothing_left(PORT)
}
