//! The memory that a program and an instance share: a head of words, followed by rings of octets.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use uncork_guardian::shared::{Extent, Shared};

/// Words in the head, each in a cache line of its own so that one side's writes do not slow the other's.
pub(crate) const WORDS: usize = 16;
const LINE_WORDS: usize = 64 / size_of::<AtomicU64>();
/// Length of the head in words: a page.
const HEAD_WORDS: usize = 4096 / size_of::<AtomicU64>();

const _: () = assert!(WORDS * LINE_WORDS <= HEAD_WORDS, "the words are in the head");

/// A mapping of this memory, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Memory(Shared);

const fn extent(octets: usize) -> Extent {
    Extent { words: HEAD_WORDS, octets }
}

impl Memory {
    /// Creates a file with this many octets after the head, whose length cannot change.
    pub(crate) fn create(octets: usize) -> io::Result<OwnedFd> {
        Shared::create("uncork-attachment", extent(octets))
    }

    /// Maps a file that cannot become shorter than that. The descriptor is not needed afterwards.
    pub(crate) fn map(memory: BorrowedFd<'_>, octets: usize) -> io::Result<Self> {
        Ok(Self(Shared::map(memory, extent(octets))?))
    }

    /// Returns one of the words.
    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < WORDS, "there are so many words");
        &self.0.words()[at * LINE_WORDS]
    }

    /// Copies octets to an offset after the head.
    pub(crate) fn write(&self, at: usize, from: &[u8]) {
        self.0.write(at, from);
    }

    /// Copies octets from an offset after the head.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        self.0.read(at, into);
    }
}
