//! Connections that take no more, as their peers do not read.

use super::*;

/// A non-blocking connection with a first byte sent, which has room for this many more.
pub(super) fn nearly_full(room: usize) -> Posix<Fake> {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    posix.kernel.set_nonblocking(FD);
    posix.kernel.set_room(FD, room);
    posix
}

#[test]
fn a_full_connection_keeps_the_order_and_answers_eagain() {
    let posix = nearly_full(3);
    for byte in *b"abcdef" {
        write(&posix, FD, &[byte]).unwrap();
    }
    posix.before_read(FD, Call::Read);
    assert_eq!(posix.kernel.delivered(FD), b"0abc");
    assert_eq!(write(&posix, FD, b"g"), Err(Errno::EAGAIN), "there is a backlog");
    posix.kernel.set_room(FD, 2);
    posix.tick();
    assert_eq!(posix.kernel.delivered(FD), b"0abcde", "the timer goes on with it");
    posix.kernel.set_room(FD, 100);
    write(&posix, FD, b"g").unwrap();
    posix.before_read(FD, Call::Read);
    assert_eq!(posix.kernel.delivered(FD), b"0abcdefg");
}

#[test]
fn what_a_full_connection_has_not_taken_goes_before_what_others_write() {
    for turn_over in SHARING {
        let posix = nearly_full(1);
        write(&posix, FD, b"abc").unwrap();
        posix.before_read(FD, Call::Read);
        assert_eq!(posix.kernel.delivered(FD), b"0a");
        turn_over(&posix);
        assert_eq!(posix.kernel.delivered(FD), b"0abc");
    }
}

#[test]
fn closing_a_full_non_blocking_socket_loses_nothing() {
    let posix = nearly_full(1);
    write(&posix, FD, b"abc").unwrap();
    posix.closing(FD, Call::Close);
    assert_eq!(posix.kernel.delivered(FD), b"0a");
    let copy = posix.kernel.latest_duplicate();
    posix.kernel.set_room(copy, 100);
    posix.tick();
    assert_eq!(posix.kernel.delivered(copy), b"bc");
    assert!(posix.kernel.is_closed(copy));
    assert!(!posix.kernel.is_shut(copy), "others may still write to it");
}

#[test]
fn a_closed_socket_reports_no_more_events_while_its_last_bytes_are_delivered() {
    let posix = holding(Hold::User);
    posix.watched(EPOLL, FD);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    posix.kernel.set_nonblocking(FD);
    posix.kernel.set_room(FD, 1);
    write(&posix, FD, b"abc").unwrap();
    posix.closing(FD, Call::Close);
    assert_eq!(posix.kernel.unwatched(), [(EPOLL, FD)]);
}

#[test]
fn a_child_of_fork_leaves_the_last_bytes_of_closed_sockets_to_its_parent() {
    let posix = nearly_full(1);
    write(&posix, FD, b"abc").unwrap();
    posix.closing(FD, Call::Close);
    let copy = posix.kernel.latest_duplicate();
    posix.after_fork_in_child();
    posix.kernel.set_room(copy, 100);
    posix.ending(Call::Exit);
    assert_eq!(posix.kernel.delivered(copy), b"");
    assert!(posix.kernel.is_closed(copy));
}

#[test]
fn shutting_down_a_full_socket_ends_the_stream_after_its_last_byte() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    posix.kernel.set_room(FD, 1);
    write(&posix, FD, b"abc").unwrap();
    assert!(posix.shutting(FD, true), "left to the timer");
    let copy = posix.kernel.latest_duplicate();
    posix.tick();
    assert!(!posix.kernel.is_shut(copy));
    posix.kernel.set_room(copy, 100);
    posix.kernel.pass(Duration::from_millis(1));
    posix.tick();
    assert_eq!(posix.kernel.delivered(copy), b"bc");
    assert!(posix.kernel.is_shut(copy));
}

#[test]
fn what_is_shut_down_takes_nothing_more_although_the_kernel_does_not_know_of_it() {
    let posix = nearly_full(1);
    write(&posix, FD, b"abc").unwrap();
    assert!(posix.shutting(FD, true), "left to the timer");
    posix.kernel.set_room(FD, 100);
    let at = posix.find(FD).unwrap();
    for flags in [WriteFlags::default(), WriteFlags { special: true, ..WriteFlags::default() }] {
        assert_eq!(posix.plan_write(at, 1, flags), Plan::Fail(Errno::EPIPE));
    }
    let late = posix.gather(at, &[IoSlice::new(b"late")], 4, false);
    assert_eq!(late, Err(Errno::EPIPE), "nor who has planned it before");
    assert_eq!(posix.kernel.delivered(FD), b"0a");
}

