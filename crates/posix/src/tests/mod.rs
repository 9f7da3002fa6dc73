//! What a call means, against a fake kernel.

mod alarm;
mod children;
mod descriptors;
mod fake;
mod full;
mod interleavings;
mod others;
mod properties;

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::time::Duration;
use std::io::IoSlice;

use fake::{Fake, Packet};

use crate::config::{Bound, Hold, Scope};
use crate::options::Opt;
use crate::socket::held;
use crate::{
    Call, Errno, Gather, Kernel as _, Next, Origin, Plan, Posix, Settings, Socketed, WriteFlags,
};

const FD: i32 = 5;
const OTHER: i32 = 6;
const EPOLL: i32 = 9;

/// Creates a process with a fake kernel.
fn process(settings: Settings) -> Posix<Fake> {
    crate::local::current::set(-1);
    let posix = Posix::new(Fake::new());
    posix.start(settings);
    posix
}

fn holding(hold: Hold) -> Posix<Fake> {
    let posix = process(Settings { hold, ..Settings::default() });
    posix.opened(FD, Origin::Made);
    posix.opened(OTHER, Origin::Made);
    posix
}

/// Makes a write(2), as the shim does.
fn write(posix: &Posix<Fake>, fd: i32, data: &[u8]) -> Result<usize, Errno> {
    send(posix, fd, data, WriteFlags::default())
}

fn send(posix: &Posix<Fake>, fd: i32, data: &[u8], flags: WriteFlags) -> Result<usize, Errno> {
    let Some(at) = posix.find(fd) else { return posix.kernel.program_send(fd, data, flags.more) };
    let more = match posix.plan_write(at, data.len(), flags) {
        Plan::Pass | Plan::Alone => return posix.kernel.program_send(fd, data, flags.more),
        Plan::Fail(error) => return Err(error),
        Plan::Send { more } => more,
        Plan::Gather => match posix.gather(at, &[IoSlice::new(data)], data.len(), false)? {
            Gather::Taken => return Ok(data.len()),
            Gather::Send { more } => more,
        },
    };
    let sent = posix.kernel.program_send(fd, data, more);
    posix.after_send(at, more, sent.is_ok());
    sent
}

/// Returns whether bytes of the socket are held in the process.
fn holds_in_process(at: Socketed<'_>) -> bool {
    at.socket.held.load(Relaxed) & held::USER != 0
}

fn burst(posix: &Posix<Fake>, fd: i32, writes: usize) {
    for _ in 0..writes {
        write(posix, fd, b"ab").unwrap();
    }
}

/// Returns the lengths of the packets that left.
fn packets(posix: &Posix<Fake>, fd: i32) -> Vec<usize> {
    posix.kernel.packets(fd).iter().map(Packet::len).collect()
}

#[test]
fn small_writes_leave_as_one_packet_when_the_program_reads() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        for round in 1..=5 {
            burst(&posix, FD, 15);
            posix.before_read(FD, Call::Read);
            assert_eq!(packets(&posix, FD), vec![30; round], "{hold:?}");
        }
    }
}

#[test]
fn gathering_makes_one_system_call_a_packet() {
    let posix = holding(Hold::User);
    for _ in 0..2 {
        burst(&posix, FD, 100);
        posix.before_read(FD, Call::Read);
    }
    let before = posix.kernel.calls();
    burst(&posix, FD, 100);
    posix.before_read(FD, Call::Read);
    assert_eq!(posix.kernel.calls() - before, 1);
}

#[test]
fn a_steady_rhythm_needs_no_push() {
    let posix = holding(Hold::Kernel);
    for _ in 0..3 {
        burst(&posix, FD, 2);
        posix.before_read(FD, Call::Read);
    }
    let before = posix.kernel.calls();
    burst(&posix, FD, 2);
    posix.before_read(FD, Call::Read);
    assert_eq!(posix.kernel.calls() - before, 2, "two sends and nothing else");
    assert_eq!(packets(&posix, FD), [4; 4]);
}

