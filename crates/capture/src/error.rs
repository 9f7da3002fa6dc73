//! Why a capture cannot be read, or no further.

use std::io;

use crate::links::{self, UnknownLink};
use crate::{MAX_INTERFACES, MAX_RECORD_BYTES};

/// Why a capture cannot be read, or no further. Each is a sentence that "FILE: " can stand before.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system does not let it be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is some capture or other, under a compression.
    #[error(
        "it is compressed with {program}; decompress it first: \
         {cat} FILE | uncork doctor --pcap -"
    )]
    Compressed {
        /// What compressed it.
        program: &'static str,
        /// What decompresses it to standard output.
        cat: &'static str,
    },
    /// It begins with nothing that a capture begins with.
    #[error("it is no capture: pcap and pcapng do not begin with {0}")]
    NotACapture(Beginning),
    /// A version of the format that came after this program, or long before.
    #[error("version {major}.{minor} of {format} is not known; convert it with editcap")]
    Version {
        /// `pcap` or `pcapng`.
        format: &'static str,
        /// Before the dot.
        major: u16,
        /// After it.
        minor: u16,
    },
    /// All its frames begin with a header that is not known here.
    #[error("frames of link type {0} cannot be read; those that can: {list}", list = links::READ)]
    LinkType(UnknownLink),
    /// It ends in the middle of a record.
    #[error("it is cut off in the middle of a record, at byte {at}")]
    CutOff {
        /// Where that record begins.
        at: u64,
    },
    /// It contradicts itself.
    #[error("it contradicts itself at byte {at}: {lie}")]
    Lies {
        /// Where the record begins that does.
        at: u64,
        /// In what.
        lie: Lie,
    },
}

/// What cannot be as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lie {
    /// A record longer than any.
    #[error("a record of {0} bytes, where {max} are the most", max = MAX_RECORD_BYTES)]
    TooLong(u64),
    /// A block shorter than its own header, or not in whole words.
    #[error("a block of {0} bytes")]
    BlockLength(u32),
    /// The length at the block's end is another than the one at its beginning.
    #[error("a block of {0} bytes at its beginning and {1} at its end")]
    BlockEnd(u32, u32),
    /// A frame that is longer than its block has room for.
    #[error("a frame that is longer than its block")]
    FrameLength,
    /// Nothing but zeros where a record should be.
    #[error("a record of zeros")]
    Zeros,
    /// A frame of an interface that was not described.
    #[error("a frame of interface {0}, which was not described")]
    Interface(u32),
    /// More interfaces than anybody has.
    #[error("more than {max} interfaces", max = MAX_INTERFACES)]
    Interfaces,
    /// Time in units that do not fit into 64 bits.
    #[error("a time resolution of {0:#04x}")]
    Resolution(u8),
    /// The byte order of a section is neither.
    #[error("a section in neither byte order")]
    ByteOrder,
    /// A block that the parser refuses.
    #[error("a block that is not what its kind says")]
    Block,
}

/// The first octets of something that is no capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    octets: [u8; 4],
    known: usize,
}

impl Beginning {
    /// The first four of these.
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
