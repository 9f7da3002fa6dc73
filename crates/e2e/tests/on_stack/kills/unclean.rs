//! A hundred unclean exits, one after the other at one port, with one guardian, or one instance,
//! for all: each time the peers hear of it and the next start works, and in the end nothing has
//! grown or is left.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::{Daemon, Hosts, artifact};

use super::NEVER;
use super::remains::{Remains, processes};
use crate::on_stack::examples::{built, header};
use crate::on_stack::instances::end_of;
use crate::on_stack::{Scratch, lacks, wait_until};

const NEEDED: [(&str, &str); 1] = [("cc", "gcc")];
const PORT: u16 = 7095;
const EXITS: usize = 100;
/// By then all processes have what they keep ready for the next programs.
const WARM: usize = 20;
/// Room for packet sockets and their resources, of which the number made in advance varies.
const AHEAD: usize = 8;
/// No core dumps.
const WITHOUT_CORES: &str = "ulimit -c 0; exec \"$0\" \"$@\"";
const SIGNALS: [Signal; 4] = [Signal::SIGKILL, Signal::SIGABRT, Signal::SIGSEGV, Signal::SIGBUS];

#[test]
fn a_hundred_unclean_exits_leave_something_with_a_guardian() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("unclean")?;
    hosts.stop_instances()?;
    let (scratch, uncork) = (Scratch::new()?, artifact::uncork()?);
    let uncork = uncork.to_str().context("a path in UTF-8")?;
    let name = format!("e2e-{}", hosts.ours.name());
    let mut command = hosts.ours.command(uncork);
    command.args(["stack", "guard", "--dev", "eth0", "--name", &name]);
    let guardian = Daemon::start(command, &scratch.path("guardian.log"))?;
    let place = Path::new("/run/uncork/guard").join(&name);
    wait_until("the guardian can be found", || Ok(place.exists()))?;
    let remains = end_uncleanly(&hosts, &scratch, &|| {
        let mut command = hosts.ours.command(uncork);
        command.args(["run", "--stack", "--guardian", &name, "--", "/bin/sh"]);
        command.env("UNCORK_LIBRARY", artifact::library()?);
        Ok(command)
    })?;
    guardian.stop(Signal::SIGTERM)?;
    remains.check(&hosts, PORT)
}

#[test]
fn a_hundred_unclean_exits_leave_something_on_an_instance() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::with_instances("uncleaninst", 1)?;
    let remains = end_uncleanly(&hosts, &Scratch::new()?, &|| hosts.on_stack("/bin/sh"))?;
    remains.check(&hosts, PORT)
}

/// Returns what must be gone once guardian and instances are. `shell` is sh(1) on the stack.
fn end_uncleanly(
    hosts: &Hosts,
    scratch: &Scratch,
    shell: &dyn Fn() -> Result<Command>,
) -> Result<Remains> {
    let program = built(scratch, "helloworld_stack_epoll", &[])?;
    let (mut remains, mut warm) = (Remains::default(), 0);
    for (exit, signal) in SIGNALS.into_iter().cycle().take(EXITS).enumerate() {
        let mut command = shell()?;
        command.args(["-c", WITHOUT_CORES]).arg(&program).arg(PORT.to_string());
        let server = Daemon::start(command, &scratch.path("log"))?;
        let what = || format!("exit {exit}, by {signal}: {}", server.said());
        let peers = [is_served(hosts).with_context(what)?, hosts.connect(PORT)?];
        if exit % WARM == 0 {
            remains.note(hosts).with_context(what)?;
        }
        server.signal(signal)?;
        let killed = Instant::now();
        let heard = peers.map(|peer| end_of(peer) - killed);
        ensure!(heard.iter().all(|took| *took < NEVER), "{}: heard after {heard:?}", what());
        let status = server.wait(NEVER)?;
        ensure!(status.signal() == Some(signal as i32), "exit {exit}, by {signal}: {status}");
        if exit == WARM {
            warm = descriptors(hosts)?;
        }
    }
    let flat = || Ok(descriptors(hosts)? <= warm + AHEAD);
    wait_until("guardian and instance have no more descriptors than before", flat)?;
    Ok(remains)
}

/// Returns a peer that the stack has answered. Until the server is up, connections are refused.
fn is_served(hosts: &Hosts) -> Result<TcpStream> {
    let begun = Instant::now();
    loop {
        if let Ok(mut stream) = hosts.connect(PORT)
            && header(&mut stream, "Place").is_ok_and(|place| place == "stack")
        {
            return Ok(stream);
        }
        ensure!(begun.elapsed() < NEVER, "nobody serves on the stack");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Counts the descriptors of all live processes.
fn descriptors(hosts: &Hosts) -> Result<usize> {
    let count = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    Ok(processes(hosts)?.iter().map(|one| count(one.pid)).sum())
}
