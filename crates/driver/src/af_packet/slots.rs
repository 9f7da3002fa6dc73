//! The memory that is shared with the kernel: a ring of slots to receive into and one to send from
//! (TPACKET_V2, Documentation/networking/packet_mmap.rst).
//!
//! One of the files of this crate with `unsafe`. What makes it sound, and must stay so:
//!
//! - A slot belongs to one side at a time, and the first word of its header says to which. The kernel
//!   writes octets of a slot only while that word says that it is the kernel's; it hands the slot over
//!   by storing the word after all else (net/packet/af_packet.c, __packet_set_status and the barriers
//!   around it). Here the word is only ever loaded with Acquire and stored with Release.
//! - Octets are lent with the lifetime of the ring's `&mut`, and given back by methods that need
//!   that `&mut`: no reference can outlive the slot's return to the kernel.
//! - A child of fork has no part of the mapping, and neither reads nor unmaps it: something of its own may be
//!   mapped there.
//! - The kernel reads a slot that is being sent long after that; nobody writes to it before its word
//!   says that it is empty again.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::geometry::Geometry;
use super::kick::Kept;
use crate::vnet;

/// Octets of `struct tpacket2_hdr`, which is aligned to 16.
pub(super) const HEADER_BYTES: usize = 32;

const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
const STATUS_COPY: u32 = 1 << 1;
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_AVAILABLE: u32 = 0;
const STATUS_SEND_REQUEST: u32 = 1;
/// Bits that say whose time stamp the header has, if any (TP_STATUS_TS_*).
const STATUS_TIME: u32 = 0b111 << 29;
/// The VLAN identifier within a VLAN tag; zero means priority only.
const VLAN_NUMBER: u16 = 0x0fff;

/// The mapping of both rings, receive before transmit. Unmapped with the last ring.
#[derive(Debug)]
struct Mapping {
    begin: NonNull<u8>,
    bytes: usize,
    /// The process that has made it.
    process: u32,
}

// SAFETY: the memory is the process's, not a thread's, and may be unmapped by any thread. What is said
// above of `&mut` holds whichever thread has it; shared, a ring only loads words as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: exactly what mmap gave, and no ring is left to refer to it.
            unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
        }
    }
}

/// The slots of one ring.
#[derive(Debug)]
struct Slots {
    mapping: Arc<Mapping>,
    /// Offset of the ring in the mapping.
    begin_bytes: usize,
    geometry: Geometry,
}

/// Maps the rings of a socket that has both.
pub(super) fn map(
    socket: BorrowedFd<'_>,
    receive: Geometry,
    transmit: Geometry,
) -> io::Result<(ReceiveSlots, TransmitSlots)> {
    let bytes = receive.bytes() + transmit.bytes();
    // SAFETY: a new mapping at an address that the kernel chooses touches no existing one.
    let begin = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            socket.as_raw_fd(),
            0,
        )
    };
    if begin == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    let mapping = Arc::new(Mapping { begin, bytes, process: std::process::id() });
    // All pages are populated, so fork(2) would copy their entries, and the child's exit tear them down: a fifth of a
    // millisecond for 25 MiB. If the advice fails, that is the cost.
    // SAFETY: exactly what mmap gave.
    unsafe { libc::madvise(begin.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
    let ring =
        |begin_bytes, geometry| Slots { mapping: Arc::clone(&mapping), begin_bytes, geometry };
    Ok((ReceiveSlots(ring(0, receive)), TransmitSlots(ring(receive.bytes(), transmit))))
}

impl Slots {
    /// Pointer to the beginning of a slot.
    fn slot(&self, slot: usize) -> NonNull<u8> {
        assert!(slot < self.geometry.slots(), "a slot that the ring does not have");
        // SAFETY: the geometry keeps every slot within its ring (see its test), and both rings are
        // within the mapping, as `map` made it as long as both.
        unsafe { self.mapping.begin.add(self.begin_bytes + self.geometry.offset(slot)) }
    }

    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: tp_status is the first word of a slot, which is aligned to 16 and lives as long as
        // the mapping; no other code here refers to it.
        unsafe { AtomicU32::from_ptr(self.slot(slot).as_ptr().cast()) }
    }

    /// Whether a slot waits to be sent by the kernel.
    fn is_asked_for(&self, slot: usize) -> bool {
        self.status(slot).load(Ordering::Acquire) & !STATUS_TIME == STATUS_SEND_REQUEST
    }

    /// Pointer to a field of the header, `at` octets from its beginning.
    ///
    /// # Safety
    ///
    /// The slot must be ours, `at` a multiple of the field's size and below the header's length.
    unsafe fn field<T: Copy>(&self, slot: usize, at: usize) -> NonNull<T> {
        // SAFETY: a slot is longer than its header, and aligned to more than any number.
        unsafe { self.slot(slot).add(at).cast() }
    }
}

/// A slot that has received a frame, as its header describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Filled<'a> {
    /// The vnet header before the frame.
    pub(super) vnet: &'a [u8; vnet::BYTES],
    /// The frame, as far as the slot holds it.
    pub(super) bytes: &'a [u8],
    /// Whether that is the whole frame.
    pub(super) whole: bool,
    /// Whether the whole frame is beside the ring: recv(2) returns it next.
    pub(super) beside: bool,
    /// Whether it was for a VLAN, whose tag the kernel has stripped.
    pub(super) of_vlan: bool,
}

/// Slots that the kernel fills.
#[derive(Debug)]
pub(super) struct ReceiveSlots(Slots);

