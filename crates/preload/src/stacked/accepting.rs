//! accept(2) on the kernel's listener, which stands behind each listener of the stack: connections by loopback, or by
//! devices that are not the stack's.

use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

use libc::{c_int, sockaddr_storage, socklen_t};
use nix::errno::Errno;
use uncork_sockets::Accepted;

use super::outside::errno;
use crate::raw::raw;

/// Makes an accept4(2), which waits if the descriptor is a blocking one.
pub(super) fn as_it_is(listener: RawFd, flags: c_int) -> Result<Accepted, Errno> {
    let mut name = [0_u8; size_of::<sockaddr_storage>()];
    let mut len = name.len() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is how long the array is.
    let fd = unsafe { raw!(SYS_accept4, listener, name.as_mut_ptr(), &raw mut len, flags) };
    let fd = fd.map_err(errno)? as RawFd;
    Ok(Accepted::Kernels { fd, peer: name.get(..len as usize).unwrap_or_default().to_vec() })
}

/// Makes an accept4(2) that does not wait, on a listener that may be a blocking one. Between poll(2) and accept(2)
/// another listening process may have taken the connection, and one that then waits in the kernel's accept does not
/// notice the stack's. The call has no flag for that (io_uring has one): only O_NONBLOCK, which all processes with the
/// listener share. So each of them sets it for a moment, one at a time: by a lock that ends with its process, too.
pub(super) fn at_once(listener: RawFd, flags: c_int) -> Result<Accepted, Errno> {
    let turn = Turn::begin(listener)?;
    let accepted = as_it_is(listener, flags);
    drop(turn);
    accepted
}

/// What is set with O_NONBLOCK where it is ours: O_APPEND means nothing for a socket. It tells O_NONBLOCK of a moment from that of
/// the program, also where a process was killed in that moment and has left it so.
const OURS: c_int = libc::O_APPEND;

/// A listener is non-blocking while this lives.
struct Turn {
    _locked: Locked,
    listener: RawFd,
    /// Whether it is a blocking one otherwise.
    blocks: bool,
}

impl Turn {
    /// Returns EBUSY if another process has the lock.
    fn begin(listener: RawFd) -> Result<Self, Errno> {
        let _locked = Locked::begin(listener)?;
        let flags = flags_of(listener)?;
        let blocks = flags & libc::O_NONBLOCK == 0 || flags & OURS != 0;
        if blocks {
            let _ = put_flags(listener, flags | libc::O_NONBLOCK | OURS);
        }
        Ok(Self { _locked, listener, blocks })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Who has not waited for the lock any longer may have set it meanwhile.
        if self.blocks
            && let Ok(flags) = flags_of(self.listener)
            && flags & OURS != 0
        {
            let _ = put_flags(self.listener, flags & !(libc::O_NONBLOCK | OURS));
        }
    }
}

/// A listener's O_NONBLOCK is this process's to change while this lives.
struct Locked(RawFd);

impl Locked {
    /// Returns EBUSY if another process has the lock. Where there can be no lock at all, it goes on without.
    fn begin(listener: RawFd) -> Result<Self, Errno> {
        // The errors of fcntl(2) for a lock that is taken.
        match lock(listener, libc::F_WRLCK) {
            Err(Errno::EAGAIN | Errno::EACCES) => Err(Errno::EBUSY),
            _ => Ok(Self(listener)),
        }
    }

