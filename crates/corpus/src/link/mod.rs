//! A link between two network namespaces with a delay, a rate, a queue and losses of its own.
//!
//! Debian's kernels have netem for that; not every kernel on which the corpus is made has it. So
//! this process holds the far ends of two TAP devices, one in each namespace, and carries frames
//! from one to the other. Offload headers are carried along, so segment trains cross as they are.

mod queue;
mod tap;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sched::{CloneFlags, setns};
use nix::sys::time::TimeSpec;
use uncork_wire::link::LinkType;

pub use queue::{Loss, Path, Queue};
pub use tap::Layer;

/// Where a link ends and what it does.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of the two namespaces, as `ip netns` knows them.
    pub namespaces: [String; 2],
    /// Name of the device in each of them.
    pub device: String,
    /// What the devices carry.
    pub layer: Layer,
    /// Whether segment trains cross whole.
    pub segmentation_offload: bool,
    /// From the first namespace to the second, and back.
    pub paths: [Path; 2],
}

/// Carries frames until the process is ended. `ready` is called when both devices are there.
///
/// # Errors
/// If a device cannot be made, or one of them goes away in a way that is not its namespace's end.
pub fn run(settings: Settings, ready: impl FnOnce()) -> Result<()> {
    let mut ends = Vec::new();
    for namespace in &settings.namespaces {
        ends.push(open_in(namespace, &settings).with_context(|| {
            format!("cannot make the device {} in namespace {namespace}", settings.device)
        })?);
    }
    let layer = match settings.layer {
        Layer::Ethernet => LinkType::Ethernet,
        Layer::Ip => LinkType::Raw,
    };
    let mut queues = settings.paths.map(|path| Queue::new(path, layer));
    ready();
    loop {
        wait(&ends, &queues)?;
        for (from, queue) in queues.iter_mut().enumerate() {
            take_in(&mut ends[from], queue)?;
            let now = Instant::now();
            while let Some(frame) = queue.pop(now) {
                hand_over(&mut ends[1 - from], &frame)?;
            }
        }
    }
}

/// A thread of its own goes into the namespace: the way back would need a descriptor of it.
fn open_in(namespace: &str, settings: &Settings) -> Result<File> {
    let path = PathBuf::from("/run/netns").join(namespace);
    let (device, layer, offload) =
        (settings.device.clone(), settings.layer, settings.segmentation_offload);
    thread::spawn(move || -> Result<File> {
        setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?;
        Ok(tap::open(&device, layer, offload)?)
    })
    .join()
    .unwrap_or_else(|_| Err(io::Error::from(ErrorKind::Other).into()))
}

/// Sleeps until a frame comes in or one is due.
fn wait(ends: &[File], queues: &[Queue; 2]) -> Result<()> {
    let due = queues.iter().filter_map(Queue::next_arrival).min();
    let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
    if timeout == Some(Duration::ZERO) {
        return Ok(());
    }
    let mut polled: Vec<PollFd> =
        ends.iter().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)).collect();
    match ppoll(&mut polled, timeout.map(TimeSpec::from), None) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error).context("ppoll"),
    }
}

/// Reads all frames that wait at this end.
fn take_in(end: &mut File, queue: &mut Queue) -> Result<()> {
    let mut buffer = [0; tap::VNET_HEADER_BYTES + 65_536 + 64];
    loop {
        match end.read(&mut buffer) {
            Ok(length) => {
                let now = Instant::now();
                queue.push(now, buffer[..length].to_vec(), tap::VNET_HEADER_BYTES);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            // The device is not up yet.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(()),
            Err(error) => return Err(error).context("cannot read from the device"),
        }
    }
}

fn hand_over(end: &mut File, frame: &[u8]) -> Result<()> {
    match end.write(frame) {
        Ok(_) => Ok(()),
        // The device is not up yet, or does not take this frame: a wire would lose it, too.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error).context("cannot write to the device"),
    }
}
