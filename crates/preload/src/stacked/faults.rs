//! Addresses of the program at which nothing can be: EFAULT, as from the kernel, instead of a fault of the process.
//! Only those are found that one comparison finds; other bad addresses fault when octets are copied.

use std::io::IoSliceMut;

use libc::c_int;
use nix::errno::Errno;

use super::SOCKETS;

/// No process can map the first page, unless the administrator allows it (vm.mmap_min_addr).
const FIRST_PAGE_BYTES: isize = 4096;
/// The most that one call moves (MAX_RW_COUNT).
const MOST_BYTES: usize = 0x7fff_f000;

/// Returns whether nothing can be there: the kernel's half is below zero, and so are error codes.
#[inline]
pub(crate) fn is_nowhere<T>(at: *const T) -> bool {
    (at as isize) < FIRST_PAGE_BYTES
}

/// As [`is_nowhere`], for a pointer that may be null.
#[inline]
pub(crate) fn is_bad<T>(at: *const T) -> bool {
    is_nowhere(at) && !at.is_null()
}

/// Returns whether so many octets end in the kernel's half, as with a length that is the -1 of an error.
#[inline]
pub(super) fn ends_nowhere<T>(at: *const T, length: usize) -> bool {
    (at as usize).saturating_add(length) > isize::MAX.cast_unsigned()
}

/// Why octets are neither put somewhere nor taken from there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refused {
    /// Before anything else is looked at.
    AtOnce(Errno),
    /// When there is something to be put there, or room for what is to be taken.
    WhenUsed,
}

impl Refused {
    /// Returns the result of reading to there.
    #[cold]
    pub(super) fn read(self, fd: c_int, flags: c_int) -> Result<usize, Errno> {
        if let Self::AtOnce(error) = self {
            return Err(error);
        }
        // What there is to read stays unread.
        let look = flags & !libc::MSG_WAITALL | libc::MSG_PEEK;
        match SOCKETS.receive(fd, &mut [IoSliceMut::new(&mut [0])], look) {
            Ok(1..) => Err(Errno::EFAULT),
            other => other,
        }
    }

    /// Returns the result of writing from there.
    #[cold]
    pub(super) fn write(self, fd: c_int, flags: c_int) -> Result<usize, Errno> {
        if let Self::AtOnce(error) = self {
            return Err(error);
        }
        SOCKETS.send(fd, &[], flags & !(libc::MSG_MORE | libc::MSG_EOR))?;
        Err(Errno::EFAULT)
    }
}

/// Returns how many octets of `length` at `at` can be used: no more than one call moves.
#[inline]
pub(super) fn usable<T>(at: *const T, length: usize) -> Result<usize, Refused> {
    if is_nowhere(at) || length > MOST_BYTES {
        return usable_after_all(at as isize, length);
    }
    Ok(length)
}

#[cold]
fn usable_after_all(at: isize, length: usize) -> Result<usize, Refused> {
    match (at, length) {
        // The kernel does not even look at its own half.
        (..0, _) => Err(Refused::AtOnce(Errno::EFAULT)),
        (_, 0) => Ok(0),
        (..FIRST_PAGE_BYTES, _) => Err(Refused::WhenUsed),
        _ => Ok(length.min(MOST_BYTES)),
    }
}
