//! `uncork stack guard`: a guardian in the foreground, for programs without privilege.

use std::num::NonZeroU32;
use std::os::fd::AsFd as _;

use uncork_guard::{Error, Guard, Limits, Plan, Share, devices, permitted};

use super::DONE;
use super::arguments::Guardian;
use super::limits::raise_descriptors;
use super::manager::tell_ready;
use super::signals::Signals;
use crate::arguments::queues;
use crate::failure::Failure;
use crate::guardian::begin_heir;
use crate::output::{print, shown};
use crate::place_file::{Claim, Service, Told};

/// Guards all programs that connect, until a signal ends it.
pub(super) fn guard(wanted: &Guardian) -> Result<i32, Failure> {
    let queues = queues(wanted.driver, wanted.queues).map_err(Failure::unusable)?;
    // Before the claim, whose refusal would not name what is missing.
    permitted().map_err(|error| refused(&error))?;
    let service = &wanted.service;
    let name = service.name.clone().unwrap_or_default();
    let mut claim = Claim::take(Service::Guardian, &name, service.group.as_deref())?;
    let unheard = |error| Failure::left(format!("signals cannot be received: {error}"));
    let signals = Signals::take().map_err(unheard)?;
    let end = signals.as_fd().try_clone_to_owned().map_err(unheard)?;
    raise_descriptors();
    let (guard, devices) = begin(wanted, queues).map_err(|error| refused(&error))?;
    let place = guard.place().to_variable();
    claim.publish(&Told { place, ..Told::default() })?;
    // Its standard output may be closed.
    let _ = print(&format!(
        "guardian of stacks on {}: uncork run --stack{} -- COMMAND\n",
        shown(&devices.join(", ")),
        name.option("--guardian")
    ));
    tell_ready();
    let ended = guard.until(end).run();
    // No new program may connect.
    drop(claim);
    let ended =
        ended.map_err(|error| Failure::left(format!("the guardian of stacks has ended: {error}")));
    ended.map(|()| DONE)
}

/// Installs filters on the devices, and returns the devices' names, too.
fn begin(wanted: &Guardian, queues: Option<NonZeroU32>) -> Result<(Guard, Vec<String>), Error> {
    let found = devices::find(&wanted.service.dev)?;
    let names = found.iter().map(|device| device.name.clone()).collect();
    // It guards for as long as it lives itself, with or without programs.
    let program = std::process::id();
    let queues = queues.map(Share::Each);
    let plan = Plan { devices: found, ports: wanted.service.port.clone(), queues, program };
    let limits = limits(wanted.user_memory);
    Ok((Guard::new(plan)?.with_limits(limits).with_heir(Box::new(begin_heir)), names))
}

fn limits(user_mib: Option<NonZeroU32>) -> Limits {
    let limits = Limits::of_this_host();
    let Some(mib) = user_mib else { return limits };
    let of_a_user = u64::from(mib.get()) << 20;
    let rings_bytes = limits.rings_bytes.max(of_a_user);
    Limits { rings_of_a_user_bytes: of_a_user, rings_bytes, ..limits }
}

fn refused(error: &Error) -> Failure {
    match error {
        Error::Privilege(what) => Failure::no_permission(format!(
            "the guardian of stacks in user space needs {what}: run uncork as root (sudo uncork stack guard)"
        )),
        error => super::refused(error),
    }
}
