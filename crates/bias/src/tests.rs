//! Owners and visitors at full speed, with the kernel's own barrier.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::*;

const REGISTER: i32 = 1 << 4;
const BARRIER: i32 = 1 << 3;

fn membarrier(command: i32) {
    // SAFETY: no pointers.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    assert_eq!(result, 0, "membarrier(2)");
}

fn barrier() {
    membarrier(BARRIER);
}

fn nothing() {}

/// Two halves that differ only if an access was not protected.
#[derive(Default)]
struct Pair(u64, u64);

fn touch(pair: &mut Pair) {
    assert_eq!(pair.0, pair.1, "two threads were inside");
    pair.0 += 1;
    std::hint::black_box(&pair);
    pair.1 += 1;
}

#[test]
fn an_owner_and_a_visitor_are_never_inside_together() {
    membarrier(REGISTER);
    let lock = Biased::<Pair>::default();
    let done = AtomicBool::new(false);
    let (owned, visited) = thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let me = this_thread(nothing);
            let mut count = 0u64;
            while !done.load(Relaxed) {
                if count.is_multiple_of(3) || lock.if_owner(me, touch).is_none() {
                    touch(&mut lock.lock(me, barrier));
                }
                count += 1;
            }
            count
        });
        let visitor = scope.spawn(|| {
            let begin = Instant::now();
            let mut count = 0u64;
            while begin.elapsed() < Duration::from_millis(400) {
                if let Some(mut pair) = lock.try_visit(barrier) {
                    touch(&mut pair);
                    count += 1;
                }
            }
            done.store(true, Relaxed);
            count
        });
        (owner.join().unwrap(), visitor.join().unwrap())
    });
    let pair = lock.lock(this_thread(nothing), barrier);
    assert_eq!(pair.0, owned + visited, "each of them counted each time");
    assert!(owned > 1000 && visited > 10, "{owned} times owned, {visited} visited");
}

#[test]
fn several_owners_share_the_mutex_and_lose_nothing() {
    membarrier(REGISTER);
    let lock = Biased::<Pair>::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let me = this_thread(nothing);
                for _ in 0..20_000 {
                    touch(&mut lock.lock(me, barrier));
                }
            });
        }
    });
    assert_eq!(lock.lock(Thread::NONE, barrier).0, 80_000);
}

#[test]
fn locks_that_change_hands_between_bursts_lose_nothing() {
    membarrier(REGISTER);
    for _ in 0..200 {
        let lock = Biased::<Pair>::default();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let me = this_thread(nothing);
                    for _ in 0..50 {
                        touch(&mut lock.lock(me, barrier));
                    }
                });
            }
        });
        assert_eq!(lock.lock(this_thread(nothing), barrier).0, 100);
    }
}

#[test]
fn a_visitor_does_not_wait_for_whom_is_inside() {
    membarrier(REGISTER);
    let lock = Biased::<Pair>::default();
    let me = this_thread(nothing);
    drop(lock.lock(me, barrier));
    let inside = lock.lock(me, barrier);
    thread::scope(|scope| {
        scope.spawn(|| assert!(lock.try_visit(barrier).is_none()));
    });
    drop(inside);
    assert!(lock.try_visit(barrier).is_some());
    assert!(matches!(lock.lock(me, barrier).held, Held::Flag(_)), "the owner is still the owner");
}

#[test]
fn numbers_come_back_when_threads_end() {
    for _ in 0..THREADS * 2 {
        let number = thread::spawn(|| this_thread(nothing)).join().unwrap();
        assert_ne!(number, Thread::NONE);
    }
}

/// A destructor that runs later may still lock: two owners of one number would be inside at once.
#[test]
fn a_thread_forgets_its_number_before_another_gets_it() {
    thread_local! {
        static NUMBER: Cell<Thread> = const { Cell::new(Thread::NONE) };
    }
    static FORGOTTEN: AtomicBool = AtomicBool::new(false);
    fn forget() {
        let number = NUMBER.replace(Thread::NONE);
        let taken = number.flag().is_some_and(|flag| flag.taken.load(Relaxed));
        FORGOTTEN.store(taken, Relaxed);
    }
    thread::spawn(|| NUMBER.set(this_thread(forget))).join().unwrap();
    assert!(FORGOTTEN.load(Relaxed), "given back while it was in use");
}

#[test]
fn a_thread_without_a_number_uses_the_mutex() {
    let lock = Biased::<Pair>::default();
    touch(&mut lock.lock(Thread::NONE, || ()));
    touch(&mut lock.lock(Thread::NONE, || ()));
    assert_eq!(lock.lock(Thread::NONE, || ()).0, 2);
}

/// Forks while another thread is inside, and returns whether the child can lock.
fn child_gets_in(lock: &Biased<Pair>, renew: bool) -> bool {
    // SAFETY: the child makes system calls and uses this crate, neither of which allocates.
    let child = unsafe { libc::fork() };
    if child == 0 {
        if renew {
            lock.renew_after_fork(Pair::default());
        }
        after_fork();
        // SAFETY: no pointers. A child that waits for a lock that is never released is ended.
        unsafe { libc::alarm(2) };
        touch(&mut lock.lock(Thread::NONE, barrier));
        // SAFETY: no pointers.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: the kernel writes one integer.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status == 0
}

#[test]
fn a_child_gets_into_locks_that_other_threads_of_its_parent_were_inside_of() {
    membarrier(REGISTER);
    for by_mutex in [true, false] {
        let lock = Biased::<Pair>::default();
        let (inside, done) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let me = if by_mutex { Thread::NONE } else { this_thread(nothing) };
                // The first lock always goes by the mutex.
                drop(lock.lock(me, barrier));
                let mut pair = lock.lock(me, barrier);
                pair.0 += 1;
                inside.store(true, SeqCst);
                while !done.load(SeqCst) {
                    thread::yield_now();
                }
                pair.1 += 1;
            });
            while !inside.load(SeqCst) {
                thread::yield_now();
            }
            assert!(!by_mutex || !child_gets_in(&lock, false), "the test tests nothing");
            assert!(child_gets_in(&lock, true), "by the mutex: {by_mutex}");
            done.store(true, SeqCst);
        });
        touch(&mut lock.lock(Thread::NONE, barrier));
    }
}
