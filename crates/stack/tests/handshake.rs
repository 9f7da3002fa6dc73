//! Opening: what is sent, what is agreed on, and what is refused (RFC 9293 §3.5, §3.10.7).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::net::SocketAddr;
use std::ops::Range;
use uncork_stack::{Config, ConnectionError, ListenerId, Snapshot, SocketOption, State};
use uncork_wire::SeqNumber;

use crate::common::{Lab, PEER, PEER_PORT};

const NOTHING: [&str; 0] = [];

fn peer() -> SocketAddr {
    SocketAddr::new(PEER.parse().unwrap(), PEER_PORT)
}

#[test]
fn a_passive_open_agrees_to_what_the_peer_offers_and_to_nothing_else() {
    for (offers, answers) in [
        ("mss 1000", "mss 1460"),
        ("mss 1000,sackOK", "mss 1460,sackOK"),
        ("mss 1000,ws 3", "mss 1460,ws 7"),
        ("mss 1000,sackOK,ts 5 0,ws 3", "mss 1460,sackOK,ts,ws 7"),
    ] {
        let mut lab = Lab::new(Config::default());
        let listener = lab.listen();
        lab.send(&format!("S 0:0(0) win 1000 <{offers}>"));
        assert_eq!(lab.take(), [format!("S. 0:0(0) ack 1 <{answers}>")]);
        lab.send(". 1:1(0) ack 1 win 1000 <ts 6 0>");
        let socket = lab.stack.accept(listener).unwrap();
        let info = lab.stack.info(lab.now, socket).unwrap();
        assert_eq!(info.state, State::Established);
        // A window after the handshake is scaled (RFC 7323 §2.2).
        let shift = if offers.contains("ws") { 3 } else { 0 };
        assert_eq!(info.send_window_bytes, 1000 << shift, "{offers}");
        let stamps = if offers.contains("ts") { 12 } else { 0 };
        assert_eq!(info.segment_bytes, if shift == 0 { 500 } else { 1000 } - stamps, "{offers}");
    }
}

#[test]
fn the_users_patience_ends_an_active_open_when_it_is_over() {
    // TCP_USER_TIMEOUT; tcp_clamp_rto_to_user_timeout.
    let mut lab = Lab::new(Config::default());
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    let patience = std::time::Duration::from_secs(10);
    lab.stack.set_option(lab.now, socket, SocketOption::UserTimeout(Some(patience)));
    let began = lab.now;
    assert_eq!(lab.take().len(), 1);
    for millis in [1000.0, 2000.0, 4000.0] {
        assert_eq!(lab.until_something().0, millis);
    }
    assert_eq!(lab.until_something().1, NOTHING);
    assert_eq!(lab.now.since(began), patience);
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::TimedOut));
    // And the retries end it when they are used up first.
    let mut lab = Lab::new(Config { syn_retries: 1, ..Config::default() });
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    lab.stack.set_option(lab.now, socket, SocketOption::UserTimeout(Some(patience)));
    let began = lab.now;
    while !lab.until_something().1.is_empty() {}
    assert_eq!(lab.now.since(began).as_secs(), 3);
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::TimedOut));
}

#[test]
fn the_shift_that_a_syn_has_told_holds_though_the_buffer_is_another_by_then() {
    // RFC 7323 §2.2: the peer shifts by what the SYN says; tcp_connect_init.
    let mut lab = Lab::new(Config::default());
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    assert_eq!(lab.take(), ["S 0:0(0) <mss 1460,sackOK,ts,ws 7>"]);
    lab.stack.set_option(lab.now, socket, SocketOption::ReceiveBuffer(32 << 10));
    let (_, again) = lab.until_something();
    assert_eq!(again, ["S 0:0(0) <mss 1460,sackOK,ts,ws 7>"]);
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().window_scales, (0, 0));
    lab.send("S. 0:0(0) ack 1 win 5000 <mss 1460,ws 6>");
    assert_eq!((lab.take().len(), lab.last_window), (1, 256));
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().window_scales, (6, 7));
    // A buffer size that is set before the SYN leaves is announced in it.
    let mut lab = Lab::new(Config::default());
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    lab.stack.set_option(lab.now, socket, SocketOption::ReceiveBuffer(32 << 10));
    assert_eq!(lab.take(), ["S 0:0(0) <mss 1460,sackOK,ts,ws 0>"]);
    lab.stack.set_option(lab.now, socket, SocketOption::ReceiveBuffer(128 << 10));
    lab.send("S. 0:0(0) ack 1 win 5000 <mss 1460,ws 7>");
    assert_eq!((lab.take().len(), lab.last_window), (1, 65_535));
}

