//! nginx: one worker and four, bodies larger than any buffer, reload and stop during a download.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uncork_e2e::hosts::{OUR_V6, end};
use uncork_e2e::http::{Answer, Connection};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, run};

use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 8080;
const MEGABYTE: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(20);
const HUGE: usize = 100_000_000;
const NEEDED: [(&str, &str); 1] = [("nginx", "nginx-light")];

/// Returns the configuration of a server for the files of a directory.
pub(crate) fn configuration(scratch: &Scratch, port: u16, workers: u32, sendfile: &str) -> String {
    let directory = scratch.root().display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {directory}/{kind};\n"))
        .collect();
    format!(
        "user root; worker_processes {workers}; daemon off; pid {directory}/pid;\n\
         error_log stderr notice;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; {temporary} sendfile {sendfile}; tcp_nopush on;\n\
         keepalive_requests 100000; client_max_body_size 8m;\n\
         server {{ listen {port}; listen [::]:{port}; root {directory};\n\
         location = /pid {{ return 200 $pid; }} }} }}\n"
    )
}

const WORKERS: u32 = 4;

pub(crate) fn serving(
    hosts: &Hosts,
    scratch: &Scratch,
    workers: u32,
    sendfile: &str,
) -> Result<Daemon> {
    fs::write(scratch.path("nginx.conf"), configuration(scratch, PORT, workers, sendfile))?;
    let mut command = hosts.on_stack(find("nginx").context("no nginx")?)?;
    command.arg("-c").arg(scratch.path("nginx.conf")).arg("-p").arg(scratch.root());
    command.arg("-e").arg("stderr");
    Daemon::on_stack(command, &scratch.path("log"), hosts, PORT)
}

/// Returns the response that nginx should give for this file.
fn whole(scratch: &Scratch, name: &str) -> Result<Answer> {
    Ok(Answer::of(200, &fs::read(scratch.path(name))?))
}

#[test]
fn nginx_sends_a_wrong_or_short_body() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("nginxbody")?;
    let scratch = Scratch::new()?;
    for (name, length) in [("small", 602), ("page", 100_000), ("big", MEGABYTE), ("huge", HUGE)] {
        scratch.file(name, length)?;
    }
    for (workers, sendfile) in [(1, "off"), (4, "on")] {
        let server = serving(&hosts, &scratch, workers, sendfile)?;
        let before = hosts.counted()?;
        let mut kept = hosts.http(PORT)?;
        for _ in 0..5 {
            for name in ["small", "page", "big"] {
                ensure!(kept.get(&format!("/{name}"))? == whole(&scratch, name)?, "{name}");
            }
        }
        hosts.check_on_stack(kept.stream())?;
        let mut by_ipv6 = Connection::over(hosts.connect_to(end(OUR_V6, PORT)?)?)?;
        ensure!(by_ipv6.get("/page")? == whole(&scratch, "page")?, "page by IPv6");
        for name in ["small", "page", "big", "huge"] {
            let mut closing = hosts.http(PORT)?;
            closing.request(&format!("/{name}"), "Connection: close\r\n")?;
            ensure!(closing.answer()? == whole(&scratch, name)?, "{name}");
            ensure!(closing.at_end()?, "{name}: the connection is still open");
        }
        let status = server.stop(Signal::SIGQUIT)?;
        ensure!(status.success(), "nginx ended with {status}\n{}", log(&scratch)?);
        hosts.check_all_on_stack(before)?;
        hosts.check_nothing_left(PORT)?;
    }
    Ok(())
}

/// Its SYN-ACK, the answer with its FIN and the request's ACK, and the ACK of the client's FIN.
const SEGMENTS_A_CONNECTION: u64 = 3;

