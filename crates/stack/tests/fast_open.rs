//! TCP Fast Open (RFC 7413), the client: data in a SYN, given and taken, and every way in which
//! that fails and ends in an ordinary handshake. Each case is one of Google's packetdrill suite
//! that Linux passes, or a rule of the RFC.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests too")]

use std::net::SocketAddr;
use uncork_stack::{
    Config, ConnectError, ConnectionError, FastConnect, FastOpen, FastOpenFailure, Phase,
    RecvError, SendError, SocketId, SocketOption, State,
};

use crate::common::{Lab, PEER, PEER_PORT};

const NOTHING: [&str; 0] = [];

fn peer() -> SocketAddr {
    SocketAddr::new(PEER.parse().unwrap(), PEER_PORT)
}

fn begin(lab: &mut Lab) -> FastConnect {
    lab.our_port = 0;
    lab.stack.connect_fast(lab.now, None, peer(), false).unwrap()
}

fn lab() -> Lab {
    Lab::new(Config { pacing: false, ..Config::default() })
}

/// Returns a client that has asked for a cookie, and got this one with this segment size.
fn client(cookie: &str, mss: u16) -> Lab {
    let mut lab = lab();
    learn(&mut lab, "FO", &format!("mss {mss},{cookie}"));
    lab
}

/// Opens and closes a connection whose SYN has this option, and whose SYN-ACK these.
fn learn(lab: &mut Lab, asks: &str, answer: &str) {
    let FastConnect::Begun(socket) = begin(lab) else { panic!("a cookie is known") };
    let asks = if asks.is_empty() { String::new() } else { format!(",{asks}") };
    assert_eq!(lab.take(), [format!("S 0:0(0) <mss 1460,sackOK,ts,ws 7{asks}>")]);
    lab.wait(10);
    lab.send(&format!("S. 0:0(0) ack 1 win 14600 <{answer}>"));
    assert_eq!(lab.take(), [". 1:1(0) ack 1"]);
    lab.stack.abort(lab.now, socket);
    lab.stack.close(lab.now, socket);
    lab.take();
}

/// Sends a SYN with `bytes` of data; returns how many were taken, and the SYN.
fn dash(lab: &mut Lab, bytes: usize) -> (SocketId, usize, String) {
    let FastConnect::Deferred(socket) = begin(lab) else { panic!("no cookie is known") };
    assert_eq!(lab.take(), NOTHING);
    let taken = lab.write(socket, bytes);
    let syn = lab.take();
    assert_eq!(syn.len(), 1, "{syn:?}");
    (socket, taken, syn[0].clone())
}

#[test]
fn a_cookie_is_asked_for_and_the_next_syn_takes_data_along() {
    // RFC 7413 §4.2.1, nonblocking-sendto.pkt.
    let mut lab = client("FO abcd1234", 1460);
    let (socket, taken, sent) = dash(&mut lab, 1000);
    assert_eq!(
        (taken, sent),
        (1000, "S 0:1000(1000) <mss 1460,sackOK,ts,ws 7,FO abcd1234>".into())
    );
    lab.wait(50);
    lab.send("S. 0:0(0) ack 1001 win 14600 <mss 940,sackOK,FO 12345678>");
    assert_eq!(lab.take(), [". 1001:1001(0) ack 1"]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.state, info.syn_data, info.delivered_segments), (State::Established, true, 1));
    assert_eq!(info.round_trip.map(|time| time.as_millis()), Some(50));
    assert_eq!((info.queued_bytes, info.window_segments), (0, 10));
    lab.send("P. 1:501(500) ack 1001 win 257");
    assert_eq!((lab.read(socket), lab.take().len()), (Ok(500), 1));
    // The next SYN uses the MSS and cookie of the SYN-ACK: 940 less room for options.
    let (_, taken, sent) = dash(&mut lab, 2000);
    assert_eq!((taken, sent), (900, "S 0:900(900) <mss 1460,sackOK,ts,ws 7,FO 12345678>".into()));
    assert_eq!(lab.stack.counters().fast_open_active, 1);
}

