//! Programs on instances: several of them, and the effect on all others when a program, an instance
//! or the guardian ends or stops.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_e2e::cpython::PYTHON;
use uncork_e2e::hosts::{THEIRS, end};
use uncork_e2e::http::Answer;
use uncork_e2e::late::{ensure_soon, in_time};
use uncork_e2e::skip::find;
use uncork_e2e::{Alone, Daemon, Hosts, Instances, alone, artifact, run};

use crate::on_stack::kills::remains::Remains;
use crate::on_stack::{Scratch, lacks, nginx, wait_until};

const NEEDED: [(&str, &str); 1] = [("python3", "python3")];
const PORT: u16 = 7090;
const OTHER: u16 = 7091;
/// The port of nginx.
const HTTP: u16 = 8080;
const REDIS: u16 = 6380;
/// How long a peer may take to hear of the end: half of this, with room for a busy machine.
const SOON: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);

/// Starts one of the servers of `py/instance.py`, on an instance.
pub(crate) fn server(hosts: &Hosts, scratch: &Scratch, how: &str, port: u16) -> Result<Daemon> {
    let mut command = hosts.on_stack(PYTHON)?;
    command.arg(artifact::source("py/instance.py")).args([how, &port.to_string()]);
    Daemon::on_stack(command, &scratch.path(&format!("{how}-{port}.log")), hosts, port)
}

pub(crate) fn end_by(signal: Signal, pid: u32) -> Result<()> {
    Ok(kill(Pid::from_raw(i32::try_from(pid)?), signal)?)
}

pub(crate) fn is_echoed(stream: &mut TcpStream, long: usize) -> Result<()> {
    let said = crate::on_stack::noise(long);
    let mut heard = vec![0; long];
    stream.write_all(&said)?;
    stream.read_exact(&mut heard)?;
    ensure!(heard == said, "another echo");
    Ok(())
}

/// Reads to the end, whether a FIN or a reset, and returns when that came.
pub(crate) fn end_of(mut stream: TcpStream) -> Instant {
    let mut bytes = [0; 1 << 16];
    while stream.read(&mut bytes).is_ok_and(|got| got > 0) {}
    Instant::now()
}

/// Counts the attachments whose memory the instances hold.
pub(crate) fn attachments(instances: &[u32]) -> Result<usize> {
    let maps = instances.iter().map(|pid| Ok(fs::read_to_string(format!("/proc/{pid}/maps"))?));
    let maps: String = maps.collect::<Result<_>>()?;
    Ok(maps.matches("uncork-attachment").count())
}

pub(crate) fn pids(hosts: &Hosts) -> Result<Vec<u32>> {
    hosts.instances().as_ref().context("no instances")?.pids()
}

#[test]
fn two_instances_lose_a_request_or_mix_up_their_programs() -> Result<()> {
    let programs = [("nginx", "nginx-light"), ("redis-benchmark", "redis-tools")];
    if lacks(&programs)? || lacks(&[("redis-server", "redis-server")])? {
        return Ok(());
    }
    let hosts = Hosts::with_instances("insttwo", 2)?;
    let scratch = Scratch::new()?;
    let wanted = [("/small", 602), ("/big", 10_000_000)];
    for (name, length) in wanted {
        scratch.file(&name[1..], length)?;
    }
    let web = nginx::serving(&hosts, &scratch, 4, "on")?;
    let store = redis(&hosts, &scratch)?;
    for pid in pids(&hosts)? {
        ensure!(attachments(&[pid])? >= 2, "the programs are not on both instances");
    }
    let before = hosts.counted()?;
    let asks = |who: usize| {
        for round in 0..10 {
            let (name, length) = wanted[usize::from((who + round).is_multiple_of(5))];
            let answer = hosts.http(HTTP)?.get(name).with_context(|| format!("{who}: {round}"))?;
            ensure!(answer == Answer::of(200, &crate::on_stack::noise(length)), "{name}");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let benchmark = scope.spawn(|| redis_benchmark(&hosts));
        hosts.crowd(8, asks)?;
        benchmark.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    })?;
    hosts.check_all_on_stack(before)?;
    let mut slow = hosts.http(HTTP)?;
    slow.request("/big", "")?;
    slow.stream().peek(&mut [0])?;
    web.signal(Signal::SIGHUP)?;
    for _ in 0..20 {
        nginx::get_anew(&hosts, "/small", 4)?;
    }
    ensure!(
        slow.answer()? == Answer::of(200, &crate::on_stack::noise(10_000_000)),
        "through a reload"
    );
    drop(slow);
    for program in [web, store] {
        program.stop(Signal::SIGTERM)?;
    }
    let all = pids(&hosts)?;
    wait_until("the programs' memory is given back", || Ok(attachments(&all)? == 0))?;
    hosts.check_nothing_left(HTTP)
}

