//! Limits that all connections share: memory, orphans and TIME-WAIT.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use std::time::Duration;
use uncork_stack::{Config, Event, Ready, SendError, SocketId, State};
use uncork_wire::SeqNumber;

use crate::common::Lab;

struct Peer {
    port: u16,
    iss: SeqNumber,
    socket: SocketId,
}

/// Opens `count` connections, each from a port of its own.
fn peers(lab: &mut Lab, count: u16) -> Vec<Peer> {
    let listener = lab.listen();
    let open = |port| {
        lab.peer_port = port;
        lab.send("S 0:0(0) win 65535 <mss 1460,sackOK,ws 7>");
        lab.take();
        lab.send(". 1:1(0) ack 1 win 65535");
        lab.take();
        Peer { port, iss: lab.iss.unwrap(), socket: lab.stack.accept(listener).unwrap() }
    };
    (1000..1000 + count).map(open).collect()
}

impl Peer {
    fn says(&self, lab: &mut Lab, text: &str) -> Vec<String> {
        (lab.peer_port, lab.iss) = (self.port, Some(self.iss));
        lab.send(text);
        lab.take()
    }
}

/// Returns a configuration with half a megabyte for all connections.
fn little() -> Config {
    Config { memory_bytes: (256 << 10, 512 << 10), pacing: false, ..Config::default() }
}

const LITTLE: usize = 512 << 10;
/// The buffer of the last connection to get a full one while memory was left.
const ONE: usize = 64 << 10;

#[test]
fn many_who_send_have_no_more_than_is_bounded_and_all_of_them_get_on() {
    let mut lab = Lab::new(little());
    let peers = peers(&mut lab, 100);
    for peer in &peers {
        let given = lab.stack.send(lab.now, peer.socket, &[0; 70_000], false);
        assert!(given.is_ok_and(|bytes| bytes >= 4096));
        lab.take();
    }
    assert!(lab.stack.buffered_bytes() <= LITTLE + ONE + 100 * 4096);
    // The last one has little; once that is acknowledged, it gets as much again.
    while lab.stack.poll_event().is_some() {}
    let last = peers.last().unwrap();
    let refused = lab.stack.send(lab.now, last.socket, &[0; 100], false);
    assert_eq!(refused, Err(SendError::WouldBlock));
    last.says(&mut lab, ". 1:1(0) ack 4097 win 65535");
    let event = Event::Socket(last.socket, Ready::WRITABLE);
    assert_eq!(lab.stack.poll_event(), Some(event));
    assert_eq!(lab.stack.send(lab.now, last.socket, &[0; 70_000], false), Ok(4096));
    assert_eq!(lab.take().len(), 3);
    // As soon as others hold less, it gets more.
    for peer in &peers[..8] {
        lab.stack.abort(lab.now, peer.socket);
    }
    assert!(lab.stack.buffered_bytes() < LITTLE);
    assert_eq!(lab.stack.sendable_bytes(lab.now, last.socket), (64 << 10) - 4096);
}

#[test]
fn many_who_do_not_read_have_no_more_than_is_bounded_and_what_was_dropped_comes_again() {
    let mut lab = Lab::new(little());
    let peers = peers(&mut lab, 30);
    let segment = |first: u32| format!(". {first}:{}(1000) ack 1 win 65535", first + 1000);
    for peer in &peers {
        for n in 0..60 {
            peer.says(&mut lab, &segment(1 + n * 1000));
        }
    }
    assert!(lab.stack.buffered_bytes() <= LITTLE + ONE + 30 * 8192);
    assert!(lab.stack.counters().receive_drops > 20 * 50);
    let last = peers.last().unwrap();
    // An out-of-order segment is not kept, and not reported by SACK.
    assert_eq!(last.says(&mut lab, &segment(50_001)), [". 1:1(0) ack 5001"]);
    assert_eq!(lab.read(last.socket), Ok(5000));
    assert_eq!(last.says(&mut lab, &segment(5001)).len(), 1);
    for peer in &peers[..7] {
        assert_eq!(lab.read(peer.socket), Ok(60_000));
    }
    for n in 6..60 {
        last.says(&mut lab, &segment(1 + n * 1000));
    }
    assert_eq!(lab.read(last.socket), Ok(55_000));
}

