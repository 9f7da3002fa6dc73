//! Frames as they come from captures, whole and broken.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::LinkType;
use crate::tcp::Flags;
use crate::{Malformed, Segment, SeqNumber, Unread, read_frame};

/// Builds a TCP header with these options (padded by the caller) and this much data.
fn tcp(options: &[u8], payload_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x90, 0xc0, 0x00, 0, 0, 0, 100, 0, 0, 0, 200];
    bytes.push(u8::try_from((20 + options.len()) / 4).unwrap() << 4);
    bytes.extend([Flags::ACK.0 | Flags::PSH.0, 0x01, 0xf6, 0, 0, 0, 0]);
    bytes.extend_from_slice(options);
    bytes.resize(bytes.len() + payload_bytes, b'x');
    bytes
}

/// Builds an IPv4 packet around a segment, with the correct total length.
fn ipv4(transport: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + transport.len()).unwrap();
    let mut bytes = vec![0x45, 0];
    bytes.extend(total.to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend_from_slice(transport);
    bytes
}

/// Builds an IPv6 packet around extension headers and a TCP segment.
fn ipv6(first: u8, extensions: &[u8], transport: &[u8]) -> Vec<u8> {
    let payload = u16::try_from(extensions.len() + transport.len()).unwrap();
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(payload.to_be_bytes());
    bytes.extend([first, 64]);
    bytes.extend(Ipv6Addr::LOCALHOST.octets());
    bytes.extend(Ipv6Addr::LOCALHOST.octets());
    bytes.extend_from_slice(extensions);
    bytes.extend_from_slice(transport);
    bytes
}

fn raw(packet: &[u8]) -> Result<Segment, Unread> {
    read_frame(LinkType::Raw, packet, packet.len())
}

const IPV4_LIES: Result<Segment, Unread> = Err(Unread::Malformed(Malformed::Ipv4Length));
const IPV6_LIES: Result<Segment, Unread> = Err(Unread::Malformed(Malformed::Ipv6Length));

#[test]
fn a_segment_is_read_with_its_ends_numbers_and_flags() {
    let segment = raw(&ipv4(&tcp(&[], 5))).unwrap();
    assert_eq!(segment.source.address, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(segment.source.to_string(), "10.0.0.1:8080");
    assert_eq!(segment.destination.to_string(), "10.0.0.2:49152");
    assert_eq!((segment.seq, segment.ack), (SeqNumber(100), Some(SeqNumber(200))));
    assert_eq!((segment.window, segment.payload_bytes), (502, 5));
    assert_eq!(segment.seq_end(), SeqNumber(105));
    assert!(segment.flags.has(Flags::PSH) && !segment.flags.has(Flags::SYN));
}

#[test]
fn padding_of_a_short_ethernet_frame_is_no_data() {
    let mut frame = [&[0u8; 12][..], &[8, 0], &ipv4(&tcp(&[], 0))].concat();
    assert_eq!(frame.len(), 54);
    // Ethernet's shortest frame, and the four octets of a check sequence that some cards leave.
    for length in [60, 64] {
        frame.resize(length, 0);
        let segment = read_frame(LinkType::Ethernet, &frame, length).unwrap();
        assert_eq!(segment.payload_bytes, 0, "padded to {length}");
    }
    let mut frame = [&[0u8; 12][..], &[0x86, 0xdd], &ipv6(6, &[], &tcp(&[], 3))].concat();
    frame.resize(frame.len() + 20, 0);
    let segment = read_frame(LinkType::Ethernet, &frame, frame.len()).unwrap();
    assert_eq!(segment.payload_bytes, 3);
}

#[test]
fn vlan_tags_take_nothing_from_the_data() {
    let tags = [&[0u8; 12][..], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9, 8, 0]].concat();
    let frame = [&tags[..], &ipv4(&tcp(&[], 9))].concat();
    assert_eq!(read_frame(LinkType::Ethernet, &frame, frame.len()).unwrap().payload_bytes, 9);
}

#[test]
fn data_that_the_capture_cut_off_still_counts() {
    let frame = ipv4(&tcp(&[], 1000));
    let segment = read_frame(LinkType::Raw, &frame[..96], frame.len()).unwrap();
    assert_eq!(segment.payload_bytes, 1000);
}

