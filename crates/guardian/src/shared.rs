//! Memory that is shared with another process, which may write anything there at any time.
//!
//! The one file of this crate with `unsafe`: there is no other way to map memory.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The layout of shared memory: words, followed by octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// How many words, which are read and written as atomics only.
    pub words: usize,
    /// How many octets, which are copied from and to.
    pub octets: usize,
}

impl Extent {
    const fn words_bytes(self) -> usize {
        self.words * size_of::<AtomicU64>()
    }

    const fn bytes(self) -> usize {
        self.words_bytes() + self.octets
    }
}

/// A mapping of shared memory, for as long as this lives.
#[derive(Debug)]
pub struct Shared {
    begin: NonNull<u8>,
    extent: Extent,
}

// SAFETY: the memory is the process's, not a thread's; the only references into it are to atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Creates a file of this extent and name (memfd_create(2)) whose length cannot change.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn create(name: &str, extent: Extent) -> io::Result<OwnedFd> {
        let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memory, extent.bytes() as u64)?;
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(memory)
    }

    /// Maps a file that cannot become shorter than this extent. The descriptor is not needed afterwards.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidData`] if it is shorter, or could become so; what the kernel says.
    pub fn map(memory: BorrowedFd<'_>, extent: Extent) -> io::Result<Self> {
        let bytes = extent.bytes();
        // Otherwise an access beyond its end would kill the process (SIGBUS).
        let is_long = fstat(memory)?.st_size.cast_unsigned() >= bytes as u64;
        if !is_long || !fcntl_get_seals(memory)?.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let begin = unsafe {
            mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, memory.as_fd(), 0)
        }?;
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { begin, extent })
    }

    /// Returns all of the words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `begin` is aligned to a page, and this many words are mapped from it until `self` is dropped; the
        // file stays that long (its seal was checked). Any bit pattern is a number, and other processes may write at
        // any time, which is what atomics are for. They are never accessed in any other way.
        unsafe { slice::from_raw_parts(self.begin.as_ptr().cast(), self.extent.words) }
    }

    /// Copies octets to an offset after the words.
    pub fn write(&self, at: usize, from: &[u8]) {
        let to = self.place(at, from.len());
        // SAFETY: this many octets are inside the mapping, and no Rust object is. The other process can only read or write
        // there at the same time by breaking the protocol, and then it alone gets garbage: to this process the
        // memory is like a device's, to which there is never a reference.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// Copies octets from an offset after the words.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let from = self.place(at, into.len());
        // SAFETY: as for `write`. Any bits are octets; what they say is checked in the copy.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Returns the address of an offset after the words, with room for this many octets.
    fn place(&self, at: usize, long: usize) -> *mut u8 {
        let octets = self.extent.octets;
        assert!(at <= octets && long <= octets - at, "inside of the memory");
        // SAFETY: inside the mapping, as was just checked.
        unsafe { self.begin.as_ptr().add(self.extent.words_bytes() + at) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap returned, and nothing borrows from it any more. If it fails the mapping stays, which does
        // no harm.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), self.extent.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    const EXTENT: Extent = Extent { words: 3, octets: 5 };

    #[test]
    fn what_one_writes_the_other_reads() {
        let memory = Shared::create("uncork-test", EXTENT).unwrap();
        let [one, other] = [(); 2].map(|()| Shared::map(memory.as_fd(), EXTENT).unwrap());
        one.words()[2].store(u64::MAX, Ordering::Relaxed);
        one.write(1, b"four");
        assert_eq!(other.words().len(), EXTENT.words);
        assert_eq!(other.words()[2].load(Ordering::Relaxed), u64::MAX);
        let mut octets = [0; 5];
        other.read(0, &mut octets);
        assert_eq!(&octets, b"\0four");
    }

    #[test]
    fn what_could_become_too_short_is_not_mapped() {
        let longer = Extent { octets: EXTENT.octets + 1, ..EXTENT };
        let memory = Shared::create("uncork-test", EXTENT).unwrap();
        Shared::map(memory.as_fd(), longer).unwrap_err();
        let unsealed = memfd_create("uncork-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&unsealed, 4096).unwrap();
        Shared::map(unsealed.as_fd(), EXTENT).unwrap_err();
    }

    #[test]
    #[should_panic(expected = "inside of the memory")]
    fn nothing_is_written_behind_the_end() {
        let memory = Shared::create("uncork-test", EXTENT).unwrap();
        Shared::map(memory.as_fd(), EXTENT).unwrap().write(2, b"four");
    }
}
