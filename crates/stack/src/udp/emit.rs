//! Writing a UDP datagram.

use uncork_packet::{Capabilities, Checksum, Transmit};
use uncork_wire::{Protocol, udp};

use super::Datagram;
use crate::frame::{Link, Packet, ip_header_bytes};

/// Offset of the checksum in the header (RFC 768).
const CHECKSUM_OFFSET: usize = 6;

/// Returns the most octets of data in a datagram on a path of this MTU.
pub(crate) fn most_bytes(mtu: u16, ipv6: bool) -> usize {
    let headers = ip_header_bytes(ipv6) as usize + udp::HEADER_BYTES;
    usize::from(mtu).saturating_sub(headers)
}

/// Writes a datagram into `slot`, which must have room for it.
pub(crate) fn emit(
    datagram: &Datagram,
    (port, flow_label): (u16, u32),
    slot: &mut [u8],
    link: Link,
    device: &Capabilities,
) -> Transmit {
    let mut packet = Packet::new(datagram.ours, datagram.peer.ip(), Protocol::UDP);
    packet.flow_label = flow_label;
    let bytes = udp::HEADER_BYTES + datagram.bytes.len();
    let start = packet.emit(slot, link, bytes);
    let segment = &mut slot[start..start + bytes];
    let mut header = udp::Header {
        source_port: port,
        destination_port: datagram.peer.port(),
        total_bytes: u16::try_from(bytes).unwrap_or(u16::MAX),
        checksum: 0,
    };
    header.emit(segment);
    segment[udp::HEADER_BYTES..].copy_from_slice(&datagram.bytes);
    let mut sum = packet.pseudo(bytes);
    let checksum = if device.completes_checksums {
        header.checksum = sum.folded();
        #[expect(clippy::cast_possible_truncation, reason = "two headers are short")]
        Checksum::Partial { start: start as u16, offset: CHECKSUM_OFFSET as u16 }
    } else {
        sum.add(segment);
        // Zero would mean that there is no checksum (RFC 768).
        header.checksum = match sum.finish() {
            0 => u16::MAX,
            sum => sum,
        };
        Checksum::Complete
    };
    header.emit(segment);
    Transmit {
        frame_bytes: u32::try_from(start + bytes).unwrap_or(u32::MAX),
        checksum,
        segmentation: None,
        owner: None,
    }
}