impl ReceiveSlots {
    pub(super) fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    /// Returns the frame in a slot; `None` if the slot is still the kernel's.
    pub(super) fn filled(&mut self, slot: usize) -> Option<Filled<'_>> {
        let status = self.0.status(slot).load(Ordering::Acquire);
        if status & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours; places of struct tpacket2_hdr: tp_len, tp_snaplen, tp_mac,
        // tp_vlan_tci.
        let (wire_bytes, kept_bytes, frame_at, tag) = unsafe {
            (
                self.0.field::<u32>(slot, 4).read(),
                self.0.field::<u32>(slot, 8).read(),
                self.0.field::<u16>(slot, 12).read(),
                self.0.field::<u16>(slot, 24).read(),
            )
        };
        let beside = status & STATUS_COPY != 0;
        let at = usize::from(frame_at);
        let bytes = usize::try_from(kept_bytes).ok()?;
        // The kernel is trusted, but memory safety does not depend on it.
        if at < HEADER_BYTES + vnet::BYTES || at + bytes > self.0.geometry.slot_bytes() {
            return Some(Filled {
                vnet: &[0; vnet::BYTES],
                bytes: &[],
                whole: false,
                beside,
                of_vlan: false,
            });
        }
        // SAFETY: within the slot, as was just checked; the slot is ours until `give_back`, which
        // cannot be called while these are borrowed.
        let (vnet, bytes) = unsafe {
            let frame = self.0.slot(slot).add(at);
            (frame.sub(vnet::BYTES).cast().as_ref(), slice::from_raw_parts(frame.as_ptr(), bytes))
        };
        Some(Filled {
            vnet,
            bytes,
            whole: kept_bytes == wire_bytes,
            beside,
            of_vlan: status & STATUS_VLAN_VALID != 0 && tag & VLAN_NUMBER != 0,
        })
    }

    /// Returns a slot to the kernel to be filled again.
    pub(super) fn give_back(&mut self, slot: usize) {
        self.0.status(slot).store(STATUS_KERNEL, Ordering::Release);
    }
}

/// Slots that the kernel sends from, of which only the status word is read.
#[derive(Debug)]
pub(super) struct TransmitStatus(Slots);

impl TransmitStatus {
    /// Whether a slot waits to be sent by the kernel.
    pub(super) fn is_asked_for(&self, slot: usize) -> bool {
        self.0.is_asked_for(slot)
    }
}

/// Slots that the kernel sends from.
#[derive(Debug)]
pub(super) struct TransmitSlots(Slots);

impl TransmitSlots {
    pub(super) fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    /// Whether a slot is empty: never used, or what was in it has left.
    pub(super) fn is_empty(&self, slot: usize) -> bool {
        self.0.status(slot).load(Ordering::Acquire) & !STATUS_TIME == STATUS_AVAILABLE
    }

    /// Whether a slot waits to be sent by the kernel.
    pub(super) fn is_asked_for(&self, slot: usize) -> bool {
        self.0.is_asked_for(slot)
    }

    /// Returns a view of the status words that does not own the ring.
    pub(super) fn watched(&self) -> TransmitStatus {
        let Slots { mapping, begin_bytes, geometry } = &self.0;
        let (mapping, begin_bytes, geometry) = (Arc::clone(mapping), *begin_bytes, *geometry);
        TransmitStatus(Slots { mapping, begin_bytes, geometry })
    }

    /// Makes the kernel skip a slot that it was asked to send and has refused: it cannot parse a frame that lacks even a
    /// vnet header, and with PACKET_LOSS it goes on to the next (tpacket_snd, `tpacket_error`). Emptying the slot would
    /// not do: the kernel waits at the head of its ring until a frame is in it.
    pub(super) fn void(&mut self, slot: usize, _kept: &Kept<'_>) {
        if !self.is_asked_for(slot) {
            return;
        }
        // The kernel reads requested slots only in a call of send(2). The owner of this `&mut` is not making one,
        // nor is any other thread while `kept` lives, so for now the slot is ours.
        self.0.status(slot).store(STATUS_AVAILABLE, Ordering::Release);
        // SAFETY: the slot is ours; tp_len is at 4.
        unsafe { self.0.field::<u32>(slot, 4).write(0) };
        self.0.status(slot).store(STATUS_SEND_REQUEST, Ordering::Release);
    }

    /// Returns vnet header and room for the frame of an empty slot; `None` if it is not empty.
    pub(super) fn room(&mut self, slot: usize) -> Option<(&mut [u8; vnet::BYTES], &mut [u8])> {
        if !self.is_empty(slot) {
            return None;
        }
        let bytes = self.0.geometry.slot_bytes() - HEADER_BYTES;
        // SAFETY: from the end of the slot's header to the slot's end; the slot is ours until `send`, which
        // cannot be called while this is borrowed.
        let room = unsafe {
            slice::from_raw_parts_mut(self.0.slot(slot).add(HEADER_BYTES).as_ptr(), bytes)
        };
        room.split_first_chunk_mut()
    }

    /// Requests that an empty slot be sent, with a frame of this length after the vnet header.
    pub(super) fn send(&mut self, slot: usize, frame_bytes: u32) {
        if !self.is_empty(slot) {
            return;
        }
        let vnet_bytes = u32::try_from(vnet::BYTES).unwrap_or(0);
        // SAFETY: the slot is ours; tp_len, which counts the vnet header, is at 4.
        unsafe { self.0.field::<u32>(slot, 4).write(frame_bytes.saturating_add(vnet_bytes)) };
        self.0.status(slot).store(STATUS_SEND_REQUEST, Ordering::Release);
    }
}
