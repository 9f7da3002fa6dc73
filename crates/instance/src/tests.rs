//! Both halves in one process: a floor, a peer behind a wire in memory, and programs.

mod desks;
mod ends;
mod rig;

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use proptest::prelude::*;
use uncork_attach::record::{Arrived, Ends, Place};
use uncork_attach::{Attached, Command, Header, MOST_BYTES, News, ProgramEnd};
use uncork_engine::Events;
use uncork_guardian::Word;
use uncork_stack::{
    ConnectionError, Event, KeepAlive, Ready, RecvError, SendError, Shutdown, SnapshotState,
    SocketId, SocketOption, State,
};

use crate::life::wait;

use self::rig::{OURS, Rig, address, gets, listen, pair, pattern};

#[test]
fn octets_go_both_ways_and_the_end_is_seen() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    assert_eq!((program.counters().active_opens, program.counters().passive_opens), (0, 1));
    rig.peer_sends(theirs, b"question");
    rig.go(&mut [&mut program]);
    assert_eq!(gets(&mut program, ours).unwrap(), b"question");
    assert_eq!(gets(&mut program, ours), Err(RecvError::WouldBlock));
    let now = program.now();
    assert_eq!(program.send(now, ours, b"answer", false), Ok(6));
    rig.go(&mut [&mut program]);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"answer");
    let now = rig.peer.now();
    rig.peer.stack().shutdown(now, theirs, Shutdown::Write);
    rig.go(&mut [&mut program]);
    assert_eq!(gets(&mut program, ours).unwrap(), b"");
    assert_eq!(program.state(ours), Some(State::CloseWait));
    program.close(program.now(), ours);
    rig.go(&mut [&mut program]);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"");
    assert_eq!(rig.peer_state(theirs), Some(State::TimeWait));
}

#[test]
fn a_connection_is_in_the_guardians_table_before_its_syn_ack_leaves() {
    // A peer that has its SYN-ACK is told if the instance dies in that instant.
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    rig.connection(&mut program);
    assert_eq!(rig.guardian.0.borrow().entered, [0]);
    assert!(rig.guardian.0.borrow().sent.load(Relaxed) > 0);
}

#[test]
fn a_reset_behind_the_peers_end_is_seen() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    rig.peer_sends(theirs, b"all");
    let now = rig.peer.now();
    rig.peer.stack().shutdown(now, theirs, Shutdown::Write);
    rig.go(&mut [&mut program]);
    rig.peer.stack().abort(now, theirs);
    rig.go(&mut [&mut program]);
    assert_eq!(gets(&mut program, ours).unwrap(), b"all");
    assert_eq!(gets(&mut program, ours).unwrap(), b"");
    assert_eq!(program.take_error(ours), Some(ConnectionError::Broken));
    assert_eq!(program.state(ours), Some(State::Closed));
}

#[test]
fn what_is_written_in_pieces_leaves_as_one_segment() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    let now = rig.peer.now();
    let before = rig.peer.stack().info(now, theirs).unwrap().data_segments.0;
    for piece in [&b"he"[..], b"ad", b"er", b" and the rest"] {
        assert!(program.send(program.now(), ours, piece, false).is_ok());
    }
    rig.go(&mut [&mut program]);
    let now = rig.peer.now();
    let after = rig.peer.stack().info(now, theirs).unwrap().data_segments.0;
    assert_eq!(
        (rig.peer_gets(theirs).unwrap(), after - before),
        (b"header and the rest".to_vec(), 1)
    );
}

