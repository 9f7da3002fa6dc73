//! The data of a connection's queues on its way to the process that fills it in: memory that can be passed on.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use uncork_stack::Detached;

/// Writes what [`crate::fill`] is to read into memory; `None` if there is nothing.
///
/// # Errors
///
/// EMFILE and its kin.
pub fn queued(detached: &Detached) -> io::Result<Option<OwnedFd>> {
    let queues = [detached.unread(), detached.unacknowledged()];
    if queues.iter().all(|queue| queue.is_empty()) {
        return Ok(None);
    }
    let mut memory = File::from(memfd_create(c"uncork-queues", MFdFlags::MFD_CLOEXEC)?);
    queues.iter().try_for_each(|queue| memory.write_all(queue))?;
    Ok(Some(memory.into()))
}

/// Reads such memory as passed by an untrusted process, which may change and truncate it at any time. Nothing but memory is
/// read, as reading a file or a socket might block.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if it is no memory.
pub fn octets(passed: BorrowedFd<'_>) -> io::Result<impl io::Read> {
    // Only files in memory have seals (fcntl(2)).
    if fcntl(passed, FcntlArg::F_GET_SEALS).is_err() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Octets { memory: passed.as_fd().try_clone_to_owned()?.into(), at: 0 })
}

/// A reader with a position of its own, as others may move the file's.
struct Octets {
    memory: File,
    at: u64,
}

impl io::Read for Octets {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = std::os::unix::fs::FileExt::read_at(&self.memory, into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
