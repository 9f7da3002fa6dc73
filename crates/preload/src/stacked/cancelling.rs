//! Cancellation of threads (pthread_cancel(3)): never in the middle of the library's work, which holds locks, and calls libc
//! functions that are cancellation points (such as close(2)); only where a thread sleeps, and before a call begins, as on kernel
//! sockets.
//!
//! Disabling cancellation costs two atomic operations for each call, a tenth of what a small one takes. So it is done only in
//! processes whose threads cancel each other, or allow asynchronous cancellation: a thread that is in the middle of a call when
//! the first one is cancelled has not done it.

use core::cell::Cell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use libc::c_int;

use crate::real;

const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_ASYNCHRONOUS: usize = 1;

/// A thread of this process has been cancelled, or is about to be.
static CANCELS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Cancellation is disabled for the calling thread by us, and not by the program.
    static KEPT: Cell<bool> = const { Cell::new(false) };
}

/// Makes a pthread_setcancelstate(3); returns the previous state.
fn set(state: c_int) -> c_int {
    let mut before = PTHREAD_CANCEL_ENABLE;
    // SAFETY: room for a number, which lives as long as the call.
    unsafe { real::pthread_setcancelstate()(state, &raw mut before) };
    before
}

/// Prepares for the cancellation of a thread.
pub(crate) fn before_cancel(_: [usize; 6]) {
    // They are looked up here: a later caller may be in the middle of the allocator.
    let _ = (real::pthread_setcancelstate(), real::pthread_testcancel());
    if !CANCELS.swap(true, SeqCst) && super::is_on() {
        // A thread that was in the stack already has not disabled it.
        super::SOCKETS.wait_for_others();
    }
}

/// Prepares for asynchronous cancellation of the calling thread.
pub(crate) fn before_cancel_type(args: [usize; 6]) {
    if args[0] == PTHREAD_CANCEL_ASYNCHRONOUS {
        before_cancel(args);
    }
}

/// Makes a cancellation point, as libc does at the beginning of a call that may wait, whether it waits or not.
#[inline]
pub(crate) fn point() {
    if CANCELS.load(Relaxed) {
        point_now();
    }
}

#[cold]
fn point_now() {
    // SAFETY: no arguments. Where locks of ours are held, cancellation is disabled.
    unsafe { real::pthread_testcancel()() };
}

/// Disables cancellation of the calling thread; returns whether it was enabled.
#[inline]
pub(super) fn keep() -> bool {
    CANCELS.load(Relaxed) && keep_now()
}

#[cold]
fn keep_now() -> bool {
    let is_new = set(PTHREAD_CANCEL_DISABLE) == PTHREAD_CANCEL_ENABLE;
    if is_new {
        KEPT.set(true);
    }
    is_new
}

/// Enables cancellation again.
#[cold]
pub(super) fn let_go() {
    KEPT.set(false);
    set(PTHREAD_CANCEL_ENABLE);
}

/// Runs something with cancellation enabled, unless the program has disabled it.
pub(super) fn exposed<T>(act: impl FnOnce() -> T) -> T {
    let was_kept = KEPT.get();
    if was_kept {
        let_go();
    }
    let done = act();
    if was_kept {
        keep_now();
    }
    done
}
