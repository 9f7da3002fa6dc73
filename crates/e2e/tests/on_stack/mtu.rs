//! The MTU of both ends of a cable shrinks and grows while a program on the stack sends.

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::http::Answer;
use uncork_e2e::{Daemon, Hosts};

use crate::on_stack::nginx::serving;
use crate::on_stack::{Scratch, lacks, noise};

const PORT: u16 = 8080;
const NEEDED: [(&str, &str); 1] = [("nginx", "nginx-light")];
/// Much more than all buffers between the two.
const HUGE: usize = 50_000_000;
/// A single segment together with nginx's header at an MTU of 1500, and too long for one at 1000.
const PAGE: usize = 1_000;
/// In the order in which they are set, each after a part of the transfer.
const MTUS: [u16; 4] = [1000, 1500, 700, 9000];
/// How long the server is watched while its peer does not read.
const REST: Duration = Duration::from_millis(100);
/// The processor time that it may use meanwhile.
const LITTLE: Duration = Duration::from_millis(30);
/// Room for some retransmissions, and no more, before the answer.
const SOON: Duration = Duration::from_secs(2);

fn set_mtu(hosts: &Hosts, mtu: u16) -> Result<()> {
    for host in [&hosts.ours, &hosts.theirs] {
        host.ip(&format!("link set eth0 mtu {mtu}"))?;
    }
    Ok(())
}

/// Returns the processor time of all threads of nginx's only worker, the child of `server`
/// (proc_pid_schedstat(5)).
fn used(server: &Daemon) -> Result<Duration> {
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let worker = fs::read_to_string(children)?;
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{}/task", worker.trim()))? {
        let told = fs::read_to_string(task?.path().join("schedstat"))?;
        sum += told.split(' ').next().context("no time")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(sum))
}

#[test]
fn everything_stops_when_the_mtu_becomes_smaller_under_a_download() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("mtu")?;
    let scratch = Scratch::new()?;
    scratch.file("page", PAGE)?;
    scratch.file("huge", HUGE)?;
    let server = serving(&hosts, &scratch, 1, "on")?;
    let before = hosts.counted()?;
    let page = Answer::of(200, &noise(PAGE));
    let mut other = hosts.http(PORT)?;
    ensure!(other.get("/page")? == page, "another page");

    let mut stream = hosts.connect(PORT)?;
    stream.write_all(b"GET /huge HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut got = vec![0; HUGE / 10];
    stream.read_exact(&mut got)?;
    for mtu in MTUS {
        set_mtu(&hosts, mtu)?;
        let asked = Instant::now();
        other.request("/page", "")?;
        let begun = used(&server)?;
        std::thread::sleep(REST);
        let spent = used(&server)?.saturating_sub(begun);
        ensure!(spent < LITTLE, "MTU {mtu}: {spent:?} of the processor in {REST:?}, for nothing");
        let answer = other.answer().with_context(|| format!("MTU {mtu}: the other connection"))?;
        ensure!(answer == page && asked.elapsed() < SOON, "MTU {mtu}: {:?}", asked.elapsed());
        let from = got.len();
        got.resize(from + HUGE / 10, 0);
        let part = stream.read_exact(&mut got[from..]);
        part.with_context(|| format!("MTU {mtu}: the download, behind {from}"))?;
    }
    stream.read_to_end(&mut got)?;
    ensure!(got.len() > HUGE && got.ends_with(&noise(HUGE)), "another file came");
    hosts.check_all_on_stack(before)?;
    drop((stream, other));
    server.stop(Signal::SIGQUIT)?;
    Ok(())
}
