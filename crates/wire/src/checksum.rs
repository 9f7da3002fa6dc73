//! The Internet checksum (RFC 1071), alone or while copying.
//!
//! The sum is made of words in the machine's own order and turned round once at the end, which
//! RFC 1071 §2(B) allows; 32-bit words go into 64-bit sums, so no carry can get lost in between and
//! the compiler may use vectors.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Octets that one turn of the inner loop takes.
const BLOCK: usize = 32;

/// Below so many octets the vectors of longer ones take more time to begin and end than they save.
const SHORT: usize = 256;

/// A checksum in the making: octets are added in the order of the packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    /// Sum of 32-bit words in the machine's order: there is room for 2³² of them, more than a packet has.
    words: u64,
    /// Whether an odd number of octets was added, so that the next one is the lower half of a word.
    odd: bool,
}

impl Sum {
    /// Goes on from words that were summed in the machine's order.
    #[inline]
    pub(crate) const fn of_words(words: u64) -> Self {
        Self { words, odd: false }
    }

    /// Adds octets that follow on those added so far, an odd number of them or not.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.join(sum_words(bytes), bytes.len());
    }

    /// Copies `source` to the start of `target` and adds it on the way: the octets are in registers
    /// once.
    ///
    /// # Panics
    ///
    /// If `target` is shorter than `source`.
    #[inline]
    pub fn copy(&mut self, target: &mut [u8], source: &[u8]) {
        self.join(copy_words(target, source), source.len());
    }

    /// Adds a number of 16 bits at an even place.
    #[inline]
    pub fn add_u16(&mut self, value: u16) {
        debug_assert!(!self.odd, "numbers of a header begin at even places");
        self.words += u64::from(value.to_be());
    }

    /// Adds a number of 32 bits at an even place: a field that need not be read back from memory in
    /// which it was just written piece by piece.
    #[inline]
    pub fn add_u32(&mut self, value: u32) {
        debug_assert!(!self.odd, "numbers of a header begin at even places");
        self.words += u64::from(value.to_be());
    }

    /// Adds what TCP, UDP and ICMPv6 sum beside themselves: addresses, protocol and length
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

    /// The same for IPv6 (RFC 8200 §8.1).
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

    /// The checksum to be written into the header, in host order: the complement of the sum.
    #[must_use]
    #[inline]
    pub fn finish(self) -> u16 {
        !self.folded()
    }

    /// Whether everything, the checksum in the header included, sums up as it must.
    #[must_use]
    #[inline]
    pub fn is_good(self) -> bool {
        self.folded() == 0xffff
    }

    /// The sum itself in host order, not complemented: what the checksum field holds when the rest
    /// is to be added by the device.
    #[must_use]
    #[inline]
    pub fn folded(self) -> u16 {
        u16::from_be(fold(self.words))
    }

    #[inline]
    fn join(&mut self, words: u64, octets: usize) {
        // Octets at odd places count in the other half of a word (RFC 1071 §2(B)).
        self.words += if self.odd { u64::from(fold(words).swap_bytes()) } else { words };
        self.odd ^= octets % 2 == 1;
    }
}

/// The checksum of octets that stand alone: an IPv4 header, an ICMPv4 message.
#[must_use]
pub fn of(bytes: &[u8]) -> u16 {
    let mut sum = Sum::default();
    sum.add(bytes);
    sum.finish()
}

/// The halves of a sum added with the carry that this gives, twice: in the upper half of a number and itself turned
/// by half is just that. Only nothing at all sums up to nothing.
#[inline]
pub(crate) fn fold(words: u64) -> u16 {
    let sum = (words.wrapping_add(words.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Copies octets to the start of `target`, and gives the sum of their words.
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

/// Of a request's size: eight octets at a time, each with the carry of those before.
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

/// Of what is less than a block.
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

/// At most 2³⁵, so that gigabytes can be summed before a fold.
#[inline]
fn sum_block(block: &[u8; BLOCK]) -> u64 {
    let (words, _) = block.as_chunks::<4>();
    words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Sum, of};

    /// RFC 1071 §1, word by word.
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
