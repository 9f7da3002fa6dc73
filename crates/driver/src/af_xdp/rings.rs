//! The four rings that are shared with the kernel: received frames, frames to be sent, chunks to receive into,
//! and chunks that were sent.
//!
//! One of the files of this crate with `unsafe`. What makes it sound, and must stay so:
//!
//! - Each ring has one producer and one consumer, and a word for each that holds its position; both
//!   only grow. An entry is written before the producer's word is stored with Release, and read after that was loaded
//!   with Acquire; likewise in reverse for the consumer's (net/xdp/xsk_queue.h, the table at its head).
//! - Here the words are only ever accessed as atomics, and entries only by the side that owns them by these words.
//! - All offsets are checked against the mapping once, when it is made; an index is masked to the ring's length.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::area::{Piece, Slot};
use super::geometry::Geometry;
use super::options::{self, Places};

/// `struct xdp_desc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Descriptor {
    at: u64,
    bytes: u32,
    options: u32,
}

/// An entry of a ring: plain data of the kernel's layout, valid for any bits.
trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Descriptor {}

/// The memory of one ring.
#[derive(Debug)]
struct Ring<T> {
    begin: NonNull<u8>,
    bytes: usize,
    places: Places,
    /// Number of entries, a power of two, less one.
    mask: u32,
    entry: PhantomData<T>,
}

// SAFETY: the memory is the process's, not a thread's, and may be unmapped by any thread; what is said above
// of turns holds whichever thread has the ring.
unsafe impl<T: Entry> Send for Ring<T> {}
// SAFETY: shared, a ring only loads words as atomics.
unsafe impl<T: Entry> Sync for Ring<T> {}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap gave, and no reference is left.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}

impl<T: Entry> Ring<T> {
    fn map(
        socket: BorrowedFd<'_>,
        offset: libc::off_t,
        places: Places,
        entries: u32,
    ) -> io::Result<Self> {
        let unsound = || io::Error::new(ErrorKind::InvalidData, "a ring of an unknown form");
        let length = u64::from(entries) * size_of::<T>() as u64;
        let end = places.entries.checked_add(length).ok_or_else(unsound)?;
        let words = [places.producer, places.consumer, places.flags];
        let is_sound = entries.is_power_of_two()
            && places.entries.is_multiple_of(size_of::<T>() as u64)
            && words.iter().all(|word| word.is_multiple_of(4) && word + 4 <= places.entries);
        let bytes = usize::try_from(end).ok().filter(|_| is_sound).ok_or_else(unsound)?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing one.
        let begin = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                offset,
            )
        };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self { begin, bytes, places, mask: entries - 1, entry: PhantomData })
    }

    /// Returns a word of the ring's head.
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: within the mapping and aligned, as `map` has checked; the word lives as long as that, and no
        // other code here refers to it.
        unsafe { AtomicU32::from_ptr(self.begin.add(at as usize).as_ptr().cast()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.places.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.places.consumer)
    }

    /// Pointer to the entry of this index, masked to the ring's length.
    fn entry(&self, index: u32) -> NonNull<T> {
        let at = (index & self.mask) as usize;
        // SAFETY: within the mapping and aligned, as `map` has checked.
        unsafe { self.begin.add(self.places.entries as usize).cast::<T>().add(at) }
    }
}

/// A ring that the kernel produces into.
#[derive(Debug)]
struct Filled<T> {
    ring: Ring<T>,
    /// Our position, and the kernel's when last loaded.
    next: u32,
    seen: u32,
}

impl<T: Entry> Filled<T> {
    fn new(ring: Ring<T>) -> Self {
        let next = ring.consumer().load(Ordering::Relaxed);
        Self { ring, next, seen: next }
    }

    /// Whether there is an entry to be taken.
    fn has_any(&mut self) -> bool {
        if self.next == self.seen {
            self.seen = self.ring.producer().load(Ordering::Acquire);
        }
        self.next != self.seen
    }

    /// Whether the kernel has filled a quarter of the entries.
    fn is_filling(&self) -> bool {
        let filled = self.ring.producer().load(Ordering::Relaxed).wrapping_sub(self.next);
        filled > self.ring.mask / 4
    }

