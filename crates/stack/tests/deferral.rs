//! TCP_DEFER_ACCEPT: a connection can be accepted once its first data has arrived (tcp(7);
//! tcp_check_req and syn_ack_recalc of Linux's net/ipv4).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;

use uncork_stack::{Config, ListenerId, SocketId, SocketOption, State};

use crate::common::{self, Lab};

const NOTHING: [&str; 0] = [];
const SYN_ACK: &str = "S. 0:0(0) ack 1 <mss 1460>";

/// Opens a connection to a listener that waits for data for this many timeouts; the peer sends
/// none.
fn silent(timeouts: u8) -> (Lab, ListenerId) {
    let mut lab = Lab::new(Config::default());
    let listener = lab.listen();
    lab.stack.set_listener_option(listener, SocketOption::DeferAccept(timeouts));
    lab.send("S 0:0(0) win 65535 <mss 1460>");
    assert_eq!(lab.take(), [SYN_ACK]);
    lab.wait(10);
    lab.send(". 1:1(0) ack 1 win 5000");
    assert_eq!(lab.take(), NOTHING);
    assert_eq!(lab.stack.accept_waiting(listener), 0);
    (lab, listener)
}

fn accepted(lab: &mut Lab, listener: ListenerId) -> SocketId {
    lab.stack.accept(listener).unwrap()
}

#[test]
fn it_is_accepted_with_its_first_data_and_its_round_trip_is_that_of_the_ack() {
    let (mut lab, listener) = silent(3);
    lab.wait(700);
    lab.send("P. 1:11(10) ack 1 win 5000");
    let socket = accepted(&mut lab, listener);
    assert_eq!((lab.state(socket), lab.stack.readable_bytes(socket)), (State::Established, 10));
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!(info.round_trip, Some(Duration::from_millis(10)));
    assert_eq!((info.send_window_bytes, info.window_segments), (5000, 10));
    // What its user writes carries the ACK, and leaves at once.
    lab.take();
    lab.stack.send(lab.now, socket, &[0; 5], false).unwrap();
    assert_eq!(lab.take(), ["P. 1:6(5) ack 11"]);
}

#[test]
fn a_fin_is_something_to_be_accepted_for() {
    let (mut lab, listener) = silent(3);
    lab.send("F. 1:1(0) ack 1 win 5000");
    let socket = accepted(&mut lab, listener);
    assert_eq!(lab.state(socket), State::CloseWait);
}

#[test]
fn of_one_that_is_reset_meanwhile_nobody_hears() {
    let (mut lab, listener) = silent(3);
    lab.send("R 1:1(0) win 0");
    assert_eq!((lab.stack.accept_waiting(listener), lab.stack.sockets().count()), (0, 0));
    // The backlog has room again, for six.
    for port in 0..6 {
        lab.peer_port = 50_000 + port;
        lab.send("S 0:0(0) win 65535 <mss 1460>");
    }
    assert_eq!(lab.take(), [SYN_ACK; 6]);
}

#[test]
fn who_says_nothing_is_asked_once_more_at_the_last_timeout_but_one_and_accepted_then() {
    // Timeouts after 1, 3 and 7 seconds; a SYN-ACK at the third, none before.
    let (mut lab, listener) = silent(3);
    assert_eq!(lab.until_something(), (6990.0, vec![SYN_ACK.to_owned()]));
    assert_eq!(lab.stack.accept_waiting(listener), 0);
    lab.send(". 1:1(0) ack 1 win 5000");
    let socket = accepted(&mut lab, listener);
    let info = lab.stack.info(lab.now, socket).unwrap();
    // The SYN-ACK was repeated once, which is no sign of congestion; the round trip is known.
    assert_eq!(info.window_segments, 10);
    assert_eq!(info.round_trip, Some(Duration::from_millis(10)));
}

#[test]
fn data_that_comes_late_is_no_sign_of_congestion() {
    let (mut lab, listener) = silent(5);
    lab.wait(8000);
    assert_eq!(lab.take(), NOTHING);
    lab.send("P. 1:11(10) ack 1 win 5000");
    let socket = accepted(&mut lab, listener);
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().window_segments, 10);
}

