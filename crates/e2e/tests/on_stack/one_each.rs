//! Programs with a thread for each connection: the sockets that their threads wait for go over to
//! the kernel while the threads work.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OURS, THEIRS};
use uncork_e2e::{Daemon, Hosts, artifact, instance, run};

use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 7090;
const NEEDED: [(&str, &str); 1] = [("cc", "gcc")];
const LONG: Duration = Duration::from_secs(60);
const WHY: &str = "its threads wait one for each connection";
const THREADS: usize = 12;
/// The programs are told when to end.
const TILL_TOLD: &str = "60000";
/// This many answers in [`WATCHED`] are five times the necessary number.
const MANY: u64 = 20_000;
const WATCHED: &str = "2000";

/// Twelve threads send requests to `host`, in this many rounds of connections, each for this long
/// and of up to this many octets.
fn asks(command: &mut Command, host: &str, [ms, octets, rounds]: [&str; 3]) {
    let (port, threads) = (PORT.to_string(), THREADS.to_string());
    command.args(["ask", host, &port, &threads, ms, octets, rounds]);
}

/// Returns the number of answered requests, by rounds.
fn answered(said: &str) -> Vec<u64> {
    said.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Counts the sockets that the program has left to the kernel for that reason.
fn left(program: &Daemon) -> Result<usize> {
    let pid = program.pid().to_string();
    let said = run(Command::new(artifact::uncork()?).args(["stack", "why", &pid]), LONG)?.stdout;
    Ok(said.lines().filter(|line| line.contains(" kernel ") && line.contains(WHY)).count())
}

#[test]
fn who_answers_by_a_thread_each_stays_where_each_waits_for_another() -> Result<()> {
    if lacks(&NEEDED)? || instance::are_wanted() {
        return Ok(());
    }
    let hosts = Hosts::new("oneeach")?;
    let scratch = Scratch::new()?;
    let program = artifact::compiled("stack_one_each")?;
    let mut command = hosts.on_stack(&program)?;
    command.args(["serve", &PORT.to_string()]);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let before = hosts.counted()?;
    // Segments and trains, amid which connections change hands; no data is lost or doubled.
    let mut command = hosts.beside(&program)?;
    asks(&mut command, OURS, [TILL_TOLD, "20000", "1"]);
    let client = Daemon::start(command, &scratch.path("asked"))?;
    let all = THREADS + 1;
    wait_until("connections and listener are the kernel's", || Ok(left(&server)? == all))?;
    ensure!(hosts.opened_since(before)? == 0, "somebody came to the kernel before that");
    client.signal(Signal::SIGUSR1)?;
    ensure!(client.wait(LONG)?.success(), "{}", fs::read_to_string(scratch.path("asked"))?);
    // From now on all connections go to the kernel, and none is on the stack.
    let before = hosts.counted()?;
    let mut command = hosts.beside(&program)?;
    asks(&mut command, OURS, ["300", "2000", "2"]);
    let said = run(&mut command, LONG)?.successful()?.stdout;
    ensure!(answered(&said).len() == 2 && !answered(&said).contains(&0), "{said}");
    let came = hosts.opened_since(before)?;
    ensure!(came == 2 * THREADS as u64, "{came} came to the kernel");
    wait_until("the device is put away", || Ok(hosts.devices_in_use()? == 0))?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn who_is_to_stay_on_the_stack_is_given_to_the_kernel() -> Result<()> {
    if lacks(&NEEDED)? || instance::are_wanted() {
        return Ok(());
    }
    let hosts = Hosts::new("stays")?;
    let scratch = Scratch::new()?;
    let program = artifact::compiled("stack_one_each")?;
    let mut command = hosts.on_stack_with(&["--stay"], &program)?;
    command.args(["serve", &PORT.to_string()]);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let before = hosts.counted()?;
    // A busy machine may be too slow to show it.
    wait_until("as many were answered as are enough", || {
        let mut command = hosts.beside(&program)?;
        asks(&mut command, OURS, [WATCHED, "64", "1"]);
        let said = run(&mut command, LONG)?.successful()?.stdout;
        Ok(answered(&said).iter().any(|count| *count >= MANY))
    })?;
    ensure!(left(&server)? == 0, "{} are the kernel's", left(&server)?);
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn who_asks_by_a_thread_each_stays_where_each_waits_for_another() -> Result<()> {
    if lacks(&NEEDED)? || instance::are_wanted() {
        return Ok(());
    }
    let hosts = Hosts::new("askeach")?;
    let scratch = Scratch::new()?;
    let program = artifact::compiled("stack_one_each")?;
    let mut command = hosts.beside(&program)?;
    command.args(["serve", &PORT.to_string()]);
    let server = Daemon::start(command, &scratch.path("log"))?;
    wait_until("the other host listens", || Ok(hosts.theirs.listens(PORT)))?;
    let before = hosts.counted()?;
    let mut command = hosts.on_stack(&program)?;
    asks(&mut command, THEIRS, [TILL_TOLD, "2000", "2"]);
    let client = Daemon::start(command, &scratch.path("asked"))?;
    wait_until("what it has opened is the kernel's", || Ok(left(&client)? == THREADS))?;
    ensure!(hosts.opened_since(before)? == 0, "some were the kernel's before that");
    client.signal(Signal::SIGUSR1)?;
    let opened = || Ok(hosts.opened_since(before)? == THREADS as u64);
    wait_until("the next ones are the kernel's from their beginning", opened)?;
    client.signal(Signal::SIGUSR1)?;
    ensure!(client.wait(LONG)?.success(), "{}", fs::read_to_string(scratch.path("asked"))?);
    let said = fs::read_to_string(scratch.path("asked"))?;
    ensure!(answered(&said).len() == 2, "{said}");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}