#[test]
fn before_a_fork_the_connection_takes_what_is_gathered() {
    let posix = nearly_full(1);
    write(&posix, FD, b"abcdefgh").unwrap();
    posix.before_fork();
    assert_eq!(posix.kernel.delivered(FD), b"0abcdefgh");
}

#[test]
fn before_an_io_uring_the_connection_takes_what_is_gathered() {
    let posix = nearly_full(1);
    write(&posix, FD, b"abcdefgh").unwrap();
    posix.uses_io_uring();
    assert_eq!(posix.kernel.delivered(FD), b"0abcdefgh");
}

#[test]
fn who_closes_without_lingering_discards_what_is_gathered() {
    let posix = nearly_full(1);
    write(&posix, FD, b"abc").unwrap();
    posix.kernel.set_discards(FD);
    posix.closing(FD, Call::Close);
    assert_eq!(posix.kernel.delivered(FD), b"0a");
    assert!(!posix.kernel.has_duplicated(), "nothing is kept of it");
    assert_eq!(posix.kernel.held().count.load(SeqCst), 0);
}

/// Returns how often the timer has tried to send within this time.
fn sends_within(posix: &Posix<Fake>, time: Duration) -> usize {
    let before = posix.kernel.calls();
    for _ in 0..time.as_millis() {
        posix.kernel.pass(Duration::from_millis(1));
        posix.tick();
    }
    posix.kernel.calls() - before
}

#[test]
fn what_is_not_taken_is_offered_less_and_less_often() {
    let posix = nearly_full(0);
    write(&posix, FD, b"abc").unwrap();
    assert!(sends_within(&posix, Duration::from_millis(8)) >= 7, "at each look in the beginning");
    sends_within(&posix, Duration::from_secs(1));
    let later = sends_within(&posix, Duration::from_secs(1));
    assert!((15..=25).contains(&later), "{later} times a second");
    posix.closing(FD, Call::Close);
    sends_within(&posix, Duration::from_secs(1));
    let later = sends_within(&posix, Duration::from_secs(1));
    assert!((15..=25).contains(&later), "{later} times a second once it is closed");
}

#[test]
fn at_the_end_of_the_process_a_slow_peer_gets_all_that_was_written() {
    for closes in [true, false] {
        let posix = nearly_full(1);
        write(&posix, FD, b"abcdefghijkl").unwrap();
        if closes {
            posix.closing(FD, Call::Close);
        }
        posix.ending(Call::Exit);
        // The fake kernel has room for some more at each wait.
        let copy = posix.kernel.latest_duplicate();
        assert_eq!(posix.kernel.delivered(FD), b"0a");
        assert_eq!(posix.kernel.delivered(copy), b"bcdefghijkl");
        assert!(!posix.kernel.was_reset(copy) && posix.kernel.is_closed(copy));
    }
}

#[test]
fn what_others_have_as_well_is_not_discarded() {
    let posix = nearly_full(1);
    write(&posix, FD, b"abc").unwrap();
    posix.kernel.set_discards(FD);
    // The descriptor stays open in the program that comes.
    posix.ending(Call::Exec);
    let copy = posix.kernel.latest_duplicate();
    assert_eq!(posix.kernel.delivered(copy), b"bc");
}

#[test]
fn a_closed_connection_that_takes_nothing_for_minutes_is_reset() {
    let posix = nearly_full(0);
    write(&posix, FD, b"abc").unwrap();
    posix.closing(FD, Call::Close);
    let copy = posix.kernel.latest_duplicate();
    for (seconds, is_reset) in [(110, false), (11, true)] {
        for _ in 0..seconds * 10 {
            posix.kernel.pass(Duration::from_millis(100));
            posix.tick();
        }
        assert_eq!(posix.kernel.was_reset(copy), is_reset, "after {seconds} s more");
    }
    assert!(!posix.has_orphans());
}

#[test]
fn a_full_socket_is_closed_at_once_if_its_buffer_can_grow() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    posix.kernel.set_room(FD, 1);
    posix.kernel.allow_growth();
    write(&posix, FD, b"abc").unwrap();
    posix.closing(FD, Call::Close);
    assert_eq!(posix.kernel.delivered(FD), b"0abc");
}
