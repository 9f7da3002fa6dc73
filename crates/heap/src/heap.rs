//! The heap: a well-known allocator under a lock that no thread waits long for.
//!
//! A thread that has interrupted itself in here, as a signal handler does, or that finds another thread which does not come
//! out, gets a piece of a spare mapping; what it frees meanwhile is freed by the next thread that has the lock.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use dlmalloc::{Allocator, Dlmalloc};

use rustix::mm::MremapFlags;
use rustix::thread::{Timespec, nanosleep, sched_yield};

use super::spare::SPARE;
use super::{PAGE, map, remap, unmap};

/// Number of attempts to get a lock that others hold only briefly, with a yield in between; and of those after them, with
/// a sleep in between. A thread of real-time priority on the owner's processor yields to nobody, but the owner runs while it
/// sleeps. Together the sleeps take a tenth of a second at least: so long no owner is inside that can come out.
const MOST_YIELDS: u32 = 1_000;
const MOST_SLEEPS: u32 = 1_000;
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };
/// The owner of the heap in a child of fork whose parent had it in a thread that the child does not have.
const NOBODY: usize = usize::MAX;

pub(crate) static HEAP: Heap = Heap {
    owner: AtomicUsize::new(0),
    kept: AtomicBool::new(false),
    late: AtomicPtr::new(ptr::null_mut()),
    blocks: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages)),
    #[cfg(test)]
    slept: AtomicUsize::new(0),
};

/// The heap and its lock; see the module.
pub(crate) struct Heap {
    /// The thread that is inside ([`here`]); zero if none is.
    owner: AtomicUsize,
    /// Whether the owner is inside only to keep other threads out.
    kept: AtomicBool,
    /// Blocks that are still to be freed, as a list: each begins with the address of the next.
    late: AtomicPtr<u8>,
    blocks: UnsafeCell<Dlmalloc<Pages>>,
    /// How often a thread has slept for it.
    #[cfg(test)]
    slept: AtomicUsize,
}

// SAFETY: only the owner reaches `blocks`.
unsafe impl Sync for Heap {}

/// Returns an address that no other thread has.
fn here() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| ptr::from_ref(here).addr())
}

impl Heap {
    fn enter(&self) -> bool {
        let me = here();
        for attempt in 0..MOST_YIELDS + MOST_SLEEPS {
            match self.owner.compare_exchange(0, me, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(owner) if owner == me || owner == NOBODY => return false,
                Err(_) if attempt < MOST_YIELDS => sched_yield(),
                Err(_) => {
                    let _ = nanosleep(&SLEEP);
                    #[cfg(test)]
                    self.slept.fetch_add(1, Relaxed);
                }
            }
        }
        false
    }

    /// Runs `run` on the heap; `None` if the heap cannot be had.
    fn with<T>(&self, run: impl FnOnce(&mut Dlmalloc<Pages>) -> T) -> Option<T> {
        if !self.enter() {
            return None;
        }
        // SAFETY: this thread is the owner, and a signal handler that interrupts it does not get in.
        let blocks = unsafe { &mut *self.blocks.get() };
        self.free_late(blocks);
        let result = run(blocks);
        self.owner.store(0, Release);
        Some(result)
    }

    pub(crate) fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and alignment is allowed.
        self.with(|blocks| unsafe { blocks.malloc(layout.size(), layout.align()) })
            .unwrap_or_else(|| SPARE.piece(layout))
    }

    /// # Safety
    /// A block that [`Heap::alloc`] or [`Heap::realloc`] has returned for this layout, and that is no longer used.
    pub(crate) unsafe fn free(&self, block: *mut u8, layout: Layout) {
        if SPARE.is_piece(block) {
            return;
        }
        // SAFETY: as promised by the caller.
        let freed =
            self.with(|blocks| unsafe { blocks.free(block, layout.size(), layout.align()) });
        if freed.is_none() {
            // SAFETY: as promised by the caller.
            unsafe { self.put_off(block) };
        }
    }

    /// Resizes a block, possibly without moving it; `None` if the caller must take another block.
    ///
    /// # Safety
    /// As for [`Heap::free`].
    pub(crate) unsafe fn realloc(
        &self,
        block: *mut u8,
        layout: Layout,
        size: usize,
    ) -> Option<*mut u8> {
        if SPARE.is_piece(block) {
            return None;
        }
        // SAFETY: as promised by the caller.
        self.with(|blocks| unsafe { blocks.realloc(block, layout.size(), layout.align(), size) })
    }

    /// # Safety
    /// As for [`Heap::free`]. No block is smaller than a pointer, or less aligned.
    unsafe fn put_off(&self, block: *mut u8) {
        let mut next = self.late.load(Relaxed);
        loop {
            // SAFETY: as promised by the caller.
            unsafe { block.cast::<*mut u8>().write(next) };
            match self.late.compare_exchange_weak(next, block, Release, Relaxed) {
                Ok(_) => return,
                Err(other) => next = other,
            }
        }
    }

    fn free_late(&self, blocks: &mut Dlmalloc<Pages>) {
        if self.late.load(Relaxed).is_null() {
            return;
        }
        let mut block = self.late.swap(ptr::null_mut(), Acquire);
        while !block.is_null() {
            // SAFETY: `put_off` has written the address of the next block, and no other thread frees this one.
            unsafe {
                let next = block.cast::<*mut u8>().read();
                blocks.c_free(block);
                block = next;
            }
        }
    }

    /// Keeps other threads out, if it can.
    pub(crate) fn keep(&self) {
        if self.enter() {
            self.kept.store(true, Relaxed);
        }
    }

    pub(crate) fn let_go(&self) {
        if self.owner.load(Relaxed) == here() && self.kept.swap(false, Relaxed) {
            self.owner.store(0, Release);
        }
    }

    /// Gives the heap up in a child of fork if another thread owns it, as that thread does not exist here. (A thread that has
    /// interrupted itself in here goes on, as it does in the parent.)
    pub(crate) fn leave_if_lost(&self) {
        let owner = self.owner.load(Relaxed);
        if owner != 0 && owner != here() {
            self.owner.store(NOBODY, Relaxed);
        }
    }
}

