//! Real programs from Debian's packages on the user-space stack, by `uncork run --stack`, with real
//! programs on the kernel's stack at the other end of a cable. A test is named after the failure
//! that a user would see.

mod address;
mod clients;
mod cpython;
mod devices;
mod examples;
mod full_queue;
mod handshakes;
mod haproxy;
mod instances;
mod iperf;
mod kills;
mod many_connections;
mod memcached;
mod messages;
mod mtu;
mod nginx;
mod node;
mod one_each;
mod parting;
mod postgres;
mod prefork;
mod python;
mod recycled;
mod redis;
mod service;
mod sleepers;
mod ssh;
mod stat;
mod thread_sockets;
mod tokio;
mod why;
mod xdp;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use uncork_e2e::skip::{find, skip};
use uncork_e2e::{Daemon, Hosts};
use uncork_netns::missing_capabilities;

/// A directory for one test's files.
struct Scratch {
    directory: TempDir,
}

impl Scratch {
    fn new() -> Result<Self> {
        Ok(Self { directory: tempfile::Builder::new().prefix("uncork-e2e-").tempdir()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file of `length` bytes that repeat nowhere near.
    fn file(&self, name: &str, length: usize) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, noise(length))?;
        Ok(path)
    }
}

/// Returns bytes that repeat nowhere near.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ length as u64;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(word).take(length / 8 + 1).flatten().collect();
    bytes.truncate(length);
    bytes
}

/// Returns whether this machine lacks something that a test needs, and says what: privileges, or
/// one of these programs (each with its Debian package).
fn lacks(programs: &[(&str, &str)]) -> Result<bool> {
    let missing = missing_capabilities();
    if !missing.is_empty() {
        skip(&format!(
            "it needs root to make network namespaces (it lacks {})",
            missing.join(", ")
        ))?;
        return Ok(true);
    }
    for (program, package) in programs {
        if find(program).is_none() {
            skip(&format!("{program} is not installed (Debian: {package})"))?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lists the child processes of a process.
fn children(pid: u32) -> Result<Vec<u32>> {
    let output = Command::new("pgrep").args(["-P", &pid.to_string()]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().map(|pid| Ok(pid.parse()?)).collect()
}

/// Starts nginx on the other host, on kernel sockets, with the files of a directory.
fn kernel_nginx(hosts: &Hosts, scratch: &Scratch, port: u16) -> Result<Daemon> {
    let configuration = nginx::configuration(scratch, port, 1, "on");
    let path = scratch.path("behind.conf");
    fs::write(&path, configuration)?;
    let mut command = hosts.beside(find("nginx").context("no nginx")?)?;
    command.arg("-c").arg(path).args(["-e", "stderr", "-p"]).arg(scratch.root());
    let server = Daemon::start(command, &scratch.path("behind.log"))?;
    wait_until("nginx listens", || Ok(hosts.theirs.listens(port)))?;
    Ok(server)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so()? {
        ensure!(Instant::now() < end, "not in twenty seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