#[test]
fn an_active_open_offers_everything_and_is_repeated_after_1_3_and_7_seconds() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    let syn = "S 0:0(0) <mss 1460,sackOK,ts,ws 7>";
    assert_eq!(lab.take(), [syn]);
    for millis in [1000.0, 2000.0, 4000.0] {
        // RFC 6298 §2 rule 2.1 and §5 rule 5.5.
        assert_eq!(lab.until_something(), (millis, vec![syn.to_owned()]));
    }
    lab.send("S. 0:0(0) ack 1 win 5000 <mss 1460>");
    assert_eq!(lab.take(), [". 1:1(0) ack 1"]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    // A lost SYN is congestion (RFC 5681 §3.1), and no measurement (Karn).
    assert_eq!((info.window_segments, info.round_trip), (1, None));
}

#[test]
fn in_syn_received_what_cannot_be_is_answered_with_an_ack() {
    // RFC 9293 §3.10.7.4, first step: a new connection begins from the same port.
    let mut lab = Lab::new(Config::default());
    lab.listen();
    lab.send("S 0:0(0) win 5000 <mss 1000>");
    lab.take();
    lab.send("S 700000:0(0) win 5000 <mss 1000>");
    assert_eq!(lab.take(), [". 1:1(0) ack 1"]);
    // The peer does not know of the first, and resets it: its next SYN is taken.
    lab.send("R 1:0(0) win 0");
    assert_eq!(lab.stack.connection_count(), 0);
    lab.send("S 700000:0(0) win 5000 <mss 1000>");
    assert_eq!(lab.take(), ["S. 0:0(0) ack 700001 <mss 1460>"]);
}

#[test]
fn what_is_echoed_tells_which_syn_ack_was_answered() {
    // RFC 7323 §4. Without timestamps this cannot be told (Karn).
    for (options, stamps) in [("mss 1000,ts 100 0", true), ("mss 1000", false)] {
        for asks_again in [false, true] {
            let mut lab = Lab::new(Config::default());
            let listener = lab.listen();
            let syn = format!("S 0:0(0) win 65535 <{options}>");
            lab.send(&syn);
            let answer = lab.take();
            let (after, again) = if asks_again {
                lab.wait(500);
                lab.send(&syn);
                (500.0, lab.take())
            } else {
                lab.until_something()
            };
            assert_eq!(again, answer);
            lab.wait(30);
            let echo = if stamps { format!(" <ts 200 {after}>") } else { String::new() };
            lab.send(&format!(". 1:0(0) ack 1 win 65535{echo}"));
            let socket = lab.stack.accept(listener).unwrap();
            let measured = lab.stack.info(lab.now, socket).unwrap().round_trip;
            let expected = stamps.then_some(std::time::Duration::from_millis(30));
            assert_eq!(measured, expected, "{options}, {asks_again}");
        }
    }
}

#[test]
fn a_reset_that_acknowledges_the_syn_refuses_and_any_other_is_ignored() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    lab.take();
    lab.send("R. 0:0(0) ack 2 win 0");
    lab.send("R 0:0(0) win 0");
    assert_eq!((lab.take().len(), lab.state(socket)), (0, State::SynSent));
    lab.send("R. 0:0(0) ack 1 win 0");
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::Refused));
}

#[test]
fn an_ack_of_something_never_sent_is_reset_in_syn_sent_and_syn_received() {
    // §3.10.7.3 first step, §3.10.7.4 fifth step.
    let mut lab = Lab::new(Config::default());
    lab.stack.connect(lab.now, None, peer()).unwrap();
    lab.take();
    lab.send("S. 0:0(0) ack 9 win 5000");
    assert_eq!(lab.take(), ["R 9:9(0)"]);

    let mut lab = Lab::new(Config::default());
    lab.listen();
    lab.send("S 0:0(0) win 5000");
    lab.take();
    lab.send(". 1:1(0) ack 9 win 5000");
    assert_eq!(lab.take(), ["R 9:9(0)"]);
}

