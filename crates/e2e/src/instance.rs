//! `uncork stack start` on one of the hosts, for programs that are to run on an instance's stack.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use uncork_netns::Namespace;

use crate::{Daemon, artifact};

const LONG: Duration = Duration::from_secs(20);

/// If it is set, the tests of programs on the stack run them on an instance's.
pub const VARIABLE: &str = "UNCORK_E2E_INSTANCE";

/// Returns whether it is set.
pub fn are_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// The instances of a host, for the lifetime of this value.
#[derive(Debug)]
pub struct Instances {
    name: String,
    daemon: Option<Daemon>,
    log: TempDir,
}

impl Instances {
    /// Starts that many on `devices`.
    pub fn start(host: &Namespace, devices: &[&str], count: u32) -> Result<Self> {
        Self::start_with(&[], host, devices, count)
    }

    /// Starts them with additional options of `uncork stack start`.
    pub fn start_with(
        more: &[&str],
        host: &Namespace,
        devices: &[&str],
        count: u32,
    ) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self::start_as(more, host, devices, count, &name)
    }

    /// Starts them with this name.
    pub fn start_as(
        more: &[&str],
        host: &Namespace,
        devices: &[&str],
        count: u32,
        name: &str,
    ) -> Result<Self> {
        let uncork = artifact::uncork()?;
        let mut command = host.command(uncork.to_str().context("a path in UTF-8")?);
        command.args(["stack", "start", "--name", name]);
        command.args(["--instances", &count.to_string()]);
        for device in devices {
            command.args(["--dev", device]);
        }
        command.args(more);
        let log = tempfile::Builder::new().prefix("uncork-e2e-").tempdir()?;
        let daemon = Daemon::start(command, &log.path().join("instances.log"))?;
        let instances = Self { name: name.to_owned(), daemon: Some(daemon), log };
        let patience = Instant::now() + LONG;
        // The file may be left over from an earlier run.
        while !instances.said().contains("--stack=instance") {
            ensure!(Instant::now() < patience, "no instances: {}", instances.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(instances)
    }

    /// Returns the file in which programs find them.
    pub fn place(&self) -> PathBuf {
        Path::new("/run/uncork/stack").join(&self.name)
    }

    /// Returns the value of the variable that tells a program where they are.
    pub fn variable(&self) -> Result<String> {
        let text = std::fs::read_to_string(self.place())?;
        Ok(text.lines().next().context("they say nothing of where they are")?.to_owned())
    }

    /// Returns the arguments of `uncork run` that run a program on them.
    pub fn arguments(&self) -> [&str; 4] {
        ["run", "--stack=instance", "--instance", &self.name]
    }

    /// Returns what the command has printed.
    pub fn said(&self) -> String {
        let text = std::fs::read_to_string(self.log.path().join("instances.log"));
        text.unwrap_or_default()
    }

    /// Returns the process id of the guardian.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Daemon::pid)
    }

    /// Returns the process ids of the instances.
    pub fn pids(&self) -> Result<Vec<u32>> {
        let guardian = self.pid().context("they have ended")?.to_string();
        let output = Command::new("pgrep").args(["-P", &guardian, "-f", "instance"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().map(|pid| Ok(pid.parse()?)).collect()
    }

    /// Kills their guardian, without any warning to them; returns the name that they had.
    pub fn kill(mut self) -> Result<String> {
        let daemon = self.daemon.take().context("they have ended")?;
        daemon.signal(Signal::SIGKILL)?;
        daemon.wait(LONG)?;
        Ok(self.name.clone())
    }

    /// Stops them, as a service manager does.
    pub fn stop(&mut self) -> Result<()> {
        let Some(daemon) = self.daemon.take() else { return Ok(()) };
        let status = daemon.stop(Signal::SIGTERM)?;
        ensure!(status.success(), "{status}: {}", self.said());
        ensure!(!self.place().exists(), "{} is left", self.place().display());
        Ok(())
    }
}

impl Drop for Instances {
    fn drop(&mut self) {
        // A guardian that was killed so that others take its place has left its file to those.
        let is_last = self.daemon.is_some();
        // A failed test leaves nothing behind either.
        let _ = self.stop();
        if is_last {
            let _ = std::fs::remove_file(self.place());
        }
    }
}
