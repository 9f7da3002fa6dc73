//! tokio, the usual runtime of asynchronous Rust: it registers its sockets through one descriptor
//! of an epoll set, and waits through another.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OURS, THEIRS};
use uncork_e2e::run::run;
use uncork_e2e::{Daemon, Hosts};

use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 7075;
const LONG: Duration = Duration::from_secs(20);

fn echo() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tokio_echo"))
}

/// Asserts that all requests of this command are answered.
fn answered(mut asks: Command, [threads, address]: [&str; 2]) -> Result<()> {
    let said = run(asks.args([threads, "ask", address]), LONG)?.successful()?.stdout;
    ensure!(said == "1000 answers\n", "{threads}: {said}");
    Ok(())
}

#[test]
fn tokio_never_hears_of_who_comes_or_answers() -> Result<()> {
    if lacks(&[])? {
        return Ok(());
    }
    let hosts = Hosts::new("tokio")?;
    let scratch = Scratch::new()?;
    let (ours, theirs) = (format!("{OURS}:{PORT}"), format!("{THEIRS}:{PORT}"));
    for threads in ["one", "many"] {
        let mut command = hosts.on_stack(echo())?;
        command.args([threads, "serve", &ours]);
        let server = Daemon::on_stack(command, &scratch.path("server"), &hosts, PORT)?;
        let before = hosts.counted()?;
        answered(hosts.beside(echo())?, [threads, &ours])?;
        hosts.check_all_on_stack(before)?;
        server.stop(Signal::SIGTERM)?;
        let mut command = hosts.beside(echo())?;
        command.args([threads, "serve", &theirs]);
        let server = Daemon::start(command, &scratch.path("theirs"))?;
        wait_until("the other host listens", || Ok(hosts.theirs.listens(PORT)))?;
        let before = hosts.counted()?;
        answered(hosts.on_stack(echo())?, [threads, &theirs])?;
        hosts.check_all_on_stack(before)?;
        server.stop(Signal::SIGTERM)?;
    }
    hosts.check_nothing_left(PORT)
}
