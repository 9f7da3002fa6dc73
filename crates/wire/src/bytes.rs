//! Numbers in network order, read where they may be missing.

use crate::Unread;

/// The first `N` octets of what follows `offset`.
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
