//! The memory of all frames, which the kernel reads and writes, too (the "UMEM").
//!
//! One of the files of this crate with `unsafe`. What makes it sound, and must stay so:
//!
//! - A chunk belongs to one side at a time. Ours are those that a [`Piece`] or a [`Slot`] stands for; neither can
//!   be copied. A [`Piece`] comes only from the ring of what was received, and is gone when it is given back
//!   (`rings.rs`); a [`Slot`] comes only from [`Slots`](super::slots::Slots), and is gone when it is sent.
//! - Octets are lent for as long as that is borrowed, so nobody can still look at a chunk that is the kernel's
//!   again.
//! - What the kernel, or whoever handed the area over, says of places and lengths is held against the mapping
//!   each time, and the mapping cannot shrink: the file is sealed.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

/// What came in one chunk: a frame, or a piece of one. It must be given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: u64,
    pub(super) bytes: u32,
    /// Whether there is more of this frame in the next.
    pub(super) continues: bool,
}

/// An empty slot for a frame to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) number: u32,
    /// Where it begins, and its length.
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// The mapping.
#[derive(Debug)]
pub(super) struct Area {
    begin: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is the process's, not a thread's, and may be unmapped by any thread. What is said above of
// pieces and slots holds whichever thread has them.
unsafe impl Send for Area {}
// SAFETY: as above: shared, it lends only what somebody has a piece of.
unsafe impl Sync for Area {}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap gave, and nobody is left to refer to it.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

/// Memory of that length, which will keep it.
pub(super) fn create(bytes: usize) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create("uncork-frames", flags)?;
    ftruncate(&file, bytes.try_into().map_err(io::Error::other)?)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

impl Area {
    /// Maps such memory, if it is as long as it is said to be.
    pub(super) fn map(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let seals = SealFlag::from_bits_truncate(fcntl(file.as_fd(), FcntlArg::F_GET_SEALS)?);
        let length = usize::try_from(fstat(file.as_fd())?.st_size).unwrap_or(0);
        if !seals.contains(SealFlag::F_SEAL_SHRINK) || length < bytes {
            let text = "the memory of its frames is not as it is described";
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that there is.
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

    /// Where it is in this process, for the kernel to be told.
    pub(super) fn address(&self) -> u64 {
        self.begin.as_ptr().addr() as u64
    }

    /// Where so many octets begin; nothing if they are not in here.
    fn place(&self, at: u64, bytes: usize) -> Option<NonNull<u8>> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(bytes)?;
        // SAFETY: within the mapping.
        (end <= self.bytes).then(|| unsafe { self.begin.add(at) })
    }

    /// What came; nothing if the kernel says that it is where no chunk is.
    pub(super) fn piece<'a>(&'a self, piece: &'a Piece) -> Option<&'a [u8]> {
        let bytes = usize::try_from(piece.bytes).ok()?;
        let begin = self.place(piece.at, bytes)?;
        // SAFETY: within the mapping, and ours while there is a piece.
        Some(unsafe { slice::from_raw_parts(begin.as_ptr(), bytes) })
    }

    /// The octets of the word right before a frame that came.
    pub(super) fn mark(&self, piece: &Piece) -> Option<[u8; 4]> {
        let begin = self.place(piece.at.checked_sub(4)?, 4)?;
        // SAFETY: as above: the chunk is ours from its beginning, not only from where the frame is.
        Some(unsafe { begin.cast().read_unaligned() })
    }

    /// The octets of an empty slot.
    pub(super) fn slot<'a>(&'a mut self, slot: &'a mut Slot) -> Option<&'a mut [u8]> {
        let bytes = usize::try_from(slot.bytes).ok()?;
        let begin = self.place(slot.at, bytes)?;
        // SAFETY: within the mapping, and ours while there is a slot.
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