#[test]
fn a_long_stream_waits_for_who_reads_it_each_way() {
    let all = pattern(6 << 20);
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    let (mut sent, mut came) = (0, Vec::new());
    for round in 0.. {
        assert!(round < 20_000, "it goes on: {sent} sent, {} came", came.len());
        sent += rig.peer_sends(theirs, &all[sent..]);
        rig.go(&mut [&mut program]);
        // The program does not read for a while.
        if round > 40 {
            came.extend(gets(&mut program, ours).unwrap_or_default());
        } else {
            assert!(program.readable_bytes(ours) <= uncork_attach::WINDOW_BYTES);
        }
        if came.len() == all.len() {
            break;
        }
    }
    assert_eq!(came, all);
    let (mut sent, mut came) = (0, Vec::new());
    for round in 0.. {
        assert!(round < 20_000, "it goes on: {sent} sent, {} came", came.len());
        match program.send(program.now(), ours, &all[sent..], false) {
            Ok(taken) => sent += taken,
            Err(error) => assert_eq!(error, SendError::WouldBlock),
        }
        rig.go(&mut [&mut program]);
        if round > 40 {
            came.extend(rig.peer_gets(theirs).unwrap_or_default());
        }
        if came.len() == all.len() {
            break;
        }
    }
    assert_eq!(came, all);
    assert!(rig.guardian.0.borrow().complaints.is_empty());
}

#[test]
fn who_is_about_to_sleep_hears_of_room_that_has_come_before() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, _) = rig.connection(&mut program);
    while program.poll_event().is_some() {}
    // Records of one octet each: the ring is full long before the connection's buffer.
    while program.send(program.now(), ours, b"x", false).is_ok() {}
    program.turn().unwrap();
    while rig.floor.turn().unwrap() {}
    let (_, limit) = program.rest();
    assert_eq!(limit, Some(Duration::ZERO), "the instance is not going to ring");
    program.turn().unwrap();
    assert!(matches!(program.poll_event(), Some(Event::Socket(id, _)) if id == ours));
    assert_eq!(program.send(program.now(), ours, b"x", false), Ok(1));
}

#[test]
fn what_was_given_before_a_buffer_became_smaller_and_its_end_arrive() {
    let all = pattern(60_000);
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    // All in one go: the instance has said before that it would take as much.
    program.set_option(program.now(), ours, SocketOption::SendBuffer(4096));
    assert_eq!(program.send(program.now(), ours, &all, false), Ok(all.len()));
    program.shutdown(program.now(), ours, Shutdown::Write);
    program.close(program.now(), ours);
    let mut came = Vec::new();
    for _ in 0..100 {
        rig.go(&mut [&mut program]);
        match rig.peer_gets(theirs) {
            Ok(bytes) if bytes.is_empty() => break,
            got => came.extend(got.unwrap_or_default()),
        }
    }
    assert_eq!(came.len(), all.len());
    assert_eq!(came, all);
    assert_eq!(rig.peer_state(theirs), Some(State::CloseWait), "a FIN, and behind all of it");
}

#[test]
fn a_program_opens_connections_that_were_granted() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let now = rig.peer.now();
    let there = rig.peer.stack().listen(address("10.0.0.2:7"), 8).unwrap();
    let (local, remote) = (address("10.0.0.1:40000"), address("10.0.0.2:7"));
    let word = Word::GrantedConnection { program: 1, local, remote };
    rig.guardian.0.borrow_mut().words.push_back(word);
    let ours = program.connect(program.now(), Some(local), remote).unwrap();
    assert_eq!(program.state(ours), Some(State::SynSent));
    assert_eq!((program.counters().active_opens, program.counters().passive_opens), (1, 0));
    rig.go(&mut [&mut program]);
    assert_eq!(program.state(ours), Some(State::Established));
    let theirs = rig.peer.stack().accept(there).unwrap();
    program.send(program.now(), ours, b"hello", false).unwrap();
    rig.go(&mut [&mut program]);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"hello");
    rig.peer.stack().close(now, theirs);
    rig.go(&mut [&mut program]);
    program.close(program.now(), ours);
    rig.go(&mut [&mut program]);
    // The peer closed first: nothing is left here.
    assert_eq!(rig.guardian.0.borrow().disowned, [Ends { local, remote }]);
    assert!(std::iter::from_fn(|| program.poll_change()).count() == 2, "come, and gone");
}

