//! What a host answers besides TCP: echo requests, address resolution, packets that were too long.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::{Ipv4Addr, Ipv6Addr};

use uncork_packet::{Capabilities, Instant, Medium, Received};
use uncork_stack::{Config, ConnectionError, Mac, Stack, State};
use uncork_wire::checksum::Sum;
use uncork_wire::ethernet::{self, EtherType};
use uncork_wire::tcp::{CHECKSUM_OFFSET, Fields, Flags, OptionSet};
use uncork_wire::{Protocol, SeqNumber, arp, icmpv4, icmpv6, ipv4, ipv6};

use crate::common::{self, Lab, OURS, PEER};

const OUR_V6: &str = "fd00::1";
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 9]);

fn stack() -> Stack {
    let device = Capabilities::plain(Medium::Ethernet, 1500);
    let mut stack = Stack::new(Config::default(), device, MAC, [1; 32]);
    stack.add_address("10.0.0.1/24".parse().unwrap());
    stack.add_address("fd00::1/64".parse().unwrap());
    stack
}

fn exchange(stack: &mut Stack, frame: &[u8]) -> Vec<Vec<u8>> {
    let now = Instant::from_millis(5);
    stack.handle_frame(now, &Received::plain(frame));
    let mut slot = vec![0; 2000];
    std::iter::from_fn(|| stack.poll_transmit(now, &mut slot).map(|sent| sent.frame_bytes))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|bytes| slot[..bytes as usize].to_vec())
        .collect()
}

fn ethernet(destination: Mac, ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    ethernet::Header { destination, source: OTHER, ethertype }.emit(&mut frame);
    frame.extend(packet);
    frame
}

fn in_v4(destination: Ipv4Addr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20];
    ipv4::Header {
        id: 7,
        dont_fragment: false,
        ..ipv4::Header::whole(
            protocol,
            PEER.parse().unwrap(),
            destination,
            u16::try_from(20 + payload.len()).unwrap(),
        )
    }
    .emit(&mut packet);
    packet.extend(payload);
    packet
}

#[test]
fn an_echo_comes_back_as_it_was() {
    let mut message = vec![0; 8];
    message.extend(b"forty-two");
    icmpv4::Message::EchoRequest(3, 4).emit(&mut message);
    let packet = in_v4(OURS.parse().unwrap(), Protocol::ICMP, &message);
    let answers = exchange(&mut stack(), &ethernet(MAC, EtherType::IPV4, &packet));
    let (link, packet) = ethernet::Header::read(&answers[0]).unwrap();
    assert_eq!((link.destination, link.source), (OTHER, MAC));
    let (ip, message) = ipv4::Header::read(packet).unwrap();
    assert_eq!(ip.destination, PEER.parse::<Ipv4Addr>().unwrap());
    let reply = (icmpv4::Message::EchoReply(3, 4), &b"forty-two"[..]);
    assert_eq!(icmpv4::Message::read(message), Ok(reply));
    // Ignored: a packet for another address, and one that was damaged on the way.
    let mut stack = stack();
    let other = in_v4(Ipv4Addr::new(10, 0, 0, 77), Protocol::ICMP, message);
    assert!(exchange(&mut stack, &ethernet(MAC, EtherType::IPV4, &other)).is_empty());
    let mut broken = ethernet(MAC, EtherType::IPV4, packet);
    *broken.last_mut().unwrap() ^= 1;
    assert!(exchange(&mut stack, &broken).is_empty());
}