#[test]
fn a_header_that_the_capture_cut_off_is_cut_short_and_no_lie() {
    let frame = ipv4(&tcp(&[1, 1, 1, 1], 10));
    for length in 0..40 {
        let read = read_frame(LinkType::Raw, &frame[..length], frame.len());
        assert_eq!(read, Err(Unread::CutShort), "{length} octets");
    }
    let frame = ipv6(0, &[6, 0, 0, 0, 0, 0, 0, 0], &tcp(&[], 10));
    for length in 0..68 {
        let read = read_frame(LinkType::Raw, &frame[..length], frame.len());
        assert_eq!(read, Err(Unread::CutShort), "{length} octets");
    }
}

#[test]
fn a_snap_length_inside_the_options_loses_those_behind_it_only() {
    let options = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9, 1, 1, 1, 1];
    let frame = ipv4(&tcp(&options, 100));
    for length in 40..=frame.len() {
        let segment = read_frame(LinkType::Raw, &frame[..length], frame.len()).unwrap();
        assert_eq!(segment.timestamps.is_some(), length >= 50, "{length} octets");
        assert_eq!(segment.sack.is_some(), length >= 60, "{length} octets");
        assert_eq!(segment.payload_bytes, 100);
        assert!(!segment.option_lies, "{length} octets");
    }
}

#[test]
fn options_that_lie_are_noted_and_the_segment_is_read() {
    let segment = raw(&ipv4(&tcp(&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 2, 40], 7))).unwrap();
    assert!(segment.option_lies);
    assert_eq!((segment.timestamps, segment.payload_bytes), (Some((1, 2)), 7));
}

#[test]
fn options_of_a_syn_count_in_a_syn_only() {
    let options = [2, 4, 5, 180, 3, 3, 200, 1];
    let mut packet = ipv4(&tcp(&options, 0));
    let plain = raw(&packet).unwrap();
    assert_eq!((plain.mss, plain.window_scale), (None, None));
    packet[20 + 13] = Flags::SYN.0;
    let syn = raw(&packet).unwrap();
    // A shift above 14 means 14 (RFC 7323 §2.3).
    assert_eq!((syn.mss, syn.window_scale, syn.ack), (Some(1460), Some(14), None));
    assert_eq!(syn.seq_end(), SeqNumber(101));
}

#[test]
fn only_the_first_fragment_has_a_tcp_header() {
    let mut packet = ipv4(&tcp(&[], 12));
    packet[6] = 0x20; // more fragments follow
    assert_eq!(raw(&packet).unwrap().payload_bytes, 12);
    packet[7] = 1; // and it is the second
    assert_eq!(raw(&packet), Err(Unread::NotTcp));

    let mut fragment = [6, 0, 0, 1, 0, 0, 0, 1];
    assert_eq!(raw(&ipv6(44, &fragment, &tcp(&[], 12))).unwrap().payload_bytes, 12);
    fragment[3] = 8;
    assert_eq!(raw(&ipv6(44, &fragment, &tcp(&[], 12))), Err(Unread::NotTcp));
}

#[test]
fn extension_headers_are_stepped_over() {
    let hop_by_hop = [60, 0, 5, 2, 0, 0, 1, 0];
    let mut destination = [0; 24];
    (destination[0], destination[1]) = (43, 2);
    let routing = [51, 0, 0, 0, 0, 0, 0, 0];
    let mut authentication = [0; 24];
    (authentication[0], authentication[1]) = (6, 4); // in units of four octets, less two
    let extensions =
        [&hop_by_hop[..], &destination[..], &routing[..], &authentication[..]].concat();
    let segment = raw(&ipv6(0, &extensions, &tcp(&[], 11))).unwrap();
    assert_eq!((segment.payload_bytes, segment.source.port), (11, 8080));
    // Encrypted (50) and no next header (59): nothing to read, and no error.
    assert_eq!(raw(&ipv6(50, &[0; 8], &tcp(&[], 1))), Err(Unread::NotTcp));
    assert_eq!(raw(&ipv6(59, &[], &[])), Err(Unread::NotTcp));
}

#[test]
fn extension_headers_without_end_or_beyond_the_packet_are_lies() {
    let endless: Vec<u8> = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
    assert_eq!(raw(&ipv6(60, &endless, &tcp(&[], 1))), IPV6_LIES);
    let mut packet = ipv6(60, &[6, 0, 1, 4, 0, 0, 0, 0], &tcp(&[], 1));
    packet[5] = 4; // the payload ends inside the extension header
    assert_eq!(raw(&packet), IPV6_LIES);
}

