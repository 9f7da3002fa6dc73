//! The timer thread's alarm: a POSIX timer whose signal goes to that thread alone.
//!
//! It takes no descriptor; a child of fork does not inherit it, and exec removes it. The thread has
//! all signals blocked and waits for this one: a blocked signal is queued whatever the program does
//! with it, and one that is directed at a thread cannot be taken by another thread.

use core::ptr;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::SeqCst;
use core::time::Duration;

use libc::{c_int, itimerspec, sigevent, timespec};
use uncork_cork::Instant;
use uncork_posix::Errno;

use crate::raw::raw;
use crate::{POSIX, linux};

/// glibc's own first signal, with which it also wakes the thread of SIGEV_THREAD timers. No
/// function of libc lets a program block, handle, send or wait for it. A program may have blocked
/// any other number in all its threads to wait for it, as for one sent to the process: then the
/// timer's thread, which waits as well, could take it away.
const SIGNAL: c_int = 32;
static SIGNALS: u64 = 1 << (SIGNAL - 1);

/// The time to set for an alarm at once. Not zero, which would disarm it.
const LONG_AGO: Instant = Instant(1);

const NONE: c_int = -1;
/// The timer's number in this process, while the thread that it wakes lives.
static TIMER: AtomicI32 = AtomicI32::new(NONE);

/// Makes the alarm for the calling thread; false: none can be had (RLIMIT_SIGPENDING).
pub(crate) fn make() -> bool {
    let mut timer: c_int = NONE;
    // SAFETY: an all-zero sigevent is valid; the kernel reads it and writes one number.
    let made = unsafe {
        let mut event: sigevent = core::mem::zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        raw!(SYS_gettid).and_then(|thread| {
            event.sigev_notify_thread_id = thread as c_int;
            raw!(SYS_timer_create, libc::CLOCK_MONOTONIC, &raw const event, &raw mut timer)
        })
    };
    if made.is_ok() {
        TIMER.store(timer, SeqCst);
    }
    made.is_ok()
}

/// Deletes the alarm before its thread ends. The kernel reuses a number only when all have been
/// used, so a thread that has just read this one fails to set it.
pub(crate) fn delete() {
    let timer = TIMER.swap(NONE, SeqCst);
    if timer != NONE {
        // SAFETY: no pointers.
        let _ = unsafe { raw!(SYS_timer_delete, timer) };
    }
}

/// Forgets the alarm in a child of fork, which does not have it.
pub(crate) fn forget() {
    TIMER.store(NONE, SeqCst);
}

/// Implements [`uncork_posix::Kernel::set_alarm`].
pub(crate) fn set(at: Instant) -> bool {
    let timer = TIMER.load(SeqCst);
    let once = itimerspec {
        it_interval: timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: linux::timespec(Duration::from_nanos(at.max(LONG_AGO).0)),
    };
    // SAFETY: the kernel reads `once`.
    timer != NONE
        && unsafe {
            raw!(SYS_timer_settime, timer, libc::TIMER_ABSTIME, &raw const once, ptr::null::<u8>())
        }
        .is_ok()
}

/// Wakes `thread` of `process` from [`wait`], whatever the alarm is set to. The caller may be a
/// child of vfork, which cannot reach our timers.
pub(crate) fn wake(process: u32, thread: u32) {
    // SAFETY: no pointers.
    let sent = unsafe { raw!(SYS_tgkill, process, thread, SIGNAL) };
    if sent.is_err() && !POSIX.is_other_process() {
        // The user's limit of queued signals is reached; the timer has its own.
        set(LONG_AGO);
    }
}

/// Sleeps until the alarm rings or [`wake`], for `limit` at most. False: neither happened.
pub(crate) fn wait(limit: Duration) -> bool {
    let limit = linux::timespec(limit);
    // SAFETY: the kernel reads a signal set of eight bytes and `limit`.
    let rung = unsafe {
        raw!(SYS_rt_sigtimedwait, &raw const SIGNALS, ptr::null::<u8>(), &raw const limit, 8)
    };
    rung != Err(Errno::EAGAIN)
}
