//! accept(2) on the kernel's listener, which stands behind each listener of the stack: connections by loopback, or by
//! devices that are not the stack's.

use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

use libc::{c_int, c_ulong, sockaddr_storage, socklen_t};
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

/// A listener is non-blocking while this lives.
struct Turn {
    listener: RawFd,
    /// Whether it is a blocking one otherwise; another process may have changed that meanwhile.
    blocks: bool,
}

impl Turn {
    /// EBUSY if another process has the lock.
    fn begin(listener: RawFd) -> Result<Self, Errno> {
        // The errors of fcntl(2) for a lock that is taken. Where there can be no lock at all, it goes on without.
        if let Err(Errno::EAGAIN | Errno::EACCES) = lock(listener, libc::F_WRLCK) {
            return Err(Errno::EBUSY);
        }
        let blocks = !super::calls::is_non_blocking(listener);
        if blocks {
            let _ = do_not_wait(listener, true);
        }
        Ok(Self { listener, blocks })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.blocks {
            let _ = do_not_wait(self.listener, false);
        }
        let _ = lock(self.listener, libc::F_UNLCK);
    }
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

fn do_not_wait(fd: RawFd, not: bool) -> Result<(), Errno> {
    let not = c_int::from(not);
    let request: c_ulong = libc::FIONBIO;
    // SAFETY: a number that lives as long as the call.
    unsafe { raw!(SYS_ioctl, fd, request, &raw const not) }.map(drop).map_err(errno)
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
