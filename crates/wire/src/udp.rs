//! The UDP header (RFC 768).

use crate::bytes::be16;
use crate::{Malformed, Unread};

/// Octets of a header.
pub const HEADER_BYTES: usize = 8;

/// A UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Header and data, in octets.
    pub total_bytes: u16,
    /// The checksum as it stands; 0 means none in IPv4. The reader verifies it; the writer has it
    /// computed over pseudo-header, header and data.
    pub checksum: u16,
}

impl Header {
    /// Reads a datagram: its header and its data.
    ///
    /// # Errors
    ///
    /// [`Unread::CutShort`] or [`Malformed::UdpLength`].
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Unread> {
        let header = Self {
            source_port: be16(bytes, 0)?,
            destination_port: be16(bytes, 2)?,
            total_bytes: be16(bytes, 4)?,
            checksum: be16(bytes, 6)?,
        };
        let data = bytes
            .get(HEADER_BYTES..usize::from(header.total_bytes))
            .ok_or(Unread::Malformed(Malformed::UdpLength))?;
        Ok((header, data))
    }

    /// Writes the header into the first [`HEADER_BYTES`] octets.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn emit(&self, bytes: &mut [u8]) {
        bytes[..2].copy_from_slice(&self.source_port.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.total_bytes.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.checksum.to_be_bytes());
    }
}
