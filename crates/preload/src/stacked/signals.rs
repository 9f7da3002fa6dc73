//! Signals about a socket: SIGIO for any event (O_ASYNC), SIGURG for urgent data (F_SETOWN). Only the kernel sends them, and only
//! for its own sockets.

use std::os::fd::AsRawFd as _;

use libc::{c_int, c_ulong, pid_t};
use nix::errno::Errno;

use super::{SOCKETS, fail, faults, hand_over_if_ours, has, outside};
use crate::raw::raw;

/// Constants that libc does not have: asm-generic/fcntl.h, asm-generic/sockios.h.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;

/// Reason why the kernel has a socket with signals for any event.
const ASYNC: &str = "signals are to tell of what comes (O_ASYNC), and only the kernel sends them";
/// Reason why the kernel has a socket whose owner gets signals for urgent data.
const OWNED: &str =
    "signals are to tell its owner of urgent data (F_SETOWN), and only the kernel sends them";

/// struct f_owner_ex of fcntl(2).
#[derive(Default)]
#[repr(C)]
struct Owner {
    kind: c_int,
    pid: pid_t,
}

/// Returns why a connection must be the kernel's because of its signals.
pub(super) fn why_kernels(fd: c_int) -> Option<&'static str> {
    why_kernels_listener(fd).or_else(|| has_owner(fd).then_some(OWNED))
}

/// As [`why_kernels`], for a listener: no urgent data comes to it, and connections inherit neither.
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

/// Makes an fcntl(2) that sets which process gets signals of a socket, or which signal. None: another command, or the kernel's.
pub(super) fn control(fd: c_int, command: c_int, argument: usize) -> Option<c_int> {
    match command {
        // No owner, and SIGIO: the default already.
        libc::F_SETOWN | F_SETSIG if argument as c_int == 0 => None,
        libc::F_SETOWN | F_SETOWN_EX | F_SETSIG => {
            // SAFETY: the program's own call, on another socket.
            own(fd, |other| unsafe { raw!(SYS_fcntl, other, command, argument) })
        }
        _ => None,
    }
}

/// As [`control`], by ioctl(2); FIOASYNC is O_ASYNC.
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

/// Sets O_ASYNC on a socket that is on the stack: refused, as nothing would send the signal.
pub(super) fn set(on: bool) -> c_int {
    if on { fail(Errno::EINVAL) as c_int } else { 0 }
}

/// Sets the owner of a connection, which becomes the kernel's, unless the kernel refuses that owner, as it shows on a new socket.
/// None: the kernel's socket must be told.
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
    // A connection whose handshake is not over stays on the stack.
    has(fd).then(|| fail(Errno::EINVAL) as c_int)
}
