//! Line servers that serve each connection with a thread, or with a forked process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::skip::skip;
use uncork_e2e::{Daemon, Mode, artifact, beside_others, daemon, same_as_plain};

use crate::programs::Scratch;
use crate::programs::python::PYTHON;

#[test]
fn threaded_server_mixes_up_or_loses_lines() -> Result<()> {
    echoes("threads")
}

#[test]
fn forking_server_mixes_up_or_loses_lines() -> Result<()> {
    echoes("forks")
}

fn echoes(kind: &str) -> Result<()> {
    if !Path::new(PYTHON).exists() {
        return skip("there is no /usr/bin/python3 (Debian: python3)");
    }
    let _shared = beside_others();
    same_as_plain(&Mode::both_and_spinning(), |mode| {
        let scratch = Scratch::new()?;
        let port = daemon::free_port()?;
        let mut command = scratch.reporting(mode).command(PYTHON)?;
        command.arg(artifact::source("py/echo.py")).arg(kind).arg(port.to_string());
        let server = Daemon::serving(command, &scratch.path("log"), port)?;
        mode.check_loaded(server.pid())?;
        let clients: Vec<_> =
            (0..8).map(|who| std::thread::spawn(move || client(port, who))).collect();
        let mut lines = 0;
        for client in clients {
            lines += client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        let status = server.stop(Signal::SIGTERM)?;
        if kind == "threads" {
            // Forked children leave by os._exit, without a report of their own.
            scratch.check_helped(mode)?;
        }
        Ok((lines, status))
    })
}

/// Sends lines of many lengths, some in pieces, and checks each answer. Returns their number.
fn client(port: u16, who: usize) -> Result<usize> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let count = 40;
    for number in 0..count {
        let line: String =
            (0..number * 17 % 300).map(|at| char::from(b'a' + ((at + who) % 26) as u8)).collect();
        let (first, second) = line.split_at(line.len() / 2);
        stream.write_all(first.as_bytes())?;
        stream.write_all(second.as_bytes())?;
        stream.write_all(b"\n")?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        let wanted = format!("{number}:{}\n", line.chars().rev().collect::<String>());
        ensure!(answer == wanted, "client {who}: {answer:?} instead of {wanted:?}");
    }
    Ok(count)
}
