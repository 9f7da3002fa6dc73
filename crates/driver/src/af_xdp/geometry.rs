//! The layout of the area that is shared with the kernel: pure arithmetic.
//!
//! First the chunks for received frames, each on its own; then the slots for frames to be sent, each of as many
//! adjacent chunks as the longest frame takes, so that a frame is filled in as one piece.

use serde::{Deserialize, Serialize};

/// Headroom that the kernel leaves before a received frame, in octets (XDP_PACKET_HEADROOM).
const HEADROOM_BYTES: u32 = 256;
/// The kernel takes chunks of 2,048 octets, or of a page, and every page is at least that long.
const SHORT_CHUNK_BYTES: u32 = 2048;
const LONG_CHUNK_BYTES: u32 = 4096;
/// The metadata before a frame whose checksum is left to the kernel: `struct xsk_tx_metadata`, padded so that
/// frames begin at a multiple of 32.
pub(super) const METADATA_BYTES: u32 = 32;
/// Limit for frames of either kind, far more than is of use.
const MOST_FRAMES: u32 = 1 << 20;
const MOST_CHUNKS: u32 = 32;

/// The layout of the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Geometry {
    pub(super) chunk_bytes: u32,
    /// Chunks for received frames.
    pub(super) receive_chunks: u32,
    /// Slots for frames to be sent.
    pub(super) slots: u32,
    /// Chunks of each slot.
    pub(super) slot_chunks: u32,
    /// Octets before the frame in each slot.
    pub(super) metadata_bytes: u32,
}

impl Geometry {
    /// Lays out this many frames either way (rounded up to a power of two) of at most `frame_bytes` octets;
    /// `None` if that is too much.
    pub(super) fn new(receive: usize, transmit: usize, frame_bytes: u32) -> Option<Self> {
        let count = |frames: usize| {
            let frames = u32::try_from(frames.max(1)).ok()?.checked_next_power_of_two()?;
            (frames <= MOST_FRAMES).then_some(frames)
        };
        let (receive, slots) = (count(receive)?, count(transmit)?);
        if frame_bytes <= SHORT_CHUNK_BYTES - HEADROOM_BYTES {
            return Some(Self {
                chunk_bytes: SHORT_CHUNK_BYTES,
                receive_chunks: receive,
                slots,
                slot_chunks: 1,
                metadata_bytes: METADATA_BYTES,
            });
        }
        if frame_bytes <= LONG_CHUNK_BYTES - HEADROOM_BYTES {
            return Some(Self {
                chunk_bytes: LONG_CHUNK_BYTES,
                receive_chunks: receive,
                slots,
                slot_chunks: 1,
                metadata_bytes: METADATA_BYTES,
            });
        }
        // In an area with metadata the kernel demands room for it at the beginning of every chunk
        // (xp_aligned_validate_desc), and a frame would no longer be contiguous.
        let slot_chunks = frame_bytes.div_ceil(LONG_CHUNK_BYTES);
        let pieces = frame_bytes.div_ceil(LONG_CHUNK_BYTES - HEADROOM_BYTES).next_power_of_two();
        let receive_chunks = receive.checked_mul(pieces).filter(|chunks| *chunks <= MOST_FRAMES)?;
        Some(Self {
            chunk_bytes: LONG_CHUNK_BYTES,
            receive_chunks,
            slots,
            slot_chunks,
            metadata_bytes: 0,
        })
    }

    /// Whether [`Geometry::new`] could have made this one, which another process has sent: nothing overflows,
    /// nothing reaches out of the area.
    pub(super) fn is_sound(&self) -> bool {
        let Self { chunk_bytes, receive_chunks, slots, slot_chunks, metadata_bytes } = *self;
        let is_count = |count: u32| count.is_power_of_two() && count <= MOST_FRAMES;
        [SHORT_CHUNK_BYTES, LONG_CHUNK_BYTES].contains(&chunk_bytes)
            && is_count(receive_chunks)
            && is_count(slots)
            && (1..=MOST_CHUNKS).contains(&slot_chunks)
            && (metadata_bytes == 0 || metadata_bytes == METADATA_BYTES && slot_chunks == 1)
    }

