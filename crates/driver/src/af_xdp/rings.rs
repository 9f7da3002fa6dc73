//! The four rings that are shared with the kernel: what came and what is to be sent, and the memory for the one
//! and from the other.
//!
//! One of the files of this crate with `unsafe`. What makes it sound, and must stay so:
//!
//! - Each ring has one who fills it and one who empties it, and a word for each that says how far he is; both
//!   only grow. An entry is written before the first word is stored with Release, and read after it was loaded
//!   with Acquire; the same the other way round for the second (net/xdp/xsk_queue.h, the table at its head).
//! - Here the words are only ever touched as atomics, and entries only by whose turn it is by them.
//! - All places are held against the mapping once, when it is made; an index is cut to the ring's length.
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

/// What an entry of a ring is: plain data of the kernel's layout, of which any bits are a value.
trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Descriptor {}

/// The memory of one ring.
#[derive(Debug)]
struct Ring<T> {
    begin: NonNull<u8>,
    bytes: usize,
    places: Places,
    /// Entries less one: there are a power of two.
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
        // SAFETY: exactly what mmap gave, and nobody is left to refer to it.
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
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that there is.
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

    /// A word of the ring's head.
    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: within the mapping and aligned, as `map` has seen; the word lives as long as that, and nobody
        // here refers to it but by this.
        unsafe { AtomicU32::from_ptr(self.begin.add(at as usize).as_ptr().cast()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.places.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.places.consumer)
    }

    /// The entry of this index, cut to the ring's length.
    fn entry(&self, index: u32) -> NonNull<T> {
        let at = (index & self.mask) as usize;
        // SAFETY: within the mapping and aligned, as `map` has seen.
        unsafe { self.begin.add(self.places.entries as usize).cast::<T>().add(at) }
    }
}

/// A ring that the kernel fills.
#[derive(Debug)]
struct Filled<T> {
    ring: Ring<T>,
    /// How far we are, and how far the kernel was when last looked at.
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

    /// The kernel may use the entries again that were taken.
    fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

/// A ring that the kernel empties.
#[derive(Debug)]
struct Emptied<T> {
    ring: Ring<T>,
    /// How far we are, and how far the kernel was when last looked at.
    next: u32,
    seen: u32,
}

impl<T: Entry> Emptied<T> {
    fn new(ring: Ring<T>) -> Self {
        let next = ring.producer().load(Ordering::Relaxed);
        let seen = ring.consumer().load(Ordering::Acquire);
        Self { ring, next, seen }
    }

    /// Whether so many entries can be put.
    fn has_room(&mut self, entries: u32) -> bool {
        let free =
            |ring: &Self| (ring.ring.mask + 1).saturating_sub(ring.next.wrapping_sub(ring.seen));
        if free(self) < entries {
            self.seen = self.ring.consumer().load(Ordering::Acquire);
        }
        free(self) >= entries
    }

    /// There must be room.
    fn put(&mut self, entry: T) {
        // SAFETY: the kernel has emptied this entry and does not look at it before `submit`.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    /// The kernel may look at the entries that were put.
    fn submit(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Whether the kernel looks only when it is called.
    fn needs_call(&self) -> bool {
        // It sets the flag and looks at the ring once more; here the ring was filled, and it is looked at the
        // flag. One of both must see what the other has done.
        fence(Ordering::SeqCst);
        self.ring.word(self.ring.places.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP
            != 0
    }

    /// Entries that the kernel has not taken.
    fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }
}

/// What has come.
#[derive(Debug)]
pub(super) struct Receive(Filled<Descriptor>);

impl Receive {
    /// Whether anything has come.
    pub(super) fn has_any(&mut self) -> bool {
        self.0.has_any()
    }

    /// Whether a quarter of the ring waits to be taken.
    pub(super) fn is_filling(&self) -> bool {
        self.0.is_filling()
    }

    /// The next frame, or piece of one.
    pub(super) fn take(&mut self) -> Option<Piece> {
        let Descriptor { at, bytes, options } = self.0.take()?;
        Some(Piece { at, bytes, continues: options & libc::XDP_PKT_CONTD != 0 })
    }

    /// Makes room for as many as were taken.
    pub(super) fn release(&mut self) {
        self.0.release();
    }
}

/// Memory for what comes.
#[derive(Debug)]
pub(super) struct Fill(Emptied<u64>);

impl Fill {
    /// All chunks are the kernel's from now on. Once in the life of a socket.
    pub(super) fn fill(socket: BorrowedFd<'_>, area: &Geometry) -> io::Result<()> {
        let mut ring = Self::map(socket, options::places(socket)?.fill, area)?;
        for chunk in 0..area.receive_chunks {
            if ring.0.has_room(1) {
                ring.0.put(area.receive_chunk(chunk));
            }
        }
        ring.0.submit();
        Ok(())
    }

    fn map(socket: BorrowedFd<'_>, places: Places, area: &Geometry) -> io::Result<Self> {
        let offset = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        Ok(Self(Emptied::new(Ring::map(socket, offset, places, area.receive_chunks)?)))
    }

    /// Gives a chunk back to be filled again, as soon as `submit` is called.
    pub(super) fn give_back(&mut self, piece: Piece) {
        // There are no more chunks than entries.
        if self.0.has_room(1) {
            self.0.put(piece.at);
        }
    }

    pub(super) fn submit(&mut self) {
        self.0.submit();
    }

    /// Whether the kernel looks only when it is called.
    pub(super) fn needs_call(&self) -> bool {
        self.0.needs_call()
    }
}

/// What is to be sent.
#[derive(Debug)]
pub(super) struct Transmit {
    ring: Emptied<Descriptor>,
    chunk_bytes: u32,
}

impl Transmit {
    /// Whether a frame of so many chunks can be sent.
    pub(super) fn has_room(&mut self, chunks: u32) -> bool {
        self.ring.has_room(chunks)
    }

    /// Sends what is in a slot behind its metadata, which is to be read or not, as soon as `submit` is called.
    pub(super) fn send(&mut self, slot: Slot, metadata_bytes: u32, bytes: u32, read: bool) {
        // From here on the slot is the kernel's: there is nobody left who could look at it.
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

    /// Whether the kernel looks only when it is called.
    pub(super) fn needs_call(&self) -> bool {
        self.ring.needs_call()
    }

    /// Chunks that the kernel has not taken.
    pub(super) fn waiting(&self) -> u32 {
        self.ring.waiting()
    }
}

/// What has left.
#[derive(Debug)]
pub(super) struct Completion(Filled<u64>);

impl Completion {
    /// Where the next chunk is that has left.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.0.take()
    }

    /// Makes room for as many as were taken.
    pub(super) fn release(&mut self) {
        self.0.release();
    }
}

/// All four.
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
