//! Threads that are cancelled (pthread_cancel(3)): not in the middle of what is done here, which has locks, and calls
//! functions of libc's on the way that are cancellation points (close(2), say); only where they sleep, and before a call begins, as
//! on kernel sockets.
//!
//! To say so costs two atomic operations for each call, a tenth of what a small one takes. So it is said in processes
//! alone whose threads cancel each other, or say that they may be cancelled anywhere: who is in the middle of a call when the first
//! one is, has not said it.

use core::cell::Cell;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use libc::c_int;

use crate::real;

const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_ASYNCHRONOUS: usize = 1;

/// A thread of this process's has been cancelled, or is about to be.
static CANCELS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The calling thread is kept from it by us, and by nobody else.
    static KEPT: Cell<bool> = const { Cell::new(false) };
}

/// pthread_setcancelstate(3); gives what was so before.
fn set(state: c_int) -> c_int {
    let mut before = PTHREAD_CANCEL_ENABLE;
    // SAFETY: a place for a number, which lives as long as the call.
    unsafe { real::pthread_setcancelstate()(state, &raw mut before) };
    before
}

/// A thread is about to be cancelled.
pub(crate) fn before_cancel(_: [usize; 6]) {
    // It is looked for here: who calls it may be in the middle of the allocator.
    let _ = (real::pthread_setcancelstate(), real::pthread_testcancel());
    if !CANCELS.swap(true, SeqCst) && super::is_on() {
        // Who was in there already did not know of it.
        super::SOCKETS.wait_for_others();
    }
}

/// The calling thread says where it may be cancelled.
pub(crate) fn before_cancel_type(args: [usize; 6]) {
    if args[0] == PTHREAD_CANCEL_ASYNCHRONOUS {
        before_cancel(args);
    }
}

/// What libc does at the beginning of a call that may wait, whether it waits or not: who is to be cancelled is.
#[inline]
pub(crate) fn point() {
    if CANCELS.load(Relaxed) {
        point_now();
    }
}

#[cold]
fn point_now() {
    // SAFETY: no arguments. Where locks of ours are held the thread is kept from it.
    unsafe { real::pthread_testcancel()() };
}

/// The calling thread is not cancelled from now on; whether that is new.
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

/// It may be again.
#[cold]
pub(super) fn let_go() {
    KEPT.set(false);
    set(PTHREAD_CANCEL_ENABLE);
}

/// Does something in which it may be, if it may at all.
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