#[test]
fn what_a_program_does_not_open_is_given_back_and_what_it_has_opened_stays() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let remote = address("10.0.0.2:7");
    let [used, unused] = ["10.0.0.1:40000", "10.0.0.1:40001"].map(address);
    let say = |rig: &Rig, word| rig.guardian.0.borrow_mut().words.push_back(word);
    for local in [used, unused] {
        say(&rig, Word::GrantedConnection { program: 1, local, remote });
    }
    let ours = program.connect(program.now(), Some(used), remote).unwrap();
    rig.go(&mut [&mut program]);
    for local in [used, unused] {
        say(&rig, Word::RevokedConnection { program: 1, local, remote });
    }
    rig.floor.hear_words();
    assert_eq!(rig.guardian.0.borrow().disowned, [Ends { local: unused, remote }]);
    // It can no longer be opened.
    program.connect(program.now(), Some(unused), remote).unwrap();
    program.close(program.now(), ours);
    rig.go(&mut [&mut program]);
    assert_eq!(rig.floor.guest_count(), 0);
    assert_eq!(rig.guardian.0.borrow().disowned.len(), 2);
    while program.turn().is_ok() {}
}

#[test]
fn a_connection_that_is_opened_right_behind_the_end_of_another_stays() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let there = rig.peer.stack().listen(address("10.0.0.2:7"), 8).unwrap();
    for (port, remote) in [(40_000, "10.0.0.77:7"), (40_001, "10.0.0.2:7")] {
        let (local, remote) = (SocketAddr::new(address(OURS).ip(), port), address(remote));
        let word = Word::GrantedConnection { program: 1, local, remote };
        rig.guardian.0.borrow_mut().words.push_back(word);
    }
    // Nobody answers the first; the instance hears of its end and of the second in one go.
    let first = Some(address("10.0.0.1:40000"));
    let first = program.connect(program.now(), first, address("10.0.0.77:7")).unwrap();
    rig.go(&mut [&mut program]);
    program.close(program.now(), first);
    let second = Some(address("10.0.0.1:40001"));
    let second = program.connect(program.now(), second, address("10.0.0.2:7")).unwrap();
    rig.go(&mut [&mut program]);
    assert_eq!(program.state(second), Some(State::Established));
    assert!(rig.peer.stack().accept(there).is_some());
}

#[test]
fn what_was_not_granted_is_refused_or_ends_the_attachment() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let listener = listen(&mut program);
    rig.go(&mut [&mut program]);
    let theirs = rig.connect();
    rig.go(&mut [&mut program]);
    assert_ne!(rig.peer_state(theirs), Some(State::Established));
    assert_eq!(program.accept_waiting(listener), 0);
    let (local, remote) = (address("10.0.0.1:40000"), address("10.0.0.2:7"));
    program.connect(program.now(), Some(local), remote).unwrap();
    rig.go(&mut [&mut program]);
    assert_eq!(rig.floor.guest_count(), 0);
    while program.turn().is_ok() {}
}

#[test]
fn who_dies_has_his_connections_closed_as_by_the_kernel() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (listener, ours, theirs) = rig.connection(&mut program);
    let others = [rig.connect(), rig.connect()];
    rig.go(&mut [&mut program]);
    let unread = program.accept(listener).unwrap();
    rig.go(&mut [&mut program]);
    let (_, remote) = program.ends(unread).unwrap();
    let is_it = |rig: &mut Rig, id| rig.peer.stack().ends(id).unwrap().0 == remote;
    let (unread, waiting) =
        if is_it(&mut rig, others[0]) { (others[0], others[1]) } else { (others[1], others[0]) };
    rig.peer_sends(unread, b"nobody reads this");
    program.send(program.now(), ours, b"last words", false).unwrap();
    rig.go(&mut [&mut program]);
    drop(program);
    rig.go(&mut []);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"last words");
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"", "a FIN");
    assert_eq!(rig.peer_gets(unread), Err(RecvError::Failed(ConnectionError::Reset)));
    assert_eq!(rig.floor.guest_count(), 0);
    // Another program might have come for it.
    assert_eq!(rig.peer_state(waiting), Some(State::Established));
    desks::pass_time(&rig);
    rig.go(&mut []);
    assert_eq!(rig.peer_gets(waiting), Err(RecvError::Failed(ConnectionError::Reset)));
}

