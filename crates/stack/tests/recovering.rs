//! Losses: found by ACKs, by time, by a probe or by a timeout (RFC 5681, 6298, 6582, 6675, 6937,
//! 8985).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;
use uncork_packet::{Capabilities, Medium};
use uncork_stack::{Algorithm, Config, ConnectionError, KeepAlive, Phase, SocketId, SocketOption};

use crate::common::Lab;

const NOTHING: [&str; 0] = [];

fn open(syn: &str) -> (Lab, SocketId) {
    let mut lab =
        Lab::new(Config { pacing: false, congestion: Algorithm::NewReno, ..Config::default() });
    let socket = lab.accepted(syn);
    (lab, socket)
}

fn segment(n: usize) -> String {
    let (from, to) = (1 + n * 1000, 1001 + n * 1000);
    format!(". {from}:{to}(1000) ack 1")
}

fn phase(lab: &mut Lab, socket: SocketId) -> Phase {
    lab.stack.info(lab.now, socket).unwrap().phase
}

#[test]
fn three_sacked_segments_behind_a_hole_send_it_again_at_once() {
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535 <sack 1001:2001>");
    lab.send(". 1:0(0) ack 1 win 65535 <sack 1001:3001>");
    assert_eq!((lab.take(), phase(&mut lab, socket)), (vec![], Phase::Disorder));
    lab.send(". 1:0(0) ack 1 win 65535 <sack 1001:4001>");
    assert_eq!(lab.take(), [segment(0)]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.threshold_segments), (Phase::Recovery, Some(5)));
    lab.wait(10);
    lab.send(". 1:0(0) ack 10001 win 65535");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.window_segments), (Phase::Open, 5));
}

#[test]
fn three_duplicates_from_a_peer_without_sack_do_the_same_and_partial_acks_go_on() {
    // RFC 5681 §3.2, RFC 6582 §3.2.
    let (mut lab, socket) = open("mss 1000");
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    for _ in 0..2 {
        lab.send(". 1:0(0) ack 1 win 65535");
    }
    assert_eq!(lab.take(), NOTHING);
    lab.send(". 1:0(0) ack 1 win 65535");
    assert_eq!(lab.take(), [segment(0)]);
    // The fourth was lost as well, and the others have arrived.
    for _ in 0..5 {
        lab.send(". 1:0(0) ack 1 win 65535");
    }
    lab.wait(10);
    lab.send(". 1:0(0) ack 3001 win 65535");
    assert_eq!(lab.take(), [segment(3)]);
    lab.send(". 1:0(0) ack 10001 win 65535");
    lab.write(socket, 1000);
    lab.take();
    lab.send(". 1:0(0) ack 11001 win 65535");
    assert_eq!(phase(&mut lab, socket), Phase::Open);
}

#[test]
fn duplicates_let_new_segments_go_before_recovery() {
    // Limited transmit, RFC 3042.
    let (mut lab, socket) = open("mss 1000");
    lab.write(socket, 20_000);
    assert_eq!(lab.take().len(), 10);
    lab.send(". 1:0(0) ack 1 win 65535");
    assert_eq!(lab.take(), [segment(10)]);
    lab.send(". 1:0(0) ack 1 win 65535");
    assert_eq!(lab.take(), [segment(11)]);
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    // RFC 8985 §7.
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 3000);
    lab.take();
    let (millis, probe) = lab.until_something();
    assert_eq!(probe, ["P. 2001:3001(1000) ack 1"]);
    assert_eq!(millis, 22.0);
    // Its SACK reveals the hole, as three segments after it would have.
    lab.wait(10);
    lab.send(". 1:0(0) ack 1001 win 65535 <sack 2001:3001>");
    let (millis, again) = lab.until_something();
    assert_eq!(again, [segment(1)]);
    assert!(millis <= 3.0, "{millis}");
    assert_eq!(lab.stack.counters().timeouts, 0);
}

/// Has the last of ten segments probed and acknowledged. Returns the window at that moment.
fn probed() -> (Lab, SocketId, u32) {
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 8001 win 65535");
    let before = lab.stack.info(lab.now, socket).unwrap();
    let (_, probe) = lab.until_something();
    assert_eq!(probe, ["P. 9001:10001(1000) ack 1"]);
    lab.wait(10);
    lab.send(". 1:0(0) ack 10001 win 65535");
    // Whether original or copy was acknowledged cannot be told yet (RFC 8985 §7.4.2).
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert!(info.window_segments >= before.window_segments && info.threshold_segments.is_none());
    (lab, socket, info.window_segments)
}

