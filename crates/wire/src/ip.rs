//! IPv4 (RFC 791) and IPv6 (RFC 8200), as far as it takes to reach TCP.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{array, be16, octet};
use crate::link::ip_version;
use crate::{Malformed, Unread};

const PROTOCOL_TCP: u8 = 6;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
/// More extension headers than any real packet has (RFC 8200 §4.1 lists seven places).
const MAX_EXTENSIONS: usize = 8;

/// No sender may have more than the largest window in flight (RFC 7323 §2.3): for a longer segment
/// the capture misstates the frame's length.
const MAX_TRANSPORT_BYTES: usize = 1 << 30;

/// An IP packet that carries TCP.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The TCP segment, as far as it was captured.
    pub transport: &'a [u8],
    /// Length of the TCP segment on the wire, header and data, in octets.
    pub transport_bytes: usize,
    /// Whether a router on the way marked congestion (ECN's CE, RFC 3168).
    pub congestion_experienced: bool,
}

impl<'a> Packet<'a> {
    /// Reads the packet in `bytes`, which was `wire_bytes` long before the capture cut it.
    ///
    /// # Errors
    ///
    /// [`Unread`]; a fragment other than the first has no TCP header and is [`Unread::NotTcp`].
    /// Of the first, only what it contains itself counts: nothing is reassembled here.
    pub fn read(bytes: &'a [u8], wire_bytes: usize) -> Result<Self, Unread> {
        match ip_version(bytes)? {
            4 => Self::read_v4(bytes, wire_bytes),
            _ => Self::read_v6(bytes, wire_bytes),
        }
    }

    fn read_v4(bytes: &'a [u8], wire_bytes: usize) -> Result<Self, Unread> {
        let header_bytes = usize::from(octet(bytes, 0)? & 0x0f) * 4;
        let total_bytes = match usize::from(be16(bytes, 2)?) {
            // A segment train longer than the field can say (BIG TCP): the frame's length counts.
            0 => wire_bytes,
            total => total,
        };
        if header_bytes < IPV4_HEADER || !fits(total_bytes, header_bytes, wire_bytes) {
            return Err(Unread::Malformed(Malformed::Ipv4Length));
        }
        let fragment_offset = be16(bytes, 6)? & 0x1fff;
        if octet(bytes, 9)? != PROTOCOL_TCP || fragment_offset != 0 {
            return Err(Unread::NotTcp);
        }
        let source = Ipv4Addr::from(array::<4>(bytes, 12)?);
        let destination = Ipv4Addr::from(array::<4>(bytes, 16)?);
        Ok(Self {
            source: source.into(),
            destination: destination.into(),
            transport: up_to(bytes, header_bytes, total_bytes)?,
            transport_bytes: total_bytes - header_bytes,
            congestion_experienced: octet(bytes, 1)? & 3 == 3,
        })
    }

    fn read_v6(bytes: &'a [u8], wire_bytes: usize) -> Result<Self, Unread> {
        let total_bytes = match usize::from(be16(bytes, 4)?) {
            // A jumbogram (RFC 2675), or a segment train longer than the field can say.
            0 => wire_bytes,
            payload => IPV6_HEADER + payload,
        };
        let source = Ipv6Addr::from(array::<16>(bytes, 8)?);
        let destination = Ipv6Addr::from(array::<16>(bytes, 24)?);
        let header_bytes = skip_extensions(bytes)?;
        if !fits(total_bytes, header_bytes, wire_bytes) {
            return Err(Unread::Malformed(Malformed::Ipv6Length));
        }
        let traffic_class = (octet(bytes, 0)? << 4) | (octet(bytes, 1)? >> 4);
        Ok(Self {
            source: source.into(),
            destination: destination.into(),
            transport: up_to(bytes, header_bytes, total_bytes)?,
            transport_bytes: total_bytes - header_bytes,
            congestion_experienced: traffic_class & 3 == 3,
        })
    }
}

/// Returns whether a packet of this length fits into a frame that had `wire_bytes` left for it.
/// Excess octets in the frame are padding (Ethernet's shortest frame has 60 octets); a packet longer
/// than its frame is dropped by Linux (`ip_rcv_core`), and here too.
fn fits(total_bytes: usize, header_bytes: usize, wire_bytes: usize) -> bool {
    total_bytes >= header_bytes
        && total_bytes <= wire_bytes
        && total_bytes - header_bytes <= MAX_TRANSPORT_BYTES
}

/// Returns the octets from `start` to `end`, or to where the capture cut the packet.
fn up_to(bytes: &[u8], start: usize, end: usize) -> Result<&[u8], Unread> {
    bytes.get(start..end.min(bytes.len())).ok_or(Unread::CutShort)
}

/// Returns the offset of the TCP header after the extension headers (RFC 8200 §4).
fn skip_extensions(bytes: &[u8]) -> Result<usize, Unread> {
    let mut next = octet(bytes, 6)?;
    let mut offset = IPV6_HEADER;
    for _ in 0..MAX_EXTENSIONS {
        let length = match next {
            PROTOCOL_TCP => return Ok(offset),
            // Hop-by-hop options, routing, destination options: in units of eight octets.
            0 | 43 | 60 => 8 + usize::from(octet(bytes, offset + 1)?) * 8,
            // Fragment: only the first one has the TCP header.
            44 if be16(bytes, offset + 2)? & 0xfff8 == 0 => 8,
            // Authentication (RFC 4302): in units of four octets.
            51 => 8 + usize::from(octet(bytes, offset + 1)?) * 4,
            _ => return Err(Unread::NotTcp),
        };
        next = octet(bytes, offset)?;
        offset += length;
    }
    Err(Unread::Malformed(Malformed::Ipv6Length))
}
