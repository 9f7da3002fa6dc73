//! `uncork tune` with a journal and a bpffs of its own, and everything undone at the end.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use nix::mount::{MntFlags, umount2};
use nix::unistd::geteuid;
use uncork_netns::clear_leftovers;

use super::Bed;
use crate::launch::clean;
use crate::outcome::Skip;
use crate::process::run_to_end;
use crate::toolbox::program;

/// Far more than a change takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Skips without the privilege for network namespaces and their use, or without one of these programs.
pub(super) fn may(doing: &str, programs: &[&str]) -> Result<()> {
    if !geteuid().is_root() {
        return Err(Skip::new(format!("network namespaces and {doing} need root")).into());
    }
    programs.iter().try_for_each(|name| program(name).map(|_| ()))?;
    clear_leftovers()
}

/// The journal of changes until they are undone.
pub(super) struct Tuning {
    uncork: PathBuf,
    state: PathBuf,
    bpffs: PathBuf,
}

impl Tuning {
    /// Creates an empty journal.
    pub(super) fn new(bed: &Bed<'_>) -> Result<Self> {
        let uncork = bed.tools.uncork()?;
        Ok(Self { uncork, state: bed.scratch.dir("state")?, bpffs: bed.scratch.dir("bpf")? })
    }

    /// Runs `uncork tune` with these words; what it cannot do is an error.
    pub(super) fn tune(&self, words: &str) -> Result<()> {
        run_to_end(self.command(words), "uncork tune", LIMIT).map(|_| ())
    }

    /// Sets everything back.
    pub(super) fn undo(&self) -> Result<()> {
        run_to_end(self.command("undo --all"), "uncork tune undo", LIMIT).map(|_| ())
    }

    fn command(&self, words: &str) -> Command {
        let mut command = clean(&self.uncork);
        command.arg("tune").args(words.split_whitespace());
        command.arg("--state").arg(&self.state).arg("--bpffs").arg(&self.bpffs);
        command.process_group(0).stdin(Stdio::null());
        command
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        // With nothing to undo there is no error, and unmounting nothing does no harm.
        let _ = self.undo();
        let _ = umount2(&self.bpffs, MntFlags::MNT_DETACH);
    }
}
