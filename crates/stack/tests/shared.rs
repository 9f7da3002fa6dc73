//! A stack that shares its addresses with the host's kernel.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use uncork_packet::{Capabilities, Instant, Medium, Received, Trust};
use uncork_stack::{
    Change, Config, ConnectError, ConnectionError, Event, Found, ListenError, ListenerId,
    Listening, Mac, Ready, SocketOption, Stack, State,
};
use uncork_wire::checksum::Sum;
use uncork_wire::ethernet::{self, EtherType};
use uncork_wire::tcp::{Fields, Flags, Header, OptionSet};
use uncork_wire::{Protocol, SeqNumber, arp, icmpv4, icmpv6, ipv4, ipv6};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const PORT: u16 = 80;
const PEER_PORT: u16 = 40_000;
const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const ROUTER: Mac = Mac([2, 0, 0, 0, 0, 9]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 8]);
const PEER_ISS: SeqNumber = SeqNumber(5000);

struct Host {
    stack: Stack,
    now: Instant,
}

/// A frame that has left: its destination, and the segment in it.
#[derive(Debug)]
struct Sent {
    to: Mac,
    flags: Flags,
    seq: SeqNumber,
    ack: SeqNumber,
    bytes: usize,
    mss: Option<u16>,
}

impl Host {
    fn new() -> Self {
        let config = Config { shares_addresses: true, ..Config::default() };
        let device = Capabilities::plain(Medium::Ethernet, 1500);
        let mut stack = Stack::new(config, device, MAC, [1; 32]);
        stack.add_address(format!("{OURS}/24").parse().unwrap());
        Self { stack, now: Instant::from_millis(1000) }
    }

    fn frame(&mut self, ethertype: EtherType, packet: &[u8]) {
        let mut frame = vec![0; 14];
        ethernet::Header { destination: MAC, source: ROUTER, ethertype }.emit(&mut frame);
        frame.extend(packet);
        self.stack.handle_frame(self.now, &Received::plain(&frame));
    }

    fn v4(&mut self, protocol: Protocol, payload: &[u8]) {
        let mut packet = vec![0; 20];
        let total = u16::try_from(20 + payload.len()).unwrap();
        ipv4::Header::whole(protocol, PEER, OURS, total).emit(&mut packet);
        packet.extend(payload);
        self.frame(EtherType::IPV4, &packet);
    }

    /// Delivers a segment of the peer's to a port of ours.
    fn segment(&mut self, port: u16, flags: Flags, seq: SeqNumber, ack: SeqNumber) {
        self.segment_from((PEER_PORT, port), flags, seq, ack);
    }

    /// Delivers a segment from `ports.0` of the peer's to our `ports.1`.
    fn segment_from(&mut self, ports: (u16, u16), flags: Flags, seq: SeqNumber, ack: SeqNumber) {
        let fields = Fields {
            source_port: ports.0,
            destination_port: ports.1,
            seq,
            ack,
            flags,
            window: 60_000,
        };
        let mut segment = vec![0; 60];
        let bytes = fields.emit(&OptionSet::default(), &mut segment);
        segment.truncate(bytes);
        let mut sum = Sum::default();
        sum.add_pseudo_v4(PEER, OURS, 6, u32::try_from(segment.len()).unwrap());
        sum.add(&segment);
        segment[16..18].copy_from_slice(&sum.finish().to_be_bytes());
        self.v4(Protocol::TCP, &segment);
    }