fn redis(hosts: &Hosts, scratch: &Scratch) -> Result<Daemon> {
    let mut command = hosts.on_stack(find("redis-server").context("no redis")?)?;
    command.args(["--port", &REDIS.to_string(), "--bind", "0.0.0.0", "--save", ""]);
    command.args(["--protected-mode", "no", "--dir"]).arg(scratch.root());
    Daemon::on_stack(command, &scratch.path("redis.log"), hosts, REDIS)
}

fn redis_benchmark(hosts: &Hosts) -> Result<()> {
    let mut command = hosts.beside(find("redis-benchmark").context("no redis-benchmark")?)?;
    command.args(["-h", uncork_e2e::hosts::OURS, "-p", &REDIS.to_string(), "--csv"]);
    command.args(["-c", "50", "-n", "5000", "-t", "set,get,lpush", "-d", "500"]);
    let said = run(&mut command, LONG)?.successful()?;
    ensure!(said.stdout.lines().count() == 4, "{}{}", said.stdout, said.stderr);
    Ok(())
}

#[test]
fn a_program_that_is_killed_takes_others_with_it_or_leaves_its_peers_waiting() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("the end of a program on an instance", || program_is_killed(&alone))
}

fn program_is_killed(alone: &Alone) -> Result<()> {
    let hosts = alone.with_instances("instprog", 1)?;
    let scratch = Scratch::new()?;
    let sends = server(&hosts, &scratch, "sends", PORT)?;
    let echo = server(&hosts, &scratch, "echo", OTHER)?;
    let mut beside = hosts.connect(OTHER)?;
    let downloads: Vec<_> = (0..6).map(|_| hosts.connect(PORT)).collect::<Result<_>>()?;
    let rests = hosts.connect(PORT)?;
    thread::scope(|scope| {
        let all: Vec<_> =
            downloads.into_iter().map(|stream| scope.spawn(|| end_of(stream))).collect();
        for _ in 0..50 {
            is_echoed(&mut beside, 2000)?;
        }
        let killed = Instant::now();
        sends.signal(Signal::SIGKILL)?;
        let ends = all.into_iter().map(|one| one.join().unwrap_or_else(|_| Instant::now()));
        let late = ends.max().context("nobody downloads")? - killed;
        ensure_soon(late, SOON, || format!("a peer has heard of its end after {late:?}"))?;
        anyhow::Ok(())
    })?;
    for _ in 0..50 {
        is_echoed(&mut beside, 2000)?;
    }
    // As on kernel sockets, what the dead program had sent still comes.
    end_of(rests);
    hosts.check_on_stack(&beside)?;
    drop((beside, sends));
    echo.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn an_instance_that_is_killed_leaves_programs_or_peers_waiting() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("the end of an instance", || instance_is_killed(&alone))
}

