//! When data is acknowledged (RFC 9293 §3.8.6.3, RFC 5681 §4.2, Linux 059217c18be6).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;

use uncork_stack::{Config, QuickAckCounting, SocketId, SocketOption, State};

use crate::common::Lab;

const NOTHING: [&str; 0] = [];

/// Returns a connection whose quick ACKs are spent, as the peer has sent sixteen small segments,
/// and the peer's next sequence number.
fn spent(lab: &mut Lab) -> (SocketId, usize) {
    let socket = lab.accepted("mss 1460");
    for n in 0..16 {
        lab.send(&format!("P. {}:0(100) ack 1 win 65535", 1 + n * 100));
        assert_eq!(lab.take(), [format!(". 1:1(0) ack {}", 101 + n * 100)], "segment {n}");
    }
    lab.read(socket).unwrap();
    (socket, 1601)
}

/// Like [`spent`], after the peer has sent one full-sized segment, so that the size is known.
fn spent_and_of_known_size(lab: &mut Lab) -> (SocketId, usize) {
    let (socket, seq) = spent(lab);
    lab.send(&format!(". {seq}:0(1460) ack 1 win 65535"));
    lab.wait(50);
    lab.take();
    lab.read(socket).unwrap();
    (socket, seq + 1460)
}

#[test]
fn after_sixteen_quick_acks_a_lone_segment_waits_for_40_ms() {
    let mut lab = Lab::new(Config::default());
    let (_, seq) = spent(&mut lab);
    lab.send(&format!("P. {seq}:0(100) ack 1 win 65535"));
    assert_eq!(lab.until_something(), (40.0, vec![format!(". 1:1(0) ack {}", seq + 100)]));
    assert_eq!(lab.stack.counters().delayed_acks, 1);
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once() {
    let mut lab = Lab::new(Config::default());
    let (_, seq) = spent_and_of_known_size(&mut lab);
    lab.send(&format!(". {seq}:0(1460) ack 1 win 65535"));
    assert_eq!(lab.take(), NOTHING);
    lab.send(&format!(". {}:0(1460) ack 1 win 65535", seq + 1460));
    assert_eq!(lab.take(), [format!(". 1:1(0) ack {}", seq + 2920)]);
}

/// Returns whether reading one full segment causes its ACK.
fn is_acknowledged_by_reading(flags: &str, joined: bool) -> bool {
    let mut lab = Lab::new(Config::default());
    let (socket, seq) = spent_and_of_known_size(&mut lab);
    if joined {
        // Both are acknowledged at once, when the second arrives.
        lab.send(&format!(". {seq}:0(1460) ack 1 win 65535"));
        lab.send(&format!("{flags} {}:0(1460) ack 1 win 65535", seq + 1460));
        return lab.take().len() == 1;
    }
    lab.send(&format!("{flags} {seq}:0(1460) ack 1 win 65535"));
    assert_eq!(lab.take(), NOTHING);
    lab.read(socket).unwrap();
    !lab.take().is_empty()
}

#[test]
fn reading_a_full_segment_acknowledges_it_if_it_was_pushed() {
    // Linux 4720852ed9af: a write that just fills a segment, whose sender waits for the ACK.
    assert!(is_acknowledged_by_reading("P.", false));
    assert!(!is_acknowledged_by_reading(".", false));
    assert!(is_acknowledged_by_reading("P.", true));
}

#[test]
fn a_train_counts_as_the_segments_it_is_made_of() {
    let mut lab = Lab::new(Config::default());
    let (_, seq) = spent(&mut lab);
    lab.train = Some(1460);
    lab.send(&format!(". {seq}:0(8760) ack 1 win 65535"));
    assert_eq!(lab.take(), [format!(". 1:1(0) ack {}", seq + 8760)]);
}

/// Returns a connection of a program that looks at received data only after the turn.
fn patient() -> (Lab, SocketId) {
    patient_with(Config::default())
}

fn patient_with(config: Config) -> (Lab, SocketId) {
    let patience = Duration::from_millis(1);
    let mut lab = Lab::new(Config { answer_patience: patience, ..config });
    let socket = lab.accepted("mss 1460");
    (lab, socket)
}

#[test]
fn a_quick_ack_waits_for_the_answer_of_who_has_not_looked_yet() {
    let (mut lab, socket) = patient();
    lab.send("P. 1:0(100) ack 1 win 65535");
    assert_eq!(lab.take(), NOTHING);
    lab.read(socket).unwrap();
    lab.write(socket, 50);
    assert_eq!(lab.take(), ["P. 1:51(50) ack 101"]);
    // The answer has spent the credit that an ACK of its own would have spent.
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().quick_acks, 15);
    lab.wait(30);
    assert_eq!(lab.take(), NOTHING);
}

