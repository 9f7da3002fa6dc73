//! Python: asyncio, selectors and a thread for each connection, with one socket for IPv4 and IPv6;
//! clients by asyncio. The server answers only after the client's FIN.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_e2e::hosts::{OUR_V6, OURS, THEIR_V6, THEIRS, end};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, alone, artifact, run};

use crate::on_stack::{Scratch, children, lacks, noise, wait_until};

const PORT: u16 = 7070;
const NEEDED: [(&str, &str); 1] = [("python3", "python3")];
const LONG: Duration = Duration::from_secs(30);
/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections by loopback that wake all waiting threads or processes.
const ROUNDS: usize = 20;
/// The library's own descriptors begin at this number.
const OWN_DESCRIPTORS: u32 = 256;

/// Returns Debian's Python.
fn python() -> PathBuf {
    Path::new("/usr/bin/python3").to_owned()
}

/// One conversation: its second half begins when the first is over.
fn talk(mut stream: TcpStream, octets: usize, known_as: &str) -> Result<()> {
    let body = noise(octets);
    stream.write_all(&u64::try_from(octets)?.to_be_bytes())?;
    stream.write_all(&body)?;
    stream.shutdown(Shutdown::Write)?;
    let mut wanted: Vec<u8> = body.into_iter().rev().collect();
    wanted.extend(format!("{known_as}\n").bytes());
    let mut got = Vec::new();
    stream.read_to_end(&mut got)?;
    ensure!(got == wanted, "{octets} octets sent, {} of {} came back", got.len(), wanted.len());
    Ok(())
}

#[test]
fn who_polls_what_another_thread_closes_waits_for_ever() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pypoll")?;
    let mut command = hosts.on_stack(python())?;
    command.arg(artifact::source("py/closed.py")).arg(PORT.to_string());
    let said = run(&mut command, LONG)?.stdout;
    let late = said.trim().strip_prefix("True ").with_context(|| format!("told: {said}"))?;
    ensure!(late.parse::<u64>()? < 2000, "told after {late} ms");
    hosts.check_nothing_left(PORT)
}

#[test]
fn a_program_that_closes_what_it_does_not_know_serves_no_more() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pyclose")?;
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(python())?;
    command.arg(artifact::source("py/close_all.py")).arg(PORT.to_string());
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let before = hosts.counted()?;
    for octets in [1, 3_000, 2_000_000] {
        let body = noise(octets);
        let mut stream = hosts.connect(PORT)?;
        // The server has closed the descriptors by the end of this sleep.
        thread::sleep(Duration::from_millis(50));
        stream.write_all(&body)?;
        stream.shutdown(Shutdown::Write)?;
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        let wanted: Vec<u8> = body.into_iter().rev().collect();
        ensure!(got == wanted, "{octets} octets sent, {} came back\n{}", got.len(), server.said());
    }
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn python_server_answers_otherwise() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("python")?;
    let scratch = Scratch::new()?;
    for kind in ["asyncio", "selectors", "threads"] {
        let mut command = hosts.on_stack(python())?;
        command.arg(artifact::source("py/serve.py")).args([kind, &PORT.to_string()]);
        let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        let before = hosts.counted()?;
        hosts
            .crowd(8, |who| {
                for octets in [1, 3_000, 200_000, 2_000_000] {
                    let (ip, name) = if who % 2 == 0 {
                        (OURS, format!("::ffff:{THEIRS}"))
                    } else {
                        (OUR_V6, THEIR_V6.to_owned())
                    };
                    talk(hosts.connect_to(end(ip, PORT)?)?, octets + who, &name)?;
                }
                Ok(())
            })
            .map_err(|error| error.context(format!("{kind}\n{}", server.said())))?;
        hosts.check_all_on_stack(before)?;
        server.stop(Signal::SIGTERM)?;
        hosts.check_nothing_left(PORT)?;
    }
    Ok(())
}