    /// Returns what leaves now. Nothing but TCP may.
    fn take(&mut self) -> Vec<Sent> {
        let mut slot = vec![0; 2000];
        let mut sent = Vec::new();
        while let Some(transmit) = self.stack.poll_transmit(self.now, &mut slot) {
            let frame = &slot[..transmit.frame_bytes as usize];
            let (link, packet) = ethernet::Header::read(frame).unwrap();
            assert_eq!((link.ethertype, link.source), (EtherType::IPV4, MAC));
            let (ip, tcp) = ipv4::Header::read(packet).unwrap();
            assert_eq!(ip.protocol, Protocol::TCP);
            let header = Header::read(tcp, tcp.len()).unwrap();
            sent.push(Sent {
                to: link.destination,
                flags: header.flags(),
                seq: header.seq(),
                ack: header.ack().unwrap_or_default(),
                bytes: tcp.len() - header.header_bytes(),
                mss: header.option_set().mss,
            });
        }
        sent
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.stack.poll_event()).collect()
    }

    /// Returns the neighbours that are asked for.
    fn asked(&mut self) -> Vec<IpAddr> {
        let asked =
            |event| if let Event::Neighbour(address) = event { Some(address) } else { None };
        self.events().into_iter().filter_map(asked).collect()
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.stack.poll_timeout().filter(|&due| due <= until) {
            self.now = self.now.max(due);
            self.stack.handle_timeout(self.now);
        }
        self.now = until;
    }

    fn told(&mut self, found: Found) {
        self.stack.set_neighbour(self.now, PEER.into(), found);
    }

    fn listens(&mut self) -> ListenerId {
        self.stack.listen(SocketAddr::new(OURS.into(), PORT), 5).unwrap()
    }

    fn connects(&mut self) -> uncork_stack::SocketId {
        let local = SocketAddr::new(OURS.into(), 50_000);
        self.stack.connect(self.now, Some(local), (PEER, PEER_PORT).into()).unwrap()
    }
}

fn at(mac: Mac) -> Found {
    Found::At { mac, mtu: None }
}

#[test]
fn what_the_kernel_answers_is_not_answered() {
    let mut host = Host::new();
    let mut packet = vec![0; arp::PACKET_BYTES];
    arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: ROUTER,
        sender: PEER,
        target_mac: Mac::default(),
        target: OURS,
    }
    .emit(&mut packet);
    host.frame(EtherType::ARP, &packet);
    let mut echo = vec![0; 16];
    icmpv4::Message::EchoRequest(3, 4).emit(&mut echo);
    host.v4(Protocol::ICMP, &echo);
    // A datagram to a port that nothing is bound to.
    host.v4(Protocol::UDP, &[0, 9, 0, 9, 0, 8, 0, 0]);
    assert!(host.take().is_empty());
    assert_eq!(host.asked(), [] as [IpAddr; 0]);
}

#[test]
fn neither_are_solicitations() {
    let mut host = Host::new();
    host.stack.add_address("fd00::1/64".parse().unwrap());
    let (ours, peer) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let mut message = vec![0; icmpv6::NEIGHBOUR_BYTES];
    icmpv6::Message::NeighbourSolicitation { target: ours, source: Some(ROUTER) }.emit(
        &mut message,
        peer,
        ours,
    );
    let mut packet = vec![0; 40];
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_bytes: 32,
        next_header: Protocol::ICMPV6,
        hop_limit: 255,
        source: peer,
        destination: ours,
    }
    .emit(&mut packet);
    packet.extend(message);
    host.frame(EtherType::IPV6, &packet);
    assert!(host.take().is_empty());
}

#[test]
fn only_a_port_with_a_listener_resets_and_not_while_it_was_just_taken_over() {
    let mut host = Host::new();
    host.segment(PORT, Flags::ACK, PEER_ISS, SeqNumber(7));
    host.segment(PORT, Flags::SYN, PEER_ISS, SeqNumber(0));
    assert!(host.take().is_empty(), "it is the kernel's");
    host.stack.quiet_until(PORT, host.now + Duration::from_millis(500));
    let listener = host.listens();
    host.segment(PORT, Flags::ACK, PEER_ISS, SeqNumber(7));
    assert!(host.take().is_empty(), "it may be the kernel's");
    host.wait(Duration::from_millis(500));
    host.segment(PORT, Flags::ACK, PEER_ISS, SeqNumber(7));
    let sent = host.take();
    assert_eq!((sent.len(), sent[0].flags, sent[0].to), (1, Flags::RST, ROUTER));
    // Once its last listener is leaving, the port may be the kernel's again.
    host.stack.leave_listener(listener);
    host.segment(PORT, Flags::ACK, PEER_ISS, SeqNumber(7));
    assert!(host.take().is_empty(), "it may be the kernel's");
    // A port that the stack connects from is not its alone.
    host.stack.close_listener(host.now, listener);
    let local = SocketAddr::new(OURS.into(), 50_000);
    host.stack.connect(host.now, Some(local), (PEER, PORT).into()).unwrap();
    host.segment(50_000, Flags::ACK, PEER_ISS + 9, SeqNumber(7));
    host.told(at(ROUTER));
    let sent = host.take();
    assert!(sent.iter().all(|sent| sent.flags == Flags::SYN), "{sent:?}");
}

