//! Reads of numbers in network byte order from slices that may be too short.

use crate::Unread;
use crate::checksum::Sum;

/// Returns the first `N` octets from `offset` on.
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], Unread> {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().ok_or(Unread::CutShort)
}

/// One octet.
pub(crate) fn octet(bytes: &[u8], offset: usize) -> Result<u8, Unread> {
    bytes.get(offset).copied().ok_or(Unread::CutShort)
}

/// Sixteen bits in network order.
pub(crate) fn be16(bytes: &[u8], offset: usize) -> Result<u16, Unread> {
    array(bytes, offset).map(u16::from_be_bytes)
}

/// Thirty-two bits in network order.
pub(crate) fn be32(bytes: &[u8], offset: usize) -> Result<u32, Unread> {
    array(bytes, offset).map(u32::from_be_bytes)
}

/// Writes words in network byte order to the start of `place`, and adds them to a checksum while they are
/// in registers: reading back memory that was just written in pieces of another size would stall.
#[inline]
pub(crate) fn put_words<const N: usize>(place: &mut [u8], words: [u32; N], sum: &mut Sum) {
    for (place, word) in place[..4 * N].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
        sum.add_u32(word);
    }
}
