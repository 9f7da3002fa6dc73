//! The state of a connection that is given away.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;

use uncork_stack::{Config, Detached, Shutdown, SnapshotState, SocketId};

use crate::common::{self, Lab, byte};

const SYN: &str = "mss 1000,sackOK,ts 100 0,ws 7";

/// Returns the first numbers of the send and receive queues, relative to the initial ones.
fn relative(lab: &Lab, detached: &Detached) -> (u32, u32) {
    let one = &detached.snapshot;
    (one.send_first.wrapping_sub(lab.absolute(0)), one.receive_first.wrapping_sub(0xffff_fff0))
}

fn detach(lab: &mut Lab, socket: SocketId) -> Detached {
    let detached = lab.stack.detach(lab.now, socket).unwrap();
    assert_eq!(lab.stack.connection_count(), 0);
    assert_eq!(lab.stack.readiness(lab.now, socket), uncork_stack::Ready::default());
    // Nothing leaves, whatever arrives.
    lab.send("P. 2000:2010(10) ack 1 win 500");
    lab.wait(9_000);
    lab.send("P. 2000:2010(10) ack 1 win 500");
    assert_eq!(lab.take(), [""; 0]);
    detached
}

#[test]
fn what_comes_while_a_connection_changes_hands_is_there_for_who_takes_it() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.take();
    let (local, remote) = lab.stack.ends(socket).unwrap();
    assert!(lab.stack.detach(lab.now, socket).is_some());
    lab.send("P. 1:11(10) ack 1 win 500 <ts 300 0>");
    lab.send("F. 11:11(0) ack 1 win 500 <ts 300 0>");
    assert!(lab.stack.take_caught(remote, local).is_empty());
    let caught = lab.stack.take_caught(local, remote);
    assert_eq!(caught.iter().map(Vec::len).collect::<Vec<_>>(), [20 + 12 + 10, 20 + 12]);
    assert_eq!(caught[0][32..], (1..11).map(byte).collect::<Vec<_>>());
    // From now on its segments go to the new owner.
    lab.send("P. 11:21(10) ack 1 win 500 <ts 300 0>");
    assert!(lab.stack.take_caught(local, remote).is_empty());
    assert_eq!(lab.take(), [""; 0]);
}

/// A peer with a small segment under way sends no other before that is acknowledged (Nagle), and
/// the new owner knows nothing of an ACK that was owed.
#[test]
fn what_has_come_is_acknowledged_before_a_connection_changes_hands() {
    let config = Config { answer_patience: Duration::from_millis(1), ..Config::default() };
    let mut lab = Lab::new(config);
    let socket = lab.accepted(SYN);
    lab.take();
    lab.send("P. 1:11(10) ack 1 win 500 <ts 300 0>");
    assert_eq!(lab.take(), [""; 0], "it was not held back");
    let detached = lab.stack.detach(lab.now, socket).unwrap();
    let said = lab.take();
    assert!(said.len() == 1 && said[0].starts_with(". 1:1(0) ack 11 "), "{said:?}");
    let one = &detached.snapshot;
    assert_eq!(one.acknowledged, one.receive_first.wrapping_add(10));
    // No ACK leaves where none is owed.
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.take();
    assert!(lab.stack.detach(lab.now, socket).is_some());
    assert_eq!(lab.take(), [""; 0]);
}

#[test]
fn no_more_is_kept_than_there_is_room_for_and_nothing_of_others() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.take();
    let (local, remote) = lab.stack.ends(socket).unwrap();
    assert!(lab.stack.detach(lab.now, socket).is_some());
    for _ in 0..100 {
        lab.send("P. 1:1001(1000) ack 1 win 500 <ts 300 0>");
    }
    let caught: usize = lab.stack.take_caught(local, remote).iter().map(Vec::len).sum();
    assert!((60_000..=64 * 1024).contains(&caught), "{caught}");
}

