//! Memory for what is known of each descriptor.
//!
//! It is one byte each in a static array, which the fast path of every shim reads; records are in
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
/// Number of records in a block.
pub(crate) const BLOCK: usize = 256;

/// The [`uncork_posix::kernel::state`] of each descriptor.
pub(crate) static STATES: [AtomicU8; DESCRIPTORS] = [const { AtomicU8::new(0) }; DESCRIPTORS];
/// Number of sockets with something held.
pub(crate) static HELD_COUNT: AtomicU32 = AtomicU32::new(0);
/// The highest descriptor that was ever tracked or classified.
pub(crate) static HIGHEST: AtomicI32 = AtomicI32::new(-1);
/// The blocks of records.
pub(crate) static BLOCKS: [AtomicPtr<Socket>; DESCRIPTORS / BLOCK] =
    [const { AtomicPtr::new(ptr::null_mut()) }; DESCRIPTORS / BLOCK];

static HELD_BITS: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
static HELD_SUMMARY: [AtomicU64; DESCRIPTORS / 4096] =
    [const { AtomicU64::new(0) }; DESCRIPTORS / 4096];
/// The set of descriptors that may have something held; see [`Held`].
pub(crate) static HELD: Held =
    Held { count: &HELD_COUNT, bits: &HELD_BITS, summary: &HELD_SUMMARY };

/// Returns the state byte of `fd`.
#[inline]
pub(crate) fn state(fd: i32) -> Option<&'static AtomicU8> {
    STATES.get(usize::try_from(fd).ok()?)
}

/// Returns the record of `fd`, if its block is mapped.
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

/// Returns the record of `fd`, mapping its block first if need be.
pub(crate) fn make_socket(fd: i32) -> Option<&'static Socket> {
    let at = usize::try_from(fd).ok()?;
    let slot = BLOCKS.get(at / BLOCK)?;
    if slot.load(Acquire).is_null() {
        let block = map_block()?;
        if slot.compare_exchange(ptr::null_mut(), block, SeqCst, Relaxed).is_err() {
            // Another thread was faster.
            // SAFETY: no other thread has seen this block.
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
        // SAFETY: the mapping has room for BLOCK records, is page-aligned, and still ours alone.
        unsafe { block.add(at).write(Socket::default()) };
    }
    Some(block)
}