#[test]
fn who_does_not_answer_any_more_is_forgotten() {
    for (timeouts, after) in [(3, 5), (9, 9)] {
        let (mut lab, listener) = silent(timeouts);
        let mut repeated = 0;
        loop {
            let (_, left) = lab.until_something();
            if left.is_empty() {
                break;
            }
            assert_eq!(left, [SYN_ACK]);
            repeated += 1;
        }
        // A handshake has five timeouts (tcp_synack_retries); where the listener waits longer, the
        // SYN-ACK is repeated once.
        assert_eq!(repeated, after - timeouts + 1, "{timeouts}");
        assert_eq!((lab.stack.accept_waiting(listener), lab.stack.sockets().count()), (0, 0));
    }
}

#[test]
fn a_syn_ack_that_is_lost_is_sent_again_as_ever() {
    let mut lab = Lab::new(Config::default());
    let listener = lab.listen();
    lab.stack.set_listener_option(listener, SocketOption::DeferAccept(3));
    lab.send("S 0:0(0) win 65535 <mss 1460>");
    lab.take();
    assert_eq!(lab.until_something(), (1000.0, vec![SYN_ACK.to_owned()]));
    lab.send(". 1:1(0) ack 1 win 5000");
    assert_eq!(lab.stack.accept_waiting(listener), 0);
    lab.wait(10);
    lab.send("P. 1:11(10) ack 1 win 5000");
    assert_eq!(lab.stack.accept_waiting(listener), 1);
}

#[test]
fn who_listens_no_more_leaves_them_to_others_without_data() {
    let (mut lab, listener) = silent(3);
    lab.peer_port = 50_000;
    lab.send("S 0:0(0) win 65535 <mss 1460>");
    lab.take();
    lab.stack.leave_listener(listener);
    assert_eq!((lab.take(), lab.stack.accept_waiting(listener)), (Vec::new(), 0));
    lab.stack.open_deferred(lab.now, listener);
    assert_eq!(lab.stack.accept_waiting(listener), 1);
    // And one whose ACK arrives after that.
    lab.send(". 1:1(0) ack 1 win 5000");
    assert_eq!(lab.stack.accept_waiting(listener), 2);
    let socket = accepted(&mut lab, listener);
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().send_window_bytes, 5000);
}

#[test]
fn who_listens_no_more_resets_them_when_they_speak() {
    let (mut lab, listener) = silent(3);
    lab.stack.close_listener(lab.now, listener);
    assert_eq!((lab.take(), lab.stack.sockets().count()), (Vec::new(), 0));
    lab.send("P. 1:11(10) ack 1 win 5000");
    assert_eq!(lab.take(), ["R 1:1(0)"]);
}

#[test]
fn it_counts_for_those_who_wait_already_how_long_is_waited() {
    let (mut lab, listener) = silent(9);
    lab.stack.set_listener_option(listener, SocketOption::DeferAccept(0));
    assert_eq!(lab.until_something(), (990.0, vec![SYN_ACK.to_owned()]));
    lab.send(". 1:1(0) ack 1 win 5000");
    assert_eq!(lab.stack.accept_waiting(listener), 1);
}

#[test]
fn who_connects_with_it_leaves_the_last_ack_of_the_handshake_to_his_first_data() {
    for says in [false, true] {
        let mut lab = Lab::new(Config::default());
        let remote = format!("{}:{}", common::PEER, common::PEER_PORT).parse().unwrap();
        let socket = lab.stack.connect(lab.now, None, remote).unwrap();
        lab.stack.set_option(lab.now, socket, SocketOption::DeferAccept(1));
        lab.take();
        lab.send("S. 0:0(0) ack 1 win 65535 <mss 1460>");
        assert_eq!(lab.take(), NOTHING);
        assert_eq!(lab.state(socket), State::Established);
        if says {
            lab.wait(100);
            lab.stack.send(lab.now, socket, &[0; 5], false).unwrap();
            assert_eq!(lab.take(), ["P. 1:6(5) ack 1"]);
        } else {
            assert_eq!(lab.until_something(), (200.0, vec![". 1:1(0) ack 1".to_owned()]));
        }
    }
}
