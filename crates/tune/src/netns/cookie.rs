//! The number that the kernel gives to a network namespace.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd as _;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// The number of the namespace in which this thread is. It is never given to another namespace
/// before the machine is booted anew, as an inode's number is.
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
