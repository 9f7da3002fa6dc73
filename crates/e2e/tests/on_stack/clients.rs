//! Clients on the stack: curl, which waits by poll(2), and wrk, with threads and sets. The servers are the kernel's.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{THEIR_V6, THEIRS, end};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, artifact, run};

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

/// Sends back what comes, to all at once, until somebody says good-bye.
pub(crate) fn echo(listener: &TcpListener) {
    for stream in listener.incoming().map_while(Result::ok) {
        thread::spawn(move || -> std::io::Result<()> {
            let mut stream: TcpStream = stream;
            let mut octets = [0; 100];
            loop {
                match stream.read(&mut octets)? {
                    0 => return Ok(()),
                    3 if octets.starts_with(b"bye") => return Ok(()),
                    count => stream.write_all(&octets[..count])?,
                }
            }
        });
    }
}

#[test]
fn who_opens_many_connections_shares_a_port_with_another() -> Result<()> {
    if lacks(&[("python3", "python3")])? {
        return Ok(());
    }
    dials(Hosts::new("dials")?)
}

#[test]
fn who_opens_many_connections_on_an_instance_shares_a_port_with_another() -> Result<()> {
    if lacks(&[("python3", "python3")])? {
        return Ok(());
    }
    dials(Hosts::with_instances("instdials", 1)?)
}

fn dials(hosts: Hosts) -> Result<()> {
    let at = end(THEIRS, PORT)?;
    let listener = hosts.theirs.within(move || Ok(TcpListener::bind(at)?))?;
    thread::spawn(move || echo(&listener));
    let before = hosts.counted()?;
    let mut command = hosts.on_stack(Path::new("/usr/bin/python3"))?;
    command.arg(artifact::source("py/dials.py")).args([THEIRS, &PORT.to_string()]);
    let said = run(&mut command, LONG)?.successful()?;
    ensure!(said.stdout.trim() == "dialled", "{}{}", said.stdout, said.stderr);
    let kernels = hosts.opened_since(before)?;
    ensure!(kernels == 0, "{kernels} connections were the kernel's");
    hosts.check_nothing_left(PORT)
}