#[test]
fn both_open_at_once() {
    // §3.5, figure 7.
    let mut lab = Lab::new(Config::default());
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    lab.take();
    lab.send("S 0:0(0) win 5000 <mss 1460>");
    assert_eq!(lab.state(socket), State::SynReceived);
    assert_eq!(lab.take(), ["S. 0:0(0) ack 1 <mss 1460>"]);
    lab.send("S. 0:0(0) ack 1 win 5000 <mss 1460>");
    // Its SYN is old; its ACK counts in the next segment at the latest.
    lab.send(". 1:1(0) ack 1 win 5000");
    assert_eq!(lab.state(socket), State::Established);
}

#[test]
fn a_close_before_the_handshake_ends_follows_after_it() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    lab.take();
    lab.send("S 0:0(0) win 5000 <mss 1460>");
    lab.take();
    lab.stack.shutdown(lab.now, socket, uncork_stack::Shutdown::Write);
    assert_eq!(lab.take(), NOTHING);
    lab.send(". 1:1(0) ack 1 win 5000");
    assert_eq!(lab.take(), ["F. 1:1(0) ack 1"]);
    assert_eq!(lab.state(socket), State::FinWait1);
}

#[test]
fn data_given_before_the_handshake_ends_leaves_with_its_last_segment() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
    lab.take();
    lab.write(socket, 100);
    assert_eq!(lab.take(), NOTHING);
    lab.send("S. 0:0(0) ack 1 win 5000 <mss 1460>");
    assert_eq!(lab.take(), ["P. 1:101(100) ack 1"]);
}

#[test]
fn who_waits_to_write_acknowledges_the_syn_ack_with_it_and_is_in_ping_pong() {
    // sk_write_pending, tcp_rcv_synsent_state_process; the peer's answer then need not be
    // acknowledged at once.
    let begun = |waits: &[bool]| {
        let mut lab = Lab::new(Config::default());
        let socket = lab.stack.connect(lab.now, None, peer()).unwrap();
        lab.take();
        for &waits in waits {
            lab.stack.set_option(lab.now, socket, SocketOption::WriterWaits(waits));
        }
        lab.send("S. 0:0(0) ack 1 win 5000 <mss 1460>");
        (lab, socket)
    };
    let (mut lab, socket) = begun(&[true]);
    assert_eq!(lab.take(), NOTHING);
    lab.wait(39);
    lab.write(socket, 100);
    assert_eq!(lab.take(), ["P. 1:101(100) ack 1"]);
    lab.send("P. 1:501(500) ack 101 win 5000");
    assert_eq!(lab.take(), NOTHING);
    // The writer may take longer, but not for ever.
    let (mut lab, _) = begun(&[true]);
    assert_eq!(lab.until_something(), (200.0, vec![". 1:1(0) ack 1".to_owned()]));
    for waits in [&[][..], &[true, false]] {
        let (mut lab, socket) = begun(waits);
        assert_eq!(lab.take(), [". 1:1(0) ack 1"]);
        lab.write(socket, 100);
        lab.take();
        lab.send("P. 1:501(500) ack 101 win 5000");
        assert_eq!(lab.take(), [". 101:101(0) ack 501"]);
    }
}

#[test]
fn a_syn_that_comes_again_is_answered_again() {
    let mut lab = Lab::new(Config::default());
    lab.listen();
    lab.send("S 0:0(0) win 5000 <mss 1460>");
    assert_eq!(lab.take(), ["S. 0:0(0) ack 1 <mss 1460>"]);
    lab.send("S 0:0(0) win 5000 <mss 1460>");
    assert_eq!(lab.take(), ["S. 0:0(0) ack 1 <mss 1460>"]);
    assert_eq!(lab.until_something().1, ["S. 0:0(0) ack 1 <mss 1460>"]);
}

#[test]
fn where_nobody_listens_a_segment_is_reset_with_numbers_that_its_sender_believes() {
    // §3.10.7.1.
    let mut lab = Lab::new(Config::default());
    lab.send("S 0:0(0) win 5000");
    assert_eq!(lab.take(), ["R. 0:0(0) ack 1"]);
    lab.send("F. 5:15(10) ack 77 win 5000");
    assert_eq!(lab.take().len(), 1);
    lab.send("R 5:5(0) win 0");
    assert_eq!(lab.take(), NOTHING);
}

#[test]
fn a_syn_and_a_reset_inside_the_window_are_challenged_and_exact_resets_believed() {
    // RFC 5961 §3.2 and §4.2.
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted("mss 1460");
    lab.send("S 9:9(0) win 5000");
    assert_eq!(lab.take(), [". 1:1(0) ack 1"]);
    // Rate-limited (§7): two ends that do not believe each other would never stop.
    lab.send("S 9:9(0) win 5000");
    assert_eq!(lab.take(), NOTHING);
    lab.wait(500);
    lab.send("R 9:9(0) win 0");
    assert_eq!(lab.take(), [". 1:1(0) ack 1"]);
    lab.send("R 70000:70000(0) win 0");
    assert_eq!((lab.take().len(), lab.state(socket)), (0, State::Established));
    lab.send("R 1:1(0) win 0");
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::Reset));
}

