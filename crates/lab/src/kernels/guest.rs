//! The experiment on the running kernel: as the only program of a guest, or on the host.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::termios::tcdrain;
use nix::sys::utsname::uname;
use serde::Serialize;
use serde_json::json;

use super::RUNS;
use super::protocol::Message;
use crate::quickack::{Told, measure_on_loopback, prepare_loopback};

/// Time for the last line to be transmitted before the machine restarts.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The identity of a kernel, as it reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
    /// What Ubuntu's kernels report of their sources; otherwise empty.
    pub signature: String,
}

impl Identity {
    /// Returns the identity of the running kernel.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn here() -> Result<Self> {
        let name = uname()?;
        let signature = fs::read_to_string("/proc/version_signature").unwrap_or_default();
        Ok(Self {
            release: name.release().to_string_lossy().into_owned(),
            version: name.version().to_string_lossy().into_owned(),
            signature: signature.trim().to_owned(),
        })
    }
}

/// Runs as the first and only program of a guest: measures for `time`, writes the result to the
/// console, and shuts the machine down. Returns only on an error.
///
/// # Errors
/// If it is not the first process, and would restart a machine in use.
pub fn init(time: Duration) -> Result<()> {
    if std::process::id() != 1 {
        bail!(
            "`uncork guest` is what `uncork lab kernels` starts in a virtual machine, and nothing else"
        );
    }
    let console = io::stdout();
    let say = |message: &Message| message.write(console.lock());
    say(&Message::Begun)?;
    let told = mounted().and_then(|()| experiment(time));
    // From here on the kernel's own messages would only be in the way.
    let _ = fs::write("/proc/sys/kernel/printk", "1");
    say(&match told {
        Ok((identity, runs)) => Message::Done(json!({ "identity": identity, "runs": runs })),
        Err(error) => Message::Failed(format!("{error:#}")),
    })?;
    let _ = tcdrain(console.as_fd());
    thread::sleep(LAST_WORDS);
    match reboot(RebootMode::RB_AUTOBOOT)? {}
}

fn mounted() -> Result<()> {
    let (kind, none) = (Some("proc"), None::<&str>);
    mount(kind, "/proc", kind, MsFlags::empty(), none).context("/proc cannot be mounted")
}

fn experiment(time: Duration) -> Result<(Identity, Vec<Told>)> {
    prepare_loopback()?;
    let runs =
        measure_on_loopback(Path::new("/proc/self/exe"), &RUNS, time, &AtomicBool::new(false))?;
    Ok((Identity::here()?, runs))
}

/// Measures on this machine's kernel, in a network namespace that ends with it.
///
/// # Errors
/// Without the privilege, if a program fails, or soon after `stop` was set.
pub(super) fn here(time: Duration, stop: &AtomicBool) -> Result<(Identity, Vec<Told>)> {
    let runs = thread::scope(|scope| {
        let alone = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).context("no network namespace can be made")?;
            prepare_loopback()?;
            measure_on_loopback(Path::new("/proc/self/exe"), &RUNS, time, stop)
        });
        alone.join().unwrap_or_else(|_| bail!("the experiment panicked"))
    })?;
    Ok((Identity::here()?, runs))
}
