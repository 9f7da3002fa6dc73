//! TCP Fast Open (RFC 7413), the server: which data is taken at once, and for how many connections.
//! Each case is one of Google's packetdrill suite that Linux passes, or a rule of the RFC.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use uncork_packet::Received;
use uncork_stack::{
    Config, ConnectionError, FastOpen, FastOpenKeys, FastOpenListen, ListenerId, RecvError,
    SocketOption, State,
};
use uncork_wire::{Protocol, icmpv4, ipv4};

use crate::common::{Lab, OURS, PEER};

const BOTH: FastOpen = FastOpen::CLIENT.with(FastOpen::SERVER);

fn lab() -> Lab {
    Lab::new(Config { fast_open: BOTH, pacing: false, ..Config::default() })
}

fn server(pending: u32) -> (Lab, ListenerId) {
    let mut lab = lab();
    lab.stack.set_fast_open_keys(None, FastOpenKeys::new([7; 16], None));
    let listener = lab.listen();
    let listen = FastOpenListen { pending, cookie_not_required: false };
    lab.stack.set_listener_fast_open(listener, listen);
    (lab, listener)
}

/// Returns the cookie that the server gives to this port.
fn given(lab: &mut Lab, port: u16) -> String {
    lab.peer_port = port;
    lab.send("S 0:0(0) win 32792 <mss 1460,sackOK,FO>");
    let answer = lab.take();
    let (_, cookie) = answer[0].split_once(",FO ").unwrap();
    let cookie = cookie.trim_end_matches('>').to_owned();
    lab.send("R 1:1(0) win 0");
    cookie
}

fn dash_in(lab: &mut Lab, port: u16, cookie: &str) -> Vec<String> {
    lab.peer_port = port;
    lab.send(&format!("S 0:10(10) win 32792 <mss 1460,sackOK,FO {cookie}>"));
    lab.take()
}

const TAKEN: &str = "S. 0:0(0) ack 11 <mss 1460,sackOK>";

#[test]
fn a_good_cookie_opens_at_once_and_answers_need_not_wait() {
    // RFC 7413 §4.2.2, basic-rw.pkt.
    let (mut lab, listener) = server(2);
    let cookie = given(&mut lab, 1);
    assert_eq!(dash_in(&mut lab, 2, &cookie), [TAKEN]);
    let socket = lab.stack.accept(listener).unwrap();
    assert_eq!((lab.read(socket), lab.state(socket)), (Ok(10), State::SynReceived));
    lab.write(socket, 100);
    assert_eq!(lab.take(), ["P. 1:101(100) ack 11"]);
    lab.wait(50);
    lab.send(". 11:11(0) ack 101 win 5840");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.state, info.syn_data, info.queued_bytes), (State::Established, true, 0));
    assert_eq!((info.delivered_segments, info.bytes_received), (2, 10));
    assert_eq!(lab.stack.counters().fast_open_passive, 1);
    // A SYN without data opens at once too, and has nothing to read.
    lab.peer_port = 3;
    lab.send(&format!("S 0:0(0) win 32792 <mss 1460,sackOK,FO {cookie}>"));
    assert_eq!(lab.take(), ["S. 0:0(0) ack 1 <mss 1460,sackOK>"]);
    let socket = lab.stack.accept(listener).unwrap();
    assert_eq!(lab.read(socket), Err(RecvError::WouldBlock));
    assert!(!lab.stack.info(lab.now, socket).unwrap().syn_data);
    lab.send("P. 1:11(10) ack 1 win 5840");
    assert_eq!(lab.read(socket), Ok(10));
}

#[test]
fn before_the_handshake_is_over_only_the_syn_ack_is_sent_again() {
    // tcp_retransmit_timer; the data follows by its own timeout afterwards.
    let (mut lab, listener) = server(2);
    let cookie = given(&mut lab, 1);
    dash_in(&mut lab, 2, &cookie);
    let socket = lab.stack.accept(listener).unwrap();
    lab.read(socket).unwrap();
    lab.write(socket, 100);
    lab.take();
    assert_eq!(lab.until_something(), (1000.0, vec![TAKEN.to_owned()]));
    assert_eq!(lab.until_something(), (2000.0, vec![TAKEN.to_owned()]));
    lab.send(". 11:11(0) ack 1 win 5840");
    assert_eq!(lab.until_something().1, ["P. 1:101(100) ack 11"]);
    lab.send(". 11:11(0) ack 101 win 5840");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().queued_bytes, 0);
}

