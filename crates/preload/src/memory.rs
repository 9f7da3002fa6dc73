//! The library's own memory, in so far as a signal handler may need some.
//!
//! write(2) may be called in a handler that has interrupted malloc(3), which must not be entered
//! again: it would wait for a lock that its own thread has, or spoil its lists. Buffers for what
//! is gathered are the only memory that a write can need; they, and all that is as large, come
//! from the kernel directly. Who ends the process in such a handler has a report to make, of many small pieces: meanwhile
//! his thread's come from a mapping of their own ([`without_malloc`]).

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::alloc::System;

use crate::raw::raw;

/// Blocks from this size on are mapped. What is smaller no write allocates.
const MAPPED_BYTES: usize = 1024;
const PAGE: usize = 4096;
/// What the small pieces of a last report may have: addresses only, until they are touched. Behind that it is malloc's again.
const LAST_BYTES: usize = 64 << 20;

/// Where that mapping is, or zero, and how much of it is taken.
static LAST: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread is to leave malloc(3) alone.
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Runs what may have interrupted malloc(3), at the end of the process or what may be that: what it frees of older pieces is
/// not freed.
pub(crate) fn without_malloc<T>(run: impl FnOnce() -> T) -> T {
    if LAST.load(Acquire) == 0
        && let Some(block) = map(LAST_BYTES)
        && LAST.compare_exchange(0, block.addr(), AcqRel, Acquire).is_err()
    {
        // SAFETY: just mapped, and nobody has it: another thread was first.
        let _ = unsafe { raw!(SYS_munmap, block, LAST_BYTES) };
    }
    let before = ALONE.replace(true);
    let result = run();
    ALONE.set(before);
    result
}

fn map(bytes: usize) -> Option<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let block = unsafe { raw!(SYS_mmap, 0, bytes, protection, flags, -1i32, 0) };
    block.ok().map(|block| block as *mut u8)
}

/// A small piece of the last mapping, if there is that, and room.
fn last_piece(layout: Layout) -> Option<*mut u8> {
    let base = Some(LAST.load(Acquire)).filter(|base| *base != 0)?;
    let bytes = layout.size() + layout.align();
    let begin = TAKEN.fetch_add(bytes, Relaxed);
    // What was too much for it stays so: the count does not come round.
    let fits = begin.checked_add(bytes).is_some_and(|end| end <= LAST_BYTES);
    let at = (base + begin).next_multiple_of(layout.align());
    fits.then(|| ptr::with_exposed_provenance_mut(at))
}

fn is_of_last(block: *mut u8) -> bool {
    let base = LAST.load(Acquire);
    base != 0 && (base..base + LAST_BYTES).contains(&block.addr())
}

/// See the module.
struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED_BYTES && layout.align() <= PAGE
}

// SAFETY: mapped blocks are told from others by their layout, which is the same at both ends of a
// block's life, pieces of the last mapping by their address; a mapping is page-aligned and zero, and pieces are not given twice.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return map(layout.size()).unwrap_or(ptr::null_mut());
        }
        if ALONE.get()
            && let Some(piece) = last_piece(layout)
        {
            return piece;
        }
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller, `block` came from `alloc` with this layout.
        unsafe {
            if is_mapped(layout) {
                let _ = raw!(SYS_munmap, block, layout.size());
            } else if !ALONE.get() && !is_of_last(block) {
                System.dealloc(block, layout);
            }
        }
    }
}
