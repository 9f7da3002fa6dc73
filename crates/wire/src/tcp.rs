//! The TCP header and its options (RFC 9293 §3.1).

mod emit;
mod options;

pub use emit::{CHECKSUM_OFFSET, Fields, HEADER_BYTES};
pub use options::{Cookie, MAX_BYTES as MAX_OPTION_BYTES, MAX_COOKIE_BYTES, OptionSet, SackBlocks};

use core::fmt::{self, Write as _};

use crate::bytes::{array, be16, be32, octet};
use crate::{Malformed, SeqNumber, Unread};

/// Control bits of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push: the sender's stack indicates the end of a write.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether every bit of `other` is set.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both sets of bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Each bit with its letter, as captures are usually written: S, F, R, P, a dot for ACK, U, E, W.
    pub const LETTERS: [(Self, char); 8] = [
        (Self::SYN, 'S'),
        (Self::FIN, 'F'),
        (Self::RST, 'R'),
        (Self::PSH, 'P'),
        (Self::ACK, '.'),
        (Self::URG, 'U'),
        (Self::ECE, 'E'),
        (Self::CWR, 'W'),
    ];
}

/// The letters of the bits that are set.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = Self::LETTERS.iter().filter(|(flag, _)| self.has(*flag));
        set.try_for_each(|(_, letter)| f.write_char(*letter))
    }
}

/// A TCP header, as far as it was captured.
#[derive(Debug, Clone, Copy)]
pub struct Header<'a> {
    fixed: &'a [u8; HEADER_BYTES],
    bytes: &'a [u8],
}

impl<'a> Header<'a> {
    /// Views the header at the start of a segment that is `segment_bytes` long on the wire.
    ///
    /// # Errors
    ///
    /// [`Unread::CutShort`] if the fixed part is incomplete, [`Malformed::TcpOffset`] if the segment is too
    /// short for a header, or if the data offset is beyond the segment's end or below 20 octets. Options that
    /// the capture cut off are no error: they are merely not seen.
    pub fn read(segment: &'a [u8], segment_bytes: usize) -> Result<Self, Unread> {
        if segment_bytes < 20 {
            return Err(Unread::Malformed(Malformed::TcpOffset));
        }
        let header_bytes = usize::from(octet(segment, 12)? >> 4) * 4;
        if header_bytes < 20 || header_bytes > segment_bytes {
            return Err(Unread::Malformed(Malformed::TcpOffset));
        }
        let fixed = segment.first_chunk().ok_or(Unread::CutShort)?;
        Ok(Self { fixed, bytes: &segment[..header_bytes.min(segment.len())] })
    }

    fn number(&self, at: usize) -> SeqNumber {
        let octets = self.fixed[at..].first_chunk().copied().unwrap_or_default();
        SeqNumber(u32::from_be_bytes(octets))
    }

    /// Length on the wire, options included, in octets.
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        usize::from(self.fixed[12] >> 4) * 4
    }

    /// Source port.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[0], self.fixed[1]])
    }

    /// Destination port.
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// Sequence number of the first octet (SEG.SEQ).
    #[must_use]
    pub fn seq(&self) -> SeqNumber {
        self.number(4)
    }

    /// Acknowledgment number (SEG.ACK), if the ACK bit is set.
    #[must_use]
    pub fn ack(&self) -> Option<SeqNumber> {
        self.flags().has(Flags::ACK).then(|| self.number(8))
    }

    /// Control bits.
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags(self.fixed[13])
    }

    /// Window field as it is on the wire, not scaled (SEG.WND).
    #[must_use]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.fixed[14], self.fixed[15]])
    }

    /// Returns all the options at once (see [`OptionSet::read`]).
    #[must_use]
    pub fn option_set(&self) -> OptionSet {
        OptionSet::read(self.bytes.get(HEADER_BYTES..).unwrap_or_default())
    }

    /// Returns an iterator over the options, as far as they were captured.
    #[must_use]
    pub fn options(&self) -> Options<'a> {
        Options {
            rest: self.bytes.get(20..).unwrap_or_default(),
            cut: self.bytes.len() < self.header_bytes(),
        }
    }
}

/// One option of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpOption {
    /// Maximum segment size, in octets (RFC 9293 §3.2).
    Mss(u16),
    /// Window scale: the shift count (RFC 7323 §2).
    WindowScale(u8),
    /// The sender supports SACK (RFC 2018 §2).
    SackPermitted,
    /// The first block of a selective acknowledgment: left and right edge (RFC 2018 §3).
    Sack(SeqNumber, SeqNumber),
    /// Timestamp value and echo reply (RFC 7323 §3).
    Timestamps(u32, u32),
    /// Any other option, by its kind.
    Other(u8),
}

