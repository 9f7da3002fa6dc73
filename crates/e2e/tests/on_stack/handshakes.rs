//! Behaviour set before a connection is open: an nginx that waits for a request before it accepts
//! (`deferred`), and takes it with the SYN (`fastopen`), with curl at the other end.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use uncork_e2e::cpython::PYTHON;
use uncork_e2e::hosts::{OURS, THEIRS};
use uncork_e2e::http::Answer;
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, artifact, instance, run};

use crate::on_stack::{Scratch, lacks, nginx, wait_until};

const PORT: u16 = 8086;
const NEEDED: [(&str, &str); 2] = [("nginx", "nginx-light"), ("curl", "curl")];
const LONG: Duration = Duration::from_secs(20);
const WORKERS: u32 = 2;

fn serving(hosts: &Hosts, scratch: &Scratch, how: &str) -> Result<Daemon> {
    let plain = nginx::configuration(scratch, PORT, WORKERS, "on");
    let changed = plain.replace(&format!("listen {PORT};"), &format!("listen {PORT} {how};"));
    ensure!(changed != plain, "another configuration");
    // The status page counts connections: each request tells how many are open.
    let counted =
        changed.replace("location = /pid", "location = /open { stub_status; }\nlocation = /pid");
    fs::write(scratch.path("nginx.conf"), counted)?;
    let mut command = hosts.on_stack(find("nginx").context("no nginx")?)?;
    command.arg("-c").arg(scratch.path("nginx.conf")).arg("-p").arg(scratch.root());
    command.args(["-e", "stderr"]);
    Daemon::on_stack(command, &scratch.path("log"), hosts, PORT)
}

/// Returns how many connections nginx has accepted so far, by its own count, with this one.
fn accepted(hosts: &Hosts) -> Result<u64> {
    let mut stream = hosts.connect(PORT)?;
    stream.write_all(b"GET /open HTTP/1.0\r\n\r\n")?;
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    let (_, counts) = told.split_once("requests").context(told.clone())?;
    let first = counts.split_whitespace().next().context(told.clone())?;
    first.parse().with_context(|| told.clone())
}

/// Reads one of the kernel's TCP counters on the other host (nstat(8)).
fn counted_there(hosts: &Hosts, name: &str) -> Result<u64> {
    let told = run(hosts.beside("/bin/cat")?.arg("/proc/net/netstat"), LONG)?.successful()?.stdout;
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("TcpExt:")).collect();
    let [names, values] = lines[..] else { anyhow::bail!("{told}") };
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = both.find(|(other, _)| *other == name).context("no such counter")?;
    Ok(value.parse()?)
}

#[test]
fn nginx_accepts_who_says_nothing_or_forgets_him() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("deferred")?;
    let scratch = Scratch::new()?;
    scratch.file("small", 602)?;
    let server = serving(&hosts, &scratch, "deferred")?;
    // The connection that waited for the server has closed since, and is accepted for that: perhaps
    // by a worker that has not got to it yet.
    let mut before = accepted(&hosts)?;
    wait_until("all are accepted who have closed", || {
        std::thread::sleep(Duration::from_millis(100));
        let last = std::mem::replace(&mut before, accepted(&hosts)?);
        Ok(before == last + 1)
    })?;
    let mut silent = (0..8).map(|_| hosts.http(PORT)).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(Duration::from_millis(300));
    let since = accepted(&hosts)? - before;
    ensure!(since == 1, "{} were accepted that have said nothing", since - 1);
    let small = Answer::of(200, &fs::read(scratch.path("small"))?);
    for one in silent.drain(..4) {
        let mut one = one;
        ensure!(one.get("/small")? == small, "late");
    }
    // Connections still silent when other workers take over go to these.
    server.signal(Signal::SIGHUP)?;
    let log = || Ok::<_, anyhow::Error>(fs::read_to_string(scratch.path("log"))?);
    wait_until("nginx reloads", || Ok(log()?.matches("exited with code 0").count() >= 2))?;
    std::thread::sleep(Duration::from_secs(2));
    for mut one in silent {
        ensure!(one.get("/small")? == small, "behind the reload");
    }
    server.stop(Signal::SIGQUIT)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn nginx_lets_a_request_wait_that_came_with_the_syn() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("fastopen")?;
    let scratch = Scratch::new()?;
    let page = scratch.file("page", 100_000)?;
    hosts.ours.set("ipv4/tcp_fastopen", 3)?;
    let server = serving(&hosts, &scratch, "deferred fastopen=16")?;
    let before = hosts.counted()?;
    let fetch = || -> Result<()> {
        let mut command = hosts.beside(find("curl").context("no curl")?)?;
        command.args(["-sSf", "--tcp-fastopen", "-o"]).arg(scratch.path("got"));
        run(command.arg(format!("http://{OURS}:{PORT}/page")), LONG)?.successful()?;
        ensure!(fs::read(scratch.path("got"))? == fs::read(&page)?, "another page");
        Ok(())
    };
    // The first one gets a cookie, from whichever worker.
    fetch()?;
    let fast = counted_there(&hosts, "TCPFastOpenActive")?;
    for _ in 0..10 {
        fetch()?;
    }
    let fast = counted_there(&hosts, "TCPFastOpenActive")? - fast;
    ensure!(fast == 10, "{fast} of 10 requests were taken with their SYN");
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGQUIT)?;
    hosts.check_nothing_left(PORT)
}

