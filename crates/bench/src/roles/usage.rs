//! The time and memory that a program took, as the kernel reports them to its parent.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An exit status that is no failure, besides 0
    #[arg(long)]
    found: Option<i32>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The resources that it used.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Time from its start to its end.
    pub(crate) seconds: f64,
    /// Most memory that was resident at once (`ru_maxrss`), in octets. This helper itself is the
    /// minimum that can be seen: a few megabytes.
    pub(crate) peak_bytes: u64,
}

/// Runs the program with its output discarded, and prints its usage as JSON.
pub(crate) fn run(args: &Args) -> Result<()> {
    let [program, arguments @ ..] = args.command.as_slice() else { bail!("no program given") };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let begun = Instant::now();
    let output = command.output().with_context(|| format!("starting {}", program.display()))?;
    let seconds = begun.elapsed().as_secs_f64();
    if !output.status.success() && (args.found.is_none() || output.status.code() != args.found) {
        bail!("{} ({})", String::from_utf8_lossy(&output.stderr).trim(), output.status);
    }
    // It is the only child, so the largest of the children is the program.
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("asking what it took")?;
    let peak_bytes = u64::try_from(usage.max_rss())? * 1024;
    println!("{}", serde_json::to_string(&Usage { seconds, peak_bytes })?);
    Ok(())
}