#[test]
fn whoever_asks_for_our_address_is_told_and_remembered() {
    let ask = |target: &str| {
        let mut packet = vec![0; arp::PACKET_BYTES];
        arp::Packet {
            operation: arp::Operation::Request,
            sender_mac: OTHER,
            sender: PEER.parse().unwrap(),
            target_mac: Mac::default(),
            target: target.parse().unwrap(),
        }
        .emit(&mut packet);
        ethernet(Mac::BROADCAST, EtherType::ARP, &packet)
    };
    let mut stack = stack();
    assert!(exchange(&mut stack, &ask("10.0.0.77")).is_empty());
    let answers = exchange(&mut stack, &ask(OURS));
    let answer = arp::Packet::read(&answers[0][14..]).unwrap();
    assert_eq!((answer.operation, answer.sender_mac), (arp::Operation::Reply, MAC));
    // A connection to that peer needs no ARP request.
    let remote = format!("{PEER}:9").parse().unwrap();
    stack.connect(Instant::from_millis(6), None, remote).unwrap();
    let mut slot = vec![0; 2000];
    assert!(stack.poll_transmit(Instant::from_millis(6), &mut slot).is_some());
    assert_eq!(ethernet::Header::read(&slot).unwrap().0.ethertype, EtherType::IPV4);
}

#[test]
fn a_solicitation_is_answered_if_it_comes_from_this_link() {
    let (ours, peer): (Ipv6Addr, Ipv6Addr) =
        ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let group = icmpv6::solicited_node(ours);
    for hop_limit in [255, 254] {
        let mut message = vec![0; icmpv6::NEIGHBOUR_BYTES];
        icmpv6::Message::NeighbourSolicitation { target: ours, source: Some(OTHER) }.emit(
            &mut message,
            peer,
            group,
        );
        let mut packet = vec![0; 40];
        ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: 32,
            next_header: Protocol::ICMPV6,
            hop_limit,
            source: peer,
            destination: group,
        }
        .emit(&mut packet);
        packet.extend(message);
        let frame = ethernet(icmpv6::multicast_mac(group), EtherType::IPV6, &packet);
        let answers = exchange(&mut stack(), &frame);
        // RFC 4861 §7.1.1: with any other hop limit a router has forwarded it.
        assert_eq!(answers.len(), usize::from(hop_limit == 255));
        if let Some(answer) = answers.first() {
            let (ip, message) = ipv6::Header::read(&answer[14..]).unwrap();
            let told = icmpv6::Message::NeighbourAdvertisement {
                target: ours,
                solicited: true,
                overrides: true,
                mac: Some(MAC),
            };
            assert_eq!(icmpv6::Message::read(message, ip.source, ip.destination).unwrap().0, told);
            assert_eq!((ip.hop_limit, ip.destination), (255, peer));
        }
    }
}

#[test]
fn groups_are_reported_when_addresses_are_first_used_and_when_a_router_asks() {
    // RFC 3810: a switch that snoops on such reports lets these groups through to us.
    let mut stack = stack();
    stack.add_address("fe80::1/64".parse().unwrap());
    stack.add_address("fd00::5/64".parse().unwrap());
    stack.report_groups();
    let report = |kind: u8, frame: &[u8]| {
        let (link, packet) = ethernet::Header::read(frame).unwrap();
        assert_eq!(link.destination, Mac([0x33, 0x33, 0, 0, 0, 0x16]));
        let (ip, rest) = ipv6::Header::read(packet).unwrap();
        assert_eq!((ip.source, ip.hop_limit), ("fe80::1".parse().unwrap(), 1));
        assert_eq!(
            (ip.destination, rest[..4].to_vec()),
            (icmpv6::LISTENER_REPORTS, vec![58, 0, 5, 2])
        );
        let (protocol, report) = ipv6::upper_layer(ip.next_header, rest).unwrap();
        assert_eq!(protocol, Protocol::ICMPV6);
        let (message, body) = icmpv6::Message::read(report, ip.source, ip.destination).unwrap();
        assert_eq!(message, icmpv6::Message::Other(143, 0));
        // fd00::1 and fe80::1 share a solicited-node group.
        assert_eq!((report[7], body.len()), (2, 40));
        for (record, address) in body.chunks(20).zip(["fd00::1", "fd00::5"]) {
            let group = icmpv6::solicited_node(address.parse().unwrap());
            assert_eq!((&record[..4], &record[4..]), (&[kind, 0, 0, 0][..], &group.octets()[..]));
        }
    };
    let all: Ipv6Addr = "ff02::1".parse().unwrap();
    let query = |source: &str, hop_limit: u8| {
        let source: Ipv6Addr = source.parse().unwrap();
        let mut message = vec![0; 28];
        icmpv6::Message::ListenerQuery.emit(&mut message, source, all);
        let mut packet = vec![0; 40];
        ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: 36,
            next_header: Protocol::HOP_BY_HOP,
            hop_limit,
            source,
            destination: all,
        }
        .emit(&mut packet);
        packet.extend(ipv6::router_alert(Protocol::ICMPV6));
        packet.extend(message);
        ethernet(icmpv6::multicast_mac(all), EtherType::IPV6, &packet)
    };
    let first = exchange(&mut stack, &query("fe80::9", 255));
    assert_eq!(first.len(), 1);
    report(4, &first[0]);
    assert!(exchange(&mut stack, &query("fd00::9", 1)).is_empty(), "it is from another link");
    let again = exchange(&mut stack, &query("fe80::9", 1));
    assert_eq!(again.len(), 1);
    report(2, &again[0]);
}

