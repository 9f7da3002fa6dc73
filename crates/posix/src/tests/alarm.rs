//! The timer's thread sleeps by an alarm.

use super::*;

const BOUND: Duration = Duration::from_millis(1);

/// A process with two sockets and a thread that has an alarm.
fn alarmed(hold: Hold) -> Posix<Fake> {
    let posix = holding(hold);
    burst(&posix, FD, 1);
    posix.keeper_has_alarm();
    look(&posix);
    turn_away(&posix);
    ring_out(&posix);
    posix
}

fn turn_away(posix: &Posix<Fake>) {
    for fd in [FD, OTHER] {
        posix.before_read(fd, Call::Read);
    }
}

/// One look of the thread when it wakes, after which it must not have to tick.
fn look(posix: &Posix<Fake>) {
    assert_eq!(posix.tick(), Next::Await);
}

/// A new thread's first look, at something that has just begun to be held.
#[track_caller]
fn begins_and_finds_what_is_held(posix: &Posix<Fake>) {
    posix.keeper_has_alarm();
    look(posix);
    assert_eq!(posix.kernel.until_alarm(), Some(BOUND));
}

/// Lets time pass until the alarm is silent.
fn ring_out(posix: &Posix<Fake>) {
    while let Some(time) = posix.kernel.until_alarm() {
        posix.kernel.pass(time);
        assert!(posix.kernel.rings());
        look(posix);
    }
}

/// Lets `time` pass, with the thread looking whenever the alarm rings; returns how often it did.
fn pass(posix: &Posix<Fake>, mut time: Duration) -> usize {
    let mut looks = 0;
    while let Some(until) = posix.kernel.until_alarm().filter(|until| *until <= time) {
        posix.kernel.pass(until);
        time -= until;
        assert!(posix.kernel.rings());
        look(posix);
        looks += 1;
    }
    posix.kernel.pass(time);
    looks
}

/// Writes from a thread that has not written before, and does not write again.
fn write_from_elsewhere(posix: &Posix<Fake>, fd: i32) {
    crate::local::current::set(-1);
    burst(posix, fd, 1);
    crate::local::current::set(-1);
}

#[test]
fn a_program_that_keeps_turning_is_not_looked_at_and_sets_the_alarm_once_a_bound() {
    const TURN: Duration = Duration::from_micros(20);
    for hold in [Hold::Kernel, Hold::User] {
        let posix = alarmed(hold);
        let before = posix.kernel.alarm_sets();
        let mut looks = 0;
        for turn in 0..5_000 {
            // With a rhythm that cannot be predicted, or a turn of one write would hold nothing.
            burst(&posix, FD, 1 + turn * 7 % 5);
            looks += pass(&posix, TURN);
            turn_away(&posix);
        }
        let bounds = (5_000 * TURN).as_micros() / BOUND.as_micros();
        let sets = (posix.kernel.alarm_sets() - before) as u128;
        assert_eq!(looks, 0, "{hold:?}");
        assert!(sets <= bounds * 17 / 16 + 2, "{hold:?}: {sets} settings in {bounds} bounds");
        ring_out(&posix);
    }
}

#[test]
fn each_hold_ends_at_its_own_bound_while_others_come_and_go() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = alarmed(hold);
        for step in 1..40 {
            let before = packets(&posix, FD).len();
            write_from_elsewhere(&posix, FD);
            let mut held = Duration::ZERO;
            let mut turn = 0;
            while packets(&posix, FD).len() == before {
                assert!(held <= BOUND, "{hold:?}, a turn each {step} x 25 us");
                crate::local::current::set(-1);
                turn += 1;
                burst(&posix, OTHER, 1 + turn * 7 % 5);
                pass(&posix, Duration::from_micros(step * 25 / 2));
                posix.before_read(OTHER, Call::Read);
                pass(&posix, Duration::from_micros(step * 25 - step * 25 / 2));
                held += Duration::from_micros(step * 25);
            }
            assert!(held >= BOUND * 15 / 16, "{hold:?}: only {held:?}");
        }
    }
}

/// The alarm is set to the deadline of another thread, which has turned away meanwhile.
#[test]
fn an_alarm_that_rings_early_is_set_again() {
    let posix = alarmed(Hold::Kernel);
    write_from_elsewhere(&posix, OTHER);
    posix.kernel.pass(BOUND / 4);
    posix.before_read(OTHER, Call::Read);
    write_from_elsewhere(&posix, FD);
    let before = packets(&posix, FD).len();
    assert_eq!(posix.kernel.until_alarm(), Some(BOUND * 3 / 4), "set already, and late enough");
    assert_eq!(pass(&posix, BOUND * 3 / 4), 1);
    assert_eq!(packets(&posix, FD).len(), before, "pushed although it is not due");
    assert_eq!(posix.kernel.until_alarm(), Some(BOUND / 4));
    pass(&posix, BOUND / 4);
    assert_eq!(packets(&posix, FD).len(), before + 1);
    assert_eq!(posix.kernel.until_alarm(), None, "nothing is held");
}

