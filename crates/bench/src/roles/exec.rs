//! Becoming a program with what only the process itself can ask for.

use std::ffi::{CString, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
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
    /// NAME=VALUE for the program's environment
    #[arg(long)]
    env: Vec<OsString>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Returns only if the program could not be started.
pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(core) = args.core {
        pin(core)?;
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

fn become_user(name: &str) -> Result<()> {
    let user = User::from_name(name).context("looking the user up")?;
    let user = user.with_context(|| format!("there is no user {name}"))?;
    initgroups(&CString::new(name)?, user.gid).context("taking the user's groups")?;
    setgid(user.gid).context("taking the user's group")?;
    setuid(user.uid).context("becoming the user")
}