fn instance_is_killed(alone: &Alone) -> Result<()> {
    let hosts = alone.with_instances("instkill", 1)?;
    let scratch = Scratch::new()?;
    let echo = server(&hosts, &scratch, "echo", PORT)?;
    let mut streams: Vec<_> = (0..8).map(|_| hosts.connect(PORT)).collect::<Result<_>>()?;
    streams.iter_mut().try_for_each(|stream| is_echoed(stream, 2000))?;
    let count = || fs::read_to_string(scratch.path(&format!("echo-{PORT}.log")));
    let ended = count()?.matches("ECONNRESET").count();
    let instance = pids(&hosts)?[0];
    let (killed, at) = (Instant::now(), SystemTime::now());
    end_by(Signal::SIGKILL, instance)?;
    let late = streams.into_iter().map(end_of).max().context("no peers")? - killed;
    ensure_soon(late, SOON, || format!("a peer has heard of its end after {late:?}"))?;
    wait_until("the program hears of all", || {
        Ok(count()?.matches("ECONNRESET").count() == ended + 8)
    })?;
    let last = count()?;
    let nanoseconds = last.lines().filter_map(|line| line.strip_prefix("ECONNRESET ")).next_back();
    let heard = Duration::from_nanos(nanoseconds.context("none was reset")?.parse()?);
    let late = heard.saturating_sub(at.duration_since(SystemTime::UNIX_EPOCH)?);
    ensure_soon(late, SOON, || format!("the program has heard of it after {late:?}"))?;

    let mut by_kernel = hosts.connect(PORT)?;
    is_echoed(&mut by_kernel, 2000).context("the listener goes on as the kernel's")?;
    wait_until("there is another instance", || {
        let is_another = pids(&hosts)?.first().is_some_and(|pid| *pid != instance);
        // An instance has its devices when it is up.
        Ok(is_another && hosts.devices_in_use()? > 0)
    })?;
    let new = server(&hosts, &scratch, "echo", OTHER).context("one that is started then")?;
    let mut stream = hosts.connect(OTHER)?;
    is_echoed(&mut stream, 2000)?;
    hosts.check_on_stack(&stream)?;
    drop((stream, by_kernel));
    echo.stop(Signal::SIGTERM)?;
    new.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn who_connects_again_after_an_instance_has_died_is_thrown_out_by_the_next() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::with_instances("instredial", 1)?;
    let scratch = Scratch::new()?;
    let at = end(THEIRS, PORT)?;
    let listener = hosts.theirs.within(move || Ok(TcpListener::bind(at)?))?;
    thread::spawn(move || crate::on_stack::clients::echo(&listener));
    let mut command = hosts.on_stack(PYTHON)?;
    command.arg(artifact::source("py/redials.py")).args([THEIRS, &PORT.to_string()]);
    let before = hosts.counted()?;
    let client = Daemon::start(command, &scratch.path("log"))?;
    let has_dialled = |times: usize| {
        wait_until("it has connections", || Ok(client.said().matches("dialled").count() == times))
    };
    has_dialled(1)?;
    let instance = pids(&hosts)?[0];
    end_by(Signal::SIGKILL, instance)?;
    wait_until("there is another instance", || {
        Ok(pids(&hosts)?.first().is_some_and(|pid| *pid != instance))
    })?;
    // Ports of the dead instance were left.
    for times in 2..5 {
        client.signal(Signal::SIGUSR1)?;
        has_dialled(times)?;
    }
    ensure!(hosts.opened_since(before)? < 24, "all that it has opened was the kernel's");
    let said = hosts.instances().as_ref().map(Instances::said).context("no instances")?;
    ensure!(!said.contains("no longer served"), "{said}");
    client.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn a_guardian_of_instances_that_is_killed_leaves_something_behind() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    in_time("the end of a guardian of instances", || guardian_is_killed(&alone))
}

