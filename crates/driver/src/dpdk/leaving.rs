//! Describes the headers of a frame that is sent to DPDK.

use uncork_packet::{Checksum, Transmit};

use super::ffi::Leaving;

/// Octets of an Ethernet header.
pub(super) const ETHERNET_BYTES: u16 = 14;
/// Offset of the checksum in the TCP header. UDP's differs.
const OF_TCP: u16 = 16;

/// Returns the description of `frame`, which is the written part of the slot.
pub(super) fn leaving(frame: &[u8], transmit: &Transmit) -> Leaving {
    let plain = Leaving { frame_bytes: transmit.frame_bytes, ..Leaving::default() };
    let Checksum::Partial { start, offset } = transmit.checksum else { return plain };
    let version = frame.get(usize::from(ETHERNET_BYTES)).map_or(4, |octet| octet >> 4);
    let done =
        Leaving { transport_at: start, is_tcp: offset == OF_TCP, is_ipv6: version == 6, ..plain };
    let Some(train) = transmit.segmentation else { return done };
    Leaving {
        segment_bytes: train.segment_bytes,
        tcp_bytes: u8::try_from(train.header_bytes.saturating_sub(start)).unwrap_or(u8::MAX),
        ..done
    }
}

#[cfg(test)]
mod tests {
    use uncork_packet::Segmentation;

    use super::*;

    fn transmit(start: u16, offset: u16) -> Transmit {
        Transmit {
            frame_bytes: 1514,
            checksum: Checksum::Partial { start, offset },
            segmentation: None,
            owner: None,
        }
    }

    #[test]
    fn headers_are_told_apart() {
        let mut frame = [0; 1514];
        frame[14] = 0x45;
        let told = leaving(&frame, &transmit(34, 16));
        assert_eq!((told.frame_bytes, told.transport_at), (1514, 34));
        assert!(told.is_tcp && !told.is_ipv6 && told.segment_bytes == 0);
        frame[14] = 0x60;
        let told = leaving(&frame, &transmit(54, 6));
        assert!(!told.is_tcp && told.is_ipv6);
        let complete = Transmit { checksum: Checksum::Complete, ..transmit(0, 0) };
        assert_eq!(leaving(&frame, &complete).transport_at, 0);
    }

    #[test]
    fn a_train_has_the_length_of_its_segments() {
        let segmentation =
            Segmentation { segment_bytes: 1448, header_bytes: 66, ipv6: false, ecn: false };
        let train = Transmit { segmentation: Some(segmentation), ..transmit(34, 16) };
        let mut frame = [0; 100];
        frame[14] = 0x45;
        let told = leaving(&frame, &train);
        assert_eq!((told.segment_bytes, told.tcp_bytes), (1448, 32));
    }
}
