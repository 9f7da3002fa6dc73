//! The layout of a ring's slots: pure arithmetic.

use serde::{Deserialize, Serialize};

use super::options::RingRequest;

/// Alignment that the kernel demands of a slot's length and offset (TPACKET_ALIGNMENT).
const ALIGNMENT: usize = 16;
/// Octets of a cache line.
const CACHE_LINE: usize = 64;
/// Bytes of a block. Slots are laid out in blocks, each physically contiguous where the kernel finds the memory. Larger blocks
/// are hard to find; smaller ones waste much space with long slots.
const BLOCK_BYTES: usize = 1 << 20;
const SMALL_BLOCK_BYTES: usize = 1 << 16;

/// A ring of slots of one length, in blocks. A slot never reaches from one block into the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Geometry {
    block_bytes: usize,
    blocks: usize,
    slot_bytes: usize,
    per_block: usize,
}

impl Geometry {
    /// Lays out at least `slots` slots of at least `bytes` octets each; `None` if a slot would be too long
    /// for any block.
    pub(super) fn new(slots: usize, bytes: usize) -> Option<Self> {
        // An odd number of cache lines: the headers of slots that are a power of two apart would all
        // compete for the same few sets of the cache.
        let lines = bytes.div_ceil(CACHE_LINE) | 1;
        let slot_bytes = lines * CACHE_LINE;
        debug_assert_eq!(slot_bytes % ALIGNMENT, 0);
        let block_bytes =
            if slot_bytes * 16 <= SMALL_BLOCK_BYTES { SMALL_BLOCK_BYTES } else { BLOCK_BYTES };
        let per_block = block_bytes / slot_bytes;
        let blocks = slots.max(1).div_ceil(per_block.max(1));
        (per_block > 0).then_some(Self { block_bytes, blocks, slot_bytes, per_block })
    }

    /// Whether [`Geometry::new`] could have made this one, which another process has sent: no slot crosses
    /// its block, and nothing overflows.
    pub(super) fn is_sound(&self) -> bool {
        let Self { block_bytes, blocks, slot_bytes, per_block } = *self;
        [SMALL_BLOCK_BYTES, BLOCK_BYTES].contains(&block_bytes)
            && slot_bytes >= CACHE_LINE
            && slot_bytes.is_multiple_of(CACHE_LINE)
            && per_block >= 1
            && per_block == block_bytes / slot_bytes
            && blocks >= 1
            && blocks <= isize::MAX.unsigned_abs() / 4 / BLOCK_BYTES
    }

    pub(super) fn slots(&self) -> usize {
        self.blocks * self.per_block
    }

    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Length of all blocks, in octets.
    pub(super) fn bytes(&self) -> usize {
        self.blocks * self.block_bytes
    }

    /// Offset of a slot from the beginning of the ring, in octets.
    pub(super) fn offset(&self, slot: usize) -> usize {
        slot / self.per_block * self.block_bytes + slot % self.per_block * self.slot_bytes
    }

    /// The slot after this one.
    pub(super) fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots() { 0 } else { slot + 1 }
    }

    /// Two slots ahead of this one: by a quarter to three eighths of the ring, and by 64 to 96 or as far. Both stay the same
    /// for some of the slots after it, so that repeated looks touch the same cache lines.
    pub(super) fn ahead(&self, slot: usize) -> (usize, usize) {
        let far = (self.slots() / 8).max(1);
        let at = |step: usize| (slot / step + 3) * step % self.slots();
        (at(far), at(far.min(32)))
    }

    /// The request for the kernel; `None` if a number is too large for it.
    pub(super) fn request(&self) -> Option<RingRequest> {
        Some(RingRequest {
            block_bytes: self.block_bytes.try_into().ok()?,
            blocks: self.blocks.try_into().ok()?,
            slot_bytes: self.slot_bytes.try_into().ok()?,
            slots: self.slots().try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_slot_leaves_its_block_or_touches_another() {
        for (slots, bytes) in [(1, 100), (256, 1_600), (256, 65_650), (300, 9_100), (7, 16)] {
            let ring = Geometry::new(slots, bytes).unwrap();
            assert!(ring.slots() >= slots && ring.slot_bytes() >= bytes);
            let mut end = 0;
            for slot in 0..ring.slots() {
                let begin = ring.offset(slot);
                assert!(begin >= end && begin.is_multiple_of(ALIGNMENT));
                end = begin + ring.slot_bytes();
                assert_eq!(begin / ring.block_bytes, (end - 1) / ring.block_bytes);
            }
            assert!(end <= ring.bytes());
            assert_eq!(ring.next(ring.slots() - 1), 0);
        }
    }

    #[test]
    fn what_is_ahead_is_a_quarter_of_the_ring_away() {
        let ring = Geometry::new(512, 65_650).unwrap();
        let slots = ring.slots();
        for slot in 0..slots {
            let (far, near) = ring.ahead(slot);
            let [far, near] = [far, near].map(|ahead| (ahead + slots - slot) % slots);
            assert!((slots / 8..=slots / 2).contains(&far), "{far} from {slot} of {slots}");
            assert!((32..=128).contains(&near), "{near} from {slot} of {slots}");
        }
        let different: std::collections::BTreeSet<_> =
            (0..slots).map(|at| ring.ahead(at).0).collect();
        assert!(different.len() <= 9, "{different:?}");
    }

    #[test]
    fn what_is_no_ring_is_told_from_one() {
        let ring = Geometry::new(256, 65_650).unwrap();
        assert!(ring.is_sound() && Geometry::new(1, 100).unwrap().is_sound());
        for unsound in [
            Geometry { per_block: ring.per_block + 1, ..ring },
            Geometry { slot_bytes: ring.slot_bytes + 8, ..ring },
            Geometry { slot_bytes: 0, ..ring },
            Geometry { block_bytes: ring.block_bytes * 2, ..ring },
            Geometry { blocks: 0, ..ring },
            Geometry { blocks: usize::MAX, ..ring },
            Geometry { per_block: 0, slot_bytes: BLOCK_BYTES + CACHE_LINE, ..ring },
        ] {
            assert!(!unsound.is_sound(), "{unsound:?}");
        }
    }

    #[test]
    fn a_slot_that_is_longer_than_a_block_is_refused() {
        assert_eq!(Geometry::new(1, BLOCK_BYTES + 1), None);
    }
}
