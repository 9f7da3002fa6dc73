//! `write(2)`, `read(2)` and similar calls on a socket, with the retries that every caller needs.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::TcpStream;

use nix::errno::Errno;
use nix::sys::sendfile::sendfile;
use nix::sys::uio::writev;
use nix::unistd;
use socket2::SockRef;

/// Writes all of `bytes` and returns the number of `write(2)` calls that took: one, unless the
/// kernel took only a part.
///
/// # Errors
/// The error of `write(2)`, except EINTR, which is retried.
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
/// of `send(2)` calls that took.
///
/// # Errors
/// The error of `send(2)`, except EINTR, which is retried.
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

/// Writes the contents of all `slices` and returns the number of `writev(2)` calls that took. The
/// slices are used up.
///
/// # Errors
/// The error of `writev(2)`, except EINTR, which is retried.
#[inline]
pub(crate) fn writev_all(socket: &TcpStream, mut slices: &mut [IoSlice<'_>]) -> io::Result<u64> {
    let mut calls = 0;
    while !slices.is_empty() {
        match writev(socket, slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                calls += 1;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(calls)
}

/// Sends `bytes` of a file from `begin` on and returns the number of `sendfile(2)` calls that took.
///
/// # Errors
/// The error of `sendfile(2)`, except EINTR, which is retried.
#[inline]
pub(crate) fn sendfile_all(
    socket: &TcpStream,
    file: &File,
    mut begin: i64,
    mut bytes: usize,
) -> io::Result<u64> {
    let mut calls = 0;
    while bytes > 0 {
        match sendfile(socket, file, Some(&mut begin), bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => {
                calls += 1;
                bytes -= sent;
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(calls)
}

/// Makes one `read(2)` call; returns the number of bytes, 0 at the end of the stream.
///
/// # Errors
/// The error of `read(2)`, except EINTR, which is retried.
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
