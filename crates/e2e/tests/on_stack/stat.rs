//! What `uncork stack stat` shows of a program that knows nothing of it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use uncork_e2e::{Hosts, artifact, run};

use crate::on_stack::nginx::serving;
use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 8080;
const NEEDED: [(&str, &str); 1] = [("nginx", "nginx-light")];
const LONG: Duration = Duration::from_secs(20);
/// Much more than all buffers between the two.
const HUGE: usize = 50_000_000;
const IDLE: usize = 300;

pub(crate) fn stat(pid: u32, more: &[&str]) -> Result<(String, Option<i32>)> {
    let mut command = Command::new(artifact::uncork()?);
    let finished = run(command.args(["stack", "stat", &pid.to_string()]).args(more), LONG)?;
    Ok((finished.stdout + &finished.stderr, finished.status.code()))
}

/// Returns the whole report as JSON.
pub(crate) fn report(pid: u32) -> Result<Value> {
    let (said, code) = stat(pid, &["--json"])?;
    ensure!(code == Some(0), "{said}, {code:?}");
    Ok(serde_json::from_str(&said)?)
}

/// Returns its entry for the connection with this remote port.
fn connection(pid: u32, remote: u16) -> Result<Value> {
    let report = report(pid)?;
    let all = report["connections"].as_array().context("no connections")?;
    let is_it =
        |one: &&Value| one["remote"].as_str().is_some_and(|at| at.ends_with(&format!(":{remote}")));
    all.iter().find(is_it).cloned().with_context(|| format!("no port {remote} in {report:#}"))
}

#[test]
fn nobody_sees_what_a_connection_waits_for() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("stat")?;
    let scratch = Scratch::new()?;
    scratch.file("small", 602)?;
    scratch.file("huge", HUGE)?;
    let server = serving(&hosts, &scratch, 1, "on")?;
    // The list shows the ids of both processes, which a user does not know.
    let all = run(Command::new(artifact::uncork()?).args(["stack", "stat"]), LONG)?.stdout;
    let is_listed = |pid: u32| {
        let row = |line: &str| {
            let mut words = line.split_whitespace();
            words.next() == Some(&pid.to_string()) && words.next() == Some("nginx")
        };
        all.lines().any(row)
    };
    ensure!(is_listed(server.pid()), "{all}");
    ensure!(crate::on_stack::children(server.pid())?.into_iter().all(is_listed), "{all}");
    let (said, code) = stat(server.pid(), &[])?;
    // The master, which only has children.
    let Some(worker) = said.trim().rsplit(' ').next().and_then(|pid| pid.parse().ok()) else {
        bail!("no worker is named: {said}");
    };
    ensure!(
        said.contains("these with the same guardian have") && code == Some(2),
        "{said}, {code:?}"
    );

    let mut idle = hosts.http(PORT)?;
    idle.get("/small")?;
    let mut reads_nothing = hosts.http(PORT)?;
    reads_nothing.request("/huge", "")?;
    let port =
        |of: &uncork_e2e::http::Connection| -> Result<u16> { Ok(of.stream().local_addr()?.port()) };
    let (idle_port, full_port) = (port(&idle)?, port(&reads_nothing)?);
    wait_until("the window is full", || {
        Ok(connection(worker, full_port)?["waits_for"] == "window")
    })?;
    let full = connection(worker, full_port)?;
    ensure!(full["held_bytes"].as_u64() > Some(0) && full["fd"].is_number(), "{full:#}");
    let idle_one = connection(worker, idle_port)?;
    ensure!(idle_one["waits_for"] == "application", "{idle_one:#}");
    ensure!(idle_one["state"] == "ESTAB" && idle_one["held_bytes"] == 0, "{idle_one:#}");

    // JSON lists all of them, and the table cuts the list short.
    let many: Vec<_> = hosts
        .crowd(IDLE / 10, |_| (0..10).map(|_| hosts.http(PORT)).collect::<Result<Vec<_>>>())?;
    wait_until("all are there", || {
        let (said, _) = stat(worker, &["--json"])?;
        let report: Value = serde_json::from_str(&said)?;
        Ok(report["connections"].as_array().map(Vec::len) == Some(IDLE + 2))
    })?;
    let (table, code) = stat(worker, &[])?;
    ensure!(code == Some(0) && table.contains("nginx at "), "{table}");
    ensure!(table.contains("… and "), "{table}");
    drop(many);
    ensure!(server.stop(Signal::SIGTERM)?.success(), "no success");
    let (said, code) = stat(worker, &[])?;
    ensure!(said.contains("no stack of this user runs") && code == Some(4), "{said}, {code:?}");
    hosts.check_nothing_left(PORT)
}
