//! Writing a TCP header (RFC 9293 §3.1).

use super::{Flags, OptionSet, options};
use crate::SeqNumber;
use crate::bytes::put_words;
use crate::checksum::Sum;

/// Octets of a header without options.
pub const HEADER_BYTES: usize = 20;

/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// The fields of a TCP header to be written, without its options.
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
    /// Writes header and options to the start of `segment` and returns their length in octets.
    /// Checksum and urgent pointer are left zero.
    ///
    /// # Panics
    ///
    /// If `segment` is shorter than header and options are.
    pub fn emit(&self, options: &OptionSet, segment: &mut [u8]) -> usize {
        self.emit_summed(options, segment, &mut Sum::default())
    }

    /// Does what [`Fields::emit`] does, and adds what was written to the segment's checksum.
    ///
    /// # Panics
    ///
    /// If `segment` is shorter than header and options are.
    pub fn emit_summed(&self, options: &OptionSet, segment: &mut [u8], sum: &mut Sum) -> usize {
        let rest = &mut segment[HEADER_BYTES..];
        let option_bytes = match options.lone_timestamps() {
            Some(stamps) => options::emit_timestamps(stamps, rest, sum),
            None => {
                let bytes = options.emit(rest);
                sum.add(&rest[..bytes]);
                bytes
            }
        };
        let header_bytes = HEADER_BYTES + option_bytes;
        #[expect(clippy::cast_possible_truncation, reason = "at most 60, in units of four octets")]
        let offset = (header_bytes as u8 / 4) << 4;
        let words = [
            u32::from(self.source_port) << 16 | u32::from(self.destination_port),
            self.seq.0,
            self.ack.0,
            u32::from(offset) << 24 | u32::from(self.flags.0) << 16 | u32::from(self.window),
            0,
        ];
        put_words(segment, words, sum);
        header_bytes
    }
}