#[test]
fn who_ends_before_he_is_admitted_is_no_complaint() {
    let mut rig = Rig::new();
    let (ours, theirs) = pair();
    drop(theirs);
    let word = Word::Guest { program: 1, pid: None, uid: None, socket: ours };
    rig.guardian.0.borrow_mut().words.push_back(word);
    rig.floor.hear_words();
    assert_eq!(rig.guardian.0.borrow().complaints, Vec::<String>::new());
    // The next program is admitted.
    let mut program = rig.program(2);
    rig.grant(2, OURS);
    rig.connection(&mut program);
}

#[test]
fn an_instance_that_ends_is_a_reset_of_all() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, _) = rig.connection(&mut program);
    drop(rig);
    while program.turn().is_ok() {}
    assert_eq!(program.state(ours), Some(State::Closed));
    assert_eq!(gets(&mut program, ours), Err(RecvError::Failed(ConnectionError::Reset)));
    assert_eq!(gets(&mut program, ours).unwrap(), b"");
}

/// With two threads, as the one that gives a connection away waits for the answer.
#[test]
fn a_connection_is_given_away_with_all_its_octets() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    let all = pattern(400_000);
    let mut sent = 0;
    for _ in 0..200 {
        sent += rig.peer_sends(theirs, &all[sent..]);
        rig.go(&mut [&mut program]);
    }
    let read = program.recv(program.now(), ours, &mut [0; 1000]).unwrap();
    program.send(program.now(), ours, b"not sent yet", false).unwrap();
    let detached = rig.while_it_asks(|| program.detach(program.now(), ours)).unwrap();
    assert_eq!(read + detached.unread().len(), 1000 + detached.snapshot.unread_bytes as usize);
    assert_eq!(detached.unread(), &all[1000..1000 + detached.unread().len()]);
    assert!(detached.unread().len() > uncork_attach::WINDOW_BYTES as usize, "both kept some");
    let left = [detached.unacknowledged(), detached.unsent()].concat();
    assert_eq!(left, b"not sent yet");
    assert_eq!(rig.guardian.0.borrow().given.len(), 1);
}

/// Whether its program hears of the reset before it gives the connection away, or on the way.
#[test]
fn a_connection_that_was_reset_is_given_away_with_its_error_until_that_is_told() {
    for heard in [true, false] {
        let mut rig = Rig::new();
        let mut program = rig.program(1);
        let (_, ours, theirs) = rig.connection(&mut program);
        rig.peer_sends(theirs, b"before it");
        rig.go(&mut [&mut program]);
        let now = rig.peer.now();
        rig.peer.stack().abort(now, theirs);
        if heard {
            rig.go(&mut [&mut program]);
        } else {
            rig.go(&mut []);
        }
        let detached = rig.while_it_asks(|| program.detach(program.now(), ours)).unwrap();
        assert_eq!(detached.snapshot.state, SnapshotState::Reset);
        assert_eq!(detached.unread(), b"before it");
    }
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    let now = rig.peer.now();
    rig.peer.stack().abort(now, theirs);
    rig.go(&mut [&mut program]);
    assert_eq!(program.take_error(ours), Some(ConnectionError::Reset));
    assert!(rig.while_it_asks(|| program.detach(program.now(), ours)).is_none());
    assert_eq!(rig.guardian.0.borrow().given, [], "the guardian is not asked for nothing");
}

#[test]
fn what_comes_for_a_connection_that_was_given_away_is_told_to_who_gave_it_and_nobody_else() {
    let mut rig = Rig::new();
    let (mut program, mut other) = rig.two([7, 7]);
    let (_, ours, theirs) = rig.connection(&mut program);
    let (local, remote) = program.ends(ours).unwrap();
    assert!(rig.while_it_asks(|| program.detach(program.now(), ours)).is_some());
    // The second of two that nobody acknowledges leaves, too.
    let now = rig.peer.now();
    rig.peer.stack().set_option(now, theirs, SocketOption::NoDelay(true));
    rig.peer_sends(theirs, b"too early");
    rig.go(&mut []);
    assert!(rig.while_it_asks(|| other.take_caught(local, remote)).is_empty());
    // Still on the wire when it is asked for.
    rig.peer_sends(theirs, b", and just before");
    rig.peer.turn(&mut Events::default()).unwrap();
    let caught = rig.while_it_asks(|| program.take_caught(local, remote));
    assert_eq!(caught.len(), 2);
    assert!(caught[0].ends_with(b"too early") && caught[1].ends_with(b", and just before"));
    assert!(rig.while_it_asks(|| program.take_caught(local, remote)).is_empty());
    assert_eq!(rig.guardian.0.borrow().complaints, [""; 0]);
}