    /// Length of all chunks, in octets.
    pub(super) fn bytes(&self) -> usize {
        let chunks = u64::from(self.receive_chunks) + u64::from(self.slots * self.slot_chunks);
        usize::try_from(chunks * u64::from(self.chunk_bytes)).unwrap_or(usize::MAX)
    }

    /// Whether frames may consist of several pieces (XDP_USE_SG).
    pub(super) fn has_pieces(&self) -> bool {
        self.slot_chunks > 1
    }

    /// Entries of the transmit ring and of the completion ring.
    pub(super) fn transmit_entries(&self) -> u32 {
        (self.slots * self.slot_chunks).next_power_of_two()
    }

    /// Offset of a receive chunk.
    pub(super) fn receive_chunk(&self, chunk: u32) -> u64 {
        u64::from(chunk) * u64::from(self.chunk_bytes)
    }

    /// Offset of a slot from the beginning of the area, in octets.
    pub(super) fn slot(&self, slot: u32) -> u64 {
        self.receive_chunk(self.receive_chunks) + u64::from(slot) * self.slot_bytes()
    }

    /// Length of a slot with its metadata.
    pub(super) fn slot_bytes(&self) -> u64 {
        u64::from(self.slot_chunks) * u64::from(self.chunk_bytes)
    }

    /// Returns the slot that contains this offset, if any.
    pub(super) fn slot_of(&self, at: u64) -> Option<u32> {
        let slot = at.checked_sub(self.slot(0))? / self.slot_bytes();
        u32::try_from(slot).ok().filter(|slot| *slot < self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_slot_is_its_own_and_no_chunk_s_for_what_comes() {
        for (receive, transmit, frame) in
            [(1, 1, 60), (2048, 512, 1518), (300, 7, 3000), (64, 64, 9018), (16, 4, 65_553)]
        {
            let area = Geometry::new(receive, transmit, frame).unwrap();
            assert!(area.is_sound(), "{area:?}");
            assert!(area.receive_chunks as usize >= receive && area.slots as usize >= transmit);
            assert!(area.slot_bytes() >= u64::from(frame + area.metadata_bytes), "{area:?}");
            for slot in [0, area.slots / 2, area.slots - 1] {
                let begin = area.slot(slot);
                let end = begin + area.slot_bytes();
                assert_eq!(area.slot_of(begin), Some(slot));
                assert_eq!(area.slot_of(end - 1), Some(slot));
                assert_eq!(begin % u64::from(area.chunk_bytes), 0);
                assert!(end <= area.bytes() as u64);
            }
            assert_eq!(area.slot_of(area.receive_chunk(area.receive_chunks - 1)), None);
            assert_eq!(area.slot_of(area.bytes() as u64), None);
            assert!(area.transmit_entries() >= area.slots * area.slot_chunks);
        }
        assert_eq!(Geometry::new(usize::MAX, 1, 60), None);
        assert_eq!(Geometry::new(1 << 19, 1, 9018), None);
    }

    #[test]
    fn what_is_no_area_is_told_from_one() {
        let area = Geometry::new(64, 64, 1518).unwrap();
        for unsound in [
            Geometry { chunk_bytes: 1024, ..area },
            Geometry { receive_chunks: 0, ..area },
            Geometry { receive_chunks: 65, ..area },
            Geometry { slots: 1 << 31, ..area },
            Geometry { slot_chunks: 0, ..area },
            Geometry { slot_chunks: 1 << 30, ..area },
            Geometry { slot_chunks: 2, ..area },
            Geometry { metadata_bytes: 5000, ..area },
        ] {
            assert!(!unsound.is_sound(), "{unsound:?}");
        }
    }
}
