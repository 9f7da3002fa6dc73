//! The IPv6 header (RFC 8200) as a host reads and writes it. For captures see [`crate::ip`].

use std::net::Ipv6Addr;

use crate::bytes::{array, be16, be32, octet};
use crate::{Malformed, Protocol, Unread};

/// Octets of the header.
pub const HEADER_BYTES: usize = 40;

/// More extension headers than any real packet has (RFC 8200 §4.1 lists seven places).
const MAX_EXTENSIONS: usize = 8;

/// An IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Traffic class: DSCP and, in the lower two bits, ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits (RFC 6437).
    pub flow_label: u32,
    /// What follows the header, in octets.
    pub payload_bytes: u16,
    /// What follows, or the first extension header.
    pub next_header: Protocol,
    /// Hops left.
    pub hop_limit: u8,
    /// From whom.
    pub source: Ipv6Addr,
    /// To whom.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Reads a packet: its header, and what follows it up to the payload length.
    ///
    /// # Errors
    ///
    /// [`Unread::CutShort`], [`Malformed::IpVersion`] or [`Malformed::Ipv6Length`].
    pub fn read(packet: &[u8]) -> Result<(Self, &[u8]), Unread> {
        let first = be32(packet, 0)?;
        if first >> 28 != 6 {
            return Err(Unread::Malformed(Malformed::IpVersion));
        }
        let payload_bytes = be16(packet, 4)?;
        #[expect(clippy::cast_possible_truncation, reason = "eight bits are meant")]
        let header = Self {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0x000f_ffff,
            payload_bytes,
            next_header: Protocol(octet(packet, 6)?),
            hop_limit: octet(packet, 7)?,
            source: array::<16>(packet, 8)?.into(),
            destination: array::<16>(packet, 24)?.into(),
        };
        let payload = packet
            .get(HEADER_BYTES..HEADER_BYTES + usize::from(payload_bytes))
            .ok_or(Unread::Malformed(Malformed::Ipv6Length))?;
        Ok((header, payload))
    }

    /// Writes the header into the first [`HEADER_BYTES`] octets.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn emit(&self, packet: &mut [u8]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        packet[..4].copy_from_slice(&first.to_be_bytes());
        packet[4..6].copy_from_slice(&self.payload_bytes.to_be_bytes());
        packet[6] = self.next_header.0;
        packet[7] = self.hop_limit;
        packet[8..24].copy_from_slice(&self.source.octets());
        packet[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// What is behind the extension headers (RFC 8200 §4): its protocol and its octets.
///
/// # Errors
///
/// [`Malformed::Ipv6Length`] if they run past the packet or have no end, [`Unread::NotTcp`] for a
/// fragment: nothing is put together again here.
pub fn upper_layer(first: Protocol, mut rest: &[u8]) -> Result<(Protocol, &[u8]), Unread> {
    let mut next = first;
    for _ in 0..MAX_EXTENSIONS {
        let length = match next.0 {
            // Hop-by-hop options, routing, destination options: in units of eight octets.
            0 | 43 | 60 => 8 + usize::from(octet(rest, 1)?) * 8,
            // A fragment that is the whole packet (RFC 6946).
            44 if be16(rest, 2)? & 0xfff9 == 0 => 8,
            44 => return Err(Unread::NotTcp),
            _ => return Ok((next, rest)),
        };
        next = Protocol(octet(rest, 0)?);
        rest = rest.get(length..).ok_or(Unread::Malformed(Malformed::Ipv6Length))?;
    }
    Err(Unread::Malformed(Malformed::Ipv6Length))
}