/// Fills the backlog: as many handshakes are under way as it says, and one more.
fn full_backlog() -> (Lab, ListenerId) {
    let mut lab = Lab::new(Config::default());
    let listener = lab.stack.listen("10.0.0.1:80".parse().unwrap(), 1).unwrap();
    for port in [6, 1] {
        lab.peer_port = port;
        lab.send("S 0:0(0) win 5000 <mss 1460>");
        lab.take();
    }
    (lab, listener)
}

#[test]
fn a_full_backlog_answers_with_cookies_and_a_full_accept_queue_with_silence() {
    let (mut lab, listener) = full_backlog();
    // The next SYN gets a cookie, and no state is kept.
    lab.peer_port = 2;
    lab.send("SEW 0:0(0) win 5000 <mss 1400,sackOK,ts 9 0,ws 5>");
    let answer = lab.take();
    assert_eq!(answer, ["S.E 0:0(0) ack 1 <mss 1460,sackOK,ts,ws 7>"]);
    assert_eq!((lab.stack.connection_count(), lab.stack.counters().cookies_sent), (2, 1));
    lab.wait(50);
    // An ACK without a valid cookie.
    lab.send(". 1:1(0) ack 7 win 5000");
    assert_eq!(lab.take().len(), 1);
    lab.send("P. 1:11(10) ack 1 win 5000");
    let socket = lab.stack.accept(listener).unwrap();
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.state, lab.read(socket)), (State::Established, Ok(10)));
    assert_eq!(lab.stack.counters().cookies_good, 1);
    // Two that are not accepted, and no more: Linux lets one more wait than the backlog says.
    for port in [1, 3, 4, 5] {
        lab.peer_port = port;
        if port != 1 {
            lab.send("S 0:0(0) win 5000 <mss 1460>");
            lab.take();
        }
        if port == 1 {
            // Whether the first SYN-ACK was sent again or not, its number is what counts.
            lab.send("S 0:0(0) win 5000 <mss 1460>");
            lab.take();
        }
        lab.send(". 1:1(0) ack 1 win 5000");
    }
    assert_eq!(lab.stack.accept_waiting(listener), 2);
    assert_eq!(lab.stack.counters().listen_drops, 2);
}

#[test]
fn a_cookie_tells_the_window_that_its_connection_will_have() {
    let (mut lab, listener) = full_backlog();
    lab.stack.set_listener_option(listener, SocketOption::ReceiveBuffer(32 << 10));
    lab.peer_port = 2;
    lab.send("S 0:0(0) win 5000 <mss 1400,sackOK,ts 9 0,ws 5>");
    assert_eq!(lab.take(), ["S. 0:0(0) ack 1 <mss 1460,sackOK,ts,ws 0>"]);
    assert_eq!((lab.last_window, lab.stack.counters().cookies_sent), (32 << 10, 1));
    lab.send("P. 1:11(10) ack 1 win 5000 <ts 10 0>");
    assert_eq!((lab.take().len(), lab.last_window), (1, (32 << 10) - 10));
    assert_eq!(lab.stack.accept_waiting(listener), 1);
}

#[test]
fn a_cookie_that_comes_back_tells_nothing_of_the_round_trip() {
    // The low bits of the timestamp that it echoes encode options.
    let (mut lab, listener) = full_backlog();
    lab.peer_port = 2;
    lab.send("S 0:0(0) win 5000 <mss 1400,sackOK,ts 9 0,ws 5>");
    lab.take();
    lab.wait(50);
    lab.send(". 1:1(0) ack 1 win 5000 <ts 10 0>");
    let socket = lab.stack.accept(listener).unwrap();
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.extensions.0, info.round_trip), (true, None));
}

/// Sends SYNs from these ports; returns each with the initial sequence number of its answer.
fn knock(lab: &mut Lab, ports: Range<u16>) -> Vec<(u16, Option<SeqNumber>)> {
    let mut answered = Vec::new();
    for port in ports {
        lab.peer_port = port;
        lab.send("S 0:0(0) win 5000 <mss 1460>");
        assert_eq!(lab.take().len(), 1);
        answered.push((port, lab.iss));
    }
    answered
}