#[test]
fn every_way_of_turning_away_pushes() {
    type Turn = fn(&Posix<Fake>);
    let turns: [(&str, Turn); 11] = [
        ("read", |posix| _ = posix.before_read(FD, Call::Read)),
        ("read another socket", |posix| _ = posix.before_read(OTHER, Call::Read)),
        ("poll", |posix| posix.before_poll([FD].into_iter(), Call::Poll)),
        ("epoll", |posix| posix.before_epoll(EPOLL, Call::EpollWait)),
        ("sleep", |posix| posix.before_wait(Call::Sleep)),
        ("write to another socket", |posix| assert!(write(posix, OTHER, b"x").is_ok())),
        ("close", |posix| posix.closing(FD, Call::Close)),
        ("shutdown", |posix| assert!(!posix.shutting(FD, true))),
        ("fork", Posix::before_fork),
        ("exit", |posix| posix.ending(Call::Exit)),
        ("ioctl", |posix| posix.asking_queue(FD)),
    ];
    for hold in [Hold::Kernel, Hold::User] {
        for (name, turn) in turns {
            let posix = holding(hold);
            burst(&posix, FD, 3);
            assert_eq!(packets(&posix, FD), [], "{name}, {hold:?}");
            turn(&posix);
            assert_eq!(packets(&posix, FD), [6], "{name}, {hold:?}");
        }
    }
}

#[test]
fn reading_a_file_between_header_and_payload_is_no_turning_away() {
    let posix = holding(Hold::Kernel);
    burst(&posix, FD, 1);
    posix.before_read(fake::FILE, Call::Read);
    assert_eq!(packets(&posix, FD), []);
    posix.before_read(fake::PIPE, Call::Read);
    assert_eq!(packets(&posix, FD), [2]);
}

#[test]
fn a_thread_that_waits_for_the_answer_pushes_what_another_wrote() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        posix.watched(EPOLL, FD);
        burst(&posix, FD, 3);
        crate::local::current::set(-1); // as if on another thread
        posix.before_epoll(EPOLL + 1, Call::EpollWait);
        assert_eq!(packets(&posix, FD), [], "another set, {hold:?}");
        posix.before_epoll(EPOLL, Call::EpollWait);
        assert_eq!(packets(&posix, FD), [6], "{hold:?}");
        burst(&posix, FD, 3);
        crate::local::current::set(-1);
        posix.before_poll([OTHER, FD].into_iter(), Call::Poll);
        assert_eq!(packets(&posix, FD), [6, 6], "{hold:?}");
    }
}

#[test]
fn the_timer_pushes_within_the_bound_and_sleeps_when_nothing_happens() {
    for hold in [Hold::Kernel, Hold::User] {
        let bound = Duration::from_millis(4);
        let posix = process(Settings { hold, bound: Bound(bound), ..Settings::default() });
        posix.opened(FD, Origin::Made);
        burst(&posix, FD, 3);
        assert!(posix.kernel.keeper_started());
        let mut waited = Duration::ZERO;
        while packets(&posix, FD).is_empty() {
            assert!(waited <= bound, "{hold:?}");
            let Next::Tick(period) = posix.tick() else { panic!("asleep with bytes held") };
            posix.kernel.pass(period);
            waited += period;
        }
        assert_eq!(packets(&posix, FD), [6]);
        let ticks = (0..1000).take_while(|_| matches!(posix.tick(), Next::Tick(_))).count();
        assert!((10..1000).contains(&ticks), "{ticks} ticks before it slept");
        assert!(posix.keeper_sleeps());
        burst(&posix, FD, 1);
        assert!(!posix.keeper_sleeps(), "a hold rouses it");
    }
}