fn guardian_is_killed(alone: &Alone) -> Result<()> {
    let hosts = alone.with_instances("instguard", 2)?;
    let scratch = Scratch::new()?;
    let echo = server(&hosts, &scratch, "echo", PORT)?;
    let mut streams: Vec<_> = (0..8).map(|_| hosts.connect(PORT)).collect::<Result<_>>()?;
    let heard = streams.iter_mut().try_for_each(|stream| is_echoed(stream, 2000));
    heard.context("before")?;
    let mut remains = Remains::default();
    remains.note(&hosts)?;
    let guardian = hosts.instances().as_ref().and_then(Instances::pid).context("no guardian")?;
    let killed = Instant::now();
    end_by(Signal::SIGKILL, guardian)?;
    let late = streams.into_iter().map(end_of).max().context("no peers")? - killed;
    ensure_soon(late, SOON, || format!("a peer has heard of its end after {late:?}"))?;
    // At once, whether the instances have left their devices or not.
    let mut by_kernel = hosts.connect(PORT).context("nobody listens any more")?;
    let said = || format!("the listener goes on as the kernel's\n{}", echo.said());
    is_echoed(&mut by_kernel, 2000).with_context(said)?;
    drop(by_kernel);
    wait_until("the instances have left their devices", || Ok(hosts.packet_sockets()? == 0))?;
    let left = killed.elapsed();
    ensure_soon(left, SOON, || format!("the instances have left their devices after {left:?}"))?;
    echo.stop(Signal::SIGTERM)?;
    let killed = hosts.instances().take();
    remains.check(&hosts, PORT)?;

    *hosts.instances() = killed;
    hosts.start_instances(2)?;
    let echo = server(&hosts, &scratch, "echo", PORT).context("the next start")?;
    is_echoed(&mut hosts.connect(PORT)?, 2000).context("after the next start")?;
    echo.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn what_a_program_has_sent_is_lost_when_it_ends() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::with_instances("instleave", 1)?;
    let scratch = Scratch::new()?;
    let leaves = server(&hosts, &scratch, "leaves", PORT)?;
    let mut slow = hosts.connect(PORT)?;
    slow.write_all(b"!")?;
    let status = leaves.wait(LONG)?;
    ensure!(status.success(), "{status}");
    let said = fs::read_to_string(scratch.path(&format!("leaves-{PORT}.log")))?;
    let sent: usize = said.trim().strip_prefix("sent ").context(said.clone())?.parse()?;
    // By now its process has been gone for a while, and the window shut as long.
    thread::sleep(Duration::from_millis(500));
    let mut got = Vec::new();
    slow.read_to_end(&mut got)?;
    ensure!(got.len() == sent, "{} of {sent} octets have come", got.len());
    ensure!(sent > 32 << 10, "it could send no more than {sent}");
    let wanted = (0..=u8::MAX).cycle();
    let wrong = got.iter().zip(wanted).position(|(one, wanted)| *one != wanted);
    ensure!(wrong.is_none(), "another octet than was sent, at {wrong:?} of {sent}");
    hosts.check_nothing_left(PORT)
}

#[test]
fn a_connection_that_a_child_gets_is_lost() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::with_instances("instfork", 1)?;
    let scratch = Scratch::new()?;
    let forks = server(&hosts, &scratch, "forks", PORT)?;
    hosts.crowd(4, |who| {
        for round in 0..5 {
            let mut stream = hosts.connect(PORT)?;
            for long in [1, 3000, 100_000] {
                is_echoed(&mut stream, long).with_context(|| format!("{who}: {round}, {long}"))?;
            }
        }
        Ok(())
    })?;
    forks.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn a_program_that_is_stopped_slows_another() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::with_instances("inststop", 1)?;
    let scratch = Scratch::new()?;
    let (stopped, other) =
        (server(&hosts, &scratch, "echo", PORT)?, server(&hosts, &scratch, "echo", OTHER)?);
    let mut streams: Vec<_> = (0..8).map(|_| hosts.connect(PORT)).collect::<Result<_>>()?;
    streams.iter_mut().try_for_each(|stream| is_echoed(stream, 2000))?;
    let mut beside = hosts.connect(OTHER)?;
    let mut rounds = || {
        let begun = Instant::now();
        let mut times: Vec<_> = Vec::new();
        while begun.elapsed() < Duration::from_millis(300) {
            let before = Instant::now();
            is_echoed(&mut beside, 2000)?;
            times.push(before.elapsed());
        }
        times.sort_unstable();
        anyhow::Ok(times[times.len() / 2])
    };
    let before = rounds()?;
    stopped.signal(Signal::SIGSTOP)?;
    let piece = crate::on_stack::noise(1 << 20);
    for stream in &mut streams {
        stream.set_nonblocking(true)?;
        // Fills the peer's window and this end's buffer.
        while stream.write(&piece).is_ok() {}
    }
    let after = rounds()?;
    stopped.signal(Signal::SIGCONT)?;
    ensure!(after < before * 4 + Duration::from_millis(1), "{before:?} before, and {after:?}");
    drop(streams);
    stopped.stop(Signal::SIGTERM)?;
    other.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}
