//! The system call that makes the kernel send the filled slots, apart from the port: a thread that drives the port under a
//! lock makes it after it has released that lock.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::slots::TransmitStatus;

/// A call takes microseconds, unless the thread that makes it does not get to run.
const PATIENCE: Duration = Duration::from_millis(100);

/// What making the call for one port needs.
#[derive(Debug)]
pub(super) struct Kicker {
    socket: Arc<OwnedFd>,
    slots: TransmitStatus,
    /// Read-locked by each thread that makes the call; write-locked to keep all of them from it.
    calls: RwLock<()>,
    /// The last filled slot for which the call was put off.
    last: AtomicUsize,
}

/// A call that is to be made.
#[derive(Debug)]
#[must_use = "what was filled stays where it is until the call is made"]
pub struct Kick(Arc<Kicker>);

/// Keeps every thread from making the call while this lives.
#[derive(Debug)]
pub(super) struct Kept<'a>(
    #[expect(dead_code, reason = "it is let go of at the end")] RwLockWriteGuard<'a, ()>,
);

impl Kicker {
    pub(super) fn new(socket: Arc<OwnedFd>, slots: TransmitStatus) -> Self {
        Self { socket, slots, calls: RwLock::new(()), last: AtomicUsize::new(0) }
    }

    /// Puts off the call for the slots up to this one, which were filled.
    pub(super) fn put_off(self: &Arc<Self>, last: usize) -> Kick {
        self.last.store(last, SeqCst);
        Kick(Arc::clone(self))
    }

    /// Returns the last slot that a call was put off for, unless the kernel has taken it.
    pub(super) fn left(&self) -> Option<usize> {
        let last = self.last.load(SeqCst);
        self.slots.is_asked_for(last).then_some(last)
    }

    /// Keeps all other threads from making the call; `None` if one is making it.
    pub(super) fn keep(&self) -> Option<Kept<'_>> {
        self.calls.try_write().ok().map(Kept)
    }

    /// Makes the call. Not through libc: a thread of a program that knows nothing of it must not be cancelled in here.
    pub(super) fn call(&self) -> Result<usize, Errno> {
        send(self.socket.as_fd(), &[], SendFlags::DONTWAIT)
    }
}

/// Waits until no [`Kick`] is left, for at most `PATIENCE`.
pub(super) fn settle(kicker: &Arc<Kicker>) {
    let until = Instant::now() + PATIENCE;
    // A `Kick` has a share of this `Arc`, and drops it once it is made.
    while Arc::strong_count(kicker) > 1 && Instant::now() < until {
        std::thread::yield_now();
    }
}

impl Kick {
    /// Makes the call, unless another thread's call has meanwhile sent everything. Returns false if the kernel has not taken
    /// all: then the port has to retry ([`Driver::flush`](crate::Driver::flush)).
    ///
    /// One thread's call also sends what others have filled, but no thread repeats it on behalf of others: with enough of
    /// them it would never return.
    #[must_use]
    pub fn make(self) -> bool {
        let Self(kicker) = self;
        if kicker.left().is_none() {
            return true;
        }
        let _calls = kicker.calls.read().unwrap_or_else(PoisonError::into_inner);
        kicker.call().is_ok() && kicker.left().is_none()
    }
}
