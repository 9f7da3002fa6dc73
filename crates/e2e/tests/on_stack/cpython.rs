//! CPython's own socket tests, whose servers and clients are one process, on a host with both ends
//! of a cable: packets cross the cable although both addresses are the host's own. The same tests
//! pass, fail and are skipped on kernel sockets and on the stack.
//!
//! Where a module does not ask for its servers' address, the address is written into its text as it
//! is read (`py/hosted.py`). Two of those that `tests/cpython.rs` runs have nothing to do with
//! sockets: test_poll waits for pipes and a terminal, and test_subprocess talks to its children by
//! pipes. What test_selectors waits for are pairs of Unix sockets; here they are pairs of TCP
//! sockets.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use uncork_e2e::cpython::{self, Outcomes, PYTHON};
use uncork_e2e::run::tail;
use uncork_e2e::skip::skip;
use uncork_e2e::{Instances, artifact, beside_others, instance, run};
use uncork_netns::Namespace;

use crate::on_stack::{Scratch, lacks};

const LIMIT: Duration = Duration::from_secs(300);
/// Attempts for a test: some depend on timing, and each fails now and then by itself.
const TRIES: usize = 3;
/// The servers' addresses, and the clients' at the other end of the cable.
const SERVERS: [&str; 2] = ["10.97.0.1", "fd97::1"];
const CLIENTS: [&str; 2] = ["10.97.0.2", "fd97::2"];

/// Tests without TCP; servers that are expected at localhost, wherever they listen, and are waited
/// for without end; and as many socket pairs as descriptors, for which there are not enough ports.
const LEFT_OUT: [&str; 5] = [
    "*VSOCK*",
    "test_server_accept",
    "test_handshake_timeout",
    "*ThreadedTests.test_socketserver",
    "test_above_fd_setsize",
];

/// Tests that end differently: what a program writes leaves when it turns to waiting, so a thread
/// that waits for both ends of a connection is told of one first, and of the other when it asks
/// again.
const OTHERWISE: [&str; 2] =
    ["test.test_epoll.TestEPoll.test_control_and_wait", "test.test_epoll.TestEPoll.test_fromfd"];

/// More of them on an instance: a close with a reset is reported by an event, on which the other
/// end is examined, and it leaves only when the instance gets to it.
const ON_INSTANCE: [&str; 2] = [
    "test.test_ssl.TestPreHandshakeClose.test_preauth_data_to_tls_client",
    "test.test_ssl.TestPreHandshakeClose.test_preauth_data_to_tls_server",
];

/// The minimum number of tests run, and of connections accepted or made on the stack.
const LEAST: (usize, u64) = (20, 5);

/// Makes a host with both ends of a cable. What it sends to itself crosses the cable: its addresses
/// are local for packets that arrive by it, and beyond the other end for what it sends.
fn both_ends(label: &str) -> Result<Namespace> {
    let host = Namespace::new(label)?;
    host.ip("link add v0 type veth peer name v1")?;
    for device in ["all", "v0", "v1"] {
        for (key, value) in [("accept_local", 1), ("rp_filter", 0), ("arp_ignore", 1)] {
            host.set(&format!("ipv4/conf/{device}/{key}"), value)?;
        }
    }
    for device in ["v0", "v1"] {
        host.set(&format!("ipv6/conf/{device}/disable_ipv6"), 0)?;
    }
    host.ip("link set lo up")?;
    for (version, server, client) in [(4, SERVERS[0], CLIENTS[0]), (6, SERVERS[1], CLIENTS[1])] {
        let (bits, quick) = if version == 4 { (32, "") } else { (128, "nodad") };
        host.ip(&format!("address add {server}/{bits} dev v0 {quick}"))?;
        host.ip(&format!("address add {client}/{bits} dev v1 {quick}"))?;
    }
    host.ip("link set v0 up")?;
    host.ip("link set v1 up")?;
    for (version, server, client) in [(4, SERVERS[0], CLIENTS[0]), (6, SERVERS[1], CLIENTS[1])] {
        for line in [
            format!("route add {server} dev v1 src {client} table 100"),
            format!("route add {client} dev v0 src {server} table 101"),
            "rule add pref 10 iif v0 lookup local".to_owned(),
            "rule add pref 11 iif v1 lookup local".to_owned(),
            format!("rule add pref 20 to {server} lookup 100"),
            format!("rule add pref 21 to {client} lookup 101"),
            "rule add pref 30 lookup local".to_owned(),
            "rule del pref 0".to_owned(),
        ] {
            host.ip(&format!("-{version} {line}"))?;
        }
    }
    Ok(host)
}

/// The tests of a module, on kernel sockets or on the stack.
struct Suite<'a> {
    host: &'a Namespace,
    module: &'a str,
    /// Patterns of its tests; all tests run if there is none.
    parts: &'a [&'a str],
    on_stack: bool,
    /// The instances to use, unless the program is to have a stack of its own.
    instances: Option<&'a Instances>,
}