#[test]
fn what_does_not_fit_into_the_syn_follows_the_handshake() {
    let mut lab = client("FO abcd1234", 1460);
    let (socket, taken, _) = dash(&mut lab, 5000);
    assert_eq!(taken, 1420);
    lab.write(socket, 3580);
    assert_eq!(lab.take(), NOTHING);
    lab.wait(10);
    lab.send("S. 0:0(0) ack 1421 win 60000 <mss 1460,sackOK>");
    assert_eq!(
        lab.take(),
        [". 1421:2881(1460) ack 1", ". 2881:4341(1460) ack 1", "P. 4341:5001(660) ack 1"]
    );
}

#[test]
fn data_that_the_syn_ack_does_not_acknowledge_is_sent_again_at_once() {
    // syn-data-only-syn-acked.pkt; no congestion, so the window stays.
    let mut lab = client("FO abcd1234", 1460);
    let (socket, _, _) = dash(&mut lab, 700);
    lab.write(socket, 1000);
    lab.wait(20);
    lab.send("S. 0:0(0) ack 1 win 5840 <mss 1040,sackOK>");
    assert_eq!(lab.take(), ["P. 1:701(700) ack 1", "P. 701:1701(1000) ack 1"]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.syn_data, info.window_segments, info.phase), (false, 10, Phase::Loss));
    assert_eq!(info.fast_open_failure, FastOpenFailure::DataNotAcknowledged);
    assert_eq!((info.retransmitted_segments, info.delivered_segments), (1, 1));
    lab.send(". 1:1(0) ack 1701 win 257");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.delivered_segments), (Phase::Open, 3));
    assert_eq!(lab.stack.counters().fast_open_active_failed, 1);
}

#[test]
fn what_was_in_the_syn_is_pushed_however_often_it_is_sent() {
    // syn-data-only-syn-acked.pkt, its end.
    let mut lab = client("FO abcd1234", 1460);
    let (socket, _, _) = dash(&mut lab, 1420);
    lab.wait(20);
    lab.send("S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK>");
    assert_eq!(lab.take(), ["P. 1:1421(1420) ack 1"]);
    lab.write(socket, 4380);
    assert_eq!(
        lab.take(),
        [". 1421:2881(1460) ack 1", ". 2881:4341(1460) ack 1", "P. 4341:5801(1460) ack 1"]
    );
    lab.wait(20);
    lab.send(". 1:1(0) ack 1 win 257 <sack 1421:5801>");
    assert_eq!(lab.take(), ["P. 1:1421(1420) ack 1"]);
    lab.send(". 1:1(0) ack 5801 win 257");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().queued_bytes, 0);
}

#[test]
fn half_acknowledged_data_goes_on_from_there_in_the_peers_segments() {
    // syn-data-partial-or-over-ack.pkt.
    let mut lab = client("FO abcd1234", 1460);
    let (socket, _, _) = dash(&mut lab, 4000);
    lab.wait(10);
    lab.send("S. 0:0(0) ack 101 win 65535 <mss 1000,sackOK>");
    assert_eq!(lab.take(), [". 101:1101(1000) ack 1", "P. 1101:1421(320) ack 1"]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.unacknowledged_segments, info.bytes_acknowledged), (2, 100));
    assert!(!info.syn_data);
    lab.send(". 1:1(0) ack 1421 win 257");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().queued_bytes, 0);
    // A SYN-ACK that acknowledges more than was ever sent is reset, and teaches nothing.
    dash(&mut lab, 100);
    lab.send("S. 0:0(0) ack 100101 win 5840 <mss 500,FO badc00ce>");
    assert_eq!(lab.take(), ["R 100101:100101(0)"]);
    let (_, taken, sent) = dash(&mut lab, 2000);
    assert_eq!((taken, sent.contains("FO abcd1234")), (960, true));
}

