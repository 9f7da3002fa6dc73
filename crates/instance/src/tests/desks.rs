//! Which program gets what comes to a listener, and what becomes of it when that program leaves.

use std::thread;
use std::time::{Duration, Instant};

use uncork_attach::{Attached, Command};
use uncork_engine::Events;
use uncork_guardian::Word;
use uncork_stack::{
    ConnectionError, FastConnect, FastOpen, FastOpenKeys, FastOpenListen, ListenerId, Listening,
    RecvError, Shutdown, SocketId, SocketOption, State,
};

use super::{OURS, Rig, address, gets, listen, rude};

const SAME: [u32; 2] = [1000, 1000];

/// Makes two programs of these users', of which the first listens.
fn one_listens(users: [u32; 2]) -> (Rig, Attached, Attached, ListenerId) {
    let mut rig = Rig::new();
    let (mut one, two) = rig.two(users);
    let first = listen(&mut one);
    rig.go(&mut [&mut one]);
    (rig, one, two, first)
}

/// Makes a connection that waits at the first program's listener, with octets that the program has been told of.
fn waiting(rig: &mut Rig, one: &mut Attached, bytes: &[u8]) -> SocketId {
    let theirs = rig.connect();
    rig.go(&mut [one]);
    rig.peer_sends(theirs, bytes);
    rig.go(&mut [one]);
    theirs
}

