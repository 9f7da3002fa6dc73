//! The system call that makes the kernel look at what was filled, apart from the port: whoever drives the port behind a lock
//! makes it when others have that lock.

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

/// What is needed to make it, of one port.
#[derive(Debug)]
pub(super) struct Kicker {
    socket: Arc<OwnedFd>,
    slots: TransmitStatus,
    /// Had by who makes the call, together with others; and by who keeps all of them from it.
    calls: RwLock<()>,
    /// The last slot that somebody wanted the kernel to look at.
    last: AtomicUsize,
}

/// A call that is to be made.
#[derive(Debug)]
#[must_use = "what was filled stays where it is until the call is made"]
pub struct Kick(Arc<Kicker>);

/// Nobody makes the call while this lives.
#[derive(Debug)]
pub(super) struct Kept<'a>(
    #[expect(dead_code, reason = "it is let go of at the end")] RwLockWriteGuard<'a, ()>,
);

impl Kicker {
    pub(super) fn new(socket: Arc<OwnedFd>, slots: TransmitStatus) -> Self {
        Self { socket, slots, calls: RwLock::new(()), last: AtomicUsize::new(0) }
    }

    /// Slots up to this one were filled.
    pub(super) fn put_off(self: &Arc<Self>, last: usize) -> Kick {
        self.last.store(last, SeqCst);
        Kick(Arc::clone(self))
    }

    /// The last slot that a call was put off for, unless the kernel has taken it.
    pub(super) fn left(&self) -> Option<usize> {
        let last = self.last.load(SeqCst);
        self.slots.is_asked_for(last).then_some(last)
    }

    /// Keeps all others from making the call, unless one is at it.
    pub(super) fn keep(&self) -> Option<Kept<'_>> {
        self.calls.try_write().ok().map(Kept)
    }

    /// The call. Not libc's: a thread of a program that knows nothing of it must not be cancelled in here.
    pub(super) fn call(&self) -> Result<usize, Errno> {
        send(self.socket.as_fd(), &[], SendFlags::DONTWAIT)
    }
}

/// Waits until no [`Kick`] is left, for so long at the most.
pub(super) fn settle(kicker: &Arc<Kicker>) {
    let until = Instant::now() + PATIENCE;
    // One that is made has a part of this one, and takes it along.
    while Arc::strong_count(kicker) > 1 && Instant::now() < until {
        std::thread::yield_now();
    }
}

impl Kick {
    /// Makes the call, unless another thread's has taken all meanwhile. False if the kernel has not taken all: then it is the
    /// port's to look ([`Driver::flush`](crate::Driver::flush)).
    ///
    /// One thread's call sends what others have filled, too, but none makes it for others again and again: with enough of
    /// them it would never come back.
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
