//! `uncork stack`: options and messages. The work is done by `uncork-serve`.

mod arguments;
mod ask;
mod guard;
pub(crate) mod limits;
mod manager;
mod running;
mod show;
mod signals;
mod start;
mod table;
mod why;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use uncork_posix::config::Moderation;
use uncork_serve::{Ended, Error, Kind, Place, Ready, Service};

use arguments::{Connect, Device, Driver, Protocol, Serve, StackCommand};
pub(crate) use arguments::{Stack, instance_count};

use crate::failure::Failure;
use crate::output::{complain, print};

const DONE: i32 = 0;
/// Ended by a signal: the status that a shell gives for SIGINT.
const INTERRUPTED: i32 = 130;

/// `uncork stack`.
pub(crate) fn stack(arguments: Stack) -> Result<i32, Failure> {
    match arguments.command {
        StackCommand::Serve(wanted) => serve(wanted),
        StackCommand::Connect(wanted) => connect(wanted),
        StackCommand::Start(wanted) => start::start(wanted),
        StackCommand::Guard(wanted) => guard::guard(&wanted),
        StackCommand::Stat(wanted) => show::show(&wanted),
        StackCommand::Why(wanted) => why::why(&wanted),
    }
}

/// Default length of the body served over HTTP, in octets.
const BODY_BYTES: u64 = 602;
const FILE_BYTES: u64 = 100_000_000;

fn serve(wanted: Serve) -> Result<i32, Failure> {
    check(&wanted.device)?;
    let sizes = (wanted.body, wanted.bytes);
    if wanted.protocol != Protocol::Http && sizes != (None, None) {
        return Err(Failure::unusable(
            "--body and --bytes are the lengths of what http serves: leave them out, or serve http",
        ));
    }
    let service = match wanted.protocol {
        Protocol::Echo => Service::Echo,
        Protocol::Discard => Service::Discard,
        Protocol::Chargen => Service::Chargen,
        Protocol::Http => Service::Http {
            body_bytes: wanted.body.unwrap_or(BODY_BYTES),
            file_bytes: wanted.bytes.unwrap_or(FILE_BYTES),
        },
    };
    let what = uncork_serve::Serve {
        service,
        port: wanted.port.unwrap_or(service.default_port()),
        grace: wanted.device.grace,
    };
    let mut ready = |ready: &Ready| {
        if let Some(note) = &ready.note {
            complain(note);
        }
        // Its standard output may be closed.
        let _ = print(&format!("{}\n", ready.sentence));
    };
    let done = if wanted.kernel {
        let addresses: Vec<_> = wanted.device.addr.iter().map(|ours| ours.address).collect();
        uncork_serve::serve_on_kernel(&addresses, &what, &mut ready)
    } else {
        let device = wanted.dev.unwrap_or_default();
        uncork_serve::serve(&place(device, wanted.device), &what, &mut ready)
    };
    done.map(|()| DONE).map_err(|error| failure(&error))
}

/// Checks whether the options are compatible.
fn check(device: &Device) -> Result<(), Failure> {
    let spins = device.spin.is_some_and(|spin| !spin.is_zero());
    if spins && device.moderation.is_some_and(|moderation| moderation != Moderation::OFF) {
        return Err(Failure::unusable(
            "a stack that spins takes in each frame at once: leave out either --spin or --moderation",
        ));
    }
    let mut addresses = device.addr.iter().enumerate();
    let twice = addresses
        .find(|(at, one)| device.addr[..*at].iter().any(|other| other.address == one.address));
    twice.map_or(Ok(()), |(_, one)| {
        Err(Failure::unusable(format!("--addr: {} is given twice: leave one out", one.address)))
    })
}

fn connect(wanted: Connect) -> Result<i32, Failure> {
    check(&wanted.device)?;
    let (input, output) = standard().map_err(|error| {
        Failure::left(format!("standard input and output cannot be used: {error}"))
    })?;
    let grace = wanted.device.grace;
    let what = uncork_serve::Connect { remote: wanted.remote, input, output, grace };
    let place = place(wanted.dev, wanted.device);
    let ended = uncork_serve::connect(&place, what, &mut |note| complain(note));
    match ended.map_err(|error| failure(&error))? {
        Ended::BySignal => Ok(INTERRUPTED),
        _ => Ok(DONE),
    }
}

/// Returns duplicates of the descriptors for both.
fn standard() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    Ok((input, io::stdout().as_fd().try_clone_to_owned()?))
}

fn place(device: String, wanted: Device) -> Place {
    let kind = wanted.driver.map(|driver| match driver {
        Driver::Tap => Kind::Tap,
        Driver::Packet => Kind::Packet,
        Driver::Xdp => Kind::Xdp,
        Driver::Dpdk => Kind::Dpdk,
    });
    Place {
        device,
        kind,
        mtu: wanted.mtu,
        host: wanted.host,
        addresses: wanted.addr,
        gateways: wanted.gateway,
        spin: wanted.spin.unwrap_or_default(),
        moderation: wanted.moderation.unwrap_or_default().longest(),
        small_queue_bytes: wanted.small_queue.unwrap_or_default().bytes(),
        record: wanted.record,
        warn: |sentence| complain(sentence),
        socket: wanted.socket,
    }
}

/// Says why there is no guardian, whatever its purpose.
fn refused(error: &uncork_guard::Error) -> Failure {
    use uncork_guard::Error;
    let sentence = error.to_string();
    match error {
        Error::Privilege(_) | Error::Perfmon(_) => Failure::no_permission(sentence),
        Error::System { .. } | Error::Steering(_) => Failure::left(sentence),
        _ => Failure::unusable(sentence),
    }
}

fn failure(error: &Error) -> Failure {
    let sentence = error.to_string();
    if error.is_permission() {
        Failure::no_permission(sentence)
    } else if error.is_usage() {
        Failure::unusable(sentence)
    } else {
        Failure::left(sentence)
    }
}
