//! Messages of several writes by programs with threads: no peer waits for an acknowledgement that
//! the other end delays, though one thread may send what another has not finished writing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use uncork_e2e::late::{ensure_soon, in_time};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, alone, artifact};

use crate::on_stack::{Scratch, lacks};

const PORT: u16 = 7103;
const NEEDED: [(&str, &str); 1] = [("python3", "python3")];
/// Concurrent connections, each with a thread at the other end.
const PEERS: usize = 4;
/// After the first few rounds the peer's ACKs are delayed.
const ROUNDS: usize = 60;
const MUCH: usize = 20_000_000;
const WRITES_OF_MUCH: usize = 10;
/// How long a peer does not read.
const PAUSE: Duration = Duration::from_secs(1);
/// The limit in hundredths of a second.
const TICKS: u64 = 20;
/// On a busy machine it takes a tenth of a second.
const LONG: Duration = Duration::from_secs(1);
/// The peer delays an acknowledgement by 40 ms.
const SOON: Duration = Duration::from_millis(20);

#[test]
fn the_second_write_of_a_thread_waits_for_an_acknowledgement() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("messages of several writes", || check(alone.hosts("messages")?))
}

#[test]
fn the_second_write_waits_for_an_acknowledgement_at_an_instance() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("messages at an instance", || check(alone.with_instances("messagesi", 1)?))
}

fn check(hosts: Hosts) -> Result<()> {
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
    command.arg(artifact::source("py/two_writes.py")).arg(PORT.to_string());
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let line = |stream: &mut TcpStream, line: &str| {
        stream.write_all(line.as_bytes())?;
        let mut answer = vec![0; 4 + line.len()];
        stream.read_exact(&mut answer)?;
        ensure!(answer.strip_prefix(b"HEAD") == Some(line.as_bytes()), "{answer:?}");
        Ok(())
    };
    half_are_soon("two writes", &hosts, PEERS, |stream| line(stream, "what\n"))?;
    half_are_soon("computes between", &hosts, 1, |stream| line(stream, "compute\n"))?;
    half_are_soon("nothing behind it", &hosts, 1, |stream| line(stream, "tail\n"))?;
    half_are_soon("a short file", &hosts, 1, |stream| line(stream, "file\n"))?;
    half_are_soon("a short file of 64 KiB", &hosts, 1, |stream| {
        stream.write_all(b"page\n")?;
        Ok(stream.read_exact(&mut [0; 65_536])?)
    })?;
    ticks_come_one_by_one(&hosts)?;
    who_waits_for_a_peer_that_does_not_read_rests(&hosts, server.pid())?;
    one_write_of_much_goes_on(&hosts)?;
    drop(server);
    hosts.check_nothing_left(PORT)
}

/// The peer sends no answer, and each tick leaves when it is written, not with others that an
/// acknowledgement releases.
fn ticks_come_one_by_one(hosts: &Hosts) -> Result<()> {
    let reads = hosts.crowd(PEERS, |_| {
        let mut stream = hosts.connect(PORT)?;
        hosts.check_on_stack(&stream)?;
        stream.write_all(format!("ticks {ROUNDS}\n").as_bytes())?;
        let (mut reads, mut left) = (0, ROUNDS);
        while left > 0 {
            left -= stream.read(&mut [0; ROUNDS][..left])?;
            reads += 1;
        }
        Ok(reads)
    })?;
    let all = PEERS * ROUNDS;
    let reads: usize = reads.into_iter().sum();
    ensure!(reads > all / 2, "{all} ticks have come in {reads} segments");
    Ok(())
}

/// A thread that waits for buffer space sleeps.
fn who_waits_for_a_peer_that_does_not_read_rests(hosts: &Hosts, server: u32) -> Result<()> {
    let mut stream = hosts.connect(PORT)?;
    stream.write_all(format!("much {MUCH}\n").as_bytes())?;
    thread::sleep(PAUSE);
    let before = cpu_ticks(server)?;
    thread::sleep(PAUSE);
    let ticks = cpu_ticks(server)? - before;
    ensure!(ticks < TICKS, "who waits takes {ticks} ticks of a processor in {PAUSE:?}");
    Ok(stream.read_exact(&mut vec![0; MUCH])?)
}

/// Returns a process's processor time, user and system (proc_pid_stat(5)).
fn cpu_ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, behind_name) = stat.rsplit_once(')').context("no name")?;
    let ticks = behind_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()?)
}

/// A write that waits for buffer space hundreds of times misses no wake.
fn one_write_of_much_goes_on(hosts: &Hosts) -> Result<()> {
    let mut stream = hosts.connect(PORT)?;
    let mut into = vec![0; 1 << 18];
    for round in 0..WRITES_OF_MUCH {
        let begun = Instant::now();
        stream.write_all(format!("much {MUCH}\n").as_bytes())?;
        let mut left = MUCH;
        while left > 0 {
            let most = into.len().min(left);
            let read = stream.read(&mut into[..most]).context("reading much")?;
            ensure!(read > 0, "the end, {left} too early");
            left -= read;
        }
        let took = begun.elapsed();
        ensure_soon(took, LONG, || format!("round {round} of {MUCH} octets took {took:?}"))?;
    }
    Ok(())
}

/// Asserts that the median of all rounds of this many peers is short.
fn half_are_soon(
    what: &str,
    hosts: &Hosts,
    peers: usize,
    round: impl Fn(&mut TcpStream) -> Result<()> + Sync,
) -> Result<()> {
    let took = hosts.crowd(peers, |_| {
        let mut stream = hosts.connect(PORT)?;
        hosts.check_on_stack(&stream)?;
        (0..ROUNDS)
            .map(|_| {
                let begun = Instant::now();
                round(&mut stream)?;
                Ok(begun.elapsed())
            })
            .collect::<Result<Vec<_>>>()
    })?;
    let mut took: Vec<_> = took.into_iter().flatten().collect();
    took.sort_unstable();
    let median = took[took.len() / 2];
    ensure_soon(median, SOON, || format!("{what}: the median is {median:?}"))
}