#[test]
fn without_a_timer_nothing_is_held() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        posix.kernel.refuse_keeper();
        burst(&posix, FD, 3);
        assert_eq!(packets(&posix, FD).iter().sum::<usize>(), 6, "{hold:?}");
    }
}

#[test]
fn nodelay_reads_back_as_the_program_set_it() {
    let posix = holding(Hold::Kernel);
    let at = posix.find(FD).unwrap();
    burst(&posix, FD, 3);
    posix.before_read(FD, Call::Read);
    assert!(posix.kernel.nodelay_in_force(FD), "we have set it");
    assert_eq!(posix.answer(at, Opt::Nodelay), Some(0), "the program has not");
    posix.setting(at, Opt::Nodelay, true);
    posix.was_set(at, Opt::Nodelay, true);
    assert_eq!(posix.answer(at, Opt::Nodelay), None, "the kernel's answer is right");
    posix.setting(at, Opt::Nodelay, false);
    posix.was_set(at, Opt::Nodelay, false);
    assert_eq!(posix.answer(at, Opt::Nodelay), Some(0));
}

#[test]
fn a_program_that_corks_by_itself_is_left_alone() {
    let posix = holding(Hold::User);
    let at = posix.find(FD).unwrap();
    burst(&posix, FD, 2);
    posix.setting(at, Opt::Cork, true);
    assert_eq!(packets(&posix, FD), [4], "what was held before it goes first");
    assert_eq!(posix.plan_write(at, 2, WriteFlags::default()), Plan::Pass);

    let posix = holding(Hold::Kernel);
    send(&posix, FD, b"ab", WriteFlags { more: true, ..WriteFlags::default() }).unwrap();
    let at = posix.find(FD).unwrap();
    assert_eq!(posix.plan_write(at, 2, WriteFlags::default()), Plan::Pass);
}

#[test]
fn a_lone_write_needs_nothing_afterwards_once_nagle_is_out_of_the_way() {
    let posix = holding(Hold::Kernel);
    let lone = |fd| {
        let at = posix.find(fd).unwrap();
        let plan = posix.plan_write(at, 2, WriteFlags::default());
        if let Plan::Send { more } = plan {
            posix.after_send(at, more, true);
        }
        posix.before_read(fd, Call::Read);
        plan
    };
    let plans: Vec<_> = (0..20).map(|_| lone(FD)).collect();
    let first = plans.iter().position(|plan| *plan == Plan::Alone).unwrap();
    assert!(first > 0 && plans[first..].iter().all(|plan| *plan == Plan::Alone), "{plans:?}");
    // The next connection starts with the rhythm of the first, so learning it has not turned Nagle off: its second
    // write could wait for an ACK.
    posix.closing(FD, Call::Close);
    posix.opened(OTHER, Origin::Made);
    let unheld = Plan::Send { more: false };
    assert_eq!([lone(OTHER), lone(OTHER), lone(OTHER)], [unheld, unheld, Plan::Alone]);
    assert!(posix.kernel.nodelay_in_force(OTHER), "somebody has to set it before");

    // A burst is not sent in that way.
    let at = posix.find(OTHER).unwrap();
    assert_eq!(posix.plan_write(at, 2, WriteFlags::default()), Plan::Alone);
    assert_ne!(posix.plan_write(at, 2, WriteFlags::default()), Plan::Alone);
}

#[test]
fn closing_keeps_handlers_off_only_where_something_was_gathered() {
    for (hold, keeps) in [(Hold::Kernel, false), (Hold::User, true)] {
        let posix = holding(hold);
        burst(&posix, FD, 3);
        posix.before_read(FD, Call::Read);
        let before = posix.kernel.kept_off();
        posix.closing(FD, Call::Close);
        assert_eq!(posix.kernel.kept_off() > before, keeps, "{hold:?}");
    }
}

