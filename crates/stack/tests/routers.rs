//! ICMP errors from routers about packets that we have sent, and what becomes of their connections.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use uncork_packet::{Capabilities, Instant, Medium, Received};
use uncork_stack::{Config, ConnectionError, KeepAlive, Mac, SocketId, SocketOption, Stack, State};
use uncork_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6};

use crate::common::{Lab, OURS, PEER, PEER_PORT};

const OUR_V6: &str = "fd00::1";
const PEER_V6: &str = "fd00::2";
const ROUTER_V6: &str = "fd00::9";
/// ICMP: host unreachable.
const HOST: icmpv4::Message = icmpv4::Message::Unreachable { code: 1, next_hop_mtu: 0 };

fn peer() -> SocketAddr {
    SocketAddr::new(PEER.parse().unwrap(), PEER_PORT)
}

/// Delivers a router's error about our packet that begins with number `seq`.
fn complain(lab: &mut Lab, message: icmpv4::Message, seq: u32) {
    let (ours, peer) = (OURS.parse().unwrap(), PEER.parse().unwrap());
    let mut body = vec![0; 8 + 20];
    ipv4::Header::whole(Protocol::TCP, ours, peer, 1500).emit(&mut body[8..]);
    body.extend(lab.our_port.to_be_bytes());
    body.extend(lab.peer_port.to_be_bytes());
    body.extend(lab.absolute(seq).to_be_bytes());
    message.emit(&mut body);
    let mut packet = vec![0; 20];
    let total = u16::try_from(20 + body.len()).unwrap();
    ipv4::Header::whole(Protocol::ICMP, "10.0.0.9".parse().unwrap(), ours, total).emit(&mut packet);
    packet.extend(body);
    lab.stack.handle_frame(lab.now, &Received::plain(&packet));
}

/// Returns a stack that has sent a SYN over IPv6, the packet, and the time.
fn connecting_over_ipv6() -> (Stack, SocketId, Vec<u8>, Instant) {
    let now = Instant::from_millis(1000);
    let device = Capabilities::plain(Medium::Ip, 1500);
    let mut stack = Stack::new(Config::default(), device, Mac::default(), [3; 32]);
    stack.add_address(format!("{OUR_V6}/64").parse().unwrap());
    let socket = stack.connect(now, None, SocketAddr::new(PEER_V6.parse().unwrap(), 80)).unwrap();
    let mut slot = vec![0; 2000];
    let sent = stack.poll_transmit(now, &mut slot).unwrap();
    slot.truncate(sent.frame_bytes as usize);
    (stack, socket, slot, now)
}

fn complain_over_ipv6(
    (stack, now): (&mut Stack, Instant),
    message: icmpv6::Message,
    quoted: &[u8],
) {
    let (router, ours): (Ipv6Addr, Ipv6Addr) =
        (ROUTER_V6.parse().unwrap(), OUR_V6.parse().unwrap());
    let mut body = vec![0; icmpv6::HEADER_BYTES];
    body.extend(quoted);
    message.emit(&mut body, router, ours);
    let mut packet = vec![0; ipv6::HEADER_BYTES];
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_bytes: u16::try_from(body.len()).unwrap(),
        next_header: Protocol::ICMPV6,
        hop_limit: 64,
        source: router,
        destination: ours,
    }
    .emit(&mut packet);
    packet.extend(body);
    stack.handle_frame(now, &Received::plain(&packet));
}

