//! iperf3: as much as fits, in both directions, server and client; select(2) and TCP_INFO.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use uncork_e2e::hosts::{OURS, THEIRS};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, run};

use crate::on_stack::stat::report;
use crate::on_stack::{Scratch, lacks, wait_until};

const PORT: u16 = 5201;
const LONG: Duration = Duration::from_secs(30);
/// The arguments, and with them how much must arrive. With both directions at once iperf3 ends when
/// it has sent that much, whatever it has received.
const WAYS: [&[&str]; 3] =
    [&["-n", "100M"], &["-n", "100M", "-R"], &["-t", "1", "-P", "4", "--bidir"]];

/// Runs a client, and asserts that it has moved the data.
fn measure(mut client: Command, host: &str, way: &[&str]) -> Result<()> {
    client.args(["-c", host, "-p", &PORT.to_string(), "-J"]).args(way);
    let said = run(&mut client, LONG).with_context(|| format!("{way:?}"))?.successful()?;
    let told: serde_json::Value = serde_json::from_str(&said.stdout)?;
    let bytes = |which: &str| told["end"][which]["bytes"].as_u64().unwrap_or(0);
    if way.contains(&"--bidir") {
        let ways = [bytes("sum_received"), bytes("sum_received_bidir_reverse")];
        ensure!(ways.iter().all(|&bytes| bytes > 1_000_000), "{way:?}: {ways:?} received");
    } else {
        let (sent, received) = (bytes("sum_sent"), bytes("sum_received"));
        // Bytes in flight when the sender says that it is done are not counted.
        let most = 9 * (sent / 10)..=sent;
        ensure!(sent >= 100 << 20 && most.contains(&received), "{way:?}: {sent}, {received}");
    }
    Ok(())
}

/// Waits until a server serves its next client and the stack knows of it: it listens anew for each,
/// and a client that comes before it waits belongs to the kernel.
fn wait_for_stack(server: &Daemon, turn: usize) -> Result<()> {
    let listens = format!("(test #{turn})");
    wait_until("iperf3 listens on the stack", || {
        let on_stack =
            || Ok(report(server.pid())?["addresses"].as_array().is_some_and(|all| all.len() == 1));
        if server.said().contains(&listens) { on_stack() } else { Ok(false) }
    })
}

#[test]
fn iperf_server_on_the_stack_stalls() -> Result<()> {
    if lacks(&[("iperf3", "iperf3")])? {
        return Ok(());
    }
    let hosts = Hosts::new("iperfserver")?;
    let scratch = Scratch::new()?;
    let iperf = find("iperf3").context("no iperf3")?;
    let mut command = hosts.on_stack(&iperf)?;
    command.args(["-s", "-p", &PORT.to_string(), "--forceflush"]);
    let server = Daemon::start(command, &scratch.path("log"))?;
    wait_until("iperf3 listens", || Ok(hosts.ours.listens(PORT)))?;
    // A probe would count as a client. The first connections may be the kernel's.
    let mut first = hosts.beside(&iperf)?;
    run(first.args(["-c", OURS, "-p", &PORT.to_string(), "-n", "1K"]), LONG)?.successful()?;
    let before = hosts.counted()?;
    for (turn, way) in (2..).zip(WAYS) {
        wait_for_stack(&server, turn)?;
        measure(hosts.beside(&iperf)?, OURS, way)?;
    }
    hosts.check_all_on_stack(before)?;
    drop(server);
    hosts.check_nothing_left(PORT)
}

#[test]
fn iperf_client_on_the_stack_stalls() -> Result<()> {
    if lacks(&[("iperf3", "iperf3")])? {
        return Ok(());
    }
    let hosts = Hosts::new("iperfclient")?;
    let scratch = Scratch::new()?;
    let iperf = find("iperf3").context("no iperf3")?;
    let mut command = hosts.beside(&iperf)?;
    command.args(["-s", "-p", &PORT.to_string()]);
    let server = Daemon::start(command, &scratch.path("log"))?;
    wait_until("iperf3 listens", || Ok(hosts.theirs.listens(PORT)))?;
    let before = hosts.counted()?;
    for way in WAYS {
        measure(hosts.on_stack(&iperf)?, THEIRS, way)?;
    }
    hosts.check_all_on_stack(before)?;
    drop(server);
    hosts.check_nothing_left(PORT)
}