#[test]
fn a_probe_that_repairs_the_loss_counts_as_one() {
    let (mut lab, socket, before) = probed();
    lab.write(socket, 1000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 11001 win 65535");
    let after = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((after.phase, after.window_segments), (Phase::Open, before / 2));
}

#[test]
fn a_probe_of_which_the_next_ack_says_that_it_came_twice_counts_as_nothing() {
    // The plain duplicate ACK of a peer without DSACK counts the same.
    for next in [" <sack 9001:10001>", ""] {
        let (mut lab, socket, before) = probed();
        lab.send(&format!(". 1:0(0) ack 10001 win 65535{next}"));
        lab.write(socket, 1000);
        lab.take();
        lab.wait(10);
        lab.send(". 1:0(0) ack 11001 win 65535");
        let after = lab.stack.info(lab.now, socket).unwrap();
        assert!(after.window_segments >= before && after.threshold_segments.is_none(), "{next}");
    }
}

#[test]
fn a_probe_of_a_train_tells_nothing_of_the_round_trip() {
    // Karn: the copy is the last segment of what left as one frame.
    let device = Capabilities { max_train_bytes: 65_536, ..Capabilities::plain(Medium::Ip, 1500) };
    let mut lab = Lab::with_device(Config { pacing: false, ..Config::default() }, device);
    let socket = lab.accepted("mss 1000,sackOK");
    let before = lab.stack.info(lab.now, socket).unwrap().round_trip;
    lab.write(socket, 2000);
    assert_eq!(lab.take(), ["P. 1:2001(2000) ack 1"]);
    assert_eq!(lab.until_something().1, ["P. 1001:2001(1000) ack 1"]);
    lab.wait(100);
    lab.send(". 1:0(0) ack 2001 win 65535");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().round_trip, before);
}

#[test]
fn a_probe_whose_original_came_as_well_counts_as_nothing() {
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 1000);
    lab.take();
    let (_, probe) = lab.until_something();
    assert_eq!(probe.len(), 1);
    let before = lab.stack.info(lab.now, socket).unwrap().window_segments;
    lab.send(". 1:0(0) ack 1001 win 65535 <sack 1:1001>");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert!(info.window_segments >= before && info.threshold_segments.is_none());
}

#[test]
fn a_timeout_sends_one_segment_and_doubles() {
    // RFC 6298 §5, RFC 5681 §3.1.
    let (mut lab, socket) = open("mss 1000");
    lab.write(socket, 3000);
    lab.take();
    let (first, again) = lab.until_something();
    assert_eq!((again, first), (vec![segment(0)], 210.0));
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.window_segments, info.lost_segments), (Phase::Loss, 1, 3));
    let (second, again) = lab.until_something();
    assert_eq!((again, second), (vec![segment(0)], 420.0));
    // What is acknowledged lets two more go: slow start.
    lab.send(". 1:0(0) ack 1001 win 65535");
    assert_eq!(lab.take(), [segment(1), "P. 2001:3001(1000) ack 1".to_owned()]);
}

#[test]
fn a_timeout_in_a_recovery_does_not_cut_what_that_has_cut() {
    // RFC 5681 §3.1: once in a window of data. tcp_enter_loss.
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535 <sack 1001:4001>");
    assert_eq!(lab.take(), [segment(0)]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.threshold_segments), (Phase::Recovery, Some(5)));
    // No more ACKs arrive.
    lab.until_something();
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.threshold_segments), (Phase::Loss, Some(5)));
    // Nor does a timeout after an ECN mark.
    let mut lab =
        Lab::new(Config { pacing: false, congestion: Algorithm::NewReno, ..Config::default() });
    let listener = lab.listen();
    lab.send("SEW 0:0(0) win 65535 <mss 1000,sackOK>");
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535");
    let socket = lab.stack.accept(listener).unwrap();
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    lab.send(".E 1:0(0) ack 1001 win 65535");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.threshold_segments), (Phase::Reduced, Some(5)));
    while phase(&mut lab, socket) != Phase::Loss {
        lab.until_something();
    }
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().threshold_segments, Some(5));
}