#[test]
fn a_syn_that_is_sent_again_has_neither_cookie_nor_data() {
    // RFC 7413 §4.2.1; syn-data-timeout.pkt, cookie-req-timeout.pkt.
    let mut lab = client("FO abcd1234", 1460);
    let (socket, _, _) = dash(&mut lab, 1000);
    let plain = "S 0:0(0) <mss 1460,sackOK,ts,ws 7>";
    assert_eq!(lab.until_something(), (1000.0, vec![plain.to_owned()]));
    lab.wait(20);
    lab.send("S. 0:0(0) ack 1 win 5840 <mss 1460,sackOK>");
    assert_eq!(lab.take(), ["P. 1:1001(1000) ack 1"]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!(info.fast_open_failure, FastOpenFailure::SynRepeated);
    // One lost SYN is no congestion yet, as in Linux; and no measurement.
    assert_eq!((info.window_segments, info.round_trip, info.syn_data), (10, None, false));
}

#[test]
fn a_lost_request_is_not_repeated_and_a_late_cookie_is_kept() {
    let mut lab = lab();
    let FastConnect::Begun(_) = begin(&mut lab) else { panic!() };
    assert_eq!(lab.take(), ["S 0:0(0) <mss 1460,sackOK,ts,ws 7,FO>"]);
    assert_eq!(lab.until_something().1, ["S 0:0(0) <mss 1460,sackOK,ts,ws 7>"]);
    lab.send("S. 0:0(0) ack 1 win 60000 <mss 1240,FO aaaabbbbcccc>");
    lab.take();
    let (_, taken, sent) = dash(&mut lab, 10_000);
    assert_eq!((taken, sent.ends_with("FO aaaabbbbcccc>")), (1200, true), "{sent}");
}

#[test]
fn the_experiments_option_is_tried_once_where_the_other_brings_nothing() {
    // fallback-exp-opt.pkt (RFC 6994).
    let mut lab = lab();
    learn(&mut lab, "FO", "mss 1460");
    learn(&mut lab, "FOEXP", "mss 1460,FOEXP 1234abcd");
    let (_, _, sent) = dash(&mut lab, 100);
    assert!(sent.ends_with("FOEXP 1234abcd>"), "{sent}");
    lab.send("S. 0:0(0) ack 101 win 5840 <mss 1460,FO abcd5678>");
    lab.take();
    assert!(dash(&mut lab, 100).2.ends_with(",FO abcd5678>"));
    let mut lab = self::lab();
    for asks in ["FO", "FOEXP", "FO", "FO"] {
        learn(&mut lab, asks, "mss 1460");
    }
    // All cookies are forgotten on demand.
    lab.stack.forget_fast_open_cookies();
    learn(&mut lab, "FO", "mss 1460");
    learn(&mut lab, "FOEXP", "mss 1460");
}

#[test]
fn cookies_of_a_wrong_length_are_not_kept() {
    // valid-cookie-format.pkt: 4 to 16 octets, an even number.
    let mut lab = client("FO 00000000", 1460);
    for (given, known) in [
        ("FO 1122", "00000000"),
        ("FO 01234567aabbccdd0123456701234567", "01234567aabbccdd0123456701234567"),
        ("FO 01234567aabbccdd0123456701234567afaf", "01234567aabbccdd0123456701234567"),
        ("FO 1122334455", "01234567aabbccdd0123456701234567"),
    ] {
        let (socket, _, _) = dash(&mut lab, 100);
        lab.send(&format!("S. 0:0(0) ack 101 win 5840 <mss 1460,{given}>"));
        assert_eq!(lab.take(), [". 101:101(0) ack 1"]);
        assert!(lab.stack.info(lab.now, socket).unwrap().syn_data);
        let (_, _, sent) = dash(&mut lab, 100);
        assert!(sent.ends_with(&format!("FO {known}>")), "{sent}");
        lab.send("R. 0:0(0) ack 1 win 0");
    }
}

#[test]
fn without_a_cookie_only_who_says_so() {
    // TFO_CLIENT_NO_COOKIE, cookie-less-sendto.pkt, and TCP_FASTOPEN_NO_COOKIE.
    let mut lab = lab();
    lab.stack.set_fast_open(FastOpen::CLIENT.with(FastOpen::CLIENT_NO_COOKIE));
    let (_, _, sent) = dash(&mut lab, 1000);
    assert_eq!(sent, "S 0:1000(1000) <mss 1460,sackOK,ts,ws 7>");
    // A cookie that was not asked for is not kept.
    lab.send("S. 0:0(0) ack 1001 win 5840 <mss 1000,FO abcd1234>");
    lab.take();
    lab.stack.set_fast_open(FastOpen::CLIENT);
    learn(&mut lab, "FO", "mss 1000");
    let socket = lab.stack.connect_fast(lab.now, None, peer(), true).unwrap().socket();
    assert_eq!(lab.write(socket, 3000), 960);
    assert_eq!(lab.take(), ["S 0:960(960) <mss 1460,sackOK,ts,ws 7>"]);
    lab.stack.set_fast_open(FastOpen(0));
    let refused = lab.stack.connect_fast(lab.now, None, peer(), false);
    assert_eq!(refused, Err(ConnectError::NoFastOpen));
}

#[test]
fn a_syn_that_waits_for_data_leaves_without_when_told_and_not_at_all_when_closed() {
    let mut lab = client("FO abcd1234", 1460);
    let FastConnect::Deferred(socket) = begin(&mut lab) else { panic!() };
    assert!(lab.stack.is_writable(lab.now, socket));
    assert_eq!(lab.read(socket), Err(RecvError::WouldBlock));
    assert!(lab.stack.info(lab.now, socket).unwrap().deferred);
    lab.stack.launch(lab.now, socket);
    assert_eq!(lab.take(), ["S 0:0(0) <mss 1460,sackOK,ts,ws 7,FO abcd1234>"]);
    lab.stack.abort(lab.now, socket);
    let FastConnect::Deferred(socket) = begin(&mut lab) else { panic!() };
    lab.wait(10_000);
    lab.stack.close(lab.now, socket);
    assert_eq!((lab.take(), lab.state(socket)), (vec![], State::Closed));
}

#[test]
fn a_refused_dash_fails_and_a_smaller_segment_is_kept_to() {
    let mut lab = client("FO abcd1234", 1460);
    lab.our_port = 0;
    let FastConnect::Deferred(socket) = begin(&mut lab) else { panic!() };
    lab.stack.set_option(lab.now, socket, SocketOption::MaxSegment(1040));
    assert_eq!(lab.write(socket, 2000), 1000);
    assert_eq!(lab.take(), ["S 0:1000(1000) <mss 1040,sackOK,ts,ws 7,FO abcd1234>"]);
    lab.send("R. 0:0(0) ack 1 win 0");
    let failed = lab.stack.send(lab.now, socket, b"x", false);
    assert_eq!(failed, Err(SendError::Failed(ConnectionError::Refused)));
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().state, State::Closed);
}

