//! Ends of connections of which there is more to tell than there is room for, and programs that are behind.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use rustix::net::SendFlags;
use rustix::net::sockopt::set_socket_linger;
use uncork_attach::RING_BYTES;
use uncork_attach::record::HEADER_BYTES;
use uncork_guardian::channel;

use super::*;

/// More than a program has of one connection.
const BYTES: usize = 300_000;

/// Makes a connection to which so much has come that the instance still has some of it.
fn full(rig: &mut Rig, program: &mut Attached) -> (SocketId, SocketId, Vec<u8>) {
    let (_, ours, theirs) = rig.connection(program);
    let (all, mut sent) = (pattern(BYTES), 0);
    for _ in 0..200 {
        sent += rig.peer_sends(theirs, &all[sent..]);
        rig.go(&mut [program]);
    }
    assert_eq!(sent, BYTES);
    assert_eq!(program.readable_bytes(ours), uncork_attach::WINDOW_BYTES);
    (ours, theirs, all)
}

/// Checks that all of this comes, and returns how it ends, for a program that has a turn only when there is nothing to read.
fn reads(
    rig: &mut Rig,
    program: &mut Attached,
    (id, all): (SocketId, &[u8]),
) -> Result<(), RecvError> {
    let (mut came, mut turns) = (Vec::new(), 0);
    let end = loop {
        match gets(program, id) {
            Ok(bytes) if bytes.is_empty() => break Ok(()),
            Ok(bytes) => came.extend(bytes),
            Err(RecvError::WouldBlock) => {
                turns += 1;
                assert!(turns < 100, "{} octets, and nobody says that it is over", came.len());
                rig.go(&mut [program]);
            }
            Err(error) => break Err(error),
        }
    };
    assert_eq!(came.len(), all.len());
    assert!(came == all);
    end
}

#[test]
fn what_has_come_before_a_reset_is_read_before_it() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (ours, theirs, all) = full(&mut rig, &mut program);
    let now = rig.peer.now();
    rig.peer.stack().abort(now, theirs);
    rig.go(&mut [&mut program]);
    assert!(program.readiness(program.now(), ours).has(Ready::ERROR), "who polls hears of it");
    let end = reads(&mut rig, &mut program, (ours, &all));
    assert_eq!(end, Err(RecvError::Failed(ConnectionError::Reset)));
    assert_eq!(gets(&mut program, ours).unwrap(), b"");
}

#[test]
fn what_has_come_before_a_reset_is_read_by_who_has_heard_of_that_by_writing() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (ours, theirs, all) = full(&mut rig, &mut program);
    let now = rig.peer.now();
    rig.peer.stack().abort(now, theirs);
    // The instance hears of it when it sends this.
    program.send(program.now(), ours, b"x", false).unwrap();
    rig.go(&mut [&mut program]);
    let failed = SendError::Failed(ConnectionError::Reset);
    assert_eq!(program.send(program.now(), ours, b"x", false), Err(failed));
    assert_eq!(reads(&mut rig, &mut program, (ours, &all)), Ok(()));
}

#[test]
fn what_has_come_before_both_ends_is_read_though_the_connection_is_over() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (ours, theirs, all) = full(&mut rig, &mut program);
    let now = rig.peer.now();
    rig.peer.stack().shutdown(now, theirs, Shutdown::Write);
    rig.go(&mut [&mut program]);
    program.shutdown(program.now(), ours, Shutdown::Write);
    rig.go(&mut [&mut program]);
    assert_eq!(program.state(ours), Some(State::Closed));
    assert_eq!(reads(&mut rig, &mut program, (ours, &all)), Ok(()));
}

#[test]
fn what_a_program_that_was_behind_has_said_last_is_done() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (listener, ours, theirs) = rig.connection(&mut program);
    // As much news as there is room for, which nobody takes.
    let others: Vec<_> = (0..5).map(|_| rig.connect()).collect();
    rig.go(&mut [&mut program]);
    while program.accept(listener).is_some() {}
    rig.go(&mut [&mut program]);
    let (all, mut sent) = (pattern(300_000), [0; 5]);
    for _ in 0..200 {
        for (id, sent) in others.iter().zip(&mut sent) {
            *sent += rig.peer_sends(*id, &all[*sent..]);
        }
        rig.go(&mut []);
    }
    rig.connect();
    rig.go(&mut []);
    assert!(!rig.floor.guest(0).unwrap().late.is_empty(), "it is behind");
    program.send(program.now(), ours, b"last words", false).unwrap();
    program.turn().unwrap();
    drop(program);
    rig.go(&mut []);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"last words");
}

