//! The kernel's number for a network namespace (cookie).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Returns the cookie of this thread's namespace. Unlike an inode number, it is not reused before
/// the machine is rebooted.
pub(super) fn of_this_thread() -> io::Result<u64> {
    let kind = (AddressFamily::Unix, SockType::Datagram);
    let fd = socket(kind.0, kind.1, SockFlag::SOCK_CLOEXEC, None)?;
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).unwrap_or_default();
    // SAFETY: both pointers are to live variables of this function, and `length` is the size of
    // the first; the kernel writes no more than that (socket(7)).
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}
