//! The timer thread: [`uncork_posix`]'s keeper, given a body.

use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;

use libc::{c_int, c_void};

use crate::POSIX;
use crate::linux;
use crate::raw::raw;

/// Its stack: it calls no library but ours.
const STACK_BYTES: usize = 64 * 1024;

/// Futex word: counts the wake-ups.
static WAKE: AtomicU32 = AtomicU32::new(0);

/// Makes the thread. It takes no signal, is detached, and dies with the process.
pub(crate) fn start() -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: each object is initialised by the call made for it before it is used. A thread
    // inherits the signal mask of its maker, so it is made while all signals are blocked.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        libc::pthread_attr_setdetachstate(
            attributes.as_mut_ptr(),
            libc::PTHREAD_CREATE_DETACHED,
        );
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK_BYTES);
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        let made = libc::pthread_create(
            thread.as_mut_ptr(),
            attributes.as_ptr(),
            run,
            ptr::null_mut(),
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        made == 0
    }
}

/// Wakes it from [`uncork_posix::Next::Sleep`].
pub(crate) fn wake() {
    WAKE.fetch_add(1, SeqCst);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: WAKE is a futex word for the life of the process.
    let _ = unsafe { raw!(SYS_futex, &raw const WAKE, operation, 1) };
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: plain arguments; the name is a C string. Without the slack of 50 µs that threads
    // get by default, a short bound would be overrun by it.
    unsafe {
        let _ = raw!(SYS_prctl, libc::PR_SET_NAME, c"uncork-keeper".as_ptr());
        let _ = raw!(SYS_prctl, libc::PR_SET_TIMERSLACK, 1);
    }
    loop {
        match POSIX.tick() {
            uncork_posix::Next::Tick(period) => {
                let time = linux::timespec(period);
                // SAFETY: the kernel reads `time`.
                let _ = unsafe { raw!(SYS_nanosleep, &raw const time, 0) };
                crate::report::dump_if_due();
            }
            uncork_posix::Next::Sleep => sleep(),
        }
    }
}

fn sleep() {
    let operation: c_int = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    loop {
        let seen = WAKE.load(SeqCst);
        if !POSIX.keeper_sleeps() {
            return;
        }
        // SAFETY: WAKE is a futex word for the life of the process; no time limit.
        let _ = unsafe { raw!(SYS_futex, &raw const WAKE, operation, seen, 0) };
    }
}

