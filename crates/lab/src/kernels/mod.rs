//! The runs of [`crate::quickack`] on other kernels than this machine's: each is booted in a virtual
//! machine whose only program is this one.
//!
//! Server and client communicate over the loopback device there, with Ethernet's MTU, so that
//! nothing is required of a kernel that it may not have: no module, no virtual device, no namespace.
//! This machine's own row is produced in the same way.

mod compare;
mod cpio;
mod guest;
mod image;
mod initramfs;
mod machine;
mod protocol;

use std::cell::RefCell;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde_json::Value;
use uncork_netns::{PREFIX, own_mark};

use crate::quickack::{self, Run, Told};
pub use compare::{Pattern, bisect, difference};
pub use guest::{Identity, init};
pub use machine::{Accelerator, QEMU};

/// The runs of `lab quickack` that tell kernels apart, and replies of several segments.
pub const RUNS: [Run; 4] =
    [quickack::RUNS[0], quickack::RUNS[1], quickack::RUNS[2], quickack::RUNS[4]];

use initramfs::Initramfs;
use machine::{Finished, Machine, Patience, Trouble};

/// How long a kernel may take to its first line and until our program runs, by accelerator.
const PATIENCE: [(Accelerator, Duration, Duration); 2] = [
    (Accelerator::Kvm, Duration::from_secs(20), Duration::from_secs(60)),
    (Accelerator::Emulation, Duration::from_secs(100), Duration::from_secs(300)),
];

/// Options other than the kernels.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long each run takes, by the guest's clock.
    pub time: Duration,
    /// Whether KVM is not even tried.
    pub emulate: bool,
    /// How long a kernel may take to boot, if not the usual time.
    pub limit: Option<Duration>,
}

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name as the user gave it.
    pub name: String,
    image: PathBuf,
}

/// The behaviour of a kernel.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// Which kernel it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// The accelerator of its machine; `None` is this machine.
    pub accelerator: Option<Accelerator>,
    /// Why KVM did not run it, if that was tried.
    pub no_kvm: Option<String>,
    /// Time from the machine's start to our program's.
    pub boot_seconds: Option<f64>,
    /// The runs of [`RUNS`].
    pub runs: Vec<Told>,
}

/// A kernel without a result.
#[derive(Clone, Debug, thiserror::Error, Serialize)]
#[error("{sentence}")]
pub struct Failed {
    /// The reason.
    pub sentence: String,
    /// The last lines of its console.
    pub console: Vec<String>,
}

/// A directory that is removed on drop; what a killed run has left is removed by the next one
/// ([`uncork_netns::clear_scratch`]).
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The means to boot kernels.
#[derive(Debug)]
pub struct Lab {
    /// The bootable kernels, in the order in which they were named.
    pub kernels: Vec<Kernel>,
    options: Options,
    initramfs: Initramfs,
    /// Why KVM did not work, once it was found out.
    no_kvm: RefCell<Option<String>>,
    _scratch: Scratch,
}

