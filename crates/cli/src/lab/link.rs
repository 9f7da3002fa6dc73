//! `uncork lab link`.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use uncork_link::{Carrier, Counts, Faults, Layer, Loss, Path, Reorder, Settings};
use uncork_netns::Namespace;

use super::arguments::Link;
use super::{failed, path, stopped_by_signals};
use crate::failure::Failure;
use crate::output;
use crate::tables::counted;

const DEVICE: &str = "eth0";
const NEAR: &str = "10.79.0.1";
const FAR: &str = "10.79.0.2";
/// Interval at which the command, and the flag that Ctrl-C sets, are checked.
const TURN: Duration = Duration::from_millis(20);
/// How long before a frame is due its carrier stops sleeping: waking up takes tens of microseconds.
const SPIN: Duration = Duration::from_micros(200);

pub(super) fn run(arguments: &Link) -> Result<i32, Failure> {
    if let Some(program) = arguments.command.first() {
        crate::command::find(program, path().as_deref())?;
    }
    let interrupted = stopped_by_signals()?;
    let near = Namespace::new("near").map_err(|error| failed(&error))?;
    let far = Namespace::new("far").map_err(|error| failed(&error))?;
    let carrier =
        Carrier::start(settings(arguments, [&near, &far])).map_err(|error| failed(&error))?;
    for (namespace, address) in [(&near, NEAR), (&far, FAR)] {
        namespace
            .ip(&format!("address add {address}/24 dev {DEVICE}"))
            .and_then(|()| namespace.ip(&format!("link set {DEVICE} up")))
            .map_err(|error| failed(&error))?;
    }
    say(arguments, &up(arguments, [&near, &far]))?;
    let ended = if arguments.command.is_empty() {
        while !interrupted.load(Relaxed) && !carrier.is_over() {
            thread::sleep(TURN);
        }
        0
    } else {
        let child = start(arguments, &near)?;
        code(wait(child, &interrupted).map_err(|error| failed(&error.into()))?)
    };
    let counts = carrier.end().map_err(|error| failed(&error))?;
    say(arguments, &told(arguments, counts))?;
    Ok(ended)
}

fn settings(arguments: &Link, namespaces: [&Namespace; 2]) -> Settings {
    let path = |far: bool| {
        macro_rules! of {
            ($both:expr) => {
                if far { $both.far } else { $both.near }
            };
        }
        let reorder =
            Reorder { probability: of!(arguments.reorder), late_by: of!(arguments.late_by) };
        Path {
            delay: of!(arguments.delay),
            rate: arguments.rate.map(|rate| of!(rate)),
            queue_bytes: of!(arguments.queue),
            loss: Loss {
                probability: of!(arguments.loss),
                // The two directions lose frames independently.
                seed: arguments.seed.wrapping_mul(2).wrapping_add(u64::from(far)),
                ..Loss::default()
            },
            faults: Faults {
                reorder,
                duplicate: of!(arguments.dup),
                corrupt: of!(arguments.corrupt),
            },
        }
    };
    Settings {
        namespaces: namespaces.map(|namespace| namespace.name().to_owned()),
        device: DEVICE.to_owned(),
        layer: Layer::Ethernet,
        // Only without it is a rate exact.
        segmentation_offload: false,
        spin: SPIN,
        paths: [path(false), path(true)],
    }
}

fn start(arguments: &Link, near: &Namespace) -> Result<Child, Failure> {
    let (program, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| Failure::own("there is no command to start"))?;
    let program = program.to_str().ok_or_else(|| {
        Failure::unusable(format!("{}: the name is not UTF-8", program.display()))
    })?;
    near.command(program)
        .args(rest)
        .spawn()
        .map_err(|error| Failure::own(format!("ip cannot be run: {error}")))
}

/// Waits for the command. A signal that asks this process to end is passed on.
fn wait(mut child: Child, interrupted: &AtomicBool) -> std::io::Result<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().map(Pid::from_raw);
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if interrupted.load(Relaxed) && !told {
            told = true;
            if let Some(pid) = pid {
                let _ = kill(pid, Signal::SIGTERM);
            }
        }
        thread::sleep(TURN);
    }
}

/// Returns the exit status as shells do.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(Failure::OWN)
}

/// Prints text: standard output belongs to the command, if there is one.
fn say(arguments: &Link, text: &str) -> Result<(), Failure> {
    if arguments.command.is_empty() {
        return output::print(text);
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
    Ok(())
}

fn up(arguments: &Link, [near, far]: [&Namespace; 2]) -> String {
    let (near, far) = (near.name(), far.name());
    if arguments.json {
        let end = |name: &str, address: &str| json!({ "namespace": name, "address": address });
        let near = end(near, NEAR);
        return format!("{}\n", json!({ "event": "up", "near": near, "far": end(far, FAR) }));
    }
    if !arguments.command.is_empty() {
        return String::new();
    }
    format!(
        "near end: {NEAR}, in {near}\nfar end:  {FAR}, in {far}\n\nTo use it:\n  \
         sudo ip netns exec {far} nc -l 5000\n  sudo ip netns exec {near} nc {FAR} 5000\n\n\
         Ctrl-C removes it.\n"
    )
}

fn told(arguments: &Link, [near, far]: [Counts; 2]) -> String {
    if arguments.json {
        let [near, far] = [near, far].map(counts_json);
        return format!("{}\n", json!({ "event": "counts", "near": near, "far": far }));
    }
    [("near to far", near), ("far to near", far)]
        .map(|(way, counts)| {
            format!(
                "{way}: {}, {} lost, {} dropped by the queue, {} reordered, {} duplicated, \
                 {} corrupted\n",
                counted(counts.taken, "frame", "frames"),
                counts.lost,
                counts.dropped,
                counts.reordered,
                counts.duplicated,
                counts.corrupted
            )
        })
        .concat()
}

fn counts_json(counts: Counts) -> Value {
    json!({
        "frames": counts.taken, "lost": counts.lost, "dropped": counts.dropped,
        "reordered": counts.reordered, "duplicated": counts.duplicated,
        "corrupted": counts.corrupted,
    })
}