#[test]
fn scope_nodelay_helps_only_sockets_that_ask() {
    let posix = process(Settings { scope: Scope::Nodelay, ..Settings::default() });
    posix.opened(FD, Origin::Made);
    let at = posix.find(FD).unwrap();
    assert_eq!(posix.plan_write(at, 2, WriteFlags::default()), Plan::Pass);
    posix.was_set(at, Opt::Nodelay, true);
    assert_eq!(posix.plan_write(at, 2, WriteFlags::default()), Plan::Send { more: true });
    posix.listens(FD);
    posix.accepted(7, FD);
    let accepted = posix.find(7).unwrap();
    assert_eq!(posix.plan_write(accepted, 2, WriteFlags::default()), Plan::Send { more: true });
}

#[test]
fn the_library_of_2007_pushes_after_so_many_writes() {
    let settings = Settings {
        autocork: true,
        scope: Scope::Nodelay,
        max_qlen: 4,
        debug: 2,
        ..Settings::default()
    };
    let posix = process(settings);
    posix.opened(3, Origin::Made);
    posix.was_set(posix.find(3).unwrap(), Opt::Nodelay, true);
    burst(&posix, 3, 6);
    posix.before_read(3, Call::Read);
    assert_eq!(packets(&posix, 3), [8, 4]);
    let said = posix.kernel.said();
    assert!(said.starts_with("libautocork: turning TCP_CORK ON fd 3\n"), "{said}");
    assert!(said.ends_with("libautocork: autocorking fd 3 on read\n"), "{said}");
}

#[test]
fn connections_of_one_write_cost_nothing_more_once_that_is_known() {
    let posix = holding(Hold::Kernel);
    for connection in 1..=4 {
        posix.opened(10, Origin::Made);
        let before = posix.kernel.calls();
        burst(&posix, 10, 1);
        posix.before_read(10, Call::Read);
        posix.closing(10, Call::Close);
        let calls = posix.kernel.calls() - before;
        assert_eq!(calls, if connection <= 2 { 2 } else { 1 }, "connection {connection}");
    }
}

#[test]
fn an_accepted_socket_begins_with_what_its_siblings_have_learnt() {
    let posix = holding(Hold::Kernel);
    posix.listens(OTHER);
    posix.accepted(7, OTHER);
    for _ in 0..3 {
        burst(&posix, 7, 2);
        posix.before_read(7, Call::Read);
    }
    posix.closing(7, Call::Close);
    posix.accepted(8, OTHER);
    burst(&posix, 8, 2);
    assert_eq!(packets(&posix, 8), [4], "sent by its second write, before any push");
}

/// The ways in which a socket is shared with other writers.
const SHARING: [fn(&Posix<Fake>); 3] = [
    |posix| posix.sharing(FD, Call::Dup),
    |posix| posix.uses_stdio(FD),
    |posix| posix.setting(posix.find(FD).unwrap(), Opt::Ulp, true),
];

#[test]
fn without_a_timer_nothing_is_gathered() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    // Another thread changes the process's user meanwhile.
    posix.without_keeper(|| (), || write(&posix, FD, b"a").unwrap());
    assert_eq!(posix.kernel.delivered(FD), b"0a");
    assert!(!holds_in_process(posix.find(FD).unwrap()));
}

/// Otherwise it would live on beside the next one, which would wait for its end for ever.
#[test]
fn who_wants_the_timer_to_end_waits_until_it_is_made() {
    let posix = holding(Hold::User);
    posix.keeper.pretend_to_start();
    let begin = posix.kernel.now();
    posix.without_keeper(|| (), || ());
    assert!(posix.kernel.now().since(begin) >= Duration::from_secs(1), "it did not wait");
}

#[test]
fn a_socket_that_was_closed_behind_our_back_holds_nothing() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"ab").unwrap();
    assert_eq!(posix.kernel.held().count.load(Relaxed), 1);
    posix.opened(FD, Origin::Made);
    assert_eq!(posix.kernel.held().count.load(Relaxed), 0);
}