/// The source of the heap's memory.
pub(crate) struct Pages;

// SAFETY: mappings of our own, which have all properties that are asked for.
unsafe impl Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        (map(size), size, 0)
    }

    fn remap(&self, block: *mut u8, old: usize, new: usize, can_move: bool) -> *mut u8 {
        let flags = if can_move { MremapFlags::MAYMOVE } else { MremapFlags::empty() };
        // SAFETY: the heap's own mapping.
        unsafe { remap(block, old, new, flags) }
    }

    fn free_part(&self, block: *mut u8, old: usize, new: usize) -> bool {
        // SAFETY: as above, and its end is not used.
        unsafe { unmap(block.add(new), old - new) }
    }

    fn free(&self, block: *mut u8, size: usize) -> bool {
        // SAFETY: as above.
        unsafe { unmap(block, size) }
    }

    fn can_release_part(&self, _flags: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        PAGE
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;

    use super::*;

    fn heap() -> Heap {
        Heap {
            owner: AtomicUsize::new(0),
            kept: AtomicBool::new(false),
            late: AtomicPtr::new(ptr::null_mut()),
            blocks: UnsafeCell::new(Dlmalloc::new_with_allocator(Pages)),
            slept: AtomicUsize::new(0),
        }
    }

    const LAYOUT: Layout = Layout::new::<[u64; 5]>();

    #[test]
    fn who_interrupts_himself_gets_a_spare_piece_and_frees_later() {
        let heap = heap();
        let block = heap.alloc(LAYOUT);
        assert!(!SPARE.is_piece(block));
        let piece = heap.with(|_| {
            let piece = heap.alloc(LAYOUT);
            assert!(SPARE.is_piece(piece));
            // SAFETY: blocks of this layout, that are not used.
            unsafe {
                heap.free(block, LAYOUT);
                assert!(heap.realloc(piece, LAYOUT, 80).is_none());
            }
            piece
        });
        assert_eq!(heap.late.load(SeqCst), block);
        // SAFETY: as above.
        unsafe { heap.free(piece.unwrap(), LAYOUT) };
        assert_eq!(heap.alloc(LAYOUT), block, "it was freed before another one was looked for");
        assert!(heap.late.load(SeqCst).is_null());
    }

    #[test]
    fn who_cannot_have_it_goes_on_without() {
        let heap = heap();
        heap.keep();
        let others = || thread::scope(|scope| scope.spawn(|| heap.alloc(LAYOUT).addr()).join());
        let piece = others().unwrap();
        assert!(SPARE.is_piece(ptr::without_provenance_mut(piece)));
        assert!(SPARE.is_piece(heap.alloc(LAYOUT)), "nor has who keeps it");
        heap.let_go();
        heap.let_go();
        assert!(!SPARE.is_piece(ptr::without_provenance_mut(others().unwrap())));
    }

    #[test]
    fn a_child_whose_parent_had_it_in_other_hands_does_not_wait_for_them() {
        let heap = heap();
        thread::scope(|scope| scope.spawn(|| heap.keep()).join()).unwrap();
        heap.let_go();
        heap.leave_if_lost();
        let begun = std::time::Instant::now();
        for _ in 0..100_000 {
            assert!(SPARE.is_piece(heap.alloc(Layout::new::<u8>())));
        }
        assert!(begun.elapsed().as_secs() < 5, "each without a try");
    }

    /// The owner has no processor but that of a thread of real-time priority, which wants the heap.
    #[test]
    fn an_owner_that_runs_only_while_the_other_sleeps_is_waited_for() {
        let heap = heap();
        let inside = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                heap.with(|_| {
                    inside.wait();
                    while heap.slept.load(SeqCst) == 0 {
                        thread::yield_now();
                    }
                });
            });
            inside.wait();
            assert!(!SPARE.is_piece(heap.alloc(LAYOUT)));
        });
    }

    #[test]
    fn a_child_of_who_has_interrupted_himself_goes_on() {
        let heap = heap();
        heap.with(|_| {
            heap.keep();
            heap.let_go();
            heap.leave_if_lost();
            assert!(SPARE.is_piece(heap.alloc(LAYOUT)));
        });
        assert!(!SPARE.is_piece(heap.alloc(LAYOUT)));
    }
}