#[test]
fn who_reads_without_answering_acknowledges() {
    let (mut lab, socket) = patient();
    // Reading only a part makes no difference, nor does a missing PSH.
    for n in 0..16 {
        lab.send(&format!(". {}:0(100) ack 1 win 65535", 1 + n * 100));
        assert_eq!(lab.take(), NOTHING, "segment {n}");
        lab.stack.recv(lab.now, socket, &mut [0; 10]).unwrap();
        assert_eq!(lab.take(), [format!(". 1:1(0) ack {}", 101 + n * 100)], "segment {n}");
    }
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().quick_acks, 0);
}

#[test]
fn what_was_handed_on_was_not_looked_at() {
    let (mut lab, socket) = patient_with(Config { hands_on: true, ..Config::default() });
    lab.send("P. 1:0(100) ack 1 win 65535");
    lab.read(socket).unwrap();
    assert_eq!(lab.take(), NOTHING);
    lab.write(socket, 50);
    assert_eq!(lab.take(), ["P. 1:51(50) ack 101"]);

    let (mut lab, socket) = patient_with(Config { hands_on: true, ..Config::default() });
    lab.send("P. 1:0(100) ack 1 win 65535");
    lab.read(socket).unwrap();
    assert_eq!(lab.until_something(), (1.0, vec![". 1:1(0) ack 101".to_owned()]));
}

#[test]
fn who_does_not_read_has_a_millisecond_and_the_next_too() {
    let (mut lab, socket) = patient();
    for n in 0..3 {
        lab.send(&format!("P. {}:0(100) ack 1 win 65535", 1 + n * 100));
        assert_eq!(lab.until_something(), (1.0, vec![format!(". 1:1(0) ack {}", 101 + n * 100)]));
    }
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.quick_acks, lab.stack.counters().delayed_acks), (13, 0));
}

#[test]
fn what_is_more_than_haste_waits_for_nobody() {
    let (mut lab, _) = patient();
    // Two segments.
    lab.send(". 1:0(1460) ack 1 win 65535");
    assert_eq!(lab.take(), NOTHING);
    lab.send(". 1461:0(1460) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 2921"]);
    // Out of order, and then the missing segment.
    lab.send(". 4381:0(1460) ack 1 win 65535");
    assert_eq!(lab.take().len(), 1);
    lab.send(". 2921:0(1460) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 5841"]);
    // A duplicate.
    lab.send(". 1:0(1460) ack 1 win 65535");
    assert_eq!(lab.take().len(), 1);
}

#[test]
fn a_fin_waits_for_the_other_one() {
    let (mut lab, socket) = patient();
    lab.send("P. 1:0(100) ack 1 win 65535");
    lab.read(socket).unwrap();
    lab.write(socket, 50);
    lab.take();
    lab.send("F. 101:0(0) ack 51 win 65535");
    assert_eq!(lab.take(), NOTHING);
    lab.stack.close(lab.now, socket);
    assert_eq!(lab.take(), ["F. 51:51(0) ack 102"]);
    lab.send(". 102:0(0) ack 52 win 65535");
    assert_eq!(lab.state(socket), State::Closed);

    let (mut lab, _) = patient();
    lab.send("F. 1:0(0) ack 1 win 65535");
    assert_eq!(lab.until_something(), (1.0, vec![". 1:1(0) ack 2".to_owned()]));
    // That ACK was lost.
    lab.send("F. 1:0(0) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 2"]);
}

