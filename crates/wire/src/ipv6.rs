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
    /// Payload length, extension headers included, in octets.
    pub payload_bytes: u16,
    /// Protocol of the payload, or the first extension header.
    pub next_header: Protocol,
    /// Hops left.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Reads a packet: its header, and its payload up to the payload length.
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

/// Hop-by-hop options, routing, fragment and destination options (IANA's registry of extension headers).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Octets of a hop-by-hop options header that holds only [`router_alert`].
pub const ROUTER_ALERT_BYTES: usize = 8;

/// Builds the router alert option of multicast listener discovery (RFC 2711 §2.1, value 0), padded to the header's length.
#[must_use]
pub fn router_alert(next: Protocol) -> [u8; ROUTER_ALERT_BYTES] {
    [next.0, 0, 5, 2, 0, 0, 1, 0]
}

/// Skips the extension headers (RFC 8200 §4), and returns the upper-layer protocol and its octets.
///
/// # Errors
///
/// [`Malformed::Ipv6Length`] if they run past the packet or are too many, [`Malformed::Ipv6Extension`] for one that a host
/// must not skip, [`Unread::NotTcp`] for a fragment: nothing is reassembled here. No error is sent for what is discarded
/// (RFC 4443 §3.4 asks for a parameter problem): no peer of this stack sends such packets.
pub fn upper_layer(first: Protocol, mut rest: &[u8]) -> Result<(Protocol, &[u8]), Unread> {
    const REFUSED: Unread = Unread::Malformed(Malformed::Ipv6Extension);
    let mut next = first;
    for place in 0..MAX_EXTENSIONS {
        let length = match next.0 {
            // Only directly after the IPv6 header (§4.1).
            HOP_BY_HOP if place > 0 => return Err(REFUSED),
            HOP_BY_HOP | DESTINATION => {
                let length = extension_bytes(rest)?;
                let options = rest.get(2..length).ok_or(LIES)?;
                if !may_skip(options)? {
                    return Err(REFUSED);
                }
                length
            }
            // Segments left: to be forwarded, which a host does for none of them (§4.4, and RFC 5095 for type 0).
            ROUTING if octet(rest, 3)? != 0 => return Err(REFUSED),
            ROUTING => extension_bytes(rest)?,
            // An atomic fragment: the whole packet (RFC 6946).
            FRAGMENT if be16(rest, 2)? & 0xfff9 == 0 => 8,
            FRAGMENT => return Err(Unread::NotTcp),
            _ => return Ok((next, rest)),
        };
        next = Protocol(octet(rest, 0)?);
        rest = rest.get(length..).ok_or(LIES)?;
    }
    Err(LIES)
}

const LIES: Unread = Unread::Malformed(Malformed::Ipv6Length);

/// Returns the length of an extension header, whose field counts units of eight octets without the first.
fn extension_bytes(header: &[u8]) -> Result<usize, Unread> {
    Ok(8 + usize::from(octet(header, 1)?) * 8)
}

/// Returns whether a node that knows none of the options may skip them: the upper two bits of an option's type say what to do
/// (RFC 8200 §4.2), and anything but 00 means that the packet is discarded.
fn may_skip(mut options: &[u8]) -> Result<bool, Unread> {
    while let Some(&kind) = options.first() {
        if kind >> 6 != 0 {
            return Ok(false);
        }
        // Pad1 alone has no length.
        let length = if kind == 0 { 1 } else { 2 + usize::from(octet(options, 1)?) };
        options = options.get(length..).ok_or(LIES)?;
    }
    Ok(true)
}