impl Suite<'_> {
    fn command(&self, stats: &Path) -> Result<Command> {
        if !self.on_stack {
            return Ok(self.host.command(PYTHON));
        }
        let uncork = artifact::uncork()?;
        let mut command = self.host.command(uncork.to_str().context("a path in UTF-8")?);
        match self.instances {
            Some(instances) => command.args(instances.arguments()),
            None => command.args(["run", "--stack", "--dev", "v0", "--dev", "v1"]),
        };
        command.args(["--", PYTHON]);
        command.env("UNCORK_LIBRARY", artifact::library()?).env("UNCORK_STATS", stats);
        Ok(command)
    }

    /// Runs all, or `only` those; returns their outcomes and the stack's number of connections.
    fn outcomes(&self, only: &[&String]) -> Result<(Outcomes, u64)> {
        let scratch = Scratch::new()?;
        let (report, stats) = (scratch.path("report.xml"), scratch.path("stats.json"));
        let mut command = self.command(&stats)?;
        command.arg(artifact::source("py/hosted.py")).args([SERVERS[0], SERVERS[1]]);
        command.args(["-v", "-u", "network"]).arg("--junit-xml").arg(&report);
        command.args(LEFT_OUT.iter().flat_map(|name| ["-i", name]));
        command.arg("--tempdir").arg(scratch.root());
        let parts = if only.is_empty() { self.parts } else { &[] };
        let names = only.iter().map(|name| name.as_str()).chain(parts.iter().copied());
        command.args(names.flat_map(|name| ["-m", name])).arg(self.module);
        let finished = run(&mut command, LIMIT)?;
        if !report.exists() {
            bail!("no report ({})\n{}", finished.status, tail(&finished.stderr));
        }
        Ok((cpython::outcomes(&report)?, connections(&stats)?))
    }
}

/// Counts what a program's processes have accepted and made on the stack. (A connection made before
/// its listener is waited on belongs to the kernel at the other end.)
fn connections(stats: &Path) -> Result<u64> {
    let Ok(lines) = std::fs::read_to_string(stats) else { return Ok(0) };
    let count = |line: &str| -> Result<u64> {
        let report: Value = serde_json::from_str(line)?;
        let count = |name: &str| report["stack"][name].as_u64().unwrap_or(0);
        Ok(count("accepted") + count("connected"))
    };
    lines.lines().map(count).sum()
}

fn same_on_the_stack(
    module: &str,
    parts: &[&str],
    (tests, connections): (usize, u64),
) -> Result<()> {
    if lacks(&[("python3", "python3")])? {
        return Ok(());
    }
    if !cpython::is_installed() {
        return skip("CPython's tests are not installed (Debian: libpython3-testsuite)");
    }
    let _shared = beside_others();
    let hosts = [both_ends(&format!("{module}-p"))?, both_ends(&format!("{module}-s"))?];
    let wanted = instance::are_wanted();
    let instances = wanted.then(|| Instances::start(&hosts[1], &["v0", "v1"], 1)).transpose()?;
    let instances = instances.as_ref();
    let suite = |on_stack| Suite {
        host: &hosts[usize::from(on_stack)],
        module,
        parts,
        on_stack,
        instances,
    };
    let (plain, with) = std::thread::scope(|scope| {
        let with = scope.spawn(|| suite(true).outcomes(&[]));
        let plain = suite(false).outcomes(&[]);
        let with = with.join().map_err(|_| anyhow::anyhow!("a runner panicked"))?;
        anyhow::Ok((plain?.0, with?))
    })?;
    let (with, had) = with;
    ensure!(plain.len() > tests, "{module}: {} tests were run", plain.len());
    ensure!(had > connections, "{module}: {had} connections were the stack's");
    let names: BTreeSet<_> = plain.keys().chain(with.keys()).collect();
    let mut differ: Vec<_> =
        names.into_iter().filter(|name| plain.get(*name) != with.get(*name)).collect();
    let otherwise = |name: &str| OTHERWISE.contains(&name) || wanted && ON_INSTANCE.contains(&name);
    differ.retain(|name| !otherwise(name));
    for _ in 1..TRIES {
        if differ.is_empty() {
            return Ok(());
        }
        let (plain, (with, _)) =
            (suite(false).outcomes(&differ)?.0, suite(true).outcomes(&differ)?);
        differ.retain(|name| plain.get(*name) != with.get(*name));
    }
    ensure!(differ.is_empty(), "{module}: {differ:?} end otherwise on the stack");
    Ok(())
}

macro_rules! modules {
    ($($test:ident: $module:literal;)+) => {$(
        #[test]
        fn $test() -> Result<()> {
            same_on_the_stack($module, &[], LEAST)
        }
    )+};
}

modules! {
    test_ftplib_ends_otherwise: "test_ftplib";
    test_httplib_ends_otherwise: "test_httplib";
    test_socket_ends_otherwise: "test_socket";
    test_socketserver_ends_otherwise: "test_socketserver";
    test_selectors_ends_otherwise: "test_selectors";
    test_ssl_ends_otherwise: "test_ssl";
}

#[test]
fn test_epoll_ends_otherwise() -> Result<()> {
    same_on_the_stack("test_epoll", &[], (8, 3))
}

/// The tests that use TCP. Most others have no sockets; those of TLS (test_events, test_ssl,
/// test_sslproto) wait without end for servers that are not at localhost, on kernel sockets, too.
#[test]
fn test_asyncio_ends_otherwise() -> Result<()> {
    let parts = ["streams", "sock_lowlevel", "server", "buffered_proto", "sendfile"];
    let parts = parts.map(|part| format!("test.test_asyncio.test_{part}.*"));
    same_on_the_stack("test_asyncio", &parts.each_ref().map(String::as_str), (100, 50))
}