    fn take(&mut self) -> Option<T> {
        if !self.has_any() {
            return None;
        }
        // SAFETY: the kernel has filled this entry, and leaves it alone until `release`.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the consumed entries back to the kernel.
    fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

/// A ring that the kernel consumes.
#[derive(Debug)]
struct Emptied<T> {
    ring: Ring<T>,
    /// Our position, and the kernel's when last loaded.
    next: u32,
    seen: u32,
}

impl<T: Entry> Emptied<T> {
    fn new(ring: Ring<T>) -> Self {
        let next = ring.producer().load(Ordering::Relaxed);
        let seen = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, seen }
    }

    /// Whether there is room for this many entries.
    fn has_room(&mut self, entries: u32) -> bool {
        let free =
            |ring: &Self| (ring.ring.mask + 1).saturating_sub(ring.next.wrapping_sub(ring.seen));
        if free(self) < entries {
            self.seen = self.ring.consumer().load(Ordering::Acquire);
        }
        free(self) >= entries
    }

    /// Puts an entry into the ring, which must have room.
    fn put(&mut self, entry: T) {
        // SAFETY: the kernel has consumed this entry and does not read it before `submit`.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// Makes the entries that were put visible to the kernel.
    fn submit(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Whether the kernel looks at the ring only when it is called. "No" holds only for a kernel that sets the flag
    /// before it looks at the ring; another one may set it a moment later.
    fn needs_call(&self) -> bool {
        // The ring was filled before the flag is read: a kernel that sets the flag and then looks at the ring sees what
        // was filled in, or the flag is seen here.
        fence(Ordering::SeqCst);
        self.ring.word(self.ring.places.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP
            != 0
    }

    /// Asks to be called, as the kernel does.
    #[cfg(test)]
    fn ask_for_call(&self) {
        let flags = self.ring.word(self.ring.places.flags);
        flags.fetch_or(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    }

    /// Entries that the kernel has not taken.
    fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }
}

/// The receive ring.
#[derive(Debug)]
pub(super) struct Receive(Filled<Descriptor>);

impl Receive {
    /// Whether a frame has come.
    pub(super) fn has_any(&mut self) -> bool {
        self.0.has_any()
    }

    /// Whether a quarter of the ring waits to be taken.
    pub(super) fn is_filling(&self) -> bool {
        self.0.is_filling()
    }

    /// Takes the next frame, or piece of one.
    pub(super) fn take(&mut self) -> Option<Piece> {
        let Descriptor { at, bytes, options } = self.0.take()?;
        Some(Piece { at, bytes, continues: options & libc::XDP_PKT_CONTD != 0 })
    }

    /// Gives the consumed entries back to the kernel.
    pub(super) fn release(&mut self) {
        self.0.release();
    }
}

/// The fill ring: chunks to receive into.
#[derive(Debug)]
pub(super) struct Fill {
    ring: Emptied<u64>,
    /// Whether chunks were given back that the driver was not called for since.
    untold: bool,
}

impl Fill {
    /// Gives all chunks to the kernel. Done once in the life of a socket.
    pub(super) fn fill(socket: BorrowedFd<'_>, area: &Geometry) -> io::Result<()> {
        let mut ring = Self::map(socket, options::places(socket)?.fill, area)?;
        for chunk in 0..area.receive_chunks {
            if ring.ring.has_room(1) {
                ring.ring.put(area.receive_chunk(chunk));
            }
        }
        ring.ring.submit();
        Ok(())
    }

    fn map(socket: BorrowedFd<'_>, places: Places, area: &Geometry) -> io::Result<Self> {
        let offset = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let ring = Emptied::new(Ring::map(socket, offset, places, area.receive_chunks)?);
        Ok(Self { ring, untold: true })
    }

    /// Returns a chunk to the kernel to be filled again, once `submit` is called.
    pub(super) fn give_back(&mut self, piece: Piece) {
        // There are no more chunks than entries.
        if self.ring.has_room(1) {
            self.ring.put(piece.at);
        }
    }

    pub(super) fn submit(&mut self) {
        self.ring.submit();
        self.untold = true;
    }

    /// Whether a zero-copy driver has to be called to see what was given back. Ask again while nothing is received: a
    /// driver may find too few chunks, hand on its frames, and only then say that it will not look again by itself
    /// (ice_clean_rx_irq_zc, i40e_clean_rx_irq_zc; mlx5e_napi_xsk_post says so before it looks, where it matters).
    pub(super) fn needs_call(&self) -> bool {
        self.untold && self.ring.needs_call()
    }

    /// Notes that the driver was called. What it wants beyond that is not there: a ring of the device that has more
    /// entries than there are chunks is never full, and its driver always asks to be called.
    pub(super) fn told(&mut self) {
        self.untold = false;
    }

    /// Asks to be called, as a driver does that has found too few chunks.
    #[cfg(test)]
    pub(super) fn ask_for_call(&self) {
        self.ring.ask_for_call();
    }
}

/// The transmit ring.
#[derive(Debug)]
pub(super) struct Transmit {
    ring: Emptied<Descriptor>,
    chunk_bytes: u32,
}

impl Transmit {
    /// Whether there is room for a frame of this many chunks.
    pub(super) fn has_room(&mut self, chunks: u32) -> bool {
        self.ring.has_room(chunks)
    }

    /// Sends the content of a slot after its metadata, which the kernel reads if `read` is set, once `submit` is called.
    pub(super) fn send(&mut self, slot: Slot, metadata_bytes: u32, bytes: u32, read: bool) {
        // From here on the slot is the kernel's: no reference to it is left.
        let Slot { at, .. } = slot;
        let mut at = at + u64::from(metadata_bytes);
        let mut left = bytes;
        let mut room = self.chunk_bytes - metadata_bytes;
        let mut flags = if read { libc::XDP_TX_METADATA } else { 0 };
        loop {
            let bytes = left.min(room);
            left -= bytes;
            let more = if left > 0 { libc::XDP_PKT_CONTD } else { 0 };
            self.ring.put(Descriptor { at, bytes, options: flags | more });
            if left == 0 {
                break;
            }
            at += u64::from(bytes);
            room = self.chunk_bytes;
            flags = 0;
        }
    }

    pub(super) fn submit(&mut self) {
        self.ring.submit();
    }

    /// Whether the kernel looks at the ring only when it is called.
    pub(super) fn needs_call(&self) -> bool {
        self.ring.needs_call()
    }

    /// Chunks that the kernel has not taken.
    pub(super) fn waiting(&self) -> u32 {
        self.ring.waiting()
    }
}

/// The completion ring.
#[derive(Debug)]
pub(super) struct Completion(Filled<u64>);

impl Completion {
    /// Returns the offset of the next chunk that has left.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.0.take()
    }

    /// Gives the consumed entries back to the kernel.
    pub(super) fn release(&mut self) {
        self.0.release();
    }
}

/// All four rings of a socket.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) receive: Receive,
    pub(super) transmit: Transmit,
    pub(super) fill: Fill,
    pub(super) completion: Completion,
}

impl Rings {
    /// Maps the rings of a socket that has all of them.
    pub(super) fn map(socket: BorrowedFd<'_>, area: &Geometry) -> io::Result<Self> {
        let places = options::places(socket)?;
        let receive =
            Ring::map(socket, libc::XDP_PGOFF_RX_RING, places.receive, area.receive_chunks)?;
        let entries = area.transmit_entries();
        let transmit = Ring::map(socket, libc::XDP_PGOFF_TX_RING, places.transmit, entries)?;
        let offset = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let completion = Ring::map(socket, offset, places.completion, entries)?;
        Ok(Self {
            receive: Receive(Filled::new(receive)),
            transmit: Transmit { ring: Emptied::new(transmit), chunk_bytes: area.chunk_bytes },
            fill: Fill::map(socket, places.fill, area)?,
            completion: Completion(Filled::new(completion)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::super::area;
    use super::*;

    /// A fill ring in memory that is no socket's.
    fn fill() -> io::Result<Fill> {
        let memory = area::create(4096)?;
        let places = Places { producer: 0, consumer: 64, entries: 256, flags: 128 };
        let ring = Emptied::new(Ring::map(memory.as_fd(), 0, places, 8)?);
        Ok(Fill { ring, untold: true })
    }

    #[test]
    fn a_driver_that_asks_late_is_called_and_once_for_what_it_was_given() -> io::Result<()> {
        let mut fill = fill()?;
        let piece = || Piece { at: 0, bytes: 60, continues: false };
        fill.give_back(piece());
        fill.submit();
        assert!(!fill.needs_call());
        fill.ask_for_call();
        assert!(fill.needs_call(), "it has asked after it was given something");
        fill.told();
        assert!(!fill.needs_call(), "there is nothing that it does not know of");
        fill.give_back(piece());
        fill.submit();
        assert!(fill.needs_call());
        Ok(())
    }
}
