//! The memory of a preloaded library, which is not the program's.
//!
//! The program calls us from anywhere: from a signal handler that has interrupted malloc(3), from within an allocator that
//! waits with its lock held, with a heap that it has corrupted itself. So nothing here enters malloc. Small blocks come
//! from a heap of our own, large ones from the kernel directly.

mod heap;
mod spare;

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr;

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

use heap::HEAP;

/// Blocks of this size or more are mapped, each by itself, and returned to the kernel when they are freed.
const MAPPED_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

/// The allocator; see the crate. There is one heap, however many values of this type there are.
#[derive(Debug, Clone, Copy)]
pub struct Memory;

/// Keeps other threads out before fork(2), so that the child's heap is consistent.
pub fn before_fork() {
    HEAP.keep();
}

/// Lets other threads in again after fork(2), in the parent.
pub fn after_fork_in_parent() {
    HEAP.let_go();
}

/// Lets the heap be used again after fork(2), in the child.
pub fn after_fork_in_child() {
    HEAP.let_go();
    HEAP.leave_if_lost();
}

fn is_mapped(size: usize, align: usize) -> bool {
    size >= MAPPED_BYTES && align <= PAGE
}

/// Maps fresh memory, all zeros; null if there is none.
fn map(bytes: usize) -> *mut u8 {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let block = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) };
    block.map_or(ptr::null_mut(), <*mut c_void>::cast)
}

/// # Safety
/// The caller passes a mapping that [`map`] or [`remap`] has returned, or a part of it, that is no longer used.
unsafe fn unmap(block: *mut u8, bytes: usize) -> bool {
    // SAFETY: as promised by the caller.
    unsafe { munmap(block.cast(), bytes) }.is_ok()
}

/// Changes the size of a mapping; null if it cannot have that size.
///
/// # Safety
/// As for [`unmap`]; afterwards the mapping may be at another address.
unsafe fn remap(block: *mut u8, old_bytes: usize, bytes: usize, flags: MremapFlags) -> *mut u8 {
    // SAFETY: as promised by the caller.
    let moved = unsafe { mremap(block.cast(), old_bytes, bytes, flags) };
    moved.map_or(ptr::null_mut(), <*mut c_void>::cast)
}

// SAFETY: the three kinds of block are told apart by their layout, which is the same at allocation and when it is freed,
// and by their address. A mapping is page-aligned and zero.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return map(layout.size());
        }
        HEAP.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() && !is_mapped(layout.size(), layout.align()) {
            // SAFETY: a block of this size that was just allocated.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller, `block` came from `alloc` with this layout.
        unsafe {
            if is_mapped(layout.size(), layout.align()) {
                unmap(block, layout.size());
            } else {
                HEAP.free(block, layout);
            }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (old, align) = (layout.size(), layout.align());
        // SAFETY: as promised by the caller, for a block of this layout.
        unsafe {
            match (is_mapped(old, align), is_mapped(size, align)) {
                (true, true) => return remap(block, old, size, MremapFlags::MAYMOVE),
                (false, false) => {
                    if let Some(moved) = HEAP.realloc(block, layout, size) {
                        return moved;
                    }
                }
                _ => {}
            }
            let moved = self.alloc(Layout::from_size_align_unchecked(size, align));
            if !moved.is_null() {
                ptr::copy_nonoverlapping(block, moved, old.min(size));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[global_allocator]
    static MEMORY: Memory = Memory;

    /// Checks that blocks of all sizes, made, changed and freed by several threads, hold what was written to them.
    #[test]
    fn no_two_blocks_share_an_octet() {
        thread::scope(|scope| {
            for seed in 1..=4_u64 {
                scope.spawn(move || churn(seed, 5_000));
            }
        });
    }

    fn churn(seed: u64, rounds: usize) {
        let mut random = seed;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
            (random >> 33) as usize % below
        };
        let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
        for round in 0..rounds {
            let size = if next(50) == 0 { 1 + next(200_000) } else { 1 + next(3000) };
            let layout = Layout::from_size_align(size, 1 << next(8)).unwrap();
            let mark = round as u8;
            // SAFETY: each block is used within its layout, and freed once.
            unsafe {
                if blocks.len() < 100 || next(2) == 0 {
                    let zeroed = next(2) == 0;
                    let block =
                        if zeroed { MEMORY.alloc_zeroed(layout) } else { MEMORY.alloc(layout) };
                    assert_eq!(block.align_offset(layout.align()), 0);
                    assert!(!zeroed || (0..size).all(|at| *block.add(at) == 0));
                    block.write_bytes(mark, size);
                    blocks.push((block, layout, mark));
                    continue;
                }
                let (mut block, mut layout, mark) = blocks.swap_remove(next(blocks.len()));
                let kept = if next(2) == 0 { layout.size() } else { layout.size().min(size) };
                if kept != layout.size() || next(2) == 0 {
                    block = MEMORY.realloc(block, layout, size);
                    layout = Layout::from_size_align(size, layout.align()).unwrap();
                }
                assert!((0..kept.min(layout.size())).all(|at| *block.add(at) == mark));
                assert_eq!(block.align_offset(layout.align()), 0);
                MEMORY.dealloc(block, layout);
            }
        }
        for (block, layout, mark) in blocks {
            // SAFETY: as above.
            unsafe {
                assert!((0..layout.size()).all(|at| *block.add(at) == mark));
                MEMORY.dealloc(block, layout);
            }
        }
    }
}
