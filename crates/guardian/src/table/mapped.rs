//! Words of memory that are shared with another process.
//!
//! The one file of this crate with `unsafe`: there is no other way to map memory.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping of so many words, for as long as this lives.
#[derive(Debug)]
pub(super) struct Mapped {
    begin: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory is the process's, not a thread's, and there are only atomics in it.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps a file that cannot become shorter than `words`. The descriptor is not needed after that.
    pub(super) fn new(memory: OwnedFd, words: usize) -> io::Result<Self> {
        let bytes = words * size_of::<AtomicU64>();
        // Or who writes behind its end would die of it (SIGBUS).
        let is_long = fstat(&memory)?.st_size.cast_unsigned() >= bytes as u64;
        if !is_long || !fcntl_get_seals(&memory)?.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that there is.
        let begin = unsafe {
            mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, memory.as_fd(), 0)
        }?;
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { begin, words })
    }

    /// All of them.
    pub(super) fn all(&self) -> &[AtomicU64] {
        // SAFETY: `begin` is aligned to a page, and so many words are mapped from it until `self` is
        // dropped; the file stays as long (its seal was looked at). Any bits are a number, and other
        // processes may write at any time, for which atomics are made.
        unsafe { slice::from_raw_parts(self.begin.as_ptr(), self.words) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let bytes = self.words * size_of::<AtomicU64>();
        // SAFETY: exactly what mmap gave, and nothing that was lent of it is left. Should it fail, the mapping
        // stays, which harms nobody.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), bytes) };
    }
}
