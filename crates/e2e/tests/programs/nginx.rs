//! nginx: keep-alive and close, sendfile, bodies larger than any buffer, reload under load.

use std::fs;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::http::{Answer, Connection};
use uncork_e2e::skip::{find, root, skip};
use uncork_e2e::{Daemon, Mode, beside_others, daemon, same_as_plain};

use crate::programs::Scratch;

const BIG: usize = 20_000_000;

fn serving(mode: &Mode, scratch: &Scratch, sendfile: bool) -> Result<(Daemon, u16)> {
    let port = daemon::free_port()?;
    let directory = scratch.root().display();
    let user = if root() { "user root;" } else { "" };
    let sendfile = if sendfile { "on" } else { "off" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {directory}/{kind};\n"))
        .collect();
    let configuration = format!(
        "{user} worker_processes 2; daemon off; pid {directory}/pid;\n\
         error_log stderr notice;\n\
         events {{ worker_connections 256; }}\n\
         http {{ access_log off; {temporary} sendfile {sendfile}; tcp_nopush {sendfile};\n\
         keepalive_requests 100000;\n\
         server {{ listen 127.0.0.1:{port}; root {directory}; }} }}\n"
    );
    fs::write(scratch.path("nginx.conf"), configuration)?;
    let nginx = find("nginx").context("no nginx")?;
    let mut command = scratch.reporting(mode).command(nginx)?;
    command.arg("-c").arg(scratch.path("nginx.conf")).arg("-p").arg(scratch.root());
    command.arg("-e").arg("stderr");
    let server = Daemon::serving(command, &scratch.path("log"), port)?;
    mode.check_loaded(server.pid())?;
    Ok((server, port))
}

fn files(scratch: &Scratch) -> Result<()> {
    for (name, length) in [("empty", 0), ("small", 602), ("page", 100_000), ("big", BIG)] {
        scratch.file(name, length)?;
    }
    Ok(())
}

fn all_pages(port: u16) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    let mut kept = Connection::open(port)?;
    for _ in 0..5 {
        for path in ["/small", "/page", "/missing", "/empty"] {
            answers.push(kept.get(path)?);
        }
    }
    answers.push(kept.get("/big")?);
    for path in ["/small", "/page", "/big"] {
        let mut closing = Connection::open(port)?;
        closing.request(path, "Connection: close\r\n")?;
        answers.push(closing.answer()?);
        ensure!(closing.at_end()?, "{path}: the connection is still open");
    }
    // Several requests at once, answered in order.
    let mut pipeline = Connection::open(port)?;
    for path in ["/small", "/page", "/small", "/empty", "/page"] {
        pipeline.request(path, "")?;
    }
    for _ in 0..5 {
        answers.push(pipeline.answer()?);
    }
    let mut ranges = Connection::open(port)?;
    ranges.request("/big", "Range: bytes=1000-1999\r\n")?;
    answers.push(ranges.answer()?);
    Ok(answers)
}

#[test]
fn nginx_sends_a_wrong_or_short_body() -> Result<()> {
    if find("nginx").is_none() {
        return skip("nginx is not installed (Debian: nginx-light)");
    }
    let _shared = beside_others();
    for sendfile in [true, false] {
        same_as_plain(&Mode::both_and_spinning(), |mode| {
            let scratch = Scratch::new()?;
            files(&scratch)?;
            let (server, port) = serving(mode, &scratch, sendfile)?;
            let answers = all_pages(port)?;
            ensure!(answers.iter().any(|answer| answer.bytes == BIG), "no big answer");
            let status = server.stop(Signal::SIGQUIT)?;
            Ok((answers, status))
        })?;
    }
    Ok(())
}

#[test]
fn nginx_reload_drops_a_connection_or_a_worker() -> Result<()> {
    if find("nginx").is_none() {
        return skip("nginx is not installed (Debian: nginx-light)");
    }
    let _shared = beside_others();
    same_as_plain(&Mode::both(), reload)
}

/// Reloads in the middle of a download, and counts what went wrong.
fn reload(mode: &Mode) -> Result<(Vec<Answer>, ExitStatus, bool)> {
    let scratch = Scratch::new()?;
    files(&scratch)?;
    let (server, port) = serving(mode, &scratch, true)?;
    let mut answers = Vec::new();
    for _ in 0..3 {
        let mut slow = Connection::open(port)?;
        slow.request("/big", "")?;
        let mut kept = Connection::open(port)?;
        answers.push(kept.get("/small")?);
        let before = scratch.log()?.matches("reconfiguring").count();
        server.signal(Signal::SIGHUP)?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while scratch.log()?.matches("reconfiguring").count() == before {
            ensure!(Instant::now() < deadline, "no reload\n{}", server.said());
            std::thread::sleep(Duration::from_millis(5));
        }
        answers.push(Connection::open(port)?.get("/page")?);
        answers.push(slow.answer()?);
    }
    let status = server.stop(Signal::SIGQUIT)?;
    let crashed = scratch.log()?.contains("exited on signal");
    ensure!(!crashed, "a worker crashed:\n{}", scratch.log()?);
    Ok((answers, status, crashed))
}

impl Scratch {
    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.path("log"))?)
    }
}
