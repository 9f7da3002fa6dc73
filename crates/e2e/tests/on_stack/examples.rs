//! The examples in C, and a program linked with the library instead of having it preloaded.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OURS, end};
use uncork_e2e::skip::note;
use uncork_e2e::{Daemon, Hosts, artifact, instance, run};

use crate::on_stack::{Scratch, lacks};

const PORT: u16 = 8088;
const LONG: Duration = Duration::from_secs(60);
const NEEDED: [(&str, &str); 1] = [("cc", "gcc")];

/// Compiles `examples/NAME.c` with a careful programmer's flags, and more linker arguments.
pub(crate) fn built(scratch: &Scratch, name: &str, linked: &[&str]) -> Result<PathBuf> {
    let root = artifact::source("../..");
    let program = scratch.path(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    compiler.arg("-I").arg(root.join("include")).arg("-o").arg(&program);
    compiler.arg(root.join("examples").join(format!("{name}.c"))).args(linked);
    run(&mut compiler, LONG)?.successful()?;
    Ok(program)
}

/// Requests the page, and returns the value of a header of the response.
pub(crate) fn header(stream: &mut TcpStream, name: &str) -> Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut octets = [0; 2048];
    while !answer.ends_with(b"Hello, world.\n") {
        let got = stream.read(&mut octets)?;
        ensure!(got > 0, "the answer ends early: {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&octets[..got]);
    }
    let answer = String::from_utf8(answer)?;
    let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Ok(value.with_context(|| format!("no {name} in {answer}"))?.to_owned())
}

fn start(hosts: &Hosts, scratch: &Scratch, program: &Path, more: &[&str]) -> Result<Daemon> {
    let mut command = hosts.on_stack(program)?;
    command.arg(PORT.to_string()).args(more);
    Daemon::on_stack(command, &scratch.path("log"), hosts, PORT)
}

#[test]
fn a_demonstration_is_not_on_the_stack() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("examples")?;
    let scratch = Scratch::new()?;
    for name in ["helloworld_stack", "helloworld_stack_epoll", "helloworld_stack_epoll_kernel"] {
        let server = start(&hosts, &scratch, &built(&scratch, name, &[])?, &[])?;
        let before = hosts.counted()?;
        for _ in 0..3 {
            let mut stream = hosts.connect(PORT)?;
            for _ in 0..3 {
                ensure!(header(&mut stream, "Place")? == "stack", "{name}");
            }
        }
        hosts.check_all_on_stack(before)?;
        let by_loopback = || header(&mut TcpStream::connect(("127.0.0.1", PORT))?, "Place");
        ensure!(hosts.ours.within(by_loopback)? == "kernel", "{name} by loopback");
        if name.ends_with("_kernel") {
            let mut stream = hosts.connect_to(end(OURS, PORT + 1)?)?;
            ensure!(header(&mut stream, "Place")? == "kernel", "what the program asks for");
        }
        server.stop(Signal::SIGTERM)?;
        hosts.check_nothing_left(PORT)?;
    }
    Ok(())
}