/// A burst at a short backlog, such as sixty clients that connect at once to a server that listens
/// with five: the cookies come back when the handshakes before them have filled the accept queue.
/// If they were dropped, what follows the first segment would match no connection and be reset; and
/// a client that waits for a greeting would wait for ever, as nothing sends a cookie again.
#[test]
fn who_brings_a_cookie_back_finds_room_though_the_accept_queue_is_full() {
    let mut lab = Lab::new(Config::default());
    let listener = lab.stack.listen("10.0.0.1:80".parse().unwrap(), 1).unwrap();
    let all = knock(&mut lab, 10..22);
    assert_eq!(lab.stack.counters().cookies_sent, 10);
    for (port, iss) in all {
        (lab.peer_port, lab.iss) = (port, iss);
        lab.send(". 1:1(0) ack 1 win 5000");
        lab.send(". 1:101(100) ack 1 win 5000");
        lab.send("P. 101:201(100) ack 1 win 5000");
    }
    let counters = *lab.stack.counters();
    assert_eq!((counters.resets_out, counters.listen_drops), (0, 0));
    for _ in 0..12 {
        let socket = lab.stack.accept(listener).unwrap();
        assert_eq!(lab.read(socket), Ok(200));
    }
    // There is room for as many as with a long backlog, and for no more.
    lab.take();
    for (port, iss) in knock(&mut lab, 40..640) {
        (lab.peer_port, lab.iss) = (port, iss);
        lab.send(". 1:1(0) ack 1 win 5000");
        lab.take();
    }
    assert_eq!(lab.stack.accept_waiting(listener), 513);
    assert_eq!(lab.stack.counters().listen_drops, 600 - 513);
}

/// What the peer had already sent acknowledges the cookie just as the ACK did: it belongs to the
/// new owner. No second connection is accepted, whose octets the first one would miss.
#[test]
fn what_comes_for_a_connection_that_was_given_away_is_no_cookie_come_back() {
    let (mut lab, listener) = full_backlog();
    let (port, iss) = knock(&mut lab, 20..21)[0];
    lab.send(". 1:1(0) ack 1 win 5000");
    let socket = lab.stack.accept(listener).unwrap();
    let detached = lab.stack.detach(lab.now, socket).unwrap();
    lab.take();
    lab.send("P. 1:101(100) ack 1 win 5000");
    assert_eq!(lab.take(), NOTHING);
    assert_eq!(lab.stack.accept_waiting(listener), 0);
    let Snapshot { local, remote, .. } = detached.snapshot;
    assert_eq!(lab.stack.take_caught(local, remote).len(), 1);
    // A new connection from there does bring a cookie back.
    lab.wait(100);
    lab.peer_port = port;
    lab.send("S 0:0(0) win 5000 <mss 1460>");
    assert_eq!((lab.take().len(), lab.iss), (1, iss));
    lab.send(". 1:1(0) ack 1 win 5000");
    assert_eq!(lab.stack.accept_waiting(listener), 1);
}

#[test]
fn a_cookie_keeps_ecn_and_is_looked_for_only_while_one_may_be_under_way() {
    let (mut lab, listener) = full_backlog();
    lab.peer_port = 2;
    for (syn, answer) in [
        // Without timestamps there is no room to encode it.
        ("SEW 0:0(0) win 5000 <mss 1400>", "S. 0:0(0) ack 1 <mss 1460>"),
        ("SEW 0:0(0) win 5000 <mss 1400,ts 9 0>", "S.E 0:0(0) ack 1 <mss 1460,ts>"),
    ] {
        lab.send(syn);
        assert_eq!(lab.take(), [answer]);
    }
    lab.wait(20);
    lab.send(". 1:1(0) ack 1 win 5000 <ts 10 0>");
    let socket = lab.stack.accept(listener).unwrap();
    lab.write(socket, 100);
    assert_eq!((lab.take().len(), lab.last_tos & 3), (1, 2), "ECT(0)");
    let guess = |lab: &mut Lab| {
        lab.peer_port += 1;
        lab.send(". 1:1(0) ack 7 win 5000");
        assert_eq!(lab.take().len(), 1);
        lab.stack.counters().cookies_bad
    };
    assert_eq!(guess(&mut lab), 1);
    lab.wait(120_000);
    lab.take();
    assert_eq!(guess(&mut lab), 1, "none can be good any more");
}