#[test]
fn what_a_program_has_said_right_before_it_is_killed_is_done() {
    let all = pattern(300_000);
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (listener, ours, theirs) = rig.connection(&mut program);
    let asks = rig.connect();
    rig.go(&mut [&mut program]);
    let asked = program.accept(listener).unwrap();
    rig.peer_sends(asks, b"question");
    rig.go(&mut [&mut program]);
    // From here on the program has no turn. What it reads does not count as unread.
    assert_eq!(gets(&mut program, asked).unwrap(), b"question");
    assert_eq!(program.send(program.now(), asked, b"answer", false), Ok(6));
    let sent = program.send(program.now(), ours, &all, false).unwrap();
    assert!(sent > MOST_BYTES, "several records: {sent}");
    program.close(program.now(), ours);
    drop(program);
    let mut came = Vec::new();
    for _ in 0..100 {
        rig.go(&mut []);
        match rig.peer_gets(theirs) {
            Ok(bytes) if bytes.is_empty() => break,
            got => came.extend(got.unwrap_or_default()),
        }
    }
    assert!(came == all[..sent], "{} of {sent}", came.len());
    assert_eq!(rig.peer_gets(asks).unwrap(), b"answer");
    assert_eq!(rig.peer_gets(asks).unwrap(), b"", "a FIN");
}

#[test]
fn what_had_found_no_room_is_said_before_anything_else_when_there_is_some() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    rig.peer_sends(theirs, b"question");
    rig.go(&mut [&mut program]);
    while program.send(program.now(), ours, b"x", false).is_ok() {}
    assert_eq!(gets(&mut program, ours).unwrap(), b"question");
    program.turn().unwrap();
    while rig.floor.turn().unwrap() {}
    // It is killed before it has a turn, too.
    assert_eq!(program.send(program.now(), ours, b"y", false), Ok(1));
    drop(program);
    rig.go(&mut []);
    assert!(rig.peer_gets(theirs).unwrap().ends_with(b"xxy"));
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"", "a FIN, as it has read all");
}

#[test]
fn who_hangs_up_and_speaks_on_is_not_listened_to_for_ever() {
    const LONG: Duration = Duration::from_secs(20);
    let mut rig = Rig::new();
    let (mut bad, _) = rude(&mut rig);
    let option = serde_json::to_vec(&SocketOption::NoDelay(true)).unwrap();
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut says = || bad.write_anything(Command::ListenerOption.of_number(0), &option);
            // The ring is full when it hangs up.
            (0..RING_BYTES / HEADER_BYTES).for_each(|_| says());
            bad.hang_up();
            while !over.load(Relaxed) && begun.elapsed() < LONG {
                bad.write_anything(Command::ListenerOption.of_number(0), &option);
            }
        });
        while rig.floor.guest_count() > 0 {
            rig.floor.look_for_the_dead(true);
        }
        over.store(true, Relaxed);
    });
    assert!(begun.elapsed() < LONG, "only when there was nothing more");
}

/// A few in each turn, as there are others to be served.
#[test]
fn what_is_dear_is_done_by_a_few_in_each_turn() {
    let mut rig = Rig::new();
    let (mut bad, _) = rude(&mut rig);
    let ends = serde_json::to_vec(&Ends { local: address(OURS), remote: address(OURS) }).unwrap();
    for _ in 0..100 {
        bad.write_anything(Command::AskCaught.of_number(u32::MAX), &ends);
    }
    let mut record = Vec::new();
    let mut answers = |rig: &mut Rig| {
        rig.floor.turn().unwrap();
        let mut count = 0;
        while let Some(header) = bad.read_one(&mut record).unwrap() {
            count += usize::from(News::of(header) == Some(News::Caught));
        }
        count
    };
    let in_turns: Vec<_> = (0..14).map(|_| answers(&mut rig)).collect();
    assert_eq!(in_turns, [8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 4, 0]);
}

#[test]
fn a_program_that_writes_records_itself_has_no_larger_buffers_than_others() {
    let mut rig = Rig::new();
    let (mut bad, theirs) = rude(&mut rig);
    bad.write_anything(Command::Accept.of_number(0), &[]);
    let option = serde_json::to_vec(&SocketOption::SendBuffer(1 << 30)).unwrap();
    bad.write_anything(Command::Option.of_number(0), &option);
    rig.go(&mut []);
    rig.peer_sends(theirs, b"x");
    rig.go(&mut []);
    let (mut record, mut allowed) = (Vec::new(), 0);
    while let Some(header) = bad.read_one(&mut record).unwrap() {
        if News::of(header) == Some(News::Room) {
            allowed = u64::from_ne_bytes(record[..].try_into().unwrap());
        }
    }
    assert!((1 << 20..=8 << 20).contains(&allowed), "{allowed}");
}

