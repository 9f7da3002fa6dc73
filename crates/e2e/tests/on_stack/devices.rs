//! One of several devices is deleted: before it is opened, and while it is in use.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, Instances, artifact};

use crate::on_stack::stat::{report, stat};
use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 8080;
const PYTHON: (&str, &str) = ("python3", "python3");
/// The time within which a deletion is noticed.
const SOON: Duration = Duration::from_secs(5);

/// Adds devices of these names; their other ends are of no interest.
fn add(hosts: &Hosts, devices: &[&str]) -> Result<()> {
    for (number, device) in devices.iter().enumerate() {
        hosts.ours.ip(&format!("link add {device} type veth peer name {device}peer"))?;
        hosts.ours.ip(&format!("address add 10.96.{number}.1/24 dev {device}"))?;
        hosts.ours.ip(&format!("link set {device} up"))?;
        hosts.ours.ip(&format!("link set {device}peer up"))?;
    }
    Ok(())
}

/// Asserts that a connection over the remaining device is answered.
fn check_answer(hosts: &Hosts) -> Result<()> {
    let mut stream = hosts.connect(PORT)?;
    stream.set_read_timeout(Some(SOON))?;
    stream.write_all(b"hello")?;
    hosts.check_on_stack(&stream)?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    ensure!(said == "hello", "{said:?}");
    Ok(())
}

/// Returns why the process does without each device that it does without.
fn without(pid: u32) -> Result<Vec<String>> {
    let report = report(pid)?;
    let all = report["without"].as_array().cloned().unwrap_or_default();
    Ok(all.iter().filter_map(|why| why.as_str().map(str::to_owned)).collect())
}

#[test]
fn a_device_that_is_deleted_takes_the_stack_on_others_away_or_is_not_missed() -> Result<()> {
    if lacks(&[PYTHON])? {
        return Ok(());
    }
    let hosts = Hosts::by_packet_sockets("lessinline")?;
    if hosts.instances().is_some() {
        return Ok(());
    }
    add(&hosts, &["before", "behind"])?;
    let scratch = Scratch::new()?;
    let python = find("python3").context("no python3")?;
    let mut command = hosts.on_stack_with(&["--dev=before", "--dev=behind"], python)?;
    command.arg(artifact::source("py/one_less.py")).args([&PORT.to_string(), "before"]);
    let server = Daemon::start(command, &scratch.path("log"))?;
    wait_until("the program listens", || Ok(server.said().contains("listens")))?;
    hosts.ours.ip("link delete before")?;
    hosts.wait_for_stack(PORT, &server)?;
    check_answer(&hosts)?;
    let missed = without(server.pid())?;
    ensure!(matches!(&missed[..], [one] if one.starts_with("before: ")), "{missed:?}");

    hosts.ours.ip("link delete behind")?;
    wait_until("the device is missed", || {
        check_answer(&hosts)?;
        Ok(without(server.pid())?.len() == 2)
    })?;
    let (said, code) = stat(server.pid(), &[])?;
    let is_told = |name| said.contains(&format!("\nwithout {name}: "));
    ensure!(code == Some(0) && ["before", "behind"].into_iter().all(is_told), "{said}");
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}

#[test]
fn a_device_that_is_deleted_takes_an_instance_on_others_away_or_is_not_missed() -> Result<()> {
    if lacks(&[PYTHON])? {
        return Ok(());
    }
    let hosts = Hosts::by_packet_sockets("lessinstance")?;
    hosts.stop_instances()?;
    add(&hosts, &["behind"])?;
    let started = Instances::start_with(&[], &hosts.ours, &["eth0", "behind"], 1)?;
    *hosts.instances() = Some(started);
    let scratch = Scratch::new()?;
    let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
    command.arg(artifact::source("py/one_less.py")).args([&PORT.to_string(), "none"]);
    let server = Daemon::start(command, &scratch.path("log"))?;
    wait_until("the program listens", || Ok(hosts.ours.listens(PORT)))?;
    hosts.wait_for_stack(PORT, &server)?;
    let instance = hosts.instances().as_ref().map(|all| all.pids()).context("no instances")??;
    ensure!(without(instance[0])?.is_empty(), "something is missed before it is deleted");

    hosts.ours.ip("link delete behind")?;
    wait_until("the device is missed", || {
        check_answer(&hosts)?;
        let missed = without(instance[0])?;
        Ok(matches!(&missed[..], [one] if one.starts_with("behind: ")))
    })?;
    server.stop(Signal::SIGTERM)?;
    hosts.stop_instances()?;
    hosts.check_nothing_left(PORT)
}
