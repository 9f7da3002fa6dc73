//! The Internet checksum (RFC 1071), computed alone or while copying.
//!
//! The sum is made of words in the machine's byte order and swapped once at the end, which
//! RFC 1071 §2(B) allows; 32-bit words go into 64-bit sums, so no carry is lost in between and
//! the compiler may vectorise.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Octets that one iteration of the inner loop takes.
const BLOCK: usize = 32;

/// Up to this many octets, setting up and finishing the vector loop takes more time than it saves.
const SHORT: usize = 256;

/// A checksum in the making: octets are added in the order of the packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    /// Sum of 32-bit words in the machine's byte order: there is room for 2³² of them, more than a packet has.
    words: u64,
    /// Whether an odd number of octets was added, so that the next one is the lower half of a word.
    odd: bool,
}

impl Sum {
    /// Continues from words that were summed in the machine's byte order.
    #[inline]
    pub(crate) const fn of_words(words: u64) -> Self {
        Self { words, odd: false }
    }

    /// Adds the octets that follow those added so far, whether or not those were an odd number.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.join(sum_words(bytes), bytes.len());
    }

    /// Copies `source` to the start of `target` and adds it on the way, so that the octets are loaded
    /// into registers once.
    ///
    /// # Panics
    ///
    /// If `target` is shorter than `source`.
    #[inline]
    pub fn copy(&mut self, target: &mut [u8], source: &[u8]) {
        self.join(copy_words(target, source), source.len());
    }

    /// Adds a 16-bit number at an even offset.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        debug_assert!(!self.odd, "numbers of a header begin at even places");
        self.words += u64::from(value.to_be());
    }

    /// Adds a 32-bit number at an even offset: a field that need not be read back from memory in
    /// which it was just written piece by piece.
    #[inline]
    pub fn add_u32(&mut self, value: u32) {
        debug_assert!(!self.odd, "numbers of a header begin at even places");
        self.words += u64::from(value.to_be());
    }

    /// Adds the pseudo-header that TCP and UDP sum over IPv4: addresses, protocol and length
    /// (RFC 9293 §3.1).
    pub fn add_pseudo_v4(
        &mut self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        proto: u8,
        bytes: u32,
    ) {
        self.add_u32(source.to_bits());
        self.add_u32(destination.to_bits());
        self.add_length(proto, bytes);
    }

    /// Adds the pseudo-header of IPv6, which ICMPv6 sums too (RFC 8200 §8.1).
    pub fn add_pseudo_v6(
        &mut self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        proto: u8,
        bytes: u32,
    ) {
        self.add(&source.octets());
        self.add(&destination.octets());
        self.add_length(proto, bytes);
    }

    fn add_length(&mut self, protocol: u8, bytes: u32) {
        self.add_u32(bytes);
        self.add_u16(u16::from(protocol));
    }

    /// Returns the checksum to be written into the header, in host order: the complement of the sum.
    #[must_use]
    #[inline]
    pub fn finish(self) -> u16 {
        !self.folded()
    }

    /// Returns whether the sum over everything, the header's checksum included, is correct.
    #[must_use]
    #[inline]
    pub fn is_good(self) -> bool {
        self.folded() == 0xffff
    }

    /// Returns the sum itself in host order, not complemented: what the checksum field holds when the
    /// device is to add the rest.
    #[must_use]
    #[inline]
    pub fn folded(self) -> u16 {
        u16::from_be(fold(self.words))
    }

    #[inline]
    fn join(&mut self, words: u64, octets: usize) {
        // A piece that begins at an odd offset has its octets in the other half of each word (RFC 1071 §2(B)).
        self.words += if self.odd { u64::from(fold(words).swap_bytes()) } else { words };
        self.odd ^= octets % 2 == 1;
    }
}

/// Returns the checksum of octets without a pseudo-header: an IPv4 header, an ICMPv4 message.
#[must_use]
pub fn of(bytes: &[u8]) -> u16 {
    let mut sum = Sum::default();
    sum.add(bytes);
    sum.finish()
}