#[test]
fn fifteen_timeouts_give_a_connection_up() {
    let (mut lab, socket) = open("mss 1000");
    lab.write(socket, 1000);
    lab.take();
    let mut sent = 0;
    loop {
        let (_, again) = lab.until_something();
        if again.is_empty() {
            break;
        }
        sent += again.len();
    }
    assert_eq!((sent, lab.stack.take_error(socket)), (15, Some(ConnectionError::TimedOut)));
}

#[test]
fn the_users_patience_ends_a_connection_sooner() {
    // RFC 9293 §3.8.3, TCP_USER_TIMEOUT.
    let (mut lab, socket) = open("mss 1000");
    let patience = Duration::from_secs(3);
    lab.stack.set_option(lab.now, socket, SocketOption::UserTimeout(Some(patience)));
    let began = lab.now;
    lab.write(socket, 1000);
    lab.take();
    while !lab.until_something().1.is_empty() {}
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::TimedOut));
    assert_eq!(lab.now.since(began), patience);
}

/// Returns a connection whose peer's window was shut for a while before the user wrote; the first
/// probe has left.
fn shut_out(patience: Duration) -> (Lab, SocketId) {
    let (mut lab, socket) = open("mss 1000");
    lab.stack.set_option(lab.now, socket, SocketOption::UserTimeout(Some(patience)));
    lab.send(". 1:0(0) ack 1 win 0");
    lab.wait(60_000);
    lab.write(socket, 500);
    let (millis, probe) = lab.until_something();
    assert_eq!(probe, [". 0:0(0) ack 1"]);
    assert!((200.0..300.0).contains(&millis), "{millis}");
    (lab, socket)
}

#[test]
fn a_window_that_stays_shut_ends_the_users_patience_though_the_peer_answers() {
    // tcp(7), TCP_USER_TIMEOUT; tcp_probe_timer.
    let patience = Duration::from_secs(3);
    let (mut lab, socket) = shut_out(patience);
    let began = lab.now;
    loop {
        lab.send(". 1:0(0) ack 1 win 0");
        if lab.until_something().1.is_empty() {
            break;
        }
    }
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::TimedOut));
    assert_eq!(lab.now.since(began), patience);
}

#[test]
fn the_users_patience_with_a_shut_window_begins_anew_when_it_has_opened() {
    let (mut lab, socket) = shut_out(Duration::from_secs(3));
    for from in [1, 501, 1001] {
        lab.wait(2000);
        while !lab.take().is_empty() {}
        lab.send(&format!(". 1:0(0) ack {from} win 500"));
        assert_eq!(lab.take(), [format!("P. {from}:{}(500) ack 1", from + 500)]);
        lab.send(&format!(". 1:0(0) ack {} win 0", from + 500));
        lab.write(socket, 500);
    }
    assert_eq!(lab.stack.take_error(socket), None);
}

#[test]
fn a_window_that_shrinks_is_waited_for_as_long_as_the_peer_answers() {
    // RFC 9293 §3.8.6: the sender must probe, and should not time out. tcp_retransmit_timer.
    let (mut lab, socket) = open("mss 1000");
    lab.write(socket, 5000);
    assert_eq!(lab.take().len(), 5);
    for _ in 0..30 {
        let (_, sent) = lab.until_something();
        // The first segment, and nothing beyond it.
        assert_eq!(sent, [segment(0)]);
        lab.send(". 1:0(0) ack 1 win 0");
    }
    assert_eq!(lab.stack.take_error(socket), None);
    // Two segments fit.
    lab.send(". 1:0(0) ack 1 win 2000");
    lab.until_something();
    lab.send(". 1:0(0) ack 1001 win 1500");
    assert_eq!(lab.take(), [segment(1)]);
    // From now on the peer is silent.
    lab.send(". 1:0(0) ack 1001 win 0");
    let silent = lab.now;
    while !lab.until_something().1.is_empty() {}
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::TimedOut));
    let patience = lab.now.since(silent).as_secs();
    assert!((240..600).contains(&patience), "{patience}");
}

