//! F-RTO: spurious timeouts, without timestamps to detect them (RFC 5682 §3.1).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use uncork_stack::{Algorithm, Config, Phase, SocketId};

use crate::common::Lab;

const NOTHING: [&str; 0] = [];

/// Returns a connection with ten segments and a probe out, the first sent again after a timeout.
fn timed_out(syn: &str, bytes: usize) -> (Lab, SocketId) {
    let mut lab =
        Lab::new(Config { pacing: false, congestion: Algorithm::NewReno, ..Config::default() });
    let socket = lab.accepted(syn);
    lab.write(socket, bytes);
    assert_eq!(lab.take().len(), 10);
    if syn.contains("sackOK") {
        // The probe for the tail (RFC 8985 §7) is a new segment.
        assert_eq!(lab.until_something().1, [segment(10)]);
    }
    assert_eq!(lab.until_something().1, [segment(0)]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.window_segments), (Phase::Loss, 1));
    (lab, socket)
}

fn segment(n: usize) -> String {
    let (from, to) = (1 + n * 1000, 1001 + n * 1000);
    format!(". {from}:{to}(1000) ack 1")
}

#[test]
fn late_acks_take_a_timeout_back_and_nothing_is_sent_twice() {
    let (mut lab, socket) = timed_out("mss 1000,sackOK", 30_000);
    // The first segment was sent twice, so its ACK does not tell which arrived. New data will.
    lab.send(". 1:1(0) ack 1001 win 65535");
    assert_eq!(lab.take(), [segment(11), segment(12)]);
    // The ACK of the second segment, which was sent once, before the timeout.
    lab.send(". 1:1(0) ack 2001 win 65535");
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, info.lost_segments, info.threshold_segments), (Phase::Open, 0, None));
    assert!(info.window_segments >= 10, "{}", info.window_segments);
    let counters = lab.stack.counters();
    assert_eq!((counters.timeouts, counters.spurious_timeouts, counters.undone), (1, 1, 1));
    lab.send(". 1:1(0) ack 13001 win 65535");
    assert!(lab.take().iter().all(|sent| !sent.contains(":2001(")), "something went out again");
    assert_eq!(lab.stack.counters().retransmitted, 1);
}

#[test]
fn one_ack_that_passes_what_was_sent_once_is_enough() {
    for syn in ["mss 1000,sackOK", "mss 1000"] {
        let (mut lab, socket) = timed_out(syn, 30_000);
        lab.send(". 1:1(0) ack 3001 win 65535");
        let info = lab.stack.info(lab.now, socket).unwrap();
        assert_eq!((info.phase, lab.stack.counters().spurious_timeouts), (Phase::Open, 1), "{syn}");
        assert!(info.window_segments >= 10, "{syn}");
    }
    // A SACK of it is enough, too.
    let (mut lab, socket) = timed_out("mss 1000,sackOK", 30_000);
    lab.send(". 1:1(0) ack 1 win 65535 <sack 5001:6001>");
    assert_eq!(lab.stack.counters().spurious_timeouts, 1);
    assert_ne!(lab.stack.info(lab.now, socket).unwrap().phase, Phase::Loss);
}

#[test]
fn what_was_really_lost_goes_out_after_the_second_ack() {
    let (mut lab, socket) = timed_out("mss 1000,sackOK", 30_000);
    lab.send(". 1:1(0) ack 1001 win 65535");
    assert_eq!(lab.take(), [segment(11), segment(12)]);
    lab.wait(10);
    // Step 3.a: the new data has arrived, and the old has not.
    lab.send(". 1:1(0) ack 1001 win 65535 <sack 11001:12001>");
    assert_eq!(lab.take(), [segment(1)]);
    lab.send(". 1:1(0) ack 1001 win 65535 <sack 11001:13001>");
    assert_eq!(lab.take(), [segment(2)]);
    lab.wait(10);
    lab.send(". 1:1(0) ack 3001 win 65535 <sack 11001:13001>");
    assert_eq!(lab.take()[..2], [segment(3), segment(4)]);
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.phase, lab.stack.counters().spurious_timeouts), (Phase::Loss, 0));
}

#[test]
fn where_there_is_nothing_new_to_send_the_old_goes_out() {
    // Step 2.b: fall back to conventional recovery.
    let (mut lab, _) = timed_out("mss 1000", 10_000);
    lab.send(". 1:1(0) ack 1001 win 65535");
    assert_eq!(lab.take(), [segment(1), segment(2)]);
    // A window without room lets nothing new out either.
    let (mut lab, _) = timed_out("mss 1000", 30_000);
    lab.send(". 1:1(0) ack 1001 win 9000");
    assert_eq!(lab.take(), [segment(1), segment(2)]);
    lab.send(". 1:1(0) ack 1001 win 9000");
    assert_eq!(lab.take(), NOTHING);
}

#[test]
fn a_doubt_that_the_timeout_leaves_behind_does_not_hold_up_the_next_recovery() {
    let mut lab =
        Lab::new(Config { pacing: false, congestion: Algorithm::NewReno, ..Config::default() });
    let socket = lab.accepted("mss 1000");
    lab.write(socket, 1500);
    assert_eq!(lab.take(), [segment(0), "P. 1001:1501(500) ack 1".into()]);
    // Nagle's algorithm holds it: it is new, and yet does not go out.
    lab.write(socket, 300);
    assert_eq!(lab.take(), NOTHING);
    assert_eq!(lab.until_something().1, [segment(0)]);
    lab.send(". 1:1(0) ack 1001 win 65535");
    assert_eq!(lab.take(), [". 1001:1501(500) ack 1"]);
    lab.send(". 1:1(0) ack 1501 win 65535");
    assert_eq!(lab.take(), ["P. 1501:1801(300) ack 1"]);
    lab.send(". 1:1(0) ack 1801 win 65535");
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().phase, Phase::Open);
    // Any time after that: three duplicates, and more to send than the window has room for.
    lab.write(socket, 60_000);
    let mut sent = lab.take();
    for _ in 0..6 {
        lab.wait(1);
        lab.send(". 1:1(0) ack 1801 win 65535");
        sent.extend(lab.take());
    }
    assert_eq!(lab.stack.info(lab.now, socket).unwrap().phase, Phase::Recovery);
    let times = sent.iter().filter(|sent| sent.contains(" 1801:2801(")).count();
    assert_eq!(times, 2, "{sent:?}");
}
