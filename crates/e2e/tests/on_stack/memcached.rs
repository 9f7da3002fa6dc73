//! memcached, after it drops its privileges: one thread accepts, four serve with an epoll set each.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts};

use crate::on_stack::{Scratch, lacks, noise};

const PORT: u16 = 11_211;

#[test]
fn memcached_mixes_up_what_its_threads_serve() -> Result<()> {
    if lacks(&[("memcached", "memcached")])? {
        return Ok(());
    }
    let hosts = Hosts::new("memcached")?;
    served(&hosts, hosts.on_stack(program()?)?)
}

/// The accepting thread has the stack, and other threads serve the connections on it.
#[test]
fn memcached_stops_where_each_thread_has_a_stack() -> Result<()> {
    if lacks(&[("memcached", "memcached")])? {
        return Ok(());
    }
    let hosts = Hosts::new("memthreads")?;
    served(&hosts, hosts.on_stack_with(&["--thread-sockets"], program()?)?)
}

fn program() -> Result<PathBuf> {
    find("memcached").context("no memcached")
}

fn served(hosts: &Hosts, mut command: Command) -> Result<()> {
    let scratch = Scratch::new()?;
    command.args(["-p", &PORT.to_string(), "-U", "0", "-t", "4", "-u", "nobody"]);
    let server = Daemon::on_stack(command, &scratch.path("log"), hosts, PORT)?;
    let before = hosts.counted()?;
    hosts.crowd(24, |who| {
        for _ in 0..4 {
            let mut stream = hosts.connect(PORT)?;
            talk(&mut stream, who).with_context(|| format!("talker {who}"))?;
            hosts.check_on_stack(&stream)?;
        }
        Ok(())
    })?;
    hosts.check_all_on_stack(before)?;
    let status = server.stop(Signal::SIGTERM)?;
    ensure!(status.success(), "memcached ended with {status}");
    hosts.check_nothing_left(PORT)
}

/// One client; its requests leave in pieces.
fn talk(stream: &mut TcpStream, who: usize) -> Result<()> {
    stream.set_nodelay(true)?;
    for length in [1, 100, 5_000, 300_000] {
        let value = noise(length + who);
        let key = format!("key-{who}-{length}");
        write!(stream, "set {key} 7 0 {}\r\n", value.len())?;
        let (first, second) = value.split_at(value.len() / 3);
        for piece in [first, second, b"\r\n"] {
            stream.write_all(piece)?;
        }
        expect(stream, b"STORED\r\n")?;
        write!(stream, "get {key} nothing\r\n")?;
        expect(stream, format!("VALUE {key} 7 {}\r\n", value.len()).as_bytes())?;
        expect(stream, &value)?;
        expect(stream, b"\r\nEND\r\n")?;
        write!(stream, "delete {key}\r\nmn\r\n")?;
        expect(stream, b"DELETED\r\nMN\r\n")?;
    }
    Ok(())
}

fn expect(stream: &mut TcpStream, wanted: &[u8]) -> Result<()> {
    let mut got = vec![0; wanted.len()];
    stream.read_exact(&mut got)?;
    ensure!(got == wanted, "{} octets are not what they should be", wanted.len());
    Ok(())
}
