//! Peers that connect while a guardian dies. A peer that loses its connection by that is served
//! when it comes again, however soon: it is not answered by both kernel and stack, nor by neither,
//! whichever of them has heard of the death by then.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::hosts::{OURS, end};
use uncork_e2e::late::{ensure_soon, in_time};
use uncork_e2e::{Hosts, alone, soak};

use super::dice::Dice;
use super::remains::{Process, processes};
use crate::on_stack::instances::{end_by, is_echoed, server};
use crate::on_stack::{Scratch, lacks};

const NEEDED: [(&str, &str); 1] = [("python3", "python3")];
const PORT: u16 = 7093;
/// Peers that talk when the guardian is killed.
const PEERS: usize = 8;
/// How often each one comes again, one connection after the other: for some milliseconds.
const AGAIN: usize = 20;
/// The longest talk before the kill.
const LOAD: Duration = Duration::from_millis(20);
/// A SYN that is not answered is retransmitted after a second.
const UNHEARD: Duration = Duration::from_millis(900);
const NEVER: Duration = Duration::from_secs(5);

#[test]
fn who_comes_again_when_a_guardian_is_gone_is_reset_by_a_program() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    let kills = || kill_again_and_again(&alone.hosts("atonce")?, 0);
    in_time("who comes again when a guardian is gone", kills)
}

#[test]
fn who_comes_again_when_a_guardian_is_gone_is_reset_by_an_instance() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    let kills = || kill_again_and_again(&alone.hosts("atonceinst")?, 2);
    in_time("who comes again to an instance", kills)
}

fn kill_again_and_again(hosts: &Hosts, instances: u32) -> Result<()> {
    // Or the instances on which all tests run.
    let instances = instances.max(u32::from(hosts.instances().is_some()));
    let mut dice = Dice::new(1, 0);
    for round in 0..if soak() { 100 } else { 4 } {
        if instances > 0 {
            hosts.start_instances(instances)?;
        }
        kill_once(hosts, dice.time(LOAD)).with_context(|| format!("kill {round}"))?;
    }
    Ok(())
}

fn kill_once(hosts: &Hosts, after: Duration) -> Result<()> {
    let scratch = Scratch::new()?;
    let echo = server(hosts, &scratch, "echo", PORT)?;
    let guardian = processes(hosts)?.into_iter().find(Process::is_guardian);
    let guardian = guardian.context("no guardian")?.pid;
    let all_talk = Barrier::new(PEERS + 1);
    thread::scope(|scope| {
        let peers = scope.spawn(|| hosts.crowd(PEERS, |_| talk_and_come_again(&all_talk)));
        all_talk.wait();
        thread::sleep(after);
        end_by(Signal::SIGKILL, guardian)?;
        peers.join().map_err(|_| anyhow!("a thread panicked"))??;
        anyhow::Ok(())
    })?;
    echo.stop(Signal::SIGTERM)?;
    Ok(())
}

/// One peer: it talks until its connection has ended, and then opens new ones.
fn talk_and_come_again(all_talk: &Barrier) -> Result<()> {
    let begun = connect().and_then(|mut stream| is_echoed(&mut stream, 1).map(|()| stream));
    // The others would wait without end for a peer that has failed.
    all_talk.wait();
    talk_to_the_end(begun.context("before the kill")?)?;
    let ended = Instant::now();
    for _ in 0..AGAIN {
        let came = Instant::now();
        let what = || format!("{:?} after the end, {:?} later", came - ended, came.elapsed());
        is_echoed(&mut connect().with_context(what)?, 100).with_context(what)?;
        ensure_soon(came.elapsed(), UNHEARD, || format!("was heard late: {}", what()))?;
    }
    Ok(())
}

fn connect() -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&end(OURS, PORT)?, NEVER)?;
    stream.set_read_timeout(Some(NEVER))?;
    Ok(stream)
}

fn talk_to_the_end(mut stream: TcpStream) -> Result<()> {
    let begun = Instant::now();
    while stream.write_all(b"?").is_ok() && stream.read(&mut [0]).is_ok_and(|got| got > 0) {
        ensure!(begun.elapsed() < NEVER, "the connection goes on");
    }
    Ok(())
}