#[test]
fn a_timeout_that_was_wrong_is_taken_back() {
    // Eifel, RFC 3522 and RFC 4015: the echoed timestamp is the original's.
    let (mut lab, socket) = open("mss 1000,sackOK,ts 100 0");
    lab.write(socket, 10 * 988);
    lab.take();
    lab.wait(10);
    // All ACKs are very late.
    let (_, probe) = lab.until_something();
    assert_eq!(probe.len(), 1);
    let (_, again) = lab.until_something();
    assert_eq!((again.len(), phase(&mut lab, socket)), (1, Phase::Loss));
    let stamp = lab.stack.counters().timeouts;
    assert_eq!(stamp, 1);
    lab.send(". 1:0(0) ack 989 win 65535 <ts 201 1>");
    assert_eq!(phase(&mut lab, socket), Phase::Open);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert!(info.window_segments >= 10, "{}", info.window_segments);
    assert_eq!(lab.stack.counters().undone, 1);
    // Nothing was lost, so nothing more is sent again.
    assert_eq!((lab.take(), info.lost_segments), (vec![], 0));
}

#[test]
fn a_recovery_that_duplicates_prove_wrong_is_taken_back() {
    // RFC 3708 §2, with the report of RFC 2883.
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535 <sack 1001:4001>");
    assert_eq!(lab.take(), [segment(0)]);
    // It was late, not lost; the peer reports that when the copy arrives.
    lab.send(". 1:0(0) ack 10001 win 65535");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().window_segments, 5);
    lab.wait(10);
    lab.send(". 1:0(0) ack 10001 win 65535 <sack 1:1001>");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.window_segments, lab.stack.counters().undone), (10, 1));
}

#[test]
fn what_was_sacked_and_forgotten_is_sent_again_after_a_timeout() {
    // RFC 2018 §8: reneging.
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 4000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535 <sack 1001:4001>");
    assert_eq!(lab.take(), [segment(0)]);
    lab.send(". 1:0(0) ack 1001 win 65535");
    let (_, again) = lab.until_something();
    assert_eq!(again, [segment(1)]);
}

#[test]
fn an_echoed_mark_halves_once_in_a_window_and_is_answered_with_cwr() {
    // RFC 3168 §6.1.2.
    let (mut lab, socket) = open("mss 1000");
    lab.write(socket, 1000);
    lab.take();
    assert_eq!(lab.last_tos & 3, 0);
    let mut lab =
        Lab::new(Config { pacing: false, congestion: Algorithm::NewReno, ..Config::default() });
    let listener = lab.listen();
    lab.send("SEW 0:0(0) win 65535 <mss 1000>");
    assert_eq!(lab.take(), ["S.E 0:0(0) ack 1 <mss 1460>"]);
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535");
    let socket = lab.stack.accept(listener).unwrap();
    lab.write(socket, 10_000);
    lab.take();
    assert_eq!(lab.last_tos & 3, 2);
    lab.wait(10);
    lab.send(".E 1:0(0) ack 1001 win 65535");
    lab.send(".E 1:0(0) ack 2001 win 65535");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.threshold_segments), (Phase::Reduced, Some(5)));
    lab.send(". 1:0(0) ack 10001 win 65535");
    lab.write(socket, 1000);
    assert_eq!(lab.take(), ["P.W 10001:11001(1000) ack 1"]);
    // And in the other direction: a mark is echoed until CWR has come (§6.1.3).
    lab.tos = 3;
    lab.send("P. 1:0(10) ack 11001 win 65535");
    assert_eq!(lab.take(), [".E 11001:11001(0) ack 11"]);
    lab.tos = 2;
    lab.send("P.W 11:0(10) ack 11001 win 65535");
    assert_eq!(lab.take(), [". 11001:11001(0) ack 21"]);
}

#[test]
fn a_loss_and_a_timeout_are_answered_with_cwr_too() {
    // RFC 3168 §6.1.2: for whatever reason the window was cut.
    for times_out in [false, true] {
        let mut lab =
            Lab::new(Config { pacing: false, congestion: Algorithm::NewReno, ..Config::default() });
        let listener = lab.listen();
        lab.send("SEW 0:0(0) win 65535 <mss 1000>");
        lab.take();
        lab.wait(10);
        lab.send(". 1:0(0) ack 1 win 65535");
        let socket = lab.stack.accept(listener).unwrap();
        lab.write(socket, 10_000);
        lab.take();
        if times_out {
            assert_eq!(lab.until_something().1, [segment(0)]);
        } else {
            (0..3).for_each(|_| lab.send(".E 1:0(0) ack 1 win 65535"));
            assert_eq!(lab.take(), [segment(0)]);
        }
        lab.send(".E 1:0(0) ack 10001 win 65535");
        lab.write(socket, 1000);
        assert_eq!(lab.take(), ["P.W 10001:11001(1000) ack 1"], "{times_out}");
    }
}

