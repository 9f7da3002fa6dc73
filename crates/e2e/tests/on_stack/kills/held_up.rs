//! A stack that is stopped while its guardian is killed: what comes meanwhile goes to the kernel,
//! and frames that wait for the stack have already been answered when it continues.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;
use uncork_e2e::late::{ensure_soon, in_time};
use uncork_e2e::{Hosts, alone};

use super::remains::{Process, Remains, processes};
use crate::on_stack::instances::{end_by, end_of, is_echoed, server};
use crate::on_stack::{Scratch, lacks, wait_until};

const NEEDED: [(&str, &str); 1] = [("python3", "python3")];
const PORT: u16 = 7092;
/// How long a peer that loses its connection may take to hear of that.
const SOON: Duration = Duration::from_millis(500);

#[test]
fn a_program_that_was_held_up_answers_for_the_kernel() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("a program that was held up", || {
        answers_for_the_kernel(&alone.hosts("heldup")?, Process::is_programs)
    })
}

#[test]
fn an_instance_that_was_held_up_answers_for_the_kernel() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("an instance that was held up", || {
        answers_for_the_kernel(&alone.with_instances("heldupinst", 2)?, Process::is_instance)
    })
}

fn answers_for_the_kernel(hosts: &Hosts, is_held_up: fn(&Process) -> bool) -> Result<()> {
    let scratch = Scratch::new()?;
    let echo = server(hosts, &scratch, "echo", PORT)?;
    let mut streams: Vec<_> = (0..8).map(|_| hosts.connect(PORT)).collect::<Result<_>>()?;
    streams.iter_mut().try_for_each(|stream| is_echoed(stream, 2000))?;

    let mut remains = Remains::default();
    remains.note(hosts)?;
    let all = processes(hosts)?;
    let held_up: Vec<_> = all.iter().filter(|one| is_held_up(one)).map(|one| one.pid).collect();
    let guardian = all.iter().find(|one| one.is_guardian()).context("no guardian")?.pid;
    held_up.iter().try_for_each(|pid| end_by(Signal::SIGSTOP, *pid))?;
    let killed = Instant::now();
    end_by(Signal::SIGKILL, guardian)?;
    let late = streams.into_iter().map(end_of).max().context("no peers")? - killed;
    ensure_soon(late, SOON, || format!("a peer has heard of its end after {late:?}"))?;
    let mut came: Vec<_> = (0..8).map(|_| hosts.connect(PORT)).collect::<Result<_>>()?;
    held_up.iter().try_for_each(|pid| end_by(Signal::SIGCONT, *pid))?;
    wait_until("the stack has left its device", || Ok(hosts.packet_sockets()? == 0))?;
    came.iter_mut().try_for_each(|stream| is_echoed(stream, 2000))?;
    drop(came);
    echo.stop(Signal::SIGTERM)?;
    let _killed = hosts.instances().take();
    remains.check(hosts, PORT)
}
