//! Datagrams between two stacks: which socket gets them, who is told that none did, and what the
//! network may do.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use uncork_packet::{Capabilities, Medium};
use uncork_sim::{Conditions, Pair, Setup};
use uncork_stack::{Event, Ready, UdpError, UdpId};

use crate::common::delayed;

const PORT: u16 = 53;

/// Binds a server to all addresses, and connects a client to it.
fn opened(setup: &Setup) -> (Pair, UdpId, UdpId) {
    let mut pair = Pair::new(setup);
    let any: IpAddr =
        if setup.ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let server = pair.hosts[1].stack.udp_bind(SocketAddr::new(any, PORT)).unwrap();
    let client = pair.hosts[0].stack.udp_bind(SocketAddr::new(any, 0)).unwrap();
    let remote = SocketAddr::new(pair.hosts[1].address, PORT);
    pair.hosts[0].stack.udp_connect(client, Some(remote)).unwrap();
    (pair, client, server)
}

fn setups() -> impl Iterator<Item = Setup> {
    let media = [Medium::Ip, Medium::Ethernet];
    media.into_iter().flat_map(|medium| {
        [(false, false), (false, true), (true, false)].map(|(ipv6, completes)| {
            let device = Capabilities {
                completes_checksums: completes,
                ..Capabilities::plain(medium, 1500)
            };
            Setup { ipv6, devices: [device; 2], ..delayed(5) }
        })
    })
}

#[test]
fn a_datagram_goes_there_and_an_answer_comes_back() {
    for setup in setups() {
        let (mut pair, client, server) = opened(&setup);
        let mut buffer = [0; 2000];
        assert_eq!(pair.hosts[0].stack.udp_receive(client, &mut buffer), Err(UdpError::WouldBlock));
        // Two, so that the second waits for the neighbour after the first; one is empty.
        pair.hosts[0].stack.udp_send(client, None, b"how much?").unwrap();
        pair.hosts[0].stack.udp_send(client, None, b"").unwrap();
        pair.run_for(Duration::from_millis(100));
        let there = Event::Udp(server, Ready::READABLE);
        assert!(pair.hosts[1].events.contains(&there), "{setup:?}");
        let got = pair.hosts[1].stack.udp_receive(server, &mut buffer).unwrap();
        assert_eq!(&buffer[..got.bytes], b"how much?");
        let (local, _) = pair.hosts[0].stack.udp_ends(client).unwrap();
        assert_eq!((got.from, got.to), (local, pair.hosts[1].address));
        let second = pair.hosts[1].stack.udp_receive(server, &mut buffer).unwrap();
        assert_eq!((second.bytes, second.whole_bytes), (0, 0));
        pair.hosts[1].stack.udp_send(server, Some(got.from), &[7; 1452]).unwrap();
        pair.run_for(Duration::from_millis(100));
        let mut short = [0; 10];
        let got = pair.hosts[0].stack.udp_receive(client, &mut short).unwrap();
        assert_eq!((got.bytes, got.whole_bytes, short), (10, 1452, [7; 10]));
    }
}

#[test]
fn a_closed_port_is_told_to_who_is_connected_and_to_nobody_else() {
    // RFC 1122 §4.1.3.1 and §4.1.3.3.
    for setup in setups() {
        let (mut pair, client, server) = opened(&setup);
        pair.hosts[1].stack.udp_close(server);
        let stranger = SocketAddr::new(pair.hosts[0].address, 999);
        let loose = pair.hosts[0].stack.udp_bind(stranger).unwrap();
        let remote = SocketAddr::new(pair.hosts[1].address, PORT);
        pair.hosts[0].stack.udp_send(client, None, &[1; 1000]).unwrap();
        pair.hosts[0].stack.udp_send(loose, Some(remote), b"?").unwrap();
        pair.run_for(Duration::from_millis(100));
        let told = Event::Udp(client, Ready::ERROR | Ready::READABLE | Ready::WRITABLE);
        assert!(pair.hosts[0].events.contains(&told), "{setup:?}: {:?}", pair.hosts[0].events);
        let mut buffer = [0; 10];
        let stack = &mut pair.hosts[0].stack;
        assert_eq!(stack.udp_send(client, None, b"?"), Err(UdpError::Refused));
        assert_eq!(stack.udp_receive(client, &mut buffer), Err(UdpError::WouldBlock));
        assert_eq!(stack.udp_receive(loose, &mut buffer), Err(UdpError::WouldBlock));
        assert_eq!(pair.hosts[1].stack.counters().udp_no_ports, 2);
    }
}

#[test]
fn errors_are_bounded() {
    // RFC 4443 §2.4 f; fifty at once, and a thousand a second.
    let (mut pair, client, server) = opened(&Setup::default());
    pair.hosts[1].stack.udp_close(server);
    let answered = |pair: &mut Pair| {
        for _ in 0..100 {
            let _ = pair.hosts[0].stack.udp_send(client, None, b"?");
            let _ = pair.hosts[0].stack.udp_send(client, None, b"?");
        }
        pair.reset_tally(1);
        pair.drive();
        pair.tally(1).sent
    };
    assert_eq!(answered(&mut pair), 50);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(answered(&mut pair), 20);
}

