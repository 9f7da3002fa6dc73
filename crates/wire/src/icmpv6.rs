//! ICMPv6 (RFC 4443) and the part of neighbour discovery (RFC 4861) that resolves link-layer addresses.

use std::net::Ipv6Addr;

use crate::bytes::{array, be16, be32, octet};
use crate::checksum::Sum;
use crate::ethernet::Mac;
use crate::{Malformed, Protocol, Unread};

/// Octets before the body of an echo or an error.
pub const HEADER_BYTES: usize = 8;

/// Octets of a solicitation or advertisement with its link-layer address option.
pub const NEIGHBOUR_BYTES: usize = 32;

/// Hop limit that neighbour discovery must have: a sender on another link cannot produce it
/// (RFC 4861 §7.1).
pub const NEIGHBOUR_HOP_LIMIT: u8 = 255;

/// Option: the link-layer address of the sender (RFC 4861 §4.6.1).
const SOURCE_LINK_ADDRESS: u8 = 1;
/// Option: the link-layer address of the target.
const TARGET_LINK_ADDRESS: u8 = 2;

/// Destination unreachable: no route to the destination (RFC 4443 §3.1).
pub const NO_ROUTE: u8 = 0;
/// Destination unreachable: the port.
pub const PORT_UNREACHABLE: u8 = 4;

/// The type of a message about a header that could not be processed (RFC 4443 §3.4).
pub const PARAMETER_PROBLEM: u8 = 4;

/// Destination address of multicast listener reports (RFC 3810 §5.2.14).
pub const LISTENER_REPORTS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// Hop limit of multicast listener discovery (RFC 3810 §5).
pub const LISTENER_HOP_LIMIT: u8 = 1;

/// Record type of a group in a listener report: each says that packets from any source are wanted (RFC 3810 §5.2.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listening {
    /// MODE_IS_EXCLUDE: the current state, in answer to a query.
    IsSo = 2,
    /// CHANGE_TO_EXCLUDE_MODE: listening begins now.
    Begins = 4,
}

/// Returns the octets of a listener report with this many groups.
#[must_use]
pub const fn listener_report_bytes(groups: usize) -> usize {
    HEADER_BYTES + groups * GROUP_BYTES
}

/// Octets of one group's record (RFC 3810 §5.2.5).
const GROUP_BYTES: usize = 20;

/// Writes a version 2 listener report (type 143) over `bytes`, whose length is what its groups take.
///
/// # Panics
///
/// If `bytes` is shorter than [`HEADER_BYTES`].
pub fn emit_listener_report(
    bytes: &mut [u8],
    listening: Listening,
    groups: impl Iterator<Item = Ipv6Addr>,
    from: Ipv6Addr,
) {
    bytes.fill(0);
    let mut count = 0;
    let (head_bytes, records) = bytes.split_at_mut(HEADER_BYTES);
    for (record, group) in records.chunks_exact_mut(GROUP_BYTES).zip(groups) {
        record[0] = listening as u8;
        record[4..].copy_from_slice(&group.octets());
        count += 1;
    }
    head(head_bytes, 143, 0, count);
    let sum = sum(bytes, from, LISTENER_REPORTS).finish();
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
}

/// A message, or its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Echo request (type 128): identifier and sequence number.
    EchoRequest(u16, u16),
    /// Echo reply (type 129).
    EchoReply(u16, u16),
    /// Destination unreachable (type 1), with its code.
    Unreachable(u8),
    /// Packet too big (type 2): the MTU of the next hop.
    PacketTooBig(u32),
    /// Time exceeded (type 3), with its code.
    TimeExceeded(u8),
    /// Multicast listener query (type 130).
    ListenerQuery,
    /// Neighbour solicitation for `target` (type 135).
    NeighbourSolicitation {
        /// Address that is being resolved.
        target: Ipv6Addr,
        /// Link-layer address of the sender; absent in duplicate address detection.
        source: Option<Mac>,
    },
    /// Neighbour advertisement for `target` (type 136).
    NeighbourAdvertisement {
        /// Address that it is about.
        target: Ipv6Addr,
        /// Solicited flag: it answers a solicitation.
        solicited: bool,
        /// Override flag: it takes precedence over a known link-layer address.
        overrides: bool,
        /// The target's link-layer address.
        mac: Option<Mac>,
    },
    /// Anything else, by type and code.
    Other(u8, u8),
}

