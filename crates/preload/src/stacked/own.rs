//! Our own descriptors: a program that closes all there are means those that it knows of.
//!
//! A child of vfork(2) does that as a rule, and one by one (CPython's `subprocess`); what it may do behind it, to give
//! a program that it starts a connection, takes them. So they are put down for it before it is there.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, PoisonError};

use libc::c_int;
use uncork_posix::kernel::state;

use super::{ON, SOCKETS, is_on, outside};
use crate::raw::raw;
use crate::{POSIX, table};

/// Those that there were when vfork was called last.
static AT_VFORK: Mutex<Vec<c_int>> = Mutex::new(Vec::new());

fn at_vfork() -> Vec<c_int> {
    AT_VFORK.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn is_child() -> bool {
    ON.load(Relaxed) && POSIX.is_vfork_child()
}

fn is_open(fd: c_int) -> bool {
    // SAFETY: no pointers.
    unsafe { raw!(SYS_fcntl, fd, libc::F_GETFD) }.is_ok()
}

/// vfork(2) is about to happen.
pub(super) fn before_vfork() {
    let all: Vec<_> = SOCKETS.own_descriptors().into_iter().chain(outside::spares()).collect();
    for byte in all.iter().filter_map(|&fd| table::state(fd)) {
        // To close what is known comes by here. One of ours may wait.
        let _ = byte.compare_exchange(state::UNKNOWN, state::WAITS, SeqCst, Relaxed);
    }
    *AT_VFORK.lock().unwrap_or_else(PoisonError::into_inner) = all;
}

/// Whether a child of vfork closes a descriptor of ours, which it does not know of and which exec closes.
pub(crate) fn is_kept_by_child(fd: c_int) -> bool {
    is_child() && at_vfork().contains(&fd)
}

/// Whether a child of vfork still has them all: without one it can do nothing about a connection, and would do its parent
/// harm if it tried.
pub(super) fn are_open() -> bool {
    at_vfork().into_iter().all(is_open)
}

/// Those from `first` to `last`, in order.
pub(crate) fn own_descriptors(first: u32, last: u32) -> Vec<u32> {
    let all = if is_on() {
        SOCKETS.own_descriptors().into_iter().chain(outside::spares()).collect()
    } else if is_child() {
        at_vfork()
    } else {
        return Vec::new();
    };
    let mut kept: Vec<u32> = all.into_iter().filter_map(|fd| u32::try_from(fd).ok()).collect();
    kept.retain(|fd| (first..=last).contains(fd));
    kept.sort_unstable();
    kept
}

/// Whether a descriptor is one of our own. To look takes memory and locks, which a handler that calls dup2(2) may not
/// have: only where it is likely.
pub(crate) fn is_own(fd: c_int) -> bool {
    let number = fd.max(0).unsigned_abs();
    fd >= outside::HIGH
        && !super::has(fd)
        && is_open(fd)
        && !own_descriptors(number, number).is_empty()
}
