//! Clients on the stack: curl, which waits by poll(2), and wrk, with threads and sets. The servers are the kernel's.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{THEIR_V6, THEIRS};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, run};

use crate::{Scratch, kernel_nginx, lacks};

const PORT: u16 = 8084;
const HUGE: usize = 100_000_000;
const LONG: Duration = Duration::from_secs(30);

fn pages(label: &str) -> Result<(Hosts, Scratch, Daemon)> {
    let hosts = Hosts::new(label)?;
    let scratch = Scratch::new()?;
    for (name, length) in [("small", 602), ("page", 100_000), ("huge", HUGE)] {
        scratch.file(name, length)?;
    }
    let server = kernel_nginx(&hosts, &scratch, PORT)?;
    Ok((hosts, scratch, server))
}

#[test]
fn curl_writes_other_bytes_than_it_was_sent() -> Result<()> {
    if lacks(&[("curl", "curl"), ("nginx", "nginx-light")])? {
        return Ok(());
    }
    let (hosts, scratch, server) = pages("curl")?;
    let before = hosts.counted()?;
    let curl = find("curl").context("no curl")?;
    for (host, parallel) in [(THEIRS.to_owned(), false), (format!("[{THEIR_V6}]"), true)] {
        let mut command = hosts.on_stack(&curl)?;
        command.args(["-sSfg", "--no-buffer"]).args(parallel.then_some("--parallel"));
        for name in ["small", "page", "huge", "page"] {
            command.arg("-o").arg(scratch.path(&format!("got-{name}")));
            command.arg(format!("http://{host}:{PORT}/{name}"));
        }
        run(&mut command, LONG)?.successful()?;
        for name in ["small", "page", "huge"] {
            let got = scratch.path(&format!("got-{name}"));
            ensure!(fs::read(&got)? == fs::read(scratch.path(name))?, "{name} by {host}");
            fs::remove_file(got)?;
        }
    }
    // Nobody listens: what connect(2) says comes by SO_ERROR.
    let mut refused = hosts.on_stack(&curl)?;
    let refused = run(refused.args(["-sS", &format!("http://{THEIRS}:1/")]), LONG)?;
    ensure!(refused.status.code() == Some(7), "{}: {}", refused.status, refused.stderr);
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn wrk_counts_errors() -> Result<()> {
    if lacks(&[("wrk", "wrk"), ("nginx", "nginx-light")])? {
        return Ok(());
    }
    let (hosts, _scratch, server) = pages("wrk")?;
    let before = hosts.counted()?;
    for (name, connections) in [("small", "64"), ("page", "8")] {
        let mut command = hosts.on_stack(find("wrk").context("no wrk")?)?;
        command.args(["-t", "2", "-c", connections, "-d", "1"]);
        let said =
            run(command.arg(format!("http://{THEIRS}:{PORT}/{name}")), LONG)?.successful()?;
        let wrong = ["Socket errors", "Non-2xx", " 0 requests in"];
        ensure!(!wrong.iter().any(|text| said.stdout.contains(text)), "{}", said.stdout);
        ensure!(said.stdout.contains("requests in"), "{}", said.stdout);
    }
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}