#[test]
fn listeners_share_and_what_one_has_not_accepted_is_for_others() {
    let mut rig = Rig::new();
    let (mut one, mut two) = rig.two(SAME);
    let (first, second) = (listen(&mut one), listen(&mut two));
    rig.go(&mut [&mut one, &mut two]);
    let theirs: Vec<_> = (0..6).map(|_| rig.connect()).collect();
    rig.go(&mut [&mut one, &mut two]);
    assert_eq!((one.accept_waiting(first), two.accept_waiting(second)), (3, 3));
    for (at, &id) in theirs.iter().enumerate() {
        rig.peer_sends(id, &[at as u8; 100]);
    }
    rig.go(&mut [&mut one, &mut two]);
    one.leave_listener(first);
    rig.go(&mut [&mut one, &mut two]);
    assert_eq!(two.accept_waiting(second), 6);
    for &id in &theirs {
        rig.peer_sends(id, b"more");
    }
    // Until what was sent before is acknowledged, as no program answers it.
    thread::sleep(Duration::from_millis(1));
    rig.go(&mut [&mut one, &mut two]);
    let mut seen = Vec::new();
    while let Some(id) = two.accept(second) {
        let bytes = gets(&mut two, id).unwrap();
        assert_eq!(bytes, [&[bytes[0]; 100][..], b"more"].concat());
        assert_eq!(two.send(two.now(), id, &bytes[..1], false), Ok(1), "it can be answered");
        seen.push(bytes[0]);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    rig.go(&mut [&mut one, &mut two]);
    for (at, &id) in (0..).zip(&theirs) {
        assert_eq!(rig.peer_gets(id).unwrap(), [at]);
    }
}

#[test]
fn the_end_of_a_connection_that_is_passed_on_is_seen_behind_its_octets() {
    let (mut rig, mut one, mut two, first) = one_listens(SAME);
    let theirs = waiting(&mut rig, &mut one, b"all");
    let now = rig.peer.now();
    rig.peer.stack().shutdown(now, theirs, Shutdown::Write);
    rig.go(&mut [&mut one]);
    let second = listen(&mut two);
    rig.go(&mut [&mut one, &mut two]);
    one.leave_listener(first);
    rig.go(&mut [&mut one, &mut two]);
    let id = two.accept(second).unwrap();
    assert_eq!(gets(&mut two, id).unwrap(), b"all");
    assert_eq!(gets(&mut two, id).unwrap(), b"");
    assert_eq!(two.state(id), Some(State::CloseWait));
}

#[test]
fn what_is_on_its_way_to_who_leaves_comes_back() {
    let (mut rig, mut one, mut two, first) = one_listens(SAME);
    let (known, new) = (rig.connect(), rig.connect());
    rig.go(&mut [&mut one]);
    assert_eq!(one.accept_waiting(first), 2);
    let later = rig.connect();
    for (id, byte) in [(known, b"1"), (new, b"2"), (later, b"3")] {
        rig.peer_sends(id, byte);
        // The program hears nothing of it yet.
        rig.go(&mut [&mut two]);
    }
    one.leave_listener(first);
    assert!(!one.is_quiet(), "it has not been given everything back");
    let second = listen(&mut two);
    rig.go(&mut [&mut one, &mut two]);
    assert!(one.is_quiet());
    let mut seen = Vec::new();
    while let Some(id) = two.accept(second) {
        seen.extend(gets(&mut two, id).unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, b"123");
}

/// Kills a program at which two connections wait: it was told octets of one, and more has come that it was not told.
fn dies_with_two_waiting(rig: &mut Rig, mut one: Attached) -> [SocketId; 2] {
    let told = waiting(rig, &mut one, b"one ");
    let silent = rig.connect();
    rig.go(&mut [&mut one]);
    // Until what was sent before is acknowledged, as no program answers it.
    thread::sleep(Duration::from_millis(1));
    rig.go(&mut [&mut one]);
    rig.peer_sends(told, b"two");
    rig.peer.turn(&mut Events::default()).unwrap();
    drop(one);
    [told, silent]
}

/// Checks that both connections come to this program, with all data that was sent, and can be answered.
fn has_both(rig: &mut Rig, two: &mut Attached, second: ListenerId, theirs: [SocketId; 2]) {
    rig.go(&mut [two]);
    assert_eq!(two.accept_waiting(second), 2);
    let mut said = Vec::new();
    while let Some(id) = two.accept(second) {
        said.extend(gets(two, id).unwrap_or_default());
        assert_eq!(two.send(two.now(), id, b"answer", false), Ok(6));
    }
    assert_eq!(said, b"one two");
    rig.go(&mut [two]);
    for id in theirs {
        assert_eq!(rig.peer_gets(id).unwrap(), b"answer");
    }
}

#[test]
fn what_waits_at_who_dies_is_for_others_with_all_that_he_was_told() {
    let (mut rig, one, mut two, _) = one_listens(SAME);
    let theirs = dies_with_two_waiting(&mut rig, one);
    let second = listen(&mut two);
    two.turn().unwrap();
    rig.floor.turn().unwrap();
    has_both(&mut rig, &mut two, second, theirs);
}

#[test]
fn what_waits_at_the_last_who_dies_is_for_who_comes_next() {
    let (mut rig, one, mut two, _) = one_listens(SAME);
    let theirs = dies_with_two_waiting(&mut rig, one);
    // The other program is known to be dead before this one comes.
    rig.go(&mut [&mut two]);
    assert_eq!(rig.floor.guest_count(), 1);
    let second = listen(&mut two);
    has_both(&mut rig, &mut two, second, theirs);
}

#[test]
fn a_reset_is_known_to_who_has_the_connection_next() {
    let (mut rig, mut one, mut two, first) = one_listens(SAME);
    let theirs = waiting(&mut rig, &mut one, b"all");
    let now = rig.peer.now();
    rig.peer.stack().abort(now, theirs);
    rig.go(&mut [&mut one]);
    assert_eq!(one.accept_waiting(first), 1);
    drop(one);
    let second = listen(&mut two);
    rig.go(&mut [&mut two]);
    let id = two.accept(second).unwrap();
    assert_eq!(gets(&mut two, id).unwrap(), b"all");
    assert_eq!(gets(&mut two, id), Err(RecvError::Failed(ConnectionError::Reset)));
}

#[test]
fn what_waits_at_who_has_broken_the_rules_is_kept_for_nobody() {
    let mut rig = Rig::new();
    let (mut bad, theirs) = rude(&mut rig);
    bad.write_anything(Command::Read.of_number(0), &[]);
    rig.go(&mut []);
    assert!(rig.guardian.0.borrow().complaints[0].contains("not accepted"));
    assert_ne!(rig.peer_state(theirs), Some(State::Established));
    assert_eq!(rig.floor.next_close(), None);
}

#[test]
fn what_comes_behind_who_has_left_is_told_to_the_next_only() {
    let (mut rig, mut one, mut two, first) = one_listens(SAME);
    let theirs = waiting(&mut rig, &mut one, b"one ");
    one.leave_listener(first);
    one.turn().unwrap();
    // Until what was sent before is acknowledged, as no program answers it.
    thread::sleep(Duration::from_millis(1));
    rig.go(&mut [&mut two]);
    rig.peer_sends(theirs, b"two");
    rig.peer.turn(&mut Events::default()).unwrap();
    // The program gives it back while the instance is in the middle of a turn, in which more comes.
    one.turn().unwrap();
    rig.floor.turn_links(false).unwrap();
    rig.floor.tell_all();
    let second = listen(&mut two);
    rig.go(&mut [&mut one, &mut two]);
    let id = two.accept(second).unwrap();
    assert_eq!(gets(&mut two, id).unwrap(), b"one two");
}

#[test]
fn who_waits_for_his_data_is_for_who_comes_next_and_hears_of_nothing_if_nobody_does() {
    for comes in [true, false] {
        let (mut rig, mut one, mut two, first) = one_listens(SAME);
        one.set_listener_option(first, SocketOption::DeferAccept(30));
        rig.go(&mut [&mut one]);
        let silent = rig.connect();
        let speaks = rig.connect();
        rig.go(&mut [&mut one]);
        assert_eq!(one.accept_waiting(first), 0);
        one.leave_listener(first);
        rig.go(&mut [&mut one]);
        let second = comes.then(|| listen(&mut two));
        rig.peer_sends(speaks, b"hello");
        rig.go(&mut [&mut one, &mut two]);
        if let Some(second) = second {
            assert_eq!(two.accept_waiting(second), 1);
        }
        pass_time(&rig);
        rig.go(&mut [&mut one, &mut two]);
        if let Some(second) = second {
            assert_eq!(two.accept_waiting(second), 2);
        }
        assert_eq!(rig.peer_state(silent), Some(State::Established));
        let there = rig.peer_state(speaks) == Some(State::Established);
        assert_eq!(there, comes);
    }
}

#[test]
fn what_one_user_has_left_is_for_no_other() {
    let (mut rig, mut one, mut two, first) = one_listens([1000, 1001]);
    let early = waiting(&mut rig, &mut one, b"a secret");
    one.leave_listener(first);
    // The program is slow to give it back.
    one.turn().unwrap();
    rig.floor.turn().unwrap();
    let second = listen(&mut two);
    rig.go(&mut [&mut two]);
    rig.go(&mut [&mut one, &mut two]);
    assert_eq!(two.accept_waiting(second), 0);
    let late = rig.connect();
    rig.go(&mut [&mut two]);
    assert_eq!(two.accept_waiting(second), 1);
    pass_time(&rig);
    rig.go(&mut [&mut one, &mut two]);
    assert_eq!(two.accept_waiting(second), 1);
    assert_ne!(rig.peer_state(early), Some(State::Established));
    assert_eq!(rig.peer_state(late), Some(State::Established));
}

#[test]
fn what_the_last_who_leaves_has_not_accepted_is_for_who_comes_next() {
    let (mut rig, mut one, mut two, first) = one_listens(SAME);
    one.set_listener_option(first, SocketOption::Cork(true));
    let theirs = waiting(&mut rig, &mut one, b"hello");
    one.leave_listener(first);
    rig.go(&mut [&mut one]);
    drop(one);
    rig.go(&mut [&mut two]);
    assert_eq!(rig.peer_state(theirs), Some(State::Established));
    let second = listen(&mut two);
    rig.go(&mut [&mut two]);
    let ours = two.accept(second).unwrap();
    assert_eq!(gets(&mut two, ours).unwrap(), b"hello");
    // What comes next is as this program wants it, not as the other did.
    let theirs = rig.connect();
    rig.go(&mut [&mut two]);
    let ours = two.accept(second).unwrap();
    two.send(two.now(), ours, b"answer", false).unwrap();
    rig.go(&mut [&mut two]);
    assert_eq!(rig.peer_gets(theirs).unwrap(), b"answer");
}

#[test]
fn what_is_kept_for_nobody_is_reset_in_the_end() {
    let (mut rig, mut one, _, first) = one_listens(SAME);
    let theirs = waiting(&mut rig, &mut one, b"hello");
    one.leave_listener(first);
    rig.go(&mut [&mut one]);
    // Its SYN arrived before the filters knew.
    let late = rig.connect();
    rig.go(&mut [&mut one]);
    for id in [theirs, late] {
        assert_eq!(rig.peer_state(id), Some(State::Established));
    }
    pass_time(&rig);
    rig.go(&mut [&mut one]);
    for id in [theirs, late] {
        assert_ne!(rig.peer_state(id), Some(State::Established));
    }
    assert_eq!(rig.floor.next_close(), None);
}

#[test]
fn who_comes_to_a_place_that_was_left_twice_waits_as_long_as_at_the_second() {
    let (mut rig, mut one, mut two, first) = one_listens(SAME);
    one.leave_listener(first);
    rig.go(&mut [&mut one]);
    let of_the_first = rig.floor.next_close().unwrap();
    thread::sleep(Duration::from_millis(100));
    let second = listen(&mut two);
    rig.go(&mut [&mut two]);
    let given_back = waiting(&mut rig, &mut two, b"hello");
    two.leave_listener(second);
    rig.go(&mut [&mut two]);
    let mut theirs: Vec<_> = (0..8).map(|_| rig.connect()).collect();
    theirs.push(given_back);
    rig.go(&mut [&mut two]);
    thread::sleep(of_the_first.saturating_duration_since(Instant::now()));
    rig.go(&mut [&mut two]);
    assert!(rig.floor.next_close().is_some(), "the second is kept still");
    for id in theirs {
        assert_eq!(rig.peer_state(id), Some(State::Established));
    }
}

/// Makes a program of another user's that comes to all of these places and leaves them, one after the other.
fn comes_and_goes(rig: &mut Rig, places: impl Iterator<Item = String>) {
    let mut one = rig.program_of(3, 1001);
    for place in places {
        rig.grant(3, &place);
        let how = Listening { backlog: 16, v6_only: false, shares: true };
        let listener = one.listen_with(address(&place), how).unwrap();
        one.leave_listener(listener);
        one.turn().unwrap();
        rig.floor.turn().unwrap();
    }
}

#[test]
fn who_comes_and_goes_leaves_others_their_places_to_be_exchanged() {
    let (mut rig, mut one, mut two, first) = one_listens(SAME);
    comes_and_goes(&mut rig, (0..400).map(|at| format!("10.0.0.1:{}", 1000 + at)));
    // Fewer where all this takes longer than they are kept.
    assert!(rig.floor.kept.len() <= 256, "{} places are kept", rig.floor.kept.len());
    let theirs = waiting(&mut rig, &mut one, b"hello");
    one.leave_listener(first);
    rig.go(&mut [&mut one]);
    let second = listen(&mut two);
    rig.go(&mut [&mut two]);
    let id = two.accept(second).unwrap();
    assert_eq!(gets(&mut two, id).unwrap(), b"hello");
    assert_eq!(rig.peer_state(theirs), Some(State::Established));
}

#[test]
fn a_place_that_is_left_again_and_again_is_kept_once_with_all_who_have_come() {
    let (mut rig, mut one, mut two, first) = one_listens(SAME);
    // Data is waited for: the connection's handshake is under way.
    one.set_listener_option(first, SocketOption::DeferAccept(30));
    rig.go(&mut [&mut one]);
    let theirs = rig.connect();
    rig.go(&mut [&mut one]);
    one.leave_listener(first);
    rig.go(&mut [&mut one]);
    for _ in 0..400 {
        let listener = listen(&mut one);
        one.leave_listener(listener);
        one.turn().unwrap();
        rig.floor.turn().unwrap();
    }
    assert_eq!(rig.floor.kept.len(), 1);
    rig.peer_sends(theirs, b"hello");
    let second = listen(&mut two);
    rig.go(&mut [&mut one, &mut two]);
    let id = two.accept(second).unwrap();
    assert_eq!(gets(&mut two, id).unwrap(), b"hello");
    // Nothing is left of the others, or it would be found for each SYN.
    pass_time(&rig);
    rig.go(&mut [&mut one, &mut two]);
    rig.connect();
    rig.go(&mut [&mut one, &mut two]);
    assert_eq!(two.accept_waiting(second), 1);
}

/// Waits until nothing is kept any more.
pub(super) fn pass_time(rig: &Rig) {
    let until = rig.floor.next_close().unwrap();
    thread::sleep(until.saturating_duration_since(Instant::now()));
}

/// Connects, with data in the SYN if a cookie is known; returns whether it was.
fn dash(rig: &mut Rig) -> bool {
    let now = rig.peer.now();
    rig.port += 1;
    let from = std::net::SocketAddr::new(address("10.0.0.2:0").ip(), rig.port);
    let begun = rig.peer.stack().connect_fast(now, Some(from), address(OURS), false).unwrap();
    rig.peer_sends(begun.socket(), b"hello");
    matches!(begun, FastConnect::Deferred(_))
}

#[test]
fn data_of_a_syn_is_a_programs_at_once_if_the_host_permits_that() {
    for permits in [3, 1] {
        let (mut rig, mut one, _two, first) = one_listens(SAME);
        rig.guardian.0.borrow_mut().permits = FastOpen(permits);
        let wanted = FastOpenListen { pending: 4, cookie_not_required: false };
        one.open_fast_at(first, wanted, Some(FastOpenKeys::new([5; 16], None)));
        rig.go(&mut [&mut one]);
        let mut begun = Vec::new();
        for _ in 0..2 {
            begun.push(dash(&mut rig));
            rig.go(&mut [&mut one]);
            let ours = one.accept(first).unwrap();
            assert_eq!(gets(&mut one, ours).unwrap(), b"hello");
            // It is open to its program, whatever its handshake is.
            assert_eq!(one.state(ours), Some(State::Established));
        }
        let taken = rig.peer.stack().counters().fast_open_active;
        assert_eq!((begun, taken), (vec![false, permits == 3], u64::from(permits == 3)));
    }
}

#[test]
fn who_has_lost_a_port_and_does_not_leave_has_nobody_of_another_users() {
    // The other program listens at the same address, or at all of them.
    for place in [OURS, "0.0.0.0:80"] {
        let mut rig = Rig::new();
        let mut one = rig.program_of(1, 1000);
        let mut two = rig.program_of(2, 1001);
        rig.grant(1, OURS);
        let first = listen(&mut one);
        rig.go(&mut [&mut one]);
        let word = Word::Revoked { program: 1, local: address(OURS) };
        rig.guardian.0.borrow_mut().words.push_back(word);
        // No other program is there: this one may be about to leave.
        rig.connect();
        rig.go(&mut [&mut one]);
        assert_eq!(one.accept_waiting(first), 1);
        rig.grant(2, place);
        let how = Listening { backlog: 16, v6_only: false, shares: true };
        let second = two.listen_with(address(place), how).unwrap();
        rig.go(&mut [&mut one, &mut two]);
        for _ in 0..4 {
            rig.connect();
        }
        rig.go(&mut [&mut one, &mut two]);
        assert_eq!((one.accept_waiting(first), two.accept_waiting(second)), (1, 4), "{place}");
        one.leave_listener(first);
        rig.go(&mut [&mut one, &mut two]);
        assert_eq!(rig.floor.guest_count(), 2, "that it leaves late is no harm: {place}");
    }
}
