//! `struct virtio_net_hdr` (linux/virtio_net.h): the header before a frame by which the kernel and a
//! program leave checksums and segmentation to each other. In native byte order, as
//! nobody here asks for another (TUNSETVNETLE).

use uncork_packet::{Checksum, Segmentation, Transmit, Trust};

/// Its length, in octets.
pub(crate) const BYTES: usize = 10;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;

/// What the header says of a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) trust: Trust,
    pub(crate) segment_bytes: Option<u16>,
}

/// Reads the header of a received frame.
pub(crate) fn read(header: &[u8; BYTES]) -> Arrival {
    let [flags, kind, _, _, size_low, size_high, ..] = *header;
    let good = flags & (FLAG_NEEDS_CSUM | FLAG_DATA_VALID) != 0;
    let size = u16::from_ne_bytes([size_low, size_high]);
    Arrival {
        trust: if good { Trust::Good } else { Trust::Unknown },
        segment_bytes: (kind & !GSO_ECN != GSO_NONE && size > 0).then_some(size),
    }
}

/// Returns the header of a frame that is sent. The kernel copies its first `linear_bytes`; what
/// follows them it may reference in place. They must hold all headers.
pub(crate) fn write(transmit: &Transmit, linear_bytes: u16) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    let mut put = |at: usize, value: u16| {
        header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    };
    put(2, linear_bytes);
    if let Some(Segmentation { segment_bytes, .. }) = transmit.segmentation {
        put(4, segment_bytes);
    }
    if let Checksum::Partial { start, offset } = transmit.checksum {
        put(6, start);
        put(8, offset);
        header[0] = FLAG_NEEDS_CSUM;
    }
    if let Some(Segmentation { ipv6, ecn, .. }) = transmit.segmentation {
        header[1] = if ipv6 { GSO_TCPV6 } else { GSO_TCPV4 } | if ecn { GSO_ECN } else { 0 };
    }
    header
}

/// Returns how many octets at the start of a frame hold all of its headers, and of a long frame no
/// more than `at_most`.
pub(crate) fn linear_bytes(transmit: &Transmit, at_most: u16) -> u16 {
    let headers = match (transmit.segmentation, transmit.checksum) {
        (Some(Segmentation { header_bytes, .. }), _) => return header_bytes,
        // The checksum field, and the rest of the TCP header that may follow it.
        (None, Checksum::Partial { start, .. }) => start.saturating_add(60),
        (None, Checksum::Complete) => 0,
    };
    let frame = u16::try_from(transmit.frame_bytes).unwrap_or(u16::MAX);
    headers.max(at_most).min(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(ipv6: bool) -> Transmit {
        Transmit {
            frame_bytes: 9_014,
            checksum: Checksum::Partial { start: 34, offset: 16 },
            segmentation: Some(Segmentation {
                segment_bytes: 1448,
                header_bytes: 66,
                ipv6,
                ecn: ipv6,
            }),
            owner: None,
        }
    }

    #[test]
    fn a_train_is_told_as_the_kernel_reads_it() {
        let header = write(&train(false), 66);
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        assert_eq!((header[0], header[1]), (1, 1));
        assert_eq!([word(2), word(4), word(6), word(8)], [66, 1448, 34, 16]);
        assert_eq!(write(&train(true), 66)[1], 0x84);
    }

    #[test]
    fn what_was_sent_over_a_virtual_link_is_read_at_its_other_end() {
        let arrival = read(&write(&train(true), 66));
        assert_eq!(arrival, Arrival { trust: Trust::Good, segment_bytes: Some(1448) });
        let plain = Transmit { checksum: Checksum::Complete, segmentation: None, ..train(false) };
        let arrival = read(&write(&plain, 0));
        assert_eq!(arrival, Arrival { trust: Trust::Unknown, segment_bytes: None });
    }

    #[test]
    fn the_linear_part_holds_all_headers_and_never_more_than_the_frame() {
        assert_eq!(linear_bytes(&train(false), 256), 66);
        let short = Transmit { frame_bytes: 54, segmentation: None, ..train(false) };
        assert_eq!(linear_bytes(&short, 256), 54);
        let long = Transmit { frame_bytes: 1514, ..short };
        assert_eq!(linear_bytes(&long, 0), 94);
        assert_eq!(linear_bytes(&long, 256), 256);
    }
}
