//! Spare pieces for threads that cannot have the heap: taken one after the other from a mapping of their own, and never
//! given back. They are few and small.

use core::alloc::Layout;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{map, unmap};

/// Size of the mapping: address space only, until it is touched.
const BYTES: usize = 64 << 20;

/// Address of the mapping, or zero; and how many bytes of it are taken.
static BASE: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Returns a piece, or null.
pub(crate) fn piece(layout: Layout) -> *mut u8 {
    let bytes = layout.size() + layout.align();
    let begin = TAKEN.fetch_add(bytes, Relaxed);
    let base = base();
    // Once the mapping is exhausted it stays so: the count does not wrap around.
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
            // SAFETY: it was just mapped, and no other thread knows of it.
            unsafe { unmap(block, BYTES) };
            other
        }
    }
}