impl Message {
    /// Reads a message and its body. The checksum, which covers the addresses, is verified.
    ///
    /// # Errors
    ///
    /// [`Unread::CutShort`], [`Malformed::Checksum`], or [`Malformed::Icmp`] for options of impossible length.
    pub fn read(bytes: &[u8], from: Ipv6Addr, to: Ipv6Addr) -> Result<(Self, &[u8]), Unread> {
        let (first, second) = (be16(bytes, 4)?, be16(bytes, 6)?);
        if !sum(bytes, from, to).is_good() {
            return Err(Unread::Malformed(Malformed::Checksum));
        }
        let message = match (octet(bytes, 0)?, octet(bytes, 1)?) {
            (128, 0) => Self::EchoRequest(first, second),
            (129, 0) => Self::EchoReply(first, second),
            (1, code) => Self::Unreachable(code),
            (2, _) => Self::PacketTooBig(be32(bytes, 4)?),
            (3, code) => Self::TimeExceeded(code),
            (130, 0) => Self::ListenerQuery,
            (135, 0) => Self::NeighbourSolicitation {
                target: array::<16>(bytes, 8)?.into(),
                source: link_address(bytes, SOURCE_LINK_ADDRESS)?,
            },
            (136, 0) => Self::NeighbourAdvertisement {
                target: array::<16>(bytes, 8)?.into(),
                solicited: octet(bytes, 4)? & 0x40 != 0,
                overrides: octet(bytes, 4)? & 0x20 != 0,
                mac: link_address(bytes, TARGET_LINK_ADDRESS)?,
            },
            (kind, code) => Self::Other(kind, code),
        };
        Ok((message, &bytes[HEADER_BYTES..]))
    }

    /// Writes the message over `bytes`, with the checksum over all of them; the body of an echo or
    /// an error must be there already. Neighbour discovery takes [`NEIGHBOUR_BYTES`] with a
    /// link-layer address and eight less without.
    ///
    /// # Panics
    ///
    /// If there are too few.
    pub fn emit(&self, bytes: &mut [u8], from: Ipv6Addr, to: Ipv6Addr) {
        bytes[1..4].fill(0);
        match *self {
            Self::EchoRequest(id, seq) => head(bytes, 128, 0, u32::from(id) << 16 | u32::from(seq)),
            Self::EchoReply(id, seq) => head(bytes, 129, 0, u32::from(id) << 16 | u32::from(seq)),
            Self::Unreachable(code) => head(bytes, 1, code, 0),
            Self::PacketTooBig(mtu) => head(bytes, 2, 0, mtu),
            Self::TimeExceeded(code) => head(bytes, 3, code, 0),
            Self::ListenerQuery => head(bytes, 130, 0, 0),
            Self::Other(kind, code) => head(bytes, kind, code, 0),
            Self::NeighbourSolicitation { target, source } => {
                head(bytes, 135, 0, 0);
                neighbour(bytes, target, SOURCE_LINK_ADDRESS, source);
            }
            Self::NeighbourAdvertisement { target, solicited, overrides, mac } => {
                head(bytes, 136, 0, u32::from(solicited) << 30 | u32::from(overrides) << 29);
                neighbour(bytes, target, TARGET_LINK_ADDRESS, mac);
            }
        }
        let sum = sum(bytes, from, to).finish();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    }
}

fn head(bytes: &mut [u8], kind: u8, code: u8, value: u32) {
    bytes[0] = kind;
    bytes[1] = code;
    bytes[4..8].copy_from_slice(&value.to_be_bytes());
}

fn neighbour(bytes: &mut [u8], target: Ipv6Addr, option: u8, mac: Option<Mac>) {
    bytes[8..24].copy_from_slice(&target.octets());
    if let Some(mac) = mac {
        bytes[24..26].copy_from_slice(&[option, 1]);
        bytes[26..32].copy_from_slice(&mac.0);
    }
}

fn sum(bytes: &[u8], from: Ipv6Addr, to: Ipv6Addr) -> Sum {
    let mut sum = Sum::default();
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    sum.add_pseudo_v6(from, to, Protocol::ICMPV6.0, length);
    sum.add(bytes);
    sum
}

/// Returns the link-layer address in the first option of this kind.
fn link_address(bytes: &[u8], wanted: u8) -> Result<Option<Mac>, Unread> {
    let mut rest = bytes.get(24..).ok_or(Unread::CutShort)?;
    while !rest.is_empty() {
        // In units of eight octets; zero is invalid (RFC 4861 §4.6).
        let length = usize::from(octet(rest, 1)?) * 8;
        if length == 0 || length > rest.len() {
            return Err(Unread::Malformed(Malformed::Icmp));
        }
        if rest[0] == wanted {
            return Ok(Some(Mac(array(rest, 2)?)));
        }
        rest = &rest[length..];
    }
    Ok(None)
}

/// Returns the solicited-node multicast address of `address` (RFC 4291 §2.7.1).
#[must_use]
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let mut group = [0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01, 0xff, 0, 0, 0];
    group[13..].copy_from_slice(&address.octets()[13..]);
    group.into()
}

/// Returns the Ethernet address of a multicast group (RFC 2464 §7).
#[must_use]
pub fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}