/// As in a container: the guardian has no process id there.
#[test]
fn a_program_in_a_pid_namespace_of_its_own_is_not_on_the_stack() -> Result<()> {
    if lacks(&[NEEDED[0], ("unshare", "util-linux")])? {
        return Ok(());
    }
    let hosts = Hosts::new("pypid")?;
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(find("unshare").context("no unshare")?)?;
    command.args(["--pid", "--fork", "--kill-child"]).arg(python());
    command.arg(artifact::source("py/serve.py")).args(["selectors", &PORT.to_string()]);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let before = hosts.counted()?;
    talk(hosts.connect_to(end(OURS, PORT)?)?, 100_000, &format!("::ffff:{THEIRS}"))?;
    hosts.check_all_on_stack(before)?;
    server.signal(Signal::SIGKILL)?;
    hosts.check_nothing_left(PORT)
}

/// Such a process cannot connect to the guardian, and the guardian does not examine it: a process
/// whose memory map the kernel keeps locked (a disk does not answer) would hold the guardian up.
#[test]
fn who_goes_on_in_another_network_namespace_keeps_a_guardian() -> Result<()> {
    if lacks(&[NEEDED[0], ("nsenter", "util-linux"), ("sleep", "coreutils")])? {
        return Ok(());
    }
    let hosts = Hosts::new("pyleaves")?;
    let scratch = Scratch::new()?;
    let (there, serve) = (hosts.theirs.name(), artifact::source("py/serve.py"));
    let leaves = format!("nsenter --net=/run/netns/{there} sleep 60 &");
    let serves = format!("exec {} {} selectors {PORT}", python().display(), serve.display());
    let mut command = hosts.on_stack(find("sh").context("no sh")?)?;
    command.args(["-c", &format!("{leaves} {serves}")]);
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    server.signal(Signal::SIGKILL)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn python_client_hears_otherwise() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pyclient")?;
    let scratch = Scratch::new()?;
    let mut command = hosts.beside(python())?;
    command.arg(artifact::source("py/serve.py")).args(["threads", &PORT.to_string()]);
    let server = Daemon::start(command, &scratch.path("log"))?;
    wait_until("the other host listens", || Ok(hosts.theirs.listens(PORT)))?;
    let before = hosts.counted()?;
    for host in [THEIRS, THEIR_V6] {
        let mut command = hosts.on_stack(python())?;
        command.arg(artifact::source("py/ask.py")).args([host, &PORT.to_string()]);
        let said = run(&mut command, LONG)?.successful()?.stdout;
        ensure!(said == "100\nrefused\n", "{said}");
    }
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

/// Returns whether the server sends back what was sent, now or soon.
fn is_answered(stream: &TcpStream, patience: Duration) -> Result<bool> {
    stream.set_read_timeout(Some(patience))?;
    loop {
        match stream.peek(&mut [0]) {
            Ok(1) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            // With a timeout the kernel does not restart the call (signal(7)).
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => bail!("instead of an answer: {other:?}"),
        }
    }
}

#[test]
fn what_waits_is_reset_when_one_of_two_processes_listens_no_more() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pyleave")?;
    let scratch = Scratch::new()?;
    for how in ["close", "exit"] {
        let mut command = hosts.on_stack(python())?;
        command.arg(artifact::source("py/leave.py")).args([how, &PORT.to_string()]);
        let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        wait_until("both wait", || Ok(server.said().matches("waits").count() == 2))?;
        let before = hosts.counted()?;
        let mut streams = Vec::new();
        for _ in 0..24 {
            let mut stream = hosts.connect(PORT)?;
            stream.write_all(b"!")?;
            streams.push(stream);
        }
        let mut wait = Vec::new();
        for stream in &streams {
            if !is_answered(stream, Duration::from_millis(50))? {
                wait.push(stream);
            }
        }
        ensure!((1..24).contains(&wait.len()), "{} of 24 wait", wait.len());
        // Meanwhile other clients connect, and some are in the middle of that.
        thread::scope(|scope| {
            let crowd = scope.spawn(|| {
                hosts.crowd(4, |_| {
                    for _ in 0..25 {
                        let mut stream = hosts.connect(PORT)?;
                        stream.write_all(b"!")?;
                        ensure!(
                            is_answered(&stream, LONG)?,
                            "{how}: no answer to one who connects"
                        );
                        // Read before the close: otherwise the server would get a reset.
                        stream.read_exact(&mut [0])?;
                    }
                    Ok(())
                })
            });
            thread::sleep(Duration::from_millis(20));
            server.signal(Signal::SIGUSR1)?;
            crowd.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?.map(drop)
        })?;
        for stream in wait {
            ensure!(is_answered(stream, LONG)?, "{how}: no answer");
        }
        for mut stream in streams {
            stream.write_all(b"?")?;
            stream.shutdown(Shutdown::Write)?;
            let mut heard = String::new();
            stream.read_to_string(&mut heard)?;
            ensure!(heard == "!?", "{how}: {heard}");
        }
        hosts.check_all_on_stack(before)?;
        server.stop(Signal::SIGTERM)?;
        hosts.check_nothing_left(PORT)?;
    }
    Ok(())
}

