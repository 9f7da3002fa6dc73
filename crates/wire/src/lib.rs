//! What is on the wire: from a link-layer frame to the TCP segment in it.
//!
//! Everything here is a view of somebody else's bytes. Nothing is allocated, nothing is trusted:
//! each length is checked before it is used, and bytes that lie end in a [`Malformed`] that says
//! which header did.
//!
//! ```text
//! frame ─▶ link::strip ─▶ ip::Packet ─▶ tcp::Header ─▶ Segment
//! ```
#![forbid(unsafe_code)]

use std::fmt;

mod bytes;
pub mod ip;
pub mod link;
mod segment;
mod seq;
pub mod tcp;
#[cfg(test)]
mod tests;

pub use segment::{Endpoint, Segment, read_frame};
pub use seq::SeqNumber;

/// Why a frame has no TCP segment that could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// The frame carries something else (ARP, UDP, a later fragment …): nothing is wrong with it.
    NotTcp,
    /// The capture kept fewer bytes than the headers need (a short snap length).
    CutShort,
    /// A header contradicts itself or the frame it is in.
    Malformed(Malformed),
}

/// The header that cannot be what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// The IP version is neither 4 nor 6, or not the one that the link layer announced.
    IpVersion,
    /// An IPv4 header length below 20, or a total length below the header's or above the frame's.
    Ipv4Length,
    /// An IPv6 payload length that its extension headers exceed, or above the frame's.
    Ipv6Length,
    /// A TCP data offset below 20 octets or beyond the segment's end, or no room for a header.
    TcpOffset,
    /// An option whose length is impossible (RFC 9293 §3.1).
    TcpOption,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IpVersion => "an IP version that does not exist",
            Self::Ipv4Length => "an IPv4 length that lies",
            Self::Ipv6Length => "an IPv6 length that lies",
            Self::TcpOffset => "a TCP header length that lies",
            Self::TcpOption => "a TCP option whose length lies",
        })
    }
}
