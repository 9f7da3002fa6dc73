//! ICMP (RFC 792), as far as a host with TCP and UDP needs it.

use crate::bytes::{be16, octet};
use crate::{Malformed, Unread, checksum};

/// Octets before a message's body.
pub const HEADER_BYTES: usize = 8;

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Echo request (type 8): identifier and sequence number.
    EchoRequest(u16, u16),
    /// Echo reply (type 0).
    EchoReply(u16, u16),
    /// Destination unreachable (type 3).
    Unreachable {
        /// The code: 0 net, 1 host, 2 protocol, 3 port, 4 fragmentation needed, 13 prohibited …
        code: u8,
        /// With code 4: the MTU of the next hop, or 0 from routers that predate RFC 1191.
        next_hop_mtu: u16,
    },
    /// Time exceeded (type 11), with its code.
    TimeExceeded(u8),
    /// Anything else, by type and code.
    Other(u8, u8),
}

/// Destination unreachable: the host; code 0 is for its network.
pub const HOST_UNREACHABLE: u8 = 1;
/// Destination unreachable: the port.
pub const PORT_UNREACHABLE: u8 = 3;
/// Destination unreachable: fragmentation needed and DF set.
pub const FRAGMENTATION_NEEDED: u8 = 4;
/// The last code of destination unreachable that is defined (RFC 1812 §5.2.7.1).
pub const LAST_UNREACHABLE: u8 = 15;
/// The type of a message about a header that could not be processed.
pub const PARAMETER_PROBLEM: u8 = 12;

impl Message {
    /// Reads a message: its header, and its body, which is the data of an echo or the start of the packet
    /// that an error is about. The checksum is verified.
    ///
    /// # Errors
    ///
    /// [`Unread::CutShort`] or [`Malformed::Checksum`].
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Unread> {
        let (first, second) = (be16(bytes, 4)?, be16(bytes, 6)?);
        if checksum::of(bytes) != 0 {
            return Err(Unread::Malformed(Malformed::Checksum));
        }
        let message = match (octet(bytes, 0)?, octet(bytes, 1)?) {
            (8, 0) => Self::EchoRequest(first, second),
            (0, 0) => Self::EchoReply(first, second),
            (3, code) => Self::Unreachable { code, next_hop_mtu: second },
            (11, code) => Self::TimeExceeded(code),
            (kind, code) => Self::Other(kind, code),
        };
        Ok((message, &bytes[HEADER_BYTES..]))
    }

    /// Writes the header into the first [`HEADER_BYTES`] octets, with the checksum over all of
    /// `bytes`, whose body must be there already.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn emit(&self, bytes: &mut [u8]) {
        let (kind, code, first, second) = match *self {
            Self::EchoRequest(id, seq) => (8, 0, id, seq),
            Self::EchoReply(id, seq) => (0, 0, id, seq),
            Self::Unreachable { code, next_hop_mtu } => (3, code, 0, next_hop_mtu),
            Self::TimeExceeded(code) => (11, code, 0, 0),
            Self::Other(kind, code) => (kind, code, 0, 0),
        };
        bytes[0] = kind;
        bytes[1] = code;
        bytes[2..4].fill(0);
        bytes[4..6].copy_from_slice(&first.to_be_bytes());
        bytes[6..8].copy_from_slice(&second.to_be_bytes());
        let sum = checksum::of(bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}