#[test]
fn a_connection_is_over_for_its_peer_before_nothing_is_left_of_it() {
    let mut host = Host::new();
    let listener = host.listens();
    let (local, remote) = ((OURS, PORT).into(), (PEER, PEER_PORT).into());
    host.segment(PORT, Flags::SYN, PEER_ISS, SeqNumber(0));
    let first = host.take()[0].seq;
    host.segment(PORT, Flags::ACK, PEER_ISS + 1, first + 1);
    let socket = host.stack.accept(listener).unwrap();
    assert_eq!(host.stack.poll_change(), Some(Change::Came { place: 0, local, remote }));
    host.stack.close(host.now, socket);
    host.take();
    host.segment(PORT, Flags::ACK, PEER_ISS + 1, first + 2);
    assert_eq!(host.stack.poll_change(), None, "the peer has not ended");
    for _ in 0..2 {
        host.segment(PORT, Flags::FIN.with(Flags::ACK), PEER_ISS + 1, first + 2);
    }
    assert_eq!(host.stack.poll_change(), Some(Change::Over { place: 0 }));
    assert_eq!(host.stack.poll_change(), None, "it is told once");
    host.take();
    host.wait(Duration::from_secs(61));
    assert_eq!(host.stack.poll_change(), Some(Change::Went { place: 0 }));
    assert_eq!(host.stack.poll_change(), Some(Change::Left { place: 0 }));
}

#[test]
fn who_speaks_to_what_was_given_up_is_reset_at_once() {
    // The kernel sees none of it before it is told that the connection is no longer the stack's.
    let mut host = Host::new();
    host.told(at(ROUTER));
    let socket = host.connects();
    host.told(at(ROUTER));
    let first = host.take()[0].seq;
    host.segment(50_000, Flags::SYN.with(Flags::ACK), PEER_ISS, first + 1);
    host.stack.close(host.now, socket);
    host.take();
    host.segment(50_000, Flags::ACK, PEER_ISS + 1, first + 2);
    host.wait(Duration::from_secs(61));
    let changes: Vec<_> = std::iter::from_fn(|| host.stack.poll_change()).collect();
    assert_eq!(changes.last(), Some(&Change::Left { place: 0 }), "FIN-WAIT-2 is over");
    let fin = Flags::FIN.with(Flags::ACK);
    host.segment(50_000, fin, PEER_ISS + 1, first + 2);
    let sent = host.take();
    assert_eq!((sent.len(), sent[0].flags, sent[0].seq), (1, Flags::RST, first + 2));
    assert_eq!(sent[0].to, ROUTER);
    // What may be the kernel's: a segment of another connection, and a SYN.
    host.segment_from((PEER_PORT + 1, 50_000), fin, PEER_ISS + 1, first + 2);
    host.segment(50_000, Flags::SYN, PEER_ISS + 9000, SeqNumber(0));
    assert!(host.take().is_empty());
    host.wait(Duration::from_secs(10));
    host.segment(50_000, fin, PEER_ISS + 1, first + 2);
    assert!(host.take().is_empty(), "the kernel has it by now");
}