/// Sends something, and receives it again.
fn is_echoed(mut stream: TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"!")?;
    let mut heard = String::new();
    stream.read_to_string(&mut heard)?;
    ensure!(heard == "!", "instead of an echo: {heard:?}");
    Ok(())
}

/// Returns whether the kernel's listener of a process blocks.
fn is_blocking(pid: u32) -> Result<bool> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let fd = entry.file_name().to_string_lossy().into_owned();
        if !is_socket || fd.parse::<u32>().is_ok_and(|fd| fd >= OWN_DESCRIPTORS) {
            continue;
        }
        let told = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))?;
        let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = i32::from_str_radix(flags.context("no flags")?.trim(), 8)?;
        return Ok(!OFlag::from_bits_truncate(flags).contains(OFlag::O_NONBLOCK));
    }
    bail!("process {pid} has no socket")
}

#[test]
fn those_who_wait_in_accept_are_deaf_after_a_connection_by_loopback() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pyaccept")?;
    let scratch = Scratch::new()?;
    for kind in ["processes", "threads"] {
        let mut command = hosts.on_stack(python())?;
        command.arg(artifact::source("py/accept.py")).args([kind, &PORT.to_string()]);
        let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        for round in 0..ROUNDS {
            let rounds = || format!("{kind}, round {round}");
            // The first of these wakes all, and all but one of them for nothing.
            let near = end("127.0.0.1", PORT)?;
            hosts.ours.within(move || is_echoed(TcpStream::connect(near)?)).with_context(rounds)?;
            hosts.crowd(8, |_| is_echoed(hosts.connect(PORT)?)).with_context(rounds)?;
        }
        ensure!(is_blocking(server.pid())?, "{kind}: the listener has become a non-blocking one");
        server.stop(Signal::SIGTERM).context(kind)?;
        hosts.check_nothing_left(PORT)?;
    }
    Ok(())
}

#[test]
fn a_connection_that_a_program_gets_as_its_standard_input_is_lost() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pyinetd")?;
    let scratch = Scratch::new()?;
    // Each program begins to listen where the one before has left connections in TIME-WAIT.
    for how in ["greets", "fork", "greets", "vfork", "spawn"] {
        let mut command = hosts.on_stack(python())?;
        command.arg(artifact::source("py/inetd.py")).args([how, &PORT.to_string()]);
        let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
        let octets = if how == "greets" { 1_000 } else { 300_000 };
        let crowd = hosts.crowd(4, |who| {
            for round in 0..5 {
                let mut stream = hosts.connect(PORT)?;
                let sent = noise(octets + who);
                stream.write_all(&sent)?;
                if how != "greets" {
                    stream.shutdown(Shutdown::Write)?;
                }
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).with_context(|| format!("round {round}"))?;
                ensure!(heard == sent, "{} of {} octets, round {round}", heard.len(), sent.len());
            }
            Ok(())
        });
        crowd.with_context(|| format!("{how}\n{}", server.said()))?;
        server.stop(Signal::SIGTERM)?;
    }
    hosts.check_nothing_left(PORT)
}