impl Lab {
    /// Finds the kernels, and creates the file system for their guests.
    ///
    /// # Errors
    /// If one is no kernel, in a sentence that names it, or if there is no room for the files.
    pub fn prepare(named: &[String], options: Options) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("{PREFIX}{}-kernels", own_mark()));
        let made = DirBuilder::new().mode(0o700).create(&directory);
        made.with_context(|| format!("{} cannot be made", directory.display()))?;
        let scratch = Scratch(directory);
        let find = |(number, name): (usize, &String)| {
            let image = image::find(name, &scratch.0, number)?;
            Ok(Kernel { name: name.clone(), image })
        };
        let kernels = named.iter().enumerate().map(find).collect::<Result<_>>()?;
        let initramfs = initramfs::write(&scratch.0)?;
        Ok(Self { kernels, options, initramfs, no_kvm: RefCell::new(None), _scratch: scratch })
    }

    /// Boots one and makes the runs on it; by emulation if KVM does not work.
    ///
    /// # Errors
    /// [`Failed`], or, soon after `stop` was set, any other.
    pub fn boot(&self, kernel: &Kernel, stop: &AtomicBool) -> Result<Shown> {
        let mut reasons: Vec<String> = Vec::new();
        for (accelerator, silence, boot) in PATIENCE {
            if accelerator == Accelerator::Kvm {
                match self.kvm() {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(why) => {
                        reasons.push(why);
                        continue;
                    }
                }
            }
            let machine = self.machine(kernel, accelerator, (silence, boot));
            match machine.run(stop) {
                Ok(finished) => return shown(finished, accelerator, reasons.pop()),
                Err(Trouble::Interrupted) => bail!("interrupted"),
                Err(Trouble::Silent(why)) if accelerator == Accelerator::Kvm => {
                    reasons.push(why.clone());
                    *self.no_kvm.borrow_mut() = Some(why);
                }
                Err(Trouble::Silent(why)) => reasons.push(why),
                Err(Trouble::Guest { sentence, console }) => {
                    return Err(Failed { sentence, console }.into());
                }
            }
        }
        let sentence = match reasons.as_slice() {
            [kvm, emulated] if kvm != emulated => format!("{emulated}; with KVM: {kvm}"),
            [_, other] => other.clone(),
            other => other.concat(),
        };
        Err(Failed { sentence, console: Vec::new() }.into())
    }

    fn machine<'a>(
        &'a self,
        kernel: &'a Kernel,
        accelerator: Accelerator,
        (silence, boot): (Duration, Duration),
    ) -> Machine<'a> {
        let limit = self.options.limit;
        let boot = limit.unwrap_or(boot);
        let silence = limit.map_or(silence, |limit| limit.min(silence));
        let time = self.options.time;
        let patience = Patience { silence, boot, result: time + boot };
        let (kernel, initramfs) = (kernel.image.as_path(), &self.initramfs);
        Machine { kernel, initramfs, accelerator, time, patience }
    }

    /// Makes the runs on this machine's own kernel.
    ///
    /// # Errors
    /// Without the privilege, or soon after `stop` was set.
    pub fn here(&self, stop: &AtomicBool) -> Result<Shown> {
        let (identity, runs) = guest::here(self.options.time, stop)?;
        Ok(Shown { identity, accelerator: None, no_kvm: None, boot_seconds: None, runs })
    }

    /// Returns whether KVM is wanted and may be used; why not, if it is wanted.
    fn kvm(&self) -> Result<bool, String> {
        const DEVICE: &str = "/dev/kvm";
        if self.options.emulate || !Path::new(DEVICE).exists() {
            return Ok(false);
        }
        if let Some(why) = self.no_kvm.borrow().as_ref() {
            return Err(why.clone());
        }
        let opened = File::options().read(true).write(true).open(DEVICE);
        opened.map(|_| true).map_err(|error| format!("{DEVICE}: {error}"))
    }
}

/// Parses a guest's document, which was written by this same program.
fn shown(finished: Finished, accelerator: Accelerator, no_kvm: Option<String>) -> Result<Shown> {
    let Finished { boot, document } = finished;
    let text = |name: &str| document["identity"][name].as_str().unwrap_or_default().to_owned();
    let identity = Identity {
        release: text("release"),
        version: text("version"),
        signature: text("signature"),
    };
    let runs = document["runs"].as_array().context("the guest told of no runs")?;
    let told = |(run, value): (Run, &Value)| Told {
        run,
        ack_delays_ms: value["ack_delays_ms"]
            .as_array()
            .into_iter()
            .flatten()
            .map(Value::as_f64)
            .collect(),
        verdict: value["verdict"].clone(),
        sentence: value["sentence"].as_str().unwrap_or_default().to_owned(),
    };
    if runs.len() != RUNS.len() {
        bail!("the guest told of {} runs", runs.len());
    }
    let runs = RUNS.into_iter().zip(runs).map(told).collect();
    let (accelerator, boot_seconds) = (Some(accelerator), Some(boot.as_secs_f64()));
    Ok(Shown { identity, accelerator, no_kvm, boot_seconds, runs })
}

/// Executes `program`, which is killed when our own process, `parent`, ends, however that ends.
///
/// # Errors
/// If the parent is gone already, or the program cannot be executed.
pub fn launch(
    parent: u32,
    program: &str,
    arguments: &[String],
) -> Result<std::convert::Infallible> {
    use std::os::unix::process::CommandExt as _;
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    // The parent may have ended before that was set.
    if u32::try_from(nix::unistd::getppid().as_raw()) != Ok(parent) {
        bail!("uncork has ended");
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("{program} cannot be run"))
}