#[test]
fn what_is_reset_has_gone_for_its_peer_before_its_user_lets_go_of_it() {
    let mut host = Host::new();
    let listener = host.listens();
    let (local, remote) = ((OURS, PORT).into(), (PEER, PEER_PORT).into());
    let open = |host: &mut Host, place, iss: SeqNumber| {
        host.segment(PORT, Flags::SYN, iss, SeqNumber(0));
        let first = host.take()[0].seq;
        host.segment(PORT, Flags::ACK, iss + 1, first + 1);
        assert_eq!(host.stack.poll_change(), Some(Change::Came { place, local, remote }));
        host.stack.accept(listener).unwrap()
    };
    let socket = open(&mut host, 0, PEER_ISS);
    host.segment(PORT, Flags::RST, PEER_ISS + 1, SeqNumber(0));
    assert_eq!(host.stack.poll_change(), Some(Change::Went { place: 0 }));
    assert_eq!(host.stack.poll_change(), None);
    open(&mut host, 1, PEER_ISS + 5000);
    host.stack.close(host.now, socket);
    assert_eq!(host.stack.poll_change(), Some(Change::Left { place: 0 }));
    assert_eq!(host.stack.poll_change(), None);
}

#[test]
fn a_reset_for_who_does_not_answer_any_more_is_not_kept() {
    let mut host = Host::new();
    let listener = host.listens();
    for ends in [Stack::abort, Stack::close] {
        host.told(at(ROUTER));
        host.segment(PORT, Flags::SYN, PEER_ISS, SeqNumber(0));
        let first = host.take()[0].seq;
        host.segment(PORT, Flags::ACK, PEER_ISS + 1, first + 1);
        let socket = host.stack.accept(listener).unwrap();
        host.stack.set_option(host.now, socket, SocketOption::Linger(Some(0)));
        host.told(Found::Unreachable);
        ends(&mut host.stack, host.now, socket);
        host.stack.close(host.now, socket);
        assert!(host.take().is_empty(), "nobody knows where to");
        assert_eq!(host.stack.connection_count(), 1);
        host.told(Found::Unreachable);
        assert_eq!((host.stack.connection_count(), host.stack.is_quiet()), (0, true));
        host.events();
        host.wait(Duration::from_secs(5));
        assert_eq!(host.asked(), [] as [IpAddr; 0], "and nobody asks any more");
    }
}

#[test]
fn a_connection_waits_for_the_answer_and_follows_it() {
    let mut host = Host::new();
    let nobody = host.stack.connect(host.now, None, (PEER, PEER_PORT).into());
    assert_eq!(nobody, Err(ConnectError::NoPort));
    let socket = host.connects();
    assert!(host.stack.has_events());
    assert_eq!(host.asked(), [IpAddr::V4(PEER)]);
    assert!(host.take().is_empty() && !host.stack.has_events());
    host.told(Found::At { mac: OTHER, mtu: Some(1400) });
    let sent = host.take();
    assert_eq!((sent.len(), sent[0].to), (1, OTHER));
    let syn = sent[0].seq;
    host.segment(50_000, Flags::SYN.with(Flags::ACK), PEER_ISS, syn + 1);
    assert_eq!(host.take()[0].to, OTHER);
    host.told(at(ROUTER));
    host.stack.send(host.now, socket, &[7; 100], false).unwrap();
    assert_eq!(host.take()[0].to, ROUTER);
    assert_eq!(host.stack.info(host.now, socket).unwrap().path_mtu, 1400);
    // An MTU that is known beforehand is announced.
    let local = SocketAddr::new(OURS.into(), 50_001);
    host.told(Found::At { mac: ROUTER, mtu: Some(1300) });
    host.stack.connect(host.now, Some(local), (PEER, PEER_PORT).into()).unwrap();
    let syn = host.take().into_iter().find(|sent| sent.flags == Flags::SYN).unwrap();
    assert_eq!(syn.mss, Some(1260));
    assert_eq!(host.stack.info(host.now, socket).unwrap().path_mtu, 1300);
}