#[test]
fn who_loses_a_connection_that_is_given_away_too_late_keeps_the_others() {
    for closes in [true, false] {
        let mut rig = Rig::new();
        let mut program = rig.program(1);
        let (listener, ours, _) = rig.connection(&mut program);
        let theirs = rig.connect();
        rig.go(&mut [&mut program]);
        let other = program.accept(listener).unwrap();
        rig.go(&mut [&mut program]);
        // The instance does not get to it.
        assert!(program.detach(program.now(), ours).is_none());
        assert_eq!(gets(&mut program, ours), Err(RecvError::Failed(ConnectionError::Reset)));
        assert!(program.detach(program.now(), ours).is_none(), "once more, and at once");
        program.shutdown(program.now(), ours, Shutdown::Both);
        if closes {
            program.close(program.now(), ours);
        }
        rig.go(&mut [&mut program]);
        assert_eq!(rig.floor.guest_count(), 1, "it has done nothing that it may not");
        // This connection may get the number.
        rig.connect();
        rig.go(&mut [&mut program]);
        let next = program.accept(listener).unwrap();
        program.close(program.now(), ours);
        rig.go(&mut [&mut program]);
        assert_eq!(program.state(next), Some(State::Established));
        program.send(program.now(), other, b"still there", false).unwrap();
        rig.go(&mut [&mut program]);
        assert_eq!(rig.peer_gets(theirs).unwrap(), b"still there");
        assert_eq!(rig.floor.guest_count(), 1);
    }
}

#[test]
fn who_was_answered_too_late_is_answered_the_next_time() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (_, ours, theirs) = rig.connection(&mut program);
    rig.peer_sends(theirs, b"kept");
    rig.go(&mut [&mut program]);
    // The instance does not get to it.
    assert!(program.info(program.now(), ours).is_none());
    let detached = rig.while_it_asks(|| program.detach(program.now(), ours)).unwrap();
    assert_eq!(detached.unread(), b"kept");
    assert_eq!(rig.guardian.0.borrow().given.len(), 1);
}

#[test]
fn what_has_come_for_one_connection_is_not_anothers_however_late_it_is_told() {
    let mut rig = Rig::new();
    let mut program = rig.program(1);
    let (listener, first, to_first) = rig.connection(&mut program);
    let to_second = rig.connect();
    rig.go(&mut [&mut program]);
    let second = program.accept(listener).unwrap();
    rig.go(&mut [&mut program]);
    let ends = [first, second].map(|id| program.ends(id).unwrap());
    for id in [first, second] {
        assert!(rig.while_it_asks(|| program.detach(program.now(), id)).is_some());
    }
    rig.peer_sends(to_first, b"to the first");
    rig.peer_sends(to_second, b"to the second");
    rig.go(&mut []);
    // The instance does not get to it.
    assert!(program.take_caught(ends[0].0, ends[0].1).is_empty());
    let caught = rig.while_it_asks(|| program.take_caught(ends[1].0, ends[1].1));
    assert!(matches!(&caught[..], [one] if one.ends_with(b"to the second")));
}

/// Makes a connection whose close waits until its other end has read all, or for so long.
fn lingering(long: Duration) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_nonblocking(true).unwrap();
    while one.write(&[0; 65536]).is_ok() {}
    one.set_nonblocking(false).unwrap();
    set_socket_linger(&one, Some(long)).unwrap();
    (one, other)
}

#[test]
fn what_a_program_has_passed_to_its_instance_holds_up_nobody_when_it_goes() {
    let long = Duration::from_secs(20);
    let mut rig = Rig::new();
    let mut other = rig.program(1);
    let (ours, theirs) = pair();
    rig.floor.admit(2, Some(1000), ours).unwrap();
    let (one, peer) = lingering(long);
    channel::send(theirs.as_fd(), &"close this", Some(one.as_fd()), SendFlags::empty()).unwrap();
    drop((one, theirs));
    let begun = Instant::now();
    rig.floor.look_for_the_dead(true);
    rig.connection(&mut other);
    assert_eq!(rig.floor.guest_count(), 1);
    assert!(begun.elapsed() < long / 2);
    drop(peer);
}

#[test]
fn who_is_served_no_more_hears_of_it_at_once() {
    let mut rig = Rig::new();
    let mut program = rig.end(1);
    program.write_anything(Header::of_number(255, 0), &[]);
    let mut program = Attached::new(program);
    rig.floor.turn().unwrap();
    assert_eq!(rig.floor.guest_count(), 0);
    thread::sleep(Duration::from_millis(2));
    assert!(program.turn().is_err());
}
