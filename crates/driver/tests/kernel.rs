//! The kernel's own TCP talks to a program over the ports.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uncork_driver::{Disturb, Driver, Record, af_packet, clock, tap};
use uncork_netns::Namespace;
use uncork_packet::{Medium, Trust};
use uncork_path::Path;

use crate::common::{
    self, KERNELS, LONG, Link, OURS, Peer, mac_of, pattern, receive_until, skipped,
};

const UP_BYTES: usize = 400_000;
const DOWN_BYTES: usize = 3_000_000;
const PORT: u16 = 4000;

/// Starts a kernel's server that takes `UP_BYTES`, gives `DOWN_BYTES`, and returns what it got.
fn server(namespace: &Namespace) -> JoinHandle<Vec<u8>> {
    let listener = namespace.within(|| Ok(TcpListener::bind((KERNELS, PORT))?)).unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut got = vec![0; UP_BYTES];
        stream.read_exact(&mut got).unwrap();
        stream.write_all(&pattern(DOWN_BYTES)).unwrap();
        got
    })
}

/// Transfers both ways at length; returns the longest frame that came and whether any was a train.
fn talk(mut peer: Peer<'_>, server: JoinHandle<Vec<u8>>) -> (usize, bool) {
    let up = pattern(UP_BYTES);
    for train in up.chunks(40 * 1460) {
        peer.send(train, 1460);
    }
    let down = peer.receive(DOWN_BYTES);
    assert!(down == pattern(DOWN_BYTES), "the kernel's octets came changed");
    assert!(server.join().unwrap() == up, "ours came to the kernel changed");
    let longest = peer.came.iter().map(|came| came.bytes.len()).max().unwrap();
    (longest, peer.came.iter().any(|came| came.segment_bytes.is_some()))
}

fn over_tap(label: &str, medium: Medium, offload: bool) -> (usize, bool) {
    let namespace = Namespace::new(label).unwrap();
    let settings = tap::Settings { device: "eth0".to_owned(), medium, mtu: Some(1500), offload };
    let mut port = namespace.within(move || Ok(tap::Port::open(&settings)?)).unwrap();
    assert_eq!(port.capabilities().mtu, 1500);
    namespace.ip("link set eth0 up").unwrap();
    namespace.ip(&format!("address add {KERNELS}/24 dev eth0")).unwrap();
    let mac = (medium == Medium::Ethernet).then(|| {
        let to = common::text(common::OUR_MAC);
        namespace.ip(&format!("neigh add {OURS} lladdr {to} dev eth0")).unwrap();
        mac_of(&namespace)
    });
    let server = server(&namespace);
    talk(Peer::connect(&mut port, mac, PORT, offload), server)
}

fn over_packets(label: &str, ethtool: &str, offload: bool) -> (usize, bool) {
    let link = Link::new(label).with_address();
    if !ethtool.is_empty() {
        link.ethtool(ethtool);
    }
    let mut port = link.port(af_packet::Settings::new("eth0"));
    let server = server(&link.kernels);
    let mac = mac_of(&link.kernels);
    let found = talk(Peer::connect(&mut port, Some(mac), PORT, offload), server);
    let statistics = port.statistics().unwrap();
    assert!(statistics.received > 0);
    assert_eq!((statistics.lost, statistics.left_aside), (0, 0));
    found
}

#[test]
fn a_tap_carries_trains_both_ways() {
    if skipped("a_tap_carries_trains_both_ways") {
        return;
    }
    let (longest, trains) = over_tap("tap", Medium::Ethernet, true);
    assert!(trains && longest > 10_000, "the longest frame had {longest} octets");
}

#[test]
fn a_tun_carries_trains_both_ways() {
    if skipped("a_tun_carries_trains_both_ways") {
        return;
    }
    let (longest, trains) = over_tap("tun", Medium::Ip, true);
    assert!(trains && longest > 10_000, "the longest packet had {longest} octets");
}

#[test]
fn a_tap_without_offload_is_like_a_wire() {
    if skipped("a_tap_without_offload_is_like_a_wire") {
        return;
    }
    assert_eq!(over_tap("tapwire", Medium::Ethernet, false), (1514, false));
}

#[test]
fn a_packet_socket_carries_trains_both_ways() {
    if skipped("a_packet_socket_carries_trains_both_ways") {
        return;
    }
    let (longest, trains) = over_packets("pkt", "", true);
    assert!(trains && longest > 10_000, "the longest frame had {longest} octets");
}

#[test]
fn a_device_that_can_do_nothing_gets_whole_segments_of_our_trains() {
    if skipped("a_device_that_can_do_nothing_gets_whole_segments_of_our_trains") {
        return;
    }
    let off = "-K eth0 tx off rx off tso off gso off gro off sg off";
    let (longest, trains) = over_packets("pktoff", off, true);
    assert_eq!((longest, trains), (1514, false));
}

#[test]
fn a_packet_socket_carries_frames_that_are_complete() {
    if skipped("a_packet_socket_carries_frames_that_are_complete") {
        return;
    }
    over_packets("pktplain", "", false);
}

#[test]
fn what_never_was_on_a_wire_is_trusted_and_nothing_else() {
    if skipped("what_never_was_on_a_wire_is_trusted_and_nothing_else") {
        return;
    }
    for (label, ethtool, trust) in
        [("trust", "-K eth0 tx on", Trust::Good), ("doubt", "-K eth0 tx off", Trust::Unknown)]
    {
        let link = Link::new(label).with_address();
        link.ethtool(ethtool);
        let mut port = link.port(af_packet::Settings::new("eth0"));
        let socket = link.kernels.within(|| Ok(UdpSocket::bind((KERNELS, 5000))?)).unwrap();
        socket.send_to(b"a datagram", (OURS, 5001)).unwrap();
        let came = receive_until(&mut port, |came| !came.is_empty());
        assert!(came[0].bytes.ends_with(b"a datagram"), "{came:?}");
        assert_eq!(came[0].trust, trust, "{ethtool}");
    }
}

#[test]
fn a_disturbed_port_wakes_when_frames_are_due() {
    if skipped("a_disturbed_port_wakes_when_frames_are_due") {
        return;
    }
    let link = Link::new("slow").with_address();
    let port = link.port(af_packet::Settings::new("eth0"));
    let path = Path { delay: Duration::from_millis(20), ..Path::default() };
    let port = Disturb::new(port, path.clone(), path, clock::clock()).unwrap();
    let mut port = Record::new(port, std::io::sink(), "eth0", clock::wall_clock());
    let server = server(&link.kernels);
    let begun = Instant::now();
    let mac = mac_of(&link.kernels);
    let peer = Peer::connect(&mut port, Some(mac), PORT, false);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(40), "connecting took {took:?}");
    talk(peer, server);
    assert!(port.outcome().frames > 300);
}