#[test]
fn nginx_says_in_many_segments_what_it_could_say_in_three() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("nginxfew")?;
    let scratch = Scratch::new()?;
    scratch.file("small", 602)?;
    let server = serving(&hosts, &scratch, 1, "on")?;
    let small = whole(&scratch, "small")?;
    let before = hosts.heard_by_them()?;
    let count = 200;
    for _ in 0..count {
        let mut closing = hosts.http(PORT)?;
        closing.request("/small", "Connection: close\r\n")?;
        ensure!(closing.answer()? == small && closing.at_end()?, "another answer");
    }
    let heard = hosts.heard_by_them()? - before;
    // On a busy machine some answers miss the millisecond for which the ACK waits.
    ensure!(heard <= count * SEGMENTS_A_CONNECTION + count / 2, "{heard} for {count} connections");
    ensure!(heard + count / 2 >= count * SEGMENTS_A_CONNECTION, "{heard}: not all was counted");
    server.stop(Signal::SIGQUIT)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn nginx_loses_a_request_of_many_at_once() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("nginxmany")?;
    let scratch = Scratch::new()?;
    for (name, length) in [("small", 602), ("page", 100_000)] {
        scratch.file(name, length)?;
    }
    let server = serving(&hosts, &scratch, 4, "on")?;
    let before = hosts.counted()?;
    let (small, page) = (whole(&scratch, "small")?, whole(&scratch, "page")?);
    hosts.crowd(16, |who| {
        for round in 0..20 {
            let mut connection = hosts.http(PORT)?;
            for _ in 0..round % 3 {
                ensure!(connection.get("/small")? == small, "{who}: small in round {round}");
            }
            ensure!(connection.get("/page")? == page, "{who}: page in round {round}");
        }
        Ok(())
    })?;
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn nginx_reload_or_stop_cuts_a_download_short() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("nginxreload")?;
    let scratch = Scratch::new()?;
    for (name, length) in [("small", 602), ("big", 20 * MEGABYTE)] {
        scratch.file(name, length)?;
    }
    let (small, big) = (whole(&scratch, "small")?, whole(&scratch, "big")?);
    let server = serving(&hosts, &scratch, WORKERS, "on")?;
    let before = hosts.counted()?;
    for round in 0..3 {
        let mut slow = hosts.http(PORT)?;
        slow.request("/big", "")?;
        let mut kept = hosts.http(PORT)?;
        ensure!(kept.get("/small")? == small, "before the reload");
        if round == 0 {
            hosts.check_all_on_stack(before)?;
        }
        // Connections in the accept queues of old workers go over to the kernel.
        let reloads = log(&scratch)?.matches("reconfiguring").count();
        server.signal(Signal::SIGHUP)?;
        wait_until("nginx reloads", || {
            Ok(log(&scratch)?.matches("reconfiguring").count() > reloads)
        })?;
        ensure!(get_anew(&hosts, "/small", WORKERS)? == small, "after the reload");
        ensure!(slow.answer()? == big, "the download");
    }
    let mut slow = hosts.http(PORT)?;
    slow.request("/big", "")?;
    // Its first bytes have arrived.
    slow.stream().peek(&mut [0])?;
    server.signal(Signal::SIGQUIT)?;
    std::thread::sleep(Duration::from_millis(100));
    ensure!(slow.answer()? == big, "the download during the stop");
    let status = server.wait(Duration::from_secs(20))?;
    let log = log(&scratch)?;
    ensure!(status.success() && !log.contains("exited on signal"), "{status}\n{log}");
    hosts.check_nothing_left(PORT)
}

/// Returns the process id in a file of nginx's, once it is there.
fn pid_in(path: &Path) -> Result<Pid> {
    wait_until(&path.display().to_string(), || {
        Ok(fs::metadata(path).is_ok_and(|file| file.len() > 0))
    })?;
    Ok(Pid::from_raw(fs::read_to_string(path)?.trim().parse()?))
}

