//! Whatever a program does, in whatever order: the peer gets the same bytes.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Write { fd: i32, bytes: usize },
    Special { fd: i32, bytes: usize, more: bool },
    Read(i32),
    ReadFile,
    Wait,
    Epoll,
    Tick,
    Room { fd: i32, bytes: usize },
    Share(i32),
    Sendfile { fd: i32, bytes: usize },
    Cork(i32),
    Ask(i32),
    OtherThread,
    Uring,
    ForkInParent,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fd = prop_oneof![Just(FD), Just(OTHER)];
    let bytes = prop_oneof![8 => 0usize..40, 2 => 1000usize..3000, 1 => 10_000usize..40_000];
    let step = prop_oneof![
        20 => (fd.clone(), bytes.clone()).prop_map(|(fd, bytes)| Step::Write { fd, bytes }),
        1 => (fd.clone(), 0usize..40, any::<bool>())
            .prop_map(|(fd, bytes, more)| Step::Special { fd, bytes, more }),
        4 => fd.clone().prop_map(Step::Read),
        1 => Just(Step::ReadFile),
        2 => Just(Step::Wait),
        2 => Just(Step::Epoll),
        3 => Just(Step::Tick),
        3 => (fd.clone(), bytes.clone()).prop_map(|(fd, bytes)| Step::Room { fd, bytes }),
        1 => fd.clone().prop_map(Step::Share),
        1 => (fd.clone(), 1usize..3000).prop_map(|(fd, bytes)| Step::Sendfile { fd, bytes }),
        1 => fd.clone().prop_map(Step::Cork),
        1 => fd.prop_map(Step::Ask),
        1 => Just(Step::OtherThread),
        1 => Just(Step::Uring),
        1 => Just(Step::ForkInParent),
    ];
    proptest::collection::vec(step, 0..120)
}

/// What the program has written to each socket, by the results of its calls.
#[derive(Default)]
struct Written {
    streams: [Vec<u8>; 2],
    /// The program has used MSG_MORE itself, and must push itself.
    own_more: [bool; 2],
    next: u8,
}

impl Written {
    fn stream(&mut self, fd: i32) -> &mut Vec<u8> {
        &mut self.streams[(fd - FD) as usize]
    }

    fn fresh(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes)
            .map(|_| {
                self.next = self.next.wrapping_add(1);
                self.next
            })
            .collect()
    }

    fn write(&mut self, posix: &Posix<Fake>, fd: i32, bytes: usize, flags: WriteFlags) {
        let data = self.fresh(bytes);
        // A send that takes a part has written that part; one that fails has written nothing.
        let written = send(posix, fd, &data, flags).unwrap_or(0);
        self.stream(fd).extend_from_slice(&data[..written]);
    }
}

fn play(posix: &Posix<Fake>, written: &mut Written, step: Step) {
    match step {
        Step::Write { fd, bytes } => written.write(posix, fd, bytes, WriteFlags::default()),
        Step::Special { fd, bytes, more } => {
            let flags = WriteFlags { more, special: !more, ..WriteFlags::default() };
            written.own_more[(fd - FD) as usize] |= more;
            written.write(posix, fd, bytes, flags);
        }
        Step::Read(fd) => _ = posix.before_read(fd, Call::Read),
        Step::ReadFile => _ = posix.before_read(fake::FILE, Call::Read),
        Step::Wait => posix.before_wait(Call::Sleep),
        Step::Epoll => posix.before_epoll(EPOLL, Call::EpollWait),
        Step::Tick => {
            posix.kernel.pass(Duration::from_micros(500));
            posix.tick();
        }
        Step::Room { fd, bytes } => posix.kernel.set_room(fd, bytes),
        Step::Share(fd) => posix.sharing(fd, Call::Dup),
        Step::Sendfile { fd, bytes } => {
            let data = written.fresh(bytes);
            if let Ok(filling) = posix.filling(fd, fake::FILE, bytes, Call::Sendfile, || false) {
                let sent = posix.kernel.program_send(fd, &data, false).unwrap_or(0);
                if let Some(filling) = filling {
                    posix.filled(&filling, sent != 0, false);
                }
                written.stream(fd).extend_from_slice(&data[..sent]);
            }
        }
        Step::Cork(fd) => posix.setting(posix.find(fd).unwrap(), Opt::Cork, true),
        Step::Ask(fd) => posix.asking_queue(fd),
        Step::OtherThread => crate::local::current::set(-1),
        Step::Uring => posix.uses_io_uring(),
        Step::ForkInParent => {
            posix.before_fork();
            posix.after_fork_in_parent();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn the_other_side_gets_what_was_written(
        steps in steps(),
        hold in prop_oneof![Just(Hold::Kernel), Just(Hold::User), Just(Hold::Off)],
        nonblocking in any::<bool>(),
    ) {
        let posix = holding(hold);
        posix.watched(EPOLL, OTHER);
        if nonblocking {
            posix.kernel.set_nonblocking(FD);
            posix.kernel.set_nonblocking(OTHER);
        }
        let mut written = Written::default();
        for step in steps {
            play(&posix, &mut written, step);
            for fd in [FD, OTHER] {
                let delivered = posix.kernel.delivered(fd);
                prop_assert!(written.stream(fd).starts_with(&delivered), "reordered or invented");
            }
        }
        for fd in [FD, OTHER] {
            posix.kernel.set_room(fd, usize::MAX);
        }
        // The bound passes: nothing may be left, whatever came before.
        for _ in 0..4 {
            posix.kernel.pass(Duration::from_micros(500));
            posix.tick();
        }
        for fd in [FD, OTHER] {
            if written.own_more[(fd - FD) as usize] {
                posix.kernel.let_go(fd);
            }
            prop_assert_eq!(&posix.kernel.delivered(fd), written.stream(fd));
        }
    }
}
