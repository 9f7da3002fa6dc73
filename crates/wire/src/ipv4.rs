//! The IPv4 header (RFC 791) as a host reads and writes it. For captures, whose frames may be cut or
//! be segment trains, see [`crate::ip`].

use std::net::Ipv4Addr;

use crate::bytes::{be16, octet, put_words};
use crate::{Malformed, Protocol, Unread, checksum};

/// Octets of a header without options.
pub const HEADER_BYTES: usize = 20;

/// TTL of packets that are sent (RFC 1700's recommendation, and Linux's default).
pub const HOPS: u8 = 64;

/// An IPv4 header without its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// DSCP and, in the lower two bits, ECN (RFC 3168 §5).
    pub tos: u8,
    /// Total length: header and payload, in octets.
    pub total_bytes: u16,
    /// Identification, for fragments.
    pub id: u16,
    /// DF: routers must not fragment it.
    pub dont_fragment: bool,
    /// MF: more fragments follow.
    pub more_fragments: bool,
    /// Fragment offset, in units of eight octets.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: Protocol,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl Header {
    /// Builds the header of a packet that is never fragmented, so that its identification means nothing
    /// (RFC 6864 §4.1), with [`HOPS`].
    #[must_use]
    pub fn whole(
        protocol: Protocol,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        total_bytes: u16,
    ) -> Self {
        Self {
            tos: 0,
            total_bytes,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: HOPS,
            protocol,
            source,
            destination,
        }
    }

    /// Reads a packet: its header, and the payload after header and options, up to the total length.
    /// Padding after that is left out. The header's checksum is verified.
    ///
    /// # Errors
    ///
    /// [`Unread::CutShort`], [`Malformed::IpVersion`], [`Malformed::Ipv4Length`] or
    /// [`Malformed::Checksum`].
    pub fn read(packet: &[u8]) -> Result<(Self, &[u8]), Unread> {
        let first = octet(packet, 0)?;
        if first >> 4 != 4 {
            return Err(Unread::Malformed(Malformed::IpVersion));
        }
        let header_bytes = usize::from(first & 0x0f) * 4;
        let total_bytes = be16(packet, 2)?;
        let total = usize::from(total_bytes);
        if header_bytes < HEADER_BYTES || total < header_bytes || total > packet.len() {
            return Err(Unread::Malformed(Malformed::Ipv4Length));
        }
        if checksum::of(&packet[..header_bytes]) != 0 {
            return Err(Unread::Malformed(Malformed::Checksum));
        }
        let fixed: &[u8; HEADER_BYTES] = packet.first_chunk().ok_or(Unread::CutShort)?;
        let &[_, tos, _, _, id, id_low, fragment, fragment_low, ttl, protocol, _, _, ends @ ..] =
            fixed;
        let fragment = u16::from_be_bytes([fragment, fragment_low]);
        let [a, b, c, d, e, f, g, h] = ends;
        let header = Self {
            tos,
            total_bytes,
            id: u16::from_be_bytes([id, id_low]),
            dont_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: fragment & 0x1fff,
            ttl,
            protocol: Protocol(protocol),
            source: [a, b, c, d].into(),
            destination: [e, f, g, h].into(),
        };
        Ok((header, &packet[header_bytes..total]))
    }

    /// Returns whether it is a whole packet, not a fragment.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.more_fragments && self.fragment_offset == 0
    }

    /// Writes the header, with its checksum, into the first [`HEADER_BYTES`] octets.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn emit(&self, packet: &mut [u8]) {
        let fragment = self.fragment_offset & 0x1fff
            | u16::from(self.dont_fragment) << 14
            | u16::from(self.more_fragments) << 13;
        let word = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);
        let mut words = [
            word(0x4500 | u16::from(self.tos), self.total_bytes),
            word(self.id, fragment),
            word(u16::from_be_bytes([self.ttl, self.protocol.0]), 0),
            self.source.to_bits(),
            self.destination.to_bits(),
        ];
        let mut sum = checksum::Sum::default();
        words.iter().for_each(|&word| sum.add_u32(word));
        words[2] |= u32::from(sum.finish());
        put_words(packet, words, &mut sum);
    }
}