#[test]
fn a_syn_ack_that_is_sent_again_tells_the_same_shift() {
    // The user has accepted the connection already, and has set another buffer size.
    let (mut lab, listener) = server(2);
    let cookie = given(&mut lab, 1);
    lab.peer_port = 2;
    lab.send(&format!("S 0:10(10) win 32792 <mss 1460,ws 7,FO {cookie}>"));
    let first = vec!["S. 0:0(0) ack 11 <mss 1460,ws 7>".to_owned()];
    assert_eq!(lab.take(), first);
    let socket = lab.stack.accept(listener).unwrap();
    lab.stack.set_option(lab.now, socket, SocketOption::ReceiveBuffer(32 << 10));
    assert_eq!(lab.until_something(), (1000.0, first));
    lab.send("P. 11:21(10) ack 1 win 1000");
    assert_eq!((lab.take().len(), lab.last_window), (1, (32 << 10) >> 7));
}

#[test]
fn a_bad_cookie_a_closed_listener_and_a_switch_give_an_ordinary_handshake() {
    let (mut lab, listener) = server(2);
    let cookie = given(&mut lab, 1);
    // A wrong cookie is answered with a right one, and the data must be sent again.
    let answer = dash_in(&mut lab, 2, "0123456789abcdef");
    assert_eq!(answer, [format!("S. 0:0(0) ack 1 <mss 1460,sackOK,FO {cookie}>")]);
    assert_eq!(lab.stack.accept(listener), None);
    assert_eq!(lab.until_something().1, ["S. 0:0(0) ack 1 <mss 1460,sackOK>"]);
    lab.send("P. 1:11(10) ack 1 win 5840");
    let socket = lab.stack.accept(listener).unwrap();
    assert_eq!((lab.read(socket), lab.take().len()), (Ok(10), 1));
    assert!(!lab.stack.info(lab.now, socket).unwrap().syn_data);
    // Data without a cookie is not taken, and the answer names no cookie (pure-syn-data.pkt).
    lab.peer_port = 3;
    lab.send("S 0:10(10) win 32792 <mss 1460,sackOK>");
    assert_eq!(lab.take(), ["S. 0:0(0) ack 1 <mss 1460,sackOK>"]);
    // A listener without the option, or a stack with it off, acts as if the SYN had none.
    let plain = "S. 0:0(0) ack 1 <mss 1460,sackOK>";
    lab.stack.set_fast_open(FastOpen::CLIENT);
    assert_eq!(dash_in(&mut lab, 4, &cookie), [plain]);
    lab.stack.set_fast_open(BOTH);
    lab.stack.set_listener_fast_open(listener, FastOpenListen::default());
    assert_eq!(dash_in(&mut lab, 5, &cookie), [plain]);
    lab.stack.set_fast_open(BOTH.with(FastOpen::EVERY_LISTENER));
    assert_eq!(dash_in(&mut lab, 6, &cookie), [TAKEN]);
    lab.stack.set_fast_open(BOTH.with(FastOpen::SERVER_COOKIE_NOT_REQUIRED));
    lab.peer_port = 7;
    lab.send("S 0:10(10) win 32792 <mss 1460,sackOK>");
    assert_eq!(lab.take(), [plain]);
    lab.stack.set_listener_fast_open(
        listener,
        FastOpenListen { pending: 9, cookie_not_required: false },
    );
    lab.peer_port = 8;
    lab.send("S 0:10(10) win 32792 <mss 1460,sackOK>");
    assert_eq!(lab.take(), [TAKEN]);
}