#[test]
fn a_packet_that_a_router_throws_away_ends_a_connection_that_is_opened() {
    // tcp_v4_err, icmpv6_err_convert: a packet in a routing loop, or with a header that no router
    // understands, never arrives.
    use icmpv4::Message::{Other, TimeExceeded, Unreachable};
    let means = [
        (TimeExceeded(0), Some(ConnectionError::Unreachable)),
        (Other(icmpv4::PARAMETER_PROBLEM, 0), Some(ConnectionError::Protocol)),
        // Undefined codes and types.
        (Unreachable { code: 16, next_hop_mtu: 0 }, None),
        (Other(4, 0), None),
    ];
    for (message, error) in means {
        let mut lab = Lab::new(Config::default());
        let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
        lab.take();
        complain(&mut lab, message, 0);
        assert_eq!(lab.stack.take_error(socket), error, "{message:?}");
        assert_eq!(lab.state(socket) == State::SynSent, error.is_none(), "{message:?}");
    }
    use icmpv6::Message as V6;
    let means = [
        (V6::TimeExceeded(0), ConnectionError::Unreachable),
        (V6::Other(icmpv6::PARAMETER_PROBLEM, 1), ConnectionError::Protocol),
        (V6::Unreachable(3), ConnectionError::Unreachable),
        (V6::Unreachable(7), ConnectionError::Protocol),
    ];
    for (message, error) in means {
        let (mut stack, socket, syn, now) = connecting_over_ipv6();
        complain_over_ipv6((&mut stack, now), message, &syn);
        assert_eq!(stack.take_error(socket), Some(error), "{message:?}");
    }
}

/// Returns the error of a connection that is given up, after `before` has happened to it.
fn end_of(
    option: Option<SocketOption>,
    before: impl FnOnce(&mut Lab, SocketId),
) -> Option<ConnectionError> {
    let mut lab = Lab::new(Config { data_retries: 3, ..Config::default() });
    let socket = lab.accepted("mss 1000");
    if let Some(option) = option {
        assert!(lab.stack.set_option(lab.now, socket, option));
    }
    before(&mut lab, socket);
    for _ in 0..100 {
        lab.wait(1000);
        lab.take();
        if lab.state(socket) == State::Closed {
            return lab.stack.take_error(socket);
        }
    }
    None
}

#[test]
fn who_is_given_up_says_what_was_said_of_the_way_last() {
    // tcp_write_err: sk_err_soft, or ETIMEDOUT.
    let timed_out = Some(ConnectionError::TimedOut);
    let unreachable = Some(ConnectionError::Unreachable);
    let write = |lab: &mut Lab, socket| {
        lab.write(socket, 100);
        lab.take();
    };
    assert_eq!(end_of(None, write), timed_out);
    let said = |lab: &mut Lab, socket| {
        write(lab, socket);
        complain(lab, icmpv4::Message::Unreachable { code: 0, next_hop_mtu: 0 }, 1);
        complain(lab, HOST, 1);
    };
    assert_eq!(end_of(None, said), unreachable);
    let user_timeout = SocketOption::UserTimeout(Some(Duration::from_secs(2)));
    assert_eq!(end_of(Some(user_timeout), said), unreachable);
    // The path works again.
    let and_then_not = |lab: &mut Lab, socket| {
        said(lab, socket);
        lab.send(". 1:1(0) ack 51 win 65535");
    };
    assert_eq!(end_of(None, and_then_not), timed_out);
    // The error is about other packets.
    let of_others = |lab: &mut Lab, socket| {
        write(lab, socket);
        complain(lab, HOST, 102);
        complain(lab, HOST, 0);
    };
    assert_eq!(end_of(None, of_others), timed_out);
    // An ACK of ours has not arrived, nor have the keepalive probes after it.
    let heard = |lab: &mut Lab, _| {
        lab.send("P. 1:101(100) ack 1 win 65535");
        lab.wait(100);
        assert_eq!(lab.take().len(), 1);
        complain(lab, HOST, 1);
    };
    let each = Duration::from_secs(1);
    let keep_alive = KeepAlive { idle: each, interval: each, probes: 2 };
    assert_eq!(end_of(Some(SocketOption::KeepAlive(Some(keep_alive))), heard), unreachable);
    // A closed window.
    let shut = |lab: &mut Lab, socket| {
        lab.send("P. 1:101(100) ack 1 win 0");
        lab.wait(100);
        lab.take();
        complain(lab, HOST, 1);
        write(lab, socket);
    };
    assert_eq!(end_of(None, shut), unreachable);
}

