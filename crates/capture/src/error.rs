//! Errors that keep a capture from being read, or from being read further.

use std::io;

use crate::links::{self, UnknownLink};
use crate::{MAX_INTERFACES, MAX_RECORD_BYTES};

/// Why a capture cannot be read, or not further. Each is a sentence that "FILE: " can precede.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system could not read it.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is empty.
    #[error("it is empty")]
    Empty,
    /// It is a compressed capture of some kind.
    #[error(
        "it is compressed with {program}; decompress it first: \
         {cat} FILE | uncork doctor --pcap -"
    )]
    Compressed {
        /// The program that compressed it.
        program: &'static str,
        /// The program that decompresses it to standard output.
        cat: &'static str,
    },
    /// It does not begin as any capture does.
    #[error("it is no capture: pcap and pcapng do not begin with {0}")]
    NotACapture(Beginning),
    /// Its version of the format is newer than this program, or much older.
    #[error("version {major}.{minor} of {format} is not known; convert it with editcap")]
    Version {
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// The number before the dot.
        major: u16,
        /// The number after the dot.
        minor: u16,
    },
    /// All its frames begin with a header of unknown type.
    #[error("frames of link type {0} cannot be read; those that can: {list}", list = links::READ)]
    LinkType(UnknownLink),
    /// It ends in the middle of a record.
    #[error("it is cut off in the middle of a record, at byte {at}")]
    CutOff {
        /// Offset of that record.
        at: u64,
    },
    /// It contradicts itself.
    #[error("it contradicts itself at byte {at}: {lie}")]
    Lies {
        /// Offset of the record that does.
        at: u64,
        /// The contradiction.
        lie: Lie,
    },
}

/// A statement of a record that cannot be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lie {
    /// A record is longer than any can be.
    #[error("a record of {0} bytes, where {max} are the most", max = MAX_RECORD_BYTES)]
    TooLong(u64),
    /// A block is shorter than its own header, or not a whole number of words.
    #[error("a block of {0} bytes")]
    BlockLength(u32),
    /// The length at the end of a block differs from the one at its beginning.
    #[error("a block of {0} bytes at its beginning and {1} at its end")]
    BlockEnd(u32, u32),
    /// A frame is longer than its block has room for.
    #[error("a frame that is longer than its block")]
    FrameLength,
    /// There are only zeros where a record should be.
    #[error("a record of zeros")]
    Zeros,
    /// A frame is of an interface that was not described.
    #[error("a frame of interface {0}, which was not described")]
    Interface(u32),
    /// There are more interfaces than any host has.
    #[error("more than {max} interfaces", max = MAX_INTERFACES)]
    Interfaces,
    /// The time is in units that do not fit into 64 bits.
    #[error("a time resolution of {0:#04x}")]
    Resolution(u8),
    /// The byte order of a section is neither of the two.
    #[error("a section in neither byte order")]
    ByteOrder,
    /// The parser refuses a block.
    #[error("a block that is not what its kind says")]
    Block,
}

/// The first octets of something that is not a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    octets: [u8; 4],
    known: usize,
}

impl Beginning {
    /// Returns the first four of these octets.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut octets = [0; 4];
        let known = bytes.len().min(4);
        octets[..known].copy_from_slice(&bytes[..known]);
        Self { octets, known }
    }
}

impl std::fmt::Display for Beginning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, octet) in self.octets[..self.known].iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{octet:02x}")?;
        }
        Ok(())
    }
}