#[test]
fn keys_change_and_the_last_one_is_good_for_a_newer_cookie() {
    // RFC 7413 §4.1.2; the experiment's option is answered in kind.
    let (mut lab, listener) = server(9);
    let old = given(&mut lab, 1);
    let keys = lab.stack.fast_open_keys(None).rotated([8; 16]);
    lab.stack.set_fast_open_keys(None, keys);
    let new = given(&mut lab, 2);
    assert_ne!(old, new);
    let answer = dash_in(&mut lab, 3, &old);
    assert_eq!(answer, [format!("S. 0:0(0) ack 11 <mss 1460,sackOK,FO {new}>")]);
    assert_eq!(dash_in(&mut lab, 4, &new), [TAKEN]);
    lab.peer_port = 5;
    lab.send("S 0:0(0) win 32792 <mss 1460,sackOK,FOEXP>");
    assert_eq!(lab.take(), [format!("S. 0:0(0) ack 1 <mss 1460,sackOK,FOEXP {new}>")]);
    lab.stack.set_fast_open_keys(None, keys.rotated([9; 16]));
    assert!(dash_in(&mut lab, 6, &old)[0].starts_with("S. 0:0(0) ack 1 "));
    // A listener's own key is for its own cookies.
    lab.stack.set_fast_open_keys(Some(listener), FastOpenKeys::new([7; 16], None));
    assert_eq!(dash_in(&mut lab, 7, &old), [TAKEN]);
}

#[test]
fn no_more_than_the_limit_are_open_before_their_handshake() {
    // RFC 7413 §5.1: a reset makes no room either, for a minute.
    let (mut lab, listener) = server(2);
    let cookie = given(&mut lab, 1);
    let ordinary = "S. 0:0(0) ack 1 <mss 1460,sackOK>";
    assert_eq!(dash_in(&mut lab, 2, &cookie), [TAKEN]);
    let first = lab.stack.accept(listener).unwrap();
    assert_eq!(dash_in(&mut lab, 3, &cookie), [TAKEN]);
    // The handshake of this one ends, which frees its place.
    lab.send(". 11:11(0) ack 1 win 5840");
    assert_eq!(dash_in(&mut lab, 4, &cookie), [TAKEN]);
    assert_eq!(dash_in(&mut lab, 5, &cookie), [ordinary]);
    assert_eq!(lab.stack.counters().fast_open_overflows, 1);
    lab.peer_port = 2;
    lab.send("R 11:11(0) win 0");
    assert_eq!(lab.state(first), State::Closed);
    assert_eq!(dash_in(&mut lab, 6, &cookie), [ordinary]);
    lab.wait(59_999);
    lab.take();
    assert_eq!(dash_in(&mut lab, 7, &cookie), [ordinary]);
    lab.wait(1);
    assert_eq!(dash_in(&mut lab, 8, &cookie), [TAKEN]);
}

#[test]
fn what_came_before_a_reset_can_still_be_read() {
    // reset-before-accept.pkt, reset-after-accept.pkt, reset-close-with-unread-data.pkt.
    for early in [true, false] {
        let (mut lab, listener) = server(2);
        let cookie = given(&mut lab, 1);
        dash_in(&mut lab, 2, &cookie);
        let socket = (!early).then(|| lab.stack.accept(listener).unwrap());
        lab.send("R. 11:11(0) ack 1 win 32792");
        let socket = socket.unwrap_or_else(|| lab.stack.accept(listener).unwrap());
        assert!(lab.stack.info(lab.now, socket).unwrap().syn_data);
        assert_eq!(lab.read(socket), Ok(10));
        assert_eq!(lab.read(socket), Err(RecvError::Failed(ConnectionError::Reset)));
        lab.stack.close(lab.now, socket);
        assert_eq!((lab.take(), lab.stack.connection_count()), (vec![], 0));
    }
}