#[test]
fn an_advertisement_without_an_address_confirms_a_neighbour() {
    // RFC 4861 §4.4 and §7.2.5: the answer to a unicast solicitation may leave it out.
    let mut stack = stack();
    let (ours, peer): (Ipv6Addr, Ipv6Addr) = (OUR_V6.parse().unwrap(), "fd00::2".parse().unwrap());
    let tell = |stack: &mut Stack, now, mac: Option<Mac>, overrides| {
        let bytes = if mac.is_some() { icmpv6::NEIGHBOUR_BYTES } else { 24 };
        let mut message = vec![0; bytes];
        let told = icmpv6::Message::NeighbourAdvertisement {
            target: peer,
            solicited: true,
            overrides,
            mac,
        };
        told.emit(&mut message, peer, ours);
        let mut packet = vec![0; 40];
        ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: u16::try_from(bytes).unwrap(),
            next_header: Protocol::ICMPV6,
            hop_limit: 255,
            source: peer,
            destination: ours,
        }
        .emit(&mut packet);
        packet.extend(message);
        stack.handle_frame(now, &Received::plain(&ethernet(MAC, EtherType::IPV6, &packet)));
    };
    let sent = |stack: &mut Stack, now| {
        let mut slot = vec![0; 2000];
        let mut sent = Vec::new();
        while stack.poll_transmit(now, &mut slot).is_some() {
            let (link, packet) = ethernet::Header::read(&slot).unwrap();
            sent.push((link.destination, ipv6::Header::read(packet).unwrap().0.next_header));
        }
        sent
    };
    let at = Instant::from_millis;
    let remote = |port| std::net::SocketAddr::new(peer.into(), port);
    stack.connect(at(0), None, remote(9)).unwrap();
    assert_eq!(sent(&mut stack, at(0)).len(), 1);
    tell(&mut stack, at(1), Some(OTHER), false);
    assert_eq!(sent(&mut stack, at(1)), [(OTHER, Protocol::TCP)]);
    // After half a minute the peer is solicited by unicast, and confirms that it is there.
    stack.connect(at(31_000), None, remote(10)).unwrap();
    let asked = sent(&mut stack, at(31_000));
    assert_eq!(asked.len(), 2);
    assert!(asked.contains(&(OTHER, Protocol::ICMPV6)));
    tell(&mut stack, at(31_001), None, false);
    stack.connect(at(60_000), None, remote(11)).unwrap();
    assert_eq!(sent(&mut stack, at(60_000)), [(OTHER, Protocol::TCP)]);
    // Another host's claim to the address is ignored, unless it sets the override flag.
    let third = Mac([2, 0, 0, 0, 0, 77]);
    tell(&mut stack, at(60_001), Some(third), false);
    stack.connect(at(60_002), None, remote(12)).unwrap();
    assert!(sent(&mut stack, at(60_002)).iter().all(|(mac, _)| *mac == OTHER));
    tell(&mut stack, at(60_003), Some(third), true);
    stack.connect(at(60_004), None, remote(13)).unwrap();
    assert_eq!(sent(&mut stack, at(60_004)), [(third, Protocol::TCP)]);
}

