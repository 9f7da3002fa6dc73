//! Signals that tell of a socket: SIGIO of whatever comes (O_ASYNC), SIGURG of urgent data (F_SETOWN). Only the kernel sends
//! them, and only of what it has itself.

use std::os::fd::AsRawFd as _;

use libc::{c_int, c_ulong, pid_t};
use nix::errno::Errno;

use super::{SOCKETS, fail, faults, hand_over_if_ours, has, outside};
use crate::raw::raw;

/// asm-generic/fcntl.h, asm-generic/sockios.h: those that libc does not have.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;

/// Why the kernel has a socket of whatever comes to which signals tell.
const ASYNC: &str = "signals are to tell of what comes (O_ASYNC), and only the kernel sends them";
/// And one whose owner they tell of urgent data.
const OWNED: &str =
    "signals are to tell its owner of urgent data (F_SETOWN), and only the kernel sends them";

/// struct f_owner_ex of fcntl(2).
#[derive(Default)]
#[repr(C)]
struct Owner {
    kind: c_int,
    pid: pid_t,
}

/// Why a connection is the kernel's for its signals.
pub(super) fn why_kernels(fd: c_int) -> Option<&'static str> {
    why_kernels_listener(fd).or_else(|| has_owner(fd).then_some(OWNED))
}

/// The same of a listener: nothing urgent comes to it, and connections inherit neither.
pub(super) fn why_kernels_listener(fd: c_int) -> Option<&'static str> {
    // SAFETY: no pointers.
    let flags = unsafe { raw!(SYS_fcntl, fd, libc::F_GETFL) };
    flags.is_ok_and(|flags| flags as c_int & libc::O_ASYNC != 0).then_some(ASYNC)
}

fn has_owner(fd: c_int) -> bool {
    let mut owner = Owner::default();
    // SAFETY: the kernel writes such a structure, which lives as long as the call.
    let told = unsafe { raw!(SYS_fcntl, fd, F_GETOWN_EX, &raw mut owner) };
    told.is_ok() && owner.pid != 0
}

/// fcntl(2) that says who is told of a socket, or by which signal. None: it is no such command, or the kernel does it.
pub(super) fn control(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    match command {
        // Nobody, by SIGIO: so it is.
        libc::F_SETOWN | F_SETSIG if argument as c_int == 0 => None,
        libc::F_SETOWN | F_SETOWN_EX | F_SETSIG => {
            // SAFETY: the program's own call, on another socket.
            own(fd, |other| unsafe { raw!(SYS_fcntl, other, command, argument) })
        }
        _ => None,
    }
}

/// The same by ioctl(2); FIOASYNC is O_ASYNC.
///
/// # Safety
/// As for ioctl(2).
pub(super) unsafe fn ask(fd: c_int, request: c_ulong, argument: usize) -> Option<c_int> {
    match request {
        libc::FIOASYNC if faults::is_nowhere(argument as *const c_int) => {
            Some(fail(Errno::EFAULT) as c_int)
        }
        // SAFETY: as promised.
        libc::FIOASYNC => Some(set(unsafe { (argument as *const c_int).read_unaligned() } != 0)),
        FIOSETOWN | SIOCSPGRP => {
            // SAFETY: the program's own call, on another socket.
            own(fd, |other| unsafe { raw!(SYS_ioctl, other, request, argument) })
        }
        _ => None,
    }
}

/// O_ASYNC of a socket that is on the stack, where nobody would send the signal.
pub(super) fn set(on: bool) -> c_int {
    if on { fail(Errno::EINVAL) as c_int } else { 0 }
}

/// A connection gets an owner: it becomes the kernel's, unless the kernel refuses that owner, as it does to a socket that is nobody's.
/// None: the kernel's socket is to be told.
fn own(fd: c_int, tell: impl FnOnce(c_int) -> Result<usize, uncork_posix::Errno>) -> Option<c_int> {
    if SOCKETS.is_listener(fd) {
        return None;
    }
    if let Ok(other) = outside::new_socket(false)
        && let Err(error) = tell(other.as_raw_fd())
    {
        return Some(crate::raw::fail(error) as c_int);
    }
    hand_over_if_ours(fd, OWNED);
    // One whose handshake is not over stays.
    has(fd).then(|| fail(Errno::EINVAL) as c_int)
}
