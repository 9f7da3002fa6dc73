//! Memory that is shared with another process.
//!
//! The one file of this crate with `unsafe`: there is no other way to map memory.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Words at the beginning, each in a line of its own so that one side's writing does not slow the other's.
pub(crate) const WORDS: usize = 16;
const LINE_BYTES: usize = 64;
/// Where the rest begins.
pub(crate) const HEAD_BYTES: usize = 4096;

const _: () = assert!(WORDS * LINE_BYTES <= HEAD_BYTES, "the words are in the head");

/// A mapping, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Memory {
    begin: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is the process's, not a thread's; of it there are references to atomics only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// A file of so many octets behind the head, whose length nobody can change.
    pub(crate) fn create(bytes: usize) -> io::Result<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("uncork-attachment", flags)?;
        ftruncate(&memory, (HEAD_BYTES + bytes) as u64)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(memory)
    }

    /// Maps a file that cannot become shorter than that. The descriptor is not needed after that.
    pub(crate) fn map(memory: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let bytes = HEAD_BYTES + bytes;
        // Or who touches what is behind its end would die of it (SIGBUS).
        let is_long = fstat(memory)?.st_size.cast_unsigned() >= bytes as u64;
        if !is_long || !fcntl_get_seals(memory)?.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that there is.
        let begin = unsafe {
            mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, memory.as_fd(), 0)
        }?;
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { begin, bytes })
    }

    /// One of the words.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < WORDS, "there are so many words");
        // SAFETY: inside of the mapping, which lives as long as `self`, and aligned to a line. Any bits are a
        // number, and another process may write at any time, for which atomics are made. No other kind of
        // access is ever made to the head.
        unsafe { &*self.begin.as_ptr().add(at * LINE_BYTES).cast::<AtomicU64>() }
    }

    /// Copies octets to a place behind the head.
    pub(crate) fn write(&self, at: usize, from: &[u8]) {
        let to = self.place(at, from.len());
        // SAFETY: so many octets are inside of the mapping, and nothing of Rust's is. That the other process reads
        // or writes there at the same time can only be if it breaks the rules of the ring, and then it alone
        // gets garbage: to this process the memory is like a device's, of which there is never a reference.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// Copies octets from there.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.place(at, into.len());
        // SAFETY: as for `write`. Any bits are octets; what they say is looked at in the copy.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// A place behind the head, with room for so many octets.
    fn place(&self, at: usize, long: usize) -> *mut u8 {
        let behind = self.bytes - HEAD_BYTES;
        assert!(at <= behind && long <= behind - at, "inside of the memory");
        // SAFETY: inside of the mapping, as was just looked at.
        unsafe { self.begin.as_ptr().add(HEAD_BYTES + at) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap gave, and nothing that was lent of it is left. Should it fail, the mapping
        // stays, which harms nobody.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}