#[test]
fn closing_before_the_handshake_is_over() {
    // unread-data-closed-trigger-rst.pkt, listener-closed-trigger-rst.pkt, fin-close-socket.pkt.
    let (mut lab, listener) = server(5);
    let cookie = given(&mut lab, 1);
    dash_in(&mut lab, 2, &cookie);
    let socket = lab.stack.accept(listener).unwrap();
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["R. 1:1(0) ack 11"]);
    // All was read: an end like any other, whose FIN may come with the handshake's last ACK.
    dash_in(&mut lab, 3, &cookie);
    let socket = lab.stack.accept(listener).unwrap();
    lab.read(socket).unwrap();
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["F. 1:1(0) ack 11"]);
    lab.send("F. 11:11(0) ack 2 win 5840");
    assert_eq!(lab.take(), [". 2:2(0) ack 12"]);
    assert_eq!(lab.state(socket), State::TimeWait);
    dash_in(&mut lab, 4, &cookie);
    lab.stack.close_listener(lab.now, listener);
    assert_eq!(lab.take(), ["R. 1:1(0) ack 11"]);
    lab.wait(61_000);
    assert_eq!(lab.stack.connection_count(), 0);
}

#[test]
fn a_router_that_knows_no_way_ends_what_nobody_has_accepted() {
    // icmp-before-accept.pkt: an error about a number never sent is ignored (RFC 5927 §4).
    for accepted in [false, true] {
        let (mut lab, listener) = server(5);
        let cookie = given(&mut lab, 1);
        dash_in(&mut lab, 2, &cookie);
        let socket = accepted.then(|| lab.stack.accept(listener).unwrap());
        for (seq, ends) in [(lab.absolute(9), false), (lab.absolute(0), !accepted)] {
            let frame = unreachable(lab.our_port, 2, seq);
            lab.stack.handle_frame(lab.now, &Received::plain(&frame));
            let ids: Vec<_> = lab.stack.sockets().collect();
            let id = *ids.iter().find(|&&id| Some(id) == socket || socket.is_none()).unwrap();
            assert_eq!(lab.state(id) == State::Closed, ends, "{seq}");
        }
        let socket = socket.unwrap_or_else(|| lab.stack.accept(listener).unwrap());
        assert_eq!(lab.read(socket), Ok(10));
        let then = if accepted {
            RecvError::WouldBlock
        } else {
            RecvError::Failed(ConnectionError::Unreachable)
        };
        assert_eq!(lab.read(socket), Err(then));
    }
}

fn header(source: &str, destination: &str, protocol: Protocol, bytes: usize) -> Vec<u8> {
    let mut header = vec![0; 20];
    ipv4::Header::whole(
        protocol,
        source.parse().unwrap(),
        destination.parse().unwrap(),
        u16::try_from(20 + bytes).unwrap(),
    )
    .emit(&mut header);
    header
}

/// Builds a "host unreachable" about a segment of ours with this number.
fn unreachable(our_port: u16, peer_port: u16, seq: u32) -> Vec<u8> {
    let mut message = vec![0; 8];
    message.extend(header(OURS, PEER, Protocol::TCP, 20));
    message.extend(our_port.to_be_bytes());
    message.extend(peer_port.to_be_bytes());
    message.extend(seq.to_be_bytes());
    icmpv4::Message::Unreachable { code: 1, next_hop_mtu: 0 }.emit(&mut message);
    let mut frame = header(PEER, OURS, Protocol::ICMP, message.len());
    frame.extend(message);
    frame
}

#[test]
fn who_listens_no_more_leaves_to_others_what_is_open_when_its_handshake_is_over() {
    let (mut lab, listener) = server(9);
    let cookie = given(&mut lab, 1);
    assert_eq!(dash_in(&mut lab, 2, &cookie), [TAKEN]);
    assert_eq!(lab.stack.accept_waiting(listener), 1);
    lab.stack.leave_listener(listener);
    assert_eq!(lab.stack.accept_waiting(listener), 0);
    lab.send(". 11:11(0) ack 1 win 65535");
    let socket = lab.stack.accept(listener).unwrap();
    assert_eq!((lab.state(socket), lab.stack.readable_bytes(socket)), (State::Established, 10));
    assert!(lab.stack.detach(lab.now, socket).is_some());
}
