//! What routers say of packets that we have sent, and what becomes of their connections.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::net::{Ipv6Addr, SocketAddr};

use common::{Lab, OURS, PEER, PEER_PORT};
use uncork_packet::{Capabilities, Instant, Medium, Received};
use uncork_stack::{Config, ConnectionError, Mac, SocketId, Stack, State};
use uncork_wire::{Protocol, icmpv4, icmpv6, ipv4, ipv6};

const OUR_V6: &str = "fd00::1";
const PEER_V6: &str = "fd00::2";
const ROUTER_V6: &str = "fd00::9";

fn peer() -> SocketAddr {
    SocketAddr::new(PEER.parse().unwrap(), PEER_PORT)
}

/// A router says this of our packet that begins with number `seq`.
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

/// A stack that has sent a SYN in a packet of IPv6, what that was, and when.
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
    // tcp_v4_err, icmpv6_err_convert: who travels in a circle, or has a header that nobody understands, never arrives.
    use icmpv4::Message::{Other, TimeExceeded, Unreachable};
    let means = [
        (TimeExceeded(0), Some(ConnectionError::Unreachable)),
        (Other(icmpv4::PARAMETER_PROBLEM, 0), Some(ConnectionError::Protocol)),
        // Nobody knows what that would be.
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