#[test]
fn the_socket_that_says_most_exactly_what_it_wants_gets_it() {
    let (mut pair, client, any) = opened(&Setup::default());
    let (ours, _) = pair.hosts[0].stack.udp_ends(client).unwrap();
    let address = pair.hosts[1].address;
    let server = &mut pair.hosts[1].stack;
    let at = SocketAddr::new(address, PORT);
    assert_eq!(server.udp_bind(at), Err(UdpError::AddressInUse));
    let elsewhere = SocketAddr::new("10.0.0.77".parse().unwrap(), PORT);
    assert_eq!(server.udp_bind(elsewhere), Err(UdpError::NotOurs));
    // A socket that is connected to another peer gets nothing.
    let other = server.udp_bind(SocketAddr::new(address, PORT + 1)).unwrap();
    server.udp_connect(other, Some(SocketAddr::new(ours.ip(), ours.port() ^ 1))).unwrap();
    pair.hosts[0].stack.udp_send(client, Some(SocketAddr::new(address, PORT + 1)), b"a").unwrap();
    pair.hosts[0].stack.udp_send(client, None, b"b").unwrap();
    pair.run_for(Duration::from_millis(10));
    let mut buffer = [0; 10];
    let server = &mut pair.hosts[1].stack;
    assert_eq!(server.udp_receive(other, &mut buffer), Err(UdpError::WouldBlock));
    assert_eq!(server.udp_receive(any, &mut buffer).unwrap().bytes, 1);
    // Connected to the right peer it gets that one's only; at the end it is disconnected again.
    server.udp_connect(other, Some(ours)).unwrap();
    let free = pair.hosts[0].stack.udp_bind(SocketAddr::new(ours.ip(), 0)).unwrap();
    for socket in [client, free] {
        let to = SocketAddr::new(address, PORT + 1);
        pair.hosts[0].stack.udp_send(socket, Some(to), b"c").unwrap();
    }
    pair.run_for(Duration::from_millis(10));
    let server = &mut pair.hosts[1].stack;
    assert_eq!(server.udp_receive(other, &mut buffer).unwrap().from, ours);
    assert_eq!(server.udp_receive(other, &mut buffer), Err(UdpError::WouldBlock));
    server.udp_connect(other, None).unwrap();
    assert_eq!(server.udp_ends(other).unwrap().1, None);
}

#[test]
fn queues_are_bounded_both_ways_and_who_waited_for_room_is_told() {
    let mut setup = Setup::default();
    for config in &mut setup.configs {
        config.udp_send_bytes = 10_000;
        config.udp_receive_bytes = 5_000;
    }
    let (mut pair, client, server) = opened(&setup);
    let stack = &mut pair.hosts[0].stack;
    assert_eq!(stack.udp_send(client, None, &[0; 1473]), Err(UdpError::TooLong));
    let nobody = stack.udp_bind("10.0.0.1:7".parse().unwrap()).unwrap();
    assert_eq!(stack.udp_send(nobody, None, b"?"), Err(UdpError::NoDestination));
    let far = Some("192.0.2.1:9".parse().unwrap());
    assert_eq!(stack.udp_send(nobody, far, b"?"), Err(UdpError::NoRoute));
    let sent = (0..).take_while(|_| stack.udp_send(client, None, &[0; 936]).is_ok()).count();
    assert_eq!(sent, 10);
    pair.drive();
    assert!(pair.hosts[0].events.contains(&Event::Udp(client, Ready::WRITABLE)));
    let server_stack = &mut pair.hosts[1].stack;
    let mut buffer = [0; 2000];
    let got = (0..).take_while(|_| server_stack.udp_receive(server, &mut buffer).is_ok()).count();
    assert_eq!((got, server_stack.counters().udp_receive_drops), (5, 5));
}

#[test]
fn who_does_not_answer_holds_nobody_else_up_and_is_given_up() {
    let device = Capabilities::plain(Medium::Ethernet, 1500);
    let setup = Setup { devices: [device; 2], ..delayed(1) };
    let (mut pair, client, server) = opened(&setup);
    let silent = Some("10.0.0.99:5".parse().unwrap());
    pair.hosts[0].stack.udp_send(client, silent, b"anybody?").unwrap();
    pair.hosts[0].stack.udp_send(client, None, b"you").unwrap();
    pair.run_for(Duration::from_millis(100));
    let mut buffer = [0; 10];
    assert_eq!(pair.hosts[1].stack.udp_receive(server, &mut buffer).unwrap().bytes, 3);
    pair.run_for(Duration::from_secs(10));
    assert_eq!((pair.next(), pair.hosts[0].stack.counters().udp_out), (None, 1));
}

#[test]
fn what_a_bad_path_does_to_datagrams_never_changes_one() {
    let bad = Conditions {
        loss: 0.2,
        reorder: 0.3,
        jitter: Duration::from_millis(20),
        duplicate: 0.2,
        corrupt: 0.3,
        delay: Duration::from_millis(3),
        ..Conditions::default()
    };
    for seed in 0..20 {
        let setup = Setup { seed, ipv6: seed % 2 == 0, ..Setup::both(bad) };
        let (mut pair, client, server) = opened(&setup);
        for n in 0..100u8 {
            pair.hosts[0].stack.udp_send(client, None, &vec![n; usize::from(n) * 10]).unwrap();
            pair.run_for(Duration::from_millis(2));
        }
        pair.run_for(Duration::from_secs(1));
        let mut buffer = [0; 2000];
        let mut got = 0;
        while let Ok(one) = pair.hosts[1].stack.udp_receive(server, &mut buffer) {
            let n = u8::try_from(one.bytes / 10).unwrap();
            assert!(buffer[..one.bytes].iter().all(|&octet| octet == n), "seed {seed}");
            got += 1;
        }
        assert!((30..150).contains(&got), "{got}");
    }
}
