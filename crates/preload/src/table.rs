//! Memory for what is known of each descriptor.
//!
//! A byte for each in a static array, which the fast path of every shim looks at; records in
//! blocks that are mapped when a socket first needs one and stay for the life of the process.
//! Nothing here locks or comes from the program's allocator.

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

use uncork_posix::Socket;
use uncork_posix::kernel::Held;

use crate::raw::raw;

/// Descriptors that can be tracked: the kernel's default fs.nr_open. Higher ones pass through.
pub(crate) const DESCRIPTORS: usize = 1 << 20;
/// Records in a block.
pub(crate) const BLOCK: usize = 256;

/// [`uncork_posix::kernel::state`] of each descriptor.
pub(crate) static STATES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];
/// Sockets with something held.
pub(crate) static HELD_COUNT: AtomicU32 = AtomicU32::new(0);
/// Highest descriptor ever tracked.
pub(crate) static HIGHEST: AtomicI32 = AtomicI32::new(-1);
/// Blocks of records.
pub(crate) static BLOCKS: [AtomicPtr<Socket>; DESCRIPTORS / BLOCK] =
    [const { AtomicPtr::new(ptr::null_mut()) }; DESCRIPTORS / BLOCK];

static HELD_BITS: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
static HELD_SUMMARY: [AtomicU64; DESCRIPTORS / 4096] =
    [const { AtomicU64::new(0) }; DESCRIPTORS / 4096];
/// See [`Held`].
pub(crate) static HELD: Held =
    Held { count: &HELD_COUNT, bits: &HELD_BITS, summary: &HELD_SUMMARY };

/// The state byte of `fd`.
#[inline]
pub(crate) fn state(fd: i32) -> Option<&'static AtomicU8> {
    STATES.get(usize::try_from(fd).ok()?)
}

/// The record of `fd`, if its block is there.
#[inline]
pub(crate) fn socket(fd: i32) -> Option<&'static Socket> {
    let fd = usize::try_from(fd).ok()?;
    let block = BLOCKS.get(fd / BLOCK)?.load(Acquire);
    if block.is_null() {
        return None;
    }
    // SAFETY: a block that is published holds BLOCK initialised records and is never unmapped.
    Some(unsafe { &*block.add(fd % BLOCK) })
}

/// The record of `fd`, mapping its block first if need be.
pub(crate) fn make_socket(fd: i32) -> Option<&'static Socket> {
    let at = usize::try_from(fd).ok()?;
    let slot = BLOCKS.get(at / BLOCK)?;
    if slot.load(Acquire).is_null() {
        let block = map_block()?;
        if slot.compare_exchange(ptr::null_mut(), block, SeqCst, Relaxed).is_err() {
            // Another thread was faster.
            // SAFETY: nobody else has seen this block.
            let _ = unsafe { raw!(SYS_munmap, block, BLOCK * size_of::<Socket>()) };
        }
    }
    socket(fd)
}

fn map_block() -> Option<*mut Socket> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let bytes = BLOCK * size_of::<Socket>();
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let block = unsafe { raw!(SYS_mmap, 0, bytes, protection, flags, -1i32, 0) }.ok()?;
    let block = block as *mut Socket;
    for at in 0..BLOCK {
        // SAFETY: the mapping has room for BLOCK records, is page-aligned, and ours alone yet.
        unsafe { block.add(at).write(Socket::default()) };
    }
    Some(block)
}