/// A write by another way at the very moment at which the timer (or any other thread) sends what was gathered must
/// find that it has to wait: race.c tries the same with real threads.
#[test]
fn what_is_being_sent_is_held_until_the_kernel_has_it() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    write(&posix, FD, b"abc").unwrap();
    posix.before_read(FD, Call::Read);
    assert_eq!(posix.kernel.delivered(FD), b"0abc");
    assert!(posix.kernel.was_held_while_sent(), "noted as sent before it was");
    assert!(!holds_in_process(posix.find(FD).unwrap()), "still noted as held");
}

#[test]
fn a_handler_may_close_what_its_own_thread_is_pushing() {
    let posix = holding(Hold::User);
    let at = posix.find(FD).unwrap();
    at.socket.visitors.store(1, SeqCst);
    posix.closing(FD, Call::Close);
    assert!(posix.find(FD).is_none());
}

#[test]
fn an_error_that_comes_late_is_reported_once() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    posix.kernel.fail(FD, Errno(104));
    burst(&posix, FD, 2);
    posix.before_read(FD, Call::Read);
    let at = posix.find(FD).unwrap();
    assert!(posix.has_read_error(at));
    assert_eq!(posix.read_error(at), Some(104), "a reset is the next read's answer");
    assert_eq!(posix.read_error(at), None);

    posix.kernel.fail(FD, Errno::EPIPE);
    burst(&posix, FD, 3);
    posix.before_read(FD, Call::Read);
    assert!(!posix.has_read_error(at), "reads go on as before");
    assert_eq!(posix.read_error(at), None, "a broken pipe is the next write's");
    assert_eq!(write(&posix, FD, b"a"), Err(Errno::EPIPE));
}

#[test]
fn a_shared_socket_keeps_its_bytes_in_the_kernel() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    posix.sharing(FD, Call::Dup);
    posix.duplicated(FD, 7);
    for fd in [FD, 7] {
        let at = posix.find(fd).unwrap();
        assert_eq!(posix.plan_write(at, 1, WriteFlags::default()), Plan::Send { more: true });
    }
}

#[test]
fn a_child_of_fork_does_not_send_what_its_parent_will() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    burst(&posix, FD, 2);
    // The fork happened without before_fork having been able to push (another thread's burst).
    posix.after_fork_in_child();
    posix.before_read(FD, Call::Read);
    assert_eq!(packets(&posix, FD), [1]);
    burst(&posix, FD, 2);
    posix.before_read(FD, Call::Read);
    assert_eq!(packets(&posix, FD), [1, 4], "and goes on with its own");
}

#[test]
fn what_a_child_of_vfork_closes_stays_the_parents() {
    let posix = holding(Hold::Kernel);
    posix.before_vfork();
    posix.kernel.become_another_process();
    posix.closing(FD, Call::Close);
    assert!(posix.find(FD).is_some());
    posix.kernel.come_back();
    posix.closing(FD, Call::Close);
    assert!(posix.find(FD).is_none(), "the parent goes on");
}

#[test]
fn io_uring_and_stdio_find_nothing_in_the_process() {
    let posix = holding(Hold::User);
    write(&posix, FD, b"0").unwrap();
    posix.before_read(FD, Call::Read);
    burst(&posix, FD, 2);
    posix.uses_io_uring();
    assert_eq!(packets(&posix, FD), [1, 4]);
    burst(&posix, FD, 1);
    assert_eq!(posix.find(FD).unwrap().socket.gathered.try_visit(|| ()).unwrap().len(), 0);

    let posix = holding(Hold::User);
    burst(&posix, FD, 2);
    posix.uses_stdio(FD);
    assert_eq!(packets(&posix, FD), [4]);
    let at = posix.find(FD).unwrap();
    assert_eq!(posix.plan_write(at, 1, WriteFlags::default()), Plan::Pass);
}

