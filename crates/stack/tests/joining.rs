//! Consecutive segments in a batch are joined, and acknowledged as Linux acknowledges what its GRO
//! has joined.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use uncork_stack::{Config, Event, Ready, SocketId, State};

use crate::common::Lab;

const NOTHING: [&str; 0] = [];

/// Returns a connection without quick ACKs left, to a peer whose segments have 1000 octets, and the
/// peer's next sequence number.
fn open() -> (Lab, SocketId, usize) {
    let mut lab = Lab::new(Config { quick_acks: 2, ..Config::default() });
    let socket = lab.accepted("mss 1460,sackOK");
    for n in 0..3 {
        lab.send(&format!("P. {}:0(1000) ack 1 win 65535", 1 + n * 1000));
        lab.take();
    }
    lab.wait(100);
    assert_eq!((lab.take().len(), lab.read(socket)), (1, Ok(3000)));
    while lab.stack.poll_event().is_some() {}
    (lab, socket, 3001)
}

fn send(lab: &mut Lab, seq: usize, bytes: usize, rest: &str) {
    lab.send(&format!(". {seq}:0({bytes}) ack 1 win {rest}"));
}

#[test]
fn a_batch_is_acknowledged_once_and_read_whole() {
    let (mut lab, socket, seq) = open();
    for n in 0..10 {
        send(&mut lab, seq + n * 1000, 1000, "65535");
    }
    assert_eq!(lab.stack.counters().joined, 9);
    assert_eq!(lab.take(), [format!(". 1:1(0) ack {}", seq + 10_000)]);
    assert_eq!(lab.stack.poll_event(), Some(Event::Socket(socket, Ready::READABLE)));
    let info = lab.stack.info(lab.now, socket).unwrap();
    assert_eq!((info.bytes_received, info.data_segments.0), (13_000, 13));
    assert_eq!(lab.read(socket), Ok(10_000));
}

#[test]
fn a_lone_segment_waits_and_two_do_not() {
    let (mut lab, _, seq) = open();
    send(&mut lab, seq, 1000, "65535");
    assert_eq!(lab.take(), NOTHING);
    assert_eq!(lab.until_something(), (40.0, vec![format!(". 1:1(0) ack {}", seq + 1000)]));
    send(&mut lab, seq + 1000, 1000, "65535");
    send(&mut lab, seq + 2000, 1000, "65535");
    assert_eq!(lab.take(), [format!(". 1:1(0) ack {}", seq + 3000)]);
}

#[test]
fn who_asks_for_a_timer_instead_of_a_frame_misses_nothing() {
    // The segment is held for joining; whatever comes next ends that.
    let (mut lab, socket, seq) = open();
    send(&mut lab, seq, 1000, "65535");
    lab.stack.handle_timeout(lab.now);
    assert!(lab.stack.poll_timeout().is_some_and(|due| due > lab.now));
    assert_eq!(lab.read(socket), Ok(1000));
}

#[test]
fn what_says_more_than_data_is_not_joined() {
    let (mut lab, socket, seq) = open();
    let joined = |lab: &Lab| lab.stack.counters().joined;
    // Not joined: another window, another ACK, a gap, a longer segment.
    send(&mut lab, seq, 1000, "65535");
    send(&mut lab, seq + 1000, 1000, "65534");
    lab.write(socket, 10);
    lab.take();
    send(&mut lab, seq + 2000, 1000, "65534");
    lab.send(&format!(". {}:0(1000) ack 11 win 65534", seq + 3000));
    assert_eq!(joined(&lab), 0);
    lab.send(&format!(". {}:0(1000) ack 11 win 65534", seq + 5000));
    assert_eq!(joined(&lab), 0);
    let gap = format!(" <sack {}:{}>", seq + 5000, seq + 6000);
    assert_eq!(lab.take(), [format!(". 11:11(0) ack {}{gap}", seq + 4000)]);
    lab.send(&format!(". {}:0(1000) ack 11 win 65534", seq + 4000));
    lab.send(&format!(". {}:0(500) ack 11 win 65534", seq + 6000));
    lab.send(&format!(". {}:0(1000) ack 11 win 65534", seq + 6500));
    assert_eq!(joined(&lab), 0);
    assert_eq!(lab.read(socket), Ok(7500));
    lab.take();
    // A short segment, PSH and FIN end the joining; a FIN takes the ordinary path.
    let at = seq + 7500;
    lab.send(&format!(". {at}:0(1000) ack 11 win 65534"));
    lab.send(&format!("P. {}:0(300) ack 11 win 65534", at + 1000));
    assert_eq!(joined(&lab), 1);
    lab.send(&format!(". {}:0(1000) ack 11 win 65534", at + 1300));
    lab.send(&format!("F. {}:0(1000) ack 11 win 65534", at + 2300));
    assert_eq!((joined(&lab), lab.state(socket)), (1, State::CloseWait));
    assert_eq!(lab.take(), [format!(". 11:11(0) ack {}", at + 3301)]);
    assert_eq!(lab.read(socket), Ok(3300));
}

#[test]
fn a_fin_that_came_before_what_is_joined_is_taken_behind_it() {
    let (mut lab, socket, seq) = open();
    lab.send(&format!("F. {}:0(0) ack 1 win 65535", seq + 2000));
    lab.take();
    send(&mut lab, seq, 1000, "65535");
    send(&mut lab, seq + 1000, 1000, "65535");
    assert_eq!(lab.state(socket), State::CloseWait);
    assert_eq!(lab.take(), [format!(". 1:1(0) ack {}", seq + 2001)]);
    assert_eq!((lab.read(socket), lab.read(socket)), (Ok(2000), Ok(0)));
}

#[test]
fn what_is_beyond_the_window_is_not_joined() {
    let mut lab = Lab::new(Config { receive_buffer_bytes: (4096, 4096), ..Config::default() });
    let socket = lab.accepted("mss 1000");
    for n in 0..6 {
        send(&mut lab, 1 + n * 1000, 1000, "65535");
    }
    assert_eq!(lab.read(socket), Ok(4096));
}