#[test]
fn a_silent_peer_is_asked_and_then_given_up() {
    // RFC 9293 §3.8.4.
    let (mut lab, socket) = open("mss 1000");
    let (idle, interval) = (Duration::from_secs(10), Duration::from_secs(1));
    let keep_alive = KeepAlive { idle, interval, probes: 2 };
    lab.stack.set_option(lab.now, socket, SocketOption::KeepAlive(Some(keep_alive)));
    let probe = || vec![". 0:0(0) ack 1".to_owned()];
    assert_eq!(lab.until_something(), (10_000.0, probe()));
    lab.send(". 1:0(0) ack 1 win 65535");
    assert_eq!(lab.until_something(), (10_000.0, probe()));
    assert_eq!(lab.until_something(), (1_000.0, probe()));
    assert_eq!(lab.until_something(), (1_000.0, vec!["R. 1:1(0) ack 1".to_owned()]));
    assert_eq!(lab.stack.take_error(socket), Some(ConnectionError::TimedOut));
}

#[test]
fn what_was_sent_and_came_twice_or_out_of_order_is_counted() {
    // tcpi_bytes_retrans, tcpi_dsack_dups, tcpi_rcv_ooopack, tcpi_total_rto,
    // tcpi_total_rto_recoveries.
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535 <sack 1001:4001>");
    assert_eq!(lab.take(), [segment(0)]);
    lab.send(". 1:0(0) ack 10001 win 65535");
    lab.send(". 1:0(0) ack 10001 win 65535 <sack 1:1001>");
    lab.send("P. 101:0(10) ack 10001 win 65535");
    lab.send("P. 111:0(10) ack 10001 win 65535");
    lab.take();
    lab.write(socket, 100);
    lab.take();
    for _ in 0..3 {
        assert_eq!(lab.until_something().1.len(), 1);
    }
    let info = lab.stack.info(lab.now, socket).unwrap();
    // The first of the three was a probe, not a timeout.
    assert_eq!(info.bytes_retransmitted, 1000 + 300);
    assert_eq!((info.duplicates_reported, info.out_of_order_segments), (1, 2));
    assert_eq!(info.all_timeouts, (2, 1));
    assert!(info.delivery_rate.is_some_and(|rate| rate > 100_000), "{info:?}");
    assert!(info.since_heard > Duration::from_millis(200));
}

#[test]
fn an_ack_that_jumps_and_reports_what_is_behind_is_no_reordering() {
    // One ACK for several segments does not tell in which order they arrived.
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 2001 win 65535 <sack 3001:4001,sack 6001:10001>");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.reorderings, info.reordering_segments), (0, 3));
    assert_eq!(lab.take()[..3], [segment(2), segment(4), segment(5)]);
    // But a segment that arrives after a higher one was reported is: 7001 was the highest.
    let (mut lab, socket) = open("mss 1000,sackOK");
    lab.write(socket, 10_000);
    lab.take();
    lab.wait(10);
    lab.send(". 1:0(0) ack 1 win 65535 <sack 6001:7001>");
    lab.send(". 1:0(0) ack 1 win 65535 <sack 2001:3001,sack 6001:7001>");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.reorderings, info.reordering_segments), (1, 5));
}

#[test]
fn duplicates_without_sack_are_not_counted_twice_when_reordering_ends() {
    let (mut lab, socket) = open("mss 1000");
    lab.write(socket, 15_000);
    assert_eq!(lab.take().len(), 10);
    lab.wait(10);
    for _ in 0..2 {
        lab.send(". 1:0(0) ack 1 win 65535");
        assert_eq!(lab.take().len(), 1);
    }
    // Three have arrived, two of which were counted already: the window grows by one.
    lab.send(". 1:0(0) ack 3001 win 65535");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().window_segments, 11);
    assert_eq!(lab.take().len(), 2);
}

#[test]
fn the_ack_that_ends_a_timeout_opens_the_window() {
    let (mut lab, socket) = open("mss 1000");
    lab.write(socket, 1000);
    lab.take();
    let (_, again) = lab.until_something();
    assert_eq!(again.len(), 1);
    lab.wait(10);
    lab.send(". 1:0(0) ack 1001 win 65535");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().window_segments, 2);
}