/// Makes two hosts with some delay between them (`uncork lab link`); returns their namespaces.
fn far_apart(scratch: &Scratch) -> Result<(Daemon, [String; 2])> {
    let mut command = Command::new(artifact::uncork()?);
    command.args(["lab", "link", "--json", "--delay", "50ms"]);
    let link = Daemon::start(command, &scratch.path("link.log"))?;
    let up =
        || link.said().lines().map(str::trim).find(|line| line.ends_with('}')).map(str::to_owned);
    wait_until("there is a link", || Ok(up().is_some()))?;
    let told: Value = serde_json::from_str(&up().context("no line")?)?;
    let name = |end: &str| told[end]["namespace"].as_str().map(str::to_owned);
    let names = name("near").zip(name("far")).with_context(|| told.to_string())?;
    let ends: [String; 2] = names.into();
    for end in &ends {
        let mut set = within(end, "sysctl");
        run(set.args(["-q", "-w", "net.ipv4.tcp_fastopen=3"]), LONG)?.successful()?;
    }
    Ok((link, ends))
}

/// Starts a Python program at one of them, on the stack.
fn on_stack_at(near: &str, scratch: &Scratch, program: &str, more: &[&str]) -> Result<Daemon> {
    let mut command = within(near, artifact::uncork()?);
    command.args(["run", "--stack", "--dev", "eth0", "--", PYTHON]);
    command.arg(artifact::source(program)).arg(PORT.to_string()).args(more);
    command.env("UNCORK_LIBRARY", artifact::library()?);
    Daemon::start(command, &scratch.path("log"))
}

/// Returns what clients hear that send data with their SYNs to that port of the other host.
fn dashes(far: &str, port: u16, count: &str) -> Result<String> {
    let mut command = within(far, PYTHON);
    command.arg(artifact::source("py/dashes.py")).args(["10.79.0.1", &port.to_string(), count]);
    Ok(run(&mut command, LONG)?.successful()?.stdout)
}

fn within(namespace: &str, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(program.as_ref());
    command
}

/// The child can have the connection only after the handshake, half a round trip later.
#[test]
fn a_child_of_fork_gets_nothing_of_what_came_with_a_syn() -> Result<()> {
    if lacks(&[("python3", "python3")])? || instance::are_wanted() {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let (link, [near, far]) = far_apart(&scratch)?;
    let count = "5";
    let server = on_stack_at(&near, &scratch, "py/forks.py", &[count])?;
    wait_until("it listens", || Ok(server.said().contains("listens")))?;
    // The listener is on the stack by then, since the program accepts nothing earlier.
    std::thread::sleep(Duration::from_millis(500));
    let told = dashes(&far, PORT, count)?;
    let wanted = format!("child hello slow\n{}", "child hello fast\n".repeat(4));
    ensure!(told == wanted, "{told}\n{}", server.said());
    ensure!(server.wait(LONG)?.success(), "no success");
    link.stop(Signal::SIGINT)?;
    Ok(())
}

/// The listener is the kernel's alone before the handshake ends, and the data was acknowledged.
#[test]
fn who_came_with_a_syn_is_reset_when_his_listener_becomes_the_kernels() -> Result<()> {
    if lacks(&[("python3", "python3")])? || instance::are_wanted() {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let (link, [near, far]) = far_apart(&scratch)?;
    let server = on_stack_at(&near, &scratch, "py/marks.py", &[])?;
    for (at, wanted) in ["marked hello slow\n", "marked hello fast\n"].into_iter().enumerate() {
        wait_until("it listens", || Ok(server.said().contains(&format!("listens {at}"))))?;
        std::thread::sleep(Duration::from_millis(500));
        let told = dashes(&far, PORT + u16::try_from(at)?, "1")?;
        ensure!(told == wanted, "{told}\n{}", server.said());
    }
    ensure!(server.wait(LONG)?.success(), "no success");
    link.stop(Signal::SIGINT)?;
    Ok(())
}

#[test]
fn curl_sends_no_request_with_its_syn() -> Result<()> {
    if lacks(&NEEDED)? || instance::are_wanted() {
        return Ok(());
    }
    let hosts = Hosts::new("dash")?;
    let scratch = Scratch::new()?;
    let page = scratch.file("page", 100_000)?;
    hosts.theirs.set("ipv4/tcp_fastopen", 3)?;
    let plain = nginx::configuration(&scratch, PORT, 1, "on");
    let listens = format!("listen {PORT} fastopen=16;");
    fs::write(scratch.path("far.conf"), plain.replace(&format!("listen {PORT};"), &listens))?;
    let mut command = hosts.beside(find("nginx").context("no nginx")?)?;
    command
        .arg("-c")
        .arg(scratch.path("far.conf"))
        .args(["-e", "stderr", "-p"])
        .arg(scratch.root());
    let server = Daemon::start(command, &scratch.path("far.log"))?;
    wait_until("nginx listens", || Ok(hosts.theirs.listens(PORT)))?;
    let before = hosts.counted()?;
    let fast = counted_there(&hosts, "TCPFastOpenPassive")?;
    let mut command = hosts.on_stack(find("curl").context("no curl")?)?;
    command.args(["-sSf", "--tcp-fastopen", "-H", "Connection: close"]);
    for at in 0..4 {
        command.arg("-o").arg(scratch.path(&format!("got{at}")));
        command.arg(format!("http://{THEIRS}:{PORT}/page"));
    }
    run(&mut command, LONG)?.successful()?;
    for at in 0..4 {
        ensure!(fs::read(scratch.path(&format!("got{at}")))? == fs::read(&page)?, "page {at}");
    }
    let fast = counted_there(&hosts, "TCPFastOpenPassive")? - fast;
    ensure!(fast == 3, "{fast} of 4 requests were taken with their SYN, and one brings a cookie");
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}