#[test]
fn what_was_lost_to_a_way_that_is_not_there_is_no_reason_to_try_seldom() {
    // RFC 6069.
    let gaps = |message: Option<icmpv4::Message>, seq: u32| {
        let mut lab = Lab::new(Config::default());
        let socket = lab.accepted("mss 1000");
        lab.write(socket, 2000);
        lab.take();
        let mut gaps = Vec::new();
        for _ in 0..5 {
            let (millis, out) = lab.until_something();
            assert_eq!(out, [". 1:1001(1000) ack 1"]);
            gaps.push(millis.round());
            message.into_iter().for_each(|message| complain(&mut lab, message, seq));
        }
        gaps
    };
    let doubled = [210.0, 420.0, 840.0, 1680.0, 3360.0];
    let network = icmpv4::Message::Unreachable { code: 0, next_hop_mtu: 0 };
    let port = icmpv4::Message::Unreachable { code: 3, next_hop_mtu: 0 };
    assert_eq!(gaps(None, 1), doubled);
    assert_eq!(gaps(Some(HOST), 1), [210.0; 5]);
    assert_eq!(gaps(Some(network), 1), [210.0; 5]);
    assert_eq!(gaps(Some(port), 1), doubled);
    // Only of the first segment is it known how often it was sent.
    assert_eq!(gaps(Some(HOST), 1001), doubled);
}

#[test]
fn who_tries_often_for_that_is_not_given_up_sooner() {
    // As long as three repetitions take: one, two, four and eight times the timeout of 210 ms.
    let whole = Duration::from_millis(15 * 210);
    for complains in [false, true] {
        let mut lab = Lab::new(Config { data_retries: 3, ..Config::default() });
        let socket = lab.accepted("mss 1000");
        lab.write(socket, 100);
        lab.take();
        let began = lab.now;
        let mut tries = 0;
        while lab.state(socket) != State::Closed {
            lab.wait(1);
            tries += lab.take().len();
            if complains {
                complain(&mut lab, HOST, 1);
            }
        }
        let took = lab.now.since(began);
        assert!((whole..whole + Duration::from_millis(300)).contains(&took), "{took:?}");
        assert_eq!(tries, if complains { 14 } else { 3 });
    }
}

#[test]
fn packets_of_a_path_that_is_too_narrow_for_the_smallest_may_be_cut() {
    // __ip_rt_update_pmtu locks the MTU of such a route.
    let needs = |next_hop_mtu| icmpv4::Message::Unreachable {
        code: icmpv4::FRAGMENTATION_NEEDED,
        next_hop_mtu,
    };
    let mut lab = Lab::new(Config { pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1460");
    lab.write(socket, 1460);
    lab.take();
    complain(&mut lab, needs(552), 1);
    assert_eq!(
        lab.take(),
        [". 1:513(512) ack 1", ". 513:1025(512) ack 1", "P. 1025:1461(436) ack 1"]
    );
    assert_eq!(lab.last_id, None);
    complain(&mut lab, needs(400), 1);
    let mut ids = Vec::new();
    lab.wait(10);
    lab.send(". 1:1(0) ack 1461 win 65535");
    lab.write(socket, 1536);
    while lab.take_one().is_some() {
        ids.push(lab.last_id.unwrap());
    }
    assert_eq!(ids.len(), 3);
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)), "{ids:?}");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().path_mtu, 552);
}

#[test]
fn no_path_of_ipv6_is_narrower_than_it_may_be() {
    // RFC 8201 §4: such a message is discarded, and makes no segments smaller.
    let (mut stack, socket, syn, now) = connecting_over_ipv6();
    for (told, known) in [(1000, 1500), (1279, 1500), (1400, 1400), (1280, 1280)] {
        complain_over_ipv6((&mut stack, now), icmpv6::Message::PacketTooBig(told), &syn);
        assert_eq!(stack.info(now, socket).unwrap().path_mtu, known, "{told}");
    }
}
