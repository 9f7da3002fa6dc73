//! Execution of a program after requests that only the process itself can make.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, User, getppid, initgroups, setgid, setuid};

use crate::place::pin;

/// What to become, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Process that starts this one: its end is ours
    #[arg(long)]
    parent: i32,
    /// Signal that the kernel sends when the parent is gone
    #[arg(long, default_value = "SIGTERM")]
    end: Signal,
    /// Core to run on
    #[arg(long)]
    core: Option<usize>,
    /// User to run as
    #[arg(long)]
    user: Option<String>,
    /// Directory where huge pages are to be had, seen by this program and by those beside it only
    #[arg(long)]
    huge_pages: Option<PathBuf>,
    /// Process whose mounts it is to see
    #[arg(long)]
    beside: Option<u32>,
    /// NAME=VALUE for the program's environment
    #[arg(long)]
    env: Vec<OsString>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Executes the program; returns only if it could not be started.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(core) = args.core {
        pin(core)?;
    }
    if let Some(pid) = args.beside {
        let mounts = File::open(format!("/proc/{pid}/ns/mnt")).context("whose mounts it sees")?;
        setns(mounts, CloneFlags::CLONE_NEWNS).context("seeing its mounts")?;
    }
    if let Some(dir) = &args.huge_pages {
        mount_huge_pages(dir)?;
    }
    if let Some(user) = &args.user {
        become_user(user)?;
    }
    // After the change of user, which would clear it.
    set_pdeathsig(args.end).context("asking to be ended with the parent")?;
    if getppid() != Pid::from_raw(args.parent) {
        bail!("the parent is gone already");
    }
    let [program, arguments @ ..] = args.command.as_slice() else { bail!("no program given") };
    let mut command = Command::new(program);
    command.args(arguments);
    for pair in &args.env {
        let pair = pair.to_str().context("the environment is not text")?;
        let (name, value) = pair.split_once('=').context("--env wants NAME=VALUE")?;
        command.env(name, value);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}

/// Mounts a hugetlbfs, and hides all others: what is left in it goes with the last process that sees it.
fn mount_huge_pages(dir: &Path) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("having mounts of its own")?;
    let nothing = None::<&str>;
    // What is mounted here is not propagated.
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing)
        .context("keeping mounts to itself")?;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for line in mounts.lines() {
        // Fields as in fstab(5).
        if let [_, place, "hugetlbfs", ..] = line.split(' ').collect::<Vec<_>>()[..] {
            umount2(place, MntFlags::MNT_DETACH).with_context(|| format!("unmounting {place}"))?;
        }
    }
    mount(Some("none"), dir, Some("hugetlbfs"), MsFlags::empty(), Some("pagesize=2M"))
        .context("mounting a hugetlbfs")
}

fn become_user(name: &str) -> Result<()> {
    let user = User::from_name(name).context("looking the user up")?;
    let user = user.with_context(|| format!("there is no user {name}"))?;
    initgroups(&CString::new(name)?, user.gid).context("taking the user's groups")?;
    setgid(user.gid).context("taking the user's group")?;
    setuid(user.uid).context("becoming the user")
}