#[test]
fn a_syn_ack_may_have_data_and_a_fin() {
    // synack-data.pkt.
    let mut lab = client("FO abcd1234", 1460);
    let (socket, _, _) = dash(&mut lab, 1000);
    lab.wait(10);
    lab.send("SF. 0:1400(1400) ack 1001 win 5840 <mss 1040,sackOK>");
    assert_eq!(lab.state(socket), State::CloseWait);
    assert_eq!(lab.take(), [". 1001:1001(0) ack 1402"]);
    assert_eq!((lab.read(socket), lab.read(socket)), (Ok(1400), Ok(0)));
    // Data of a SYN-ACK that does not acknowledge ours is not taken either.
    let (socket, _, _) = dash(&mut lab, 1000);
    lab.send("S. 0:1400(1400) ack 1 win 5840 <mss 1040,sackOK>");
    assert_eq!(lab.take(), ["P. 1:1001(1000) ack 1"]);
    assert_eq!(lab.read(socket), Err(RecvError::WouldBlock));
    // A SYN-ACK that echoes a timestamp which was never sent is reset.
    let (socket, _, _) = dash(&mut lab, 1000);
    lab.send("S. 0:1400(1400) ack 1001 win 5840 <mss 1040,sackOK,ts 5 99999>");
    assert_eq!(
        (lab.take(), lab.state(socket)),
        (vec!["R 1001:1001(0)".to_owned()], State::SynSent)
    );
}

#[test]
fn two_syns_with_data_that_cross_make_one_connection() {
    // simultaneous-fast-open.pkt.
    let mut lab = client("FO abcd1234", 1460);
    let (socket, _, _) = dash(&mut lab, 1000);
    lab.send("S 0:500(500) win 14600 <mss 1040,sackOK,ws 6,FO 87654321>");
    assert_eq!(lab.take(), ["S. 0:0(0) ack 1 <mss 1460,sackOK,ws 7>"]);
    lab.send("S. 0:0(0) ack 1001 win 14600 <mss 1040,sackOK,ws 6>");
    assert_eq!(lab.take(), [". 1001:1001(0) ack 1 <sack 0:1>"]);
    assert_eq!(lab.state(socket), State::Established);
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().send_window_bytes, 14_600);
    lab.send("P. 1:501(500) ack 1001 win 257");
    assert_eq!(lab.read(socket), Ok(500));
}
