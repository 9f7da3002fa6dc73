//! Clients on the stack: curl, which waits in poll(2), and wrk, with threads and epoll sets. Their
//! servers use kernel sockets.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{THEIR_V6, THEIRS, end};
use uncork_e2e::late::{ensure_soon, in_time, too_late};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, alone, artifact, run};

use crate::on_stack::{Scratch, kernel_nginx, lacks};

const PORT: u16 = 8084;
const HUGE: usize = 100_000_000;
const LONG: Duration = Duration::from_secs(30);

fn pages(hosts: Hosts) -> Result<(Hosts, Scratch, Daemon)> {
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
    let (hosts, scratch, server) = pages(Hosts::new("curl")?)?;
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
    // No socket listens: SO_ERROR brings the error that connect(2) would return.
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
    let (hosts, _scratch, server) = pages(Hosts::new("wrk")?)?;
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

/// The kernel needs some 70 ms to make a stack's device and to remove it again, for which no script
/// waits (crate guard, `rings`).
#[test]
fn a_script_waits_for_the_device_of_each_of_its_programs() -> Result<()> {
    if lacks(&[("curl", "curl"), ("nginx", "nginx-light")])? {
        return Ok(());
    }
    const PROGRAMS: u32 = 20;
    const EACH: Duration = Duration::from_millis(50);
    let alone = alone();
    let (hosts, _scratch, server) = pages(alone.hosts("script")?)?;
    let before = hosts.counted()?;
    let fetch = format!("curl -sSf -o /dev/null http://{THEIRS}:{PORT}/small");
    let script = format!(
        "{fetch}; date +%s%N; for each in $(seq {PROGRAMS}); do {fetch} || exit; done; date +%s%N"
    );
    in_time("a script of clients on the stack", || {
        let mut command = hosts.on_stack(Path::new("/bin/sh"))?;
        let said = run(command.args(["-c", &script]), LONG)?.successful()?.stdout;
        let times: Vec<u64> = said.lines().map(str::parse).collect::<Result<_, _>>()?;
        let &[begun, ended] = &times[..] else { bail!("not two times: {said}") };
        let each = Duration::from_nanos(ended - begun) / PROGRAMS;
        ensure_soon(each, EACH, || format!("each of the programs has taken {each:?}"))
    })?;
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

/// The kernel makes the devices of many processes at once in the time that it needs for a few, and
/// the guardian answers others meanwhile.
#[test]
fn processes_that_begin_at_once_wait_for_each_other_and_others_for_them() -> Result<()> {
    if lacks(&[("python3", "python3")])? {
        return Ok(());
    }
    const PROCESSES: u32 = 30;
    // A process that waits two seconds for the guardian does without it. Others do not wait.
    const SOON: [u128; 2] = [200, 1900];
    let alone = alone();
    let hosts = alone.hosts("crowd")?;
    let at = end(THEIRS, PORT)?;
    let listener = hosts.theirs.within(move || Ok(TcpListener::bind(at)?))?;
    thread::spawn(move || echo(&listener));
    in_time("processes that begin at once", || {
        let before = hosts.counted()?;
        let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
        let arguments = [THEIRS.to_owned(), PORT.to_string(), PROCESSES.to_string()];
        command.arg(artifact::source("py/crowd.py")).args(arguments);
        let said = run(&mut command, LONG)?.successful()?.stdout;
        let late: Vec<u128> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        ensure!(late.len() == 2, "not two times: {said}");
        let are_soon = late.iter().zip(SOON).all(|(late, soon)| *late < soon);
        if !are_soon {
            let [there, others] = [late[0], late[1]];
            return Err(too_late(format!(
                "who was there has waited for {there} ms, the others for {others}"
            )));
        }
        let kernels = hosts.opened_since(before)?;
        ensure!(kernels == 0, "{kernels} connections were the kernel's");
        Ok(())
    })?;
    hosts.check_nothing_left(PORT)
}

/// Echoes data on all connections at once, until a peer says good-bye.
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
