//! Turning away: calls that read or wait end bursts.

use core::sync::atomic::Ordering::Relaxed;

use crate::kernel::{Kernel, Kind, state};
use crate::local::current;
use crate::socket::flag;
use crate::{Call, Posix, Socketed};

impl<K: Kernel> Posix<K> {
    /// Ends the thread's burst before a wait for something other than one descriptor: it sleeps, or waits for a
    /// thread, a process, a signal, a set of descriptors.
    #[inline]
    pub fn before_wait(&self, call: Call) {
        let current = current::replace(-1);
        if current >= 0 {
            self.end_other(current, call);
        }
    }

    /// Pushes all that is held before the process sends itself a signal that it does not handle (`is_deadly`): such
    /// a signal ends or stops it, and the timer with it.
    pub fn before_signal(&self, is_deadly: impl FnOnce() -> bool) {
        if self.anything_held() && !self.is_vfork_child() && is_deadly() {
            self.before_wait(Call::Kill);
            self.release_all(Call::Kill);
        }
    }

    /// Ends the burst before the thread reads from `fd`; returns the socket if it is tracked.
    #[inline]
    pub fn before_read(&self, fd: i32, call: Call) -> Option<Socketed<'_>> {
        let at = self.find(fd);
        if let Some(at) = at {
            self.before_reading(at, call);
        } else if current::get() >= 0 && self.anything_held() && self.may_wait(fd) {
            self.before_wait(call);
        }
        at
    }

    /// As [`Posix::before_read`], for a socket that is known to be tracked.
    #[inline]
    pub fn before_reading(&self, at: Socketed<'_>, call: Call) {
        let current = current::replace(-1);
        if current != at.fd && current >= 0 {
            self.end_other(current, Call::Turn);
        }
        self.end_burst(at, call);
    }

    /// Ends the burst before the thread waits for any of `fds`.
    #[inline]
    pub fn before_poll(&self, fds: impl Iterator<Item = i32>, call: Call) {
        self.before_wait(call);
        if self.anything_held() {
            // Another thread's burst, on a socket whose answer this thread waits for.
            for fd in fds {
                if self.find(fd).is_some_and(|at| at.socket.held.load(Relaxed) != 0) {
                    self.visit(fd, call);
                }
            }
        }
    }

    /// Ends the burst before the thread waits on the epoll set `epfd`.
    #[inline]
    pub fn before_epoll(&self, epfd: i32, call: Call) {
        self.before_wait(call);
        if self.anything_held() {
            self.kernel.held().each(|fd| {
                let member = |at: Socketed<'_>| {
                    at.socket.epoll.load(Relaxed) == epfd + 1 && at.socket.held.load(Relaxed) != 0
                };
                if self.find(fd).is_some_and(member) {
                    self.visit(fd, call);
                }
            });
        }
    }

    /// Notes that `fd` was added to the epoll set `epfd`, or is still in it.
    #[inline]
    pub fn watched(&self, epfd: i32, fd: i32) {
        // A program may do this with every message.
        if let Some(at) = self.find(fd)
            && at.socket.epoll.load(Relaxed) != epfd + 1
        {
            self.newly_watched(epfd, at);
        }
    }

    /// Returns the epoll set that a socket was added to last.
    #[must_use]
    pub fn set_of(&self, fd: i32) -> Option<i32> {
        let set = self.find(fd)?.socket.epoll.load(Relaxed);
        (set != 0).then_some(set - 1)
    }

    #[cold]
    fn newly_watched(&self, epfd: i32, at: Socketed<'_>) {
        if self.is_vfork_child() {
            return;
        }
        let before = at.socket.epoll.swap(epfd + 1, Relaxed);
        if before != 0 && before != epfd + 1 {
            at.socket.set(flag::MANY_SETS);
        }
    }

    /// Returns whether anything is held in this process.
    #[inline]
    fn anything_held(&self) -> bool {
        self.kernel.held().count.load(Relaxed) != 0
    }

    /// Returns whether reading from a descriptor that is not ours may block. A program that reads a file between
    /// its header and its payload has not turned away.
    pub(crate) fn may_wait(&self, fd: i32) -> bool {
        let Some(byte) = self.kernel.state(fd) else { return true };
        match byte.load(Relaxed) {
            state::READY => false,
            state::WAITS => true,
            _ => {
                let kind = self.kernel.kind(fd);
                // Forgotten when the descriptor is closed; see `closing`.
                self.kernel.highest().fetch_max(fd, Relaxed);
                byte.store(if kind == Kind::Ready { state::READY } else { state::WAITS }, Relaxed);
                kind == Kind::Waits
            }
        }
    }
}