#[test]
fn nginx_loses_somebody_while_its_binary_is_replaced() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("nginxbinary")?;
    let scratch = Scratch::new()?;
    for (name, length) in [("small", 602), ("big", 20 * MEGABYTE)] {
        scratch.file(name, length)?;
    }
    let (small, big) = (whole(&scratch, "small")?, whole(&scratch, "big")?);
    // nginx replaces its binary only as a daemon, and the new master keeps only those environment
    // variables that the configuration names.
    let configuration = configuration(&scratch, PORT, 2, "on").replace("daemon off;", "");
    let configuration = format!("env LD_PRELOAD; env UNCORK_STACK;\n{configuration}");
    fs::write(scratch.path("nginx.conf"), configuration)?;
    let mut command = hosts.on_stack(find("nginx").context("no nginx")?)?;
    command.arg("-c").arg(scratch.path("nginx.conf")).arg("-p").arg(scratch.root());
    command.arg("-e").arg(scratch.path("log"));
    run(&mut command, LONG)?.successful()?;
    let old = pid_in(&scratch.path("pid"))?;
    wait_until("connections are the stack's", || {
        let before = hosts.counted()?;
        let answers = hosts.http(PORT)?.get("/small").context("at first")? == small;
        Ok(answers && hosts.opened_since(before)? == 0)
    })?;
    let mut slow = hosts.http(PORT)?;
    slow.request("/big", "")?;
    let mut kept = hosts.http(PORT)?;
    ensure!(kept.get("/small")? == small, "before");

    // As in nginx's manual: a new master takes the old one's listeners, then the old one ends.
    kill(old, Signal::SIGUSR2)?;
    let still = pid_in(&scratch.path("pid.oldbin"))?;
    let new = pid_in(&scratch.path("pid"))?;
    ensure!(still == old && new != old, "{old}, {still}, {new}");
    for round in 0..20 {
        let both = || format!("both are there, round {round}");
        ensure!(get_anew(&hosts, "/small", 0).with_context(both)? == small, "{}", both());
    }
    let kept = kept.get("/small").context("the old one's connection")?;
    ensure!(kept == small, "the old one's connection");
    kill(old, Signal::SIGQUIT)?;
    for round in 0..20 {
        let ends = || format!("the old one ends, round {round}");
        ensure!(get_anew(&hosts, "/small", 2).with_context(ends)? == small, "{}", ends());
    }
    let slow = slow.answer().context("the download from the old one")?;
    ensure!(slow == big, "the download from the old one");
    wait_until("the old one ends", || Ok(kill(old, None).is_err()))?;
    let before = hosts.counted()?;
    for round in 0..20 {
        ensure!(get_anew(&hosts, "/small", 0)? == small, "the new one alone, round {round}");
    }
    let opened = hosts.opened_since(before)?;
    ensure!(opened == 0, "{opened} of the new one's connections are the kernel's");
    kill(new, Signal::SIGQUIT)?;
    wait_until("the new one ends", || Ok(kill(new, None).is_err()))?;
    let log = log(&scratch)?;
    ensure!(!log.contains("exited on signal"), "{log}");
    hosts.check_nothing_left(PORT)
}

/// Sends a request on a connection of its own, and on others if the server ends that one without an
/// answer: a worker that shuts down closes accepted connections from which nothing has come yet.
/// Each worker does so once.
pub(crate) fn get_anew(hosts: &Hosts, path: &str, ending: u32) -> Result<Answer> {
    // Nothing else is forgiven: no refused connection, and no late answer.
    let is_ended = |error: &anyhow::Error| {
        error.downcast_ref().is_some_and(|error: &io::Error| {
            use io::ErrorKind::{ConnectionAborted, ConnectionReset};
            matches!(error.kind(), ConnectionAborted | ConnectionReset)
        })
    };
    for _ in 0..ending {
        match hosts.http(PORT)?.get(path) {
            Err(error) if is_ended(&error) => {}
            other => return other,
        }
    }
    hosts.http(PORT)?.get(path)
}

fn log(scratch: &Scratch) -> Result<String> {
    Ok(fs::read_to_string(scratch.path("log"))?)
}
