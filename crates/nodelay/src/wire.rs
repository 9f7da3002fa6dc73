//! `write(2)` and `read(2)` on a socket, with what every caller of them must do.

use std::io;
use std::net::TcpStream;

use nix::errno::Errno;
use nix::unistd;
use socket2::SockRef;

/// Writes all of `bytes` and returns the number of `write(2)` calls that took: one, unless the
/// kernel took a part only.
///
/// # Errors
/// What `write(2)` says, except EINTR, which is tried again.
#[inline]
pub(crate) fn write_all(socket: &TcpStream, mut bytes: &[u8]) -> io::Result<u64> {
    let mut calls = 0;
    while !bytes.is_empty() {
        match unistd::write(socket, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                calls += 1;
                bytes = &bytes[written..];
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(calls)
}

/// Sends all of `bytes` with MSG_MORE: the kernel is to wait for what follows. Returns the number
/// of `send(2)`s that it took.
///
/// # Errors
/// What `send(2)` says, except EINTR, which is tried again.
#[inline]
pub(crate) fn send_all_with_more(socket: &TcpStream, mut bytes: &[u8]) -> io::Result<u64> {
    let mut calls = 0;
    while !bytes.is_empty() {
        match SockRef::from(socket).send_with_flags(bytes, nix::libc::MSG_MORE) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                calls += 1;
                bytes = &bytes[written..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(calls)
}

/// One `read(2)`: the number of bytes, 0 at the end of the stream.
///
/// # Errors
/// What `read(2)` says, except EINTR, which is tried again.
#[inline]
pub(crate) fn read_some(socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match unistd::read(socket, into) {
            Ok(bytes) => return Ok(bytes),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