#[test]
fn a_total_length_of_zero_is_a_segment_train_as_long_as_the_frame() {
    let train = 20 + 20 + 300_000;
    let mut packet = ipv4(&tcp(&[], 0));
    packet[2..4].fill(0);
    let segment = read_frame(LinkType::Raw, &packet, train).unwrap();
    assert_eq!(segment.payload_bytes, 300_000);

    // With the jumbo payload option (RFC 2675), as Linux sent it at first, and without.
    let jumbo = [6, 0, 0xc2, 4, 0, 4, 0x93, 0xfc];
    for (first, extensions) in [(0, &jumbo[..]), (6, &[])] {
        let mut packet = ipv6(first, extensions, &tcp(&[], 0));
        packet[4..6].fill(0);
        let wire_bytes = packet.len() + 300_000;
        let segment = read_frame(LinkType::Raw, &packet, wire_bytes).unwrap();
        assert_eq!(segment.payload_bytes, 300_000);
    }
}

#[test]
fn a_frame_longer_than_any_window_is_a_lie() {
    let mut packet = ipv4(&tcp(&[], 0));
    packet[2..4].fill(0);
    assert_eq!(read_frame(LinkType::Raw, &packet, usize::MAX), IPV4_LIES);
    assert_eq!(read_frame(LinkType::Raw, &packet, (1 << 30) + 21), IPV4_LIES);
    let longest = read_frame(LinkType::Raw, &packet, (1 << 30) + 20).unwrap();
    assert_eq!(longest.payload_bytes, (1 << 30) - 20);
}

#[test]
fn lengths_that_lie_are_told_by_the_header_that_does() {
    let good = ipv4(&tcp(&[], 4));
    for (index, value, lie) in [
        (0, 0x44, Malformed::Ipv4Length),
        (3, 19, Malformed::Ipv4Length),
        (3, 45, Malformed::Ipv4Length), // one more than the frame has
        (0, 0x75, Malformed::IpVersion),
        (3, 39, Malformed::TcpOffset), // no room for a TCP header
        (32, 0x40, Malformed::TcpOffset),
        (32, 0xf0, Malformed::TcpOffset),
    ] {
        let mut packet = good.clone();
        packet[index] = value;
        assert_eq!(raw(&packet), Err(Unread::Malformed(lie)), "octet {index} is {value}");
    }
    let mut packet = ipv6(6, &[], &tcp(&[], 4));
    packet[5] += 1;
    assert_eq!(raw(&packet), IPV6_LIES);
}

#[test]
fn marks_of_congestion_are_seen_in_both_versions() {
    let mut packet = ipv4(&tcp(&[], 0));
    packet[1] = 2;
    assert!(!raw(&packet).unwrap().congestion_experienced);
    packet[1] = 3;
    assert!(raw(&packet).unwrap().congestion_experienced);
    let mut packet = ipv6(6, &[], &tcp(&[], 0));
    packet[1] = 0x30;
    assert!(raw(&packet).unwrap().congestion_experienced);
}

mod properties {
    use proptest::prelude::*;

    use super::{ipv4, ipv6, tcp};
    use crate::link::LinkType;
    use crate::read_frame;

    const LINKS: [LinkType; 8] = [
        LinkType::Null,
        LinkType::Ethernet,
        LinkType::Raw,
        LinkType::Loop,
        LinkType::LinuxSll,
        LinkType::Ipv4,
        LinkType::Ipv6,
        LinkType::LinuxSll2,
    ];

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(
            link in 0..LINKS.len(),
            frame in proptest::collection::vec(any::<u8>(), 0..200),
            more in 0usize..100_000,
        ) {
            if let Ok(segment) = read_frame(LINKS[link], &frame, frame.len() + more) {
                prop_assert!(segment.payload_bytes as usize <= frame.len() + more);
            }
        }

        #[test]
        fn a_packet_with_an_octet_changed_never_says_more_than_the_frame_held(
            six in any::<bool>(),
            index in 0usize..80,
            value in any::<u8>(),
            cut in 0usize..100,
        ) {
            let transport = tcp(&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1], 20);
            let mut packet = if six { ipv6(6, &[], &transport) } else { ipv4(&transport) };
            let wire_bytes = packet.len();
            let length = packet.len();
            packet[index % length] = value;
            packet.truncate(length.saturating_sub(cut));
            if let Ok(segment) = read_frame(LinkType::Raw, &packet, wire_bytes) {
                prop_assert!(segment.payload_bytes as usize <= wire_bytes - 40);
            }
        }
    }
}