#[test]
fn who_comes_to_a_listener_that_was_given_to_a_child_waits_for_ever() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pygiven")?;
    let scratch = Scratch::new()?;
    let with_own = ["poll", "exec", "vfork", "spawn"];
    for how in
        with_own.into_iter().chain(["bare-exec", "empty", "bare-vfork", "bare-spawn", "bare-input"])
    {
        let mut command = hosts.on_stack(python())?;
        command.arg(artifact::source("py/given.py")).args([&PORT.to_string(), how]);
        let server = Daemon::start(command, &scratch.path(how))?;
        wait_until("the listener is the child's", || Ok(server.said().contains("given")))?;
        // The child may get there later than the clients.
        thread::sleep(Duration::from_millis(300));
        for at in 0..24 {
            let mut stream = hosts.connect(PORT)?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            let mut heard = String::new();
            let read = stream.read_to_string(&mut heard);
            read.with_context(|| format!("{how}, connection {at}: {}", server.said()))?;
            ensure!(heard == "hi", "{how}, connection {at}: {heard:?}");
        }
        // The child first: no process waits for it.
        for child in children(server.pid())? {
            kill(Pid::from_raw(i32::try_from(child)?), Signal::SIGKILL)?;
        }
        server.signal(Signal::SIGKILL)?;
        hosts.check_nothing_left(PORT)?;
    }
    Ok(())
}

/// What the parent has not sent yet follows the connection to the kernel, and a child that sees it
/// there does not write ahead of it.
#[test]
fn a_child_writes_before_what_its_parent_has_written() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pybehind")?;
    let scratch = Scratch::new()?;
    let _server = serving(&hosts, &scratch, "behind", &[])?;
    for at in 0..20 {
        let mut stream = hosts.connect(PORT)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // Its window is usually shut by then.
        thread::sleep(Duration::from_millis(30));
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).with_context(|| format!("connection {at}"))?;
        let dots = heard.iter().take_while(|octet| **octet == b'.').count();
        let behind = String::from_utf8_lossy(&heard[dots..]).into_owned();
        ensure!(behind == format!("behind {dots}"), "connection {at}: {dots}, then {behind:.60}");
    }
    Ok(())
}

/// Starts one of the programs on the stack; its first argument is the port.
fn serving(hosts: &Hosts, scratch: &Scratch, name: &str, arguments: &[&str]) -> Result<Daemon> {
    let mut command = hosts.on_stack(python())?;
    command.arg(artifact::source(&format!("py/{name}.py"))).arg(PORT.to_string()).args(arguments);
    Daemon::on_stack(command, &scratch.path(&[&[name], arguments].concat().join("-")), hosts, PORT)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Written data, or data that had to wait for ACKs, used to wait for the library, which looked
/// every two milliseconds: a few octets took 2.2 ms, 300,000 of them 37 to 43 ms. On kernel sockets
/// it is 0.1 and 0.6 ms, on the stack 0.25 and one by now.
#[test]
fn what_a_program_wrote_before_it_turned_away_comes_late() -> Result<()> {
    const ROUNDS: usize = 9;
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    let hosts = alone.hosts("pyaway")?;
    let scratch = Scratch::new()?;
    for how in ["sleep", "pipe", "poll", "compute"] {
        let server = serving(&hosts, &scratch, "away", &[how])?;
        // With a pause the window is shut, and the last part does not fit in.
        for (octets, pause, at_most) in
            [(100, 0, 1_300), (7_000, 0, 1_300), (300_000, 0, 10_000), (300_000, 30, 10_000)]
        {
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                let mut stream = hosts.connect(PORT)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut begin = Instant::now();
                stream.write_all(octets.to_string().as_bytes())?;
                if pause > 0 {
                    thread::sleep(Duration::from_millis(pause));
                    begin = Instant::now();
                }
                let mut heard = vec![0; octets];
                stream.read_exact(&mut heard).with_context(|| how.to_owned())?;
                times.push(begin.elapsed());
                ensure!(stream.read(&mut heard)? == 0, "{how}: more came");
            }
            let median = median(&mut times);
            let told = || format!("{octets} octets, {how}, behind {pause} ms: {times:?}");
            ensure!(median < Duration::from_micros(at_most), "{}", told());
        }
        server.stop(Signal::SIGTERM)?;
    }
    hosts.check_nothing_left(PORT)
}

