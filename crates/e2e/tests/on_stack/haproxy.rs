//! HAProxy: a server and a client on the stack in one threaded process; HTTP, and plain octets.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use uncork_e2e::hosts::THEIRS;
use uncork_e2e::http::{Answer, Connection};
use uncork_e2e::skip::find;
use uncork_e2e::{Daemon, Hosts, artifact, run};

use crate::on_stack::{Scratch, kernel_nginx, lacks};

const HTTP: u16 = 8081;
const OCTETS: u16 = 8082;
const LONG: Duration = Duration::from_secs(20);
/// The port of nginx, on the other host.
const BEHIND: u16 = 8083;

const NEEDED: [(&str, &str); 2] = [("haproxy", "haproxy"), ("nginx", "nginx-light")];
/// The reason why spliced sockets belong to the kernel.
const SPLICED: &str = "it is spliced, which only the kernel can do";

#[test]
fn haproxy_passes_other_bytes_on() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("haproxy")?;
    let report = passes_all_on(&hosts, "")?;
    ensure!(report["kernel"].get(SPLICED).is_none(), "{report:#}");
    hosts.check_nothing_left(HTTP)
}

#[test]
fn haproxy_splices_other_bytes_on() -> Result<()> {
    if lacks(&NEEDED)? {
        return Ok(());
    }
    let hosts = Hosts::new("haproxysplice")?;
    // By default it finds none of these answers worth splicing.
    let report = passes_all_on(&hosts, " option splice-auto\n option splice-response\n")?;
    let spliced = report["kernel"][SPLICED].as_u64();
    ensure!(spliced > Some(0), "it has spliced nothing: {report:#}");
    hosts.check_nothing_left(HTTP)
}

/// Requests everything by HTTP and as octets, and returns what it then says of its sockets.
fn passes_all_on(hosts: &Hosts, options: &str) -> Result<Value> {
    let scratch = Scratch::new()?;
    let mut wanted = Vec::new();
    for (name, length) in [("small", 602), ("page", 100_000), ("big", 5_000_000)] {
        wanted.push((format!("/{name}"), Answer::of(200, &fs::read(scratch.file(name, length)?)?)));
    }
    let behind = kernel_nginx(hosts, &scratch, BEHIND)?;
    let configuration = format!(
        "global\n nbthread 2\n maxconn 1000\ndefaults\n timeout connect 5s\n timeout client 20s\n \
         timeout server 20s\n{options}\
         frontend http\n mode http\n bind :::{HTTP} v4v6\n default_backend pages\n\
         backend pages\n mode http\n http-reuse always\n server one {THEIRS}:{BEHIND}\n\
         listen octets\n mode tcp\n bind 0.0.0.0:{OCTETS}\n server one {THEIRS}:{BEHIND}\n"
    );
    fs::write(scratch.path("haproxy.cfg"), configuration)?;
    let mut command = hosts.on_stack(find("haproxy").context("no haproxy")?)?;
    command.arg("-db").arg("-f").arg(scratch.path("haproxy.cfg"));
    let proxy = Daemon::on_stack(command, &scratch.path("log"), hosts, HTTP)?;
    hosts.wait_for_stack(OCTETS, &proxy)?;
    let before = hosts.counted()?;
    for port in [HTTP, OCTETS] {
        hosts.crowd(8, |who| {
            for round in 0..4 {
                let mut connection = hosts.http(port)?;
                for (path, wanted) in &wanted {
                    let got = connection.get(path)?;
                    ensure!(got == *wanted, "{who}, {round}: {path}: {got:?}, not {wanted:?}");
                }
            }
            Ok(())
        })?;
    }
    let mut six = Connection::over(
        hosts.connect_to(uncork_e2e::hosts::end(uncork_e2e::hosts::OUR_V6, HTTP)?)?,
    )?;
    for (path, wanted) in &wanted {
        ensure!(six.get(path)? == *wanted, "{path} by IPv6");
    }
    if options.is_empty() {
        hosts.check_on_stack(six.stream())?;
        hosts.check_all_on_stack(before)?;
    }
    // Spliced sockets go over to the kernel, and did not begin there.
    let opened = hosts.opened_since(before)?;
    ensure!(opened == 0, "{opened} connections never were the stack's");
    let mut asks = Command::new(artifact::uncork()?);
    let told = run(asks.args(["stack", "why", "--json", &proxy.pid().to_string()]), LONG)?.stdout;
    proxy.stop(Signal::SIGTERM)?;
    behind.stop(Signal::SIGTERM)?;
    serde_json::from_str(&told).context(told)
}