/// Builds a router's error for our segment at `seq`: too long for a link of this MTU.
fn too_big(lab: &Lab, seq: u32, mtu: u16) -> Vec<u8> {
    undeliverable(lab, seq, (icmpv4::FRAGMENTATION_NEEDED, mtu))
}

fn undeliverable(lab: &Lab, seq: u32, (code, mtu): (u8, u16)) -> Vec<u8> {
    let mut quoted = vec![0; 20];
    ipv4::Header {
        ttl: 60,
        ..ipv4::Header::whole(Protocol::TCP, OURS.parse().unwrap(), PEER.parse().unwrap(), 1500)
    }
    .emit(&mut quoted);
    quoted.extend(lab.our_port.to_be_bytes());
    quoted.extend(lab.peer_port.to_be_bytes());
    quoted.extend(lab.absolute(seq).to_be_bytes());
    let mut message = vec![0; 8];
    message.extend(quoted);
    icmpv4::Message::Unreachable { code, next_hop_mtu: mtu }.emit(&mut message);
    in_v4(OURS.parse().unwrap(), Protocol::ICMP, &message)
}

#[test]
fn a_path_that_is_too_narrow_gets_smaller_segments_and_no_lie_about_it_is_believed() {
    // RFC 1191 §6.4, RFC 5927 §4.
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1460,sackOK");
    lab.write(socket, 2920);
    assert_eq!(lab.take().len(), 2);
    let lie = too_big(&lab, 9000, 600);
    lab.stack.handle_frame(lab.now, &Received::plain(&lie));
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().path_mtu, 1500);
    let complaint = too_big(&lab, 1, 1000);
    lab.stack.handle_frame(lab.now, &Received::plain(&complaint));
    let again = lab.take();
    assert_eq!(again[..2], [". 1:961(960) ack 1", ". 961:1461(500) ack 1"]);
    let bytes: usize = again.len();
    assert_eq!(bytes, 4);
    // Not below the MTU that every path has.
    let complaint = too_big(&lab, 1, 68);
    lab.stack.handle_frame(lab.now, &Received::plain(&complaint));
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().path_mtu, 552);
}

#[test]
fn a_syn_with_data_that_is_too_long_goes_again_at_once_without() {
    // syn-data-icmp-unreach-frag-needed-with-seq.pkt.
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let peer = std::net::SocketAddr::new(PEER.parse().unwrap(), common::PEER_PORT);
    let socket = lab.stack.connect_fast(lab.now, None, peer, true).unwrap().socket();
    assert_eq!(lab.write(socket, 1000), 1000);
    assert_eq!(lab.take(), ["S 0:1000(1000) <mss 1460,sackOK,ts,ws 7>"]);
    let complaint = too_big(&lab, 0, 840);
    lab.stack.handle_frame(lab.now, &Received::plain(&complaint));
    assert_eq!(lab.take(), ["S 0:0(0) <mss 800,sackOK,ts,ws 7>"]);
    lab.wait(20);
    lab.send("S. 0:0(0) ack 1 win 5840 <mss 1040,sackOK>");
    assert_eq!(lab.take(), [". 1:801(800) ack 1", "P. 801:1001(200) ack 1"]);
    // Which SYN that answered cannot be told.
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.syn_data, info.round_trip), (false, None));
}