/// Iterator over the options of a header, in order. It ends after an error at the first that is impossible.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    rest: &'a [u8],
    cut: bool,
}

impl Options<'_> {
    fn stop(&mut self, why: Malformed) -> Option<Result<TcpOption, Malformed>> {
        self.rest = &[];
        // An option that the capture cut in the middle looks malformed but is not.
        (!self.cut).then_some(Err(why))
    }
}

impl Iterator for Options<'_> {
    type Item = Result<TcpOption, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        const END: u8 = 0;
        const NO_OPERATION: u8 = 1;
        while let Some((&NO_OPERATION, rest)) = self.rest.split_first() {
            self.rest = rest;
        }
        let (&kind, after_kind) = self.rest.split_first()?;
        if kind == END {
            self.rest = &[];
            return None;
        }
        let length = after_kind.first().map_or(0, |&length| usize::from(length));
        if length < 2 || length > self.rest.len() {
            return self.stop(Malformed::TcpOption);
        }
        let (option, rest) = self.rest.split_at(length);
        self.rest = rest;
        match read_option(kind, &option[2..]) {
            Ok(option) => Some(Ok(option)),
            Err(_) => self.stop(Malformed::TcpOption),
        }
    }
}

fn read_option(kind: u8, value: &[u8]) -> Result<TcpOption, Unread> {
    Ok(match (kind, value.len()) {
        (2, 2) => TcpOption::Mss(be16(value, 0)?),
        (3, 1) => TcpOption::WindowScale(octet(value, 0)?),
        (4, 0) => TcpOption::SackPermitted,
        (5, length) if length >= 8 && length % 8 == 0 => TcpOption::Sack(
            SeqNumber(be32(value, 0)?),
            SeqNumber(u32::from_be_bytes(array(value, 4)?)),
        ),
        (8, 8) => TcpOption::Timestamps(be32(value, 0)?, be32(value, 4)?),
        (2..=5 | 8, _) => return Err(Unread::Malformed(Malformed::TcpOption)),
        (other, _) => TcpOption::Other(other),
    })
}

#[cfg(test)]
mod tests {
    use super::{Header, TcpOption};
    use crate::{Malformed, SeqNumber, Unread};

    fn header(options: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 20];
        bytes[12] = u8::try_from((20 + options.len()) / 4).unwrap() << 4;
        bytes.extend_from_slice(options);
        bytes
    }

    fn options(octets: &[u8]) -> Vec<Result<TcpOption, Malformed>> {
        let bytes = header(octets);
        Header::read(&bytes, bytes.len()).unwrap().options().collect()
    }

    #[test]
    fn options_are_read_in_order() {
        let octets = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7, 30, 2, 0, 9];
        assert_eq!(
            options(&octets),
            [
                Ok(TcpOption::Mss(1460)),
                Ok(TcpOption::SackPermitted),
                Ok(TcpOption::Timestamps(1, 2)),
                Ok(TcpOption::WindowScale(7)),
                Ok(TcpOption::Other(30)),
            ]
        );
        let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9];
        assert_eq!(options(&sack), [Ok(TcpOption::Sack(SeqNumber(1), SeqNumber(9)))]);
    }

    #[test]
    fn an_option_that_lies_ends_the_list() {
        assert_eq!(options(&[2, 0, 5, 180]), [Err(Malformed::TcpOption)]);
        assert_eq!(options(&[2, 40, 5, 180]), [Err(Malformed::TcpOption)]);
        assert_eq!(options(&[8, 4, 1, 2]), [Err(Malformed::TcpOption)]);
        assert_eq!(options(&[1, 1, 1, 8]), [Err(Malformed::TcpOption)]);
    }

    #[test]
    fn options_that_the_capture_cut_off_are_no_lie() {
        let bytes = header(&[2, 4, 5, 180, 8, 10, 0, 0, 0, 1, 0, 0]);
        let seen: Vec<_> = Header::read(&bytes[..27], bytes.len()).unwrap().options().collect();
        assert_eq!(seen, [Ok(TcpOption::Mss(1460))]);
    }

    #[test]
    fn a_data_offset_that_lies_is_refused() {
        let mut bytes = header(&[]);
        for offset in [0x00, 0x40, 0xf0] {
            bytes[12] = offset;
            assert_eq!(
                Header::read(&bytes, 20).unwrap_err(),
                Unread::Malformed(Malformed::TcpOffset)
            );
        }
    }
}