#[test]
fn buffers_do_not_grow_where_there_is_little_memory() {
    let grown = |memory_bytes| {
        let config = Config { memory_bytes, pacing: false, ..Config::default() };
        let mut lab = Lab::new(config);
        let socket = lab.accepted("mss 1460,sackOK,ws 7");
        let (mut seq, mut acked) = (1, 1);
        for _ in 0..20 {
            for _ in 0..60 {
                lab.send(&format!(". {seq}:{}(1000) ack {acked} win 65535", seq + 1000));
                seq += 1000;
            }
            assert_eq!(lab.read(socket), Ok(60_000));
            let _ = lab.stack.send(lab.now, socket, &[0; 60_000], false);
            while !lab.take().is_empty() {}
            lab.wait(20);
            let info = lab.stack.info(lab.now, socket).unwrap();
            acked += info.queued_bytes - info.unsent_bytes;
            lab.send(&format!(". {seq}:{seq}(0) ack {acked} win 65535"));
            while !lab.take().is_empty() {}
        }
        acked += lab.stack.info(lab.now, socket).unwrap().queued_bytes;
        lab.send(&format!(". {seq}:{seq}(0) ack {acked} win 65535"));
        let window = lab.stack.info(lab.now, socket).unwrap().receive_window_bytes;
        (lab.stack.sendable_bytes(lab.now, socket), window)
    };
    let (send, receive) = grown(Config::default().memory_bytes);
    assert!(send > 100_000 && receive > 100_000, "{send} {receive}");
    assert_eq!(grown((0, 1 << 30)), (64 << 10, 64 << 10));
}

#[test]
fn who_is_closed_when_there_are_too_many_such_ones_is_reset() {
    let mut lab = Lab::new(Config { most_orphans: 2, ..Config::default() });
    let peers = peers(&mut lab, 4);
    let close = |lab: &mut Lab, peer: &Peer| {
        lab.write(peer.socket, 100);
        lab.take();
        lab.stack.close(lab.now, peer.socket);
        lab.take().concat()
    };
    assert!(close(&mut lab, &peers[0]).starts_with("F"));
    assert!(close(&mut lab, &peers[1]).starts_with("F"));
    assert!(close(&mut lab, &peers[2]).starts_with("R"));
    assert_eq!((lab.stack.counters().orphans_reset, lab.stack.connection_count()), (1, 3));
    // A finished one makes room for another: in TIME-WAIT it is no orphan.
    peers[0].says(&mut lab, "F. 1:1(0) ack 102 win 65535");
    assert!(close(&mut lab, &peers[3]).starts_with("F"));
    assert_eq!(lab.stack.counters().orphans_reset, 1);
}

#[test]
fn a_closed_connection_whose_peer_takes_nothing_makes_room_where_there_is_no_memory() {
    let mut lab = Lab::new(little());
    let peers = peers(&mut lab, 9);
    for peer in &peers[..2] {
        assert_eq!(lab.stack.send(lab.now, peer.socket, &[0; 70_000], false), Ok(64 << 10));
        lab.take();
        lab.stack.close(lab.now, peer.socket);
    }
    assert_eq!(lab.stack.counters().orphans_reset, 0);
    for peer in &peers[2..] {
        lab.stack.send(lab.now, peer.socket, &[0; 70_000], false).unwrap();
        lab.take();
    }
    let before = lab.stack.buffered_bytes();
    assert!(before >= LITTLE);
    // At its next timeout, and not after eight of them.
    lab.wait(400);
    lab.take();
    assert!(lab.stack.counters().orphans_reset >= 1);
    assert!(lab.stack.buffered_bytes() <= before - ONE);
}

#[test]
fn of_too_many_in_time_wait_the_newest_is_over_when_its_last_ack_has_left() {
    let mut lab = Lab::new(Config { most_time_waits: 2, ..Config::default() });
    let peers = peers(&mut lab, 3);
    for peer in &peers {
        lab.stack.close(lab.now, peer.socket);
        lab.take();
        assert_eq!(peer.says(&mut lab, "F. 1:1(0) ack 2 win 65535"), [". 2:2(0) ack 2"]);
    }
    let states = |lab: &mut Lab| {
        let all: Vec<_> = lab.stack.sockets().collect();
        all.into_iter().map(|one| lab.state(one)).collect::<Vec<_>>()
    };
    assert_eq!(states(&mut lab), [State::TimeWait; 3]);
    lab.wait(200);
    assert_eq!(states(&mut lab), [State::TimeWait; 2]);
    assert_eq!(lab.stack.counters().time_wait_overflows, 1);
    // The ones that stay end in their time, which makes room.
    lab.wait_for(Duration::from_secs(60));
    assert_eq!(states(&mut lab), []);
}
