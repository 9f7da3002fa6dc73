//! memcached, addressed by hand in its text protocol: every byte of a reply is compared.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::skip::{find, root, skip};
use uncork_e2e::{Daemon, Mode, beside_others, daemon, same_as_plain};

use crate::programs::Scratch;

#[test]
fn memcached_answers_otherwise() -> Result<()> {
    if find("memcached").is_none() {
        return skip("memcached is not installed (Debian: memcached)");
    }
    let _shared = beside_others();
    same_as_plain(&Mode::both_and_spinning(), conversations)
}

fn conversations(mode: &Mode) -> Result<(Vec<String>, ExitStatus)> {
    let scratch = Scratch::new()?;
    let port = daemon::free_port()?;
    let mut command = scratch.reporting(mode).command(find("memcached").context("memcached")?)?;
    command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-t", "2"]);
    if root() {
        command.args(["-u", "root"]);
    }
    let server = Daemon::serving(command, &scratch.path("log"), port)?;
    mode.check_loaded(server.pid())?;
    let talkers: Vec<_> = (0..4).map(|who| std::thread::spawn(move || talk(port, who))).collect();
    let mut transcripts = Vec::new();
    for talker in talkers {
        let transcript = talker.join().map_err(|_| anyhow::anyhow!("a talker panicked"))?;
        transcripts.push(transcript?);
    }
    let status = server.stop(Signal::SIGTERM)?;
    scratch.check_helped(mode)?;
    Ok((transcripts, status))
}

/// One client; its requests leave in pieces, too.
fn talk(port: u16, who: usize) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.set_nodelay(true)?;
    let mut transcript = String::new();
    for (round, length) in [1, 100, 5_000, 300_000].into_iter().enumerate() {
        let value = "abcdefghij".repeat(length / 10 + 1);
        let key = format!("key-{who}-{round}");
        write!(stream, "set {key} {round} 0 {}\r\n", value.len())?;
        let (first, second) = value.split_at(value.len() / 3);
        stream.write_all(first.as_bytes())?;
        stream.write_all(second.as_bytes())?;
        stream.write_all(b"\r\n")?;
        transcript += &until(&mut stream, "STORED\r\n")?;
        write!(stream, "get {key} nothing {key}\r\n")?;
        transcript += &until(&mut stream, "END\r\n")?;
        write!(stream, "incr {key} 1\r\ndelete {key}\r\nmn\r\n")?;
        transcript += &until(&mut stream, "MN\r\n")?;
    }
    Ok(transcript)
}

fn until(stream: &mut TcpStream, end: &str) -> Result<String> {
    let mut text = Vec::new();
    let mut buffer = vec![0; 65_536];
    while !text.ends_with(end.as_bytes()) {
        let got = stream.read(&mut buffer)?;
        ensure!(got > 0, "the server closed the connection");
        text.extend_from_slice(&buffer[..got]);
    }
    Ok(String::from_utf8(text)?)
}
