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

/// Hop-by-hop options, a routing header, a fragment, options for the destination (IANA's registry of extension headers).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Octets of hop-by-hop options that say nothing but [`ROUTER_ALERT`], in front of what `next` is.
pub const ROUTER_ALERT_BYTES: usize = 8;

/// "Routers, look at this": a datagram of multicast listener discovery (RFC 2711 §2.1, value 0). The header ends with padding.
#[must_use]
pub fn router_alert(next: Protocol) -> [u8; ROUTER_ALERT_BYTES] {
    [next.0, 0, 5, 2, 0, 0, 1, 0]
}

/// What is behind the extension headers (RFC 8200 §4): its protocol and its octets.
///
/// # Errors
///
/// [`Malformed::Ipv6Length`] if they run past the packet or have no end, [`Malformed::Ipv6Extension`] for one that a host must
/// not pass over, [`Unread::NotTcp`] for a fragment: nothing is put together again here. What is discarded is not
/// complained about (RFC 4443 §3.4 would have a parameter problem): who sends such packets is no peer of anybody's here.
pub fn upper_layer(first: Protocol, mut rest: &[u8]) -> Result<(Protocol, &[u8]), Unread> {
    const REFUSED: Unread = Unread::Malformed(Malformed::Ipv6Extension);
    let mut next = first;
    for place in 0..MAX_EXTENSIONS {
        let length = match next.0 {
            // Nowhere but in front (§4.1).
            HOP_BY_HOP if place > 0 => return Err(REFUSED),
            HOP_BY_HOP | DESTINATION => {
                let length = extension_bytes(rest)?;
                let options = rest.get(2..length).ok_or(LIES)?;
                if !may_skip(options)? {
                    return Err(REFUSED);
                }
                length
            }
            // To be sent on, which a host does for none of them (§4.4, and RFC 5095 for type 0).
            ROUTING if octet(rest, 3)? != 0 => return Err(REFUSED),
            ROUTING => extension_bytes(rest)?,
            // A fragment that is the whole packet (RFC 6946).
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

/// In units of eight octets, the first not counted.
fn extension_bytes(header: &[u8]) -> Result<usize, Unread> {
    Ok(8 + usize::from(octet(header, 1)?) * 8)
}

/// Whether all options may be passed over by who knows none of them: the upper two bits of the type say what he has to do
/// (RFC 8200 §4.2), and anything but 00 is to discard the packet.
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