/// Makes a program that writes records itself, with a connection that has come to it and that it has not accepted.
fn rude(rig: &mut Rig) -> (ProgramEnd, SocketId) {
    let mut bad = rig.end(1);
    rig.grant(1, OURS);
    let place = Place { local: address(OURS), backlog: 4, v6_only: false };
    bad.write_anything(Command::Listen.of_number(0), &serde_json::to_vec(&place).unwrap());
    rig.go(&mut []);
    let theirs = rig.connect();
    rig.go(&mut []);
    assert_eq!(rig.peer_state(theirs), Some(State::Established));
    (bad, theirs)
}

#[test]
fn who_accepts_a_connection_may_write_whatever_he_has_not_heard_yet() {
    let mut rig = Rig::new();
    let (mut program, _) = rude(&mut rig);
    let mut record = Vec::new();
    let header = program.read_one(&mut record).unwrap().unwrap();
    assert_eq!(News::of(header), Some(News::Incoming));
    let arrived: Arrived = serde_json::from_slice(&record).unwrap();
    assert_eq!(arrived.ends.local, address(OURS));
    assert!(arrived.allowed >= 16 << 10, "{arrived:?}");
    // It is told of the connection once.
    assert_eq!(program.read_one(&mut record).unwrap(), None);
}

#[test]
fn who_opens_a_connection_hears_that_he_may_write_before_that_it_is_open() {
    let mut rig = Rig::new();
    let mut program = rig.end(1);
    rig.peer.stack().listen(address("10.0.0.2:7"), 8).unwrap();
    let ends = Ends { local: address("10.0.0.1:40000"), remote: address("10.0.0.2:7") };
    let word = Word::GrantedConnection { program: 1, local: ends.local, remote: ends.remote };
    rig.guardian.0.borrow_mut().words.push_back(word);
    program.write_anything(Command::Connect.of_number(1), &serde_json::to_vec(&ends).unwrap());
    rig.go(&mut []);
    let mut record = Vec::new();
    let news = std::iter::from_fn(|| News::of(program.read_one(&mut record).unwrap()?));
    assert_eq!(news.collect::<Vec<_>>(), [News::Room, News::State]);
}

#[test]
fn who_sends_more_than_there_is_room_for_is_served_no_longer() {
    let mut rig = Rig::new();
    let (mut bad, theirs) = rude(&mut rig);
    for _ in 0..4 {
        bad.write_anything(Command::Send.of_number(0), &[7; MOST_BYTES]);
    }
    rig.go(&mut []);
    assert_eq!(rig.floor.guest_count(), 0);
    assert!(rig.guardian.0.borrow().complaints[0].contains("room"));
    // Not even what it sent first is trusted.
    assert_eq!(rig.peer_gets(theirs), Err(RecvError::Failed(ConnectionError::Reset)));
}

#[test]
fn who_asks_and_never_listens_costs_no_memory() {
    let mut rig = Rig::new();
    let (mut bad, _) = rude(&mut rig);
    for _ in 0..200 {
        for _ in 0..100 {
            bad.write_anything(Command::AskInfo.of_number(0), &[]);
        }
        rig.go(&mut []);
    }
    assert_eq!(rig.floor.guest_count(), 1, "it has done nothing that it may not");
    let kept = rig.floor.guest(0).unwrap().late.len();
    assert!((1..=4).contains(&kept), "{kept} answers are kept");
    assert!(rig.floor.lie_down(), "and nobody works on it");
}

#[test]
fn who_has_something_to_say_and_no_room_for_it_sleeps() {
    // As much as the ring takes, before the instance has a turn, in records of 24 octets; and so many less.
    for less in [0, 1, 2] {
        let mut rig = Rig::new();
        let mut program = rig.program(1);
        let (_, ours, _) = rig.connection(&mut program);
        let sends = || program.send(program.now(), ours, b"x", false).ok();
        let sent = std::iter::from_fn(sends).take((1 << 20) / 24 - less).count();
        assert_eq!(sent, (1 << 20) / 24 - less);
        rests_until_there_is_room(&mut rig, &mut program, ours);
    }
}

