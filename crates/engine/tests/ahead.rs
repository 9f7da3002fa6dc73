//! What is sent ahead of a turn, and what waits for it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod common;

use std::net::SocketAddr;

use common::{end, turn};
use uncork_driver::Driver as _;
use uncork_driver::memory::{Port, pair};
use uncork_engine::Engine;
use uncork_packet::{Capabilities, Medium};
use uncork_stack::SocketId;

/// Returns two ends of a connection on which nothing is under way.
fn connected() -> ([Engine<Port>; 2], [SocketId; 2]) {
    let (one, other) = pair(Capabilities::plain(Medium::Ethernet, 1500), 64);
    let mut ends = [end(one, 1), end(other, 2)];
    let at: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let listener = ends[1].stack().listen(at, 8).unwrap();
    let now = ends[0].now();
    let ours = ends[0].stack().connect(now, None, at).unwrap();
    let theirs = loop {
        ends.iter_mut().for_each(turn);
        if let Some(theirs) = ends[1].stack().accept(listener) {
            break theirs;
        }
    };
    for _ in 0..4 {
        ends.iter_mut().for_each(turn);
    }
    (ends, [ours, theirs])
}

fn give(end: &mut Engine<Port>, socket: SocketId, octets: &[u8]) {
    let now = end.now();
    assert_eq!(end.stack().send(now, socket, octets, false).unwrap(), octets.len());
}

#[test]
fn what_was_given_leaves_without_a_turn() {
    let ([mut one, mut other], [ours, _]) = connected();
    give(&mut one, ours, b"request");
    assert!(!other.driver().has_frames());
    one.send_ahead().unwrap();
    assert!(other.driver().has_frames());
}

#[test]
fn it_waits_for_the_turn_that_takes_in_what_it_can_acknowledge() {
    let ([mut one, mut other], [ours, theirs]) = connected();
    give(&mut other, theirs, b"something");
    turn(&mut other);
    give(&mut one, ours, b"request");
    one.send_ahead().unwrap();
    assert!(!other.driver().has_frames(), "there is a frame to be taken in first");
    let sent = one.stack().counters().frames_out;
    turn(&mut one);
    assert_eq!(one.stack().counters().frames_out, sent + 1, "request and acknowledgment in one");
    turn(&mut other);
    let now = other.now();
    assert_eq!(other.stack().info(now, theirs).unwrap().unacknowledged_segments, 0);
}