#[test]
fn a_peer_of_tiny_segments_has_no_more_of_them_under_way_than_one_of_ordinary_ones() {
    // CVE-2019-11478: a tiny segment costs as much accounting as any other.
    let config = Config { pacing: false, ..Config::default() };
    let device = Capabilities { max_train_bytes: 65_000, ..Capabilities::plain(Medium::Ip, 1500) };
    let mut lab = Lab::with_device(config, device);
    let socket = lab.accepted("mss 48,sackOK,ws 14");
    let data = vec![b'x'; 1 << 20];
    let (mut acked, mut most) = (1, 0);
    for _ in 0..40 {
        while lab.stack.send(lab.now, socket, &data, false).is_ok() {}
        while !lab.take().is_empty() {}
        let info = lab.stack.info(lab.now, socket).unwrap();
        most = most.max(info.unacknowledged_segments);
        assert!(info.queued_bytes <= 8192 * 48, "{}", info.queued_bytes);
        lab.wait(1);
        acked += info.queued_bytes - info.unsent_bytes;
        lab.send(&format!(". 1:1(0) ack {acked} win 65535"));
    }
    assert!((4096..=8192).contains(&most), "{most}");
    // The peer reports every other one, four in an ACK; the missing ones go out again, and in the
    // end all have arrived.
    while lab.stack.send(lab.now, socket, &data, false).is_ok() {}
    while !lab.take().is_empty() {}
    let info = lab.stack.info(lab.now, socket).unwrap();
    let end = acked + info.queued_bytes - info.unsent_bytes;
    lab.wait(10);
    for first in (acked + 48..end - 8 * 48).step_by(8 * 48) {
        let block = |n: u32| format!("sack {}:{}", first + 2 * n * 48, first + (2 * n + 1) * 48);
        let blocks = [0, 1, 2, 3].map(block).join(",");
        lab.send(&format!(". 1:1(0) ack {acked} win 65535 <{blocks}>"));
    }
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert!(info.lost_segments > 2000 && info.sacked_segments > 2000, "{info:?}");
    assert!(lab.take().iter().any(|sent| sent.starts_with(&format!(". {acked}:"))));
    lab.send(&format!(". 1:1(0) ack {end} win 65535"));
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.unacknowledged_segments, info.lost_segments), (0, 0));
}

#[test]
fn an_ack_of_everything_that_echoes_a_time_before_the_repetition_undoes_it() {
    // Eifel, RFC 3522; tcp_try_undo_loss.
    for syn in ["mss 1000,ts 100 0", "mss 1000,sackOK,ts 100 0"] {
        let (mut lab, socket) = open(syn);
        lab.write(socket, 988);
        lab.take();
        while phase(&mut lab, socket) != Phase::Loss {
            lab.until_something();
        }
        lab.wait(5);
        lab.send(". 1:0(0) ack 989 win 65535 <ts 201 10>");
        let info = lab.stack.info(lab.now, socket).unwrap();
        assert_eq!((info.phase, info.threshold_segments), (Phase::Open, None), "{syn}");
        assert!(info.window_segments >= 10, "{syn}: {}", info.window_segments);
    }
}

#[test]
fn an_ack_that_ends_a_fast_recovery_undoes_it_if_it_echoes_a_time_before() {
    // tcp_try_undo_recovery. An echo of zero tells nothing (tcp_tsopt_ecr_before).
    for (echo, undone) in [(Some(10), 1), (Some(30), 0), (None, 0)] {
        let (mut lab, socket) = open("mss 1000,sackOK,ts 100 0");
        lab.write(socket, 9880);
        lab.take();
        lab.wait(10);
        lab.send(". 1:0(0) ack 1 win 65535 <ts 201 10,sack 989:3953>");
        assert_eq!(lab.take().len(), 1);
        assert_eq!(phase(&mut lab, socket), Phase::Recovery);
        lab.wait(1);
        let stamp = echo.unwrap_or(lab.no_echo());
        lab.send(&format!(". 1:0(0) ack 9881 win 65535 <ts 202 {stamp}>"));
        let info = lab.stack.info(lab.now, socket).unwrap();
        assert_eq!((info.phase, lab.stack.counters().undone), (Phase::Open, undone), "{echo:?}");
        assert_eq!(info.threshold_segments, (undone == 0).then_some(5), "{echo:?}");
    }
}