#[test]
fn who_cannot_be_reached_fails_what_is_not_open_and_is_asked_for_once_a_second() {
    let mut host = Host::new();
    let socket = host.connects();
    assert_eq!(host.asked().len(), 1);
    assert!(host.take().is_empty());
    host.told(Found::Unreachable);
    assert_eq!(host.stack.take_error(socket), Some(ConnectionError::Unreachable));
    host.stack.close(host.now, socket);
    host.wait(Duration::from_secs(5));
    assert_eq!(host.asked(), [] as [IpAddr; 0], "nobody waits for it");

    let socket = host.connects();
    assert_eq!(host.asked().len(), 1);
    host.told(at(ROUTER));
    let syn = host.take()[0].seq;
    host.segment(50_000, Flags::SYN.with(Flags::ACK), PEER_ISS, syn + 1);
    host.take();
    host.told(Found::Unreachable);
    host.stack.send(host.now, socket, &[7; 100], false).unwrap();
    for _ in 0..3 {
        for _ in 0..3 {
            assert!(host.take().is_empty());
            assert_eq!(host.asked(), [] as [IpAddr; 0], "not again at once");
        }
        host.wait(Duration::from_secs(1));
        assert_eq!(host.asked().len(), 1);
        host.told(Found::Unreachable);
    }
    assert_eq!(host.stack.state(socket), Some(State::Established));
    host.take();
    host.told(at(OTHER));
    assert_eq!(host.take()[0].to, OTHER);
}

#[test]
fn without_any_answer_a_connection_fails_and_a_way_that_was_known_goes_on() {
    let mut host = Host::new();
    let socket = host.connects();
    host.take();
    host.wait(Duration::from_secs(4));
    assert_eq!(host.asked(), [IpAddr::V4(PEER); 3]);
    assert_eq!(host.stack.take_error(socket), Some(ConnectionError::Unreachable));
    host.stack.close(host.now, socket);

    let socket = host.connects();
    host.told(at(ROUTER));
    let syn = host.take()[0].seq;
    host.segment(50_000, Flags::SYN.with(Flags::ACK), PEER_ISS, syn + 1);
    host.take();
    host.asked();
    host.wait(Duration::from_secs(40));
    host.stack.send(host.now, socket, &[7; 100], false).unwrap();
    assert_eq!(host.take()[0].to, ROUTER);
    assert_eq!(host.asked().len(), 1, "it is old");
    host.wait(Duration::from_secs(10));
    assert_eq!(host.take()[0].to, ROUTER);
}

#[test]
fn what_the_kernel_no_longer_follows_goes_on_and_is_asked_for_by_who_uses_it() {
    let mut host = Host::new();
    let listener = host.listens();
    host.segment(PORT, Flags::SYN, PEER_ISS, SeqNumber(0));
    let first = host.take()[0].seq;
    host.segment(PORT, Flags::ACK, PEER_ISS + 1, first + 1);
    let socket = host.stack.accept(listener).unwrap();
    host.told(at(ROUTER));
    host.events();
    host.told(Found::Lapsed);
    host.wait(Duration::from_secs(10));
    assert_eq!(host.asked(), [] as [IpAddr; 0], "it rests");
    host.stack.send(host.now, socket, b"hello", false).unwrap();
    assert_eq!(host.take()[0].to, ROUTER);
    assert_eq!(host.asked(), [IpAddr::V4(PEER)]);
    host.told(at(OTHER));
    host.told(Found::Lapsed);
    // The peer speaks first.
    host.segment(PORT, Flags::ACK, PEER_ISS + 1, first + 6);
    assert_eq!(host.asked(), [IpAddr::V4(PEER)]);
    host.stack.send(host.now, socket, b"hello", false).unwrap();
    assert_eq!(host.take()[0].to, OTHER);
}

