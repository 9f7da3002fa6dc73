//! Signal handlers: spins must notice them, and the stack calls them itself.

use libc::c_int;

use crate::stacked::{self, handlers};
use crate::{real, spin};

/// Notes a handler, which may interrupt a spin.
///
/// # Safety
/// `action` is null or the program's.
unsafe fn note(signal: c_int, action: *const libc::sigaction) {
    // SAFETY: as promised.
    if let Some(action) = unsafe { action.as_ref() } {
        spin::note_handler(signal, action.sa_sigaction);
    }
}

/// sigaction(2), by its two names.
macro_rules! actions {
    ($($name:ident)+) => { $(
        /// sigaction(2).
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(
            signal: c_int,
            action: *const libc::sigaction,
            old: *mut libc::sigaction,
        ) -> c_int {
            // SAFETY: the program's own call.
            unsafe {
                note(signal, action);
                if stacked::is_on() {
                    return handlers::sigaction(signal, action, old);
                }
                real::$name()(signal, action, old)
            }
        }
    )+ };
}

actions! { sigaction __sigaction }

/// `signals! { name: flags }`: signal(3) and the like, which install a handler with these flags.
macro_rules! signals {
    ($($name:ident: $flags:expr;)+) => { $(
        /// signal(3).
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(signal: c_int, handler: usize) -> usize {
            spin::note_handler(signal, handler);
            // SAFETY: the program's own call.
            unsafe {
                if stacked::is_on() {
                    return handlers::signal(signal, handler, $flags(signal));
                }
                real::$name()(signal, handler)
            }
        }
    )+ };
}

/// System V's flags: the handler is called once, and its signal is not blocked meanwhile.
fn once(_: c_int) -> c_int {
    libc::SA_RESETHAND | libc::SA_NODEFER
}

signals! {
    signal: handlers::usual_flags;
    bsd_signal: handlers::usual_flags;
    ssignal: handlers::usual_flags;
    sysv_signal: once;
    __sysv_signal: once;
}

/// sigset(3): installs a handler without SA_RESTART and unblocks the signal; or blocks it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sigset(signal: c_int, handler: usize) -> usize {
    const SIG_HOLD: usize = 2;
    if handler != SIG_HOLD {
        spin::note_handler(signal, handler);
    }
    // SAFETY: the program's own call.
    unsafe {
        if !stacked::is_on() {
            return real::sigset()(signal, handler);
        }
        let mut one: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        if libc::sigaddset(&raw mut one, signal) != 0 {
            return libc::SIG_ERR;
        }
        let old = if handler == SIG_HOLD {
            handlers::handler_of(signal)
        } else {
            handlers::signal(signal, handler, 0)
        };
        let how = if handler == SIG_HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
        if old == libc::SIG_ERR || libc::pthread_sigmask(how, &raw const one, &raw mut before) != 0
        {
            return libc::SIG_ERR;
        }
        if libc::sigismember(&raw const before, signal) == 1 { SIG_HOLD } else { old }
    }
}

/// siginterrupt(3).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn siginterrupt(signal: c_int, ends: c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe {
        // libc keeps what signal(3) must do from now on.
        let result = real::siginterrupt()(signal, ends);
        if result == 0 && stacked::is_on() {
            handlers::ends_calls_by(signal, ends != 0);
        }
        result
    }
}