/// Such a call used to sleep with data just given to the stack, or a window just opened, until the
/// library looked or the peer's timer fired: 100,000 octets took 0.5 s, and 0.1 s back.
#[test]
fn a_call_that_moves_more_than_a_buffer_holds_waits_for_timers() -> Result<()> {
    const ROUNDS: usize = 5;
    const AT_MOST: Duration = Duration::from_millis(15);
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    let hosts = alone.hosts("pynarrow")?;
    let scratch = Scratch::new()?;
    let server = serving(&hosts, &scratch, "narrow", &[])?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        let mut stream = hosts.connect(PORT)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (sent, mut heard) = (noise(100_000), Vec::new());
        let begin = Instant::now();
        stream.write_all(&sent)?;
        stream.read_to_end(&mut heard)?;
        times.push(begin.elapsed());
        ensure!(heard == sent, "round {round}: {} octets came back", heard.len());
    }
    ensure!(median(&mut times) < AT_MOST, "{times:?}");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

/// Data given to one kind of socket leaves when the program begins to wait, on the other kind or on
/// something that is no socket. A relay used to hold its requests for the bound of a millisecond; a
/// thread's answers waited for the library's second look, 4 ms.
#[test]
fn answers_by_other_ways_than_the_stack_alone_take_no_longer() -> Result<()> {
    const ROUNDS: usize = 60;
    const AT_MOST: Duration = Duration::from_micros(800);
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let alone = alone();
    let hosts = alone.hosts("pyanswers")?;
    let scratch = Scratch::new()?;
    for how in ["relay", "futex"] {
        let server = serving(&hosts, &scratch, "answers", &[how])?;
        let mut stream = hosts.connect(PORT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let (sent, mut heard) = (noise(100 + round), vec![0; 100 + round]);
            let begin = Instant::now();
            stream.write_all(&sent)?;
            stream.read_exact(&mut heard).with_context(|| how.to_owned())?;
            times.push(begin.elapsed());
            ensure!(heard == sent, "{how}: something else came back");
        }
        ensure!(median(&mut times) < AT_MOST, "{how}: {times:?}");
        server.stop(Signal::SIGTERM)?;
    }
    hosts.check_nothing_left(PORT)
}

#[test]
fn who_passes_a_connection_to_a_program_that_it_starts_loses_that_and_the_others() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("pystarts")?;
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(python())?;
    command.arg(artifact::source("py/starts.py")).arg(PORT.to_string());
    let server = Daemon::on_stack(command, &scratch.path("log"), &hosts, PORT)?;
    let said = |name: &str| format!("what {name} says");
    let mut streams = Vec::new();
    for name in ["a", "b", "c"] {
        let mut stream = hosts.connect(PORT)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // The connection that is passed on has unread data, and one direction at its end.
        if name == "a" {
            stream.write_all(format!("a{}", said("a")).as_bytes())?;
            stream.shutdown(Shutdown::Write)?;
        } else {
            stream.write_all(name.as_bytes())?;
        }
        streams.push((name, stream));
    }
    for (name, stream) in &mut streams {
        let said = said(name);
        let told = || format!("{name}: {}", server.said());
        if *name != "a" {
            stream.write_all(said.as_bytes()).with_context(told)?;
        }
        let mut heard = String::new();
        stream.read_to_string(&mut heard).with_context(told)?;
        ensure!(heard == said, "{name}: {heard:?} came back");
    }
    ensure!(server.wait(LONG)?.success(), "it has failed");
    hosts.check_nothing_left(PORT)
}