#[test]
fn a_syn_is_answered_the_way_it_came_and_asked_about_when_it_was_no_lie() {
    let mut host = Host::new();
    let listener = host.listens();
    host.segment(PORT, Flags::SYN, PEER_ISS, SeqNumber(0));
    let answer = host.take().remove(0);
    assert_eq!((answer.to, answer.ack), (ROUTER, PEER_ISS + 1));
    assert_eq!(host.asked(), [] as [IpAddr; 0], "it may be made up");
    host.segment(PORT, Flags::ACK, PEER_ISS + 1, answer.seq + 1);
    assert_eq!(host.asked(), [IpAddr::V4(PEER)]);
    let socket = host.stack.accept(listener).unwrap();
    let ends = ((OURS, PORT).into(), (PEER, PEER_PORT).into());
    assert_eq!(host.stack.ends(socket), Some(ends));
    host.stack.send(host.now, socket, &[7; 100], false).unwrap();
    let sent = host.take();
    assert_eq!((sent[0].to, sent[0].bytes), (ROUTER, 100), "nothing else is known");
    host.told(at(OTHER));
    host.wait(Duration::from_millis(300));
    assert_eq!(host.take()[0].to, OTHER, "the kernel knows better");
    assert!(host.stack.readiness(host.now, socket).has(Ready::CONNECTED));
}

#[test]
fn both_versions_have_their_own_listeners_or_one_together() {
    let all_v4: SocketAddr = "0.0.0.0:80".parse().unwrap();
    let all: SocketAddr = "[::]:80".parse().unwrap();
    let v6_only = Listening { backlog: 5, v6_only: true, shares: false };
    let mut host = Host::new();
    host.stack.listen(all_v4, 5).unwrap();
    assert_eq!(host.stack.listen(all, 5), Err(ListenError::AddressInUse));
    host.stack.listen_with(all, v6_only).unwrap();
    assert_eq!(host.stack.listen_with(all, v6_only), Err(ListenError::AddressInUse));
    host.listens();

    for (take_v6_only, answered) in [(false, true), (true, false)] {
        let mut host = Host::new();
        if take_v6_only {
            host.stack.listen_with(all, v6_only).unwrap();
        } else {
            host.stack.listen(all, 5).unwrap();
        }
        host.segment(PORT, Flags::SYN, PEER_ISS, SeqNumber(0));
        assert_eq!(!host.take().is_empty(), answered);
    }
}

/// Opens a connection from this port of the peer's.
fn connect_from(host: &mut Host, port: u16) {
    host.segment_from((port, PORT), Flags::SYN, PEER_ISS, SeqNumber(0));
    let answer = host.take().into_iter().find(|sent| sent.flags.has(Flags::SYN)).unwrap();
    host.segment_from((port, PORT), Flags::ACK, PEER_ISS + 1, answer.seq + 1);
}

#[test]
fn several_listeners_share_what_comes_and_who_leaves_ends_what_has_come() {
    let all: SocketAddr = "0.0.0.0:80".parse().unwrap();
    let shared = Listening { backlog: 500, v6_only: false, shares: true };
    let mut host = Host::new();
    let [one, other] = [(); 2].map(|()| host.stack.listen_with(all, shared).unwrap());
    assert_eq!(host.stack.listen(all, 5), Err(ListenError::AddressInUse), "it does not share");
    let waiting = |host: &mut Host| [one, other].map(|id| host.stack.accept_waiting(id));

    for port in 1000..1100 {
        connect_from(&mut host, port);
    }
    let [first, second] = waiting(&mut host);
    assert!(first + second == 100 && first > 20 && second > 20, "{first} and {second}");

    // Handshakes under way when one of the listeners leaves end at the one where they began.
    let mut under_way = Vec::new();
    for port in 1100..1150 {
        host.segment_from((port, PORT), Flags::SYN, PEER_ISS, SeqNumber(0));
        let answer = host.take().into_iter().find(|sent| sent.flags.has(Flags::SYN)).unwrap();
        under_way.push((port, answer.seq + 1));
    }
    host.stack.leave_listener(one);
    for (port, ack) in under_way {
        host.segment_from((port, PORT), Flags::ACK, PEER_ISS + 1, ack);
    }
    let [mine, all_mine] = waiting(&mut host);
    assert!(mine + all_mine == 150 && mine > first && all_mine > second, "{mine} and {all_mine}");
    for port in 1200..1250 {
        connect_from(&mut host, port);
    }
    assert_eq!(waiting(&mut host), [mine, all_mine + 50]);

    // Where no other listener is left, it takes what comes.
    host.stack.close_listener(host.now, other);
    host.take();
    connect_from(&mut host, 2000);
    assert_eq!(host.stack.accept_waiting(one), mine + 1);
}

