//! The kernel socket behind a descriptor, and what takes its place when the connection becomes the kernel's.

use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use libc::c_int;
use nix::errno::Errno;
use uncork_guardian::mailbox;
use uncork_high::high;
use uncork_posix::kernel::state;

use super::calls::{closes_on_exec, option_of};
use super::outside::errno;
use crate::POSIX;
use crate::raw::raw;

/// Options that matter to the kernel alone, and that a program may still set on a connection on the stack. All others the stack
/// has, or the connection becomes the kernel's before they are set.
const OPTIONS: [(c_int, c_int); 9] = [
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, SO_PREFER_BUSY_POLL),
    (libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET),
    (libc::SOL_SOCKET, SO_TXREHASH),
    (libc::SOL_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS),
    (libc::SOL_TCP, libc::TCP_THIN_DUPACK),
    (libc::SOL_IP, libc::IP_FREEBIND),
    (libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::SOL_IPV6, IPV6_FREEBIND),
];

// linux/in6.h, asm-generic/socket.h
const IPV6_FREEBIND: c_int = 78;
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
const SO_TXREHASH: c_int = 74;

/// The option by which a kernel socket that children have, too, says that its connection is on its way to the kernel. It has no
/// effect on TCP.
const BEGUN: c_int = libc::SO_BROADCAST;

/// One part in so many of the descriptor numbers is kept for the program, however many are needed for children.
const SHARE: u64 = 4;

/// Puts a socket behind a descriptor, whose FD_CLOEXEC flag stays.
pub(super) fn put(fd: RawFd, socket: &OwnedFd) -> Result<(), Errno> {
    let flags = if closes_on_exec(fd) { libc::O_CLOEXEC } else { 0 };
    // SAFETY: no pointers.
    unsafe { raw!(SYS_dup3, socket.as_raw_fd(), fd, flags) }.map(drop).map_err(errno)
}

/// Returns the SO_COOKIE of the socket there, which the program may have read.
pub(super) fn cookie_of(fd: RawFd) -> Option<u64> {
    let told = option_of(fd, libc::SOL_SOCKET, libc::SO_COOKIE, size_of::<u64>())?;
    Some(u64::from_ne_bytes(*told.first_chunk()?))
}

/// Makes the program go on reading that cookie.
pub(super) fn keep_cookie(fd: RawFd, cookie: Option<u64>) {
    if let Some((at, cookie)) = POSIX.find(fd).zip(cookie) {
        at.socket.cookie.store(cookie, Relaxed);
    }
}

/// Copies the options that the program has set from one socket to another.
pub(super) fn copy_options(from: RawFd, to: RawFd) {
    for (level, name) in OPTIONS {
        let Some(value) = option_of(from, level, name, size_of::<c_int>()) else { continue };
        if option_of(to, level, name, value.len()).is_some_and(|other| other != value) {
            set(to, level, name, &value);
        }
    }
}

/// Marks whether the connection of a descriptor is on its way to the kernel.
pub(super) fn mark(fd: RawFd, has_begun: bool) {
    set(fd, libc::SOL_SOCKET, BEGUN, &c_int::from(has_begun).to_ne_bytes());
}

/// Returns whether that mark is set.
pub(super) fn has_begun(fd: RawFd) -> bool {
    let told = option_of(fd, libc::SOL_SOCKET, BEGUN, size_of::<c_int>());
    told.is_some_and(|value| value.iter().any(|octet| *octet != 0))
}

fn set(fd: RawFd, level: c_int, name: c_int, value: &[u8]) {
    // SAFETY: a value of the length given.
    let _ = unsafe { raw!(SYS_setsockopt, fd, level, name, value.as_ptr(), value.len()) };
}

/// Makes a mailbox where children find a connection, unless too few descriptors would be left for the program.
pub(super) fn mailbox() -> Result<OwnedFd, Errno> {
    let made =
        mailbox::make().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    let made = high(made);
    let most = limit().map_or(u64::MAX, |limit| limit - limit / SHARE);
    if u64::from(made.as_raw_fd().unsigned_abs()) >= most {
        return Err(Errno::EMFILE);
    }
    super::mark(made.as_raw_fd(), state::OURS);
    Ok(made)
}

/// Returns how many descriptors the process may have (RLIMIT_NOFILE).
fn limit() -> Option<u64> {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let nothing = core::ptr::null::<libc::rlimit64>();
    // SAFETY: a structure that lives as long as the call.
    unsafe { raw!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, nothing, &raw mut limit) }.ok()?;
    Some(limit.rlim_cur)
}

/// Puts the connection there that the parent has left, in a child of fork. None if the parent has not left it yet; false if it is
/// lost.
pub(super) fn take_left(fd: RawFd, from: RawFd) -> Option<bool> {
    // SAFETY: the mailbox is the stack's, which keeps it as long as it has `fd`.
    let (_, left) = mailbox::look(unsafe { BorrowedFd::borrow_raw(from) })?;
    Some(left.is_some_and(|connection| put(fd, &connection).is_ok()))
}

/// As [`take_left`], in a child of vfork, for its descriptor. Other children may be looking for theirs meanwhile.
pub(super) fn take_own(fd: RawFd, from: RawFd) -> bool {
    /// More than there are ever such children at a time.
    const MOST: usize = 64;
    // SAFETY: the mailbox was made before this child was, and its parent's stack keeps it.
    let from = unsafe { BorrowedFd::borrow_raw(from) };
    for _ in 0..MOST {
        let Some((about, left)) = mailbox::take(from) else { return false };
        if about == fd {
            return left.is_some_and(|connection| put(fd, &connection).is_ok());
        }
        let left = left.as_ref().map(std::os::fd::AsFd::as_fd);
        let _ = mailbox::put(from, about, left);
    }
    false
}
