//! The Ethernet address of a device changes, as a bridge's does by itself when a port joins it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use uncork_e2e::http::Answer;
use uncork_e2e::skip::find;
use uncork_e2e::{Hosts, artifact, run};

use crate::on_stack::nginx::serving;
use crate::on_stack::{Scratch, lacks, noise};

const PORT: u16 = 8080;
const PAGE: usize = 602;
const LONG: Duration = Duration::from_secs(20);

#[test]
fn nobody_gets_through_once_the_device_has_another_address() -> Result<()> {
    if lacks(&[("nginx", "nginx-light"), ("python3", "python3")])? {
        return Ok(());
    }
    changes(Hosts::new("address")?)
}

#[test]
fn nobody_gets_through_to_an_instance_once_its_device_has_another_address() -> Result<()> {
    if lacks(&[("nginx", "nginx-light"), ("python3", "python3")])? {
        return Ok(());
    }
    changes(Hosts::with_instances("instaddress", 1)?)
}

fn changes(hosts: Hosts) -> Result<()> {
    let scratch = Scratch::new()?;
    scratch.file("page", PAGE)?;
    let server = serving(&hosts, &scratch, 1, "on")?;
    let before = hosts.counted()?;
    let page = Answer::of(200, &noise(PAGE));
    let mut first = hosts.http(PORT)?;
    ensure!(first.get("/page")? == page, "another page");
    // Three kinds of connection: opened before, opened after the change, and opened again.
    for last in ["01", "02"] {
        hosts.ours.ip(&format!("link set eth0 address 02:00:00:00:95:{last}"))?;
        hosts.theirs.ip("neigh flush dev eth0")?;
        let behind = || format!("behind the change to {last}");
        ensure!(hosts.http(PORT)?.get("/page").with_context(behind)? == page, "another page");
        ensure!(first.get("/page").with_context(behind)? == page, "another page");
    }
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGQUIT)?;
    Ok(())
}

/// The guardian has looked at its devices before the change.
#[test]
fn a_process_that_begins_behind_that_reaches_nobody() -> Result<()> {
    if lacks(&[("python3", "python3"), ("curl", "curl"), ("nginx", "nginx-light")])? {
        return Ok(());
    }
    let hosts = Hosts::new("addressnew")?;
    let scratch = Scratch::new()?;
    scratch.file("page", PAGE)?;
    let server = crate::on_stack::kernel_nginx(&hosts, &scratch, PORT)?;
    let before = hosts.counted()?;
    let mut command = hosts.on_stack(find("python3").context("no python3")?)?;
    command.arg(artifact::source("py/another_address.py"));
    let url = format!("http://{}:{PORT}/page", uncork_e2e::hosts::THEIRS);
    let said = run(command.args([&url, hosts.ours.name()]), LONG)?.successful()?;
    ensure!(said.stdout.trim() == "602 602", "{}{}", said.stdout, said.stderr);
    hosts.check_all_on_stack(before)?;
    server.stop(Signal::SIGTERM)?;
    hosts.check_nothing_left(PORT)
}
