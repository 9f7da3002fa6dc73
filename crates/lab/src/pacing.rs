//! SO_MAX_PACING_RATE, the only option here that none of the libraries in use has.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Limits a socket's pacing rate: TCP itself waits between segments (since Linux 4.13 no qdisc is
/// needed for that: 218af599fa63).
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn set(stream: &TcpStream, bytes_per_second: u64) -> io::Result<()> {
    #[allow(clippy::cast_possible_truncation)] // 8 octets
    let length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of `bytes_per_second`, which is as long and outlives
    // the call; the descriptor is open as long as `stream` is borrowed.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            length,
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