/// Credits left after three exchanges in which an answer has five segments.
fn credits_after_answers(counting: QuickAckCounting) -> u8 {
    let mut lab =
        Lab::new(Config { quick_ack_counting: counting, pacing: false, ..Config::default() });
    let socket = lab.accepted("mss 1460");
    lab.stack.set_option(lab.now, socket, SocketOption::NoDelay(true));
    let mut acked = 1;
    for n in 0..3 {
        lab.send(&format!("P. {}:0(100) ack {acked} win 65535", 1 + n * 100));
        lab.write(socket, 5 * 1460);
        acked += 5 * 1460;
        assert_eq!(lab.take().len(), 5);
        // The peer acknowledges the answer, and asks again later.
        lab.send(&format!(". {}:0(0) ack {acked} win 65535", 101 + n * 100));
        lab.wait(1);
    }
    lab.stack.info(lab.now, socket).unwrap().quick_acks
}

#[test]
fn an_answer_of_several_segments_spends_one_credit_and_once_spent_all() {
    assert_eq!(credits_after_answers(QuickAckCounting::AcksOfNewData), 13);
    // Before 059217c18be6: five a time, so that sixteen are gone with the fourth answer.
    assert_eq!(credits_after_answers(QuickAckCounting::EverySegmentSent), 1);
}

#[test]
fn an_answer_carries_the_ack_and_whoever_answers_delays() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted("mss 1460");
    lab.send("P. 1:0(100) ack 1 win 65535");
    lab.write(socket, 50);
    assert_eq!(lab.take(), ["P. 1:51(50) ack 101"]);
    // That was an answer: the next request waits for one too, although credits are left.
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert!(info.ping_pong && info.quick_acks == 15);
    lab.send("P. 101:0(100) ack 51 win 65535");
    assert_eq!(lab.take(), NOTHING);
    let (millis, _) = lab.until_something();
    assert_eq!(millis, 40.0);
    // No answer came, so ping-pong mode ends (tcp_delack_timer_handler).
    assert!(!lab.stack.info(lab.now, socket).unwrap().ping_pong);
}

#[test]
fn tcp_quickack_acknowledges_at_once_and_leaves_ping_pong() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted("mss 1460");
    lab.send("P. 1:0(100) ack 1 win 65535");
    lab.write(socket, 50);
    lab.take();
    lab.send("P. 101:0(100) ack 51 win 65535");
    assert_eq!(lab.take(), NOTHING);
    // Not while data is left to be read, whose reader may yet answer (tcp_cleanup_rbuf).
    lab.stack.set_option(lab.now, socket, SocketOption::QuickAck(true));
    assert_eq!(lab.take(), NOTHING);
    lab.stack.set_option(lab.now, socket, SocketOption::QuickAck(false));
    lab.read(socket).unwrap();
    assert_eq!(lab.take(), NOTHING);
    lab.stack.set_option(lab.now, socket, SocketOption::QuickAck(true));
    assert_eq!(lab.take(), [". 51:51(0) ack 201"]);
    lab.stack.set_option(lab.now, socket, SocketOption::QuickAck(false));
    lab.send("P. 201:0(100) ack 51 win 65535");
    assert_eq!(lab.take(), NOTHING);
}

