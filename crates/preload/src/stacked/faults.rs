//! Addresses of the program's at which it cannot have anything: EFAULT, as the kernel says, and not a fault of the
//! process. Those are known that cost one comparison to know; what else is bad is found by the octets that are copied.

use std::io::IoSliceMut;

use libc::c_int;
use nix::errno::Errno;

use super::SOCKETS;

/// Nobody can have the first page, unless the administrator says so (vm.mmap_min_addr).
const FIRST_PAGE_BYTES: isize = 4096;
/// More than this one call does not move (MAX_RW_COUNT).
const MOST_BYTES: usize = 0x7fff_f000;

/// Whether nobody has anything there: the kernel's half is below zero, and so is whatever an error was taken for.
#[inline]
pub(crate) fn is_nowhere<T>(at: *const T) -> bool {
    (at as isize) < FIRST_PAGE_BYTES
}

/// The same of what may be left out.
#[inline]
pub(crate) fn is_bad<T>(at: *const T) -> bool {
    is_nowhere(at) && !at.is_null()
}

/// Whether so many octets end in the kernel's half, as those of a length that is an error's -1 do.
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
    /// What reading there gives.
    #[cold]
    pub(super) fn read(self, fd: c_int, flags: c_int) -> Result<usize, Errno> {
        if let Self::AtOnce(error) = self {
            return Err(error);
        }
        // What there is stays there.
        let look = flags & !libc::MSG_WAITALL | libc::MSG_PEEK;
        match SOCKETS.receive(fd, &mut [IoSliceMut::new(&mut [0])], look) {
            Ok(1..) => Err(Errno::EFAULT),
            other => other,
        }
    }

    /// What writing from there gives.
    #[cold]
    pub(super) fn write(self, fd: c_int, flags: c_int) -> Result<usize, Errno> {
        if let Self::AtOnce(error) = self {
            return Err(error);
        }
        SOCKETS.send(fd, &[], flags & !(libc::MSG_MORE | libc::MSG_EOR))?;
        Err(Errno::EFAULT)
    }
}

/// How many octets of `length` at `at` are to be used: all that one call moves.
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
        // The kernel's own half it does not even look at.
        (..0, _) => Err(Refused::AtOnce(Errno::EFAULT)),
        (_, 0) => Ok(0),
        (..FIRST_PAGE_BYTES, _) => Err(Refused::WhenUsed),
        _ => Ok(length.min(MOST_BYTES)),
    }
}
