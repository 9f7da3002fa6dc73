//! Helpers that the tests of live tracing share.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Serialises the tests: all connections here belong to one process.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether tracing is allowed. If not, the test says so; in CI it fails.
pub(crate) fn may_trace() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let in_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!in_ci, "{name} may not be skipped in CI, but tracing needs root");
        let _ = writeln!(std::io::stderr(), "skipped: {name}: tracing needs root");
    }
    root
}

/// Sends `times` requests, and returns how long they took.
pub(crate) fn ask(address: SocketAddr, times: usize) -> Duration {
    let mut stream = TcpStream::connect(address).unwrap();
    let begin = std::time::Instant::now();
    for _ in 0..times {
        stream.write_all(b"?").unwrap();
        stream.read_exact(&mut [0; 300]).unwrap();
    }
    begin.elapsed()
}

pub(crate) fn doctor(arguments: &[&str]) -> Command {
    let mut command = super::uncork();
    command.arg("doctor").args(arguments);
    command
}

/// Traces this process while `exchange` runs; returns the report and the exit status.
pub(crate) fn traced<T>(exchange: impl FnOnce() -> T) -> (T, Value, i32) {
    traced_process(std::process::id(), &[], exchange)
}

/// Traces a process, with more arguments, while `exchange` runs.
pub(crate) fn traced_process<T>(
    pid: u32,
    arguments: &[&str],
    exchange: impl FnOnce() -> T,
) -> (T, Value, i32) {
    let mut command = doctor(&["--pid", &pid.to_string(), "--for", "60s", "--json"]);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    let mut octet = [0];
    while !said.contains("Ctrl-C") && stderr.read(&mut octet).unwrap() == 1 {
        said.push(char::from(octet[0]));
    }
    assert!(said.contains("tracing process"), "{said}");
    let result = exchange();
    let own = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    (result, json(&output), output.status.code().unwrap())
}

pub(crate) fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"))
}

pub(crate) fn kinds(report: &Value) -> Vec<&str> {
    let connections = report["connections"].as_array().unwrap();
    let findings = connections.iter().flat_map(|c| c["findings"].as_array().unwrap());
    findings.map(|finding| finding["kind"].as_str().unwrap()).collect()
}

/// Returns the finding of this kind, which must exist.
pub(crate) fn finding<'a>(report: &'a Value, kind: &str) -> &'a Value {
    let connections = report["connections"].as_array().unwrap();
    let mut findings = connections.iter().flat_map(|c| c["findings"].as_array().unwrap());
    let found = findings.find(|finding| finding["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind}: {report:#}"))
}

/// Returns the descendant of a process that has this name.
pub(crate) fn descendant(of: u32, name: &str) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap();
    let named = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
    };
    let mut pids = children.split_ascii_whitespace().map(|pid| pid.parse().unwrap());
    let child = pids.next().unwrap();
    if named(&child) { child } else { descendant(child, name) }
}