/// Returns the compiler's flags for libkqueue, if it is installed: Debian 12 has none.
fn kqueue() -> Option<Vec<String>> {
    let told =
        Command::new("pkg-config").args(["--cflags", "--libs", "libkqueue"]).output().ok()?;
    let flags = String::from_utf8_lossy(&told.stdout);
    told.status.success().then(|| flags.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn a_program_that_waits_by_kqueue_is_not_woken() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let Some(flags) = kqueue() else {
        note("without libkqueue (pkg-config finds none) there are no programs that wait by it");
        return Ok(());
    };
    let hosts = Hosts::new("exkqueue")?;
    let scratch = Scratch::new()?;
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let program = built(&scratch, "helloworld_stack_kqueue", &flags)?;
    let server = start(&hosts, &scratch, &program, &[])?;
    let before = hosts.counted()?;
    hosts.crowd(32, |_| {
        for _ in 0..8 {
            let mut stream = hosts.connect(PORT)?;
            for _ in 0..4 {
                ensure!(header(&mut stream, "Place")? == "stack", "not on the stack");
            }
        }
        Ok(())
    })?;
    hosts.check_all_on_stack(before)?;
    let by_loopback = || header(&mut TcpStream::connect(("127.0.0.1", PORT))?, "Place");
    ensure!(hosts.ours.within(by_loopback)? == "kernel", "by loopback");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn threads_with_listeners_of_their_own_get_nothing() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("exthreads")?;
    let scratch = Scratch::new()?;
    let program = built(&scratch, "helloworld_stack_thread_socket", &[])?;
    let server = start(&hosts, &scratch, &program, &["4"])?;
    let before = hosts.counted()?;
    let served = hosts.crowd(8, |_| {
        let mut by = Vec::new();
        for _ in 0..16 {
            let mut stream = hosts.connect(PORT)?;
            by.push(header(&mut stream, "Server")?);
            ensure!(header(&mut stream, "Place")? == "stack", "not on the stack");
        }
        Ok(by)
    })?;
    let threads: BTreeSet<String> = served.into_iter().flatten().collect();
    ensure!(threads.len() == 4, "of four threads these have served: {threads:?}");
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn a_program_that_is_linked_with_the_library_does_without_it() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("exlinked")?;
    let scratch = Scratch::new()?;
    let library = artifact::library()?;
    let directory = library.parent().context("it is in no directory")?.display().to_string();
    let linked = ["-L", &directory, "-luncork", &format!("-Wl,-rpath,{directory}")];
    let program = built(&scratch, "helloworld_stack_epoll", &linked)?;

    // Without the preload.
    let mut command = hosts.on_stack("/usr/bin/env")?;
    command.args(["-u", "LD_PRELOAD"]).arg(&program).arg(PORT.to_string());
    // Cargo sets this variable, and an older library may lie there.
    command.env_remove("LD_LIBRARY_PATH");
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    ensure!(header(&mut hosts.connect(PORT)?, "Place")? == "stack", "linked");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)?;

    // With a preloaded copy as well: the library is there only once.
    let copy = scratch.path("libuncork.so");
    std::fs::copy(&library, &copy)?;
    let mut command = hosts.on_stack(&program)?;
    command.env("UNCORK_LIBRARY", &copy).arg(PORT.to_string());
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    ensure!(header(&mut hosts.connect(PORT)?, "Place")? == "stack", "linked and preloaded");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid()))?;
    let copies: BTreeSet<_> = maps
        .lines()
        .filter(|line| line.contains("libuncork.so"))
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    ensure!(copies.len() == 1, "{copies:?}");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)?;

    // On kernel sockets alone.
    let mut command = hosts.ours.command(program.to_str().context("a path in UTF-8")?);
    command.arg(PORT.to_string());
    let server = Daemon::start(command, &scratch.path("log"))?;
    crate::on_stack::wait_until("it listens", || Ok(hosts.ours.listens(PORT)))?;
    let place = header(&mut hosts.connect(PORT)?, "Place")?;
    ensure!(place == "kernel (without uncork run --stack)", "{place}");
    server.stop(Signal::SIGTERM)?;
    Ok(())
}

#[test]
fn what_was_set_for_f_stack_s_adapter_is_ignored() -> Result<()> {
    // For instances they do have a meaning (crates/cli/tests/instances.rs).
    if lacks(&NEEDED)? || instance::are_wanted() {
        return Ok(());
    }
    let hosts = Hosts::new("exfstack")?;
    let variables = [("FF_INITIAL_LCORE_ID", "1"), ("FF_PROC_ID", "0")];
    let mut command = hosts.on_stack("/bin/grep")?;
    command.args(["Cpus_allowed_list:", "/proc/self/status"]).envs(variables);
    let finished = run(command.env("FF_NB_FSTACK_INSTANCE", "2"), LONG)?.successful()?;
    ensure!(finished.stdout.trim_end().ends_with("\t0"), "{}", finished.stdout);
    ensure!(
        finished.stderr.contains("FF_NB_FSTACK_INSTANCE=2 sets nothing"),
        "{}",
        finished.stderr
    );

    let mut command = hosts.on_stack("/bin/true")?;
    let refused = run(command.env("FF_INITIAL_LCORE_ID", "third"), LONG)?;
    ensure!(refused.status.code() == Some(125), "{}", refused.status);
    ensure!(refused.stderr.contains("FF_INITIAL_LCORE_ID=third is no mask"), "{}", refused.stderr);
    Ok(())
}
