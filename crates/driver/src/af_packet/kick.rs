//! The system call that makes the kernel look at what was filled, apart from the port: whoever drives the port behind a lock
//! makes it when others have that lock.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicUsize};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use super::slots::TransmitStatus;

/// Nobody makes the call.
const IDLE: u8 = 0;
/// Somebody does, or keeps others from it.
const BUSY: u8 = 1;
/// And somebody else has filled slots since, which may have been too late for that call.
const AGAIN: u8 = 2;

/// A call takes microseconds, unless the thread that makes it does not get to run.
const PATIENCE: Duration = Duration::from_millis(100);

/// What is needed to make it, of one port.
#[derive(Debug)]
pub(super) struct Kicker {
    socket: Arc<OwnedFd>,
    slots: TransmitStatus,
    state: AtomicU8,
    /// The last slot that somebody wanted the kernel to look at.
    last: AtomicUsize,
}

/// A call that is to be made.
#[derive(Debug)]
#[must_use = "what was filled stays where it is until the call is made"]
pub struct Kick(Arc<Kicker>);

/// Nobody makes the call while this lives.
#[derive(Debug)]
pub(super) struct Kept<'a>(&'a Kicker);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // Who wanted the call meanwhile has left it to who has this, and that one makes it next.
        self.0.state.store(IDLE, SeqCst);
    }
}

impl Kicker {
    pub(super) fn new(socket: Arc<OwnedFd>, slots: TransmitStatus) -> Self {
        Self { socket, slots, state: AtomicU8::new(IDLE), last: AtomicUsize::new(0) }
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

    /// Keeps others from making the call, unless one is at it. Who has this makes the call behind it.
    pub(super) fn keep(&self) -> Option<Kept<'_>> {
        self.state.compare_exchange(IDLE, BUSY, SeqCst, SeqCst).ok().map(|_| Kept(self))
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
    /// Makes the call, or leaves it to a thread that is at it and makes it once more. False if the kernel has not taken
    /// all: then it is the port's to look ([`Driver::flush`](crate::Driver::flush)).
    #[must_use]
    pub fn make(self) -> bool {
        let Self(kicker) = self;
        let state = &kicker.state;
        let others = state.fetch_update(SeqCst, SeqCst, |state| match state {
            IDLE => Some(BUSY),
            _ => Some(AGAIN),
        });
        if others != Ok(IDLE) {
            return true;
        }
        let mut all = true;
        loop {
            all &= kicker.call().is_ok();
            if state.compare_exchange(BUSY, IDLE, SeqCst, SeqCst).is_ok() {
                return all && kicker.left().is_none();
            }
            state.store(BUSY, SeqCst);
        }
    }
}
