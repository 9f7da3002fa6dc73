//! Spare pieces for threads that cannot have the heap: taken one after the other from mappings of their own, and never
//! given back. They are few and small, except in a child of fork that has lost the heap for good.

use core::alloc::Layout;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{MAPPED_BYTES, map, unmap};

/// Size of a mapping: address space only, until it is touched.
const BYTES: usize = 64 << 20;
/// Number of mappings, made one after the other when all before are used up.
const MAPPINGS: usize = 64;

/// The heap's own spare pieces.
pub(crate) static SPARE: Spare = Spare::new();

pub(crate) struct Spare {
    /// Addresses of the mappings; zero for those that do not exist yet.
    bases: [AtomicUsize; MAPPINGS],
    /// How many bytes of all mappings together are taken.
    taken: AtomicUsize,
}

impl Spare {
    const fn new() -> Self {
        Self { bases: [const { AtomicUsize::new(0) }; MAPPINGS], taken: AtomicUsize::new(0) }
    }

    /// Returns a piece, or null.
    pub(crate) fn piece(&self, layout: Layout) -> *mut u8 {
        let bytes = layout.size() + layout.align();
        debug_assert!(bytes <= 2 * MAPPED_BYTES, "larger blocks are mapped");
        let take = |taken| (taken < MAPPINGS * BYTES).then(|| begin(taken, bytes) + bytes);
        let taken = self.taken.fetch_update(Relaxed, Relaxed, take);
        let piece = taken.ok().and_then(|taken| self.at(begin(taken, bytes)));
        piece.map_or(ptr::null_mut(), |piece| {
            ptr::with_exposed_provenance_mut(piece.next_multiple_of(layout.align()))
        })
    }

    /// Returns the address of octet `at` of all mappings, or `None` if there is no memory for it. No mapping is made before
    /// those ahead of it: [`Spare::is_piece`] looks no further than the first that does not exist.
    fn at(&self, at: usize) -> Option<usize> {
        let mut bases = self.bases.get(..=at / BYTES)?.iter().map(base);
        let last = bases.try_fold(0, |_, base| (base != 0).then_some(base))?;
        Some(last + at % BYTES)
    }

    pub(crate) fn is_piece(&self, block: *mut u8) -> bool {
        let bases = self.bases.iter().map(|base| base.load(Relaxed));
        bases.take_while(|&base| base != 0).any(|base| (base..base + BYTES).contains(&block.addr()))
    }
}

/// Returns where a piece of `bytes` begins if `taken` bytes are taken: it lies in one mapping.
fn begin(taken: usize, bytes: usize) -> usize {
    if taken % BYTES + bytes > BYTES { taken.next_multiple_of(BYTES) } else { taken }
}

/// Returns the address of a mapping, which is made if it does not exist; zero if it cannot be made.
fn base(known: &AtomicUsize) -> usize {
    let base = known.load(Acquire);
    if base != 0 {
        return base;
    }
    let block = map(BYTES);
    if block.is_null() {
        return 0;
    }
    match known.compare_exchange(0, block.expose_provenance(), AcqRel, Acquire) {
        Ok(_) => block.addr(),
        Err(other) => {
            // SAFETY: it was just mapped, and no other thread knows of it.
            unsafe { unmap(block, BYTES) };
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_mapping_is_used_up_the_next_is_made_and_no_piece_lies_in_two() {
        let spare = Spare::new();
        let layout = Layout::from_size_align(60_000, 16).unwrap();
        let mut end = 0;
        for _ in 0..=2 * BYTES / layout.size() {
            let piece = spare.piece(layout);
            assert!(spare.is_piece(piece) && piece.addr().is_multiple_of(16));
            // SAFETY: a piece of this size, whose last octet nobody else uses.
            unsafe { piece.add(layout.size() - 1).write(1) };
            assert!(spare.is_piece(piece.wrapping_add(layout.size() - 1)));
            assert!(
                piece.addr() >= end || piece.addr() + layout.size() < end,
                "shared with another"
            );
            end = piece.addr() + layout.size();
        }
        let mapped = spare.bases.iter().filter(|base| base.load(Relaxed) != 0).count();
        assert_eq!(mapped, 3, "the last has what the first two had no room for");
        assert!(!spare.is_piece(ptr::null_mut()));
    }

    #[test]
    fn when_all_are_used_up_there_is_no_piece_and_the_count_does_not_wrap_around() {
        let spare = Spare::new();
        spare.taken.store(MAPPINGS * BYTES, Relaxed);
        assert!(spare.piece(Layout::new::<u64>()).is_null());
        spare.taken.store(usize::MAX - 7, Relaxed);
        assert!(spare.piece(Layout::new::<u64>()).is_null());
    }
}
