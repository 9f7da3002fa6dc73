//! The library's own memory, in so far as a signal handler may need some.
//!
//! write(2) may be called in a handler that has interrupted malloc(3), which must not be entered
//! again: it would wait for a lock that its own thread has, or spoil its lists. Buffers for what
//! is gathered are the only memory that a write can need; they, and all that is as large, come
//! from the kernel directly.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use std::alloc::System;

use crate::raw::raw;

/// Blocks from this size on are mapped. What is smaller no write allocates.
const MAPPED_BYTES: usize = 1024;
const PAGE: usize = 4096;

/// See the module.
struct Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

fn is_mapped(layout: Layout) -> bool {
    layout.size() >= MAPPED_BYTES && layout.align() <= PAGE
}

// SAFETY: both kinds of block are told apart by their layout, which is the same at both ends of a
// block's life; a mapping is page-aligned and zero.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_mapped(layout) {
            // SAFETY: as promised by the caller.
            return unsafe { System.alloc(layout) };
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let block = unsafe { raw!(SYS_mmap, 0, layout.size(), protection, flags, -1i32, 0) };
        block.map_or(ptr::null_mut(), |block| block as *mut u8)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller, `block` came from `alloc` with this layout.
        unsafe {
            if is_mapped(layout) {
                let _ = raw!(SYS_munmap, block, layout.size());
            } else {
                System.dealloc(block, layout);
            }
        }
    }
}
