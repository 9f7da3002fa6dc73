//! The end of programs: data for slow peers still arrives, as on kernel sockets, and a peer that
//! connects while all listening processes are replaced is served.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OUR_V6, OURS, end};
use uncork_e2e::late::{ensure_soon, in_time, too_late};
use uncork_e2e::skip::find;
use uncork_e2e::{Alone, Daemon, Hosts, alone, artifact};

use crate::on_stack::{Scratch, lacks, noise, wait_until};

const PORT: u16 = 5300;
const NEEDED: [(&str, &str); 1] = [("python3", "python3")];
/// More than fits in flight and in the peer's buffers together.
const OCTETS: usize = 3_000_000;
/// How long the peers read nothing: longer than a process waits for them.
const PAUSE: Duration = Duration::from_millis(1500);
/// A program that ends does not wait for slow peers.
const AT_ONCE: Duration = Duration::from_millis(700);
/// Peers that want nothing at the moment.
const RESTING: usize = 8;
/// How often a program ends whose threads do not rest.
const BUSY_ENDS: usize = 6;
/// How often all processes are replaced.
const EXCHANGES: usize = 20;
const BETWEEN: Duration = Duration::from_millis(150);
const LONG: Duration = Duration::from_secs(10);
/// Connections that a child takes, each asked a little later.
const CHANGES: u32 = 128;
const STEP: Duration = Duration::from_micros(150);
/// Connections to workers that take turns, and their restarts: in time the kernel gets the port.
const TURNS: usize = 12;
const STARTS: usize = 4;
/// A peer retransmits after 200 ms (TCP_RTO_MIN).
const RETRANSMISSION: Duration = Duration::from_millis(190);

#[test]
fn what_slow_peers_have_not_read_is_lost_when_a_program_ends() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("the end of a program with slow peers", || slow_peers_get_all(&alone))
}

fn slow_peers_get_all(alone: &Alone) -> Result<()> {
    let hosts = alone.hosts("parting")?;
    // An instance goes on sending what it has been given by itself (instances.rs).
    hosts.stop_instances()?;
    let scratch = Scratch::new()?;
    let file = scratch.file("data", OCTETS)?;
    for how in ["exit", "_exit", "exec", "killed", "handled"] {
        let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
        command.arg(artifact::source("py/parting.py")).arg(how).arg(&file).arg(PORT.to_string());
        let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        let mut streams =
            [hosts.connect_to(end(OURS, PORT)?)?, hosts.connect_to(end(OUR_V6, PORT)?)?];
        for stream in &mut streams {
            stream.write_all(b"?")?;
        }
        wait_until("both were given something", || Ok(taken(&server).len() == 2))
            .with_context(|| format!("{how}\n{}", server.said()))?;
        let taken = taken(&server);
        let begun = Instant::now();
        wait_until("it listens no more", || Ok(!hosts.ours.listens(PORT)))?;
        if how != "exec" {
            let status = server.wait(LONG)?;
            let is_right = match how {
                "killed" | "handled" => status.signal() == Some(Signal::SIGTERM as i32),
                _ => status.success(),
            };
            ensure!(is_right, "{how}: it ended with {status}");
            let late = begun.elapsed();
            ensure_soon(late, AT_ONCE, || format!("{how}: it ended {late:?} behind its work"))?;
        }
        thread::sleep(PAUSE.saturating_sub(begun.elapsed()));
        for (stream, octets) in streams.into_iter().zip(taken) {
            ensure!(octets > OCTETS / 2, "{how}: only {octets} octets were taken");
            let heard = all_of(stream).with_context(|| how.to_owned())?;
            let same = heard == noise(OCTETS)[..octets];
            ensure!(same, "{how}: {} octets of {octets}", heard.len());
        }
    }
    hosts.check_nothing_left(PORT)
}

#[test]
fn peers_are_reset_when_a_program_is_told_to_end_and_has_no_handler() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("the end of a program without a handler", || is_told_to_end(&alone))
}

fn is_told_to_end(alone: &Alone) -> Result<()> {
    let hosts = alone.hosts("told")?;
    let scratch = Scratch::new()?;
    scratch.file("small", 602)?;
    // A thread for each connection: one waits in recv(2), another may be doing anything. (SIGHUP
    // may be ignored here, as under nohup(1).)
    for signal in [Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGUSR1] {
        let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
        command.arg(artifact::source("py/http11.py")).arg(PORT.to_string());
        command.arg(scratch.root()).arg("0.0.0.0");
        let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        let mut resting = Vec::new();
        for _ in 0..RESTING {
            let mut connection = hosts.http(PORT)?;
            connection.get("/small")?;
            resting.push(connection);
        }
        let over = AtomicBool::new(false);
        let talks = |_| {
            while !over.load(Relaxed) {
                // Data in transit at that moment is lost, as with kernel sockets.
                let Ok(mut connection) = hosts.http(PORT) else { continue };
                while connection.get("/small").is_ok() {}
            }
            Ok(())
        };
        let status = thread::scope(|scope| {
            let crowd = scope.spawn(|| hosts.crowd(4, talks));
            thread::sleep(BETWEEN);
            let begun = Instant::now();
            server.signal(signal)?;
            let status = server.wait(LONG);
            let late = begun.elapsed();
            over.store(true, Relaxed);
            crowd.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            ensure_soon(late, AT_ONCE, || format!("{signal}: it ended after {late:?}"))?;
            status
        })?;
        ensure!(status.signal() == Some(signal as i32), "{signal}: it ended with {status}");
        for mut connection in resting {
            ensure!(connection.at_end().with_context(|| signal.to_string())?, "{signal}: more");
        }
    }
    hosts.check_nothing_left(PORT)
}

