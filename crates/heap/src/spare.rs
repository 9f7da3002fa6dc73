//! Pieces for who cannot have the heap: taken one behind the other from a mapping of their own, and never given back. They
//! are few and small.

use core::alloc::Layout;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{map, unmap};

/// Addresses only, until they are touched.
const BYTES: usize = 64 << 20;

/// Where the mapping is, or zero; and how much of it is taken.
static BASE: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A piece, or null.
pub(crate) fn piece(layout: Layout) -> *mut u8 {
    let bytes = layout.size() + layout.align();
    let begin = TAKEN.fetch_add(bytes, Relaxed);
    let base = base();
    // What was too much for it stays so: the count does not come round.
    if base == 0 || begin.saturating_add(bytes) > BYTES {
        return ptr::null_mut();
    }
    ptr::with_exposed_provenance_mut((base + begin).next_multiple_of(layout.align()))
}

pub(crate) fn is_piece(block: *mut u8) -> bool {
    let base = BASE.load(Relaxed);
    base != 0 && (base..base + BYTES).contains(&block.addr())
}

fn base() -> usize {
    let base = BASE.load(Acquire);
    if base != 0 {
        return base;
    }
    let block = map(BYTES);
    if block.is_null() {
        return 0;
    }
    match BASE.compare_exchange(0, block.expose_provenance(), AcqRel, Acquire) {
        Ok(_) => block.addr(),
        Err(other) => {
            // SAFETY: just mapped, and nobody else has it.
            unsafe { unmap(block, BYTES) };
            other
        }
    }
}
