//! The memory of all frames (the UMEM), which the kernel reads and writes, too.
//!
//! One of the files of this crate with `unsafe`. What makes it sound, and must stay so:
//!
//! - A chunk belongs to one side at a time. Ours are those that a [`Piece`] or a [`Slot`] stands for; neither can
//!   be copied. A [`Piece`] comes only from the receive ring, and is consumed when it is given back
//!   (`rings.rs`); a [`Slot`] comes only from [`Slots`](super::slots::Slots), and is consumed when it is sent.
//! - Octets are lent for as long as that value is borrowed, so no reference can outlive the chunk's return to the
//!   kernel.
//! - Offsets and lengths from the kernel, or from the process that handed the area over, are checked against the
//!   mapping each time, and the mapping cannot shrink: the file is sealed.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

/// The content of one received chunk: a frame, or a piece of one. It must be given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) bytes: u32,
    /// Whether the next chunk continues this frame.
    pub(super) continues: bool,
}

/// An empty slot for a frame to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) number: u32,
    /// Its offset and length.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// The mapping of the area.
#[derive(Debug)]
pub(super) struct Area {
    begin: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is the process's, not a thread's, and may be unmapped by any thread. What is said above of
// pieces and slots holds whichever thread has them.
unsafe impl Send for Area {}
// SAFETY: as above: shared, it lends only octets of which the caller has a piece.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap gave, and no reference is left.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

/// Creates shared memory whose length is sealed.
pub(super) fn create(bytes: usize) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create("uncork-frames", flags)?;
    ftruncate(&file, bytes.try_into().map_err(io::Error::other)?)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

impl Area {
    /// Maps such memory, if it is sealed and as long as described.
    pub(super) fn map(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let seals = SealFlag::from_bits_truncate(fcntl(file.as_fd(), FcntlArg::F_GET_SEALS)?);
        let length = usize::try_from(fstat(file.as_fd())?.st_size).unwrap_or(0);
        if !seals.contains(SealFlag::F_SEAL_SHRINK) || length < bytes {
            let text = "the memory of its frames is not as it is described";
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing one.
        let begin = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self { begin, bytes })
    }

    /// Its address in this process, for registration with the kernel.
    pub(super) fn address(&self) -> u64 {
        self.begin.as_ptr().addr() as u64
    }

    /// Returns a pointer to this many octets at an offset; `None` if they reach out of the area.
    fn place(&self, at: u64, bytes: usize) -> Option<NonNull<u8>> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(bytes)?;
        // SAFETY: within the mapping.
        (end <= self.bytes).then(|| unsafe { self.begin.add(at) })
    }

    /// Returns the octets of a piece; `None` if its descriptor from the kernel is out of bounds.
    pub(super) fn piece<'a>(&'a self, piece: &'a Piece) -> Option<&'a [u8]> {
        let bytes = usize::try_from(piece.bytes).ok()?;
        let begin = self.place(piece.at, bytes)?;
        // SAFETY: within the mapping, and ours while the piece exists.
        Some(unsafe { slice::from_raw_parts(begin.as_ptr(), bytes) })
    }

    /// Returns the word right before a received frame.
    pub(super) fn mark(&self, piece: &Piece) -> Option<[u8; 4]> {
        let begin = self.place(piece.at.checked_sub(4)?, 4)?;
        // SAFETY: as above: the chunk is ours from its beginning, not only from the beginning of the frame.
        Some(unsafe { begin.cast().read_unaligned() })
    }

    /// Returns the octets of an empty slot.
    pub(super) fn slot<'a>(&'a mut self, slot: &'a mut Slot) -> Option<&'a mut [u8]> {
        let bytes = usize::try_from(slot.bytes).ok()?;
        let begin = self.place(slot.at, bytes)?;
        // SAFETY: within the mapping, and ours while the slot exists.
        Some(unsafe { slice::from_raw_parts_mut(begin.as_ptr(), bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_of_the_area_is_lent() {
        let file = create(1 << 16).unwrap();
        let mut area = Area::map(file.as_fd(), 1 << 16).unwrap();
        let mut slot = Slot { number: 0, at: 4096, bytes: 4096 };
        area.slot(&mut slot).unwrap().fill(7);
        let piece = |at, bytes| Piece { at, bytes, continues: false };
        assert_eq!(area.piece(&piece(4096, 9)), Some(&[7; 9][..]));
        assert_eq!(area.mark(&piece(4100, 9)), Some([7; 4]));
        assert_eq!(area.mark(&piece(3, 9)), None);
        for (at, bytes) in [(65_535, 2), (65_537, 0), (u64::MAX, 1), (u64::MAX - 1, u32::MAX)] {
            assert_eq!(area.piece(&piece(at, bytes)), None, "{at}, {bytes}");
        }
        assert!(area.slot(&mut Slot { number: 9, at: 61_441, bytes: 4096 }).is_none());
    }

    #[test]
    fn memory_that_could_shrink_or_is_too_short_is_refused() {
        let short = create(4096).unwrap();
        assert!(Area::map(short.as_fd(), 8192).is_err());
        let loose = memfd_create("uncork-test", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&loose, 8192).unwrap();
        assert!(Area::map(loose.as_fd(), 8192).is_err());
    }
}
