//! The alarm of the timer's thread: a POSIX timer whose signal goes to that thread alone.
//!
//! It takes no descriptor; a child of fork does not inherit it, and exec removes it. The thread has
//! all signals blocked and waits for this one: a blocked signal is queued whatever the program does
//! with it, and one that is directed at a thread is no other thread's to take.

use core::ptr;
use core::sync::atomic::AtomicI32;
use core::sync::atomic::Ordering::SeqCst;
use core::time::Duration;

use libc::{c_int, itimerspec, sigevent, timespec};
use uncork_cork::Instant;
use uncork_posix::Errno;

use crate::raw::raw;
use crate::{POSIX, linux};

/// glibc's own first signal, by which it has POSIX timers of SIGEV_THREAD wake their thread, too.
/// No function of libc lets a program block, handle, send or wait for it. Any other number a
/// program may have blocked in all its threads to wait for it, as for one sent to the process:
/// then the timer's thread, which waits as well, could take it away.
const SIGNAL: c_int = 32;
static SIGNALS: u64 = 1 << (SIGNAL - 1);

/// Not zero, which would take the alarm back.
const LONG_AGO: Instant = Instant(1);

const NONE: c_int = -1;
/// Its number in this process, while the thread lives that it wakes.
static TIMER: AtomicI32 = AtomicI32::new(NONE);

/// Makes it for the calling thread; false: there is none to be had (RLIMIT_SIGPENDING).
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

/// Before the thread ends. The kernel gives numbers anew only when it has given all of them, so
/// that whoever has just read this one fails to set it.
pub(crate) fn delete() {
    let timer = TIMER.swap(NONE, SeqCst);
    if timer != NONE {
        // SAFETY: no pointers.
        let _ = unsafe { raw!(SYS_timer_delete, timer) };
    }
}

/// In a child of fork, which has none.
pub(crate) fn forget() {
    TIMER.store(NONE, SeqCst);
}

/// [`uncork_posix::Kernel::set_alarm`].
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
/// child of vfork, which reaches no timer of ours.
pub(crate) fn wake(process: u32, thread: u32) {
    // SAFETY: no pointers.
    let sent = unsafe { raw!(SYS_tgkill, process, thread, SIGNAL) };
    if sent.is_err() && !POSIX.is_other_process() {
        // As many signals are waiting as the user may have; the timer has its own.
        set(LONG_AGO);
    }
}

/// Sleeps until it rings or [`wake`], for `limit` at most. False: neither came.
pub(crate) fn wait(limit: Duration) -> bool {
    let limit = linux::timespec(limit);
    // SAFETY: the kernel reads a signal set of eight bytes and `limit`.
    let rung = unsafe {
        raw!(SYS_rt_sigtimedwait, &raw const SIGNALS, ptr::null::<u8>(), &raw const limit, 8)
    };
    rung != Err(Errno::EAGAIN)
}
