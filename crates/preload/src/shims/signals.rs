//! Signal handlers: what spins looks for them, and what is on the stack calls them itself.

use libc::c_int;

use crate::stacked::{self, handlers};
use crate::{real, spin};

/// A handler may interrupt what spins.
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

/// `signals! { name: flags }`: signal(3) and its kin, which install a handler with these flags.
macro_rules! signals {
    ($($name:ident: $flags:expr;)+) => { $(
        /// signal(3).
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(signal: c_int, handler: usize) -> usize {
            spin::note_handler(signal, handler);
            // SAFETY: the program's own call.
            unsafe {
                if stacked::is_on() {
                    return handlers::signal(signal, handler, $flags);
                }
                real::$name()(signal, handler)
            }
        }
    )+ };
}

/// As System V has it: for one signal, during which others of it may come.
const ONCE: c_int = libc::SA_RESETHAND | libc::SA_NODEFER;

signals! {
    signal: libc::SA_RESTART;
    bsd_signal: libc::SA_RESTART;
    ssignal: libc::SA_RESTART;
    sysv_signal: ONCE;
    __sysv_signal: ONCE;
}