    /// Does without the lock if it `insists`.
    fn begin_or(listener: RawFd, insists: bool) -> Result<Option<Self>, Errno> {
        match Self::begin(listener) {
            Err(_) if insists => Ok(None),
            locked => locked.map(Some),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = lock(self.0, libc::F_UNLCK);
    }
}

fn flags_of(fd: RawFd) -> Result<c_int, Errno> {
    // SAFETY: no pointers.
    unsafe { raw!(SYS_fcntl, fd, libc::F_GETFL) }.map(|flags| flags as c_int).map_err(errno)
}

fn put_flags(fd: RawFd, flags: c_int) -> Result<(), Errno> {
    // SAFETY: no pointers.
    unsafe { raw!(SYS_fcntl, fd, libc::F_SETFL, flags) }.map(drop).map_err(errno)
}

/// Returns the status flags of a listener (F_GETFL), as the program has set them.
pub(super) fn status(listener: RawFd) -> Result<c_int, Errno> {
    let flags = flags_of(listener)?;
    let is_ours = flags & OURS != 0;
    Ok(if is_ours { flags & !(libc::O_NONBLOCK | OURS) } else { flags })
}

/// Returns whether a listener is non-blocking, as the program has set it.
pub(super) fn is_non_blocking(listener: RawFd) -> bool {
    status(listener).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// Acts on a listener while no other process has the lock: each has it for some microseconds, and one that was stopped in that is
/// not waited for. The argument of `act` is whether to do without. No lock of this process is held while it waits.
pub(super) fn in_turn(
    mut act: impl FnMut(bool) -> Option<Result<(), Errno>>,
) -> Option<Result<(), Errno>> {
    /// Longer than a time slice together: it may have lost the processor.
    const TRIES: u32 = 200;
    static BETWEEN_TRIES: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
    for _ in 0..TRIES {
        match act(false) {
            // SAFETY: a time that lives as long as the call.
            Some(Err(Errno::EBUSY)) => unsafe {
                let _ = raw!(SYS_nanosleep, &raw const BETWEEN_TRIES, 0);
            },
            done => return done,
        }
    }
    act(true)
}

/// Sets a listener's status flags (F_SETFL). No thread of this process accepts there meanwhile, and no other process, or what it has
/// put back after that would be what was before: EBUSY, unless the caller `insists`.
pub(super) fn set_status(listener: RawFd, flags: c_int, insists: bool) -> Result<(), Errno> {
    let _locked = Locked::begin_or(listener, insists)?;
    put_flags(listener, flags & !OURS)
}

/// Sets or clears a listener's O_NONBLOCK (FIONBIO), as [`set_status`] does.
pub(super) fn set_non_blocking(listener: RawFd, on: bool, insists: bool) -> Result<(), Errno> {
    let _locked = Locked::begin_or(listener, insists)?;
    let flags = status(listener)? & !libc::O_NONBLOCK;
    put_flags(listener, if on { flags | libc::O_NONBLOCK } else { flags })
}

/// Locks between processes: the threads of one process have the stack's lock.
fn lock(fd: RawFd, kind: c_int) -> Result<(), Errno> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: a lock that lives as long as the call.
    unsafe { raw!(SYS_fcntl, fd, libc::F_SETLK, &raw const lock) }.map(drop).map_err(errno)
}

/// Returns a connection that another process was to accept, in the form of accept4(2).
pub(super) fn passed(connection: OwnedFd, flags: c_int) -> (RawFd, Vec<u8>) {
    let fd = connection.as_raw_fd();
    let cloexec = if flags & libc::SOCK_CLOEXEC != 0 { libc::FD_CLOEXEC } else { 0 };
    let status = if flags & libc::SOCK_NONBLOCK != 0 { libc::O_NONBLOCK } else { 0 };
    let mut name = [0_u8; size_of::<sockaddr_storage>()];
    let mut len = name.len() as socklen_t;
    // SAFETY: flags; the kernel writes at most `len` bytes, which is how long the array is.
    let named = unsafe {
        let _ = raw!(SYS_fcntl, fd, libc::F_SETFD, cloexec);
        let _ = raw!(SYS_fcntl, fd, libc::F_SETFL, status);
        raw!(SYS_getpeername, fd, name.as_mut_ptr(), &raw mut len)
    };
    let name = named.ok().and_then(|_| name.get(..len as usize)).unwrap_or_default();
    (connection.into_raw_fd(), name.to_vec())
}
