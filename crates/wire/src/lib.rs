//! Header formats from the link layer to TCP: from a frame to the TCP segment in it.
//!
//! Everything here is a view of bytes that belong to the caller. Nothing is allocated, nothing is
//! trusted: each length is checked before it is used, and inconsistent bytes give a [`Malformed`]
//! that names the header.
//!
//! ```text
//! frame ─▶ link::strip ─▶ ip::Packet ─▶ tcp::Header ─▶ Segment
//! ```
//!
//! That path is for captures, whose frames may be cut, padded, or segment trains. A host that answers
//! reads and writes headers as values instead, from and to slices that the caller owns:
//!
//! ```text
//! ethernet ─▶ arp
//!          ─▶ ipv4, ipv6 ─▶ icmpv4, icmpv6, udp, tcp (Fields, OptionSet)      checksum
//!          ─▶ plain (both headers of the most common packet)
//! ```
#![forbid(unsafe_code)]

use std::fmt;

pub mod arp;
mod bytes;
pub mod checksum;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod link;
pub mod plain;
#[cfg(test)]
mod round_trip;
mod segment;
mod seq;
pub mod tcp;
#[cfg(test)]
mod tests;
pub mod udp;

pub use segment::{Endpoint, Segment, read_frame};
pub use seq::SeqNumber;

/// A protocol over IP (IANA's registry of protocol numbers).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl Protocol {
    /// Hop-by-hop options, the extension header that precedes all others of an IPv6 packet.
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// ICMPv6.
    pub const ICMPV6: Self = Self(58);
}

/// Why no TCP segment could be read from a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The frame carries something else (ARP, UDP, a later fragment …): nothing is wrong with it.
    NotTcp,
    /// The capture kept fewer bytes than the headers need (a short snap length).
    CutShort,
    /// A header contradicts itself or the frame it is in.
    Malformed(Malformed),
}

/// The header, or field, whose value is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// The IP version is neither 4 nor 6, or not the one that the link layer announced.
    IpVersion,
    /// An IPv4 header length below 20, or a total length below the header's or above the frame's.
    Ipv4Length,
    /// An IPv6 payload length that its extension headers exceed, or above the frame's.
    Ipv6Length,
    /// An IPv6 extension header that must not be skipped: a routing header with segments left, an option whose type says so, or
    /// hop-by-hop options after another extension header.
    Ipv6Extension,
    /// A TCP data offset below 20 octets or beyond the segment's end, or no room for a header.
    TcpOffset,
    /// An option whose length is impossible (RFC 9293 §3.1).
    TcpOption,
    /// A checksum that does not match the octets it covers.
    Checksum,
    /// An ARP packet for address types other than Ethernet and IPv4, or with an unknown operation.
    Arp,
    /// A UDP length below the header's or above the packet's.
    UdpLength,
    /// A neighbour discovery option whose length is impossible.
    Icmp,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IpVersion => "an IP version that does not exist",
            Self::Ipv4Length => "an IPv4 length that lies",
            Self::Ipv6Length => "an IPv6 length that lies",
            Self::Ipv6Extension => "an IPv6 extension header that must not be passed over",
            Self::TcpOffset => "a TCP header length that lies",
            Self::TcpOption => "a TCP option whose length lies",
            Self::Checksum => "a checksum that does not fit",
            Self::Arp => "an ARP packet about other addresses",
            Self::UdpLength => "a UDP length that lies",
            Self::Icmp => "an option of neighbour discovery whose length lies",
        })
    }
}
