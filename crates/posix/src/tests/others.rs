//! Bytes that enter a socket by other ways than a write of this process, or from other writers.

use super::fake::{CLOEXEC, FILE, PIPE};
use super::*;

/// A connection that holds a first small write of a burst.
fn with_header(hold: Hold) -> Posix<Fake> {
    let posix = holding(hold);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    burst(&posix, FD, 1);
    posix
}

fn is_due(posix: &Posix<Fake>) {
    posix.kernel.pass(Duration::from_millis(2));
    posix.tick();
}

#[test]
fn what_is_held_goes_along_with_a_file() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = with_header(hold);
        let filling = posix.filling(FD, FILE, 3, Call::Sendfile, || true).unwrap().unwrap();
        posix.kernel.program_send(FD, b"xyz", false).unwrap();
        posix.filled(&filling, true, false);
        assert_eq!(packets(&posix, FD), [1, 5], "{hold:?}: header and file in one packet");
        let calls = posix.kernel.calls();
        is_due(&posix);
        assert_eq!(posix.kernel.calls(), calls, "{hold:?}: it is held no more");
    }
}

#[test]
fn a_header_before_a_file_with_nothing_in_it_leaves_with_the_bound() {
    for (hold, more) in [(Hold::Kernel, false), (Hold::Kernel, true), (Hold::User, false)] {
        let posix = with_header(hold);
        let filling = posix.filling(FD, FILE, 3, Call::Sendfile, || true).unwrap().unwrap();
        posix.filled(&filling, false, more);
        assert_eq!(packets(&posix, FD), [1], "{hold:?}");
        is_due(&posix);
        assert_eq!(packets(&posix, FD), [1, 2], "{hold:?}, {more}");
    }
}

#[test]
fn a_header_before_a_file_on_a_slow_disk_leaves_with_the_bound() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = with_header(hold);
        let filling = posix.filling(FD, FILE, 3, Call::Sendfile, || true).unwrap().unwrap();
        is_due(&posix);
        assert_eq!(packets(&posix, FD), [1, 2], "{hold:?}");
        posix.kernel.program_send(FD, b"xyz", false).unwrap();
        posix.filled(&filling, true, false);
        assert_eq!(packets(&posix, FD), [1, 2, 3], "{hold:?}");
    }
}

#[test]
fn what_another_thread_holds_behind_a_file_is_not_forgotten() {
    let posix = with_header(Hold::Kernel);
    let filling = posix.filling(FD, FILE, 3, Call::Sendfile, || true).unwrap().unwrap();
    posix.kernel.program_send(FD, b"xyz", false).unwrap();
    burst(&posix, FD, 1);
    posix.filled(&filling, true, true);
    is_due(&posix);
    assert_eq!(posix.kernel.delivered(FD).len(), 1 + 2 + 3 + 2);
}

#[test]
fn what_is_held_waits_for_no_pipe() {
    for (is_empty, expected) in [(true, vec![1, 2]), (false, vec![1])] {
        let posix = with_header(Hold::Kernel);
        posix.filling(FD, PIPE, 3, Call::Splice, || is_empty).unwrap().unwrap();
        assert_eq!(packets(&posix, FD), expected, "empty: {is_empty}");
    }
}

/// A socket with one write a packet, which is sent by send(2) without asking the policy.
fn with_rhythm(hold: Hold) -> Posix<Fake> {
    let posix = holding(hold);
    for _ in 0..100 {
        burst(&posix, FD, 1);
        posix.before_read(FD, Call::Read);
    }
    let plan = posix.plan_write(posix.find(FD).unwrap(), 2, WriteFlags::default());
    let expected = if hold == Hold::Kernel { Plan::Alone } else { Plan::Gather };
    assert_eq!(plan, expected, "the test tests nothing");
    posix.before_read(FD, Call::Read);
    posix
}

#[test]
fn a_program_that_forbids_itself_calls_makes_its_own_only() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = with_rhythm(hold);
        burst(&posix, OTHER, 3);
        posix.stand_aside(|| ());
        assert_eq!(posix.kernel.delivered(OTHER).len(), 6);
        posix.opened(7, Origin::Made);
        posix.duplicated(FD, 8);
        for fd in [FD, OTHER, 7, 8] {
            for _ in 0..3 {
                let calls = posix.kernel.calls();
                let plan = posix.plan_write(posix.find(fd).unwrap(), 2, WriteFlags::default());
                assert_eq!(plan, Plan::Pass, "{hold:?}, {fd}");
                posix.before_read(fd, Call::Read);
                assert_eq!(posix.kernel.calls(), calls, "{hold:?}, {fd}");
            }
        }
        let report = posix.report("test".to_owned());
        assert!(report.sockets.iter().all(|socket| socket.state.starts_with("helped")));
    }
}

#[test]
fn what_is_written_behind_the_end_is_passed_through() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = with_header(hold);
        posix.ending_for_good(Call::UnderscoreExit);
        burst(&posix, FD, 3);
        assert_eq!(packets(&posix, FD), [1, 2, 2, 2, 2], "{hold:?}");
    }
}

#[test]
fn an_exec_that_fails_leaves_a_process_that_holds() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = with_header(hold);
        posix.ending_by_exec();
        assert_eq!(packets(&posix, FD), [1, 2], "{hold:?}");
        burst(&posix, FD, 1);
        assert_eq!(packets(&posix, FD), [1, 2, 2], "{hold:?}: the first one tells");
        burst(&posix, FD, 30);
        posix.before_read(FD, Call::Read);
        let before = packets(&posix, FD);
        assert!(before.len() < 10, "{hold:?}: {before:?}");
        // What the program forbids itself in between stays forbidden.
        posix.ending_by_exec();
        posix.stand_aside(|| ());
        burst(&posix, FD, 30);
        assert_eq!(packets(&posix, FD).len(), before.len() + 30, "{hold:?}");
    }
}

#[test]
fn what_a_started_program_has_is_not_gathered_beside_it() {
    let posix = with_header(Hold::User);
    posix.opened(CLOEXEC, Origin::Made);
    burst(&posix, CLOEXEC, 3);
    posix.before_spawn(Call::Spawn);
    assert_eq!(packets(&posix, FD), [1, 2]);
    let gathers = |fd| {
        let at = posix.find(fd).unwrap();
        let done = posix.plan_write(at, 2, WriteFlags::default());
        posix.before_read(fd, Call::Read);
        done == Plan::Gather
    };
    assert!(!gathers(FD));
    assert!(gathers(CLOEXEC), "it is closed there");
    posix.given(CLOEXEC, Call::Spawn);
    assert!(!gathers(CLOEXEC), "the program gets a duplicate");
}

#[test]
fn what_a_child_of_vfork_duplicates_is_not_gathered_beside_it() {
    type Way = fn(&Posix<Fake>);
    let ways: [Way; 2] = [|posix| posix.sharing(FD, Call::Dup2), |posix| posix.kept_by_child(FD)];
    for keep in ways {
        let posix = with_header(Hold::User);
        posix.kept_by_child(FD);
        posix.before_vfork();
        let at = posix.find(FD).unwrap();
        at.socket.clear(crate::socket::flag::SHARED);
        posix.kernel.become_another_process();
        keep(&posix);
        posix.kernel.come_back();
        assert_ne!(posix.plan_write(at, 2, WriteFlags::default()), Plan::Gather);
    }
}