#[test]
fn the_nearest_listener_takes_all() {
    let mut host = Host::new();
    let shared = Listening { backlog: 50, v6_only: false, shares: true };
    let places = ["[::]:80", "0.0.0.0:80", "10.0.0.1:80"];
    let ids = places.map(|place| host.stack.listen_with(place.parse().unwrap(), shared).unwrap());
    for (port, nearest) in (3000..).step_by(10).zip((0..3).rev()) {
        for port in port..port + 5 {
            connect_from(&mut host, port);
        }
        assert_eq!(host.stack.accept_waiting(ids[nearest]), 5, "{}", places[nearest]);
        host.stack.close_listener(host.now, ids[nearest]);
        host.take();
    }
}

/// Returns whether a SYN from this source opens a connection, on addresses shared with the kernel
/// or not.
fn opens(shares_addresses: bool, source: &str) -> bool {
    let config = Config { shares_addresses, ..Config::default() };
    let device = Capabilities::plain(Medium::Ethernet, 1500);
    let mut stack = Stack::new(config, device, MAC, [1; 32]);
    for address in ["10.0.0.1/24", "10.0.0.7/24", "fd00::1/64", "fd00::7/64"] {
        stack.add_address(address.parse().unwrap());
    }
    stack.listen("[::]:80".parse().unwrap(), 5).unwrap();
    let fields = Fields {
        source_port: PEER_PORT,
        destination_port: PORT,
        seq: PEER_ISS,
        ack: SeqNumber(0),
        flags: Flags::SYN,
        window: 60_000,
    };
    let mut segment = vec![0; 60];
    let bytes = fields.emit(&OptionSet::default(), &mut segment);
    let (ethertype, mut frame) = match source.parse().unwrap() {
        IpAddr::V4(source) => {
            let mut frame = vec![0; 34];
            let total = u16::try_from(20 + bytes).unwrap();
            ipv4::Header::whole(Protocol::TCP, source, OURS, total).emit(&mut frame[14..]);
            (EtherType::IPV4, frame)
        }
        IpAddr::V6(source) => {
            let mut frame = vec![0; 54];
            let header = ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_bytes: u16::try_from(bytes).unwrap(),
                next_header: Protocol::TCP,
                hop_limit: 64,
                source,
                destination: "fd00::1".parse().unwrap(),
            };
            header.emit(&mut frame[14..]);
            (EtherType::IPV6, frame)
        }
    };
    ethernet::Header { destination: MAC, source: ROUTER, ethertype }.emit(&mut frame);
    frame.extend(&segment[..bytes]);
    let received = Received { trust: Trust::Good, ..Received::plain(&frame) };
    stack.handle_frame(Instant::from_millis(1000), &received);
    stack.counters().passive_opens == 1
}

#[test]
fn nobody_is_served_over_a_wire_as_one_who_is_on_the_host_itself() {
    for source in ["192.0.2.9", "10.0.0.2", "128.0.0.1", "2001:db8::9", "fd00::2", "fe80::1"] {
        assert!(opens(true, source), "{source}");
    }
    let martians =
        ["127.0.0.1", "127.255.0.9", "0.0.0.0", "0.1.2.3", "224.0.0.1", "255.255.255.255"];
    for source in martians.into_iter().chain(["::", "::1", "ff02::1", "::ffff:127.0.0.1"]) {
        assert!(!opens(true, source), "{source}");
    }
    // On addresses of its own a stack may be the only one there, and talk to itself.
    for ours in ["10.0.0.1", "10.0.0.7", "fd00::1", "fd00::7"] {
        assert!(opens(false, ours), "{ours}");
    }
}