#[test]
fn an_idle_thread_ends_and_is_made_again() {
    let posix = alarmed(Hold::Kernel);
    write_from_elsewhere(&posix, FD);
    assert!(!posix.may_end(), "something was held since it looked");
    assert!(!posix.may_end(), "something is held");
    posix.before_read(FD, Call::Read);
    assert!(posix.may_end());
    let sets = posix.kernel.alarm_sets();
    write_from_elsewhere(&posix, FD);
    assert_eq!(posix.kernel.alarm_sets(), sets, "the alarm of a thread that has ended");
    begins_and_finds_what_is_held(&posix);
}

#[test]
fn an_alarm_that_cannot_be_set_holds_nothing() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = alarmed(hold);
        posix.kernel.break_alarm();
        let before = packets(&posix, FD).len();
        burst(&posix, FD, 2);
        assert_eq!(packets(&posix, FD).len(), before + 2, "{hold:?}");
    }
}

/// The child has our memory, but a timer with our number would be its own.
#[test]
fn a_child_of_vfork_leaves_the_alarm_alone() {
    let posix = alarmed(Hold::Kernel);
    posix.before_vfork();
    posix.kernel.become_another_process();
    let (sets, before) = (posix.kernel.alarm_sets(), packets(&posix, FD).len());
    burst(&posix, FD, 1);
    assert_eq!(posix.kernel.alarm_sets(), sets);
    assert_eq!(packets(&posix, FD).len(), before + 1, "held by nobody's alarm");
}

#[test]
fn a_child_of_fork_makes_a_thread_of_its_own() {
    let posix = alarmed(Hold::Kernel);
    write_from_elsewhere(&posix, OTHER);
    posix.before_fork();
    posix.kernel.become_another_process();
    posix.after_fork_in_child();
    let sets = posix.kernel.alarm_sets();
    burst(&posix, FD, 1);
    assert_eq!(posix.kernel.alarm_sets(), sets, "its parent's alarm");
    begins_and_finds_what_is_held(&posix);
}

/// No alarm rings for them: a look each bound finds them, for as long as it takes.
#[test]
fn the_last_bytes_of_closed_sockets_are_delivered_without_an_alarm() {
    let posix = alarmed(Hold::User);
    posix.kernel.set_nonblocking(FD);
    posix.kernel.set_room(FD, 1);
    write(&posix, FD, b"abc").unwrap();
    posix.closing(FD, Call::Close);
    assert!(posix.kernel.keeper_was_woken(), "the thread does not know of them");
    assert_eq!(posix.tick(), Next::Tick(BOUND));
    let copy = posix.kernel.latest_duplicate();
    posix.kernel.set_room(copy, 100);
    posix.kernel.pass(BOUND);
    look(&posix);
    assert!(posix.kernel.is_closed(copy));
}

#[test]
fn no_handler_comes_while_the_alarm_is_set_with_bytes_in_hand() {
    let posix = alarmed(Hold::User);
    let sets = posix.kernel.alarm_sets();
    burst(&posix, FD, 2);
    assert_eq!(posix.kernel.alarm_sets(), sets + 1);
    assert!(posix.kernel.handlers_were_off_at_alarm());
    assert!(!posix.kernel.handlers_are_off(), "handlers must come again");
}

/// The thread's maker may not have said that it exists when it looks for the first time.
#[test]
fn a_hold_that_begins_while_the_thread_is_being_made_is_looked_at() {
    let posix = alarmed(Hold::Kernel);
    posix.keeper.pretend_to_start();
    write_from_elsewhere(&posix, FD);
    assert_eq!(posix.kernel.until_alarm(), Some(BOUND));
}

#[test]
fn what_was_held_at_the_last_moment_leaves_before_the_thread_is_gone() {
    let posix = alarmed(Hold::Kernel);
    let before = packets(&posix, FD).len();
    let late = || posix.keeper.as_before_leaving(|| write_from_elsewhere(&posix, FD));
    posix.without_keeper(late, || assert_eq!(packets(&posix, FD).len(), before + 1));
}

#[test]
fn a_socket_that_holds_in_two_places_counts_once() {
    let posix = alarmed(Hold::Kernel);
    write_from_elsewhere(&posix, FD);
    assert_eq!(posix.kernel.held().count.load(Relaxed), 1);
    // Another place of the same socket: the count is still one.
    let at = posix.find(FD).unwrap();
    assert!(posix.note_held(at, held::USER));
    assert_eq!(posix.kernel.held().count.load(Relaxed), 1);
    posix.end_hold(at);
    assert_eq!(posix.kernel.held().count.load(Relaxed), 0);
}