#[test]
fn a_router_says_why_a_connection_cannot_be_opened_and_nothing_of_one_that_is_open() {
    use ConnectionError::{
        HostUnknown, NetworkUnreachable, NoProtocol, Refused, Unreachable as HostUnreachable,
    };
    // icmp_err_convert: networks, hosts, what they do not have, and what is forbidden.
    let means = [
        (0, NetworkUnreachable),
        (1, HostUnreachable),
        (2, NoProtocol),
        (3, Refused),
        (7, HostUnknown),
        (9, NetworkUnreachable),
        (13, HostUnreachable),
    ];
    for (code, error) in means {
        let mut lab = Lab::new(Config::default());
        let peer = std::net::SocketAddr::new(PEER.parse().unwrap(), common::PEER_PORT);
        let socket = lab.stack.connect(lab.now, None, peer).unwrap();
        assert_eq!(lab.take().len(), 1);
        let complaint = undeliverable(&lab, 0, (code, 0));
        lab.stack.handle_frame(lab.now, &Received::plain(&complaint));
        assert_eq!(lab.stack.take_error(socket), Some(error), "{code}");
        let mut lab = Lab::new(Config::default());
        let socket = lab.accepted("mss 1460,sackOK");
        lab.write(socket, 100);
        lab.take();
        let complaint = undeliverable(&lab, 1, (code, 0));
        lab.stack.handle_frame(lab.now, &Received::plain(&complaint));
        assert_eq!(lab.stack.take_error(socket), None, "{code}");
        assert_eq!(lab.stack.state(socket), Some(State::Established), "{code}");
    }
}

#[test]
fn a_segment_in_a_frame_for_many_is_nobodys() {
    // RFC 1122 §4.2.3.10.
    let syn = |port: u16| {
        let fields = Fields {
            source_port: 4000,
            destination_port: port,
            seq: SeqNumber(1),
            ack: SeqNumber(0),
            flags: Flags::SYN,
            window: 1000,
        };
        let mut segment = [0; 20];
        let mut sum = Sum::default();
        sum.add_pseudo_v4(PEER.parse().unwrap(), OURS.parse().unwrap(), Protocol::TCP.0, 20);
        fields.emit_summed(&OptionSet::default(), &mut segment, &mut sum);
        segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
        in_v4(OURS.parse().unwrap(), Protocol::TCP, &segment)
    };
    let mut stack = stack();
    stack.listen(format!("{OURS}:80").parse().unwrap(), 5).unwrap();
    for (destination, taken) in
        [(Mac::BROADCAST, false), (Mac([1, 0, 0x5e, 0, 0, 1]), false), (MAC, true)]
    {
        // For a port with a listener, and for one without, which is answered with a reset.
        for port in [80, 81] {
            let before = stack.counters().not_for_us;
            let sent = exchange(&mut stack, &ethernet(destination, EtherType::IPV4, &syn(port)));
            let not_for_us = stack.counters().not_for_us - before;
            assert_eq!((!sent.is_empty(), not_for_us == 0), (taken, taken), "{destination:?}");
        }
    }
    assert_eq!(stack.connection_count(), 1);
}

#[test]
fn a_packet_of_ipv6_from_an_address_of_ipv4_is_nobodys() {
    let mut stack = stack();
    for (source, answers) in [("fd00::9", 1), ("::ffff:10.0.0.2", 0)] {
        let (source, ours): (Ipv6Addr, Ipv6Addr) =
            (source.parse().unwrap(), OUR_V6.parse().unwrap());
        // A SYN for a port without a listener, which is answered with a reset.
        let mut segment = [0; 20];
        let fields = Fields {
            source_port: 4000,
            destination_port: 80,
            seq: SeqNumber(1),
            ack: SeqNumber(0),
            flags: Flags::SYN,
            window: 1000,
        };
        let mut sum = Sum::default();
        sum.add_pseudo_v6(source, ours, Protocol::TCP.0, 20);
        fields.emit_summed(&OptionSet::default(), &mut segment, &mut sum);
        segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
        let mut packet = vec![0; 40];
        ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_bytes: 20,
            next_header: Protocol::TCP,
            hop_limit: 64,
            source,
            destination: ours,
        }
        .emit(&mut packet);
        packet.extend(segment);
        let before = stack.counters().not_for_us;
        let sent = exchange(&mut stack, &ethernet(MAC, EtherType::IPV6, &packet));
        assert_eq!(sent.len(), answers, "{source}");
        assert_eq!(stack.counters().not_for_us - before, 1 - answers as u64, "{source}");
    }
}

