//! Python's http.server with keep-alive: the best-known victim of Nagle and delayed ACK.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::http::{Answer, Connection};
use uncork_e2e::skip::skip;
use uncork_e2e::{Daemon, Mode, alone, artifact, daemon, same_as_plain};

use crate::programs::Scratch;

/// Debian's own interpreter, not one from a user's environment.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

pub(crate) fn serving(mode: &Mode, scratch: &Scratch) -> Result<(Daemon, u16)> {
    let port = daemon::free_port()?;
    let mut command = scratch.reporting(mode).command(PYTHON)?;
    command.arg(artifact::source("py/http11.py")).arg(port.to_string()).arg(scratch.root());
    let server = Daemon::serving(command, &scratch.path("log"), port)?;
    mode.check_loaded(server.pid())?;
    Ok((server, port))
}

#[test]
fn http_server_stalls_forty_milliseconds_a_request() -> Result<()> {
    if !Path::new(PYTHON).exists() {
        return skip("there is no /usr/bin/python3 (Debian: python3)");
    }
    let _alone = alone();
    let median = |mode: &Mode| -> Result<Duration> {
        let scratch = Scratch::new()?;
        scratch.file("page", 700)?;
        let (server, port) = serving(mode, &scratch)?;
        let median = Connection::open(port)?.median_get("/page", 101)?;
        server.stop(Signal::SIGTERM)?;
        scratch.check_helped(mode)?;
        Ok(median)
    };
    let plain = median(&Mode::plain())?;
    ensure!(plain > Duration::from_millis(20), "no stall to cure here: {plain:?} a request");
    for mode in Mode::both() {
        let with = median(&mode)?;
        ensure!(with < Duration::from_millis(1), "{mode}: {with:?} a request, plain {plain:?}");
    }
    Ok(())
}

#[test]
fn http_server_sends_other_bytes_or_ends_otherwise() -> Result<()> {
    if !Path::new(PYTHON).exists() {
        return skip("there is no /usr/bin/python3 (Debian: python3)");
    }
    same_as_plain(&Mode::both_and_spinning(), |mode| {
        let scratch = Scratch::new()?;
        scratch.file("small", 10)?;
        scratch.file("page", 30_000)?;
        scratch.file("big", 3_000_000)?;
        let (server, port) = serving(mode, &scratch)?;
        let mut answers: Vec<Answer> = Vec::new();
        let mut kept = Connection::open(port)?;
        for _ in 0..3 {
            for path in ["/small", "/page", "/big"] {
                answers.push(kept.get(path)?);
            }
        }
        // This server closes the connection after an error.
        answers.push(Connection::open(port)?.get("/missing")?);
        let mut closing = Connection::open(port)?;
        closing.request("/page", "Connection: close\r\n")?;
        answers.push(closing.answer()?);
        ensure!(closing.at_end()?, "the connection is still open");
        drop(kept);
        let status = server.stop(Signal::SIGTERM)?;
        scratch.check_helped(mode)?;
        Ok((answers, status))
    })
}