#[test]
fn threads_that_never_rest_hold_up_the_end_of_a_program_that_is_told_to_end() -> Result<()> {
    if lacks(&[])? {
        return Ok(());
    }
    let alone = alone();
    in_time("the end of a program whose threads never rest", || busy_one_ends(&alone))
}

fn busy_one_ends(alone: &Alone) -> Result<()> {
    let hosts = alone.hosts("busy")?;
    let scratch = Scratch::new()?;
    for _ in 0..BUSY_ENDS {
        let mut command = hosts.on_stack(artifact::compiled("busy")?)?;
        command.arg(PORT.to_string());
        let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        let over = AtomicBool::new(false);
        let comes_and_goes = |_| {
            while !over.load(Relaxed) {
                // A connection made during the end is reset, as with kernel sockets.
                let _ = hosts.connect(PORT).and_then(all_of);
            }
            Ok(())
        };
        let (status, late) = thread::scope(|scope| {
            let crowd = scope.spawn(|| hosts.crowd(3, comes_and_goes));
            thread::sleep(2 * BETWEEN);
            let begun = Instant::now();
            server.signal(Signal::SIGTERM)?;
            let status = server.wait(LONG)?;
            let late = begun.elapsed();
            over.store(true, Relaxed);
            crowd.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            anyhow::Ok((status, late))
        })?;
        ensure!(status.signal() == Some(Signal::SIGTERM as i32), "it ended with {status}");
        ensure_soon(late, AT_ONCE, || format!("it ended after {late:?}"))?;
    }
    hosts.check_nothing_left(PORT)
}

#[test]
fn who_comes_while_all_who_listen_are_exchanged_is_reset() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("renew")?;
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
    command.arg(artifact::source("py/renew.py")).arg(PORT.to_string());
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let talks = |_| {
        while !over.load(Relaxed) {
            let mut stream = hosts.connect(PORT)?;
            stream.write_all(b"!")?;
            let after = served.fetch_add(1, Relaxed);
            let heard = all_of(stream).with_context(|| format!("after {after} others"))?;
            ensure!(heard == b"!", "{} octets are no answer", heard.len());
        }
        Ok(())
    };
    thread::scope(|scope| {
        let crowd = scope.spawn(|| hosts.crowd(4, talks));
        for _ in 0..EXCHANGES {
            thread::sleep(BETWEEN);
            server.signal(Signal::SIGUSR1)?;
        }
        over.store(true, Relaxed);
        crowd.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    })?;
    let served = served.into_inner();
    ensure!(served > 10 * EXCHANGES, "only {served} were served");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

/// Returns how many octets of each connection the program has handed over.
fn taken(server: &Daemon) -> Vec<usize> {
    let said = server.said();
    said.lines().filter_map(|line| line.trim().strip_prefix("taken ")?.parse().ok()).collect()
}

fn all_of(mut stream: TcpStream) -> Result<Vec<u8>> {
    stream.set_read_timeout(Some(LONG))?;
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).with_context(|| format!("behind {} octets", heard.len()))?;
    Ok(heard)
}

#[test]
fn what_comes_while_a_child_of_fork_takes_a_connection_waits_for_the_peer_s_timer() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("an answer by a child of fork", || children_answer_soon(&alone))
}

fn children_answer_soon(alone: &Alone) -> Result<()> {
    let hosts = alone.hosts("changing")?;
    let scratch = Scratch::new()?;
    let server = crate::on_stack::instances::server(&hosts, &scratch, "forks", PORT)?;
    let mut late = Vec::new();
    for at in 0..CHANGES {
        let mut stream = hosts.connect(PORT)?;
        // The parent gives the connection away some hundred microseconds after the handshake.
        let asked = Instant::now() + STEP * (at % 16);
        while Instant::now() < asked {
            std::hint::spin_loop();
        }
        stream.write_all(b"?")?;
        stream.read_exact(&mut [0])?;
        late.extend(Some(asked.elapsed()).filter(|took| *took >= RETRANSMISSION));
    }
    if late.len() > CHANGES as usize / 20 {
        return Err(too_late(format!("{} answers of {CHANGES} were late: {late:?}", late.len())));
    }
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn who_comes_to_a_worker_that_waits_for_its_turn_waits_with_it() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let hosts = Hosts::new("turns")?;
    for how in [&[][..], &["set"]].into_iter().cycle().take(2 * STARTS) {
        let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
        command.arg(artifact::source("py/turns.py")).arg(PORT.to_string());
        command.arg(scratch.path("lock")).args(how);
        let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        for _ in 0..TURNS {
            let mut stream = hosts.connect(PORT)?;
            stream.set_read_timeout(Some(LONG))?;
            stream.write_all(b"?")?;
            stream.read_exact(&mut [0]).with_context(|| format!("{how:?}"))?;
        }
        drop(server);
        wait_until("nobody listens any more", || Ok(!hosts.ours.listens(PORT)))?;
    }
    hosts.check_nothing_left(PORT)?;
    Ok(())
}
