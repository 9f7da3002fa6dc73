//! Carries frames from one TAP device to the other, each when it is due.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_timerslack;
use nix::sys::time::TimeSpec;
use uncork_packet::Instant as Moment;
use uncork_path::{Counts, Path, Queue};
use uncork_wire::link::LinkType;

use crate::priority;
use crate::tap::{self, Layer};

/// Longest sleep, after which a request to stop is noticed.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// The ends of a link and its behaviour.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of the two namespaces, as `ip netns` knows them.
    pub namespaces: [String; 2],
    /// Name of the device in each of them.
    pub device: String,
    /// The layer that the devices carry.
    pub layer: Layer,
    /// Whether segment trains cross whole. A train arrives when its last bit does, so a rate is
    /// exact only without this; with it a corrupted frame cannot be distinguished from a good one.
    pub segmentation_offload: bool,
    /// How long before a frame is due, and after the latest one arrived, this polls without
    /// sleeping: waking up takes tens of microseconds on a virtual machine.
    pub spin: Duration,
    /// The paths from the first namespace to the second, and back.
    pub paths: [Path; 2],
}

/// Carries frames until `stop` is set, in real time from now on. `ready` is called when both devices
/// exist.
///
/// # Errors
/// If a device cannot be created, or one of them goes away for another reason than the end of its namespace.
pub fn run(settings: Settings, stop: &AtomicBool, ready: impl FnOnce()) -> Result<[Counts; 2]> {
    if settings.segmentation_offload && settings.paths.iter().any(|path| path.faults.corrupt > 0.0)
    {
        bail!(
            "frames cannot be corrupted while segment trains cross whole: their checksums are not filled in yet"
        );
    }
    priority::raise().context("cannot run in real time")?;
    // Without this the kernel adds 50 µs to a sleep to save wake-ups.
    set_timerslack(1).context("cannot set the timer slack")?;
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
    let mut queues = settings.paths.clone().map(|path| Queue::new(path, layer));
    ready();
    let clock = Clock(Instant::now());
    let mut latest = clock.now();
    while !stop.load(Relaxed) {
        wait(&ends, &queues, &clock, latest, settings.spin)?;
        for (from, queue) in queues.iter_mut().enumerate() {
            if take_in(&mut ends[from], queue, &clock)? {
                latest = clock.now();
            }
            while let Some(arrived) = queue.pop(clock.now()) {
                hand_over(&mut ends[1 - from], &arrived.frame)?;
            }
        }
    }
    Ok(queues.map(|queue| queue.counts()))
}

/// Time since the link began.
struct Clock(Instant);

impl Clock {
    fn now(&self) -> Moment {
        Moment::ZERO + self.0.elapsed()
    }
}

/// Opens a device on a thread of its own in the namespace: returning would need a descriptor of the former one.
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

/// Sleeps until a frame arrives or one is due, unless that is soon.
fn wait(
    ends: &[File],
    queues: &[Queue; 2],
    clock: &Clock,
    latest: Moment,
    spin: Duration,
) -> Result<()> {
    let now = clock.now();
    let due = queues.iter().filter_map(Queue::next_arrival).min();
    let until_due = due.map_or(LONGEST_SLEEP, |due| due.since(now));
    let sleep = until_due.min(LONGEST_SLEEP).saturating_sub(spin);
    if sleep.is_zero() || now.since(latest) < spin {
        return Ok(());
    }
    let mut polled: Vec<PollFd> =
        ends.iter().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN)).collect();
    match ppoll(&mut polled, Some(TimeSpec::from(sleep)), None) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error).context("ppoll"),
    }
}

/// Reads the frames that wait at this end, but no more than a batch: frames that are due must not
/// wait for a sender that never pauses. Returns whether there were any.
fn take_in(end: &mut File, queue: &mut Queue, clock: &Clock) -> Result<bool> {
    const BATCH: usize = 64;
    let mut buffer = [0; tap::VNET_HEADER_BYTES + 65_536 + 64];
    for taken in 0..BATCH {
        match end.read(&mut buffer) {
            Ok(length) => {
                queue.push(clock.now(), buffer[..length].to_vec(), tap::VNET_HEADER_BYTES);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(taken > 0),
            // The device is not up yet.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => return Ok(taken > 0),
            Err(error) => return Err(error).context("cannot read from the device"),
        }
    }
    Ok(true)
}

fn hand_over(end: &mut File, frame: &[u8]) -> Result<()> {
    match end.write(frame) {
        Ok(_) => Ok(()),
        // The device is not up yet, or refuses this frame: a wire would lose it, too.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error).context("cannot write to the device"),
    }
}