#[test]
fn a_report_counts_what_happened() {
    let settings = Settings { stats: crate::config::StatsTo::Stderr, ..Settings::default() };
    let posix = process(settings);
    posix.opened(FD, Origin::Made);
    for _ in 0..2 {
        burst(&posix, FD, 15);
        posix.kernel.pass(Duration::from_micros(100));
        posix.before_read(FD, Call::Read);
    }
    let report = posix.report("test".to_owned());
    let socket = &report.sockets[0];
    assert_eq!((socket.fd, socket.writes, socket.bytes, socket.pushes), (FD, 30, 60, 2));
    assert_eq!(socket.packets_saved, 28);
    assert_eq!(socket.pushed_by["read"], 2);
    let held = socket.held.unwrap();
    assert_eq!((held.samples, held.max_ns), (2, 100_000));
    posix.closing(FD, Call::Close);
    let report = posix.report("test".to_owned());
    assert!(!report.sockets[0].open);
    assert_eq!(report.sockets[0].writes, 30);
}

#[test]
fn no_handler_comes_while_gathered_bytes_are_sent() {
    let posix = holding(Hold::User);
    type Turn = fn(&Posix<Fake>);
    let turns: [(&str, Turn); 3] = [
        ("read", |posix| _ = posix.before_read(FD, Call::Read)),
        ("a large write", |posix| _ = write(posix, FD, &[b'x'; 20_000])),
        ("a full segment", |posix| _ = write(posix, FD, &[b'x'; 1_448])),
    ];
    burst(&posix, FD, 1);
    posix.before_read(FD, Call::Read);
    for (name, turn) in turns {
        burst(&posix, FD, 3);
        let before = posix.kernel.gathered_sends();
        turn(&posix);
        assert_eq!(posix.kernel.gathered_sends(), before + 1, "{name}");
    }
    assert_eq!(posix.kernel.sends_that_could_be_interrupted(), 0);
    assert!(!posix.kernel.handlers_are_off(), "handlers must come again");
}

/// What another thread does after a write was planned, and before its bytes are gathered.
fn overtaken(meanwhile: fn(&Posix<Fake>)) -> (Posix<Fake>, Result<Gather, Errno>) {
    let posix = holding(Hold::User);
    burst(&posix, FD, 1);
    posix.before_read(FD, Call::Read);
    let at = posix.find(FD).unwrap();
    assert_eq!(posix.plan_write(at, 2, WriteFlags::default()), Plan::Gather);
    meanwhile(&posix);
    let done = posix.gather(at, &[IoSlice::new(b"ab")], 2, false);
    (posix, done)
}

/// A writer inside the lock has gathered bytes, and has not noted them yet.
#[test]
fn who_shares_a_socket_waits_for_a_writer_inside() {
    for share in SHARING {
        let posix = full::nearly_full(100);
        write(&posix, FD, b"ab").unwrap();
        let socket = posix.find(FD).unwrap().socket;
        assert_ne!(socket.held.swap(0, Relaxed), 0);
        share(&posix);
        assert_eq!(posix.kernel.delivered(FD), b"0ab");
    }
}

#[test]
fn nothing_is_gathered_once_a_socket_has_been_shared_or_shut() {
    type Way = fn(&Posix<Fake>);
    let ways: [(&str, Way); 5] = [
        ("dup", |posix| posix.sharing(FD, Call::Dup)),
        ("fork", Posix::before_fork),
        ("shutdown", |posix| assert!(!posix.shutting(FD, true))),
        ("fdopen", |posix| posix.uses_stdio(FD)),
        ("io_uring", Posix::uses_io_uring),
    ];
    for (name, way) in ways {
        let (posix, done) = overtaken(way);
        assert!(matches!(done, Ok(Gather::Send { .. })), "{name}: {done:?}");
        assert!(posix.find(FD).is_some_and(|at| !holds_in_process(at)), "{name}");
    }
    assert_eq!(overtaken(|_| ()).1, Ok(Gather::Taken), "the test tests nothing");
}
