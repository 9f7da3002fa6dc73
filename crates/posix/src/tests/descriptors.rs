//! Descriptors that appear where another one was, and what they have from those that they come from.

use super::fake::{FILE, PIPE};
use super::*;

/// A number that a TCP socket had, with something held, until it was closed without our knowing.
fn with_closed_unseen() -> Posix<Fake> {
    let posix = holding(Hold::Kernel);
    posix.opened(PIPE, Origin::Made);
    burst(&posix, PIPE, 1);
    assert_eq!(posix.kernel.held().count.load(Relaxed), 1);
    posix
}

#[test]
fn what_appears_where_a_socket_was_closed_unseen_is_not_taken_for_it() {
    type Way = fn(&Posix<Fake>);
    let ways: [(&str, Way); 4] = [
        ("socket", |posix| posix.forget(PIPE)),
        ("accept", |posix| posix.accepted(PIPE, FILE)),
        ("dup", |posix| posix.duplicated(FILE, PIPE)),
        ("recvmsg", |posix| posix.inherited(PIPE)),
    ];
    for (name, appear) in ways {
        let posix = with_closed_unseen();
        appear(&posix);
        assert!(posix.find(PIPE).is_none(), "{name}");
        assert_eq!(posix.kernel.held().count.load(Relaxed), 0, "{name}");

        // It is the child's, and its parent's socket is still there.
        let posix = with_closed_unseen();
        crate::local::local(|local| local.vforked.set(true));
        posix.kernel.become_another_process();
        appear(&posix);
        assert!(posix.find(PIPE).is_some(), "{name}");
    }
}

#[test]
fn a_number_that_was_a_files_may_block_when_it_is_another() {
    let posix = holding(Hold::Kernel);
    assert!(!posix.may_wait(FILE));
    posix.forget(FILE);
    let byte = posix.kernel.state(FILE).unwrap();
    assert_eq!(byte.load(Relaxed), crate::kernel::state::UNKNOWN);
}

/// Returns whether writes to it go through as the program makes them.
fn is_left_alone(posix: &Posix<Fake>, fd: i32) -> bool {
    let at = posix.find(fd).unwrap();
    posix.plan_write(at, 2, WriteFlags::default()) == Plan::Pass
}

/// Records are not bytes: each MSG_MORE, and each small write, would change them.
#[test]
fn what_comes_with_ktls_from_outside_is_left_alone() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        posix.kernel.encrypt(7);
        for fd in [7, 8] {
            posix.inherited(fd);
        }
        assert!(is_left_alone(&posix, 7), "{hold:?}");
        assert!(!is_left_alone(&posix, 8), "{hold:?}");
    }
}

#[test]
fn ktls_on_one_descriptor_is_on_its_duplicates() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        posix.sharing(FD, Call::Dup);
        posix.duplicated(FD, 7);
        posix.kernel.make_twins(FD, 7);
        posix.setting(posix.find(7).unwrap(), Opt::Ulp, true);
        assert!(is_left_alone(&posix, FD), "{hold:?}");
        assert!(is_left_alone(&posix, 7), "{hold:?}");
        assert!(!is_left_alone(&posix, OTHER), "{hold:?}");
    }
}

/// A try that does not wait takes less than the mark, for which the program's own read would wait.
#[test]
fn who_waits_for_many_bytes_is_known_however_the_socket_came() {
    let spin = crate::config::Spin::For(Duration::from_micros(50));
    let posix = process(Settings { spin, ..Settings::default() });
    let waits_for_many = |fd| posix.has_low_water(posix.find(fd).unwrap());
    posix.opened(FD, Origin::Made);
    posix.was_set(posix.find(FD).unwrap(), Opt::LowWater, true);
    assert!(waits_for_many(FD));
    posix.sharing(FD, Call::Dup);
    posix.duplicated(FD, 7);
    posix.kernel.make_twins(FD, 7);
    assert!(waits_for_many(7));
    posix.accepted(8, FD);
    assert!(waits_for_many(8));
    posix.kernel.set_low_water(9, 100);
    posix.inherited(9);
    assert!(waits_for_many(9));
    posix.inherited(10);
    assert!(!waits_for_many(10));
    posix.was_set(posix.find(7).unwrap(), Opt::LowWater, false);
    assert!(!waits_for_many(FD));
}

/// Programs move a socket to a higher number before it listens (F_DUPFD).
#[test]
fn what_is_duplicated_before_it_is_connected_does_not_leave_nodelay_to_what_it_accepts() {
    let posix = holding(Hold::Kernel);
    posix.sharing(FD, Call::Dup);
    posix.duplicated(FD, 7);
    posix.closing(FD, Call::Close);
    posix.listens(7);
    assert!(!posix.kernel.nodelay_in_force(FD));

    // Of one that was connected before, the accepted ones have it.
    burst(&posix, OTHER, 2);
    posix.before_read(OTHER, Call::Read);
    posix.sharing(OTHER, Call::Dup);
    assert!(posix.kernel.nodelay_in_force(OTHER));
    posix.listens(OTHER);
    posix.accepted(8, OTHER);
    assert_eq!(posix.answer(posix.find(8).unwrap(), Opt::Nodelay), Some(0));
}

#[test]
fn nodelay_reads_back_alike_by_the_duplicate_of_what_was_not_connected() {
    let posix = holding(Hold::Kernel);
    posix.sharing(FD, Call::Dup);
    posix.duplicated(FD, 7);
    posix.kernel.make_twins(FD, 7);
    burst(&posix, FD, 3);
    posix.before_read(FD, Call::Read);
    assert!(posix.kernel.nodelay_in_force(FD));
    for fd in [FD, 7] {
        assert_eq!(posix.answer(posix.find(fd).unwrap(), Opt::Nodelay), Some(0), "{fd}");
    }
    let at = posix.find(7).unwrap();
    posix.setting(at, Opt::Nodelay, true);
    posix.was_set(at, Opt::Nodelay, true);
    for fd in [FD, 7] {
        assert_eq!(posix.answer(posix.find(fd).unwrap(), Opt::Nodelay), None, "{fd}");
    }
    let calls = posix.kernel.calls();
    posix.setting(at, Opt::Nodelay, false);
    posix.was_set(at, Opt::Nodelay, false);
    assert_eq!(posix.kernel.calls(), calls + 1, "set again for the one that is helped");
}