#[test]
fn an_open_connection_with_something_in_each_queue() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.send("P. 1:501(500) ack 1 win 500 <ts 300 0>");
    let mut some = [0; 100];
    lab.stack.recv(lab.now, socket, &mut some).unwrap();
    lab.take();
    // Out of order.
    lab.send(". 601:701(100) ack 1 win 500 <ts 300 0>");
    assert_eq!(lab.write(socket, 30_000), 30_000);
    lab.take();
    let detached = detach(&mut lab, socket);
    let one = &detached.snapshot;
    assert_eq!(relative(&lab, &detached), (1, 101));
    assert_eq!((one.state, one.fin_sent), (SnapshotState::Established, false));
    assert_eq!(detached.unread(), (101..501).map(byte).collect::<Vec<_>>());
    assert_eq!((one.unread_bytes, one.unacknowledged_bytes, one.unsent_bytes), (400, 9880, 20_120));
    assert_eq!(detached.unacknowledged().len() + detached.unsent().len(), 30_000);
    assert_eq!((one.send_window_bytes, one.segment_bytes), (64_000, 1000));
    assert_eq!((one.window_shifts, one.sack), (Some((7, 7)), true));
    assert!(one.timestamp.is_some());
    assert_eq!(one.acknowledged.wrapping_sub(one.receive_first), 400);
    let again = Detached::new(one.clone(), detached.bytes().to_vec());
    assert_eq!(again, Some(detached.clone()));
    assert_eq!(Detached::new(one.clone(), Vec::new()), None);
    // The new owner must have it by now, so the stack answers again.
    lab.wait(2_000);
    lab.send("P. 2000:2010(10) ack 1 win 500");
    assert_eq!(lab.take().len(), 1);
}

#[test]
fn ends_are_no_octets() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.send("F. 1:11(10) ack 1 win 500 <ts 300 0>");
    lab.take();
    lab.write(socket, 50);
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    lab.take();
    let detached = detach(&mut lab, socket);
    let one = &detached.snapshot;
    assert_eq!((one.state, one.fin_sent), (SnapshotState::LastAck, true));
    assert_eq!((one.unread_bytes, one.unacknowledged_bytes, one.unsent_bytes), (10, 50, 0));
    // The FIN was acknowledged with the data before it.
    assert_eq!(relative(&lab, &detached), (1, 1));
    assert_eq!(one.acknowledged.wrapping_sub(one.receive_first), 10);

    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.write(socket, 50);
    lab.stack.shutdown(lab.now, socket, Shutdown::Write);
    lab.take();
    lab.send(". 1:1(0) ack 52 win 500 <ts 300 0>");
    let detached = detach(&mut lab, socket);
    assert_eq!(detached.snapshot.state, SnapshotState::FinWait2);
    assert_eq!((relative(&lab, &detached), detached.bytes().len()), ((51, 1), 0));
}

#[test]
fn one_that_was_reset_is_given_away_with_what_had_come_until_its_user_knows() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.write(socket, 50);
    lab.send("P. 1:11(10) ack 1 win 500 <ts 300 0>");
    lab.take();
    lab.send("R 11:11(0) win 0");
    let detached = detach(&mut lab, socket);
    assert_eq!(lab.take(), [""; 0]);
    let one = &detached.snapshot;
    assert_eq!((one.state, one.unread_bytes), (SnapshotState::Reset, 10));
    assert_eq!((one.unacknowledged_bytes, one.unsent_bytes), (0, 0));
    assert_eq!(detached.unread(), (1..11).map(byte).collect::<Vec<_>>());

    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.send("R 1:1(0) win 0");
    assert!(lab.stack.take_error(socket).is_some());
    assert!(lab.stack.detach(lab.now, socket).is_none());
}

#[test]
fn what_its_user_has_closed_is_given_away_until_it_is_over() {
    let mut lab = Lab::new(Config::default());
    let socket = lab.accepted(SYN);
    lab.write(socket, 50);
    lab.stack.close(lab.now, socket);
    lab.take();
    let detached = detach(&mut lab, socket);
    let one = &detached.snapshot;
    assert_eq!((one.state, one.fin_sent), (SnapshotState::FinWait1, true));
    assert_eq!((one.unacknowledged_bytes, one.unsent_bytes), (50, 0));
    assert!(lab.stack.detach(lab.now, socket).is_none());
}

#[test]
fn what_is_not_open_or_over_is_not_given_away() {
    let mut lab = Lab::new(Config::default());
    let remote = format!("{}:{}", common::PEER, common::PEER_PORT).parse().unwrap();
    let socket = lab.stack.connect(lab.now, None, remote).unwrap();
    lab.take();
    assert!(lab.stack.detach(lab.now, socket).is_none());
    lab.send("S. 0:0(0) ack 1 win 65535 <mss 1000>");
    assert_eq!(lab.take().len(), 1, "it goes on");
    lab.stack.abort(lab.now, socket);
    assert!(lab.stack.detach(lab.now, socket).is_none());
}