fn rests_until_there_is_room(rig: &mut Rig, program: &mut Attached, ours: SocketId) {
    // Longer than what is left of the ring.
    let option = SocketOption::KeepAlive(Some(KeepAlive::default()));
    assert!(program.set_option(program.now(), ours, option));
    program.complete(program.now(), ours);
    assert_eq!(program.send(program.now(), ours, b"x", false), Err(SendError::WouldBlock));
    assert!(!program.readiness(program.now(), ours).has(Ready::WRITABLE), "who polls tries again");
    let rests = |program: &mut Attached| {
        program.turn().unwrap();
        while program.poll_event().is_some() {}
        (program.is_idle(), program.rest().1)
    };
    assert_eq!(rests(program), (true, None));
    rig.go(&mut []);
    assert!(!program.is_idle(), "there is room again");
    rig.go(&mut [program]);
    assert_eq!(rests(program), (true, None));
    assert!(program.readiness(program.now(), ours).has(Ready::WRITABLE));
    assert_eq!(program.send(program.now(), ours, b"x", false), Ok(1));
}

#[test]
fn a_program_that_rings_for_nothing_wakes_its_instance_once() {
    let mut rig = Rig::new();
    let ends = [rig.end(1), rig.end(2)];
    rig.go(&mut []);
    let mut sleep = || {
        rig.floor.lie_down();
        let (fds, _) = rig.floor.rest();
        let readable = wait(&fds, Some(Duration::ZERO)).unwrap();
        rig.floor.get_up(&readable);
        readable.into_iter().filter(|can| *can).count()
    };
    sleep();
    assert_eq!(sleep(), 0);
    for who in [&ends[1], &ends[0]] {
        who.ring_for_nothing();
        assert_eq!([sleep(), sleep()], [1, 0]);
    }
}

/// What a malicious program may write.
fn garbage() -> impl Strategy<Value = (u8, u8, u32, u32, Vec<u8>)> {
    let number = prop_oneof![0_u32..6, any::<u32>()];
    let extra = prop_oneof![0_u32..300, any::<u32>()];
    let texts = prop::sample::select(vec![
        r#"{"local":"10.0.0.1:80","backlog":4,"v6_only":false}"#,
        r#"{"local":"[::]:80","backlog":4294967295,"v6_only":false}"#,
        r#"{"local":"10.0.0.1:40000","remote":"10.0.0.2:7"}"#,
        r#"{"NoDelay":true}"#,
        r#"{"SendBuffer":0}"#,
        r#"{"Linger":0}"#,
        "",
    ]);
    let bytes = prop_oneof![
        texts.prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..2000),
    ];
    (0_u8..20, any::<u8>(), number, extra, bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever one program writes, the instance goes on, and another one's connection is as it was.
    #[test]
    fn one_program_cannot_harm_another(records in prop::collection::vec(garbage(), 1..60)) {
        let mut rig = Rig::new();
        let mut good = rig.program(1);
        let (_, ours, theirs) = rig.connection(&mut good);
        let mut bad = rig.end(2);
        rig.grant(2, OURS);
        let others: Vec<_> = (0..2).map(|_| rig.connect()).collect();
        for (kind, flags, number, extra, bytes) in records {
            let header = Header::of_number(kind, number).flagged(flags).and(extra);
            let bytes = &bytes[..bytes.len().min(MOST_BYTES)];
            bad.write_anything(header, bytes);
            rig.go(&mut [&mut good]);
            rig.peer_sends(theirs, b"ping");
            rig.go(&mut [&mut good]);
            prop_assert_eq!(gets(&mut good, ours).unwrap(), b"ping");
            good.send(good.now(), ours, b"pong", false).unwrap();
            rig.go(&mut [&mut good]);
            prop_assert_eq!(rig.peer_gets(theirs).unwrap(), b"pong");
        }
        drop(bad);
        rig.go(&mut [&mut good]);
        prop_assert_eq!(rig.floor.guest_count(), 1);
        drop(others);
    }
}
