//! Link layers of captures, and how the IP packet is found in their frames.

use crate::bytes::{be16, be32, octet};
use crate::{Malformed, Unread};

/// A link layer, named by its number in pcap and pcapng files (the LINKTYPE_ registry of
/// tcpdump.org).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// BSD loopback: the address family in the capturing host's byte order (LINKTYPE_NULL, 0).
    Null,
    /// Ethernet, with any number of VLAN tags (1).
    Ethernet,
    /// A bare IP packet (LINKTYPE_RAW, 101; and 12 and 14, which some systems write).
    Raw,
    /// OpenBSD loopback: the address family in network order (108).
    Loop,
    /// Linux "cooked" capture, as `tcpdump -i any` wrote it (113).
    LinuxSll,
    /// A bare IPv4 packet (228).
    Ipv4,
    /// A bare IPv6 packet (229).
    Ipv6,
    /// Linux "cooked" capture, version 2, as `tcpdump -i any` writes it (276).
    LinuxSll2,
}

impl LinkType {
    /// Returns the link layer with that number, if it is supported.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            12 | 14 | 101 => Self::Raw,
            108 => Self::Loop,
            113 => Self::LinuxSll,
            228 => Self::Ipv4,
            229 => Self::Ipv6,
            276 => Self::LinuxSll2,
            _ => return None,
        })
    }
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// VLAN tags, which the real EtherType follows: 802.1Q, 802.1ad, and QinQ before it was standardised.
const VLAN_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// Returns the IP packet in a frame.
///
/// # Errors
///
/// [`Unread::NotTcp`] if the frame carries no IP, [`Unread::CutShort`] if it ends too early,
/// [`Malformed::IpVersion`] if the packet's version is not the one that the link layer announces.
pub fn strip(link: LinkType, frame: &[u8]) -> Result<&[u8], Unread> {
    match link {
        LinkType::Raw => Ok(frame),
        LinkType::Ipv4 => packet(frame, 0, 4),
        LinkType::Ipv6 => packet(frame, 0, 6),
        LinkType::Ethernet => tagged(frame, 12),
        LinkType::LinuxSll => tagged(frame, 14),
        LinkType::LinuxSll2 => match be16(frame, 0)? {
            ETHERTYPE_IPV4 => packet(frame, 20, 4),
            ETHERTYPE_IPV6 => packet(frame, 20, 6),
            tag if VLAN_TAGS.contains(&tag) => tagged(frame, 20 + 2),
            _ => Err(Unread::NotTcp),
        },
        LinkType::Null | LinkType::Loop => {
            let family = be32(frame, 0)?;
            let family = if family > 0xffff { family.swap_bytes() } else { family };
            match family {
                2 => packet(frame, 4, 4),
                // AF_INET6 of Linux, NetBSD and OpenBSD, FreeBSD, macOS.
                10 | 24 | 28 | 30 => packet(frame, 4, 6),
                _ => Err(Unread::NotTcp),
            }
        }
    }
}

/// Returns the packet after the EtherType at `offset` and any VLAN tags.
fn tagged(frame: &[u8], mut offset: usize) -> Result<&[u8], Unread> {
    loop {
        match be16(frame, offset)? {
            ETHERTYPE_IPV4 => return packet(frame, offset + 2, 4),
            ETHERTYPE_IPV6 => return packet(frame, offset + 2, 6),
            tag if VLAN_TAGS.contains(&tag) => offset += 4,
            _ => return Err(Unread::NotTcp),
        }
    }
}

/// Returns the packet at `offset`, whose IP version the link layer announces.
fn packet(frame: &[u8], offset: usize, version: u8) -> Result<&[u8], Unread> {
    let packet = frame.get(offset..).ok_or(Unread::CutShort)?;
    if ip_version(packet)? == version {
        Ok(packet)
    } else {
        Err(Unread::Malformed(Malformed::IpVersion))
    }
}

/// Returns the IP version in the first octet of a packet.
pub(crate) fn ip_version(packet: &[u8]) -> Result<u8, Unread> {
    match octet(packet, 0)? >> 4 {
        version @ (4 | 6) => Ok(version),
        _ => Err(Unread::Malformed(Malformed::IpVersion)),
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkType, strip};
    use crate::{Malformed, Unread};

    const PACKET: &[u8] = &[0x45, 1, 2, 3];

    fn framed(header: &[u8]) -> Vec<u8> {
        [header, PACKET].concat()
    }

    #[test]
    fn every_link_layer_yields_the_packet_in_it() {
        let mac = [0u8; 12];
        let frames = [
            (LinkType::Raw, vec![]),
            (LinkType::Ipv4, vec![]),
            (LinkType::Ethernet, [&mac[..], &[8, 0]].concat()),
            (LinkType::Ethernet, [&mac[..], &[0x81, 0, 0, 7, 8, 0]].concat()),
            (LinkType::Ethernet, [&mac[..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0]].concat()),
            (LinkType::Null, vec![2, 0, 0, 0]),
            (LinkType::Null, vec![0, 0, 0, 2]),
            (LinkType::Loop, vec![0, 0, 0, 2]),
            (LinkType::LinuxSll, [&[0u8; 14][..], &[8, 0]].concat()),
            (LinkType::LinuxSll2, [&[8, 0][..], &[0; 18]].concat()),
            (LinkType::LinuxSll2, [&[0x81, 0][..], &[0; 18], &[0, 7, 8, 0]].concat()),
        ];
        for (link, header) in frames {
            assert_eq!(strip(link, &framed(&header)), Ok(PACKET), "{link:?} {header:?}");
        }
    }

    #[test]
    fn other_protocols_and_short_frames_are_told_apart() {
        let arp = [&[0u8; 12][..], &[8, 6]].concat();
        assert_eq!(strip(LinkType::Ethernet, &arp), Err(Unread::NotTcp));
        assert_eq!(strip(LinkType::Ethernet, &arp[..13]), Err(Unread::CutShort));
        assert_eq!(strip(LinkType::Null, &[7, 0, 0, 0]), Err(Unread::NotTcp));
    }

    #[test]
    fn a_packet_of_another_version_than_announced_is_refused() {
        let lies = Err(Unread::Malformed(Malformed::IpVersion));
        let mac = [0u8; 12];
        let frames = [
            (LinkType::Ipv6, vec![]),
            (LinkType::Ethernet, [&mac[..], &[0x86, 0xdd]].concat()),
            (LinkType::Ethernet, [&mac[..], &[0x81, 0, 0, 7, 0x86, 0xdd]].concat()),
            (LinkType::Null, vec![30, 0, 0, 0]),
            (LinkType::LinuxSll2, [&[0x86, 0xdd][..], &[0; 18]].concat()),
        ];
        for (link, header) in frames {
            assert_eq!(strip(link, &framed(&header)), lies, "{link:?} {header:?}");
        }
        // Nothing after the link layer: there is no version to read.
        assert_eq!(strip(LinkType::Null, &[2, 0, 0, 0]), Err(Unread::CutShort));
    }
}