/// Folds a sum to 16 bits with end-around carry. Adding a number to itself rotated by half its width leaves, in the upper
/// half, the sum of both halves plus its carry. Only a sum of zero folds to zero.
#[inline]
pub(crate) fn fold(words: u64) -> u16 {
    let sum = (words.wrapping_add(words.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Copies octets to the start of `target`, and returns the sum of their words.
#[inline]
pub(crate) fn copy_words(target: &mut [u8], source: &[u8]) -> u64 {
    let target = &mut target[..source.len()];
    if source.len() > SHORT {
        return copy_long(target, source);
    }
    target.copy_from_slice(source);
    sum_short(source)
}

#[inline(never)]
fn copy_long(target: &mut [u8], source: &[u8]) -> u64 {
    let (targets, rest_of_target) = target.as_chunks_mut::<BLOCK>();
    let (sources, rest) = source.as_chunks::<BLOCK>();
    let mut words = 0;
    for (to, from) in targets.iter_mut().zip(sources) {
        *to = *from;
        words += sum_block(from);
    }
    rest_of_target.copy_from_slice(rest);
    words + sum_rest(rest)
}

#[inline]
fn sum_words(bytes: &[u8]) -> u64 {
    if bytes.len() <= SHORT { sum_short(bytes) } else { sum_long(bytes) }
}

#[inline(never)]
fn sum_long(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    blocks.iter().map(sum_block).sum::<u64>() + sum_rest(rest)
}

/// Sums octets of a typical request's size: eight at a time, each with the carry of those before.
#[inline]
fn sum_short(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let mut sum = 0u64;
    for block in blocks {
        for &eight in block.as_chunks::<8>().0 {
            let (next, carry) = sum.overflowing_add(u64::from_ne_bytes(eight));
            sum = next + u64::from(carry);
        }
    }
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    if rest.is_empty() { sum } else { sum + sum_rest(rest) }
}

/// Sums the octets that are left after whole blocks.
#[inline(never)]
fn sum_rest(bytes: &[u8]) -> u64 {
    let (fours, rest) = bytes.as_chunks::<4>();
    let mut words = fours.iter().map(|&four| u64::from(u32::from_ne_bytes(four))).sum();
    let (pairs, last) = rest.as_chunks::<2>();
    for &pair in pairs {
        words += u64::from(u16::from_ne_bytes(pair));
    }
    if let &[last] = last {
        words += u64::from(u16::from_ne_bytes([last, 0]));
    }
    words
}

/// Sums one block. The result is at most 2³⁵, so that gigabytes can be summed before a fold.
#[inline]
fn sum_block(block: &[u8; BLOCK]) -> u64 {
    let (words, _) = block.as_chunks::<4>();
    words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Sum, of};

    /// The sum of RFC 1071 §1, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !u16::try_from(sum).unwrap()
    }

    #[test]
    fn the_example_of_rfc_1071() {
        // §3: the sum of these is ddf2 (with the carry added).
        let mut sum = Sum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
        assert_eq!(sum.finish(), 0x220d);
    }

    #[test]
    fn the_largest_words_lose_no_carry() {
        let ones = vec![0xff; 65_535];
        assert_eq!(of(&ones), plain(&ones));
    }

    proptest! {
        #[test]
        fn any_octets_in_any_pieces_sum_as_the_plain_way_does(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            cuts in proptest::collection::vec(0usize..300, 0..4),
        ) {
            let mut sum = Sum::default();
            let mut copied = Sum::default();
            let mut target = vec![0; bytes.len()];
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut from = 0;
            for cut in cuts {
                sum.add(&bytes[from..cut]);
                copied.copy(&mut target[from..], &bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(sum.finish(), plain(&bytes));
            prop_assert_eq!(copied.finish(), plain(&bytes));
            prop_assert_eq!(target, bytes);
        }
    }
}
