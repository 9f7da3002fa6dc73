//! Children of vfork, which run in their parent's memory, and what goes on beside a fork.

use super::*;

const BOUND: Duration = Duration::from_millis(1);

/// Makes the calling thread a child of vfork, beside what other threads of its parent hold.
fn vfork(posix: &Posix<Fake>) {
    crate::local::current::set(-1);
    crate::local::local(|local| local.vforked.set(true));
    posix.kernel.become_another_process();
}

/// The thread would be the child's and end with it, and the parent would count on it.
#[test]
fn a_child_of_vfork_makes_no_timer_for_its_parent() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        posix.before_vfork();
        posix.kernel.become_another_process();
        burst(&posix, FD, 3);
        assert_eq!(packets(&posix, FD), [2, 2, 2], "{hold:?}: each as the child made it");
        assert!(!posix.kernel.keeper_started(), "{hold:?}");
        posix.kernel.come_back();
        burst(&posix, OTHER, 3);
        assert!(posix.kernel.keeper_started(), "{hold:?}");
        assert_eq!(packets(&posix, OTHER), [], "{hold:?}: the parent holds");
        posix.kernel.pass(Duration::from_millis(2));
        posix.tick();
        assert_eq!(packets(&posix, OTHER), [6], "{hold:?}");
    }
}

#[test]
fn a_child_of_vfork_pushes_nothing_of_its_parents_through_its_own_descriptors() {
    type Call = fn(&Posix<Fake>);
    let calls: [(&str, Call); 5] = [
        ("write", |posix| burst(posix, FD, 1)),
        ("read", |posix| _ = posix.before_read(FD, crate::Call::Read)),
        ("poll", |posix| posix.before_poll([FD].into_iter(), crate::Call::Poll)),
        ("ioctl", |posix| posix.asking_queue(FD)),
        ("sendfile", |posix| {
            let file = posix.filling(FD, fake::FILE, 3, crate::Call::Sendfile, || true).unwrap();
            assert!(file.is_none());
        }),
    ];
    for hold in [Hold::Kernel, Hold::User] {
        for (name, call) in calls {
            let posix = holding(hold);
            burst(&posix, FD, 1);
            posix.before_read(FD, crate::Call::Read);
            burst(&posix, FD, 3);
            vfork(&posix);
            let (calls, writes) = (posix.kernel.calls(), usize::from(name == "write"));
            call(&posix);
            assert_eq!(posix.kernel.calls(), calls + writes, "{hold:?}, {name}");
            posix.kernel.come_back();
            posix.kernel.pass(Duration::from_millis(2));
            posix.tick();
            let bytes = posix.kernel.delivered(FD).len();
            assert_eq!(bytes, 2 + 6 + 2 * writes, "{hold:?}, {name}");
        }
    }
}

#[test]
fn a_child_of_vfork_that_changes_its_user_leaves_its_parents_timer_alone() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        burst(&posix, FD, 1);
        posix.before_read(FD, Call::Read);
        burst(&posix, FD, 3);
        vfork(&posix);
        let calls = posix.kernel.calls();
        let called = posix.without_keeper(|| panic!("the parent's thread ends"), || true);
        assert!(called, "{hold:?}");
        assert_eq!(posix.kernel.calls(), calls, "{hold:?}: nothing is sent");
        posix.kernel.come_back();
        posix.kernel.pass(Duration::from_millis(2));
        posix.tick();
        assert_eq!(posix.kernel.delivered(FD).len(), 2 + 6, "{hold:?}");
    }
}

/// A large process takes a hundred times the bound to fork, and the timer must not look meanwhile.
#[test]
fn what_other_threads_write_during_a_fork_leaves_at_once() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        burst(&posix, FD, 1);
        posix.before_read(FD, Call::Read);
        burst(&posix, FD, 2);
        posix.before_fork();
        assert_eq!(packets(&posix, FD), [2, 4], "{hold:?}");
        burst(&posix, FD, 3);
        burst(&posix, OTHER, 2);
        // One that another thread has accepted meanwhile is no other process's.
        posix.opened(7, Origin::Made);
        burst(&posix, 7, 2);
        let plan = posix.plan_write(posix.find(7).unwrap(), 2, WriteFlags::default());
        assert!(matches!(plan, Plan::Send { .. }), "{hold:?}: {plan:?}");
        assert_eq!(posix.kernel.delivered(7).len(), 4, "{hold:?}");
        assert_eq!(posix.tick(), Next::Tick(BOUND / 16), "{hold:?}: it does not look");
        assert_eq!(posix.kernel.delivered(FD).len(), 2 + 4 + 6, "{hold:?}");
        assert_eq!(posix.kernel.delivered(OTHER).len(), 4, "{hold:?}");
        posix.after_fork_in_parent();
        posix.before_read(FD, Call::Read);
        burst(&posix, FD, 3);
        assert_eq!(posix.kernel.delivered(FD).len(), 2 + 4 + 6, "{hold:?}: held again");
        posix.kernel.pass(2 * BOUND);
        posix.tick();
        assert_eq!(posix.kernel.delivered(FD).len(), 2 + 4 + 6 + 6, "{hold:?}");
    }
}

/// A writer has seen no fork, and holds after what was held was sent and before the timer stops.
#[test]
fn what_a_thread_holds_while_a_fork_begins_is_sent_before_it() {
    let posix = holding(Hold::Kernel);
    burst(&posix, FD, 1);
    posix.before_read(FD, Call::Read);
    burst(&posix, FD, 2);
    posix.pause_keeper();
    assert_eq!(packets(&posix, FD), [2, 4]);
}

/// As by a clone(2) that is made without libc: nobody knows whose memory it runs in.
#[test]
fn a_child_that_nobody_has_seen_begin_makes_no_timer_either() {
    for hold in [Hold::Kernel, Hold::User] {
        let posix = holding(hold);
        posix.kernel.become_another_process();
        burst(&posix, FD, 3);
        assert_eq!(posix.kernel.delivered(FD).len(), 6, "{hold:?}");
        assert!(!posix.kernel.keeper_started(), "{hold:?}");
    }
}
