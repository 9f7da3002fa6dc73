//! The working directory of programs, and their start and end.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use uncork_lab::process;
pub(crate) use uncork_lab::process::Running;

use crate::roles::Duty;
use crate::toolbox::Toolbox;

/// Never set: Ctrl-C ends this process, and what it has started ends with it.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);

/// A directory for everything that is written, removed at the end even if this process is killed.
pub(crate) struct Scratch {
    dir: PathBuf,
    janitor: Child,
}

impl Scratch {
    /// Creates the directory, and starts the helper that removes it when this process is gone.
    pub(crate) fn new(tools: &Toolbox) -> Result<Self> {
        let id = std::process::id();
        let dir = std::env::temp_dir().join(format!("uncork-bench-{id}"));
        fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        // A server that runs as another user must be able to enter it.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
        let janitor = Command::new(&tools.bench)
            .args(["role", "janitor"])
            .arg(&dir)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("starting the helper that cleans up")?;
        Ok(Self { dir, janitor })
    }

    /// Creates a directory below it.
    pub(crate) fn dir(&self, name: &str) -> Result<PathBuf> {
        let mut dir = self.dir.join(name);
        let mut number = 1;
        while dir.exists() {
            number += 1;
            dir = self.dir.join(format!("{name}-{number}"));
        }
        fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        Ok(dir)
    }

    /// Returns the directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

/// Restores what was changed outside this process, when this is dropped or this process is killed.
pub(crate) struct Keeper(Child);

impl Keeper {
    /// Starts the helper that does it, with no duty yet.
    pub(crate) fn new(tools: &Toolbox) -> Result<Self> {
        let mut command = Command::new(&tools.bench);
        command.args(["role", "keeper"]).stdin(Stdio::piped()).process_group(0);
        Ok(Self(command.spawn().context("starting the helper that puts things right")?))
    }

    /// Adds a duty: before the change is made, where possible.
    pub(crate) fn take(&mut self, duty: &Duty) -> Result<()> {
        let told = self.0.stdin.as_mut().context("the helper has no standard input")?;
        told.write_all(duty.line().as_bytes()).context("telling the helper that puts things right")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs `command` to its end, for at most `limit`, and returns its standard output.
pub(crate) fn run_to_end(command: Command, name: &str, limit: Duration) -> Result<String> {
    process::run_to_end(command, name, limit, &NEVER)
}

/// Returns a port of the loopback without a listener: below the ephemeral range, so that no client
/// takes it in the meantime, and never the same one twice.
pub(crate) fn free_port() -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 18_000;
    const COUNT: u16 = 12_000;
    let start = u16::try_from(std::process::id() % u32::from(COUNT))?;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (start + step % COUNT) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between {FIRST} and {}", FIRST + COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let (a, b) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(a, b);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, a)).is_ok());
    }
}