#[test]
fn what_is_out_of_order_is_acknowledged_at_once_with_what_is_missing() {
    // RFC 5681 §4.2, RFC 2018 §4.
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted("mss 1460,sackOK");
    lab.send(". 1001:0(500) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1 <sack 1001:1501>"]);
    lab.send(". 2001:0(500) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1 <sack 2001:2501,sack 1001:1501>"]);
    lab.send(". 1:0(1000) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1501 <sack 2001:2501>"]);
    // A duplicate: RFC 2883 §4.
    lab.send(". 1:0(1000) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1501 <sack 1:1001,sack 2001:2501>"]);
    lab.send(". 1501:0(500) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 2501"]);
    assert_eq!(lab.read(socket), Ok(2500));
}

#[test]
fn a_fin_behind_a_gap_is_reported() {
    // Linux counts a FIN as part of the segment that carries it, and takes a SACK only for whole
    // segments (tcp_match_skb_to_sack).
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted("mss 1460,sackOK");
    lab.send("F. 1001:0(500) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1 <sack 1001:1502>"]);
    lab.send(". 1:0(1000) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1502"]);
    assert_eq!((lab.read(socket), lab.state(socket)), (Ok(1500), State::CloseWait));
    // A FIN without data is reported by itself.
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted("mss 1460,sackOK");
    lab.send("F. 1501:0(0) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1 <sack 1501:1502>"]);
    lab.send(". 501:0(500) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1 <sack 501:1001,sack 1501:1502>"]);
    lab.send(". 1001:0(500) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1 <sack 501:1502>"]);
    lab.send("F. 1501:0(0) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1 <sack 501:1502>"]);
    lab.send(". 1:0(500) ack 1 win 65535");
    assert_eq!(lab.take(), [". 1:1(0) ack 1502"]);
    assert_eq!((lab.read(socket), lab.state(socket)), (Ok(1500), State::CloseWait));
}

#[test]
fn a_peer_without_sack_gets_a_duplicate_for_every_segment() {
    let mut lab = Lab::new(Config::default());
    lab.accepted("mss 1460");
    for n in 1..4 {
        lab.send(&format!(". {}:0(500) ack 1 win 65535", 1 + n * 500));
    }
    assert_eq!(lab.take(), [". 1:1(0) ack 1"; 3]);
}

#[test]
fn a_reader_who_opens_a_shut_window_says_so() {
    let config = Config { receive_buffer_bytes: (16_384, 16_384), ..Config::default() };
    let mut lab = Lab::new(config);
    let socket = lab.accepted("mss 1460");
    let mut seq = 1;
    while seq < 16_385 {
        let bytes = (16_385 - seq).min(1460);
        lab.send(&format!(". {seq}:0({bytes}) ack 1 win 65535"));
        seq += bytes;
    }
    lab.wait(300);
    lab.take();
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().receive_window_bytes, 0);
    // Beyond the window: dropped, and acknowledged.
    lab.send(&format!(". {seq}:0(1) ack 1 win 65535"));
    assert_eq!(lab.take(), [format!(". 1:1(0) ack {seq}")]);
    assert_eq!(lab.read(socket), Ok(16_384));
    assert_eq!(lab.take(), [format!(". 1:1(0) ack {seq}")]);
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().receive_window_bytes, 16_384);
}

#[test]
fn a_peer_who_leaves_an_octet_of_the_window_gets_no_more_than_the_buffer_into_it() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted("mss 1460,sackOK,ws 7");
    let mut seq = 1;
    for _ in 0..4000 {
        let window = lab.stack.info(lab.now, socket).unwrap().receive_window_bytes;
        let bytes = window.saturating_sub(1).min(1400);
        if bytes > 0 {
            lab.send(&format!("P. {seq}:0({bytes}) ack 1 win 65535"));
            seq += bytes;
        }
        // Old data is acknowledged at once, and the ACK announces the window anew.
        lab.send("P. 1:0(1) ack 1 win 65535");
        lab.take();
    }
    assert!((65_000..=65_536 + 128).contains(&lab.read(socket).unwrap()));
    assert_eq!(lab.take().len(), 1);
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().receive_window_bytes, 65_536);
}
