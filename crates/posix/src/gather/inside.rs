//! Access to a socket's gathered bytes, and what signal handlers may do meanwhile.

use uncork_bias::{Guard, Thread};

use super::Gathered;
use crate::Posix;
use crate::kernel::Kernel;
use crate::local::{Local, local};
use crate::socket::Socket;

/// Access to a socket's gathered bytes, flagged for signal handlers that interrupt its thread.
pub(crate) struct Inside<'a, K: Kernel> {
    // The lock is dropped first: a handler that came between would see no holder, and wait for it.
    pub(crate) gathered: Guard<'a, Gathered>,
    pub(super) handlers: Handlers<'a, K>,
}

/// What tells signal handlers that their thread holds the lock, or keeps them off.
pub(super) struct Handlers<'a, K: Kernel> {
    kernel: &'a K,
    kept_off: Option<u64>,
}

impl<K: Kernel> Handlers<'_, K> {
    /// Blocks signal handlers until all is done. One that ran could neither send what is inside nor
    /// wait for it: if it then ends the process, closes, waits for an answer or jumps away, bytes
    /// that were written would never leave. Done around system calls, which is where signals
    /// arrive; the few instructions of a small write's copy go without.
    pub(super) fn keep_off(&mut self) {
        if self.kept_off.is_none() {
            self.kept_off = self.kernel.keep_handlers_off();
        }
    }
}

impl<K: Kernel> Drop for Handlers<'_, K> {
    #[inline]
    fn drop(&mut self) {
        local(|local| local.inside.set(false));
        if let Some(before) = self.kept_off {
            self.kernel.let_handlers(before);
        }
    }
}

/// Forgets the number of a thread that is ending: it may still write, but owns no lock any more.
fn forget_number() {
    local(|local| local.thread.set(Thread::NONE));
}

impl<K: Kernel> Posix<K> {
    /// As [`Posix::enter`], with handlers blocked before the lock is taken.
    pub(super) fn enter_undisturbed<'a>(&'a self, socket: &'a Socket) -> Option<Inside<'a, K>> {
        let kept_off = self.kernel.keep_handlers_off();
        let inside = local(|local| self.enter(local, socket));
        match (inside, kept_off) {
            (Some(mut inside), kept_off) => {
                inside.handlers.kept_off = kept_off;
                Some(inside)
            }
            (None, Some(before)) => {
                self.kernel.let_handlers(before);
                None
            }
            (None, None) => None,
        }
    }

    /// Gives the calling thread a number, once. libc allocates for that: it is done early, where a
    /// thread makes or accepts a socket, so that a signal handler is seldom the first to need it.
    #[inline]
    pub(crate) fn ask_for_number(&self, local: &Local) {
        if local.thread.get() == Thread::NONE && !local.asked.replace(true) {
            local.thread.set(self.kernel.thread(forget_number));
        }
    }

    /// Locks. `None` inside a signal handler that interrupted a holder on this very thread.
    #[inline]
    pub(super) fn enter<'a>(&'a self, local: &Local, socket: &'a Socket) -> Option<Inside<'a, K>> {
        if local.inside.replace(true) {
            return None;
        }
        self.ask_for_number(local);
        let thread = local.thread.get();
        let gathered = socket.gathered.lock(thread, || self.kernel.barrier());
        Some(Inside { gathered, handlers: Handlers { kernel: &self.kernel, kept_off: None } })
    }
}
