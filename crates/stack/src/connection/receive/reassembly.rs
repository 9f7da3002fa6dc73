//! Out-of-order data: which octets have arrived, and in which order they are reported by SACK.

use uncork_wire::SeqNumber;
use uncork_wire::tcp::SackBlocks;

/// Most ranges that are kept. Random loss of one percent in a window of 40,000 segments makes 400; a peer that
/// makes more than this does so on purpose, and the excess is dropped as if it had been lost.
const MOST_RANGES: usize = 512;

/// Ranges of octets beyond RCV.NXT, sorted and disjoint.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    ranges: Vec<(SeqNumber, SeqNumber)>,
    /// Starts of the ranges that changed last, latest first (RFC 2018 §4).
    recent: [Option<SeqNumber>; SackBlocks::MOST],
}

impl Reassembly {
    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
        self.recent = Default::default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the sequence number after the last octet.
    pub(crate) fn end(&self) -> Option<SeqNumber> {
        self.ranges.last().map(|range| range.1)
    }

    /// Returns whether all of `left..right` was received before.
    pub(crate) fn contains(&self, left: SeqNumber, right: SeqNumber) -> bool {
        self.ranges.iter().any(|range| !left.before(range.0) && !right.after(range.1))
    }

    /// Adds a range; returns whether it is kept.
    pub(crate) fn insert(&mut self, mut left: SeqNumber, mut right: SeqNumber) -> bool {
        let from = self.ranges.partition_point(|range| range.1.before(left));
        let to = self.ranges.partition_point(|range| !range.0.after(right));
        if from == to && self.ranges.len() >= MOST_RANGES {
            return false;
        }
        for range in self.ranges.drain(from..to) {
            left = if range.0.before(left) { range.0 } else { left };
            right = right.max(range.1);
            for recent in &mut self.recent {
                *recent = recent.filter(|start| *start != range.0);
            }
        }
        self.ranges.insert(from, (left, right));
        self.report(left);
        true
    }

    fn report(&mut self, start: SeqNumber) {
        let mut next = Some(start);
        for recent in &mut self.recent {
            next = std::mem::replace(recent, next);
            if next.is_none() {
                break;
            }
        }
    }

    /// Advances RCV.NXT to `next`, and beyond the ranges that it reaches. Returns the number up
    /// to which all octets have been received.
    pub(crate) fn advance(&mut self, mut next: SeqNumber) -> SeqNumber {
        let count = self.ranges.iter().take_while(|range| !range.0.after(next)).count();
        for range in self.ranges.drain(..count) {
            next = next.max(range.1);
            for recent in &mut self.recent {
                *recent = recent.filter(|start| *start != range.0);
            }
        }
        next
    }

    /// Adds the blocks to report, most recently changed first.
    pub(crate) fn sack_blocks(&self, blocks: &mut SackBlocks, most: usize) {
        for start in self.recent.iter().flatten() {
            if blocks.as_slice().len() >= most {
                break;
            }
            if let Some(range) = self.ranges.iter().find(|range| range.0 == *start) {
                blocks.push(range.0, range.1);
            }
        }
    }

    /// Returns all octets of the ranges.
    #[cfg(test)]
    fn octets(&self) -> Vec<u32> {
        self.ranges.iter().flat_map(|range| range.0.0..range.1.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use uncork_wire::SeqNumber;
    use uncork_wire::tcp::SackBlocks;

    use super::Reassembly;

    fn blocks(reassembly: &Reassembly) -> Vec<(u32, u32)> {
        let mut blocks = SackBlocks::default();
        reassembly.sack_blocks(&mut blocks, 4);
        blocks.as_slice().iter().map(|block| (block.0.0, block.1.0)).collect()
    }

    fn insert(reassembly: &mut Reassembly, left: u32, right: u32) {
        assert!(reassembly.insert(SeqNumber(left), SeqNumber(right)));
    }

    #[test]
    fn the_block_that_changed_last_is_reported_first() {
        // RFC 2018 §4: the most recent first, then the others, most recently reported first.
        let mut reassembly = Reassembly::default();
        insert(&mut reassembly, 10, 20);
        insert(&mut reassembly, 50, 60);
        insert(&mut reassembly, 30, 40);
        assert_eq!(blocks(&reassembly), [(30, 40), (50, 60), (10, 20)]);
        insert(&mut reassembly, 20, 30);
        assert_eq!(blocks(&reassembly), [(10, 40), (50, 60)]);
        assert_eq!(reassembly.advance(SeqNumber(15)), SeqNumber(40));
        assert_eq!(blocks(&reassembly), [(50, 60)]);
    }

    #[test]
    fn more_ranges_than_anybody_needs_are_not_kept() {
        let mut reassembly = Reassembly::default();
        for n in 1..=512 {
            insert(&mut reassembly, n * 10, n * 10 + 1);
        }
        assert!(!reassembly.insert(SeqNumber(9000), SeqNumber(9001)));
        insert(&mut reassembly, 11, 20);
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_octets(ranges in proptest::collection::vec((1u32..300, 1u32..40), 1..40), next in 0u32..350) {
            let mut reassembly = Reassembly::default();
            let mut model = BTreeSet::new();
            for (left, bytes) in ranges {
                let there = (left..left + bytes).all(|octet| model.contains(&octet));
                prop_assert_eq!(reassembly.contains(SeqNumber(left), SeqNumber(left + bytes)), there);
                insert(&mut reassembly, left, left + bytes);
                model.extend(left..left + bytes);
                let octets = reassembly.octets();
                prop_assert!(octets.iter().eq(model.iter()));
                let first = blocks(&reassembly)[0];
                prop_assert!(first.0 <= left && left + bytes <= first.1);
            }
            let reached = reassembly.advance(SeqNumber(next)).0;
            let expected = (next..).find(|octet| !model.contains(octet)).unwrap();
            prop_assert_eq!(reached, expected);
        }
    }
}
