//! Getting at a socket's gathered bytes, and what signal handlers may do meanwhile.

use uncork_bias::{Guard, Thread};

use super::Gathered;
use crate::Posix;
use crate::kernel::Kernel;
use crate::local::{Local, local};
use crate::socket::Socket;

/// Access to a socket's gathered bytes, known to signal handlers that interrupt it.
pub(crate) struct Inside<'a, K: Kernel> {
    // The lock goes first: a handler that came between would find nobody inside, and wait for it.
    pub(crate) gathered: Guard<'a, Gathered>,
    pub(super) handlers: Handlers<'a, K>,
}

/// What handlers must know, or must wait for.
pub(super) struct Handlers<'a, K: Kernel> {
    kernel: &'a K,
    kept_off: Option<u64>,
}

impl<K: Kernel> Handlers<'_, K> {
    /// Lets no handler come before all is done. One that did could neither send what is inside
    /// nor wait for it: if it then ends the process, closes, waits for an answer or jumps away,
    /// bytes that were written would never leave. Done around system calls, which is where
    /// signals arrive; the few instructions of a small write's copy go without.
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

/// At a thread's end: it may write still, but is not the owner of anything any more.
fn forget_number() {
    local(|local| local.thread.set(Thread::NONE));
}

impl<K: Kernel> Posix<K> {
    /// As [`Posix::enter`], with handlers kept off from before the lock is taken.
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
    /// thread makes or accepts a socket, so that seldom a signal handler is the first to need it.
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
