//! Writing a TCP header (RFC 9293 §3.1).

use super::{Flags, OptionSet};
use crate::SeqNumber;

/// Octets of a header without options.
pub const HEADER_BYTES: usize = 20;

/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// A TCP header to be written, apart from its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first octet (SEG.SEQ).
    pub seq: SeqNumber,
    /// Acknowledgment number; zero without the ACK bit (SEG.ACK).
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: Flags,
    /// Window as it is on the wire, not scaled (SEG.WND).
    pub window: u16,
}

impl Fields {
    /// Writes header and options to the start of `segment` and gives the octets that they took.
    /// The checksum is left zero and the urgent pointer too.
    ///
    /// # Panics
    ///
    /// If `segment` is shorter than header and options are.
    pub fn emit(&self, options: &OptionSet, segment: &mut [u8]) -> usize {
        let header_bytes = HEADER_BYTES + options.emit(&mut segment[HEADER_BYTES..]);
        segment[..2].copy_from_slice(&self.source_port.to_be_bytes());
        segment[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        segment[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        segment[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        #[expect(clippy::cast_possible_truncation, reason = "at most 60, in units of four octets")]
        let offset = (header_bytes as u8 / 4) << 4;
        segment[12] = offset;
        segment[13] = self.flags.0;
        segment[14..16].copy_from_slice(&self.window.to_be_bytes());
        segment[16..20].fill(0);
        header_bytes
    }
}
