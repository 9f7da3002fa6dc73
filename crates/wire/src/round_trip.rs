//! Round trips: each header reads what it has written, and a changed octet is noticed where a checksum covers it.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use crate::arp::{self, Operation};
use crate::checksum::Sum;
use crate::ethernet::{self, EtherType, Mac};
use crate::tcp::{Fields, Flags, Header, OptionSet};
use crate::{Malformed, Protocol, SeqNumber, Unread, icmpv4, icmpv6, ipv4, ipv6, udp};

const A: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const B: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from)
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from)
}

fn mac() -> impl Strategy<Value = Mac> {
    any::<[u8; 6]>().prop_map(Mac)
}

proptest! {
    #[test]
    fn ethernet(destination in mac(), source in mac(), ethertype in any::<u16>()) {
        let header = ethernet::Header { destination, source, ethertype: EtherType(ethertype) };
        let mut bytes = [0xee; 20];
        header.emit(&mut bytes);
        prop_assert_eq!(ethernet::Header::read(&bytes), Ok((header, &[0xee; 6][..])));
    }

    #[test]
    fn arp(request in any::<bool>(), sender_mac in mac(), sender in v4(), target_mac in mac(), target in v4()) {
        let operation = if request { Operation::Request } else { Operation::Reply };
        let packet = arp::Packet { operation, sender_mac, sender, target_mac, target };
        let mut bytes = [0xee; arp::PACKET_BYTES];
        packet.emit(&mut bytes);
        prop_assert_eq!(arp::Packet::read(&bytes), Ok(packet));
    }

    #[test]
    fn ipv4(
        (tos, id, ttl, protocol) in any::<(u8, u16, u8, u8)>(),
        (dont_fragment, more_fragments, offset) in (any::<bool>(), any::<bool>(), 0u16..0x2000),
        (source, destination) in (v4(), v4()),
        data in proptest::collection::vec(any::<u8>(), 0..50),
        padding in 0usize..10,
        (index, change) in (0usize..20, 1u8..),
    ) {
        let header = ipv4::Header {
            tos,
            total_bytes: u16::try_from(20 + data.len()).unwrap(),
            id, dont_fragment, more_fragments,
            fragment_offset: offset,
            ttl,
            protocol: Protocol(protocol),
            source, destination,
        };
        let mut packet = vec![0xee; 20];
        header.emit(&mut packet);
        packet.extend(&data);
        packet.resize(packet.len() + padding, 0);
        prop_assert_eq!(ipv4::Header::read(&packet), Ok((header, &data[..])));
        packet[index] ^= change;
        prop_assert!(ipv4::Header::read(&packet).is_err());
    }

    #[test]
    fn ipv6(
        (traffic_class, flow_label, next, hop_limit) in (any::<u8>(), 0u32..1 << 20, any::<u8>(), any::<u8>()),
        (source, destination) in (v6(), v6()),
        data in proptest::collection::vec(any::<u8>(), 0..50),
        padding in 0usize..10,
    ) {
        let header = ipv6::Header {
            traffic_class, flow_label,
            payload_bytes: u16::try_from(data.len()).unwrap(),
            next_header: Protocol(next),
            hop_limit, source, destination,
        };
        let mut packet = vec![0xee; 40];
        header.emit(&mut packet);
        packet.extend(&data);
        packet.resize(packet.len() + padding, 0);
        prop_assert_eq!(ipv6::Header::read(&packet), Ok((header, &data[..])));
        let short = &packet[..(40 + data.len()).saturating_sub(1)];
        prop_assert!(ipv6::Header::read(short).is_err());
    }

    #[test]
    fn icmp(id in any::<u16>(), seq in any::<u16>(), code in any::<u8>(), kind in 0usize..4,
        data in proptest::collection::vec(any::<u8>(), 0..50), (index, change) in (0usize..8, 1u8..)) {
        use icmpv4::Message;
        let message = [
            Message::EchoRequest(id, seq),
            Message::EchoReply(id, seq),
            Message::Unreachable { code, next_hop_mtu: seq },
            Message::TimeExceeded(code),
        ][kind];
        let mut bytes = vec![0xee; 8];
        bytes.extend(&data);
        message.emit(&mut bytes);
        prop_assert_eq!(Message::read(&bytes), Ok((message, &data[..])));
        bytes[index] ^= change;
        prop_assert_eq!(Message::read(&bytes), Err(Unread::Malformed(Malformed::Checksum)));
    }

    #[test]
    fn icmp_of_ipv6(id in any::<u16>(), seq in any::<u16>(), mtu in any::<u32>(), code in any::<u8>(), kind in 0usize..5,
        data in proptest::collection::vec(any::<u8>(), 0..50), (index, change) in (0usize..8, 1u8..)) {
        use icmpv6::Message;
        let message = [
            Message::EchoRequest(id, seq),
            Message::EchoReply(id, seq),
            Message::Unreachable(code),
            Message::PacketTooBig(mtu),
            Message::TimeExceeded(code),
        ][kind];
        let mut bytes = vec![0xee; 8];
        bytes.extend(&data);
        message.emit(&mut bytes, A, B);
        // The four octets after the header of destination unreachable are unused (RFC 4443 §3.1).
        prop_assert_eq!(Message::read(&bytes, A, B), Ok((message, &data[..])));
        bytes[index] ^= change;
        prop_assert_eq!(Message::read(&bytes, A, B), Err(Unread::Malformed(Malformed::Checksum)));
    }

    #[test]
    fn neighbours(target in v6(), mac in proptest::option::of(mac()), ask in any::<bool>(),
        solicited in any::<bool>(), overrides in any::<bool>()) {
        use icmpv6::Message;
        let message = if ask {
            Message::NeighbourSolicitation { target, source: mac }
        } else {
            Message::NeighbourAdvertisement { target, solicited, overrides, mac }
        };
        let mut bytes = vec![0xee; if mac.is_some() { icmpv6::NEIGHBOUR_BYTES } else { 24 }];
        message.emit(&mut bytes, A, B);
        prop_assert_eq!(Message::read(&bytes, A, B).map(|read| read.0), Ok(message));
        // Another pair of addresses gives another sum.
        prop_assert!(Message::read(&bytes, A, A).is_err());
    }

    #[test]
    fn udp(source_port in any::<u16>(), destination_port in any::<u16>(),
        data in proptest::collection::vec(any::<u8>(), 0..50)) {
        let total_bytes = u16::try_from(8 + data.len()).unwrap();
        let header = udp::Header { source_port, destination_port, total_bytes, checksum: 7 };
        let mut bytes = vec![0xee; 8];
        header.emit(&mut bytes);
        bytes.extend(&data);
        prop_assert_eq!(udp::Header::read(&bytes), Ok((header, &data[..])));
        prop_assert!(udp::Header::read(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn tcp(
        (source_port, destination_port, seq, ack, flags, window) in any::<(u16, u16, u32, u32, u8, u16)>(),
        timestamps in any::<Option<(u32, u32)>>(),
        data in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let fields = Fields {
            source_port, destination_port, window,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags: Flags(flags),
        };
        let options = OptionSet { timestamps, ..OptionSet::default() };
        let mut bytes = [0xee; 60];
        let header_bytes = fields.emit(&options, &mut bytes);
        let mut segment = bytes[..header_bytes].to_vec();
        segment.extend(&data);
        let header = Header::read(&segment, segment.len()).unwrap();
        prop_assert_eq!(header.header_bytes(), header_bytes);
        prop_assert_eq!(header.option_set(), options);
        prop_assert_eq!((header.source_port(), header.destination_port()), (source_port, destination_port));
        prop_assert_eq!((header.seq(), header.flags(), header.window()), (fields.seq, fields.flags, window));
        prop_assert_eq!(header.ack(), fields.flags.has(Flags::ACK).then_some(fields.ack));
    }
}

#[test]
fn the_pseudo_header_counts() {
    let segment = [0u8; 20];
    let mut sum = Sum::default();
    let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    sum.add_pseudo_v4(a, b, Protocol::TCP.0, 20);
    sum.add(&segment);
    // 0a00 + 0001 + 0a00 + 0002 + 0006 + 0014
    assert_eq!(sum.folded(), 0x141d);
}

#[test]
fn extension_headers_lead_to_the_upper_layer_or_to_a_refusal() {
    let tcp = [6, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3];
    assert_eq!(ipv6::upper_layer(Protocol(60), &tcp), Ok((Protocol::TCP, &[1, 2, 3][..])));
    assert_eq!(ipv6::upper_layer(Protocol::UDP, &tcp), Ok((Protocol::UDP, &tcp[..])));
    let long = [6, 9, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        ipv6::upper_layer(Protocol(0), &long),
        Err(Unread::Malformed(Malformed::Ipv6Length))
    );
    let fragment = [6, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(ipv6::upper_layer(Protocol(44), &fragment), Err(Unread::NotTcp));
}

#[test]
fn extension_headers_that_say_so_are_not_passed_over() {
    const REFUSED: Result<(Protocol, &[u8]), Unread> =
        Err(Unread::Malformed(Malformed::Ipv6Extension));
    let found = |first, header: [u8; 8]| {
        let packet = [&header[..], &[9, 9]].concat();
        ipv6::upper_layer(Protocol(first), &packet).map(|(next, rest)| (next, rest.len()))
    };
    let tcp = Ok((Protocol::TCP, 2));
    // RFC 8200 §4.4 and RFC 5095: a routing header with no segments left, and one with some, of types 0 and 4.
    for kind in [0, 4] {
        assert_eq!(found(43, [6, 0, kind, 0, 0, 0, 0, 0]), tcp);
        let goes_on = [6, 0, kind, 1, 0, 0, 0, 0];
        assert_eq!(ipv6::upper_layer(Protocol(43), &goes_on), REFUSED);
    }
    // RFC 8200 §4.2: the upper two bits of an option's type, whether or not padding stands before it.
    for first in [0, 60] {
        for (kind, passes) in [(0x3e, true), (0x7e, false), (0xbe, false), (0xfe, false)] {
            let expected =
                if passes { tcp } else { Err(Unread::Malformed(Malformed::Ipv6Extension)) };
            assert_eq!(found(first, [6, 0, kind, 4, 0, 0, 0, 0]), expected, "{first} {kind}");
            assert_eq!(found(first, [6, 0, 0, 1, 1, 7, kind, 0]), expected, "{first} {kind}");
        }
        let lies = Err(Unread::Malformed(Malformed::Ipv6Length));
        assert_eq!(found(first, [6, 0, 1, 5, 0, 0, 0, 0]), lies);
        assert_eq!(found(first, ipv6::router_alert(Protocol::TCP)), tcp);
    }
    // Hop-by-hop options come first or not at all (§4.1).
    let behind = [[0, 0, 1, 4, 0, 0, 0, 0], [6, 0, 1, 4, 0, 0, 0, 0]].concat();
    assert_eq!(ipv6::upper_layer(Protocol(60), &behind), REFUSED);
}

#[test]
fn groups_of_neighbours_follow_from_the_address() {
    let address: Ipv6Addr = "fe80::2aa:ff:fe28:9c5a".parse().unwrap();
    let group = icmpv6::solicited_node(address);
    // The example of RFC 4291 §2.7.1.
    assert_eq!(group, "ff02::1:ff28:9c5a".parse::<Ipv6Addr>().unwrap());
    assert_eq!(icmpv6::multicast_mac(group), Mac([0x33, 0x33, 0xff, 0x28, 0x9c, 0x5a]));
}