#[test]
fn all_packets_between_two_ends_have_one_flow_label_and_other_ends_another() {
    // RFC 6437. The segments of a train have it too: their headers are copied from the train's.
    let device = Capabilities { max_train_bytes: 65_000, ..Capabilities::plain(Medium::Ip, 1500) };
    let mut stack = Stack::new(Config::default(), device, MAC, [1; 32]);
    stack.add_address("fd00::1/64".parse().unwrap());
    let mut now = Instant::from_millis(5);
    let (ours, peer): (Ipv6Addr, Ipv6Addr) = (OUR_V6.parse().unwrap(), "fd00::2".parse().unwrap());
    let sent = |stack: &mut Stack, now| {
        let mut slot = vec![0; 70_000];
        let mut sent = Vec::new();
        while let Some(transmit) = stack.poll_transmit(now, &mut slot) {
            let frame = &slot[..transmit.frame_bytes as usize];
            let (ip, rest) = ipv6::Header::read(frame).unwrap();
            sent.push((ip.flow_label, rest.to_vec()));
        }
        sent
    };
    let heard = |stack: &mut Stack, now, (port, ours_is): (u16, u16), seq, ack, flags| {
        let fields = Fields {
            source_port: port,
            destination_port: ours_is,
            seq: SeqNumber(seq),
            ack,
            flags,
            window: 60_000,
        };
        let mut segment = [0; 20];
        let mut sum = Sum::default();
        sum.add_pseudo_v6(peer, ours, Protocol::TCP.0, 20);
        fields.emit_summed(&OptionSet::default(), &mut segment, &mut sum);
        segment[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.finish().to_be_bytes());
        let mut packet = vec![0; 40];
        ipv6::Header {
            traffic_class: 0,
            flow_label: 77,
            payload_bytes: 20,
            next_header: Protocol::TCP,
            hop_limit: 64,
            source: peer,
            destination: ours,
        }
        .emit(&mut packet);
        packet.extend(segment);
        stack.handle_frame(now, &Received::plain(&packet));
    };
    let mut labels = Vec::new();
    for port in [1000, 1001, 1002] {
        let local = format!("[{OUR_V6}]:50000").parse().unwrap();
        let remote = std::net::SocketAddr::new(peer.into(), port);
        let socket = stack.connect(now, Some(local), remote).unwrap();
        let syn = sent(&mut stack, now);
        let number = u32::from_be_bytes(syn[0].1[4..8].try_into().unwrap());
        let ends = (port, 50_000);
        now += std::time::Duration::from_millis(1);
        let ack = SeqNumber(number + 1);
        heard(&mut stack, now, ends, 1, ack, Flags::SYN.with(Flags::ACK));
        stack.send(now, socket, &[0; 9000], false).unwrap();
        let mut all = sent(&mut stack, now);
        assert!(all.iter().any(|(_, segment)| segment.len() > 2000), "a train");
        // The reset, and the answer to a segment that arrives after it.
        stack.abort(now, socket);
        all.extend(sent(&mut stack, now));
        stack.close(now, socket);
        heard(&mut stack, now, ends, 2, ack, Flags::ACK);
        let last = sent(&mut stack, now);
        assert_eq!(last.len(), 1);
        all.extend(last);
        let label = syn[0].0;
        assert!((1..1 << 20).contains(&label));
        assert!(all.iter().all(|(other, _)| *other == label), "{all:?}");
        labels.push(label);
    }
    assert!(labels[0] != labels[1] && labels[1] != labels[2]);
    let socket = stack.udp_bind(format!("[{OUR_V6}]:53").parse().unwrap()).unwrap();
    for _ in 0..2 {
        let to = std::net::SocketAddr::new(peer.into(), 1000);
        stack.udp_send(socket, Some(to), b"question").unwrap();
    }
    let datagrams = sent(&mut stack, now);
    assert!(datagrams[0].0 != 0 && datagrams[0].0 == datagrams[1].0);
}
